"""Announces an exceeded budget and runs the user's command, once per period."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Awaitable, Callable, Mapping
from decimal import Decimal
from pathlib import Path
from subprocess import DEVNULL
from typing import Any

import anyio
import anyio.abc
import anyio.to_thread
import msgspec
import structlog

from burnd.errors import IndexDamaged, StorageError
from burnd.index.query_pool import TookTooLong
from burnd.ledger.files import replace_file
from burnd.paths import user_home
from burnd.pricing import usd
from burnd.queries.spending import BudgetUse, budget_uses
from burnd.queries.view import View
from burnd.records.times import to_iso

log = structlog.get_logger()

PAUSE_S = 2.0
COMMAND_TIMEOUT_S = 60.0

Command = str | list[str]


class _Crossing(msgspec.Struct, frozen=True):
    """Another limit or period counts as another crossing."""

    begin: int
    limit: str


class BudgetWatch:
    """Calls `announce` for each exceeded budget.

    `crossings` is the file of announced crossings. `notices` gets a failure of the command with its remedy.
    """

    def __init__(
        self,
        crossings: Path,
        budgets: Mapping[str, Decimal],
        command: Command,
        *,
        look: Callable[[Callable[[View], list[BudgetUse]]], Awaitable[list[BudgetUse]]],
        announce: Callable[[dict[str, Any]], None] = lambda _: None,
        notices: dict[str, str] | None = None,
    ) -> None:
        self.problem = ""
        self._notices = {} if notices is None else notices
        self._crossings = crossings
        self._budgets = budgets
        self._command = command
        self._look = look
        self._announce = announce

    async def run(self, landed: Callable[[], Awaitable[object]]) -> None:
        """Checks now, and each time `landed` returns."""
        if not self._budgets:
            return
        async with anyio.create_task_group() as commands:
            while True:
                await self._check(commands)
                await anyio.sleep(PAUSE_S)
                await landed()

    async def _check(self, commands: anyio.abc.TaskGroup) -> None:
        try:
            for standing in await self._look(lambda view: budget_uses(view, self._budgets)):
                crossing = _Crossing(standing.period.begin, str(standing.limit))
                # Saved before it is announced: twice is worse than late.
                if standing.crossed and await anyio.to_thread.run_sync(
                    _save, self._crossings, standing.period.name, crossing
                ):
                    self._announce(standing.answer())
                    log.warning("budget.crossed", period=standing.period.name, limit_usd=float(standing.limit))
                    if self._command:
                        commands.start_soon(self._run_command, standing)
        except (StorageError, IndexDamaged, TookTooLong) as error:
            log.warning("budget.waiting", reason=type(error).__name__)

    async def _run_command(self, standing: BudgetUse) -> None:
        self._notices.pop(self.problem, None)
        variables = {
            "BURND_BUDGET_PERIOD": standing.period.name,
            "BURND_BUDGET_LIMIT_USD": f"{standing.limit:f}",
            "BURND_BUDGET_SPENT_USD": f"{usd(standing.used.units):.2f}",
            "BURND_BUDGET_FROM": to_iso(standing.period.begin),
            "BURND_BUDGET_TO": to_iso(standing.period.end),
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


def _save(path: Path, period: str, crossing: _Crossing) -> bool:
    """Outside the index, which may be deleted. Returns whether the crossing was new."""
    try:
        crossings = msgspec.json.decode(path.read_bytes(), type=dict[str, _Crossing])
    except (OSError, msgspec.MsgspecError, ValueError):
        crossings = {}
    if crossings.get(period) == crossing:
        return False
    replace_file(path, msgspec.json.encode(crossings | {period: crossing}))
    return True


async def run_command(command: Command, variables: Mapping[str, str]) -> int | None:
    """In its own session; returns the exit code, None after a timeout."""
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
