"""Numbers as people read them: money, counts, sizes, shares, times."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

NOTHING = "-"
_MINUTE, _HOUR, _DAY = 60, 3600, 86400


def money(usd: float | None) -> str:
    """`$1,204`, `$1.24`, `$0.0043`; `-` where nothing is priced. Never `$0.00` for something that cost a little."""
    if usd is None:
        return NOTHING
    if usd < 0:
        return "-" + money(-usd)
    if usd >= 999.995:
        return f"${usd:,.0f}"
    if usd >= 0.09995 or usd == 0:
        return f"${usd:.2f}"
    if usd >= 0.00005:
        return f"${usd:.4f}"
    return "<$0.0001"


def number(count: float | None) -> str:
    """`950`, `8.2k`, `1.3M`, `2.0G`."""
    if count is None:
        return NOTHING
    return _scaled(count, 1000, ("", "k", "M", "G", "T"))


def roughly(count: int, what: str) -> str:
    """`1 token`, `8.2k tokens`."""
    return f"{number(count)} {what}" if count == 1 else f"{number(count)} {what}s"


def counted(count: int, what: str) -> str:
    """`1 turn`, `1,204 turns`."""
    return f"{count:,} {what}" if count == 1 else f"{count:,} {what}s"


def size(count: float | None) -> str:
    """Bytes: `950 B`, `8.2 kB`, `1.3 MB`."""
    if count is None:
        return NOTHING
    return _scaled(count, 1000, (" B", " kB", " MB", " GB", " TB"))


def _scaled(count: float, step: int, units: Sequence[str]) -> str:
    """Three digits or so. Rounding decides the unit: 999,950 is 1.0M, not 1000k."""
    if count < 0:
        return "-" + _scaled(-count, step, units)
    if round(count) < step:
        return f"{round(count)}{units[0]}"
    for unit in units[1:]:
        count /= step
        if round(count, 1) < 100:
            return f"{count:.1f}{unit}"
        if round(count) < step:
            return f"{count:.0f}{unit}"
    return f"{count:,.0f}{units[-1]}"


def percent(share: float | None) -> str:
    """A share of one: `0.923` is `92 %`; small ones keep a digit, so that something is never nothing."""
    if share is None:
        return NOTHING
    if 0 < share < 0.0005:
        return "<0.1 %"
    if 0 < share < 0.0995:
        return f"{share:.1%}".replace("%", " %")
    if 0.995 <= share < 1:
        return "99 %"
    return f"{share:.0%}".replace("%", " %")


def of_hundred(value: float) -> str:
    """What is in percent already, in whole ones; `99.6` is `99 %`: what is not full must not look full."""
    return f"{99 if 99 < value < 100 else round(value)} %"


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
    """How long ago that was: `just now`, `3 min ago`, `5 h ago`, `yesterday`, `12 days ago`; later, a date.

    `then` is milliseconds since 1970 or an ISO timestamp; `now` is milliseconds since 1970.
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
    return day(at)


def milliseconds(when: float | str) -> float:
    """Milliseconds since 1970, of a number that is that already or an ISO timestamp."""
    if not isinstance(when, str):
        return when
    from datetime import datetime

    return datetime.fromisoformat(when).timestamp() * 1000


def day(when: float | str) -> str:
    """`2026-03-01`, in the local time zone."""
    return _local("%Y-%m-%d", when)


def clock(when: float | str) -> str:
    """`14:03:22`, in the local time zone."""
    return _local("%H:%M:%S", when)


def _local(form: str, when: float | str) -> str:
    import time

    return time.strftime(form, time.localtime(milliseconds(when) / 1000))
