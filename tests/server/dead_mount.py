"""A daemon with a simulated network mount below /dead that does not answer."""

from __future__ import annotations

import threading

from burnd.clients import folders
from burnd.queries.view import Folder

resolve = folders.resolve


def hanging(given: str) -> Folder:
    if given.startswith("/dead"):
        threading.Event().wait()
    return resolve(given)


if __name__ == "__main__":
    from burnd.cli import main

    folders.resolve = hanging
    folders.TIMEOUT_S = 0.5  # type: ignore[misc]
    raise SystemExit(main())
