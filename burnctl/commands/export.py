"""`burnctl export`: every request with its tags and cost, as JSON lines, CSV, or Parquet files by day.

A file is complete or absent.
"""

from __future__ import annotations

import contextlib
import os
import sys

from burnctl import flags
from burnctl.daemon import print_note, reach
from burnctl.errors import BurnctlError, Failed, UsageError
from burnctl.output import safe_cell
from burnctl.progress import WIPE, can_take_back
from burnctl.render.notes import backfill_line
from burnctl.render.numbers import counted
from burnctl.render.text import clean
from burnd import protocol
from burnd.contract import Params, param
from burnd.contract.reports import ExportParams

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterator
    from typing import IO, Any

    from burnctl.client import Client

HELP = (
    "writes every request with its tags and its cost: as lines of JSON, as CSV, or as Parquet files by day (UTC), "
    "which DuckDB, ClickHouse and Spark read together with those of other machines"
)
EXAMPLES = (
    "burnctl export > turns.jsonl",
    "burnctl export --format csv --since 30d -o turns.csv",
    "burnctl export --format csv --raw | psql -c '\\copy turns from stdin csv header'",
    "burnctl export --format parquet -o turns/",
)
_PAGE = 2000
_TOLD_EVERY = 10_000


class ExportFlags(Params):
    format: str = param(default="jsonl", help="the format", choices=("jsonl", "csv", "parquet"))
    output: str | None = param(
        default=None, help="where to write: a file, or with parquet a folder", flag="-o --output", metavar="FILE"
    )
    machine: str | None = param(default=None, help="a name for this machine (its host name)", metavar="NAME")
    raw: bool = param(default=False, help="with csv: values as they are, for databases; not for spreadsheets")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    flags.add(parser, ExportFlags, ExportParams)
    flags.add(parser, flags.Output, only=("no_start", "no_wait"))


def run(options: argparse.Namespace) -> int:
    if options.format == "parquet" and options.output in (None, "-"):
        raise UsageError("export: Parquet needs a folder to write to", "for example: -o turns/")
    if options.raw and options.format != "csv":
        raise UsageError("export: --raw is for --format csv", "the other formats have all values as they are")
    write = _writer(options)
    filters = flags.given(options, ExportParams)
    if options.format == "parquet":
        filters["whole_days"] = True  # one file for each day
    turns = Turns(reach(options), filters, options.machine or host_name())
    summary = write(turns)
    if options.output not in (None, "-"):
        print(summary or f"{counted(turns.count, 'turn')} written to {options.output}", file=sys.stderr)
    return 0


def _writer(options: argparse.Namespace) -> Callable[[Turns], str | None]:
    """Imports the writer before the first request, so that a missing package is reported at once."""
    if options.format == "parquet":
        from burnctl.parquet import write_parquet

        return lambda turns: write_parquet(turns, options.output)
    if options.format == "csv":
        return lambda turns: write_csv(turns, options.output, is_raw=options.raw)
    return lambda turns: write_jsonl(turns, options.output)


class Turns:
    """The turns of an export, read page by page; prints a count at a terminal.

    The first page, read at once, has the machine's id and the period.
    """

    def __init__(self, client: Client, filters: dict[str, Any], machine: str) -> None:
        self.count = 0
        self.filters = filters
        self.is_partial = False
        self._client, self._machine = client, machine
        self._limit = _PAGE
        self._first = self._page(None)
        self.machine_id: str | None = self._first.get("machine")
        self.since: str | None = self._first.get("since")
        self.until: str | None = self._first.get("until")

    def __iter__(self) -> Iterator[dict[str, Any]]:
        has_progress = can_take_back() and not sys.stdout.isatty()
        try:
            for turn in self._every():
                yield {"machine": self._machine, "machineId": self.machine_id, **turn}
                self.count += 1
                if has_progress and self.count % _TOLD_EVERY == 0:
                    print(f"{WIPE}{self.count:,} turns ...", end="", file=sys.stderr, flush=True)
        finally:
            if has_progress and self.count >= _TOLD_EVERY:
                print(WIPE, end="", file=sys.stderr, flush=True)

    def _every(self) -> Iterator[dict[str, Any]]:
        """Warns on stderr if logs are unread."""
        page, line = self._first, ""
        self._first = {}
        while True:
            line = line or backfill_line(page, "The turns")
            self.is_partial = bool(line)
            yield from page["turns"]
            if page["next"] is None:
                break
            page = self._page(page["next"])
        if line:
            print_note(line)

    def _page(self, after: str | None) -> dict[str, Any]:
        """One page, smaller if turns have long tags."""
        while True:
            try:
                return self._client.ask(ExportParams, {**self.filters, "limit": self._limit, "after": after})
            except Failed as error:
                if error.code != protocol.TOO_LARGE or self._limit == 1:
                    raise
                self._limit //= 2


def host_name() -> str:
    import os

    return os.uname().nodename or "machine"


FORMATS = ("jsonl", "csv", "parquet")
# Name in tables, name in the answer, type.
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
    ("agent", "agent", "text"),
    ("tags", "tags", "map"),
    ("machine_id", "machineId", "text"),
)


def flat(turn: dict[str, Any]) -> dict[str, Any]:
    usage = turn.get("usage") or {}
    return {
        name: usage.get(field[6:]) if field.startswith("usage.") else turn.get(field) for name, field, _kind in COLUMNS
    }


def write_jsonl(turns: Turns, output: str | None) -> None:
    import json

    with _opened(output) as file:
        for turn in turns:
            file.write(json.dumps(turn, separators=(",", ":")) + "\n")


def write_csv(turns: Turns, output: str | None, *, is_raw: bool = False) -> None:
    """A header and a row for each turn; tags are JSON, None is empty. Cleaned for terminals and, unless `is_raw`, for
    spreadsheets."""
    import csv
    import json
    from decimal import Decimal

    with _opened(output) as file:
        at_terminal = file.isatty()
        rows = csv.DictWriter(file, [name for name, _, _ in COLUMNS], lineterminator="\n")
        rows.writeheader()
        for turn in turns:
            row = flat(turn)
            row["tags"] = json.dumps(row["tags"] or {}, separators=(",", ":"))
            if row["cost_usd"] is not None:
                usd = row["cost_usd"]
                row["cost_usd"] = f"{Decimal(repr(usd)):f}"
            if at_terminal:
                row = {name: clean(value) if isinstance(value, str) else value for name, value in row.items()}
            flags_as_words = {name: str(value).lower() for name, value in row.items() if isinstance(value, bool)}
            rows.writerow(row | flags_as_words if is_raw else {name: safe_cell(value) for name, value in row.items()})


@contextlib.contextmanager
def _opened(output: str | None) -> Iterator[IO[str]]:
    """Stdout, or a file that gets its name when it is complete."""
    if output in (None, "-"):
        yield sys.stdout
        return
    assert output is not None  # noqa: S101 - for the type checker
    remove_parts(output)
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
    """A hidden name in the same folder, which `*.parquet` or `*.csv` does not match."""
    folder, name = os.path.split(path)
    return os.path.join(folder, f".{name}.{os.getpid()}.part")


def remove_parts(path: str) -> None:
    """Removes what killed exports left beside `path`."""
    folder, name = os.path.split(path)
    with contextlib.suppress(OSError):
        for entry in os.listdir(folder or "."):
            pid = entry.removeprefix(f".{name}.").removesuffix(".part")
            if entry == f".{name}.{pid}.part" and pid.isdecimal() and not _is_running(int(pid)):
                os.unlink(os.path.join(folder, entry))


def _is_running(pid: int) -> bool:
    """Whether another process has this id. In a container, our own id may be that of an earlier export."""
    if pid == os.getpid():
        return False
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except OSError:
        pass  # another user's
    return True
