"""Times and time zones of a caller: parses `7d`, `yesterday` or a date, and finds local days and clock changes."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta, timezone, tzinfo
from functools import lru_cache
from typing import NamedTuple
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from burnd.queries.view import Mistaken
from burnd.records.times import DAY_MS, EARLIEST_MS, HOUR_MS, LATEST_MS, to_ms

_UNITS = {"m": 60_000, "h": HOUR_MS, "d": DAY_MS, "w": 7 * DAY_MS}
_RELATIVE = re.compile(r"(\d{1,6})\s*([mhdw])", re.IGNORECASE)
_DATE = re.compile(r"\d{4}-?\d{2}-?\d{2}")
_OFFSET = re.compile(r"(?:UTC|GMT)?([+-])(\d{1,2}):?(\d{2})?", re.IGNORECASE)
_MONTH = re.compile(r"\d{4}-\d{2}")
_FORMS = (
    "use 30m, 24h, 7d, 4w, today, yesterday, week, month, a date like 2026-05-01, a month like 2026-05, "
    "an ISO time, or milliseconds since 1970"
)
_PROBE_MS = 7 * DAY_MS  # no zone has changed twice within a week
# Clock changes are considered from 1970 to 2100; a turn of another time comes from a broken clock.
_FIRST_CHANGE_MS = 0
_LAST_CHANGE_MS = 4_102_444_800_000
_LARGEST_OFFSET_MIN = 24 * 60 - 1


class Stretch(NamedTuple):
    """A time from `begin` to before `end` with one offset from UTC."""

    begin: int
    end: int
    offset: int = 0


def zone_of(given: str | int | None) -> tzinfo:
    """By IANA name, as `+05:45`, or as minutes east of UTC; UTC by default."""
    if given is None or given == "":
        return UTC
    if isinstance(given, int):
        return _fixed(given, str(given))
    if match := _OFFSET.fullmatch(given.strip()):
        minutes = int(match[2]) * 60 + int(match[3] or 0)
        return _fixed(-minutes if match[1] == "-" else minutes, given)
    try:
        return ZoneInfo(given)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        hint = "use a name like Europe/Berlin, an offset like +05:45, or minutes east of UTC"
        raise Mistaken(f"unknown time zone {given[:60]!r}", hint) from None


def _fixed(minutes: int, given: str) -> tzinfo:
    if abs(minutes) > _LARGEST_OFFSET_MIN:
        raise Mistaken(f"unknown time zone {given!r}", "an offset is less than a day")
    return timezone(timedelta(minutes=minutes))


def moment(given: str | int, now: int, zone: tzinfo, *, is_end: bool = False) -> int:
    """Parses `since` or `until` to milliseconds. A day or month as the end is included whole."""
    if isinstance(given, int):
        return min(max(given, EARLIEST_MS), LATEST_MS)
    text = given.strip()
    if text.lower() == "now":
        return now
    if (days := _named_period(text.lower(), local(now, zone).date())) is not None:
        return _midnight(days[is_end], zone)
    if match := _RELATIVE.fullmatch(text):
        return max(now - int(match[1]) * _UNITS[match[2].lower()], EARLIEST_MS)
    try:
        if _MONTH.fullmatch(text):
            return _midnight(_month(date.fromisoformat(f"{text}-01"))[is_end], zone)
        if _DATE.fullmatch(text):
            return _midnight(datetime.fromisoformat(text).toordinal() + is_end, zone)
        when = datetime.fromisoformat(text)
        return _ms(when if when.tzinfo is not None else when.replace(tzinfo=zone))
    except (ValueError, OverflowError):
        raise Mistaken(f"invalid time {text[:60]!r}", _FORMS) from None


def _named_period(text: str, today: date) -> tuple[int, int] | None:
    """The first day of a named period, and the day after its last."""
    day = today.toordinal()
    if text == "today":
        return day, day + 1
    if text == "yesterday":
        return day - 1, day
    if text == "week":
        monday = day - today.weekday()
        return monday, monday + 7
    return _month(today) if text == "month" else None


def _month(day: date) -> tuple[int, int]:
    first = day.replace(day=1)
    return first.toordinal(), (first + timedelta(days=31)).replace(day=1).toordinal()


def _midnight(ordinal: int, zone: tzinfo) -> int:
    """The first millisecond of a day; if clocks jump over midnight, the time of the jump."""
    if ordinal <= 2:  # in some zones it begins before Python's first date
        return EARLIEST_MS
    if ordinal > date.max.toordinal():
        return LATEST_MS
    begin = _ms(datetime.fromordinal(ordinal).replace(tzinfo=zone))
    same_day = local(begin, zone).toordinal() == ordinal
    # If clocks jump at midnight, 00:00 does not exist and falls on the day before.
    return begin if same_day else _jump(begin, begin + 3 * HOUR_MS, zone)


def _ms(when: datetime) -> int:
    try:
        return to_ms(when.isoformat())
    except OverflowError:
        raise ValueError(when) from None


def local(ms: int, zone: tzinfo) -> datetime:
    return (_EPOCH + timedelta(milliseconds=ms)).astimezone(zone)


def offset_at(ms: int, zone: tzinfo) -> int:
    """In milliseconds, east positive."""
    try:
        away = local(ms, zone).utcoffset() or timedelta()
    except OverflowError:  # on the first and last day
        return 0
    return round(away.total_seconds() * 1000)


def stretches(begin: int, end: int, zone: tzinfo) -> list[Stretch]:
    if isinstance(zone, timezone) or begin >= end:
        return [Stretch(begin, end, offset_at(begin, zone))] if begin < end else []
    cuts: list[Stretch] = []
    same = max(begin, min(_FIRST_CHANGE_MS, end - 1))  # the last moment verified to have this offset
    at, offset = begin, offset_at(same, zone)
    while same < min(end, _LAST_CHANGE_MS) - 1:
        ahead = min(same + _PROBE_MS, end - 1)
        if offset_at(ahead, zone) != offset:
            ahead = _jump(same, ahead, zone)
            cuts.append(Stretch(at, ahead, offset))
            at, offset = ahead, offset_at(ahead, zone)
        same = ahead
    return [*cuts, Stretch(at, end, offset)]


def _jump(before: int, after: int, zone: tzinfo) -> int:
    """The first millisecond with another offset than `before`; `after` has another one."""
    offset = offset_at(before, zone)
    while after - before > 1:
        middle = (before + after) // 2
        if offset_at(middle, zone) == offset:
            before = middle
        else:
            after = middle
    return after


def day_name(number: int) -> str:
    """A local day, numbered from the year 1, like 2026-05-01."""
    return datetime.fromordinal(number + 1).strftime("%Y-%m-%d").rjust(10, "0")


def week_name(number: int) -> str:
    """ISO 8601, like 2026-W18."""
    year, week, _ = datetime.fromordinal(number + 1).isocalendar()
    return f"{year:04}-W{week:02}"


def month_name(number: int) -> str:
    return day_name(number)[:7]


def hour_slot(offset: int) -> int:
    """Orders hours of the same name: when clocks are set back, the one with the larger offset is first.

    The number of a local hour is its count from the year 1, times `HOUR_SLOTS`, plus this.
    """
    return HOUR_SLOTS // 2 - offset // 1000


def hour_name(number: int) -> str:
    """With the offset from UTC, since an hour comes twice when clocks are set back."""
    hour, slot = divmod(number, HOUR_SLOTS)
    return f"{_day_of_hour(hour // 24)}T{hour % 24:02}:00{_offset_name(HOUR_SLOTS // 2 - slot)}"


_day_of_hour = lru_cache(1024)(day_name)


@lru_cache(1024)
def _offset_name(offset: int) -> str:
    """Like +05:45."""
    minutes, seconds = divmod(abs(offset), 60)
    return f"{'-' if offset < 0 else '+'}{minutes // 60:02}:{minutes % 60:02}" + (f":{seconds:02}" if seconds else "")


HOUR_SLOTS = 200_000  # over twice the seconds of a day
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
