"""Compresses values of the index."""

from __future__ import annotations

import zstandard

_LEVEL = 3
_LARGEST = 1 << 28


def compressed(data: bytes) -> bytes:
    # Copied: zstandard's own result keeps the memory of the largest size that it could have had.
    return bytes(memoryview(zstandard.compress(data, _LEVEL)))


def decompressed(data: bytes) -> bytes:
    """Raises ZstdError for data that was not compressed here, before it takes any memory."""
    if zstandard.frame_content_size(data) > _LARGEST:
        raise zstandard.ZstdError("larger than any stored value")
    return zstandard.ZstdDecompressor().decompress(data, max_output_size=_LARGEST)
