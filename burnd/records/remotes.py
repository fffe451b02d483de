"""Git remotes in canonical form: however one is spelled, its key is `host/path`."""

from __future__ import annotations

import re

# A host of one letter is a drive. Where an `@` is left in a path, what stands before it may be half a password, unless
# it begins a name.
_HOST = r"(\[[0-9a-f:.]+\]|[^@:/?#\\\s\[\]]{2,})"
_SCP = re.compile(rf"(?:[^/]+@)?{_HOST}:(?!//|:)([^@]+)", re.IGNORECASE)
_URL = re.compile(rf"[a-z+]+://(?:[^/]*@)?{_HOST}(?::\d+)?/(.+)", re.IGNORECASE)
_SUFFIX = re.compile(r"\.git$", re.IGNORECASE)
_LEFT = re.compile(r"[^/]@")
_BEHIND = re.compile(r"[?#].*", re.DOTALL)


def canonical_remote(url: str) -> str | None:
    """`git@github.com:me/it.git` and `https://github.com/me/it` are both `github.com/me/it`."""
    match = _URL.fullmatch(url.strip()) or _SCP.fullmatch(url.strip())
    if match is None or _LEFT.search(match[2]):
        return None
    named = _BEHIND.sub("", match[2])  # what stands behind is no part of a path, and where people put tokens
    path = _SUFFIX.sub("", "/".join(filter(None, named.split("/")))).strip("/")
    return f"{match[1].lower().rstrip('.')}/{path}" if path else None
