"""Opens what the one writer writes to, mended and in step."""

from __future__ import annotations

from collections.abc import Callable

import structlog

from burnd.errors import IndexDamaged
from burnd.index import build
from burnd.index.store import IndexStore
from burnd.ledger.content import ContentStore
from burnd.ledger.files import taken_for_granted
from burnd.ledger.journal import Journal
from burnd.ledger.keeping import Keeping
from burnd.paths import Home
from burnd.recording.pipeline import Pipeline
from burnd.recording.room import Room
from burnd.recording.stores import Stores
from burnd.records import Origin, Prune, Session
from burnd.records.times import Clock, to_iso, wall_ms

log = structlog.get_logger()


async def open_pipeline(
    home: Home,
    keeping: Keeping,
    *,
    inline_bytes: int,
    reserve: int | None = None,
    now: Clock = wall_ms,
    report: build.Progress = build.no_progress,
    check_home: Callable[[], None] = taken_for_granted,
) -> Pipeline:
    """Opens ledger, content and index. The caller holds the home's lock, which `check_home` asks."""
    content = ContentStore(home.content, inline_bytes=inline_bytes)
    journal = Journal(home.ledger, now())
    if journal.torn:
        log.warning("ledger.recovered", torn_bytes=journal.torn)
    try:
        index = await build.open_current(home.index_db, journal, content, report)
    except BaseException:
        content.close()
        journal.close()
        raise
    pipeline = Pipeline(Stores(home, journal, content, index, now, check_home), keeping, Room(home.root, reserve))
    try:
        try:
            await _teach(keeping, index)
        except IndexDamaged:
            await pipeline.mend_index()
            await _teach(keeping, index)
        await pipeline.finish_erasures()
        await pipeline.load_deferred()
    except BaseException:
        await pipeline.close()
        raise
    return pipeline


async def _teach(keeping: Keeping, index: IndexStore) -> None:
    """Loads the content policy of each session from the index."""
    rows = await index.rows(
        "SELECT session_id, content_mode, content_since, created_by, parent_session_id, pruned_up_to FROM sessions "
        "WHERE content_mode IS NOT NULL OR parent_session_id IS NOT NULL OR pruned_up_to IS NOT NULL"
    )
    for session_id, mode, since, created_by, parent, pruned in rows:
        record = Session(
            session_id=session_id,
            source="",
            content_mode=mode,
            content_since=to_iso(since) if since is not None else None,
            created_by=created_by,
            parent_session_id=parent,
        )
        keeping.learn(record)
        if pruned is not None:
            keeping.learn(Prune(session_id=session_id, up_to=to_iso(pruned)))
    for session_id, origin, repeats in await index.rows(
        "SELECT s.session_id, o.origin, o.repeats FROM origins o JOIN sessions s ON s.id = o.session"
    ):
        if repeats:
            keeping.learn(Origin(session_id=session_id, origin=origin))
        keeping.came_from(session_id, origin)
    keeping.has_withheld = bool(await index.rows("SELECT 1 FROM withheld LIMIT 1"))
    by_mode = "SELECT DISTINCT s.session_id FROM withheld h JOIN sessions s ON s.id = h.session WHERE h.by_mode"
    keeping.withholders = {session_id for (session_id,) in await index.rows(by_mode)}
