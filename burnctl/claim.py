"""A claim: asks the daemon to give the next session of a folder these tags, when its id is not known beforehand."""

from __future__ import annotations

from burnctl import after_run, delivery, spool, stamping
from burnctl.errors import BurnctlError
from burnd.protocol import HARNESSES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

_SOURCES = {program: source for source, (program, _) in HARNESSES.items()}


class Claim:
    """A file in the spool: the next session in this folder is ours, until we write that we have ended."""

    def __init__(
        self, folder: str, program: str, tags: dict[str, str], mode: str | None, roots: Sequence[str] = ()
    ) -> None:
        self.name = spool.new_name()
        self._home = delivery.home()
        self._record: dict[str, Any] = {
            "v": 1,
            "kind": "claim",
            "project": folder,
            "fromTs": stamping.now_iso(),
            "enrichment": tags,
        }
        if program in _SOURCES:
            self._record["source"] = _SOURCES[program]
        if mode is not None:
            self._record["contentMode"] = mode
        if roots:
            self._record["roots"] = list(roots)

    def open(self) -> None:
        """Makes it durable. Raises NotSpooled, and then nothing should be started."""
        spool.put_as(self._home, self.name, self._record)

    def close(self, session_id: str | None = None, *, grace_s: float = 0) -> None:
        """Ends the claim, so many seconds from now, or gives it to one session that is known by now.

        Without that the claim would wait some days longer, but it is not lost.
        """
        end = {"sessionId": session_id} if session_id is not None else {"toTs": stamping.now_iso(grace_s)}
        try:
            spool.put_as(self._home, self.name, self._record | end)
        except BurnctlError as error:
            after_run.say(str(error))
