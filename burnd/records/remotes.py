"""Git remotes in canonical form: however one is spelled, its key is `host/path`."""

from __future__ import annotations

import re

# A host of one letter is a drive. Where an `@` is left behind the colon, what stands before it may be a password.
_HOST = r"(\[[0-9a-f:.]+\]|[^@:/\\\s\[\]]{2,})"
_SCP = re.compile(rf"(?:[^/]+@)?{_HOST}:(?!//|:)([^@]+)", re.IGNORECASE)
_URL = re.compile(rf"[a-z+]+://(?:[^/]*@)?{_HOST}(?::\d+)?/(.+)", re.IGNORECASE)
_SUFFIX = re.compile(r"\.git$", re.IGNORECASE)
_BEHIND = re.compile(r"[?#].*", re.DOTALL)


def canonical_remote(url: str) -> str | None:
    """`git@github.com:me/it.git` and `https://github.com/me/it` are both `github.com/me/it`."""
    # What stands behind `?` or `#` is no part of a path, and where people put tokens.
    address = _BEHIND.sub("", url.strip())
    match = _URL.fullmatch(address) or _SCP.fullmatch(address)
    if match is None:
        return None
    path = _SUFFIX.sub("", "/".join(filter(None, match[2].split("/")))).strip("/")
    return f"{match[1].lower().rstrip('.')}/{path}" if path else None
