"""`burnctl export`: every turn with its stamps and its cost, for spreadsheets, notebooks and databases."""

from __future__ import annotations

import sys

from burnctl import flags
from burnctl import options as own
from burnctl.errors import Failed, Usage
from burnctl.progress_line import WIPE, can_take_back
from burnctl.starting import reach, say
from burnd import protocol
from burnd.contract.reports import ExportParams

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator
    from typing import Any

    from burnctl.client import Client

HELP = (
    "writes every request with its tags and its cost: as lines of JSON, as CSV, or as Parquet files by day (UTC), "
    "which DuckDB, ClickHouse and Spark read together with those of other machines"
)
EXAMPLES = (
    "burnctl export > turns.jsonl",
    "burnctl export --format csv --since 30d -o turns.csv",
    "burnctl export --format parquet -o turns/",
)
_PAGE = 2000
_TOLD_EVERY = 10_000


def add_arguments(parser: argparse.ArgumentParser) -> None:
    flags.add(parser, own.Export, ExportParams)
    flags.add(parser, own.Output, only=("no_start", "no_wait"))


def run(options: argparse.Namespace) -> int:
    if options.format == "parquet" and options.output in (None, "-"):
        raise Usage("export: Parquet needs a folder to write to", "for example: -o turns/")
    machine = options.machine or _host_name()
    write = _writer(options, machine)
    filters = flags.given(options, ExportParams)
    if options.format == "parquet":
        filters["whole_days"] = True  # each of its files is a day
    turns = _Counted(_every(reach(options), filters), machine)
    write(turns)
    if options.output not in (None, "-"):
        from burnctl.render.numbers import counted

        print(f"{counted(turns.count, 'turn')} written to {options.output}", file=sys.stderr)
    return 0


def _writer(options: argparse.Namespace, machine: str) -> Any:
    """Found before anything is asked, so that what is missing is said at once."""
    if options.format == "parquet":
        from burnctl.exporting_parquet import write_parquet

        return lambda turns: write_parquet(turns, options.output, machine)
    from burnctl.exporting import write_csv, write_jsonl

    write = write_csv if options.format == "csv" else write_jsonl
    return lambda turns: write(turns, options.output)


class _Counted:
    """The turns with their machine; at a terminal it says how many there were so far."""

    def __init__(self, turns: Iterator[dict[str, Any]], machine: str) -> None:
        self.count = 0
        self._turns = turns
        self._machine = machine

    def __iter__(self) -> Iterator[dict[str, Any]]:
        shown = can_take_back() and not sys.stdout.isatty()
        try:
            for turn in self._turns:
                yield {"machine": self._machine, **turn}
                self.count += 1
                if shown and self.count % _TOLD_EVERY == 0:
                    print(f"{WIPE}{self.count:,} turns ...", end="", file=sys.stderr, flush=True)
        finally:
            if shown and self.count >= _TOLD_EVERY:
                print(WIPE, end="", file=sys.stderr, flush=True)


def _every(client: Client, filters: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yields turns page by page, in smaller pages if turns have long tags. Warns on stderr while logs are unread."""
    from burnctl.render.notes import backfill_line

    after, limit, line = None, _PAGE, ""
    while True:
        try:
            page = client.ask(ExportParams, {**filters, "limit": limit, "after": after})
        except Failed as error:
            if error.code != protocol.TOO_LARGE or limit == 1:
                raise
            limit //= 2
            continue
        line = line or backfill_line(page, "The turns")
        yield from page["turns"]
        after = page["next"]
        if after is None:
            break
    if line:
        say(line)


def _host_name() -> str:
    import os

    return os.uname().nodename or "machine"
