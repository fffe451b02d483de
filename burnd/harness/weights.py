"""What stands for content where content may not stand: its size, and a hash that tells two apart."""

from __future__ import annotations

import hashlib
from typing import Any, Final

import msgspec

from burnd.records.foreign_json import Rejected

HASH_DIGITS: Final = 16
_encode: Final = msgspec.json.Encoder(order="sorted").encode


def short_hash(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:HASH_DIGITS]


def args_hash(raw: msgspec.Raw, value: Any | Rejected) -> str:
    """The hash of a call's arguments, whatever the order of their keys; of their bytes where they cannot be opened."""
    return short_hash(bytes(raw) if isinstance(value, Rejected) else _encode(value))


def size(text: str) -> int:
    """The text's length in UTF-8."""
    return len(text) if text.isascii() else len(text.encode())


def decoded_size(base64_text: str) -> int:
    """How many bytes a base64 text stands for."""
    length = len(base64_text)
    return length * 3 // 4 - base64_text.count("=", max(0, length - 2))


def inline_data(url: str) -> str | None:
    """The base64 of a `data:` address."""
    head, comma, data = url.partition(",") if url.startswith("data:") else ("", "", "")
    return data if comma and head.endswith(";base64") else None
