"""What goes when content goes: whose it is, how much there is of it, and what must be said of it first."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterable, Sequence

import anyio.to_thread
import zstandard

from burnd.index.reading import read_only
from burnd.index.store import IndexStore, keyed
from burnd.ledger.blobs import IN_PACK, PACK_OF_BLOB, repacked
from burnd.ledger.retention import Pruned, candidates, date_of, plausible_times
from burnd.ledger.sidecars import Sidecar, Sidecars
from burnd.paths import Home
from burnd.records import Prune, Session
from burnd.records.codec import Entry
from burnd.records.times import to_iso


async def outdated(index: IndexStore, sidecars: Sidecars, older_than_ms: int, now_ms: int) -> dict[str, Sidecar]:
    """The sidecars whose newest record is older than that by its own time, by session.

    If the index has no record of a sidecar, as after damage, the file's time counts.
    """

    def listed() -> dict[str, Sidecar]:
        found = ((sidecars.session_of(s.path), s) for s in candidates(sidecars.list(), older_than_ms, now_ms))
        return {session_id: sidecar for session_id, sidecar in found if session_id is not None}

    due: dict[str, Sidecar] = {}
    for session_id, sidecar in (await anyio.to_thread.run_sync(listed)).items():
        ((records, newest_ms),) = await index.rows(_NEWEST_RECORD, (*plausible_times(now_ms), session_id))
        if not records or date_of(sidecar, newest_ms, now_ms) < now_ms - older_than_ms:
            due[session_id] = sidecar
    return due


_NEWEST_RECORD = """
SELECT count(*), max(CASE WHEN m.ts BETWEEN ? AND ? THEN m.ts END)
FROM messages m JOIN sessions s ON s.id = m.session WHERE s.session_id = ?
"""


async def farewells(index: IndexStore, sidecars: Sidecars, session_ids: Sequence[str], up_to_ms: int) -> list[Entry]:
    """What must outlive the content: when the session was, and how many messages it had."""
    entries: list[Entry] = []
    for session_id in session_ids:
        found = await index.rows(_SESSION_FACTS, (session_id,))
        source, created, updated, count, newest = found[0] if found else (None, None, None, 0, None)
        up_to = to_iso(max(up_to_ms, newest or 0, sidecars.mtime_ms(session_id)))
        if created is not None and updated is not None:
            begun, ended = to_iso(created), to_iso(updated)
            entries.append(Session(session_id=session_id, source=source or "", created_at=begun, updated_at=ended))
        entries.append(Prune(session_id=session_id, up_to=up_to, messages=count))
    return entries


async def pruned_by_mode(index: IndexStore, session_id: str) -> Prune:
    """The record that a session's text was stored until now and is erased, because its content mode forbids it."""
    found = await index.rows(_SESSION_FACTS, (session_id,))
    *_, count, newest = found[0] if found else (0, None)
    return Prune(session_id=session_id, up_to=to_iso(newest or 0), messages=count)


_SESSION_FACTS = """
SELECT n.name, s.created_at, s.updated_at, max(s.said_count, s.pruned_count + s.kept_count),
       (SELECT max(ts) FROM messages WHERE session = s.id)
FROM sessions s LEFT JOIN names n ON n.id = s.source WHERE s.session_id = ?
"""


def would_free(home: Home, session_ids: Iterable[str]) -> Pruned:
    """How many sidecars would go, and how many bytes with the large content that nobody else needs. Blocking."""
    wanted = list(session_ids)
    sidecars = Sidecars(home.content)
    sizes = [size for session_id in wanted if (size := sidecars.size(session_id))]
    return Pruned(len(sizes), sum(sizes) + _blob_bytes(home, wanted))


def _blob_bytes(home: Home, session_ids: Sequence[str]) -> int:
    if not home.blobs.exists():
        return 0
    with contextlib.closing(sqlite3.connect(read_only(home.blobs), uri=True)) as db:
        db.execute("PRAGMA temp_store=MEMORY")
        db.execute("CREATE TEMP TABLE going(holder INTEGER PRIMARY KEY)")
        going = [(session_id,) for session_id in session_ids]
        keyed(db, "INSERT INTO going SELECT id FROM holder WHERE session_id IN ({keys})", going)
        # One pass over all references, as when it is done: to look for each blob's by itself would be one pass a blob.
        db.execute("CREATE TEMP TABLE gone(blob INTEGER PRIMARY KEY)")
        db.execute("INSERT OR IGNORE INTO gone SELECT blob FROM ref WHERE holder IN going")
        db.execute(f"DELETE FROM gone WHERE blob IN ({_NEEDED})")
        return sum(_freed_of(db, pack) for (pack,) in db.execute(_PACKS).fetchall())


def _freed_of(db: sqlite3.Connection, pack: int) -> int:
    """How much smaller a pack becomes without the blobs that go: it is written anew for whoever needs the others."""
    (data,) = db.execute("SELECT data FROM pack WHERE id = ?", (pack,)).fetchone() or (b"",)
    kept = db.execute(_KEPT, (pack,)).fetchall()
    try:
        return len(data) - (len(repacked(zstandard.decompress(data), kept)) if kept else 0)
    except zstandard.ZstdError:
        return 0  # damaged: it stays as it is


_NEEDED = "SELECT blob FROM ref WHERE holder NOT IN going AND blob IN gone"
_PACKS = f"SELECT DISTINCT {PACK_OF_BLOB} FROM blob WHERE id IN gone"
# Of a blob that nobody refers to, as a crash may leave it, this is not the time.
_KEPT = f"SELECT start, length FROM blob WHERE {IN_PACK} AND id NOT IN gone"
