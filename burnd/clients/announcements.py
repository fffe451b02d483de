"""Sessions that clients announce or claim."""

from __future__ import annotations

import os
from collections.abc import Sequence

import anyio.to_thread
import msgspec

from burnd.index.apply import roots_of
from burnd.index.store import IndexStore
from burnd.recording.candidate import Batch
from burnd.recording.pipeline import Pipeline
from burnd.records import Prune, Selector, Session, Stamp
from burnd.records.base import camel
from burnd.records.codec import Entry
from burnd.records.names import is_bounded
from burnd.records.session import ContentMode
from burnd.records.times import DAY_MS, canonical, to_iso, to_ms

ANNOUNCED = "burnctl"  # `createdBy` of a session that a client announced
_LONGEST_WAIT_MS = 7 * DAY_MS
_AFTER_ITS_END_MS = DAY_MS


class Announcement(msgspec.Struct, frozen=True):
    """A session's content mode and log folders.

    A session that `is_new` has no text from before `at_ms`; another may.
    """

    session_id: str
    source: str
    at_ms: int
    content_mode: ContentMode | None = None
    roots: Sequence[str] = ()
    created_by: str = ANNOUNCED
    is_new: bool | None = None


async def announce(pipeline: Pipeline, announcement: Announcement) -> None:
    """Applies to what was captured already, too."""
    is_new = announcement.is_new
    if is_new is None:
        is_new = not await pipeline.index.rows(
            "SELECT 1 FROM sessions WHERE session_id = ?", (announcement.session_id,)
        )
    session = Session(
        session_id=announcement.session_id,
        source=announcement.source,
        created_by=announcement.created_by,
        content_mode=announcement.content_mode,
        content_since=to_iso(announcement.at_ms) if announcement.content_mode is not None and not is_new else None,
        roots=tuple(announcement.roots),
    )
    entries: list[Entry] = [session]
    if announcement.content_mode == "full" and pipeline.modes.mode_of(announcement.session_id) != "full":
        # its earlier text stays out, however often its log is read
        entries.append(Prune(session_id=announcement.session_id, up_to=to_iso(announcement.at_ms)))
    await pipeline.commit(Batch(entries=entries))


async def announced_roots(index: IndexStore, source: str) -> list[str]:
    return [key for (key,) in await index.rows("SELECT key FROM cursors WHERE source = ?", (roots_of(source),))]


class ClientRecord(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename=camel):
    """Unknown fields are errors, so a typo is not ignored."""


class SessionClaim(ClientRecord, frozen=True):
    """The first session in `project` that begins in [fromTs, toTs) gets these keys, and this content mode.

    For a harness that names its session only when it has begun.
    """

    v: int
    kind: str
    project: str
    from_ts: str
    enrichment: dict[str, str]
    to_ts: str | None = None
    source: str | None = None
    content_mode: ContentMode | None = None
    session_id: str | None = None  # if the client learned it
    roots: tuple[str, ...] = ()

    @property
    def from_ms(self) -> int:
        return to_ms(self.from_ts)

    @property
    def expires_ms(self) -> int:
        return self.from_ms + _LONGEST_WAIT_MS if self.to_ts is None else to_ms(self.to_ts) + _AFTER_ITS_END_MS

    def checked(self) -> SessionClaim:
        """Raises ValueError if the claim is invalid."""
        places = (self.project, *self.roots)
        if not all(os.path.isabs(place) and is_bounded(place) for place in places) or not all(self.enrichment):
            raise ValueError("a claim needs absolute folders and non-empty keys")
        if self.expires_ms < self.from_ms:
            raise ValueError("the claim ends before it begins")
        return self


async def claimed_by(index: IndexStore, name: str) -> str | None:
    """A crash may have left the file of a claim that already has its session."""
    rows = await index.rows("SELECT session_id FROM sessions WHERE created_by = ?", (_mark(name),))
    return str(rows[0][0]) if rows else None


async def matching_session(index: IndexStore, claim: SessionClaim) -> str | None:
    """The oldest session that matches and has no creator."""
    folders = {claim.project, await anyio.to_thread.run_sync(os.path.realpath, claim.project)}
    until = None if claim.to_ts is None else to_ms(claim.to_ts)
    for session_id, source, project, start in await index.rows(_BEGUN_SINCE, (claim.from_ms,)):
        matches = project in folders and claim.source in (None, source)
        if matches and (until is None or start < until):
            return str(session_id)
    return None


async def assign(pipeline: Pipeline, name: str, claim: SessionClaim, session_id: str) -> None:
    """Idempotent."""
    rows = await pipeline.index.rows(_SOURCE_OF, (session_id,))
    source, start = rows[0] if rows else (claim.source, None)
    at_ms = start or claim.from_ms
    announcement = Announcement(
        session_id, source or "", at_ms, claim.content_mode, claim.roots, created_by=_mark(name)
    )
    await announce(pipeline, announcement)
    if claim.enrichment:
        selector = Selector(session_id=session_id)
        stamp = Stamp(ts=canonical(claim.from_ts), selector=selector, enrichment=claim.enrichment)
        await pipeline.commit(Batch(entries=[stamp]))


def _mark(name: str) -> str:
    return f"claim {name}"


# Sessions by their first record; a child belongs to its parent's claim.
_BEGUN_SINCE = """
SELECT s.session_id, n.name, p.name, min(f.ts, coalesce(s.created_at, f.ts)) AS begun
FROM (SELECT session, source, project, min(ts) AS ts FROM turns
      WHERE session IN (SELECT session FROM turns WHERE ts >= ?1) GROUP BY session) f
JOIN sessions s ON s.id = f.session AND s.created_by IS NULL AND s.parent_session_id IS NULL
JOIN names n ON n.id = f.source LEFT JOIN names p ON p.id = f.project
WHERE begun >= ?1 ORDER BY begun, s.session_id
"""
_SOURCE_OF = """
SELECT n.name, s.created_at FROM sessions s LEFT JOIN names n ON n.id = s.source WHERE s.session_id = ?
"""
