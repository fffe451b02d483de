"""A daemon whose event loop or pipeline a client can block."""

from __future__ import annotations

import os
import time
from typing import Any

import anyio

from burnd.contract.daemon import MethodsParams as NoParams
from burnd.server.method import Method
from burnd.server.methods import METHODS
from burnd.server.service import Service


async def block(_service: Service, _params: NoParams) -> dict[str, Any]:
    """Writes to the file named by BLOCKED that nothing runs, and blocks until the file is gone."""
    blocked = os.environ["BLOCKED"]
    with open(blocked, "x"):
        pass
    while os.path.exists(blocked):
        time.sleep(0.01)
    return {}


async def hold(service: Service, _params: NoParams) -> dict[str, Any]:
    """The same, but the loop turns: it is the pipeline in which something is being written and does not get on."""
    async with service.pipeline._lock:
        blocked = anyio.Path(os.environ["BLOCKED"])
        await blocked.touch(exist_ok=False)
        while await blocked.exists():  # noqa: ASYNC110 - a file tells when
            await anyio.sleep(0.01)
    return {}


METHODS["block"] = Method(NoParams, block)
METHODS["hold"] = Method(NoParams, hold)

if __name__ == "__main__":
    from burnd.cli import main

    raise SystemExit(main())
