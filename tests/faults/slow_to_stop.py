"""A daemon in which a part hangs at the stop; its hard limit is STOP_S, or short."""

from __future__ import annotations

import os
import time
from typing import Any

from burnd.daemon import lifecycle
from burnd.recording.pipeline import Pipeline

lifecycle.STOP_S = float(os.environ.get("STOP_S", "2"))


async def close(_self: Pipeline) -> None:
    import anyio.to_thread

    with anyio.CancelScope(shield=True):
        await anyio.to_thread.run_sync(time.sleep, 60)


hanging: Any = close
Pipeline.close = hanging  # type: ignore[method-assign]

if __name__ == "__main__":
    from burnd.cli import main

    raise SystemExit(main())
