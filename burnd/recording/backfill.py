"""Progress of reading old logs: per source for `status` and the log, and over all sources for every answer."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
import structlog

from burnd.recording.source import Progress, Status
from burnd.records.base import camel

log = structlog.get_logger()

LOG_FROM_BYTES, LOG_EVERY_S = 20_000_000, 2.0


class Backfill(msgspec.Struct):
    """Bytes read and to be read by one source; `since` is its start, `logged` the time of its last log line."""

    done: int = 0
    total: int = 0
    since: float = 0.0
    logged: float = 0.0

    def found(self, size: int, now: float) -> None:
        """Adds bytes to be read."""
        self.total += size
        self.since = self.since or now

    @property
    def left(self) -> int:
        return self.total - self.done

    def per_second(self, now: float) -> float:
        return self.done / max(0.001, now - self.since)

    def progress(self, now: float) -> Progress:
        """The progress. New lines count as done too, so `done` is capped at the total."""
        return Progress(min(self.done, self.total), self.total, self.per_second(now) if self.since else 0.0)

    def tell(self, now: float, source: str, *, is_done: bool, **facts: int) -> None:
        """Logs the progress of a large backfill from time to time, and its end."""
        is_large = max(self.done, self.total) >= LOG_FROM_BYTES
        is_due = self.logged > 0 if is_done else now - self.logged >= LOG_EVERY_S
        if not is_large or not is_due:
            return
        facts = {"mb": round(self.done / 1e6), **facts}
        speed = round(self.per_second(now) / 1e6, 1)
        log.info("source.caught_up" if is_done else "source.progress", source=source, mb_per_s=speed, **facts)
        self.logged = now


class BackfillState(msgspec.Struct, frozen=True, rename=camel):
    """Whether all old logs are read, and the progress if not. Part of every answer about turns.

    `percent` and `seconds_left` are None while unknown. `blocked` is set when no source can go on.
    """

    done: bool
    percent: int | None
    seconds_left: int | None
    blocked: str | None = None

    @property
    def is_growing(self) -> bool:
        """Whether old logs are being read, so that sessions may be added."""
        return not self.done and self.blocked is None


_DONE = BackfillState(True, 100, 0)
UNKNOWN = BackfillState(False, None, None)  # not done, progress unknown


def backfill_state(sources: Iterable[Status]) -> BackfillState:
    """The state over all sources. A source that has not looked at its files yet is not done."""
    unread = [one for one in sources if one.progress is not None or not one.has_looked]
    if not unread:
        return _DONE
    progress = [one.progress for one in unread if one.progress is not None]
    done, total = sum(one.done for one in progress), sum(one.total for one in progress)
    rate = sum(one.per_second for one in progress)
    is_sized = total > 0 and len(progress) == len(unread)
    return BackfillState(
        done=False,
        percent=min(99, 100 * done // total) if is_sized else None,
        seconds_left=max(1, round((total - done) / rate)) if is_sized and rate > 0 else None,
        blocked="; ".join(f"{one.name}: {one.blocked}" for one in unread)
        if all(one.blocked for one in unread)
        else None,
    )
