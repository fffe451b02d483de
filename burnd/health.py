"""Whether the daemon gets on: a sign of life is given only while the pipeline and the server are seen to work."""

from __future__ import annotations

import anyio
import structlog

from burnd.notify import Notifier
from burnd.server.service import Service

log = structlog.get_logger()
_LOOKS = 4  # so often within the time that the service manager waits: one bad look is no disaster
_PROBE = b'{"jsonrpc":"2.0","id":0,"method":"status"}\n'


class Health:
    """Looks after the daemon from inside. A loop that hangs looks after nothing, and so gives no sign either."""

    def __init__(self, service: Service, notifier: Notifier) -> None:
        self._service = service
        self._notifier = notifier
        self._beats: int | None = None

    async def watch(self) -> None:
        """Gives signs of life for as long as somebody expects them."""
        within = self._notifier.watchdog_s
        if within is None:
            return
        while True:
            if self._pipeline_gets_on() and await self._server_answers(within / _LOOKS):
                self._notifier.alive()
            else:
                log.error("daemon.stuck")
            await anyio.sleep(within / _LOOKS)

    def _pipeline_gets_on(self) -> bool:
        """Whether it rests, or has done anything since the last look."""
        if not self._service.is_open or not self._service.pipeline.writing:
            self._beats = None
            return True
        before, self._beats = self._beats, self._service.pipeline.status.beats
        return before != self._beats

    async def _server_answers(self, within: float) -> bool:
        """Asks as a client would; being told that there are too many clients is an answer too."""
        try:
            with anyio.fail_after(within):
                async with await anyio.connect_unix(self._service.socket) as stream:
                    await stream.send(_PROBE)
                    return bool(await stream.receive())
        except (OSError, TimeoutError, anyio.BrokenResourceError, anyio.EndOfStream):
            return False
