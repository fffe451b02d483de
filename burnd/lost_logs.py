"""Compares recorded sessions with the logs that are there, and records which logs are gone or back."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable
from importlib import import_module
from typing import Final, NamedTuple

import anyio
import anyio.to_thread
import structlog

from burnd import tasks
from burnd.errors import IndexDamaged, NotNow
from burnd.harness.product import Product
from burnd.harness.registry import PRODUCTS
from burnd.queries.sessions import BACK, CLEANED, GONE, LoggedSession, logged_sessions
from burnd.queries.view import View
from burnd.recording.candidate import Batch
from burnd.recording.pipeline import Pipeline
from burnd.records import Event
from burnd.records.content import MAIN
from burnd.records.times import DAY_MS, to_iso

log = structlog.get_logger()
_FIRST_S: Final = 120.0  # after the start, when most new logs have been read
_EVERY_S: Final = 3600.0
_RECENT_MS: Final = 14 * DAY_MS  # for `status`

Look = Callable[[Callable[[View], list[LoggedSession]]], Awaitable[list[LoggedSession]]]


class LogFolders(NamedTuple):
    product: Product
    logs: list[str]
    homes: list[str]


class LostLogs:
    """`unexplained` counts recent sessions that no clean-up explains."""

    def __init__(self, pipeline: Pipeline, look: Look, folders: Callable[[Product], LogFolders]) -> None:
        self.unexplained = 0
        self.noticed: str | None = None  # when the newest of them was noticed
        self._pipeline = pipeline
        self._look = look
        self._folders = folders
        self._lock = anyio.Lock()

    async def run(self) -> None:
        await anyio.sleep(_FIRST_S)
        while True:
            try:
                await self.check()
            except (NotNow, IndexDamaged) as error:
                log.warning("lost_logs.waiting", reason=type(error).__name__)
            await tasks.sleep_until_tick(_EVERY_S)

    async def check(self) -> None:
        """Records an event for each change since the last check."""
        async with self._lock:
            now = self._pipeline.now()
            events: list[Event] = []
            recent: list[int] = []
            for product in PRODUCTS:
                if not product.restore:
                    continue
                sessions = await self._look(lambda view, source=product.source: logged_sessions(view, source))  # type: ignore[misc]
                folders = self._folders(product)
                changes = await anyio.to_thread.run_sync(_changes, folders, sessions, now)
                events += changes
                states = {one.session_id: (one.event, one.event_ms or 0) for one in sessions}
                states |= {event.session_id: (event.name, now) for event in changes}
                recent += [ms for name, ms in states.values() if name == GONE and ms > now - _RECENT_MS]
            if events:
                await self._pipeline.commit(Batch(entries=list(events)))
                log.info("lost_logs.changed", sessions=len(events))
            self.unexplained, self.noticed = len(recent), to_iso(max(recent)) if recent else None


def _changes(folders: LogFolders, sessions: Iterable[LoggedSession], now: int) -> list[Event]:
    """Blocks as long as the disk does."""
    product = folders.product
    find_logs = import_module(product.restore).find_logs
    logs = find_logs(folders.logs)
    if logs is None:  # a folder that cannot be listed
        return []
    is_id = re.compile(product.session_ids[0]).fullmatch
    days = product.clean_up_days(folders.homes)
    events: list[Event] = []
    gone: list[LoggedSession] = []
    for session in sessions:
        is_lost = session.event in (GONE, CLEANED)
        if session.session_id in logs:
            events += [_event(product, session, BACK, now)] if is_lost else []
        elif not is_lost and is_id(session.session_id):
            gone.append(session)
    again = find_logs(folders.logs) if gone else {}  # one may have been moved meanwhile
    for session in gone:
        if again is not None and session.session_id not in again:
            is_cleaned = days is not None and session.updated_ms < now - (days - 1) * DAY_MS
            events.append(_event(product, session, CLEANED if is_cleaned else GONE, now))
    return events


def _event(product: Product, session: LoggedSession, name: str, now: int) -> Event:
    return Event(
        source=product.source,
        session_id=session.session_id,
        rail_id=MAIN,
        id=f"@log:{now}",
        ts=to_iso(now),
        name=name,
    )
