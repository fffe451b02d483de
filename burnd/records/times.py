"""Times: ISO 8601 in UTC with milliseconds on disk, milliseconds since 1970 in memory."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, date, datetime
from functools import lru_cache

Clock = Callable[[], int]

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
EARLIEST_MS = -62_135_596_800_000
LATEST_MS = 253_402_300_799_999
_FIRST_MS, _LAST_MS = 0, 4_102_444_799_999


def wall_ms() -> int:
    return time.time_ns() // 1_000_000


@lru_cache(maxsize=8192)  # the records of one line share its time
def to_ms(text: str) -> int:
    """A time without a zone is UTC. Raises ValueError."""
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    # Integers: a float timestamp may lose the last millisecond.
    delta = moment - _EPOCH
    return delta.days * DAY_MS + delta.seconds * 1000 + delta.microseconds // 1000


@lru_cache(maxsize=2048)
def index_ms(text: str) -> int:
    """Clamped to 1970 to 2099: a broken clock may write any year."""
    ms = to_ms(text)
    return ms if _FIRST_MS <= ms <= _LAST_MS else min(max(ms, _FIRST_MS), _LAST_MS)


def to_iso(ms: int) -> str:
    """`2026-11-16T00:14:05.445Z`, in which text order is time order."""
    days, rest = divmod(min(max(ms, EARLIEST_MS), LATEST_MS), DAY_MS)
    seconds, millis = divmod(rest, 1000)
    minutes, seconds = divmod(seconds, 60)
    # A datetime takes several times as long, and a report has many times.
    return f"{_day(days)}T{_MINUTES[minutes]}:{_SIXTY[seconds]}.{millis:03d}Z"


@lru_cache(maxsize=1024)
def _day(days: int) -> str:
    return date.fromordinal(_EPOCH.toordinal() + days).isoformat()


def canonical(text: str) -> str:
    return to_iso(to_ms(text))


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SIXTY = [f"{number:02d}" for number in range(60)]
_MINUTES = [f"{hour}:{minute}" for hour in _SIXTY[:24] for minute in _SIXTY]
