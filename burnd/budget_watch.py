"""Notices when a budget is crossed: says so, and runs the user's command, once for each period."""

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
from burnd.index.asking import TookTooLong
from burnd.ledger.files import replace_file
from burnd.paths import user_home
from burnd.pricing import usd
from burnd.queries.budgets import Standing, standings
from burnd.queries.view import View
from burnd.records.times import to_iso

log = structlog.get_logger()

PAUSE_S = 2.0
PATIENCE_S = 60.0

Command = str | list[str]


class _Crossing(msgspec.Struct, frozen=True):
    """What was crossed: another amount, or another period, is another crossing."""

    begin: int
    limit: str


class BudgetWatch:
    """Looks whenever turns have landed. `announce` hears of every crossing; the command never holds anything up. What
    was told is kept in the file `told`.

    What is wrong with the command is kept among `notices`, with what to do about it.
    """

    def __init__(
        self,
        told: Path,
        budgets: Mapping[str, Decimal],
        command: Command,
        *,
        look: Callable[[Callable[[View], list[Standing]]], Awaitable[list[Standing]]],
        announce: Callable[[dict[str, Any]], None] = lambda _: None,
        notices: dict[str, str] | None = None,
    ) -> None:
        self.problem = ""
        self._notices = {} if notices is None else notices
        self._told = told
        self._budgets = budgets
        self._command = command
        self._look = look
        self._announce = announce

    async def run(self, landed: Callable[[], Awaitable[object]]) -> None:
        """Looks now, and again each time `landed` returns, for ever."""
        if not self._budgets:
            return
        async with anyio.create_task_group() as commands:
            while True:
                await self._check(commands)
                await anyio.sleep(PAUSE_S)
                await landed()

    async def _check(self, commands: anyio.abc.TaskGroup) -> None:
        try:
            found = await self._look(lambda view: standings(view, self._budgets))
            for standing in found:
                if standing.crossed and await self._is_news(standing):
                    self._announce(standing.answer())
                    log.warning("budget.crossed", period=standing.period.name, limit_usd=float(standing.limit))
                    if self._command:
                        commands.start_soon(self._run_command, standing)
        except (StorageError, IndexDamaged, TookTooLong) as error:
            log.warning("budget.waiting", reason=type(error).__name__)

    async def _is_news(self, standing: Standing) -> bool:
        """Whether this crossing was not told yet. It is remembered first: told twice is worse than told late."""
        crossing = _Crossing(standing.period.begin, str(standing.limit))
        return await anyio.to_thread.run_sync(_remember, self._told, standing.period.name, crossing)

    async def _run_command(self, standing: Standing) -> None:
        self._notices.pop(self.problem, None)
        try:
            code = await run_command(self._command, _facts_of(standing))
        except OSError as error:
            self.problem = f"the budget command cannot be run: {error.strerror}"
        else:
            self.problem = f"the budget command {_ending(code)}" if code != 0 else ""
        if self.problem:
            log.warning("budget.command_failed", reason=self.problem)
            self._notices[self.problem] = (
                "see budget.command in config.toml; it runs again when the next budget is crossed"
            )


def _remember(told: Path, period: str, crossing: _Crossing) -> bool:
    """Writes down a crossing, in a file of its own since the index may be deleted; returns whether it was new."""
    try:
        known = msgspec.json.decode(told.read_bytes(), type=dict[str, _Crossing])
    except (OSError, msgspec.MsgspecError, ValueError):
        known = {}
    if known.get(period) == crossing:
        return False
    replace_file(told, msgspec.json.encode(known | {period: crossing}))
    return True


async def run_command(command: Command, facts: Mapping[str, str]) -> int | None:
    """Runs it away from everything else; returns its exit code, or None when it took too long and was ended.

    A list is a program and its arguments; a text goes to the shell as one line.
    """
    process = await anyio.open_process(
        command,
        stdin=DEVNULL,
        stdout=DEVNULL,
        stderr=DEVNULL,
        cwd=user_home(),
        env={**os.environ, **facts},
        start_new_session=True,
    )
    try:
        with anyio.move_on_after(PATIENCE_S):
            return await process.wait()
        return None
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        with anyio.CancelScope(shield=True):
            await process.aclose()


def _facts_of(standing: Standing) -> dict[str, str]:
    return {
        "BURND_BUDGET_PERIOD": standing.period.name,
        "BURND_BUDGET_LIMIT_USD": f"{standing.limit:f}",
        "BURND_BUDGET_SPENT_USD": f"{usd(standing.spent.units):.2f}",
        "BURND_BUDGET_FROM": to_iso(standing.period.begin),
        "BURND_BUDGET_TO": to_iso(standing.period.end),
    }


def _ending(code: int | None) -> str:
    return "took too long and was ended" if code is None else f"ended with code {code}"
