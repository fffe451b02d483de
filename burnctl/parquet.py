"""Turns as Parquet, one file a day and machine: `DIR/day=2026-11-16/MACHINE.parquet`. The only user of pyarrow."""

from __future__ import annotations

import contextlib
import os
from decimal import Decimal
from itertools import groupby
from typing import Any
from zlib import crc32

from burnctl.commands.export import COLUMNS, beside_of, flat
from burnctl.errors import BurnctlError
from burnd.extras import PARQUET, to_install

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

try:
    import pyarrow as arrow
    import pyarrow.parquet as parquet
except ImportError:
    raise BurnctlError(
        "Parquet needs pyarrow, which is not installed",
        f"install it with: {to_install(PARQUET)}; or use --format jsonl or csv",
    ) from None

_ROWS_AT_ONCE = 20_000
_TYPES = {
    "text": arrow.string(),
    "count": arrow.int64(),
    "flag": arrow.bool_(),
    "time": arrow.timestamp("ms", tz="UTC"),
    "money": arrow.decimal128(38, 15),  # exact: the unit of burnd's own sums
    "map": arrow.map_(arrow.string(), arrow.string()),
}
SCHEMA = arrow.schema([(name, _TYPES[kind]) for name, _, kind in COLUMNS])


def write_parquet(turns: Iterable[dict[str, Any]], folder: str, machine: str) -> None:
    """Writes the turns, which come in the order of time, day by day; a day that was there before is replaced.

    Days are those of UTC, so that the files of all machines fit together.
    """
    try:
        for day, of_day in groupby(turns, key=lambda turn: str(turn["ts"])[:10]):
            _write_day(of_day, os.path.join(folder, f"day={day}"), f"{_file_name(machine)}.parquet")
    except OSError as error:
        raise BurnctlError(
            f"{error.filename or folder}: {error.strerror or error}", "days before it are written"
        ) from None


def _write_day(turns: Iterable[dict[str, Any]], folder: str, name: str) -> None:
    os.makedirs(folder, exist_ok=True)
    path = os.path.join(folder, name)
    beside = beside_of(path)
    try:
        with parquet.ParquetWriter(beside, SCHEMA, compression="zstd") as file:
            for some in _batches(turns):
                file.write_table(arrow.Table.from_pylist([_row(turn) for turn in some], schema=SCHEMA))
        _sync(beside)
        os.replace(beside, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(beside)
        raise


def _batches(turns: Iterable[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    batch: list[dict[str, Any]] = []
    for turn in turns:
        batch.append(turn)
        if len(batch) == _ROWS_AT_ONCE:
            yield batch
            batch = []
    if batch:
        yield batch


def _row(turn: dict[str, Any]) -> dict[str, Any]:
    from datetime import datetime

    row = flat(turn)
    row["ts"] = datetime.fromisoformat(row["ts"])
    row["tags"] = sorted((row["tags"] or {}).items())
    if row["cost_usd"] is not None:
        # The shortest text of a float is exact here: no turn costs so much that digits are lost.
        row["cost_usd"] = Decimal(repr(row["cost_usd"])).quantize(Decimal("1e-15"))
    return row


def _sync(path: str) -> None:
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _file_name(machine: str) -> str:
    """A safe name, its own for every machine. Engines pass over files whose names begin with a dot or a line."""
    plain = "".join(char if char.isascii() and (char.isalnum() or char in "-_.") else "_" for char in machine)
    plain = plain.lstrip("._")[:100]
    return plain if plain == machine else f"{plain or 'machine'}-{crc32(machine.encode()):08x}"
