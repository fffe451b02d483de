"""One turn on one line, in columns that stay where they are while lines keep coming."""

from __future__ import annotations

from burnctl.render.names import last_name, short_id, short_model
from burnctl.render.numbers import clock, money, number, percent
from burnctl.render.text import clean, cut, pad

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from burnctl.render.screen import Screen

# Title, width, alignment, style. The last one takes what is left.
_NARROW = (
    ("time", 8, "left", "dim"),
    ("project", 10, "left", "cyan"),
    ("session", 12, "left", "dim"),
    ("model", 17, "left", ""),
    ("in", 5, "right", ""),
    ("out", 5, "right", ""),
    ("cache", 5, "right", ""),
    ("cost", 9, "right", "bold"),
)
_MIDDLE = (*_NARROW, ("activity", 13, "left", ""), ("tools", 0, "left", "dim"))
_WIDE = (
    *_NARROW[:1],
    ("source", 11, "left", "dim"),
    ("project", 20, "left", "cyan"),
    ("session", 12, "left", "dim"),
    ("model", 24, "left", ""),
    *_NARROW[4:],
    ("activity", 13, "left", ""),
    ("tools", 0, "left", "dim"),
)
_SMALL = (
    ("time", 8, "left", "dim"),
    ("project", 9, "left", "cyan"),
    ("model", 10, "left", ""),
    ("cost", 8, "right", "bold"),
)
_NARROW_FROM, _MIDDLE_FROM, _WIDE_FROM = 79, 100, 130


def heading(screen: Screen) -> str:
    titles = [title for title, *_ in _layout(screen)]
    return screen.paint(
        _joined([pad(t, wide, a) for t, (_, wide, a, _) in zip(titles, _layout(screen), strict=True)]), "bold"
    )


def turn_line(turn: Mapping[str, Any], screen: Screen, *, dim: bool = False) -> str:
    """The line of a turn, with its cost; `dim` for one that is still being made."""
    values = _values(turn)
    cells, used = [], 0
    for title, wide, align, style in _layout(screen):
        room = wide or max(screen.width - used, 4)
        shown = cut(clean(values[title]), room)
        padded = pad(shown, wide, align) if wide else shown
        cells.append(padded.replace(shown, screen.paint(shown, "dim" if dim else style), 1) if shown else padded)
        used += wide + 1
    return _joined(cells)


def _layout(screen: Screen) -> tuple[tuple[str, int, str, str], ...]:
    if screen.width >= _WIDE_FROM:
        return _WIDE
    return _MIDDLE if screen.width >= _MIDDLE_FROM else _NARROW if screen.width >= _NARROW_FROM else _SMALL


def _joined(cells: list[str]) -> str:
    return " ".join(cells).rstrip()


def _values(turn: Mapping[str, Any]) -> dict[str, str]:
    usage = turn.get("usage") or {}
    cached = usage.get("cacheRead", 0)
    context = cached + sum(usage.get(name, 0) for name in ("input", "cacheCreate5m", "cacheCreate1h"))
    return {
        "time": clock(turn["ts"]) if turn.get("ts") else "",
        "source": str(turn.get("source") or ""),
        "project": last_name(turn.get("project")),
        "session": short_id(turn.get("sessionId")),
        "model": short_model(turn.get("model")),
        "in": number(context),
        "out": number(usage.get("output", 0) + usage.get("reasoning", 0)),
        "cache": percent(cached / context) if context else "",
        "cost": money(turn.get("costUsd")),
        "activity": str(turn.get("activity") or ""),
        "tools": _tools(turn.get("toolCalls") or ()),
    }


def _tools(calls: Any) -> str:
    """`Read x3 Edit`, in the order of their first use; a failed one is marked."""
    counts: dict[str, int] = {}
    for call in calls:
        name = str(call.get("name") or "?") + ("!" if call.get("isError") else "")
        counts[name] = counts.get(name, 0) + 1
    return " ".join(name if n == 1 else f"{name} x{n}" for name, n in counts.items())
