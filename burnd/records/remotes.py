"""Git remotes in canonical form: however one is spelled, its key is `host/path`."""

from __future__ import annotations

import re

_SCP = re.compile(r"(?:[^@/]+@)?([^:/\s]+):(?!//)(.+)")
_URL = re.compile(r"[a-z+]+://(?:[^@/]*@)?([^/:]+)(?::\d+)?/(.+)", re.IGNORECASE)


def canonical_remote(url: str) -> str | None:
    """`git@github.com:me/it.git` and `https://github.com/me/it` are both `github.com/me/it`."""
    match = _URL.fullmatch(url.strip()) or _SCP.fullmatch(url.strip())
    if match is None:
        return None
    path = match[2].strip("/").removesuffix(".git").strip("/")
    return f"{match[1].lower()}/{path}" if path else None
