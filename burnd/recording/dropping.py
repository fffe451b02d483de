"""Makes content go: says so in the ledger first, then deletes it everywhere it may still be read."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Awaitable, Callable, Sequence

from burnd.content.forgetting import farewells
from burnd.errors import Locked
from burnd.index import build
from burnd.ledger.content import in_pieces
from burnd.ledger.keeping import Keeping
from burnd.ledger.retention import Pruned
from burnd.recording.stores import Stores
from burnd.records.codec import Entry


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
    with contextlib.suppress(Locked):  # a long query still needs the log; closing the index cuts it as well
        await stores.index.scrub()
    with contextlib.suppress(FileNotFoundError):
        os.unlink(build.aside(stores.home.index_db))
    stores.is_behind = False
    return Pruned(len(present), freed)
