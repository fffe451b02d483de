"""Small charts of characters: bars, sparklines, columns."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

_RISING = "▁▂▃▄▅▆▇█"
_EIGHTHS = " ▏▎▍▌▋▊▉"


def sparkline(values: Sequence[float | None]) -> str:
    """A small column for each value; None is a gap."""
    most = max((value for value in values if value is not None), default=0)
    return "".join(_column(value, most) for value in values)


def sampled(values: Sequence[float], width: int) -> list[float]:
    """At most `width` values at equal distances, with the last one."""
    if len(values) <= width:
        return list(values)
    return [values[(place + 1) * len(values) // width - 1] for place in range(width)]


def _column(value: float | None, most: float) -> str:
    if value is None:
        return " "
    if most <= 0 or value <= 0:
        return _RISING[0]
    return _RISING[min(7, int(value / most * 7.999))]


def bar(value: float, most: float, width: int) -> str:
    """A bar of `value` in `most`, to an eighth of a cell, padded to `width`."""
    share = min(max(value / most, 0.0), 1.0) if most > 0 else 0.0
    eighths = round(share * width * 8)
    if share > 0:
        eighths = max(eighths, 1)
    full, part = divmod(eighths, 8)
    return ("█" * full + (_EIGHTHS[part] if part else "")).ljust(width)


def plot(values: Sequence[float], height: int, cell: int = 1) -> list[str]:
    """A column for each value, `height` lines high and `cell` wide, to an eighth of a line; top line first."""
    most = max(values, default=0)
    eighths = [max(round(value / most * height * 8), 1) if value > 0 else 0 for value in values]
    lines = []
    for line in reversed(range(height)):
        parts = [_RISING[min(part - line * 8, 8) - 1] if part > line * 8 else " " for part in eighths]
        lines.append("".join(part * cell for part in parts))
    return lines
