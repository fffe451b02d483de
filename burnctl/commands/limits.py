"""`burnctl limits` and `blocks`: how much of a plan's windows and of the budgets is used, and the forecast."""

from __future__ import annotations

import time

from burnctl import flags
from burnctl.daemon import reach
from burnctl.output import as_json, present
from burnctl.render.names import GROUP_NAMES, enough_of_id, harness_name, last_name
from burnctl.render.notes import add_caveats, backfill_line
from burnctl.render.numbers import (
    bar,
    count,
    counted,
    dates,
    duration,
    milliseconds,
    money,
    number,
    of_hundred,
    percent,
    roughly,
    sampled,
    sparkline,
)
from burnctl.render.tables import Column, table, used_style, weight_style
from burnctl.render.text import cut, wrap
from burnd.contract import Params, param
from burnd.contract.reports import LimitsParams

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from typing import Any

    from burnctl.render.screen import Screen

HELP = (
    "shows the running 5-hour window and week of a subscription: what is used, when it resets, and how much it will be "
    "at this rate; then budgets and earlier windows. Percentages are the provider's own, recorded by `burnctl "
    "statusline` or from the logs; without them the windows are counted from requests. `blocks` is the table of 5-hour "
    "windows alone, the newest last. With --check it only prints whether a budget is exceeded, and exits with 1 if so"
)
EXAMPLES = (
    "burnctl limits",
    "burnctl blocks --history 30",
    "burnctl limits --check || notify-send 'over budget'",
)
_TITLES = {"5h": "5-hour window", "7d": "week"}
_LIMITS = {"5h": "5-hour limit", "7d": "weekly limit"}
_BAR, _LEAST_BAR = 24, 8
_WIDE_BUDGETS = 88
_SHOWN_REACHED, _LONGEST_TITLE = 3, 40


class LimitsFlags(Params):
    check: bool = param(default=False, help="exit with 1 when a budget is exceeded")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    verb = parser.prog.rpartition(" ")[2]
    flags.add(parser, LimitsParams, skip=("filled",) if verb == "blocks" else ())
    if verb == "limits":
        flags.add(parser, LimitsFlags)
    flags.report(parser)
    parser.set_defaults(verb=verb)


def run(options: argparse.Namespace) -> int:
    is_check = getattr(options, "check", False)
    history = 0 if is_check and options.history is None else options.history
    client = reach(options, totals=True)
    answer = flags.ask(client, LimitsParams, options, history=history)
    failed = is_check and bool(answer["crossed"])
    if is_check and not options.json:
        for budget in answer["budgets"]:
            if budget["crossed"]:
                cost, limit = money(budget["spentUsd"]), money(budget["limitUsd"])
                print(f"the {budget['period']} budget is exceeded: {cost} of {limit}")
        if not answer["budgets"]:
            print("no budget is set; set one with: burnctl config set budget.daily 20")
        elif not answer["crossed"]:
            unpriced = max(budget["unpricedTurns"] for budget in answer["budgets"])
            print("no budget is exceeded" + (f" ({counted(unpriced, 'request')} without a price)" if unpriced else ""))
        if line := backfill_line(answer):
            print(line)
        return 1 if failed else 0
    if options.json:
        as_json(answer)
        return 1 if failed else 0
    draw = blocks if options.verb == "blocks" else drawn
    return present(options, answer, draw, client=client, empty=f"No requests of {harness_name(answer['source'])}")


def drawn(answer: dict[str, Any], screen: Screen) -> str:
    """The running windows, budgets and earlier windows."""
    if not answer["budgets"] and not any(one["current"] or one["history"] for one in answer["windows"].values()):
        return ""
    now = milliseconds(answer["now"])
    current = {name: answer["windows"][name] for name in _TITLES if answer["windows"][name]["current"]}
    parts = [
        _running(_TITLES[name], windows["current"], now, screen, windows.get("limitUsd"))
        for name, windows in current.items()
    ]
    if absent := [title for name, title in _TITLES.items() if name not in current]:
        parts.append(f"No {' and no '.join(absent)} is running.")
    if answer["budgets"]:
        parts.append(_budgets(answer["budgets"], screen))
    for name, title in _TITLES.items():
        if history := answer["windows"][name]["history"]:
            heading = screen.paint(f"Earlier {title}s", "bold")
            parts.append(f"{heading}\n{_table(history[::-1], None, screen)}")
    parts += [text for text in (_reached(answer, screen), _filled(answer, screen)) if text]
    _add_notes(answer, screen)
    return "\n\n".join(parts)


def blocks(answer: dict[str, Any], screen: Screen) -> str:
    """The forecast of the running 5-hour window, then all, the newest last."""
    windows = answer["windows"]["5h"]
    current, history = windows["current"], windows["history"]
    if not current and not history:
        return ""
    _add_notes(answer, screen)
    windows_table = _table([*history[::-1], *([current] if current else [])], current, screen)
    ahead = (
        _running(_TITLES["5h"], current, milliseconds(answer["now"]), screen, windows.get("limitUsd"))
        if current
        else "No 5-hour window is running."
    )
    return f"{ahead}\n\n{windows_table}"


def _add_notes(answer: dict[str, Any], screen: Screen) -> None:
    current = [one["current"] for one in answer["windows"].values() if one["current"]]
    if any(window["basis"] != "reported" for window in current):
        screen.note(
            f"Windows of {harness_name(answer['source'])} are counted from requests: no provider reported them."
        )
    add_caveats(answer, screen)


def _running(title: str, window: dict[str, Any], now: float, screen: Screen, limit: float | None = None) -> str:
    head = screen.paint(title[:1].upper() + title[1:], "bold")
    resets = f"resets {moment(window['to'], now)} (in {duration(window['secondsLeft'])})"
    name, quota = title[:1].upper() + title[1:], window["quota"]
    used = f"{of_hundred(quota['usedPercent'])} used" if quota else f"{money(window['costUsd'])} so far"
    if not quota and limit:
        share = 100 * (window["costUsd"] or 0) / limit
        used = f"{of_hundred(share)} used ({money(window['costUsd'])} of {money(limit)})"
    lines = _wrapped(f"{name}  {used}, {resets}", screen)
    lines[0] = lines[0].replace(name, head, 1)
    if quota:
        lines[0] = lines[0].replace(used, screen.paint(used, used_style(quota["usedPercent"])), 1)
        lines += _quota(window, now, screen)
    unpriced = f" ({unpriced_of(window['unpricedTurns'])})" if window["unpricedTurns"] else ""
    requests, tokens = counted(window["turns"], "request"), roughly(sum(window["usage"].values()), "token")
    so_far = f"{requests}, {tokens}, {money(window['costUsd'])}{unpriced}"
    lines += _wrapped(f"  since {moment(window['from'], now)}  {so_far}", screen)
    if (pace := window["pace"]) is not None:
        hourly, ahead = money(pace["usdPerHour"]), money(window["projected"]["costUsd"])
        if pace["usdPerHour"] is None:  # no price
            hourly = f"{number(pace['tokensPerHour'])} tokens"
            ahead = f"{number(window['projected']['tokens'])} tokens"
        lines += _wrapped(f"  at this rate  {hourly} an hour, {ahead} by its end", screen)
    return "\n".join(lines)


def _reached(answer: dict[str, Any], screen: Screen) -> str:
    lines = []
    for name, title in _LIMITS.items():
        windows = answer["windows"][name]
        per_percent = windows.get("usdPerPercent")
        if not windows.get("windowCount"):
            continue
        facts = [f"reached in {windows['reachedCount']:,} of {counted(windows['windowCount'], 'window')}"]
        if reached := windows["reached"]:
            moments = _moments([one["at"] or one["from"] for one in reached[:_SHOWN_REACHED]])
            facts.append(f"last {', '.join(moments)}")
        if per_percent is not None:
            facts.append(f"1% cost about {money(per_percent)}")
        lines += _wrapped(f"  {title}: {', '.join(facts)}", screen)
    return "\n".join([screen.paint("Limits", "bold"), *lines]) if lines else ""


_HEAD = 12  # columns before what filled a window


def _filled(answer: dict[str, Any], screen: Screen) -> str:
    parts = []
    for name, title in _TITLES.items():
        for window in answer["windows"][name].get("filled", ()):
            begin, end = _moments([window["from"], window["to"]])
            lines = [screen.paint(f"What filled the {title} {begin} to {end}", "bold")]
            for head, rows, label in (
                ("projects", window["projects"], lambda row: last_name(row["key"]) or "(no project)"),
                (
                    "sessions",
                    window["sessions"],
                    lambda row: cut(row.get("title") or "", _LONGEST_TITLE) or enough_of_id(row),
                ),
                ("causes", window["causes"], lambda row: GROUP_NAMES.get(row["key"], row["key"])),
            ):
                some = [row for row in rows if row["share"]]
                facts = [f"{label(row)} {money(row['costUsd'])} ({percent(row['share'])})" for row in some]
                text = ", ".join(facts)
                broken = [text] if screen.is_pipe else wrap(text, screen.width - _HEAD)
                lines += [f"{'' if n else f'  {head}':<{_HEAD}}{part}" for n, part in enumerate(broken) if text]
            parts.append("\n".join(lines))
    return "\n\n".join(parts)


def _wrapped(line: str, screen: Screen) -> list[str]:
    first, *more = [line] if screen.is_pipe else wrap(line, screen.width, 2)
    return [first, *(f"  {part}" for part in more)]


def unpriced_of(requests: int) -> str:
    return f"{count(requests)} without a price"


def _quota(window: dict[str, Any], now: float, screen: Screen) -> list[str]:
    quota = window["quota"]
    age = duration(max(now - milliseconds(quota["seenAt"]), 0) / 1000)
    lines = [f"  {_bar(quota['usedPercent'], screen)}  reported {age} ago"]
    ahead = f"{_percent(quota['percentPerHour'])} an hour, "
    if quota["fullAt"] is not None:
        ahead += screen.paint(f"full at {moment(quota['fullAt'], now)}", "red")
    else:
        ahead += f"on course for {_percent(quota['projectedPercent'])}"
    trend = sparkline(sampled([reading["usedPercent"] for reading in window["readings"]], _BAR))
    return [*lines, f"  {trend.ljust(_BAR)}  {ahead}" if len(window["readings"]) > 1 else f"  {'':{_BAR}}  {ahead}"]


def _budgets(budgets: list[dict[str, Any]], screen: Screen) -> str:
    lines = [screen.paint("Budgets", "bold")]
    wide = _BAR if screen.width >= _WIDE_BUDGETS else max(_BAR + screen.width - _WIDE_BUDGETS, 0)
    for budget in budgets:
        used = 100 * (budget["spentUsd"] or 0) / budget["limitUsd"]
        parts = [f"{money(budget['spentUsd'])} of {money(budget['limitUsd'])}"]
        if budget["crossed"]:
            parts.append(screen.paint("exceeded", "red"))
        elif budget["leftUsd"] is not None:
            parts.append(f"{money(budget['leftUsd'])} left")
        if budget["projectedUsd"] is not None:
            parts.append(f"on course for {money(budget['projectedUsd'])}")
        if budget["unpricedTurns"]:
            parts[-1] += f" ({unpriced_of(budget['unpricedTurns'])})"
        drawn_bar = f"{_bar(used, screen, wide)}  " if wide >= _LEAST_BAR else ""
        between = ", " if drawn_bar or screen.is_pipe else f",\n{'':11}"
        lines.append(f"  {budget['period']:<8} {drawn_bar}{between.join(parts)}")
    return "\n".join(lines)


def _table(windows: list[dict[str, Any]], current: dict[str, Any] | None, screen: Screen) -> str:
    columns = [
        Column("from"),
        Column("to", drop=2),
        Column("requests", "right", drop=3),
        Column("tokens", "right", drop=4),
        Column("cost", "right"),
        Column("used", "right"),
        Column("", drop=1, style="cyan"),
    ]
    most = max((window["costUsd"] or 0 for window in windows), default=0)
    begins, ends = (_moments([window[key] for window in windows]) for key in ("from", "to"))
    rows: list[list[object]] = [
        [
            begin,
            ("running", "green") if window is current else end,
            count(window["turns"]),
            number(sum(window["usage"].values())),
            (money(window["costUsd"]), weight_style(window["costUsd"], most)),
            _percent(window["quota"]["usedPercent"]) if window["quota"] else "",
            bar(window["costUsd"] or 0, most, 16).rstrip() if most else "",
        ]
        for window, begin, end in zip(windows, begins, ends, strict=True)
    ]
    return table(columns, rows, screen)


def _bar(percent: float, screen: Screen, wide: int = _BAR) -> str:
    full = bar(percent, 100, wide).rstrip()
    return screen.paint(full, used_style(percent)) + "·" * (wide - len(full))


def _percent(value: float) -> str:
    return of_hundred(value) if value >= 10 or value == int(value) else f"{value:.1f}%"


def moment(when: str, now: float) -> str:
    """`15:00` today, else `Mar 14 15:00`."""
    local, today = time.localtime(milliseconds(when) / 1000), time.localtime(now / 1000)
    return time.strftime("%H:%M", local) if local[:3] == today[:3] else _moments([when])[0]


def _moments(times: list[str]) -> list[str]:
    """Dates and times of a column in one style."""
    clocks = [time.strftime("%H:%M", time.localtime(milliseconds(when) / 1000)) for when in times]
    return [f"{day} {clock}" for day, clock in zip(dates(times), clocks, strict=True)]
