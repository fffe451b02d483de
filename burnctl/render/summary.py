"""How a summary looks: one row for each thing, a line of totals, and what must be known to trust them."""

from __future__ import annotations

import os
import time

from burnctl.render.chart import bar, sparkline
from burnctl.render.numbers import NOTHING, ago, money, number, percent
from burnctl.render.tables import Column, table

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from burnctl.render.screen import Screen

_CHART_DAYS = 60
_SPARK = 40


def shown(answer: dict[str, Any], screen: Screen, *, chart: bool = False) -> str:
    """All of it, for a person."""
    totals = answer["totals"]
    if not totals["turns"] and not totals["emptyTurns"]:
        return _nothing(answer)
    parts = []
    if chart:
        parts.append(_chart(answer["series"], screen))
    parts.append(_table(answer, screen))
    notes = [*_notes(answer, screen)]
    return "\n\n".join([*parts, "\n".join(notes)])


def _nothing(answer: dict[str, Any]) -> str:
    """Where there is nothing, what there would be elsewhere."""
    if answer["newest"] is None:
        return "No turns are recorded yet. `burnctl status` says what burnd is reading."
    newest = ago(answer["newest"], time.time() * 1000)
    return f"No turns match; the newest of all is from {newest}."


def _table(answer: dict[str, Any], screen: Screen) -> str:
    with_quality = "quality" in answer
    columns = [
        Column(answer["by"].removeprefix("tag:"), least=14, where="middle"),
        Column("turns", "right"),
        Column("input", "right", drop=3),
        Column("cache write", "right", drop=2),
        Column("cache read", "right", drop=2),
        Column("output", "right", drop=1),
        Column("cached", "right"),
        *([Column("one-shot", "right"), Column("ended well", "right", drop=4)] if with_quality else []),
        Column("cost", "right"),
        Column("share", "right"),
        Column("", drop=5),
    ]
    most = max((row["share"] or 0 for row in answer["rows"]), default=0)
    rows: list[list[object]] = [
        _cells(_label(row), row, with_quality, bar(row["share"] or 0, most, 12)) for row in answer["rows"]
    ]
    if answer["moreRows"]:
        rows.append([f"and {answer['moreRows']} more", *[""] * (len(columns) - 1)])
    totals = answer["totals"] | ({"quality": answer["quality"]} if with_quality else {})
    return table(columns, rows, screen, footer=_cells("total", totals | {"share": None}, with_quality, ""))


def _label(row: dict[str, Any]) -> str:
    label = str(row.get("name") or row["key"] or "(none)")
    home = os.path.expanduser("~")
    if label.startswith(home + "/"):
        label = "~" + label[len(home) :]
    return "  " * int(row.get("depth", 0)) + label


def _cells(label: str, row: dict[str, Any], with_quality: bool, drawn: str) -> list[object]:
    usage = row["usage"]
    return [
        label,
        number(row["turns"]),
        number(usage["input"]),
        number(usage["cacheCreate5m"] + usage["cacheCreate1h"]),
        number(usage["cacheRead"]),
        number(usage["output"] + usage["reasoning"]),
        percent(row["cacheHitRate"]),
        *(_quality_cells(row["quality"]) if with_quality else []),
        money(row["costUsd"]),
        percent(row["share"]) if row["share"] is not None else "",
        drawn,
    ]


def _quality_cells(quality: dict[str, Any]) -> list[str]:
    ended = quality["sessions"]
    known = ended["completed"] + ended["abandoned"] + ended["errored"]
    rate = quality["oneShotRate"]
    return [percent(rate), f"{ended['completed']} of {known}" if known else NOTHING]


def _notes(answer: dict[str, Any], screen: Screen) -> list[str]:
    totals, notes = answer["totals"], []
    days = answer.get("series") or []
    if len(days) > 1 and answer["by"] not in ("day", "hour"):
        spent = [day["costUsd"] or 0 for day in days]
        notes.append(f"by day {sparkline(spent, _SPARK)} {money(min(spent))} to {money(max(spent))}")
    if totals["openTurns"]:
        notes.append(f"{_turns(totals['openTurns'])} still open: what they used may grow.")
    if totals["partialTurns"]:
        notes.append(f"{_turns(totals['partialTurns'])} cut short in the log: their output is a lower bound.")
    if totals["emptyTurns"]:
        notes.append(f"{_turns(totals['emptyTurns'])} without any usage (failed or aborted) beside these.")
    if totals["unpricedTurns"]:
        names = ", ".join(answer["unpricedModels"][:5]) + (" ..." if len(answer["unpricedModels"]) > 5 else "")
        notes.append(f"{_turns(totals['unpricedTurns'])} without a price: {names}. See: burnctl pricing show MODEL")
    if answer["unlogged"] is not None:
        extra = answer["unlogged"]
        told = f"{number(sum(extra['usage'].values()))} tokens, {money(extra['costUsd'])}"
        notes.append(f"Beside these, harnesses say they used {told} that they did not log.")
    notes.append(screen.paint("Costs are at API prices; a subscriber did not pay them.", "dim"))
    return notes


def _turns(count: int) -> str:
    return "1 turn is" if count == 1 else f"{number(count)} turns are"


def _chart(series: list[dict[str, Any]], screen: Screen) -> str:
    """A bar for each day; the newest when there are too many for a screen."""
    days = series[-_CHART_DAYS:]
    most = max((day["costUsd"] or 0 for day in days), default=0)
    room = max(10, min(screen.width - 24, 100))
    lines = [
        f"{day['key']}  {screen.paint(bar(day['costUsd'] or 0, most, room), 'cyan')}  {money(day['costUsd'])}"
        for day in days
    ]
    left_out = len(series) - len(days)
    return "\n".join(([f"({left_out} earlier days are left out)"] if left_out else []) + lines)


def flat_rows(answer: dict[str, Any]) -> list[dict[str, Any]]:
    """The rows with one value a column, and the total last, for a spreadsheet."""
    rows = [*answer["rows"], {"key": "total", "share": None, **answer["totals"]}]
    return [
        {
            "key": row.get("name") or row["key"],
            **{name: row[name] for name in ("turns", "openTurns", "partialTurns", "unpricedTurns", "emptyTurns")},
            **row["usage"],
            "costUsd": row["costUsd"],
            "cacheHitRate": row["cacheHitRate"],
            "share": row["share"],
        }
        for row in rows
    ]
