"""Bounds on names and paths that come from logs and clients, so that one record cannot fill an answer."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from functools import lru_cache
from typing import Annotated, Any, Final

import msgspec
from msgspec import inspect

LONGEST_NAME: Final = 256  # bytes of UTF-8
LONGEST_PATH: Final = 4096  # bytes, the limit of Linux
_HASH_BYTES: Final = 8

# Decoding rejects longer ones, at no cost for all others; `bound_names` then cuts them.
Name = Annotated[str, msgspec.Meta(max_length=LONGEST_NAME)]
PathName = Annotated[str, msgspec.Meta(max_length=LONGEST_PATH)]


def bounded(text: str, most: int = LONGEST_NAME) -> str:
    """The text in at most `most` bytes: its beginning and a hash of the whole, so that distinct names stay distinct."""
    if len(text) * 4 <= most:
        return text
    data = text.encode("utf-8", "surrogatepass")
    if len(data) <= most:
        return text
    digest = hashlib.blake2b(data, digest_size=_HASH_BYTES).hexdigest()
    return f"{data[: most - len(digest) - 1].decode('utf-8', 'ignore')}~{digest}"


def bounded_tags(tags: Mapping[str, str]) -> dict[str, str]:
    """Tags as reports have them; the ledger and the list of stamps have their values whole."""
    return {bounded(key): bounded(value) for key, value in tags.items()}


def bound_names(value: Any, struct: Any) -> Any:
    """Plain JSON with all values cut that the struct's type marks as a name or a path."""
    return _bound(value, _kind_of(struct))


_kind_of = lru_cache(maxsize=64)(inspect.type_info)


def _bound(value: Any, kind: inspect.Type) -> Any:
    options = kind.types if isinstance(kind, inspect.UnionType) else (kind,)
    for one in options:
        if isinstance(value, str) and isinstance(one, inspect.StrType):
            return value if one.max_length is None else bounded(value, one.max_length)
        if isinstance(value, dict) and isinstance(one, inspect.StructType):
            kinds = {field.encode_name: field.type for field in one.fields}
            return {name: _bound(item, kinds[name]) if name in kinds else item for name, item in value.items()}
        if isinstance(value, dict) and isinstance(one, inspect.DictType):
            return {_bound(key, one.key_type): _bound(item, one.value_type) for key, item in value.items()}
        if isinstance(value, list) and isinstance(one, inspect.ListType | inspect.VarTupleType):
            return [_bound(item, one.item_type) for item in value]
    return value
