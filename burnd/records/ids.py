"""Names made from ids that come from outside and are not to be trusted, and what takes less room than they do."""

from __future__ import annotations

import hashlib
import re
from functools import lru_cache

# Plain ids keep their own name, so that a person finds a session's sidecar. A hashed name starts with a
# character no plain one may have: two ids never share a file.
_PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,99}")
_RESERVED = re.compile(r"(?i:con|prn|aux|nul|com[0-9]|lpt[0-9])")
_HASHED = "="
_UUID = re.compile("[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")


def file_stem(untrusted_id: str) -> str:
    """A file name for any id: at most 100 bytes, no separators, no leading dot, different for every id."""
    if _PLAIN.fullmatch(untrusted_id) and not _RESERVED.fullmatch(untrusted_id):
        return untrusted_id
    return _HASHED + hashlib.sha256(untrusted_id.encode("utf-8", "surrogatepass")).hexdigest()


@lru_cache(maxsize=8192)  # a session's stands in all that is said in it, a message's in each of its blocks
def short_id(text: str) -> str | bytes:
    """A UUID as its 16 bytes, any other id as it is."""
    return bytes.fromhex(text.replace("-", "")) if _UUID.fullmatch(text) else text


def whole_id(short: str | bytes) -> str:
    """The id that was made short."""
    if isinstance(short, str):
        return short
    digits = short.hex()
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"
