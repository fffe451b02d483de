"""The base of all records: frozen, camelCase on disk, defaults left out, unknown fields ignored."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

VERSION = 1

# above every real turn; the sum of millions fits SQLite's integers
Count = Annotated[int, msgspec.Meta(ge=0, le=2**40)]


def camel(name: str) -> str:
    """`cache_create_5m` becomes `cacheCreate5m`; msgspec's own rule would write `5M`."""
    first, *rest = name.split("_")
    return first + "".join(part[:1].upper() + part[1:] for part in rest)


class Record(msgspec.Struct, frozen=True, gc=False, omit_defaults=True, rename=camel):
    """Records have no reference cycles, so the collector may skip them."""


def always(value: Any) -> Any:
    """A default that is written to disk, for fields that every reader may rely on."""
    return msgspec.field(default_factory=lambda: value)
