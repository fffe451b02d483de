"""How windows and budgets look: a few lines each, and a table of the windows that are over."""

from __future__ import annotations

import time

from burnctl.render.caveats import API_PRICES, price_caveats
from burnctl.render.chart import bar, sampled, sparkline
from burnctl.render.numbers import NOTHING, duration, milliseconds, money, number, of_hundred, roughly
from burnctl.render.paragraphs import dimmed, wrapped
from burnctl.render.tables import Column, table
from burnctl.render.text import clean

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from burnctl.render.screen import Screen

_NAMES = {"5h": "5-hour window", "7d": "week"}
_BAR = 24
_HIGH, _TOO_HIGH = 80.0, 100.0


def shown(answer: dict[str, Any], screen: Screen) -> str:
    """All of it, for a person; nothing where there is neither a turn nor a budget."""
    if not answer["budgets"] and not any(one["current"] or one["history"] for one in answer["windows"].values()):
        return ""
    now = milliseconds(answer["now"])
    parts = []
    for name, title in _NAMES.items():
        windows = answer["windows"][name]
        parts.append(_current(title, windows["current"], now, screen))
    if answer["budgets"]:
        parts.append(_budgets(answer["budgets"], screen))
    for name, title in _NAMES.items():
        if history := answer["windows"][name]["history"]:
            parts.append(_history(f"{title}s before", history, screen))
    parts += ["\n".join(wrapped(clean(note), screen.width)) for note in price_caveats(answer)]
    parts.append(dimmed(f"{API_PRICES} Source: {answer['source']}.", screen))
    return "\n\n".join(parts)


def _current(title: str, window: dict[str, Any] | None, now: float, screen: Screen) -> str:
    head = screen.paint(title[:1].upper() + title[1:], "bold")
    if window is None:
        return f"{head}  none is running"
    left = duration(window["secondsLeft"])
    how = "" if window["basis"] == "reported" else ", as counted from turns"
    lines = [f"{head}  {moment(window['from'], now)} to {moment(window['to'], now)}, {left} left{how}"]
    lines.append(f"  used     {_used(window)}")
    if window["pace"] is not None:
        lines.append(f"  pace     {_pace(window)}")
    if window["quota"] is not None:
        lines += _quota(window, now, screen)
    return "\n".join(lines)


def _used(window: dict[str, Any]) -> str:
    parts = [
        roughly(window["turns"], "turn"),
        roughly(sum(window["usage"].values()), "token"),
        money(window["costUsd"]),
    ]
    if window["unpricedTurns"]:
        parts.append(f"({unpriced(window['unpricedTurns'])})")
    return ", ".join(parts[:3]) + "".join(f" {part}" for part in parts[3:])


def unpriced(turns: int) -> str:
    return f"{number(turns)} without a price"


def _pace(window: dict[str, Any]) -> str:
    pace, ahead = window["pace"], window["projected"]
    if pace["usdPerHour"] is None:
        return f"{number(pace['tokensPerHour'])} tokens/h, leads to {number(ahead['tokens'])} tokens"
    return f"{money(pace['usdPerHour'])}/h, leads to {money(ahead['costUsd'])}"


def _quota(window: dict[str, Any], now: float, screen: Screen) -> list[str]:
    quota = window["quota"]
    used = quota["usedPercent"]
    seen = duration(max(now - milliseconds(quota["seenAt"]), 0) / 1000)
    line = f"  account  {_bar(used, screen)} {_percent(used)} used, seen {seen} ago"
    ahead = f"{_percent(quota['percentPerHour'])}/h, "
    if quota["fullAt"] is not None:
        ahead += screen.paint(f"runs out at {moment(quota['fullAt'], now)}", "red")
    else:
        ahead += f"leads to {_percent(quota['projectedPercent'])}"
    trend = sparkline(sampled([reading["usedPercent"] for reading in window["readings"]], _BAR))
    return [line, f"           {trend.ljust(_BAR)} {ahead}" if len(window["readings"]) > 1 else f"           {ahead}"]


def _budgets(budgets: list[dict[str, Any]], screen: Screen) -> str:
    lines = [screen.paint("Budgets", "bold")]
    for budget in budgets:
        used = 100 * (budget["spentUsd"] or 0) / budget["limitUsd"]
        told = f"{money(budget['spentUsd'])} of {money(budget['limitUsd'])}"
        if budget["crossed"]:
            told = screen.paint(f"{told}, crossed", "red")
        elif budget["leftUsd"] is not None:
            told += f", {money(budget['leftUsd'])} left"
        if budget["projectedUsd"] is not None:
            told += f", leads to {money(budget['projectedUsd'])}"
        if budget["unpricedTurns"]:
            told += f" ({unpriced(budget['unpricedTurns'])})"
        lines.append(f"  {budget['period']:<8} {_bar(used, screen)} {told}")
    return "\n".join(lines)


def _history(title: str, history: list[dict[str, Any]], screen: Screen) -> str:
    columns = [
        Column("from"),
        Column("to"),
        Column("turns", "right"),
        Column("tokens", "right"),
        Column("cost", "right"),
        Column("account", "right"),
        Column("", drop=1),
    ]
    most = max((window["costUsd"] or 0 for window in history), default=0)
    rows = [
        [
            _dated(window["from"]),
            _dated(window["to"]),
            number(window["turns"]),
            number(sum(window["usage"].values())),
            money(window["costUsd"]),
            NOTHING if window["quota"] is None else _percent(window["quota"]["usedPercent"]),
            bar(window["costUsd"] or 0, most, 16) if most else "",
        ]
        for window in history
    ]
    return screen.paint(title[:1].upper() + title[1:], "bold") + "\n" + table(columns, rows, screen, indent=2)


def _bar(percent: float, screen: Screen) -> str:
    style = "red" if percent >= _TOO_HIGH else "yellow" if percent >= _HIGH else "green"
    drawn = bar(percent, 100, _BAR)
    return screen.paint(drawn.rstrip(), style) + "·" * (_BAR - len(drawn.rstrip()))


def _percent(value: float) -> str:
    return of_hundred(value) if value >= 10 or value == int(value) else f"{value:.1f}%"


def moment(when: str, now: float) -> str:
    """`15:00` today, `Fri 15:00` within three days, else `03-14 15:00`, in local time."""
    at = milliseconds(when)
    local, today = time.localtime(at / 1000), time.localtime(now / 1000)
    if local[:3] == today[:3]:
        return time.strftime("%H:%M", local)
    return time.strftime("%a %H:%M", local) if abs(at - now) < 3 * 86_400_000 else _dated(when)


def _dated(when: str) -> str:
    """One form for all, where they stand in a column."""
    return time.strftime("%m-%d %H:%M", time.localtime(milliseconds(when) / 1000))
