"""Brings the index up to ledger and content, and rebuilds it, keeping the open turns of the old one."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread

from burnd.errors import IndexDamaged, Locked
from burnd.index.apply import Applier
from burnd.index.change import Change, CursorChange, FileChange, OpenTurn
from burnd.index.keys import is_there, read_only
from burnd.index.store import IndexStore, open_index
from burnd.ledger import files
from burnd.ledger.content import ContentStore, Placed, in_pieces
from burnd.ledger.journal import Journal, Logged
from burnd.pricing import PriceTable
from burnd.records import Turn
from burnd.records.codec import Entry, Skipped, decode, digest

BATCH = 2000
Progress = Callable[[int, int], None]


def no_progress(_done: int, _total: int) -> None:
    """No-op progress report."""


async def open_current(
    path: Path, journal: Journal, content: ContentStore, report: Progress = no_progress
) -> IndexStore:
    """Opens the index and brings it up to date; rebuilds it if it is damaged or missing."""
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
    """Applies all lines after the indexed position. Raises IndexDamaged if the index is of another ledger."""
    meta = await store.meta()
    start = int(meta.get("ledger_end", "0"))
    if not journal.has_anchor(start, meta.get("ledger_anchor")):
        raise IndexDamaged("was made from another ledger", str(store.path))
    total = journal.end + (await anyio.to_thread.run_sync(_size, content) if start < journal.end else 0)
    await _apply_ledger(Applier(store), journal, start, lambda done, _: report(done, total))
    await _finish_prunes(store, content, lambda: report(min(journal.end, total), total))
    await _apply_content(store, content, lambda done: report(min(journal.end + done, total), total))


async def rebuild(path: Path, journal: Journal, content: ContentStore, report: Progress = no_progress) -> IndexStore:
    """Rebuilds an index that is not open and replaces the file at its path."""
    carried = await anyio.to_thread.run_sync(salvage, path, journal)
    try:
        await build_beside(path, journal, content, report, carried=carried)
    except IndexDamaged:  # by the carried state
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
    """Builds a new index next to the current one, with the `carried` state; removes it if interrupted."""
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
    """Replaces the index by the new one. The old one must be closed: its write-ahead log is deleted."""
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
    return [(line, (0 if isinstance(line.entry, Skipped) else digest(line.entry))) for line in islice(lines, BATCH)]


async def _finish_prunes(store: IndexStore, content: ContentStore, beat: Callable[[], None]) -> None:
    """Completes prunes that were interrupted before all content was deleted."""
    pruned = await store.rows("SELECT session_id, pruned_up_to FROM sessions WHERE pruned_up_to IS NOT NULL")
    if not pruned:
        return
    interrupted: list[str] = []
    for some in in_pieces(pruned):
        interrupted += await anyio.to_thread.run_sync(_interrupted, content, some)
        beat()
    for going in (interrupted, await anyio.to_thread.run_sync(content.orphaned)):
        for sessions in in_pieces(going):
            await anyio.to_thread.run_sync(content.drop, sessions)
            beat()
    with contextlib.suppress(Locked):
        await store.scrub()


def _interrupted(content: ContentStore, pruned: Iterable[tuple[str, int]]) -> list[str]:
    """The sessions that were pruned completely and still have a sidecar."""
    there = ((session_id, up_to) for session_id, up_to in pruned if content.sidecars.has(session_id))
    return [session_id for session_id, up_to in there if _is_all_old(content, session_id, up_to)]


def _is_all_old(content: ContentStore, session_id: str, up_to: int) -> bool:
    """Whether every line of a sidecar can be read and is not newer than the prune."""
    covered = 0
    for item in content.placed(session_id):
        if item.label.ts_ms > up_to:
            return False
        covered += item.length
    return covered == content.sidecars.size(session_id)


async def _apply_content(store: IndexStore, content: ContentStore, report: Callable[[int], None]) -> None:
    """Adds rows for content that is not indexed yet."""
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
            done += sum(item.length for item in batch)
            report(done)
        await _mend_mtime(store, content, session_id)


async def apply_sidecar(store: IndexStore, content: ContentStore, session_id: str) -> None:
    """Adds rows for a whole sidecar. Call `forget_messages` first if it had rows."""
    applier, records = Applier(store), content.placed(session_id)
    while batch := await anyio.to_thread.run_sync(_take_placed, records):
        await applier.apply(Change(placed=batch))


async def _mend_mtime(store: IndexStore, content: ContentStore, session_id: str) -> None:
    """Sets a sidecar's time to its newest record, in case of a crash before that."""
    newest = "SELECT max(m.ts) FROM messages m JOIN sessions s ON s.id = m.session WHERE s.session_id = ?"
    ((newest_ms,),) = await store.rows(newest, (session_id,))
    if newest_ms is not None and newest_ms < content.sidecars.mtime_ms(session_id):
        content.sidecars.set_mtime(session_id, newest_ms)


def _size(content: ContentStore) -> int:
    return sum(sidecar.size for sidecar in content.sidecars.scan())


def _uncovered(content: ContentStore, covered: dict[str, int]) -> list[tuple[str, int]]:
    """Sidecars whose size differs from the indexed one: the session, and the position to read from."""
    behind = []
    for sidecar in content.sidecars.scan():
        session_id = content.sidecars.session_of(sidecar.path)
        if session_id is None:
            continue
        end = covered.get(session_id, 0)
        if sidecar.size != end:
            behind.append((session_id, end if sidecar.size > end else 0))
    return behind + [(session_id, 0) for session_id in covered if not content.sidecars.has(session_id)]


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
    """Deletes an interrupted rebuild, and the index that an earlier process replaced."""
    _remove_database(_beside(path))
    _remove_database(aside(path))


def _make_way(path: Path) -> None:
    """Moves a link or folder at the index's path away."""
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        if not stat.S_ISREG(os.lstat(path).st_mode):
            os.replace(path, path.with_name(path.name + ".foreign"))


def aside(path: Path) -> Path:
    """The path of the replaced index, kept for inspection."""
    return path.with_name(path.name + ".aside")


def _beside(path: Path) -> Path:
    return path.with_name(path.name + ".new")


def _remove_database(path: Path) -> None:
    for suffix in ("", "-wal", "-shm"):
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            os.unlink(f"{path}{suffix}")


_OPEN_TURNS = "SELECT o.record, f.source, f.path FROM open_turns o JOIN files f ON f.id = o.file"
_OPEN_FILES = """
SELECT source, path, cursor, state, seen, root, open FROM files WHERE id IN (SELECT file FROM open_turns)
"""


async def carried_over(index: IndexStore, journal: Journal) -> Change:
    """State that only the index has: cursors, and open turns with their files. Salvages a damaged index."""
    try:
        cursors = [CursorChange(*row) for row in await index.rows("SELECT source, key, value FROM cursors")]
        turn_rows, file_rows = await index.rows(_OPEN_TURNS), await index.rows(_OPEN_FILES)
        meta = await index.meta()
    except IndexDamaged:
        return await anyio.to_thread.run_sync(salvage, index.path, journal)
    turns = await anyio.to_thread.run_sync(_not_outdated, _turns(turn_rows), journal, meta)
    return Change(cursors=cursors, files=_files(file_rows), open=turns)


def salvage(path: Path, journal: Journal) -> Change:
    """The open turns of deleted logs from a damaged index; all other logs are read again."""
    try:
        with contextlib.closing(sqlite3.connect(read_only(path), uri=True)) as db:
            turn_rows, file_rows = db.execute(_OPEN_TURNS).fetchall(), db.execute(_OPEN_FILES).fetchall()
            meta = _meta(db)
    except (sqlite3.Error, UnicodeDecodeError):  # SQLite's message may quote damaged text
        return Change()
    gone = {place[1] for place in file_rows if isinstance(place[1], str) and not is_there(place[1])}
    turns = _turns(row for row in turn_rows if row[2] in gone)
    return Change(
        files=_files(place for place in file_rows if place[1] in gone), open=_not_outdated(turns, journal, meta)
    )


def changed_open(turns: Sequence[OpenTurn], change: Callable[[Entry], Entry]) -> list[OpenTurn]:
    """Open turns, with the change that the ledger's turns got."""
    pairs = ((item, change(item.turn)) for item in turns)
    return [item._replace(turn=turn) for item, turn in pairs if isinstance(turn, Turn)]


def _not_outdated(turns: list[OpenTurn], journal: Journal, meta: Mapping[str, str]) -> list[OpenTurn]:
    """Leaves out turns that the ledger has after the indexed position: they are outdated.

    If the index is of another ledger, all its turns count.
    """
    if not turns:
        return []
    stated = meta.get("ledger_end", "")
    end = int(stated) if stated.isdecimal() else 0
    start = end if journal.has_anchor(end, meta.get("ledger_anchor")) else 0
    entries = (line.entry for line in journal.read(start, journal.end))
    newer = {(entry.source, entry.message_id) for entry in entries if isinstance(entry, Turn)}
    return [item for item in turns if (item.turn.source, item.turn.message_id) not in newer]


def _meta(db: sqlite3.Connection) -> dict[str, str]:
    """Facts about the index; none if that table is damaged too."""
    try:
        return {str(key): str(value) for key, value in db.execute("SELECT key, value FROM meta")}
    except sqlite3.Error:
        return {}


def _turns(rows: Iterable[Sequence[Any]]) -> list[OpenTurn]:
    decoded = ((decode(record), source, path) for record, source, path in rows if isinstance(record, bytes))
    return [OpenTurn(turn, source, path) for turn, source, path in decoded if isinstance(turn, Turn)]


def _files(rows: Iterable[Sequence[Any]]) -> list[FileChange]:
    return [
        FileChange(source, path, cursor, state, seen_ms=seen_ms, root=root, open=bool(is_open))
        for source, path, cursor, state, seen_ms, root, is_open in rows
    ]
