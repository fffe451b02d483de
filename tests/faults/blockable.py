"""A daemon whose event loop a client can block."""

from __future__ import annotations

import os
import time
from typing import Any

from burnd.server.method import Method, NoParams
from burnd.server.methods import METHODS
from burnd.server.service import Service


async def block(_service: Service, _params: NoParams) -> dict[str, Any]:
    """Says in the file that BLOCKED names that nothing turns any more, and blocks until it is gone."""
    blocked = os.environ["BLOCKED"]
    with open(blocked, "x"):
        pass
    while os.path.exists(blocked):
        time.sleep(0.01)
    return {}


METHODS["block"] = Method(NoParams, block)

if __name__ == "__main__":
    from burnd.cli import main

    raise SystemExit(main())
