"""Deletes content for a prune, a forget or a content mode; the hourly prune; long write-ahead logs.

First the ledger records what must outlive it: the times of a session and the number of its messages.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import anyio
import anyio.to_thread
import msgspec
import structlog
import zstandard

from burnd import memory, tasks
from burnd.errors import IndexDamaged, Locked, NotNow
from burnd.index import build
from burnd.index.change import CursorChange
from burnd.index.keys import read_only
from burnd.index.store import IndexStore, keyed
from burnd.ledger.blobs import IN_PACK, PACK_OF_BLOB, repacked
from burnd.ledger.content import in_pieces
from burnd.ledger.content_modes import ContentModes
from burnd.ledger.sidecars import Sidecar, Sidecars
from burnd.ledger.sqlite_files import log_bytes
from burnd.paths import Home
from burnd.recording.candidate import Batch
from burnd.recording.stores import Stores
from burnd.records import Content, Prune, Session
from burnd.records.codec import Entry
from burnd.records.times import DAY_MS, to_iso, to_ms, wall_ms

if TYPE_CHECKING:
    from burnd.recording.pipeline import Pipeline

log = structlog.get_logger()
PRUNE_EVERY_S: Final = 3600
CLEAN_EVERY_S = 5.0
LONG_LOG = 2 << 20  # bytes; a new index alone leaves 1 MB
CALM_CHECKS: Final = 4  # without a write in between: memory that is needed again soon is kept
BUSY_CHECKS: Final = 12  # with a write before each: garbage is collected all the same, in 10 to 20 ms
_CLOCK_AHEAD = "the clock ran ahead of real time, so nothing is deleted by its word"
_CLOCK_BEHIND = "the clock is years behind, so old content is not pruned"
# NTP causes a little drift; more means that the clock was set.
_JUMP_MS = DAY_MS // 2
# Boot times cannot be compared across a reboot. A machine may be off for weeks; a year means that the clock was behind.
_JUMP_ACROSS_BOOTS_MS = 365 * DAY_MS
_PROBATION_MS = DAY_MS
# Earlier clocks or records are wrong: burnd is newer than 2026-01-01, the logs are newer than 2020.
EARLIEST_CLOCK_MS = to_ms("2026-01-01")
_EARLIEST_RECORD_MS = to_ms("2020-01-01")
_NEWEST_SESSION = "SELECT max(updated_at) FROM sessions WHERE updated_at < ?"
_NEWEST_RECORD = """
SELECT count(*), max(CASE WHEN m.ts BETWEEN ? AND ? THEN m.ts END)
FROM messages m JOIN sessions s ON s.id = m.session WHERE s.session_id = ?
"""
_SESSION_FACTS = """
SELECT n.name, s.created_at, s.updated_at, max(s.said_count, s.pruned_count + s.kept_count),
       (SELECT max(ts) FROM messages WHERE session = s.id)
FROM sessions s LEFT JOIN names n ON n.id = s.source WHERE s.session_id = ?
"""
_STILL_REFERENCED = "SELECT blob FROM ref WHERE holder NOT IN going AND blob IN gone"
_PACKS = f"SELECT DISTINCT {PACK_OF_BLOB} FROM blob WHERE id IN gone"
# Blobs without any reference, as a crash may leave them, stay.
_REST_OF_PACK = f"SELECT start, length FROM blob WHERE {IN_PACK} AND id NOT IN gone"


class Pruned(NamedTuple):
    files: int
    bytes: int


class ClockReading(msgspec.Struct, frozen=True):
    """Two clocks read together. `boot_ms` includes sleep, and cannot be set."""

    wall_ms: int
    boot_ms: int
    boot_id: str = ""


class ClockTrust(msgspec.Struct, frozen=True):
    """Tracks whether the wall clock can be trusted: the last sound reading, and one on probation.

    With a clock that is ahead everything looks old. A jump counts as a correction after a day of even running. The
    first reading is compared with the newest record, to notice a clock that was always wrong.
    """

    sound: ClockReading
    suspect: ClockReading | None = None
    compared: bool = False

    def next(self, now: ClockReading, newest_ms: int | None = None) -> ClockTrust:
        """The state after one more reading. While `suspect` is set, nothing is deleted by age. `newest_ms` is the time
        of the newest record.
        """
        trust = self._after(now)
        if trust.compared or trust.suspect is not None or newest_ms is None:
            return trust
        return ClockTrust(ClockReading(newest_ms, 0, "a record"), None, compared=True)._after(now)

    def _after(self, now: ClockReading) -> ClockTrust:
        if not _jumped(self.sound, now):
            return ClockTrust(now, None, self.compared)
        since = self.suspect
        if since is None or _jumped(since, now) or _jumped(now, since):
            return ClockTrust(self.sound, now, self.compared)
        is_same_boot = since.boot_id == now.boot_id
        even_ms = now.boot_ms - since.boot_ms if is_same_boot else now.wall_ms - since.wall_ms
        return ClockTrust(now, None, compared=True) if even_ms >= _PROBATION_MS else self


def candidates(sidecars: Iterable[Sidecar], older_than_ms: int, now_ms: int) -> list[Sidecar]:
    """The sidecars that look old by file time, which a wrong clock may have set: `date_of` decides."""
    return [sidecar for sidecar in sidecars if min(sidecar.mtime_ms, now_ms - 1) < now_ms - older_than_ms]


def date_of(sidecar: Sidecar, newest_ms: int | None, now_ms: int) -> int:
    """The time of a sidecar's newest plausible record, if that has passed; else of the file's last change."""
    return min(newest_ms if newest_ms is not None else sidecar.changed_ms, now_ms - 1)


def plausible_times(now_ms: int) -> tuple[int, int]:
    """The range in which a record's own time is trusted."""
    return _EARLIEST_RECORD_MS, now_ms + DAY_MS


def _jumped(before: ClockReading, now: ClockReading) -> bool:
    """Whether the wall clock ran ahead of real time; only roughly across a reboot."""
    if before.boot_id != now.boot_id:
        return now.wall_ms - before.wall_ms > _JUMP_ACROSS_BOOTS_MS
    real = now.boot_ms - before.boot_ms
    return (now.wall_ms - before.wall_ms) - real > _JUMP_MS


async def outdated(index: IndexStore, sidecars: Sidecars, older_than_ms: int, now_ms: int) -> dict[str, Sidecar]:
    """The sidecars, by session, whose newest record is older by its own time.

    Without a record in the index, as after damage, the file's time counts.
    """

    def listed() -> dict[str, Sidecar]:
        sessions = ((sidecars.session_of(s.path), s) for s in candidates(sidecars.scan(), older_than_ms, now_ms))
        return {session_id: sidecar for session_id, sidecar in sessions if session_id is not None}

    due: dict[str, Sidecar] = {}
    for session_id, sidecar in (await anyio.to_thread.run_sync(listed)).items():
        ((records, newest_ms),) = await index.rows(_NEWEST_RECORD, (*plausible_times(now_ms), session_id))
        if not records or date_of(sidecar, newest_ms, now_ms) < now_ms - older_than_ms:
            due[session_id] = sidecar
    return due


async def drop_content(
    stores: Stores,
    modes: ContentModes,
    session_ids: Sequence[str],
    up_to_ms: int,
    record: Callable[[Sequence[Entry]], Awaitable[None]],
) -> Pruned:
    """Deletes all content of these sessions, after `record` made durable what must outlive it.

    The next start finishes what a crash interrupts.
    """
    entries = await _last_records(stores.index, stores.content.sidecars, session_ids, up_to_ms)
    stores.is_behind = True
    await record(entries)
    for entry in entries:
        modes.learn(entry)
    present = [s for s in session_ids if stores.content.sidecars.size(s)]
    freed = 0
    for some in in_pieces(session_ids):
        freed += await stores.in_thread(stores.content.drop, some)
        stores.status.heartbeat += 1
    for some in in_pieces(await stores.in_thread(stores.content.orphaned)):
        freed += await stores.in_thread(stores.content.drop, some)
        stores.status.heartbeat += 1
    await scrub(stores)
    stores.is_behind = False
    return Pruned(len(present), freed)


async def _last_records(
    index: IndexStore, sidecars: Sidecars, session_ids: Sequence[str], up_to_ms: int
) -> list[Entry]:
    """The records that must outlive the content: a session's times, and the number of its messages."""
    entries: list[Entry] = []
    for session_id in session_ids:
        rows = await index.rows(_SESSION_FACTS, (session_id,))
        source, created, updated, count, newest = rows[0] if rows else (None, None, None, 0, None)
        up_to = to_iso(max(up_to_ms, newest or 0, sidecars.mtime_ms(session_id)))
        if created is not None and updated is not None:
            created_at, updated_at = to_iso(created), to_iso(updated)
            entries.append(
                Session(session_id=session_id, source=source or "", created_at=created_at, updated_at=updated_at)
            )
        entries.append(Prune(session_id=session_id, up_to=up_to, messages=count))
    return entries


async def pruned_by_mode(index: IndexStore, session_id: str) -> Prune:
    """The record that a session's text was stored until now and is erased by its content mode."""
    rows = await index.rows(_SESSION_FACTS, (session_id,))
    *_, count, newest = rows[0] if rows else (0, None)
    return Prune(session_id=session_id, up_to=to_iso(newest or 0), messages=count)


async def erase_records(
    stores: Stores,
    session_id: str,
    keeps: Callable[[Content], bool],
    record: Callable[[str, bool], Awaitable[None]],
) -> int:
    """Erases the records of a sidecar for which `keeps` is false; returns their number.

    First `record` writes to the ledger what only the sidecar has, and whether all text goes.
    """
    if not stores.content.sidecars.has(session_id):
        return 0

    def is_all() -> bool:
        return not any(keeps(content) for content, _, _ in stores.content.stored(session_id))

    await record(session_id, await stores.in_thread(is_all))
    stores.is_behind = True
    erased = await stores.in_thread(stores.content.erase, session_id, keeps)
    if erased:
        await build.forget_messages(stores.index, session_id)
        stores.drop_caches()
        await build.apply_sidecar(stores.index, stores.content, session_id)
    stores.is_behind = False
    return erased


async def scrub(stores: Stores) -> None:
    """Overwrites deleted rows in the index and its write-ahead log, and removes the index it replaced."""
    with contextlib.suppress(Locked):  # a long query still needs the log; closing the index empties it too
        await stores.index.scrub()
    with contextlib.suppress(FileNotFoundError):
        os.unlink(build.aside(stores.home.index_db))


def would_free(home: Home, session_ids: Iterable[str]) -> Pruned:
    """Counts the sidecars that a prune would delete, and the bytes with their blobs. Blocking."""
    sessions = list(session_ids)
    sidecars = Sidecars(home.content)
    sizes = [size for session_id in sessions if (size := sidecars.size(session_id))]
    return Pruned(len(sizes), sum(sizes) + _blob_bytes(home, sessions))


def _blob_bytes(home: Home, session_ids: Sequence[str]) -> int:
    if not home.blobs.exists():
        return 0
    with contextlib.closing(sqlite3.connect(read_only(home.blobs), uri=True)) as db:
        db.execute("PRAGMA temp_store=MEMORY")
        db.execute("CREATE TEMP TABLE going(holder INTEGER PRIMARY KEY)")
        going = [(session_id,) for session_id in session_ids]
        keyed(db, "INSERT INTO going SELECT id FROM holder WHERE session_id IN ({keys})", going)
        # One pass over all references instead of one per blob.
        db.execute("CREATE TEMP TABLE gone(blob INTEGER PRIMARY KEY)")
        db.execute("INSERT OR IGNORE INTO gone SELECT blob FROM ref WHERE holder IN going")
        db.execute(f"DELETE FROM gone WHERE blob IN ({_STILL_REFERENCED})")
        return sum(_freed_of(db, pack) for (pack,) in db.execute(_PACKS).fetchall())


def _freed_of(db: sqlite3.Connection, pack: int) -> int:
    """The bytes saved when a pack is rewritten without the deleted blobs."""
    (data,) = db.execute("SELECT data FROM pack WHERE id = ?", (pack,)).fetchone() or (b"",)
    rest = db.execute(_REST_OF_PACK, (pack,)).fetchall()
    try:
        return len(data) - (len(repacked(zstandard.decompress(data), rest)) if rest else 0)
    except zstandard.ZstdError:
        return 0  # damaged: it stays as it is


class Retention:
    """Prunes old content at the start and every hour. Adds to `notices` while the clock is not trusted."""

    def __init__(self, pipeline: Pipeline, keep_ms: Callable[[], int | None], notices: dict[str, str]) -> None:
        self._pipeline = pipeline
        self._keep_ms = keep_ms  # None for ever
        self._notices = notices

    async def run(self) -> None:
        while True:
            try:
                if (keep_ms := self._keep_ms()) is not None:
                    await self._prune(keep_ms)
            except NotNow as error:
                log.warning("retention.waiting", reason=str(error))
            await anyio.sleep(PRUNE_EVERY_S)

    async def _prune(self, keep_ms: int) -> None:
        now = read_clocks()
        trust = await self._update_trust(now)
        for notice in (_CLOCK_AHEAD, _CLOCK_BEHIND):
            self._notices.pop(notice, None)
        if now.wall_ms < EARLIEST_CLOCK_MS:
            log.error("retention.refused", reason="the clock is years behind")
            self._notices[_CLOCK_BEHIND] = "set the clock"
            return
        if trust.suspect is not None:
            log.error("retention.refused", reason="the clock ran ahead of real time")
            self._notices[_CLOCK_AHEAD] = "mend the clock; one that runs evenly for a day is believed again"
            return
        pruned = await self._pipeline.prune_content(keep_ms)
        if pruned.files:
            log.info("retention.pruned", files=pruned.files, bytes=pruned.bytes)

    async def _update_trust(self, now: ClockReading) -> ClockTrust:
        trust = ClockTrust(now)
        saved = await self._pipeline.index.cursor("retention", "clock")
        with contextlib.suppress(msgspec.MsgspecError, ValueError):  # damaged
            trust = msgspec.json.decode(saved, type=ClockTrust) if saved else trust
        ((newest_ms,),) = await self._pipeline.index.rows(_NEWEST_SESSION, (now.wall_ms + DAY_MS,))
        trust = trust.next(now, newest_ms)
        await self._pipeline.commit(Batch(cursors=[CursorChange("retention", "clock", msgspec.json.encode(trust))]))
        return trust


def read_clocks() -> ClockReading:
    boot = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
    boot_id = ""
    with contextlib.suppress(OSError):
        boot_id = Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
    return ClockReading(wall_ms(), time.clock_gettime_ns(boot) // 1_000_000, boot_id)


class Cleanup:
    """Empties long write-ahead logs when nothing is being written, and returns memory after work."""

    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline

    async def run(self) -> None:
        beats, calm, busy = -1, 0, 0
        while True:
            await tasks.sleep_until_tick(CLEAN_EVERY_S)
            before, beats = beats, self._pipeline.status.heartbeat
            calm, busy = (calm + 1, 0) if before == beats else (0, busy + 1)
            home = self._pipeline.home
            if calm and any(log_bytes(database) > LONG_LOG for database in (home.index_db, home.content / "blobs.db")):
                try:
                    await self._pipeline.empty_logs()
                except (NotNow, IndexDamaged) as error:
                    log.warning("tidying.waiting", reason=str(error))
            if calm == CALM_CHECKS:
                with contextlib.suppress(NotNow, IndexDamaged):  # then it stays a little larger
                    await self._pipeline.index.shrink()
                await anyio.to_thread.run_sync(memory.collect)
            if busy == BUSY_CHECKS:
                busy = 0
                await anyio.to_thread.run_sync(memory.collect)
