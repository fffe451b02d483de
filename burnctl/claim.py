"""Claims the next session of a folder in the spool, so that the daemon tags it although its id is not known yet."""

from __future__ import annotations

from burnctl import after_run, delivery, spool, stamping
from burnctl.errors import BurnctlError
from burnd.harness.registry import PRODUCTS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

_SOURCES = {product.program: product.source for product in PRODUCTS}


class Claim:
    """A file in the spool that claims the next session in a folder; `close` writes when the run has ended."""

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
        """Makes the claim durable. Raises NotSpooled: the harness must not be started then."""
        spool.put_as(self._home, self.name, self._record)

    def close(self, session_id: str | None = None, *, grace_s: float = 0) -> None:
        """Ends the claim `grace_s` seconds from now, or assigns it to a session whose id is known by now.

        A claim that is never closed expires after a week.
        """
        end = {"sessionId": session_id} if session_id is not None else {"toTs": stamping.now_iso(grace_s)}
        try:
            spool.put_as(self._home, self.name, self._record | end)
        except BurnctlError as error:
            after_run.say(str(error))
