"""What a client says of a session before, or while, it runs: what may be kept of it, and where its logs are."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from burnd.index.apply import roots_of
from burnd.index.store import IndexStore
from burnd.recording.candidate import Batch
from burnd.recording.pipeline import Pipeline
from burnd.records import Prune, Session
from burnd.records.codec import Entry
from burnd.records.session import ContentMode
from burnd.records.times import to_iso

ANNOUNCED = "burnctl"  # what `createdBy` says of a session that a client told of before it began


class Announcement(msgspec.Struct, frozen=True):
    """A session's content mode and log folders (`roots`), as a client announced them.

    A session that `is_new` has no text from before `at_ms`; another may have its own or another session's.
    """

    session_id: str
    source: str
    at_ms: int
    content_mode: ContentMode | None = None
    roots: Sequence[str] = ()
    created_by: str = ANNOUNCED
    is_new: bool | None = None


async def announce(pipeline: Pipeline, said: Announcement) -> None:
    """Makes it durable, and makes it hold for what was captured since then as much as for what comes.

    The roots stand in the ledger with the rest of it, so that every start reads them as well.
    """
    is_new = said.is_new
    if is_new is None:
        is_new = not await pipeline.index.rows("SELECT 1 FROM sessions WHERE session_id = ?", (said.session_id,))
    session = Session(
        session_id=said.session_id,
        source=said.source,
        created_by=said.created_by,
        content_mode=said.content_mode,
        content_since=to_iso(said.at_ms) if said.content_mode is not None and not is_new else None,
        roots=tuple(said.roots),
    )
    entries: list[Entry] = [session, *_kept_closed(pipeline, said)]
    await pipeline.commit(Batch(entries=entries))


async def announced_roots(index: IndexStore, source: str) -> list[str]:
    """The folders that clients told of so far."""
    return [key for (key,) in await index.rows("SELECT key FROM cursors WHERE source = ?", (roots_of(source),))]


def _kept_closed(pipeline: Pipeline, said: Announcement) -> list[Entry]:
    """When a session's text is wanted from now on, what it said until now stays unwanted, however often it is read."""
    if said.content_mode != "full" or pipeline.keeping.mode_of(said.session_id) == "full":
        return []
    return [Prune(session_id=said.session_id, up_to=to_iso(said.at_ms))]
