"""The interface of a source, its status, and the progress of reading old logs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, Protocol, runtime_checkable

import msgspec
import structlog

from burnd.records.base import camel

log = structlog.get_logger()

LOG_FROM_BYTES, LOG_EVERY_S = 20_000_000, 2.0

State = Literal["watching", "polling", "waiting", "degraded", "absent"]


class Progress(msgspec.Struct, frozen=True, gc=False):
    """Bytes read of old logs; `total` is 0 if unknown."""

    done: int
    total: int
    per_second: float


class UnusedLine(msgspec.Struct, frozen=True, gc=False):
    """A line or row that could not be used, or only in part: its place and the reason."""

    path: str
    offset: int
    size: int
    reason: str
    row: str | None = None  # its table and id; a line has none


class UnusedInAll(msgspec.Struct, frozen=True):
    """Unusable lines or rows: number, number that may still be completed, and the first ones."""

    count: int = 0
    unfinished: int = 0
    lines: Sequence[UnusedLine] = ()


class SkippedFiles(msgspec.Struct, frozen=True):
    """Files or folders that are not read for one reason: number, first ones, and what to do.

    If it `is_normal`, nothing need be done unless logs are missing.
    """

    reason: str
    why: str
    count: int
    paths: tuple[str, ...]
    remedy: str
    is_normal: bool


class Status(msgspec.Struct, frozen=True):
    """The state of a source: a word, and a sentence with the reason.

    `counts` are of what was read and skipped; `remedy` is what to do if something is wrong. Until it `has_looked`, the
    amount to read is unknown.
    """

    name: str
    state: State
    detail: str
    files: int = 0
    pending: int = 0
    lag: float = 0.0  # seconds that the oldest piece of work has waited
    progress: Progress | None = None
    counts: Mapping[str, int] = {}
    unused: UnusedInAll = UnusedInAll()
    skipped: Sequence[SkippedFiles] = ()
    remedy: str = ""
    has_looked: bool = True
    blocked: str = ""  # why reading has stopped for now


class Source(Protocol):
    """A place that turns come from. It commits them to its pipeline."""

    @property
    def name(self) -> str: ...

    async def run(self) -> None:
        """Reads until cancelled. Failures of single inputs are shown, never raised."""
        ...

    async def flush(self, session_id: str | None = None) -> str | None:
        """Records everything readable and settles open turns, of one session if it is named.

        Returns None, or the reason why some is not recorded. Called while `run` runs, and cancelled with it.
        """
        ...

    @property
    def is_reading(self) -> bool: ...

    def status(self) -> Status: ...


@runtime_checkable
class Rooted(Protocol):
    """A source that takes more folders while it runs."""

    def add_roots(self, folders: Sequence[str]) -> None:
        """Reads below these folders too from now on."""
        ...


class Backfill(msgspec.Struct):
    """Bytes read and to be read by one source; `since` is its start, `logged` the time of its last log line."""

    done: int = 0
    total: int = 0
    since: float = 0.0
    logged: float = 0.0

    def found(self, size: int, now: float) -> None:
        self.total += size
        self.since = self.since or now

    @property
    def left(self) -> int:
        return self.total - self.done

    def per_second(self, now: float) -> float:
        return self.done / max(0.001, now - self.since)

    def progress(self, now: float) -> Progress:
        """The progress; new lines count too, so `done` is capped at the total."""
        return Progress(min(self.done, self.total), self.total, self.per_second(now) if self.since else 0.0)

    def log_progress(self, now: float, source: str, *, is_done: bool, **facts: int) -> None:
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
    """Whether all old logs are read, and the progress. Part of every answer about turns.

    `percent` and `seconds_left` are None while unknown. `blocked` is set when no source can continue. `exact`: the
    answer is complete all the same, from earlier totals.
    """

    done: bool
    percent: int | None
    seconds_left: int | None
    blocked: str | None = None
    exact: bool | msgspec.UnsetType = msgspec.UNSET

    @property
    def is_growing(self) -> bool:
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
        blocked=_reasons(unread) if all(one.blocked for one in unread) else None,
    )


def _reasons(blocked: list[Status]) -> str:
    """The reasons of sources that are blocked, each once: `claude-code, codex: the disk is full`."""
    names: dict[str, list[str]] = {}
    for one in blocked:
        names.setdefault(one.blocked, []).append(one.name)
    return "; ".join(f"{', '.join(some)}: {reason}" for reason, some in names.items())
