"""Limits: readings of a plan's windows, warnings when a budget is exceeded, and the guard that stops sessions."""

from __future__ import annotations

import contextlib
import os
import signal
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from subprocess import DEVNULL
from typing import Any, Final

import anyio
import anyio.abc
import anyio.to_thread
import msgspec
import structlog

from burnd.errors import IndexDamaged, NotNow, StorageError
from burnd.index.query_pool import TookTooLong
from burnd.ledger.files import replace_file
from burnd.paths import user_home
from burnd.pricing import usd
from burnd.queries.guard import NextCall, Use, line_of, uses
from burnd.queries.limits import LENGTHS, SAME_RESET_MS
from burnd.queries.spending import BudgetUse, budget_uses
from burnd.queries.view import View
from burnd.recording.candidate import Batch
from burnd.recording.pipeline import Pipeline
from burnd.records import Quota
from burnd.records.times import Clock, to_iso, to_ms

log = structlog.get_logger()

# Readings of a plan's windows

_MOST_PERCENT = 1000.0
_NEWEST_READINGS = 2000  # a window has at most a thousand
_MOST_WAITING = 500
_RETRY_S = 5.0
_NEWEST = """
SELECT n.name, q.window, q.used_percent, q.resets_at FROM quotas q JOIN names n ON n.id = q.source
ORDER BY q.position DESC LIMIT ?
"""


class Quotas:
    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline
        self._lock = anyio.Lock()
        self._waiting: list[Quota] = []
        self._wake = anyio.Event()

    def enqueue(self, readings: Iterable[Quota]) -> None:
        """A status line does not wait for the disk."""

        def key(reading: Quota) -> tuple[str, str, float, str | None]:
            return (reading.source, reading.window, reading.used_percent, reading.resets_at)

        queued = set(map(key, self._waiting))
        self._waiting += [reading for reading in readings if key(reading) not in queued]
        del self._waiting[:-_MOST_WAITING]
        self._wake.set()

    async def run(self) -> None:
        while True:
            await self._wake.wait()
            self._wake = anyio.Event()
            readings, self._waiting = self._waiting, []
            try:
                await self.record(readings)
            except (NotNow, IndexDamaged) as error:
                log.warning("quota.waiting", reason=type(error).__name__)
                self.enqueue(readings)
                await anyio.sleep(_RETRY_S)

    async def record(self, readings: Sequence[Quota]) -> int:
        """Durable when it returns the number of new readings."""
        async with self._lock:
            rows = await self._pipeline.index.rows(_NEWEST, (_NEWEST_READINGS,))
            new = new_readings(readings, [Recorded(*row) for row in rows])
            if new:
                await self._pipeline.commit(Batch(entries=list(new)))
            return len(new)


class Recorded(msgspec.Struct, frozen=True):
    source: str
    window: str
    percent: float
    resets_at: int | None

    def is_of(self, reading: Quota, resets: int | None) -> bool:
        if (self.source, self.window) != (reading.source, reading.window):
            return False
        if self.resets_at is None or resets is None:
            return self.resets_at == resets
        return abs(self.resets_at - resets) <= SAME_RESET_MS


def new_readings(readings: Iterable[Quota], recorded: list[Recorded]) -> list[Quota]:
    """The readings higher than all of their window in `recorded`, which has the newest first.

    Every open session repeats the figure of its last request for hours, so lower figures and those of windows that are
    over are skipped.
    """
    new: list[Quota] = []
    recorded = list(recorded)
    for given in readings:
        if not 0 <= given.used_percent <= _MOST_PERCENT:  # nor is NaN
            continue
        percent, ts, resets = round(given.used_percent, 1), to_ms(given.ts), _reset_of(given)
        if resets is not None and resets > ts + 2 * LENGTHS[given.window]:
            resets = None
        same = [one for one in recorded if one.is_of(given, resets)]
        if resets is None:  # a window without an end looks like the next one
            is_new = not same or same[0].percent != percent
        else:
            is_new = resets > ts and all(one.percent < percent for one in same)
        if is_new:
            resets_at = None if resets is None else to_iso(resets)
            new.append(msgspec.structs.replace(given, used_percent=percent, resets_at=resets_at))
            recorded.insert(0, Recorded(given.source, given.window, percent, resets))
    return new


def _reset_of(reading: Quota) -> int | None:
    try:
        return None if reading.resets_at is None else to_ms(reading.resets_at)
    except ValueError:
        return None


# Budgets

PAUSE_S = 2.0
COMMAND_TIMEOUT_S = 60.0
Command = str | list[str]


class _Crossing(msgspec.Struct, frozen=True):
    begin: int
    limit: str


class BudgetWatch:
    """Announces an exceeded budget and runs the user's command, once for each period and limit.

    `crossings` is the file of those announced. `notices` gets a failure of the command with its remedy.
    """

    def __init__(
        self,
        crossings: Path,
        budgets: Mapping[str, Decimal],
        command: Command,
        *,
        look: Callable[[Callable[[View], list[BudgetUse]]], Awaitable[list[BudgetUse]]],
        announce: Callable[[dict[str, Any]], None],
        notices: dict[str, str],
    ) -> None:
        self.problem = ""
        self._notices = notices
        self._crossings = crossings
        self._budgets = budgets
        self._command = command
        self._look = look
        self._announce = announce

    async def run(self, landed: Callable[[], Awaitable[object]]) -> None:
        """Checks now, and each time `landed` returns."""
        async with anyio.create_task_group() as commands:
            while True:
                try:
                    for budget in await self._look(lambda view: budget_uses(view, self._budgets)):
                        # saved before it is announced: twice is worse than late
                        if budget.crossed and await anyio.to_thread.run_sync(self._save, budget):
                            self._announce(budget.answer())
                            log.warning("budget.crossed", period=budget.period.name, limit_usd=float(budget.limit))
                            if self._command:
                                commands.start_soon(self._run_command, budget)
                except (StorageError, IndexDamaged, TookTooLong) as error:
                    log.warning("budget.waiting", reason=type(error).__name__)
                await anyio.sleep(PAUSE_S)
                await landed()

    def _save(self, budget: BudgetUse) -> bool:
        """Returns whether the crossing is new. Not stored in the index, which may be deleted."""
        try:
            crossings = msgspec.json.decode(self._crossings.read_bytes(), type=dict[str, _Crossing])
        except (OSError, msgspec.MsgspecError, ValueError):
            crossings = {}
        period, crossing = budget.period.name, _Crossing(budget.period.begin, str(budget.limit))
        if crossings.get(period) == crossing:
            return False
        replace_file(self._crossings, msgspec.json.encode(crossings | {period: crossing}))
        return True

    async def _run_command(self, budget: BudgetUse) -> None:
        self._notices.pop(self.problem, None)
        variables = {
            "BURND_BUDGET_PERIOD": budget.period.name,
            "BURND_BUDGET_LIMIT_USD": f"{budget.limit:f}",
            "BURND_BUDGET_SPENT_USD": f"{usd(budget.used.units):.2f}",
            "BURND_BUDGET_FROM": to_iso(budget.period.begin),
            "BURND_BUDGET_TO": to_iso(budget.period.end),
        }
        try:
            code = await run_command(self._command, variables)
        except OSError as error:
            self.problem = f"the budget command cannot be run: {error.strerror}"
        else:
            ending = "timed out and was killed" if code is None else f"ended with code {code}"
            self.problem = f"the budget command {ending}" if code != 0 else ""
        if self.problem:
            log.warning("budget.command_failed", reason=self.problem)
            self._notices[self.problem] = (
                "see budget.command in config.toml; it runs again when the next budget is crossed"
            )


async def run_command(command: Command, variables: Mapping[str, str]) -> int | None:
    """In a new process group, which is killed after a timeout; returns the exit code, or None."""
    process = await anyio.open_process(
        command,
        stdin=DEVNULL,
        stdout=DEVNULL,
        stderr=DEVNULL,
        cwd=user_home(),
        env={**os.environ, **variables},
        start_new_session=True,
    )
    try:
        with anyio.move_on_after(COMMAND_TIMEOUT_S):
            return await process.wait()
        return None
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        with anyio.CancelScope(shield=True):
            await process.aclose()


# The guard

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
    """Decides on each tool call that a hook asks about; if that fails with an error, the hook allows the call."""

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
