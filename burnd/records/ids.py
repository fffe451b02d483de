"""Names made from ids that come from outside and are not to be trusted."""

from __future__ import annotations

import hashlib
import re

# Plain ids keep their own name, so that a person finds a session's sidecar. A hashed name starts with a
# character no plain one may have: two ids never share a file.
_PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,99}")
_RESERVED = re.compile(r"(?i:con|prn|aux|nul|com[0-9]|lpt[0-9])")
_HASHED = "="


def file_stem(untrusted_id: str) -> str:
    """A file name for any id: at most 100 bytes, no separators, no leading dot, different for every id."""
    if _PLAIN.fullmatch(untrusted_id) and not _RESERVED.fullmatch(untrusted_id):
        return untrusted_id
    return _HASHED + hashlib.sha256(untrusted_id.encode("utf-8", "surrogatepass")).hexdigest()
