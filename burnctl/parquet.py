"""Turns as Parquet, a file for each day and machine: `DIR/day=2026-11-16/MACHINE-ID.parquet`.

Each file has a digest of its rows, so that an export rewrites only the days that changed. Uses pyarrow.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
from collections import Counter
from itertools import groupby
from typing import Any

from burnctl.commands.export import COLUMNS, beside_of, flat, remove_parts
from burnctl.errors import BurnctlError
from burnctl.push.schema import usd
from burnctl.render.numbers import counted
from burnd.errors import PARQUET, to_install

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from burnctl.commands.export import Turns

try:
    import pyarrow as arrow
    import pyarrow.parquet as parquet
except ImportError:
    raise BurnctlError(
        "Parquet needs pyarrow, which is not installed",
        f"install it with: {to_install(PARQUET)}; or use --format jsonl or csv",
    ) from None

SCHEMA_VERSION = "2"  # of the columns
_ROWS_AT_ONCE = 20_000
TYPES = {
    "text": arrow.string(),
    "count": arrow.int64(),
    "flag": arrow.bool_(),
    "time": arrow.timestamp("ms", tz="UTC"),
    "money": arrow.decimal128(18, 12),
    "map": arrow.map_(arrow.string(), arrow.string()),
}
SCHEMA = arrow.schema([(name, TYPES[kind]) for name, _, kind in COLUMNS])
_PERIOD = {"since", "until", "tz", "whole_days"}
_DAY = re.compile(r"day=(\d{4}-\d\d-\d\d)")


def write_parquet(turns: Turns, folder: str) -> str:
    """Updates this machine's files of the period and returns a summary.

    Days are those of UTC, so that files of all machines fit together. Files of days without turns are removed.
    """
    if turns.machine_id is None:
        raise BurnctlError(
            "this machine has no id yet, since its home cannot be written", "see burnctl status, or set machine.id"
        )
    try:
        return _Export(turns, folder, turns.machine_id).run()
    except OSError as error:
        raise BurnctlError(
            f"{error.filename or folder}: {error.strerror or error}", "days before it are written"
        ) from None


class _Export:
    """One export to a folder. It only touches files of this machine."""

    def __init__(self, turns: Turns, folder: str, machine_id: str) -> None:
        self._turns, self._folder = turns, folder
        self._file_name = f"{machine_id}.parquet"
        filters = {name: value for name, value in turns.filters.items() if name not in _PERIOD}
        self._facts = {
            "burnd.schema": SCHEMA_VERSION,
            "burnd.machine": machine_id,
            "burnd.filters": json.dumps(filters, sort_keys=True),
        }
        self._digests: dict[str, str] = {}  # of existing files, by day

    def run(self) -> str:
        self._look()
        counts: Counter[str] = Counter()
        days = set()
        for day, turns in groupby(self._turns, key=lambda turn: str(turn["ts"])[:10]):
            days.add(day)
            counts["written" if self._write(day, turns) else "unchanged"] += 1
        # While old logs are unread, an empty day may still get turns.
        if not self._turns.is_partial:
            for day in self._digests.keys() - days:
                if self._covers(day):
                    os.unlink(self._path(day))
                    self._remove_if_empty(day)
                    counts["removed"] += 1
        parts = [f"{counted(counts[what], 'day')} {what}" for what in ("written", "unchanged", "removed")]
        return f"{counted(self._turns.count, 'turn')} in {self._folder}: {', '.join(parts)}"

    def _look(self) -> None:
        """Reads the digests of this machine's files, and removes what a killed export left."""
        names = os.listdir(self._folder) if os.path.isdir(self._folder) else []
        for day in (found[1] for found in map(_DAY.fullmatch, names) if found):
            path = self._path(day)
            remove_parts(path)
            if not os.path.exists(path):
                self._remove_if_empty(day)
                continue
            facts = _facts_of(path)
            filters = facts.get("burnd.filters", self._facts["burnd.filters"])
            if filters != self._facts["burnd.filters"]:
                raise BurnctlError(
                    f"{self._folder}: this machine exported other turns to it before (filters: {filters})",
                    "use the same filters, or another folder",
                )
            self._digests[day] = facts.get("burnd.digest", "")

    def _write(self, day: str, turns: Iterable[dict[str, Any]]) -> bool:
        """Writes a day's file if its rows differ from those of the existing file. Returns whether it did."""
        path, part = self._path(day), beside_of(self._path(day))
        digest = hashlib.sha256(json.dumps(self._facts).encode())
        with contextlib.ExitStack() as stack:
            file = None
            for rows in _batches(turns):
                for row in rows:
                    digest.update(json.dumps(list(row.values())).encode())
                # A larger day is written as it is read, to bound memory.
                if file is None and len(rows) < _ROWS_AT_ONCE and digest.hexdigest() == self._digests.get(day):
                    return False
                if file is None:
                    os.makedirs(os.path.dirname(path), exist_ok=True)
                    stack.callback(_unlink, part)
                    schema = SCHEMA.with_metadata(self._facts)
                    file = stack.enter_context(parquet.ParquetWriter(part, schema, compression="zstd"))
                file.write_table(arrow.Table.from_pylist([_values(row) for row in rows], schema=file.schema))
            if file is None or digest.hexdigest() == self._digests.get(day):
                return False
            file.add_key_value_metadata({"burnd.digest": digest.hexdigest()})
            file.close()
            sync(part)
            os.replace(part, path)
        return True

    def _covers(self, day: str) -> bool:
        """Whether the period, which begins and ends at midnight, has this day."""
        since, until = self._turns.since, self._turns.until
        return (since is None or day >= since[:10]) and (until is None or day < until[:10])

    def _path(self, day: str) -> str:
        return os.path.join(self._folder, f"day={day}", self._file_name)

    def _remove_if_empty(self, day: str) -> None:
        with contextlib.suppress(OSError):  # files of other machines are in it
            os.rmdir(os.path.dirname(self._path(day)))


def _facts_of(path: str) -> dict[str, str]:
    try:
        facts = parquet.read_metadata(path).metadata or {}
    except (OSError, arrow.ArrowException):
        return {}
    return {name.decode(errors="replace"): value.decode(errors="replace") for name, value in facts.items()}


def _batches(turns: Iterable[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    batch: list[dict[str, Any]] = []
    for turn in turns:
        row = flat(turn)
        row["tags"] = sorted((row["tags"] or {}).items())
        batch.append(row)
        if len(batch) == _ROWS_AT_ONCE:
            yield batch
            batch = []
    if batch:
        yield batch


def _values(row: dict[str, Any]) -> dict[str, Any]:
    from datetime import datetime

    row["ts"] = datetime.fromisoformat(row["ts"])
    row["cost_usd"] = usd(row["cost_usd"])
    return row


def _unlink(path: str) -> None:
    with contextlib.suppress(OSError):
        os.unlink(path)


def sync(path: str) -> None:
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
