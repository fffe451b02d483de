"""Names, ids and paths: bounded in length, as file names, in short form, as git remotes."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Annotated, Any, Final

import msgspec
from msgspec import inspect

LONGEST_NAME: Final = 256  # bytes of UTF-8
LONGEST_PATH: Final = 4096  # bytes, the limit of Linux
_HASH_BYTES: Final = 8

# Decoding rejects longer ones at no cost; `bound_names` then cuts them.
Name = Annotated[str, msgspec.Meta(max_length=LONGEST_NAME)]
PathName = Annotated[str, msgspec.Meta(max_length=LONGEST_PATH)]


def bounded(text: str, most: int = LONGEST_NAME) -> str:
    """A longer text is cut and gets a hash of the whole, so that names stay distinct."""
    if len(text) * 4 <= most:
        return text
    data = text.encode("utf-8", "surrogatepass")
    if len(data) <= most:
        return text
    digest = hashlib.blake2b(data, digest_size=_HASH_BYTES).hexdigest()
    return f"{data[: most - len(digest) - 1].decode('utf-8', 'ignore')}~{digest}"


def bounded_tags(tags: Mapping[str, str | None]) -> dict[str, str | None]:
    """For reports; the ledger has them whole."""
    return {bounded(key): None if value is None else bounded(value) for key, value in tags.items()}


def bound_names(value: Any, struct: Any) -> Any:
    """According to the types of the struct."""
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


# Users can find the sidecar of a session by its plain id. Hashed names start with a character that plain ones cannot
# have.
_PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,99}")
_RESERVED = re.compile(r"(?i:con|prn|aux|nul|com[0-9]|lpt[0-9])")
_HASHED = "="
_UUID = re.compile("[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")


def file_stem(untrusted_id: str) -> str:
    """At most 100 bytes, no separators, no leading dot, different for every id."""
    if _PLAIN.fullmatch(untrusted_id) and not _RESERVED.fullmatch(untrusted_id):
        return untrusted_id
    return _HASHED + hashlib.sha256(untrusted_id.encode("utf-8", "surrogatepass")).hexdigest()


@lru_cache(maxsize=8192)  # a session's id is in all of its records
def short_id(text: str) -> str | bytes:
    """A UUID as 16 bytes, any other id unchanged."""
    return bytes.fromhex(text.replace("-", "")) if _UUID.fullmatch(text) else text


def whole_id(short: str | bytes) -> str:
    if isinstance(short, str):
        return short
    digits = short.hex()
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


MOST_PARTS: Final = 256


def is_bounded(path: str) -> bool:
    """Whether a path may be walked by parts, which takes memory by the square of their number."""
    return len(path) <= LONGEST_PATH and path.count("/") <= MOST_PARTS and len(_bytes(path)) <= LONGEST_PATH


def bounded_path(path: str | None) -> str | None:
    if not path:
        return None
    if is_bounded(path):
        return path
    data = _bytes(path)
    mark = hashlib.blake2b(data, digest_size=8).hexdigest()
    parts = data[: LONGEST_PATH - len(mark) - 1].split(b"/", MOST_PARTS)[:MOST_PARTS]
    return b"/".join(parts).decode("utf-8", "ignore").rstrip("/") + "/" + mark


def _bytes(path: str) -> bytes:
    return path.encode("utf-8", "surrogatepass")


# A host of one letter is a drive. An `@` within a path may follow a part of a password.
_HOST = r"(\[[0-9a-f:.]+\]|[^@:/?#\\\s\[\]]{2,})"
_SCP = re.compile(rf"(?:[^/]+@)?{_HOST}:(?!//|:)([^@]+)", re.IGNORECASE)
_URL = re.compile(rf"[a-z+]+://(?:[^/]*@)?{_HOST}(?::\d+)?/(.+)", re.IGNORECASE)
_SUFFIX = re.compile(r"\.git$", re.IGNORECASE)
_AT_SIGN = re.compile(r"[^/]@")
_QUERY = re.compile(r"[?#].*", re.DOTALL)


def canonical_remote(url: str) -> str | None:
    """`git@github.com:me/it.git` and `https://github.com/me/it` are both `github.com/me/it`."""
    match = _URL.fullmatch(url.strip()) or _SCP.fullmatch(url.strip())
    if match is None or _AT_SIGN.search(match[2]):
        return None
    raw_path = _QUERY.sub("", match[2])  # a query may contain tokens
    path = _SUFFIX.sub("", "/".join(filter(None, raw_path.split("/")))).strip("/")
    return f"{match[1].lower().rstrip('.')}/{path}" if path else None
