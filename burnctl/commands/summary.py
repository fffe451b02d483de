"""`burnctl summary`, `projects`, `models`, `harnesses`, `agents`, `tags`: cost tables, a row per project, model, ..."""

from __future__ import annotations

import time

from burnctl import flags
from burnctl.daemon import reach
from burnctl.errors import BurnctlError, UsageError
from burnctl.output import present
from burnctl.render.names import (
    distinct_names,
    enough_of_id,
    harness_name,
    last_name,
    pull_request_name,
    short_model,
    tilde,
)
from burnctl.render.notes import add_caveats
from burnctl.render.numbers import (
    NOTHING,
    bar,
    count,
    counted,
    day_names,
    milliseconds,
    money,
    number,
    percent,
    roughly,
    sparkline,
)
from burnctl.render.tables import Column, hit_rate_style, model_style, table, weight_style
from burnctl.render.text import clean, flow, width_of
from burnd.contract import Params, param
from burnd.contract.daemon import MOST_STAMPS
from burnd.contract.reports import Filters, SummaryParams

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable
    from datetime import date as day_type
    from typing import Any

    from burnctl.client import Client
    from burnctl.render.screen import Screen

HELP = (
    "adds up what was spent: requests, tokens by kind, cost at API list prices, the part of the input that came from "
    "the cache, and each row's share. Running requests are included, marked with *; models without a price are named, "
    "never shown as $0.00"
)
EXAMPLES = (
    "burnctl summary",
    "burnctl summary --since 7d --by project",
    "burnctl summary --since today --by hour",
    "burnctl summary --by month",
    "burnctl summary --since 7d --by day,model",
    "burnctl summary --by tag:persona --workflow wf-1",
    "burnctl summary --by agent --tree",
    "burnctl summary --since 4w --chart",
    "burnctl summary --by day --scan",
    "burnctl summary --fleet clickhouse://db.example/fleet --by machine",
)
# Verbs that fix `--by`.
VERBS = {"projects": "project", "models": "model", "harnesses": "source", "agents": "agent"}
_READABLE = 30
_TIMES = ("day", "hour", "week", "month")
_CHART_DAYS = 60
_MOST_DAYS = 4000
_SPARK = 40
_LONGEST_NAME = 28
_MIN_WIDTH_FOR_TITLES = 70  # columns, for whole titles of sessions
_RUNNING = "*"
_RATES = ("editTurns", "oneShotTurns", "oneShotRate", "editPrompts", "oneShotPrompts", "oneShotPromptRate")
_OF_SESSIONS = ("project", "createdAt", "parentSessionId", "title")
_TITLES = {"source": "harness"}
_NAMELESS = {
    "agent": "main conversation",
    "project": "(no project)",
    "branch": "(no branch)",
    "pr": "(no pull request)",
    "activity": "(no activity)",
}


class SummaryFlags(Params):
    chart: bool = param(default=False, help="draw the cost of each day")


class TagsFlags(Params):
    key: str | None = param(default=None, help="the tag; without one, a list of tags", kind="tag-key", metavar="KEY")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    verb = parser.prog.rpartition(" ")[2]
    if verb == "tags":
        flags.place(parser, TagsFlags, "key", nargs="?")
    hidden = {"by": verb != "summary", "tree": verb not in ("summary", "agents")}
    skip = [name for name, is_hidden in hidden.items() if is_hidden]
    flags.add(parser, SummaryParams, SummaryFlags, skip=skip, usual={"limit": _READABLE})
    flags.reading_rows(parser)
    if verb not in ("agents", "tags"):
        flags.add(parser, flags.Scan)
    flags.add(parser, flags.Fleet, *([] if verb == "summary" else [flags.FleetRows]))
    parser.set_defaults(verb=verb, **({"by": "model"} if verb == "summary" else {}))


def run(options: argparse.Namespace) -> int:
    verb = getattr(options, "verb", "summary")
    if verb == "tags" and options.key is None:
        return _list_tags(reach(options), options)
    by = f"tag:{options.key}" if verb == "tags" else VERBS.get(verb) or options.by
    if verb != "summary" and options.by:
        by += f",{options.by}"
    client = reach(options, totals=SummaryParams(**flags.given(options, SummaryParams) | {"by": by}).is_of_totals)
    tree = getattr(options, "tree", False)
    if tree and by != "agent":
        raise UsageError("summary: --tree goes with --by agent", "see: burnctl help summary")
    is_screen = not options.csv and not options.json
    by_time = any(part in _TIMES for part in by.split(","))
    answer = flags.ask(
        client,
        SummaryParams,
        options,
        by=by,
        limit=options.limit or (_READABLE if is_screen and not by_time and not tree else None),
        series=is_screen or options.chart or None,
        tz=flags.time_zone() if by_time or options.chart or is_screen else None,
    )
    if verb == "tags" and is_screen and not any(row["key"] for row in answer["rows"]) and answer["rows"]:
        raise BurnctlError(f"no request has a tag {options.key!r}", "burnctl tags lists the tags")
    if is_screen and answer.get("plans"):
        filters = flags.given(options, Filters)
        rows = answer["rows"] if by == "source" else client.ask(SummaryParams, filters | {"by": "source"})["rows"]
        costs = {row["key"]: row["costUsd"] for row in rows}
        answer["covered"] = [(one["title"], usd) for one in answer["plans"] if (usd := costs.get(one["source"]))]

    def draw(answer: dict[str, Any], screen: Screen) -> str:
        return drawn(answer, screen, chart=options.chart)

    return present(options, answer, draw, rows=flat_rows, client=client)


def _list_tags(client: Client, options: argparse.Namespace) -> int:
    by_selector: dict[str, dict[str, str]] = {}
    page = client.stamps_list(limit=MOST_STAMPS)
    while True:
        for stamp in page["stamps"]:
            tags = by_selector.setdefault(str(stamp["selector"]), {})
            tags.update(stamp["enrichment"])
            for key in stamp.get("removes", ()):
                tags.pop(key, None)
        if (after := page.get("next")) is None:
            break
        page = client.stamps_list(after=after, limit=MOST_STAMPS)
    values: dict[str, dict[str, None]] = {}
    for key, value in (pair for tags in by_selector.values() for pair in tags.items()):
        values.setdefault(key, {})[value] = None
    answer = {"version": page["version"], "tags": [{"key": key, "values": list(values[key])} for key in sorted(values)]}

    def draw(answer: dict[str, Any], screen: Screen) -> str:
        rows = [[tag["key"], count(len(tag["values"])), ", ".join(tag["values"])] for tag in answer["tags"]]
        columns = [Column("tag", style="bold"), Column("values", "right"), Column("such as", least=20)]
        if not rows:
            none = "No tags yet. `burnctl stamp --session ID KEY=VALUE` adds one, `burnctl run` tags what it starts."
            return screen.paragraph(none)
        return f"{table(columns, rows, screen)}\n\ncost by tag: burnctl tags {clean(rows[0][0])}"

    def flat(answer: dict[str, Any]) -> list[dict[str, Any]]:
        return [{"key": tag["key"], "value": value} for tag in answer["tags"] for value in tag["values"]]

    return present(options, answer, draw, rows=flat)


def drawn(answer: dict[str, Any], screen: Screen, *, chart: bool = False) -> str:
    totals = answer["totals"]
    if not totals["turns"] and not totals["emptyTurns"]:
        return ""
    _add_notes(answer, screen)
    parts = [_headline(answer, screen, with_trend=not chart), *([_chart(answer, screen)] if chart else [])]
    parts.append(_table(answer, screen))
    if "quality" in answer:
        ended = answer["quality"]["sessions"]
        outcomes = [f"{count(n)} {outcome}" for outcome, n in ended.items()]
        parts.append("\n".join(flow([f"sessions: {outcomes[0]}", *outcomes[1:]], screen)))
    return "\n\n".join(parts)


def _headline(answer: dict[str, Any], screen: Screen, *, with_trend: bool) -> str:
    """The total, the part of it covered by plans, and the cost by day as a sparkline."""
    totals = answer["totals"]
    cost = money(totals["costUsd"]) if totals["costUsd"] is not None else "no price"
    facts: list[str | tuple[str, str]] = [
        (cost, "bold"),
        counted(totals["turns"], "request"),
        roughly(sum(totals["usage"].values()), "token"),
    ]
    days = _every_day(answer.get("series") or [])
    if days:
        ends = day_names(list(dict.fromkeys((days[0][0], days[-1][0]))))
        facts.append(" to ".join(" ".join(name.split()) for name in ends))
    if machines := answer.get("machines"):
        facts.append(counted(machines, "machine"))
    facts += [f"{title} covers {money(usd)} of it" for title, usd in answer.get("covered", ())]
    lines = flow(facts, screen)
    if with_trend and len(days) > 1 and answer["by"] not in ("day", "hour"):
        unit, costs = "day", [usd or 0.0 for _, usd in days]
        if len(costs) > _SPARK:
            unit, costs = "week", _by_period(days, _week)
        if len(costs) > _SPARK:
            unit, costs = "month", _by_period(days, lambda day: day[:7])
        values = costs[-_SPARK:]
        which = "the last " if len(values) < len(costs) else ""
        line = screen.paint(sparkline(values), "cyan")
        lines.append(f"by {unit} {line} up to {money(max(values))}, {which}{counted(len(values), unit)}")
    return "\n".join(lines)


def _table(answer: dict[str, Any], screen: Screen) -> str:
    by = answer["by"]
    has_titles = "session" in by.split(",") and any(row.get("title") for row in answer["rows"])
    # One or two dimensions, with the names of the rows.
    names = next(([*row["keys"]] for row in answer["rows"] if "keys" in row), [by])
    labels = {
        name: _labels(
            [(row | {"key": row["keys"][name]} if "keys" in row else row) for row in answer["rows"]], name, screen
        )
        for name in names
    }
    columns = []
    for name in names:  # cut only after all columns that can be hidden are hidden: rows must not look alike
        longest = max(map(width_of, labels[name]), default=0)
        where = "start" if name == "project" else "middle"
        title = _TITLES.get(name, name.removeprefix("tag:"))
        columns.append(Column(title, least=min(longest, _LONGEST_NAME), where=where))
    columns += [
        Column("title", least=30 if screen.width >= _MIN_WIDTH_FOR_TITLES else 12),
        Column("project", least=8, drop=3),
        Column("requests", "right", drop=1 if has_titles else 0),
        Column("input", "right", drop=5),
        Column("output", "right", drop=2),
        Column("cache read", "right", drop=3),
        Column("cache write", "right", drop=4),
        Column("cached", "right", drop=1),
        Column("first try", "right"),
        Column("completed", "right", drop=4),
        Column("cost", "right"),
        Column("with subagents", "right", drop=1),
        Column("share", "right", drop=1),
        Column("", drop=7, style="cyan"),
    ]
    most = max((row["share"] or 0 for row in answer["rows"]), default=0)
    most_cost = max((row["costUsd"] or 0 for row in answer["rows"]), default=0)
    rows: list[list[object]] = []
    for row, *of_row in zip(answer["rows"], *labels.values(), strict=True):
        drawn_bar = bar(row["share"] or 0, most, 12).rstrip()
        names_of_row = [
            (text, model_style(text) if name == "model" else "") for name, text in zip(names, of_row, strict=True)
        ]
        about = [row.get("title") if has_titles else "", last_name(row.get("project")) if by == "session" else ""]
        rows.append([*names_of_row, *about, *_cells(row, most_cost), drawn_bar])
    totals = answer["totals"] | {"share": None, "quality": answer.get("quality")}
    footer = ["total", *[""] * (len(names) - 1), "", "", *_cells(totals, None), ""]
    return table(columns, rows, screen, footer=footer)


def _labels(rows: list[dict[str, Any]], by: str, screen: Screen) -> list[str]:
    if by == "day":
        return day_names([row["key"] for row in rows])
    if by == "project" and not screen.is_pipe:
        paths = list(dict.fromkeys(row["key"] for row in rows))
        names = dict(zip(paths, distinct_names(paths), strict=True))
        return [names[row["key"]] or _NAMELESS[by] for row in rows]
    if by == "model":
        keys = [str(row["key"] or "") for row in rows]
        if len({short_model(key) for key in keys}) == len(set(keys)):  # else two models would look alike
            return [short_model(key) or "(unknown)" for key in keys]
    return [_label(row, by) for row in rows]


def _label(row: dict[str, Any], by: str) -> str:
    if not row["key"]:
        return _NAMELESS.get(by, "(untagged)" if by.startswith("tag:") else "(unknown)")
    label = str(row["key"])
    if by == "session":
        return enough_of_id(row)
    if by == "hour":
        return label[:16].replace("T", " ")
    if by == "source":
        return harness_name(label)
    if by == "pr":
        return pull_request_name(label)
    return "  " * int(row.get("depth", 0)) + tilde(label)


def _cells(row: dict[str, Any], most: float | None) -> list[object]:
    usage, cost, share, quality = row["usage"], row["costUsd"], row["share"], row.get("quality")
    ended = quality["sessions"] if quality else {}
    sessions = sum(ended.get(outcome, 0) for outcome in ("completed", "abandoned", "errored"))
    return [
        count(row["turns"]) + (_RUNNING if row["openTurns"] else ""),
        number(usage["input"]),
        number(usage["output"] + usage["reasoning"]),
        number(usage["cacheRead"]),
        number(usage["cacheCreate5m"] + usage["cacheCreate1h"]),
        (percent(row["cacheHitRate"]), hit_rate_style(row["cacheHitRate"])),
        percent(quality["oneShotPromptRate"]) if quality else "",
        f"{ended['completed']} of {sessions}" if sessions else NOTHING if quality else "",
        (money(cost), weight_style(cost, most)) if most is not None else money(cost),
        money(row["subtree"]["costUsd"]) if "subtree" in row else "",
        percent(share) if share is not None else "",
    ]


def _add_notes(answer: dict[str, Any], screen: Screen) -> None:
    totals = answer["totals"]
    if totals["openTurns"]:
        screen.footnote(f"{_RUNNING} {counted(totals['openTurns'], 'request')} still running.")
    if answer["moreRows"]:
        every = len(answer["rows"]) + answer["moreRows"]
        screen.hint(f"{count(answer['moreRows'])} more in the total: --limit {every}")
    add_caveats(answer, screen)
    if totals["partialTurns"]:
        cut_off = counted(totals["partialTurns"], "response")
        screen.note(f"{cut_off} cut off in the log: the output tokens are a minimum.")
    if totals["emptyTurns"]:
        screen.note(f"{counted(totals['emptyTurns'], 'request')} failed or aborted without any usage.")


def _by_period(days: list[tuple[str, float | None]], period_of: Callable[[str], str]) -> list[float]:
    periods: dict[str, float] = {}
    for name, usd in days:
        period = period_of(name)
        periods[period] = periods.get(period, 0.0) + (usd or 0.0)
    return list(periods.values())


def _week(name: str) -> str:
    from datetime import date as calendar

    year, week, _ = calendar.fromisoformat(name).isocalendar()
    return f"{year}-W{week:02d}"


def _chart(answer: dict[str, Any], screen: Screen) -> str:
    """A bar for each day, or for the newest that fit."""
    days = _every_day(answer["series"], answer["filters"])
    shown_days = days[-_CHART_DAYS:]
    most = max((usd or 0 for _, usd in shown_days), default=0)
    names = day_names([name for name, _ in shown_days])
    amounts = [money(usd) for _, usd in shown_days]
    longest = max(map(len, amounts), default=0)
    room = max(10, min(screen.width - longest - max(map(len, names), default=0) - 4, 100))
    lines = [
        f"{name}  {screen.paint(bar(usd or 0, most, room), 'cyan')}  {amount:>{longest}}"
        for name, (_, usd), amount in zip(names, shown_days, amounts, strict=True)
    ]
    if earlier := days[: -len(shown_days)]:
        costs = money(sum(usd or 0 for _, usd in earlier))
        screen.footnote(f"The chart leaves out {counted(len(earlier), 'earlier day')} ({costs}).")
    return "\n".join(lines)


def _every_day(series: list[dict[str, Any]], filters: dict[str, Any] | None = None) -> list[tuple[str, float | None]]:
    """The cost of each day from first to last, or of the requested period if there are `filters`."""
    if not series:
        return []
    from datetime import date as calendar
    from datetime import timedelta

    costs = {one["key"]: one["costUsd"] for one in series}
    first, last = calendar.fromisoformat(series[0]["key"]), calendar.fromisoformat(series[-1]["key"])
    if filters:
        period = _period(filters, first, last)
        first, last = period if (period[1] - period[0]).days < _MOST_DAYS else (first, last)
    length = (last - first).days + 1
    if length > _MOST_DAYS:  # a request with a wrong date
        return list(costs.items())
    names = ((first + timedelta(days=n)).isoformat() for n in range(length))
    return [(name, costs.get(name)) for name in names]


def _period(filters: dict[str, Any], first: day_type, last: day_type) -> tuple[day_type, day_type]:
    """From the day of `since` to that of `until`, or to today, in local time."""
    from datetime import date as calendar
    from datetime import timedelta

    def day_of(when: str, back: timedelta) -> day_type:
        return calendar.fromtimestamp(milliseconds(when) / 1000 - back.total_seconds())

    today = calendar.fromtimestamp(time.time())
    if "until" in filters:
        last = max(last, min(today, day_of(filters["until"], timedelta(milliseconds=1))))
    elif "since" in filters:
        last = max(last, today)
    if "since" in filters:
        first = min(first, day_of(filters["since"], timedelta()))
    return first, last


def flat_rows(answer: dict[str, Any]) -> list[dict[str, Any]]:
    has_tree = any("subtree" in row for row in answer["rows"])
    rows = []
    for row in answer["rows"]:
        flat = {
            "key": row["key"],
            **row.get("keys", {}),
            **{name: row[name] for name in ("turns", "openTurns", "partialTurns", "unpricedTurns", "emptyTurns")},
            **row["usage"],
            "costUsd": row["costUsd"],
            "cacheHitRate": row["cacheHitRate"],
            "share": row["share"],
        }
        if "quality" in answer:
            quality = row["quality"]
            low, high = quality["oneShotInterval"] or (None, None)
            flat |= {name: quality[name] for name in _RATES}
            flat |= {"oneShotLow": low, "oneShotHigh": high, **quality["sessions"]}
        if answer["by"] == "session":
            flat |= {name: row.get(name) for name in _OF_SESSIONS}
        if has_tree:
            below = row.get("subtree") or {}
            flat |= {name: row.get(name) for name in ("parent", "depth")}
            flat |= {"subtreeTurns": below.get("turns"), "subtreeCostUsd": below.get("costUsd")}
        rows.append(flat)
    return rows
