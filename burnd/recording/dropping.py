"""Makes content go: says so in the ledger first, then deletes it everywhere it may still be read."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Final

from burnd.content.forgetting import farewells
from burnd.errors import Locked
from burnd.index import build
from burnd.index.change import CursorChange
from burnd.ledger.content import in_pieces
from burnd.ledger.keeping import Keeping
from burnd.ledger.retention import Pruned
from burnd.recording.stores import Stores
from burnd.records import Content
from burnd.records.codec import Entry

ERASE: Final = "erase"  # cursor source of sessions with text to erase


async def drop_content(
    stores: Stores,
    keeping: Keeping,
    session_ids: Sequence[str],
    up_to_ms: int,
    record: Callable[[Sequence[Entry]], Awaitable[None]],
) -> Pruned:
    """Drops what these sessions said; `record` makes entries durable. The next start ends what a crash cut short."""
    entries = await farewells(stores.index, stores.content.sidecars, session_ids, up_to_ms)
    stores.is_behind = True
    await record(entries)
    for entry in entries:
        keeping.learn(entry)
    present = [s for s in session_ids if stores.content.sidecars.size(s)]
    freed = 0
    for some in in_pieces(session_ids):
        freed += await stores.in_thread(stores.content.drop, some)
        stores.pulse.beat()
    for some in in_pieces(await stores.in_thread(stores.content.orphaned)):
        freed += await stores.in_thread(stores.content.drop, some)
        stores.pulse.beat()
    await scrubbed(stores)
    stores.is_behind = False
    return Pruned(len(present), freed)


async def erase_some(
    stores: Stores,
    session_id: str,
    keeps: Callable[[Content], bool],
    record: Callable[[str, bool], Awaitable[None]],
) -> int:
    """Erases the records of a session's sidecar for which `keeps` is false; returns how many.

    Before that, `record` writes to the ledger what only the sidecar has, and whether the whole text goes.
    """
    if not stores.content.sidecars.has(session_id):
        return 0

    def is_all() -> bool:
        return not any(keeps(found) for found, _, _ in stores.content.stored(session_id))

    await record(session_id, await stores.in_thread(is_all))
    stores.is_behind = True
    erased = await stores.in_thread(stores.content.erase, session_id, keeps)
    if erased:
        await build.forget_messages(stores.index, session_id)
        stores.forget_rows()
        await build.apply_sidecar(stores.index, stores.content, session_id)
    stores.is_behind = False
    return erased


async def scrubbed(stores: Stores) -> None:
    """Overwrites deleted rows in the index and its write-ahead log, and removes the index it replaced."""
    with contextlib.suppress(Locked):  # a long query still needs the log; closing the index cuts it as well
        await stores.index.scrub()
    with contextlib.suppress(FileNotFoundError):
        os.unlink(build.aside(stores.home.index_db))


def due_erasures(session_ids: Iterable[str]) -> list[CursorChange]:
    """Cursors that mark sessions with text to erase, so that a crash does not lose the task."""
    return [CursorChange(ERASE, session_id, b"") for session_id in session_ids]
