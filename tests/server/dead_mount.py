"""A daemon on whose machine every folder below /dead is on a network mount that does not answer."""

from __future__ import annotations

import threading

from burnd.clients import folders
from burnd.queries.view import Folder

look_at = folders.look_at


def hanging(given: str) -> Folder:
    if given.startswith("/dead"):
        threading.Event().wait()
    return look_at(given)


if __name__ == "__main__":
    from burnd.cli import main

    folders.look_at = hanging
    folders.PATIENCE_S = 0.5  # type: ignore[misc]
    raise SystemExit(main())
