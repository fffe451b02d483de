"""Claims: a client says beforehand that the next session in a folder is its own, and what holds for it.

For a harness that names its session only when it has begun. A claim takes one session, never one that is older than
itself or that somebody else already has; what it took stands in the ledger, in the session's `createdBy`.
"""

from __future__ import annotations

import os

import anyio.to_thread
import msgspec

from burnd.clients.announcing import Announcement, announce
from burnd.index.store import IndexStore
from burnd.recording.candidate import Batch
from burnd.recording.pipeline import Pipeline
from burnd.records import Selector, Stamp
from burnd.records.base import camel
from burnd.records.names import is_bounded
from burnd.records.session import ContentMode
from burnd.records.times import DAY_MS, canonical, to_ms

_LONGEST_WAIT_MS = 7 * DAY_MS
_AFTER_ITS_END_MS = DAY_MS


class ClientRecord(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename=camel):
    """The base of what clients leave in the spool; an unknown field is an error, so that a typo is not ignored."""


class Claim(ClientRecord, frozen=True):
    """The first session in `project` that begins in [fromTs, toTs) gets these keys, and this content mode."""

    v: int
    kind: str
    project: str
    from_ts: str
    enrichment: dict[str, str]
    to_ts: str | None = None
    source: str | None = None
    content_mode: ContentMode | None = None
    session_id: str | None = None  # if the client found it out by itself
    roots: tuple[str, ...] = ()

    @property
    def from_ms(self) -> int:
        return to_ms(self.from_ts)

    @property
    def expires_ms(self) -> int:
        return self.from_ms + _LONGEST_WAIT_MS if self.to_ts is None else to_ms(self.to_ts) + _AFTER_ITS_END_MS

    def checked(self) -> Claim:
        """Itself, if it can be used. Raises ValueError."""
        places = (self.project, *self.roots)
        if not all(os.path.isabs(place) and is_bounded(place) for place in places) or not all(self.enrichment):
            raise ValueError("a claim names a folder, and its keys are not empty")
        if self.expires_ms < self.from_ms:
            raise ValueError("a claim begins before it ends")
        return self


async def claimed_by(index: IndexStore, name: str) -> str | None:
    """The session that a claim has taken already: a crash may have come before its file was gone."""
    found = await index.rows("SELECT session_id FROM sessions WHERE created_by = ?", (_mark(name),))
    return str(found[0][0]) if found else None


async def matching(index: IndexStore, claim: Claim) -> str | None:
    """The oldest session that fits and that nobody has."""
    folders = {claim.project, await anyio.to_thread.run_sync(os.path.realpath, claim.project)}
    until = None if claim.to_ts is None else to_ms(claim.to_ts)
    for session_id, source, project, begun in await index.rows(_BEGUN_SINCE, (claim.from_ms,)):
        fits = project in folders and claim.source in (None, source)
        if fits and (until is None or begun < until):
            return str(session_id)
    return None


async def settle(pipeline: Pipeline, name: str, claim: Claim, session_id: str) -> None:
    """Gives the session to the claim. Done again after a crash, it changes nothing."""
    known = await pipeline.index.rows(_SOURCE_OF, (session_id,))
    source, begun = known[0] if known else (claim.source, None)
    at_ms = begun or claim.from_ms
    mark = Announcement(session_id, source or "", at_ms, claim.content_mode, claim.roots, created_by=_mark(name))
    await announce(pipeline, mark)
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
