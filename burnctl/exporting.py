"""Turns on their way out: as lines of JSON, as CSV, or as Parquet files by day. A file is whole or not there."""

from __future__ import annotations

import contextlib
import os
import sys

from burnctl.errors import BurnctlError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import IO, Any

    Turns = Iterable[dict[str, Any]]

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
    return {name: usage.get(said[6:]) if said.startswith("usage.") else turn.get(said) for name, said, _kind in COLUMNS}


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
    from burnctl.render import clean

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
    """A hidden name in the same folder, which no query over `*.parquet` or `*.csv` takes for a file of its own."""
    folder, name = os.path.split(path)
    return os.path.join(folder, f".{name}.{os.getpid()}.part")
