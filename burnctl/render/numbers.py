"""Numbers for people: money, counts, tokens, sizes, percentages, times.

Right-aligned money lines up at its decimal point.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

NOTHING = "-"
_MINUTE, _HOUR, _DAY = 60, 3600, 86400
_SIGNS = {"USD": "$", "EUR": "€", "GBP": "£", "JPY": "¥", "CNY": "¥", "INR": "₹", "KRW": "₩"}
_WHOLE = ("JPY", "KRW")  # currencies without cents


class _Currency:
    """The currency that `money` shows, and its rate to the dollar."""

    sign, rate, decimals = "$", 1.0, 2


def use_currency(chosen: Mapping[str, Any] | None, encoding: str = "utf-8") -> None:
    """Shows money in the currency of the settings, `{"code": "EUR", "rate": 0.92}`; None is US dollars."""
    code = str(chosen["code"]) if chosen else "USD"
    sign = _SIGNS.get(code, f"{code} ")
    try:
        sign.encode(encoding)
    except (UnicodeError, LookupError):
        sign = f"{code} "
    _Currency.sign, _Currency.rate = sign, float(chosen["rate"]) if chosen else 1.0
    _Currency.decimals = 0 if code in _WHOLE else 2


def money(usd: float | None) -> str:
    """`$1,204.40`, `$0.47`, `<$0.01`; `-` without a price."""
    if usd is None:
        return NOTHING
    if usd < 0:
        return "-" + money(-usd)
    amount, least = usd * _Currency.rate, 10.0**-_Currency.decimals
    if 0 < amount < least / 2:
        return f"<{_Currency.sign}{least:.{_Currency.decimals}f}"
    return f"{_Currency.sign}{amount:,.{_Currency.decimals}f}"


def exact_money(usd: float | None) -> str:
    """Four decimals below ten cents, for parts of a request: `$1.24`, `$0.0043`, `<$0.0001`."""
    if usd is None or usd == 0 or usd * _Currency.rate >= 0.09995 or usd < 0:
        return money(usd)
    amount = usd * _Currency.rate
    return f"{_Currency.sign}{amount:.4f}" if amount >= 0.00005 else f"<{_Currency.sign}0.0001"


def count(value: int | None) -> str:
    """All digits: `1,204`."""
    return NOTHING if value is None else f"{value:,}"


def number(value: float | None) -> str:
    """Tokens: `950`, `8.2k`, `18.2M`, `1.8B`."""
    return NOTHING if value is None else _scaled(value, 1000, ("", "k", "M", "B", "T"))


def roughly(value: int, noun: str) -> str:
    """`1 token`, `8.2k tokens`."""
    return f"{number(value)} {noun}" if value == 1 else f"{number(value)} {noun}s"


def counted(value: int, noun: str) -> str:
    """`1 request`, `1,204 requests`."""
    return f"{value:,} {noun}" if value == 1 else f"{value:,} {noun}s"


def size(value: float | None) -> str:
    """Bytes: `950 B`, `8.2 kB`, `1.3 MB`."""
    return NOTHING if value is None else _scaled(value, 1000, (" B", " kB", " MB", " GB", " TB"))


def _scaled(value: float, step: int, units: Sequence[str]) -> str:
    """About three digits. Rounding decides the unit: 999,950 is 1.0M, not 1000k."""
    if value < 0:
        return "-" + _scaled(-value, step, units)
    if round(value) < step:
        return f"{round(value)}{units[0]}"
    for unit in units[1:]:
        value /= step
        if round(value, 1) < 100:
            return f"{value:.1f}{unit}"
        if round(value) < step:
            return f"{value:.0f}{unit}"
    return f"{value:,.0f}{units[-1]}"


def percent(share: float | None) -> str:
    """A share of one: `0.923` is `92%`. A little is `<1%`, nearly all is `99%`."""
    if share is None:
        return NOTHING
    if 0 < share < 0.005:
        return "<1%"
    if 0.995 <= share < 1:
        return "99%"
    return f"{share:.0%}"


def of_hundred(value: float) -> str:
    """A value in percent: `99.6` is `99%`, because only a full one is `100%`."""
    return f"{99 if 99 < value < 100 else round(value)}%"


def duration(seconds: float | None) -> str:
    """`340 ms`, `12 s`, `4 min`, `2 h 5 min`, `3 d 4 h`."""
    if seconds is None:
        return NOTHING
    if seconds < 1:
        return f"{max(seconds, 0) * 1000:.0f} ms"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < _HOUR:
        return f"{whole // 60} min"
    big, small, names = (whole // _HOUR, whole % _HOUR // 60, ("h", "min"))
    if whole >= _DAY:
        big, small, names = (whole // _DAY, whole % _DAY // _HOUR, ("d", "h"))
    return f"{big} {names[0]} {small} {names[1]}" if small else f"{big} {names[0]}"


def ago(then: float | str | None, now: float) -> str:
    """An age: `just now`, `3 min ago`, `yesterday`, `12 days ago`, and a date from 60 days on.

    `then` is milliseconds since 1970 or an ISO timestamp; `now` is milliseconds.
    """
    if then is None:
        return NOTHING
    at = milliseconds(then)
    passed = (now - at) / 1000
    if passed < -_MINUTE:
        return f"in {duration(-passed)}"
    if passed < 10:
        return "just now"
    if passed < _MINUTE:
        return f"{passed:.0f} s ago"
    if passed < _HOUR:
        return f"{passed // _MINUTE:.0f} min ago"
    if passed < _DAY:
        return f"{passed // _HOUR:.0f} h ago"
    if passed < 2 * _DAY:
        return "yesterday"
    if passed < 60 * _DAY:
        return f"{passed // _DAY:.0f} days ago"
    return date(at, now)


def milliseconds(when: float | str) -> float:
    """Milliseconds since 1970, of that or an ISO timestamp."""
    if not isinstance(when, str):
        return when
    from datetime import datetime

    return datetime.fromisoformat(when).timestamp() * 1000


def date(when: float | str, now: float | None = None) -> str:
    """Local `Nov 17`, with the year if it is not this one: `Nov 17 2025`."""
    return dates([when], now)[0]


def dates(times: Sequence[float | str], now: float | None = None) -> list[str]:
    """The dates of a column in one style: with or without the year."""
    import time

    local = [time.localtime(milliseconds(when) / 1000) for when in times]
    year = time.localtime(time.time() if now is None else now / 1000).tm_year
    has_years = any(one.tm_year != year for one in local)
    return [
        f"{_MONTHS[one.tm_mon - 1]} {one.tm_mday:>{2 if len(local) > 1 else 1}}" + f" {one.tm_year}" * has_years
        for one in local
    ]


def day_names(keys: Sequence[str]) -> list[str]:
    """Days such as `2026-11-17` in the style of `dates`."""
    import time

    year = str(time.localtime(time.time()).tm_year)
    has_years = any(key[:4] != year for key in keys)
    wide = 2 if len(keys) > 1 else 1
    return [f"{_MONTHS[int(key[5:7]) - 1]} {int(key[8:10]):>{wide}}" + f" {key[:4]}" * has_years for key in keys]


_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


def day(when: float | str) -> str:
    """Local `2026-03-01`."""
    return _local("%Y-%m-%d", when)


def clock(when: float | str) -> str:
    """Local `14:03:22`."""
    return _local("%H:%M:%S", when)


def _local(form: str, when: float | str) -> str:
    import time

    return time.strftime(form, time.localtime(milliseconds(when) / 1000))


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
