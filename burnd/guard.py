"""Stops sessions that reach a limit: decides on each tool call that a hook asks about."""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, Final

import anyio
import anyio.to_thread
import msgspec
import structlog

from burnd.ledger.files import replace_file
from burnd.queries.guard import NextCall, Use, line_of, uses
from burnd.queries.view import View
from burnd.records.times import Clock, to_iso

log = structlog.get_logger()
_DENIALS = 20  # that `guard status` shows
_SESSIONS = 1000  # whose denials are counted
_WARNINGS = 2  # responses with denied calls after which an agent that still calls tools is ended
_SAME_RESPONSE_MS = 1000  # denials this close together are of one response
_ID_SHOWN = 13  # enough of an id that begins with a time


class _Choices(msgspec.Struct, rename="camel"):
    """`allowed` has sessions with the time until which, 0 for ever."""

    is_off: bool = False
    allowed: dict[str, int] = {}


class Denial(msgspec.Struct, frozen=True):
    ts: int
    session: str
    tool: str | None
    reason: str


class Guard:
    """If a check fails with an error, the call is allowed."""

    def __init__(self, path: Path, now: Clock) -> None:
        self._path, self._now = path, now
        try:
            self._choices = msgspec.json.decode(path.read_bytes(), type=_Choices)
        except (OSError, msgspec.MsgspecError, ValueError):
            self._choices = _Choices()
        self.denials: deque[Denial] = deque(maxlen=_DENIALS)
        self._warnings: dict[str, tuple[int, int]] = {}  # responses with denied calls and the last denial, by session
        self._saving = anyio.Lock()

    @property
    def is_off(self) -> bool:
        return self._choices.is_off

    @property
    def allowed(self) -> dict[str, int]:
        """Sessions that no limit stops, with the time until which; 0 is for ever."""
        now = self._now()
        return {session: until for session, until in self._choices.allowed.items() if not until or until > now}

    async def allow(self, session: str, until: int) -> None:
        self._warnings.pop(session, None)
        async with self._saving:
            await self._save(_Choices(self.is_off, self.allowed | {session: until}))

    async def switch(self, *, is_off: bool) -> None:
        async with self._saving:
            await self._save(_Choices(is_off, self.allowed))

    async def check(
        self,
        look: Callable[[Callable[[View], list[Use]]], Awaitable[list[Use]]],
        limits: Mapping[str, float],
        session: str,
        source: str,
        call: NextCall | None,
    ) -> dict[str, Any]:
        if self.is_off or not limits:
            return _ALLOW

        def reached_in(view: View) -> list[Use]:
            if not self.allowed.keys().isdisjoint(line_of(view, session)):
                return []
            return [use for use in uses(view, limits, source, session, call) if use.is_reached]

        reached = await look(reached_in)
        if not reached:
            self._warnings.pop(session, None)
            return _ALLOW
        use, now = reached[0], self._now()
        reason = (
            f"burnd guard: {use.sentence()}. Stop here and tell the user, who can let this session continue with: "
            f"burnctl guard allow {session[:_ID_SHOWN]}"
        )
        self.denials.append(Denial(now, session, call.tool if call is not None else None, use.sentence()))
        log.warning("guard.denied", session=session, limit=use.key)
        warnings, last = self._warnings.pop(session, (0, 0))
        if now - last >= _SAME_RESPONSE_MS:
            warnings += 1
        if len(self._warnings) >= _SESSIONS:
            del self._warnings[next(iter(self._warnings))]
        self._warnings[session] = warnings, now
        return {"decision": "deny", "reason": reason, "limit": use.answer(), "stop": warnings > _WARNINGS}

    def answer(self, limits: list[Use]) -> dict[str, Any]:
        return {
            "on": not self.is_off,
            "limits": [use.answer() for use in limits],
            "allowed": [
                {"session": session, "until": to_iso(until) if until else None}
                for session, until in sorted(self.allowed.items())
            ],
            "denials": [
                {"ts": to_iso(denial.ts), "session": denial.session, "tool": denial.tool, "reason": denial.reason}
                for denial in self.denials
            ],
        }

    async def _save(self, choices: _Choices) -> None:
        await anyio.to_thread.run_sync(replace_file, self._path, msgspec.json.encode(choices))
        self._choices = choices


_ALLOW: Final[dict[str, Any]] = {"decision": "allow", "reason": None, "limit": None, "stop": False}
