"""A source that fails every time."""

from __future__ import annotations

import anyio
import anyio.lowlevel

from burnd.recording.source import Status


class FailingSource:
    """A source that fails every time."""

    name = "failing"
    is_reading = False

    async def run(self) -> None:
        await anyio.sleep(0.01)
        raise RuntimeError("words that may be anybody's")

    async def flush(self, session_id: str | None = None) -> str | None:
        await anyio.sleep_forever()
        return None

    def status(self) -> Status:
        return Status(self.name, "watching", "all is well")
