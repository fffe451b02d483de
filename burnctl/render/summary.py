"""How a summary looks: one row for each thing, a line of totals, and what must be known to trust them."""

from __future__ import annotations

from burnctl.render.caveats import API_PRICES, NO_NAME, caveats, turns_are
from burnctl.render.chart import bar, sparkline
from burnctl.render.names import last_name, short_id, tilde
from burnctl.render.numbers import NOTHING, counted, day, milliseconds, money, number, percent
from burnctl.render.paragraphs import dimmed, wrapped
from burnctl.render.tables import Column, table
from burnctl.render.text import clean, width_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import date
    from typing import Any

    from burnctl.render.screen import Screen

_CHART_DAYS = 60
_MOST_DAYS = 4000
_SPARK = 40
_LONGEST_NAME = 28
_OPEN = "*"
_RATES = ("editTurns", "oneShotTurns", "oneShotRate", "editPrompts", "oneShotPrompts", "oneShotPromptRate")
_OF_SESSIONS = ("project", "createdAt", "parentSessionId")


def shown(answer: dict[str, Any], screen: Screen, *, chart: bool = False) -> str:
    """All of it, for a person; nothing where no turn matches."""
    totals = answer["totals"]
    if not totals["turns"] and not totals["emptyTurns"]:
        return ""
    parts = []
    if chart:
        parts.append(_chart(answer, screen))
    parts.append(_table(answer, screen))
    notes = [line for note in _notes(answer, with_days=not chart) for line in wrapped(clean(note), screen.width)]
    notes.append(dimmed(API_PRICES, screen))
    return "\n\n".join([*parts, "\n".join(notes)])


def _table(answer: dict[str, Any], screen: Screen) -> str:
    with_quality, with_tree = "quality" in answer, any("subtree" in row for row in answer["rows"])
    by = answer["by"]
    # The name is cut only when nothing else can be left out: rows that look alike are of no use.
    longest = max((width_of(_label(row, by)) for row in answer["rows"]), default=0)
    columns = [
        Column(by.removeprefix("tag:"), least=min(longest, _LONGEST_NAME), where="middle"),
        *([Column("project", least=8, drop=2, where="start"), Column("begun", drop=6)] if by == "session" else []),
        Column("turns", "right"),
        Column("input", "right", drop=5),
        Column("cache write", "right", drop=4),
        Column("cache read", "right", drop=3),
        Column("output", "right", drop=1),
        Column("cached", "right", drop=1),
        *([Column("one-shot", "right"), Column("ended well", "right", drop=4)] if with_quality else []),
        Column("cost", "right"),
        *([Column("with below", "right")] if with_tree else []),
        Column("share", "right"),
        Column("", drop=7),
    ]
    most = max((row["share"] or 0 for row in answer["rows"]), default=0)
    rows: list[list[object]] = []
    for row in answer["rows"]:
        cells = _cells(row, bar(row["share"] or 0, most, 12), with_quality=with_quality, with_tree=with_tree)
        rows.append([_label(row, by), *_about(row, by), *cells])
    totals = answer["totals"] | {"share": None, "quality": answer.get("quality")}
    footer = ["total", *_about({}, by), *_cells(totals, "", with_quality=with_quality, with_tree=with_tree)]
    return table(columns, rows, screen, footer=footer)


def _label(row: dict[str, Any], by: str) -> str:
    """What a row is about, as short as it can be said: ids as they may be typed back in, hours without their zone."""
    label = str(row["key"] or NO_NAME)
    if by == "session":
        return short_id(label)
    if by == "hour":
        return label[:16].replace("T", " ")
    return "  " * int(row.get("depth", 0)) + tilde(label)


def _about(row: dict[str, Any], by: str) -> list[str]:
    if by != "session":
        return []
    begun = row.get("createdAt")
    return [last_name(row.get("project")), day(begun) if begun else ""]


def _cells(row: dict[str, Any], drawn: str, *, with_quality: bool, with_tree: bool) -> list[object]:
    usage = row["usage"]
    return [
        number(row["turns"]) + (_OPEN if row["openTurns"] else ""),
        number(usage["input"]),
        number(usage["cacheCreate5m"] + usage["cacheCreate1h"]),
        number(usage["cacheRead"]),
        number(usage["output"] + usage["reasoning"]),
        percent(row["cacheHitRate"]),
        *(_quality_cells(row["quality"]) if with_quality else []),
        money(row["costUsd"]),
        *([money(row["subtree"]["costUsd"]) if "subtree" in row else ""] if with_tree else []),
        percent(row["share"]) if row["share"] is not None else "",
        drawn,
    ]


def _quality_cells(quality: dict[str, Any]) -> list[str]:
    ended = quality["sessions"]
    known = ended["completed"] + ended["abandoned"] + ended["errored"]
    return [percent(quality["oneShotPromptRate"]), f"{ended['completed']} of {known}" if known else NOTHING]


def _notes(answer: dict[str, Any], *, with_days: bool) -> list[str]:
    totals, notes = answer["totals"], []
    if answer["moreRows"]:
        notes.append(f"{answer['moreRows']:,} more rows are not shown, but in the total; see --limit.")
    days = _every_day(answer.get("series") or [])
    if with_days and len(days) > 1 and answer["by"] not in ("day", "hour"):
        notes.append(_trend(days))
    if "quality" in answer:
        ended = answer["quality"]["sessions"]
        notes.append("Sessions: " + ", ".join(f"{number(count)} {outcome}" for outcome, count in ended.items()) + ".")
    if totals["openTurns"]:
        notes.append(f"{_OPEN} {turns_are(totals['openTurns'])} still open and may yet use more.")
    if totals["partialTurns"]:
        notes.append(f"{turns_are(totals['partialTurns'])} cut short in the log, which tells a lower bound only.")
    if totals["emptyTurns"]:
        notes.append(f"{turns_are(totals['emptyTurns'])} without any usage (failed or aborted) beside these.")
    return notes + caveats(answer)


def _trend(days: list[tuple[str, float | None]]) -> str:
    """A sparkline of cost by day, or by calendar week or month if days are too many; the newest ones that fit."""
    unit, spent = "day", [usd or 0.0 for _, usd in days]
    if len(spent) > _SPARK:
        unit, spent = "week", _added_up(days, _week)
    if len(spent) > _SPARK:
        unit, spent = "month", _added_up(days, _month)
    shown = spent[-_SPARK:]
    which = "the last " if len(shown) < len(spent) else ""
    return f"by {unit} {sparkline(shown)} up to {money(max(shown))}, {which}{counted(len(shown), unit)}"


def _added_up(days: list[tuple[str, float | None]], period_of: Callable[[str], str]) -> list[float]:
    periods: dict[str, float] = {}
    for name, usd in days:
        period = period_of(name)
        periods[period] = periods.get(period, 0.0) + (usd or 0.0)
    return list(periods.values())


def _week(name: str) -> str:
    from datetime import date

    year, week, _ = date.fromisoformat(name).isocalendar()
    return f"{year}-W{week:02d}"


def _month(name: str) -> str:
    return name[:7]


def _chart(answer: dict[str, Any], screen: Screen) -> str:
    """A bar for each day that was asked for; the newest when there are too many for a screen."""
    days = _every_day(answer["series"], answer["filters"])
    shown_days = days[-_CHART_DAYS:]
    most = max((usd or 0 for _, usd in shown_days), default=0)
    room = max(10, min(screen.width - 24, 100))
    amounts = [money(usd) for _, usd in shown_days]
    longest = max(map(len, amounts), default=0)
    lines = [
        f"{name}  {screen.paint(bar(usd or 0, most, room), 'cyan')}  {amount:>{longest}}"
        for (name, usd), amount in zip(shown_days, amounts, strict=True)
    ]
    left_out = days[: -len(shown_days)]
    spent = money(sum(usd or 0 for _, usd in left_out))
    told = f"({len(left_out):,} earlier days, {spent} in all, are left out)"
    return "\n".join((wrapped(told, screen.width) if left_out else []) + lines)


def _every_day(series: list[dict[str, Any]], filters: dict[str, Any] | None = None) -> list[tuple[str, float | None]]:
    """The cost of each day from the first to the last, also of those without turns: a gap in time must be seen.

    With `filters` that is the first and last day they leave.
    """
    if not series:
        return []
    from datetime import date, timedelta

    costs = {one["key"]: one["costUsd"] for one in series}
    first, last = date.fromisoformat(series[0]["key"]), date.fromisoformat(series[-1]["key"])
    if filters:
        asked = _asked_for(filters, first, last)
        first, last = asked if (asked[1] - asked[0]).days < _MOST_DAYS else (first, last)
    length = (last - first).days + 1
    if length > _MOST_DAYS:  # a turn with a broken clock
        return list(costs.items())
    names = ((first + timedelta(days=n)).isoformat() for n in range(length))
    return [(name, costs.get(name)) for name in names]


def _asked_for(filters: dict[str, Any], first: date, last: date) -> tuple[date, date]:
    """From the day of `since` to that of `until`, or to today; of the caller's clock, by which days were counted."""
    from datetime import date, timedelta

    def day_of(when: str, back: timedelta) -> date:
        return date.fromtimestamp(milliseconds(when) / 1000 - back.total_seconds())

    today = date.today()
    if "until" in filters:
        last = max(last, min(today, day_of(filters["until"], timedelta(milliseconds=1))))
    elif "since" in filters:
        last = max(last, today)
    if "since" in filters:
        first = min(first, day_of(filters["since"], timedelta()))
    return first, last


def flat_rows(answer: dict[str, Any]) -> list[dict[str, Any]]:
    """The rows with one value a column, for a spreadsheet, which adds them up itself."""
    rows = answer["rows"]
    return [
        {
            "key": row["key"],
            **{name: row[name] for name in ("turns", "openTurns", "partialTurns", "unpricedTurns", "emptyTurns")},
            **row["usage"],
            "costUsd": row["costUsd"],
            "cacheHitRate": row["cacheHitRate"],
            "share": row["share"],
            **(_flat_quality(row["quality"]) if "quality" in answer else {}),
            **({name: row.get(name) for name in _OF_SESSIONS} if answer["by"] == "session" else {}),
            **(_flat_tree(row) if any("subtree" in one for one in rows) else {}),
        }
        for row in rows
    ]


def _flat_tree(row: dict[str, Any]) -> dict[str, Any]:
    below = row.get("subtree") or {}
    named = {name: row.get(name) for name in ("parent", "depth")}
    return {**named, "subtreeTurns": below.get("turns"), "subtreeCostUsd": below.get("costUsd")}


def _flat_quality(quality: dict[str, Any]) -> dict[str, Any]:
    low, high = quality["oneShotInterval"] or (None, None)
    return {**{name: quality[name] for name in _RATES}, "oneShotLow": low, "oneShotHigh": high, **quality["sessions"]}
