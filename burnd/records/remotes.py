"""Git remotes in canonical form: however one is spelled, its key is `host/path`."""

from __future__ import annotations

import re

_HOST = r"(\[[0-9a-f:.]+\]|[^@:/\\\s\[\]]+)"
_SCP = re.compile(rf"(?:[^/]+@)?{_HOST}:(?!//)(.+)", re.IGNORECASE)
_URL = re.compile(rf"[a-z+]+://(?:[^/]*@)?{_HOST}(?::\d+)?/(.+)", re.IGNORECASE)
_DRIVE = re.compile(r"[a-z]:[\\/]", re.IGNORECASE)
_BEHIND = re.compile(r"[?#].*", re.DOTALL)


def canonical_remote(url: str) -> str | None:
    """`git@github.com:me/it.git` and `https://github.com/me/it` are both `github.com/me/it`."""
    # What stands behind `?` or `#` is no part of a path, and where people put tokens.
    address = _BEHIND.sub("", url.strip())
    match = None if _DRIVE.match(address) else _URL.fullmatch(address) or _SCP.fullmatch(address)
    if match is None:
        return None
    path = "/".join(filter(None, match[2].split("/"))).removesuffix(".git").strip("/")
    return f"{match[1].lower().rstrip('.')}/{path}" if path else None
