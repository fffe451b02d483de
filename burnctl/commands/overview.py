"""`burnctl` alone, `overview` and `today`: recent cost, what runs now, and what could be saved."""

from __future__ import annotations

import time

from burnctl import flags
from burnctl.daemon import reach
from burnctl.errors import BurnctlError
from burnctl.output import present
from burnctl.render.names import distinct_names, harness_name, last_name, short_model
from burnctl.render.notes import add_caveats, progress
from burnctl.render.numbers import (
    NOTHING,
    count,
    counted,
    day_names,
    milliseconds,
    money,
    number,
    of_hundred,
    percent,
    plot,
)
from burnctl.render.screen import Screen
from burnctl.render.tables import Column, TextBlock, beside, change_style, model_style, table, used_style, weight_style
from burnctl.render.text import clean, labelled

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from typing import Any

    from burnctl.client import Client
    from burnd.contract.results.reports import SummaryRow

HELP = (
    "shows what today, the last 7 days and the last 30 days cost and how that changed, a chart of the days, the "
    "costliest projects, models and harnesses, how much of the plan is used, the sessions that run now, and what could "
    "have been saved. `burnctl` without a command is the same; `burnctl today` shows today alone, hour by hour"
)
EXAMPLES = ("burnctl", "burnctl today", "burnctl overview --json")

_SHOWN = 5  # rows
_REACHED_MS = 30 * 86_400_000  # how long a reached limit is mentioned
_RUNNING_MS = 10 * 60_000  # a session runs if it was written to in the last ten minutes
_RUNNING_SHOWN = 4
_SAVINGS_S = 1.5  # the line is left out if the answer takes longer
_SAVINGS_WORTH = 0.01  # of the cost
_PLOT_HEIGHT = 4
_LABEL = 9  # the width of "running" and a gap
_HOURS_AGAINST, _WEEKS_AGAINST = 28, 4


def add_arguments(parser: argparse.ArgumentParser) -> None:
    flags.report(parser)
    is_today = parser.prog.endswith(" today")
    parser.set_defaults(is_today=is_today, since="today" if is_today else None)


def run(options: argparse.Namespace) -> int:
    client = reach(options, totals=True)
    return present(options, gather(client, time.time(), is_today=options.is_today), drawn, client=client)


def gather(client: Client, now: float, *, is_today: bool = False) -> dict[str, Any]:
    zone = flags.time_zone()

    def since(days: int) -> dict[str, Any]:
        return {"since": day_before(now, days), "tz": zone}

    def top(by: str) -> list[SummaryRow]:
        return client.summary(by=by, limit=_SHOWN, **period)["rows"]

    days = client.summary(by="day", **since(59))
    before = client.summary(limit=1, until=day_before(now, 60), tz=zone)["totals"]["turns"]
    hours = client.summary(by="hour", **since(_HOURS_AGAINST))
    rows = periods(days["rows"], hours["rows"], now, is_older=bool(before))[: 1 if is_today else None]
    is_past = not is_today and not rows[-1]["requests"]  # then all time is shown
    period = {"tz": zone} if is_past else since(0 if is_today else 29)
    whole = client.summary(by="project", limit=_SHOWN, **period)
    if is_past:
        rows.append({"period": "all time", **_added([whole["totals"]]), "change": None})
    costs = {row["key"]: row["costUsd"] for row in days["rows"]}
    return {
        "version": whole["version"],
        **{name: value for name, value in whole.items() if name in _PASSED_ON},
        "periods": rows,
        "days": [
            {"key": day, "costUsd": costs.get(day)} for day in (day_before(now, age) for age in range(29, -1, -1))
        ],
        "hours": _hours_of(hours["rows"], now) if is_today else [],
        "projects": whole["rows"],
        "models": top("model"),
        "harnesses": top("source"),
        "windows": _windows(client),
        "running": _running(client, now),
        "avoidable": _avoidable(client, period) if whole["backfill"]["done"] else None,
        "lostLogs": client.status().get("lostLogs"),
    }


def _added(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    return {
        "costUsd": sum(row["costUsd"] or 0 for row in rows),
        "requests": sum(row["turns"] for row in rows),
        "tokens": sum(sum(row["usage"].values()) for row in rows),
    }


_PASSED_ON = (
    "backfill", "currency", "plans", "totals",
    "unpricedModels", "harnessModels", "unlogged", "pricesProblem", "stalePrices",
)  # fmt: skip


def periods(
    days: Sequence[Mapping[str, Any]], hours: Sequence[Mapping[str, Any]], now: float, *, is_older: bool = False
) -> list[dict[str, Any]]:
    """Today, 7 and 30 days, each with its change against the average before.

    Today is compared with the same hours of the last 28 days, 7 days with the four weeks before, 30 days with the 30
    before. Time before the first record does not count, unless there are records older than `days` (`is_older`).
    """
    by_key = {day_before(now, age): age for age in range(60)}
    ages = [(by_key[row["key"]], row) for row in days if row["key"] in by_key]
    recorded = 59 if is_older else max((age for age, _ in ages), default=0)  # days before today

    def added(first: int, last: int) -> dict[str, Any]:
        return _added([row for age, row in ages if first <= age <= last])

    def cost(first: int, last: int) -> float:
        return float(added(first, last)["costUsd"])

    weeks = min(_WEEKS_AGAINST, (recorded + 1) // 7 - 1)
    against = {
        "today": _same_hours(hours, now) / min(recorded, _HOURS_AGAINST) if recorded else None,
        "7 days": cost(7, 7 * weeks + 6) / weeks if weeks > 0 else None,
        "30 days": cost(30, 59) if recorded >= 59 else None,
    }
    rows = []
    for name, last in (("today", 0), ("7 days", 6), ("30 days", 29)):
        usual = against[name]
        rows.append({"period": name, **added(0, last), "change": (cost(0, last) - usual) / usual if usual else None})
    return rows


def _same_hours(hours: Sequence[Mapping[str, Any]], now: float) -> float:
    """The cost of earlier days up to this time of day; the running hour counts in part."""
    clock = time.localtime(now)
    share = (clock.tm_min * 60 + clock.tm_sec) / 3600
    total, today = 0.0, day_before(now, 0)
    for row in hours:
        if row["key"][:10] < today:
            hour = int(row["key"][11:13])
            total += (row["costUsd"] or 0) * (1 if hour < clock.tm_hour else share if hour == clock.tm_hour else 0)
    return total


def day_before(now: float, days: int) -> str:
    """The local date so many days ago, without `datetime`, whose import takes a tenth of the whole command."""
    year, month, day, *_ = time.localtime(now)
    return time.strftime("%Y-%m-%d", time.localtime(time.mktime((year, month, day - days, 12, 0, 0, 0, 0, -1))))


def _hours_of(rows: Sequence[Mapping[str, Any]], now: float) -> list[dict[str, Any]]:
    costs: dict[int, float] = {}
    today = day_before(now, 0)
    for row in rows:
        if row["key"][:10] == today:
            hour = int(row["key"][11:13])
            costs[hour] = costs.get(hour, 0.0) + (row["costUsd"] or 0)
    return [{"key": f"{hour:02d}:00", "costUsd": costs.get(hour)} for hour in range(24)]


def _windows(client: Client) -> list[dict[str, Any]]:
    """The running windows of each harness that has a reading or a plan in dollars."""
    from burnd.harness.registry import PRODUCTS

    plans = []
    for product in PRODUCTS:
        if not product.has_plan:
            continue
        try:
            answer = client.limits(source=product.source, history=0)
            windows = answer["windows"]
        except BurnctlError:  # no usage of it
            continue
        current = {"5h": windows["5h"]["current"], "7d": windows["7d"]["current"]}
        dollars = {name: windows[name].get("limitUsd") for name in ("5h", "7d")}
        plan = {"source": product.source, "windows": current, "limitUsd": dollars}
        if _used_percents([plan]):
            since = milliseconds(answer["now"]) - _REACHED_MS
            reached = {
                name: sum(milliseconds(at["at"] or at["from"]) >= since for at in windows[name].get("reached", ()))
                for name in ("5h", "7d")
            }
            plans.append({**plan, "reached": reached})
    return plans


def _running(client: Client, now: float) -> list[dict[str, Any]]:
    sessions = client.sessions_list(since=int(now * 1000) - _RUNNING_MS, limit=20, costs=True)["sessions"]
    names = ("sessionId", "project", "source", "title", "costUsd", "updatedAt")
    running: list[dict[str, Any]] = [
        {name: session.get(name) for name in names}
        for session in sessions
        if session.get("turns") or session.get("openTurns")
    ]
    for session in running[:_RUNNING_SHOWN]:
        models = client.summary(by="model", session=session["sessionId"], limit=1)["rows"]
        session["model"] = models[0]["key"] if models else None
    return running


def _avoidable(client: Client, period: dict[str, Any]) -> dict[str, Any] | None:
    """What could have been saved, and its largest kind; None after a timeout."""
    try:
        answer = client.call("waste", {"limit": 1, **period}, timeout=_SAVINGS_S)
    except BurnctlError:
        return None
    cost, kinds = (answer.get("avoidable") or {}).get("costUsd"), answer.get("kinds") or []
    return {"costUsd": cost, "kind": kinds[0]["kind"] if kinds else None} if cost else None


def drawn(answer: dict[str, Any], screen: Screen) -> str:
    if not any(period["requests"] for period in answer["periods"]):
        return ""
    add_caveats(answer, screen)
    span = answer["periods"][-1]["period"]
    rows = [
        [row["period"], money(row["costUsd"]), count(row["requests"]), number(row["tokens"]), _arrow(row["change"])]
        for row in answer["periods"]
    ]
    columns = [
        Column(""),
        Column("cost", "right", style="bold"),
        Column("requests", "right"),
        Column("tokens", "right", drop=1),
        Column("change", "right"),
    ]
    projects, models, harnesses = ([row["key"] for row in answer[by]] for by in ("projects", "models", "harnesses"))
    blocks = [
        _top(f"projects, {span}", answer["projects"], distinct_names(projects), screen),
        _top(f"models, {span}", answer["models"], [*map(short_model, models)], screen, model_style),
        _top(f"harnesses, {span}", answer["harnesses"], [*map(harness_name, harnesses)], screen),
    ]
    parts = [
        table(columns, rows, screen),
        _chart(answer["hours"] or answer["days"], screen),
        beside([*filter(None, blocks)], screen),
        "\n".join(_lines(answer, span, screen)),
    ]
    return "\n\n".join(filter(None, parts))


def _arrow(change: float | None) -> tuple[str, str]:
    if change is None:
        return NOTHING, "dim"
    size = f"{change + 1:.0f}x" if change >= 9.5 else f"{abs(change):.0%}"
    return f"{'▲' if change > 0 else '▼'} {size}" if size != "0%" else "0%", change_style(change)


def _chart(days: Sequence[dict[str, Any]], screen: Screen) -> str:
    costs = [day["costUsd"] or 0.0 for day in days]
    if sum(cost > 0 for cost in costs) < 2:
        return ""
    top = money(max(costs)).removesuffix(".00") if max(costs) < 10 else money(round(max(costs))).removesuffix(".00")
    margin = len(top) + 1
    cell = 2 if screen.width >= margin + 2 + 2 * len(costs) else 1
    lines = plot(costs, _PLOT_HEIGHT, cell)
    first, last = (key if ":" in key else day_names([key])[0] for key in (days[0]["key"], days[-1]["key"]))
    rule = "─" * (cell * len(costs) - len(first) - len(last) - 2)
    drawn = [
        f"{top if n == 0 else '':>{margin - 1}} ┤{screen.paint(line.rstrip(), 'cyan')}" for n, line in enumerate(lines)
    ]
    return "\n".join([*(line.rstrip() for line in drawn), f"{'':{margin}}└{first} {rule} {last}"])


def _top(
    heading: str,
    rows: Sequence[dict[str, Any]],
    names: Sequence[str],
    screen: Screen,
    style: Callable[[object], str] = lambda _: "",
) -> TextBlock | None:
    if not rows:
        return None
    columns = [Column("", least=12), Column("", "right"), Column("", "right", style="dim")]
    most = rows[0]["costUsd"]
    cells = [
        [
            (name or "(unknown)", style(row["key"])),
            (money(row["costUsd"]), weight_style(row["costUsd"], most)),
            percent(row["share"]) if row["share"] is not None else "",
        ]
        for row, name in zip(rows, names, strict=True)
    ]
    plain = Screen(screen.width, is_pipe=screen.is_pipe)
    return TextBlock(
        f"{heading}\n{table(columns, cells, plain, header=False)}",
        f"{screen.paint(heading, 'bold')}\n{table(columns, cells, screen, header=False)}",
    )


def _lines(answer: dict[str, Any], span: str, screen: Screen) -> Iterable[str]:
    when = {"today": span, "all time": "in all"}.get(span, f"of the last {span}")
    plan = []
    for one in answer.get("plans") or ():
        cost = sum(row["costUsd"] or 0 for row in answer["harnesses"] if row["key"] == one["source"])
        plan.append(f"{one['title']}, {money(one['monthlyUsd'])} a month, covers {money(cost)} {when}")
    plan += [part for one in answer["windows"] for part in _plan_parts(one)]
    if plan:
        fullest = max(_used_percents(answer["windows"]), default=None)
        style = "" if fullest is None else used_style(fullest)
        yield from (screen.paint(line, style) for line in labelled("plan", plan, screen, _LABEL))
    if running := answer["running"]:
        parts = []
        for session in running[:_RUNNING_SHOWN]:
            model = f"{short_model(session['model'])}, " if session.get("model") else ""
            project = last_name(session["project"]) or "no project"
            parts.append(clean(f"{project} ({model}{money(session['costUsd'])} so far)"))
        more = len(running) - _RUNNING_SHOWN
        yield from labelled("running", parts + ([f"{more} more: burnctl top"] if more > 0 else []), screen, _LABEL)
    saved, cost = answer["avoidable"], answer["totals"]["costUsd"]
    if saved and cost and saved["costUsd"] >= _SAVINGS_WORTH * cost:
        from burnctl.commands.explain import KINDS

        kind = KINDS.get(saved["kind"])
        most = f", most of all {kind.title[:1].lower()}{kind.title[1:]}" if kind else ""
        part = f"about {money(saved['costUsd'])} {when} was avoidable{most}: burnctl waste"
        yield from labelled("save", [part], screen, _LABEL)
    if lost := (answer.get("lostLogs") or {}).get("sessions"):
        text = f"the logs of {counted(lost, 'session')} are gone, and no clean-up explains it"
        remedy = "burnctl sessions --gone lists them, burnctl restore writes one again"
        yield from labelled("lost", [text, remedy], screen, _LABEL)
    if (backfill := answer.get("backfill") or {}).get("exact"):
        state = f"old logs{progress(backfill, ', ')}"
        yield from labelled(
            "reading", [state, "totals are complete, why, waste and search when it is done"], screen, _LABEL
        )


def _used_percents(plans: Sequence[dict[str, Any]]) -> list[float]:
    shares = [_used_percent(plan, key) for plan in plans for key in plan["windows"]]
    return [share for share in shares if share is not None]


def _used_percent(plan: dict[str, Any], key: str) -> float | None:
    """The used part of a window by the provider, or else by the plan's amount in dollars."""
    window, limit = plan["windows"].get(key), plan.get("limitUsd", {}).get(key)
    if not window:
        return None
    if window["quota"]:
        return float(window["quota"]["usedPercent"])
    return 100 * (window["costUsd"] or 0) / limit if limit else None


def _plan_parts(plan: dict[str, Any]) -> Iterable[str]:
    prefix = f"{harness_name(plan['source'])} " if plan["source"] else ""
    for key, title in (("5h", "5-hour window"), ("7d", "week")):
        window, share_used = plan["windows"].get(key), _used_percent(plan, key)
        if not window or share_used is None:
            continue
        part = f"{prefix}{title} {of_hundred(share_used)} used"
        ahead = (window["quota"] or {}).get("projectedPercent")
        if key == "5h":
            part += f", resets {time.strftime('%H:%M', time.localtime(milliseconds(window['to']) / 1000))}"
        elif ahead is not None:
            part += f", on course for {of_hundred(ahead)}"
        yield part
        prefix = ""
    for key, title in (("5h", "5-hour limit"), ("7d", "weekly limit")):
        if times := plan.get("reached", {}).get(key):
            yield f"{prefix}{title} reached {'once' if times == 1 else f'{times:,} times'} in 30 days: burnctl limits"
