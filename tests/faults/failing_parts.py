"""A daemon in which parts fail repeatedly, with words that must not leak. `FAILING` names the parts and `FAILING_BY`
the kind of failure; every attempt appends a byte to the file `tries`. With `FAILING_ONCE` a part works until the
file `armed` exists, then fails once. With `FAILING_THREAD` a thread fails that is never joined."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any

from burnd.attribution.explainer import Explainer
from burnd.clients.spool import Spool
from burnd.daemon.lifecycle import Watchdog
from burnd.errors import StorageError, SyncFailed
from burnd.index.apply import Applier
from burnd.ledger.journal import Journal
from burnd.limits import Quotas
from burnd.recording.pipeline import Pipeline
from burnd.recording.retention import Retention
from burnd.search.indexer import SearchIndexer
from burnd.server.listener import Listener
from tests.faults.canaries import CANARY

PARTS: dict[str, tuple[Any, str]] = {
    "search": (SearchIndexer, "_open"),
    "hearing of news": (SearchIndexer, "on_change"),
    "attribution": (Explainer, "step"),
    "retention": (Retention, "_prune"),
    "following prices": (Pipeline, "adopt_prices"),
    "taking in readings of limits": (Quotas, "record"),
    "the spool": (Spool, "_drain"),
    "a part nothing goes on without": (Watchdog, "run"),
    "the server": (Listener, "_until_replaced"),
    "the ledger": (Journal, "append"),
    "the index writer": (Applier, "write"),
}
KINDS = {kind.__name__: kind for kind in (KeyError, ValueError, OSError, SyncFailed, StorageError)}


def fails(*_: Any, **__: Any) -> Any:
    with (Path(os.environ["HOME"]) / "tries").open("ab") as tries:
        tries.write(b".")
    raise KINDS[os.environ["FAILING_BY"]](f"{CANARY} was said")


def fails_once(work: Any) -> Any:
    """The work, which fails the first time that `armed` is there."""
    armed = Path(os.environ["HOME"]) / "armed"

    def tried(*given: Any, **named: Any) -> Any:
        if not armed.exists():
            return work(*given, **named)
        armed.unlink()
        return fails()

    return tried


async def fails_in_a_thread(_: Watchdog) -> None:
    threading.Thread(target=fails).start()


for part in filter(None, os.environ.get("FAILING", "").split(",")):
    where, method = PARTS[part]
    setattr(where, method, fails_once(getattr(where, method)) if os.environ.get("FAILING_ONCE") else fails)
if os.environ.get("FAILING_THREAD"):
    in_thread: Any = fails_in_a_thread
    Watchdog.run = in_thread  # type: ignore[method-assign]

if __name__ == "__main__":
    from burnd.cli import main

    raise SystemExit(main())
