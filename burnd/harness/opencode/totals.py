"""The quick pass over opencode's databases: messages with the `step-finish` parts that state their usage.

Equal totals need the rows of `session` and `message`, of `part` only the ends of steps. All parts are read of a message
that ended without usage, since these show whether the model began to answer, and of a page of rows that is damaged or
too large. Forks copy rows under new ids, which `recording.ownership` finds by time, model and tokens.
"""

from __future__ import annotations

import os
import sqlite3
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from burnd.harness.opencode import database
from burnd.harness.opencode.database import (
    LAST_ROWID,
    PAGE,
    Database,
    Schema,
    StaleRead,
    Unsupported,
    damage_name,
    probe,
)
from burnd.harness.opencode.messages import OpencodeMessage, calls_of, message_of
from burnd.harness.opencode.product import PRODUCT
from burnd.harness.opencode.reader import ReadOptions, read_options
from burnd.harness.opencode.rows import MessageRow, PartRow, SessionRow, decode_message
from burnd.harness.opencode.session import SOURCE, WalkState, session_record, walk
from burnd.harness.quick_pass import LogSettings, LogTask, LogTotals, without_content
from burnd.records import Usage
from burnd.records.foreign_json import Rejected

_MOST_BYTES: Final = 16 << 20
_STEPS: Final = "SELECT message_id, id, data FROM part WHERE message_id IN ({}) AND instr(data, ?)"
_PAGE: Final = (
    "SELECT rowid, id, session_id, time_created, data FROM message WHERE rowid <= ? ORDER BY rowid DESC LIMIT ?"
)
_NAMES: Final = "SELECT rowid, id, session_id FROM message WHERE rowid <= ? ORDER BY rowid DESC LIMIT ?"


def find_logs(log_settings: LogSettings) -> list[LogTask]:
    """All databases as one task: a message that several have counts in the first of them."""
    paths = [path for path in log_settings.logs(PRODUCT) if os.path.isfile(path)]
    if not paths:
        return []
    size = sum(os.path.getsize(path) for path in paths)
    options = read_options(log_settings.settings, log_settings.user_home)
    return [LogTask(__name__, tuple(paths), "", max(map(os.path.getmtime, paths)), size, options)]


def read_logs(task: LogTask) -> list[LogTotals]:
    totals: list[LogTotals] = []
    counted_ids = _Seen(set(), set())
    options: ReadOptions = task.options
    for path in task.paths:
        for last in (False, False, True):
            try:
                found = _DatabasePass(path, options, counted_ids).read()
            except StaleRead:  # it changed meanwhile
                if last:
                    raise
            except (FileNotFoundError, Unsupported):
                break
            else:
                counted_ids.messages.update(candidate.message_id for candidate in found.candidates)
                counted_ids.sessions.update(session.session_id for session in found.sessions)
                totals.append(found)
                break
    return totals


class _Seen(NamedTuple):
    messages: set[str]
    sessions: set[str]


class _DatabasePass:
    """One pass over a database: short queries, the newest rows first, no transaction across them."""

    def __init__(self, path: str, options: ReadOptions, seen: _Seen) -> None:
        self._database = Database(path)
        self._options, self._seen = options, seen
        self._sessions: dict[str, SessionRow | None] = {}

    def read(self) -> LogTotals:
        """Raises FileNotFoundError, StaleRead, Unsupported or sqlite3.Error."""
        totals = LogTotals(SOURCE, needs_keys=True)
        try:
            with self._database.reading() as db:
                schema = probe(db)
                for stored in database.all_sessions(db, schema, {}):
                    session = stored.row if self._options.includes(stored) else None
                    self._sessions[stored.row.id] = session
                recorded = set(self._seen.sessions)
                for session_id, message in self._messages(db, schema):
                    session = self._session(db, session_id)
                    if session is None or message.id in self._seen.messages:
                        continue
                    if session_id not in recorded:
                        recorded.add(session_id)
                        totals.sessions.append(session_record(session, message.agent))
                    _, step = walk(session, WalkState(), message)
                    if step is not None:
                        totals.candidates.append(without_content(step.candidate))
        finally:
            self._database.close()
        return totals

    def _session(self, db: sqlite3.Connection, session_id: str) -> SessionRow | None:
        if session_id not in self._sessions:
            stored = database.orphaned_session(db, session_id)
            is_included = stored is not None and self._options.includes(stored)
            self._sessions[session_id] = stored.row if stored is not None and is_included else None
        return self._sessions[session_id]

    def _messages(self, db: sqlite3.Connection, schema: Schema) -> Iterator[tuple[str, OpencodeMessage]]:
        at = LAST_ROWID
        while True:
            try:
                page = db.execute(_PAGE, (at, PAGE)).fetchall()
                rows = _with_steps(db, page)
            except sqlite3.Error as error:
                damage_name(error)  # raises any error but damage
                page = db.execute(_NAMES, (at, PAGE)).fetchall()
                rows = list(_whole(db, schema, [database.text(row[1]) for row in page]))
            if not page:
                return
            sessions = {database.text(row[1]): database.text(row[2]) for row in page}
            yield from self._decoded(db, schema, rows, sessions)
            at = page[-1][0] - 1

    def _decoded(
        self, db: sqlite3.Connection, schema: Schema, rows: Sequence[MessageRow], sessions: dict[str, str]
    ) -> Iterator[tuple[str, OpencodeMessage]]:
        doubtful: list[str] = []
        for row in rows:
            message = self._decode(row, sessions[row.id])
            response = message.response if message is not None else None
            if response is not None and response.usage == Usage() and response.completed is not None:
                doubtful.append(row.id)
            elif message is not None:
                yield sessions[row.id], message
        for row in _whole(db, schema, doubtful):
            whole = self._decode(row, sessions[row.id])
            if whole is not None:
                yield sessions[row.id], whole

    def _decode(self, row: MessageRow, session_id: str) -> OpencodeMessage | None:
        decoded = decode_message(row)
        if isinstance(decoded, Rejected):
            return None
        session = self._sessions.get(session_id)
        return message_of(row, decoded, calls_of(decoded), session.version if session is not None else None)


def _with_steps(db: sqlite3.Connection, page: Sequence[tuple[int, bytes, bytes, int, bytes]]) -> list[MessageRow]:
    ids = [row[1] for row in page]
    steps: defaultdict[bytes, list[PartRow]] = defaultdict(list)
    sql = _STEPS.format(",".join("?" * len(ids)))
    for message, part, data in db.execute(sql, (*map(database.text, ids), '"step-finish"')):
        steps[message].append(PartRow(database.text(part), 0, database.data_of(data)))
    return [
        MessageRow(database.text(name), database.number(created), 0, database.data_of(data), tuple(steps[name]))
        for _, name, _, created, data in page
    ]


def _whole(db: sqlite3.Connection, schema: Schema, ids: Sequence[str]) -> Iterator[MessageRow]:
    while ids:
        fetched, done = database.fetch(db, schema, ids, _MOST_BYTES)
        yield from fetched.rows
        ids = ids[done:]
