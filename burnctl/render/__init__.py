"""How things look in a terminal: numbers, text that cannot harm, tables, small charts.

    from burnctl.render import Column, Screen, money, table

Each name is imported from its module when it is first used: a command imports only what it draws.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from burnctl.render.chart import bar, sparkline
    from burnctl.render.numbers import (
        ago,
        clock,
        count,
        counted,
        date,
        dates,
        day,
        duration,
        exact_money,
        money,
        number,
        percent,
        size,
    )
    from burnctl.render.screen import Screen
    from burnctl.render.tables import Column, table
    from burnctl.render.text import clean, cut, pad, width_of

_MODULES = {
    "chart": ("bar", "sparkline"),
    "numbers": (
        *("ago", "clock", "count", "counted", "date", "dates", "day", "duration", "exact_money", "money", "number"),
        *("percent", "size"),
    ),
    "screen": ("Screen",),
    "tables": ("Column", "table"),
    "text": ("clean", "cut", "pad", "width_of"),
}

__all__ = [
    "Column",
    "Screen",
    "ago",
    "bar",
    "clean",
    "clock",
    "count",
    "counted",
    "cut",
    "date",
    "dates",
    "day",
    "duration",
    "exact_money",
    "money",
    "number",
    "pad",
    "percent",
    "size",
    "sparkline",
    "table",
    "width_of",
]


def __getattr__(name: str) -> object:
    from importlib import import_module

    for module, names in _MODULES.items():
        if name in names:
            return getattr(import_module(f"burnctl.render.{module}"), name)
    raise AttributeError(f"module 'burnctl.render' has no attribute {name!r}")
