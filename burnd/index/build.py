"""Brings the index up to the ledger and the content: what is missing at its end, or everything anew."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import stat
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from pathlib import Path

import anyio
import anyio.to_thread

from burnd.errors import IndexDamaged, Locked
from burnd.index import carrying
from burnd.index.apply import Applier
from burnd.index.change import Change
from burnd.index.store import IndexStore, open_index
from burnd.ledger import files
from burnd.ledger.content import ContentStore, Placed, in_pieces
from burnd.ledger.journal import Journal, Logged
from burnd.pricing import PriceTable
from burnd.records.codec import Skipped, digest

BATCH = 2000
Progress = Callable[[int, int], None]


def no_progress(_done: int, _total: int) -> None:
    """For callers that do not want to know."""


async def open_current(
    path: Path, journal: Journal, content: ContentStore, report: Progress = no_progress
) -> IndexStore:
    """An index that says what the ledger and the content say, whatever state the file at `path` was in."""
    remove_leftovers(path)
    _make_way(path)
    try:
        store = await open_index(path)
    except IndexDamaged:
        return await rebuild(path, journal, content, report)
    try:
        await catch_up(store, journal, content, report)
    except IndexDamaged:
        await store.close(clean=False)
        return await rebuild(path, journal, content, report)
    except BaseException:
        await store.close(clean=False)
        raise
    return store


async def catch_up(store: IndexStore, journal: Journal, content: ContentStore, report: Progress = no_progress) -> None:
    """Applies what was written after the index last knew it. Raises IndexDamaged when they do not fit."""
    meta = await store.meta()
    start = int(meta.get("ledger_end", "0"))
    if not journal.has_anchor(start, meta.get("ledger_anchor")):
        raise IndexDamaged("was made from another ledger", str(store.path))
    total = journal.end + (await anyio.to_thread.run_sync(_size, content) if start < journal.end else 0)
    await _apply_ledger(Applier(store), journal, start, lambda done, _: report(done, total))
    await _finish_prunes(store, content, lambda: report(min(journal.end, total), total))
    await _apply_content(store, content, lambda done: report(min(journal.end + done, total), total))


async def rebuild(path: Path, journal: Journal, content: ContentStore, report: Progress = no_progress) -> IndexStore:
    """Makes the index anew where none is open, in the place of whatever is there."""
    carried = await anyio.to_thread.run_sync(carrying.salvaged, path, journal)
    try:
        await build_beside(path, journal, content, report, carried=carried)
    except IndexDamaged:  # by what was carried over
        await build_beside(path, journal, content, report)
    swap_in(path)
    return await open_index(path)


async def build_beside(
    path: Path,
    journal: Journal,
    content: ContentStore,
    report: Progress = no_progress,
    prices: PriceTable | None = None,
    carried: Change | None = None,
) -> None:
    """Builds a whole new index beside the one in use, with what is `carried` over; interrupted, it leaves nothing."""
    new = _beside(path)
    _remove_database(new)
    store = await open_index(new)
    store.prices = prices
    try:
        await catch_up(store, journal, content, report)
        if carried is not None:
            await Applier(store).apply(carried)
        await store.seal()
    except BaseException:
        await store.close(clean=False)
        _remove_database(new)
        raise
    await store.close(clean=False)


def swap_in(path: Path) -> None:
    """Puts the index that was built beside in its place. The old one must be closed: its log goes too."""
    with contextlib.suppress(FileNotFoundError):
        os.replace(path, aside(path))
    for suffix in ("-wal", "-shm"):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(f"{path}{suffix}")
    os.replace(_beside(path), path)
    files.sync_folder(path.parent)


async def _apply_ledger(applier: Applier, journal: Journal, start: int, report: Progress) -> None:
    lines = journal.read(start, journal.end)
    while batch := await anyio.to_thread.run_sync(_take, lines):
        end = batch[-1][0].position + batch[-1][0].length
        await applier.apply(Change(logged=batch, ledger_end=end, ledger_anchor=journal.anchor(end)))
        report(end, journal.end)


def _take(lines: Iterator[Logged]) -> list[tuple[Logged, int]]:
    return [(line, _digest(line)) for line in islice(lines, BATCH)]


def _digest(line: Logged) -> int:
    return 0 if isinstance(line.entry, Skipped) else digest(line.entry)


async def _finish_prunes(store: IndexStore, content: ContentStore, beat: Callable[[], None]) -> None:
    """Drops content whose prune is in the ledger but was cut short before everything was gone."""
    pruned = await store.rows("SELECT session_id, pruned_up_to FROM sessions WHERE pruned_up_to IS NOT NULL")
    if not pruned:
        return
    cut_short: list[str] = []
    for some in in_pieces(pruned):
        cut_short += await anyio.to_thread.run_sync(_cut_short, content, some)
        beat()
    for going in (cut_short, await anyio.to_thread.run_sync(content.orphaned)):
        for sessions in in_pieces(going):
            await anyio.to_thread.run_sync(content.drop, sessions)
            beat()
    with contextlib.suppress(Locked):
        await store.scrub()


def _cut_short(content: ContentStore, pruned: Iterable[tuple[str, int]]) -> list[str]:
    """The sessions that have a sidecar although all in it was pruned."""
    there = ((session_id, up_to) for session_id, up_to in pruned if content.sidecars.has(session_id))
    return [session_id for session_id, up_to in there if _is_all_old(content, session_id, up_to)]


def _is_all_old(content: ContentStore, session_id: str, up_to: int) -> bool:
    """Whether every line of a sidecar can be read and is of the time that was pruned."""
    covered = 0
    for placed in content.placed(session_id):
        if placed.label.ts_ms > up_to:
            return False
        covered += placed.length
    return covered == content.sidecars.size(session_id)


async def _apply_content(store: IndexStore, content: ContentStore, report: Callable[[int], None]) -> None:
    """Adds rows for content that no transaction covered yet."""
    covered = dict(await store.rows("SELECT session_id, content_bytes FROM sessions WHERE content_bytes > 0"))
    uncovered = await anyio.to_thread.run_sync(_uncovered, content, covered)
    applier = Applier(store)
    done = sum(covered.values())
    for session_id, start in uncovered:
        if start < covered.get(session_id, 0):
            await forget_messages(store, session_id)
        records = content.placed(session_id, start)
        while batch := await anyio.to_thread.run_sync(_take_placed, records):
            await applier.apply(Change(placed=batch))
            done += sum(placed.length for placed in batch)
            report(done)
        await _mend_mtime(store, content, session_id)


async def apply_sidecar(store: IndexStore, content: ContentStore, session_id: str) -> None:
    """Adds rows for a whole sidecar. Call `forget_messages` first if it had rows."""
    applier, records = Applier(store), content.placed(session_id)
    while batch := await anyio.to_thread.run_sync(_take_placed, records):
        await applier.apply(Change(placed=batch))


async def _mend_mtime(store: IndexStore, content: ContentStore, session_id: str) -> None:
    """A crash may have come between writing a sidecar and dating it by its newest record."""
    newest = "SELECT max(m.ts) FROM messages m JOIN sessions s ON s.id = m.session WHERE s.session_id = ?"
    ((newest_ms,),) = await store.rows(newest, (session_id,))
    if newest_ms is not None and newest_ms < content.sidecars.mtime_ms(session_id):
        content.sidecars.set_mtime(session_id, newest_ms)


def _size(content: ContentStore) -> int:
    return sum(sidecar.size for sidecar in content.sidecars.list())


def _uncovered(content: ContentStore, covered: dict[str, int]) -> list[tuple[str, int]]:
    """(session, from where) for every sidecar that does not end where the index says it does."""
    found = []
    for sidecar in content.sidecars.list():
        session_id = content.sidecars.session_of(sidecar.path)
        if session_id is None:
            continue
        known = covered.get(session_id, 0)
        if sidecar.size != known:
            found.append((session_id, known if sidecar.size > known else 0))
    return found + [(session_id, 0) for session_id in covered if not content.sidecars.has(session_id)]


def _take_placed(records: Iterable[Placed]) -> list[Placed]:
    return list(islice(records, BATCH))


async def forget_messages(store: IndexStore, session_id: str) -> None:
    """Deletes the rows and titles of a sidecar that lost records, before `apply_sidecar` adds them again."""

    def forget(db: sqlite3.Connection) -> None:
        own = "(SELECT id FROM sessions WHERE session_id = ?)"
        db.execute(f"DELETE FROM messages WHERE session = {own}", (session_id,))
        db.execute(
            "UPDATE sessions SET kept_count = 0, content_bytes = 0, erasures = erasures + 1, harness_title = NULL, "
            "title_rank = -1, harness_summary = NULL, summary_key = '' WHERE session_id = ?",
            (session_id,),
        )

    await store.transact(forget)


def remove_leftovers(path: Path) -> None:
    """Clears away a rebuild that was interrupted, and the replaced index, which outlives one start at most."""
    _remove_database(_beside(path))
    _remove_database(aside(path))


def _make_way(path: Path) -> None:
    """What stands where the index goes and is no file, as a link or a folder, is put aside for a new one."""
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        if not stat.S_ISREG(os.lstat(path).st_mode):
            os.replace(path, path.with_name(path.name + ".foreign"))


def aside(path: Path) -> Path:
    """Where the index that was replaced last is kept, for a look at what went wrong."""
    return path.with_name(path.name + ".aside")


def _beside(path: Path) -> Path:
    return path.with_name(path.name + ".new")


def _remove_database(path: Path) -> None:
    for suffix in ("", "-wal", "-shm"):
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            os.unlink(f"{path}{suffix}")
