"""Compares the totals of a quick pass with those of an index that was filled by the full read."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from burnd.contract.reports import SummaryParams
from burnd.harness.claude_code.lines import parse_path
from burnd.harness.codex.reader import COMPRESSED, place_of
from burnd.harness.opencode.product import present_databases
from burnd.harness.opencode.reader import ReadOptions
from burnd.harness.quick_pass import LogTask, files_below
from burnd.index.store import IndexStore
from burnd.queries.summary import summary
from burnd.queries.view import View
from burnd.totals.index import memory_index
from tests.queries.asking import NOW, PRICES

# What sessions are called, and when they began and ended, is known from their content.
_OF_CONTENT = ("title", "createdAt", "updatedAt", "open")
BY = ("model", "provider", "day", "month", "hour", "project", "session", "source", "branch")


def claude_logs(*roots: Path) -> list[LogTask]:
    return files_below(map(str, roots), "burnd.harness.claude_code.totals", (".jsonl",), parse_path)


def codex_logs(*roots: Path) -> list[LogTask]:
    return files_below(map(str, roots), "burnd.harness.codex.totals", (".jsonl", COMPRESSED), place_of)


def opencode_logs(folder: Path, options: ReadOptions | None = None) -> list[LogTask]:
    paths = present_databases([str(folder)], [])
    if not paths:
        return []
    return [LogTask("burnd.harness.opencode.totals", tuple(paths), "", 0.0, 0, options or ReadOptions())]


async def totals_of(tasks: Sequence[LogTask], by: Iterable[str] = BY, processes: int = 1) -> dict[str, Any]:
    """The summaries of what a quick pass finds in these logs."""
    async with memory_index(tasks, PRICES, processes) as store:
        return {one: await store.transact(partial(_summary, by=one)) for one in by}


async def totals_in(index: IndexStore, by: Iterable[str] = BY) -> dict[str, Any]:
    """The same of an index."""
    return {one: await index.ask(partial(_summary, by=one), within=60) for one in by}


def _summary(db: Any, by: str) -> dict[str, Any]:
    answer = summary(View(db, PRICES, NOW), SummaryParams(by=by))
    for row in answer["rows"]:
        for name in _OF_CONTENT:
            row.pop(name, None)
    answer["totals"].pop("open", None)
    return answer


def differences(quick: Any, full: Any, where: str = "") -> list[str]:
    """The places at which two answers differ."""
    if isinstance(quick, dict) and isinstance(full, dict):
        names = quick.keys() | full.keys()
        return [
            line
            for name in sorted(names)
            for line in differences(quick.get(name, "nothing"), full.get(name, "nothing"), f"{where}.{name}")
        ]
    if isinstance(quick, list) and isinstance(full, list) and len(quick) == len(full):
        pairs = enumerate(zip(quick, full, strict=True))
        return [line for n, (one, other) in pairs for line in differences(one, other, f"{where}[{n}]")]
    return [] if quick == full else [f"{where}: {quick!r} instead of {full!r}"]
