"""`burnctl export`: every request with its tags and its cost, as lines of JSON, CSV, or Parquet files by day.

A file is complete or not there.
"""

from __future__ import annotations

import contextlib
import os
import sys

from burnctl import flags
from burnctl.daemon import reach, say
from burnctl.errors import BurnctlError, Failed, Usage
from burnctl.progress import WIPE, can_take_back
from burnd import protocol
from burnd.contract import Params, param
from burnd.contract.reports import ExportParams

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable, Iterator
    from typing import IO, Any

    from burnctl.client import Client

    Turns = Iterable[dict[str, Any]]

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


class ExportFlags(Params):
    """Flags of `export`."""

    format: str = param(default="jsonl", help="the format", choices=("jsonl", "csv", "parquet"))
    output: str | None = param(
        default=None, help="where to write: a file, or with parquet a folder", flag="-o --output", metavar="FILE"
    )
    machine: str | None = param(default=None, help="a name for this machine (its host name)", metavar="NAME")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    flags.add(parser, ExportFlags, ExportParams)
    flags.add(parser, flags.Output, only=("no_start", "no_wait"))


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
    """The writer, imported before the first request, so that a missing package is reported at once."""
    if options.format == "parquet":
        from burnctl.parquet import write_parquet

        return lambda turns: write_parquet(turns, options.output, machine)

    write = write_csv if options.format == "csv" else write_jsonl
    return lambda turns: write(turns, options.output)


class _Counted:
    """The turns with their machine; at a terminal it prints a count."""

    def __init__(self, turns: Iterator[dict[str, Any]], machine: str) -> None:
        self.count = 0
        self._turns = turns
        self._machine = machine

    def __iter__(self) -> Iterator[dict[str, Any]]:
        has_progress = can_take_back() and not sys.stdout.isatty()
        try:
            for turn in self._turns:
                yield {"machine": self._machine, **turn}
                self.count += 1
                if has_progress and self.count % _TOLD_EVERY == 0:
                    print(f"{WIPE}{self.count:,} turns ...", end="", file=sys.stderr, flush=True)
        finally:
            if has_progress and self.count >= _TOLD_EVERY:
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


FORMATS = ("jsonl", "csv", "parquet")
# Name in tables, name in the socket's answer, type. Names in tables are what SQL likes to read.
COLUMNS = (
    ("machine", "machine", "text"),
    ("ts", "ts", "time"),
    ("source", "source", "text"),
    ("session_id", "sessionId", "text"),
    ("rail_id", "railId", "text"),
    ("message_id", "messageId", "text"),
    ("turn_index", "turnIndex", "count"),
    ("parent", "parent", "text"),
    ("model", "model", "text"),
    ("provider", "provider", "text"),
    ("project", "project", "text"),
    ("project_key", "projectKey", "text"),
    ("git_branch", "gitBranch", "text"),
    ("input", "usage.input", "count"),
    ("output", "usage.output", "count"),
    ("reasoning", "usage.reasoning", "count"),
    ("cache_read", "usage.cacheRead", "count"),
    ("cache_create_5m", "usage.cacheCreate5m", "count"),
    ("cache_create_1h", "usage.cacheCreate1h", "count"),
    ("cost_usd", "costUsd", "money"),
    ("is_harness_cost", "isHarnessCost", "flag"),
    ("speed", "speed", "text"),
    ("searches", "searches", "count"),
    ("fetches", "fetches", "count"),
    ("quality", "quality", "text"),
    ("open", "open", "flag"),
    ("activity", "activity", "text"),
    ("stop_reason", "stopReason", "text"),
    ("has_edits", "hasEdits", "flag"),
    ("retries", "retries", "count"),
    ("prompt_id", "promptId", "text"),
    ("prompt_retries", "promptRetries", "count"),
    ("agent_id", "agentId", "text"),
    ("agent_type", "agentType", "text"),
    ("parent_tool_use_id", "parentToolUseId", "text"),
    ("tags", "tags", "map"),
)


def flat(turn: dict[str, Any]) -> dict[str, Any]:
    """A turn by the names of columns."""
    usage = turn.get("usage") or {}
    return {
        name: usage.get(field[6:]) if field.startswith("usage.") else turn.get(field) for name, field, _kind in COLUMNS
    }


def write_jsonl(turns: Turns, output: str | None) -> None:
    import json

    with _opened(output) as file:
        for turn in turns:
            file.write(json.dumps(turn, separators=(",", ":")) + "\n")


def write_csv(turns: Turns, output: str | None) -> None:
    """With a line of names; what is not known is empty, tags are JSON. A terminal gets no control characters."""
    import csv
    import json

    from burnctl.output import safe_cell
    from burnctl.render.text import clean

    with _opened(output) as file:
        at_terminal = file.isatty()
        rows = csv.DictWriter(file, [name for name, _, _ in COLUMNS], lineterminator="\n")
        rows.writeheader()
        for turn in turns:
            row = flat(turn)
            row["tags"] = json.dumps(row["tags"] or {}, separators=(",", ":"))
            if row["cost_usd"] is not None:
                row["cost_usd"] = _plain(row["cost_usd"])
            if at_terminal:
                row = {name: clean(value) if isinstance(value, str) else value for name, value in row.items()}
            rows.writerow({name: safe_cell(value) for name, value in row.items()})


def _plain(usd: float) -> str:
    """An amount in digits alone: spreadsheets make a text of `1e-07`."""
    from decimal import Decimal

    return f"{Decimal(repr(usd)):f}"


@contextlib.contextmanager
def _opened(output: str | None) -> Iterator[IO[str]]:
    """Stdout, or a file that takes its name when all is written and leaves nothing when it is not."""
    if output in (None, "-"):
        yield sys.stdout
        return
    assert output is not None  # noqa: S101 - for the type checker
    beside = beside_of(output)
    try:
        with open(beside, "w", encoding="utf-8", newline="") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, output)
    except BaseException as error:
        with contextlib.suppress(OSError):
            os.unlink(beside)
        if isinstance(error, OSError) and not isinstance(error, BrokenPipeError):
            raise BurnctlError(f"{output}: {error.strerror or error}", "nothing was written") from None
        raise


def beside_of(path: str) -> str:
    """A hidden name in the same folder, which no query over `*.parquet` or `*.csv` reads."""
    folder, name = os.path.split(path)
    return os.path.join(folder, f".{name}.{os.getpid()}.part")
