"""Fetches the rows of one session of opencode's: those that must be read, in one short look at the database."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from burnd.harness.opencode import queries
from burnd.harness.opencode.content import content_of, saved_outputs, whole_output
from burnd.harness.opencode.cursor import Seen, digest_of
from burnd.harness.opencode.product import TOOL_OUTPUTS
from burnd.harness.opencode.queries import Fetched, RowVersion, SessionFound
from burnd.harness.opencode.rows import MessageRow, Opened, Unusable, opened
from burnd.harness.opencode.said import Said, said_of
from burnd.harness.opencode.schema import Schema
from burnd.harness.opencode.session_state import ReadMessage, SessionState
from burnd.harness.opencode.tools import calls_in
from burnd.harness.opencode.wanted import Wanted
from burnd.ledger.shelving import INLINE_BYTES, shelve
from burnd.logfiles.safe_open import small_file
from burnd.logfiles.unused import FATAL
from burnd.recording.hazard import Hazard, PassedOver
from burnd.records import Content
from burnd.records.foreign_json import Rejected

_LARGEST_OUTPUT = 64 << 20

_OpenedRow = tuple[Said, list[Content], tuple[Unusable, ...]]
Keys = Mapping[str, str | None]  # folders to their projects


class Raw(NamedTuple):
    """A session's rows as they were just read; without `found` it is not there, or not wanted, any more.

    One that is `wanting` was not read: the project of its folder must be known first.
    """

    session_id: str
    found: SessionFound | None = None
    seq: int = -1
    versions: Sequence[RowVersion] = ()
    fetched: Fetched = Fetched([])
    more: bool = False
    unchanged: bool = False
    wanting: str | None = None
    failure: str = ""


class RowFetcher:
    """How rows are fetched and opened, for one database."""

    def __init__(self, folders: Sequence[str], wanted: Wanted, hazard: Hazard) -> None:
        self._folders = folders
        self._wanted = wanted
        self._hazard = hazard

    def fetch(
        self,
        db: sqlite3.Connection,
        schema: Schema,
        session_id: str,
        state: SessionState | None,
        seen: Seen | None,
        *,
        keys: Keys,
        deep: bool,
        most_bytes: int,
    ) -> Raw:
        """What must be read of a session; a session that nobody follows is read only if it is not as it was seen."""
        with queries.one_state(db):
            found = queries.one_session(db, schema, session_id) or queries.orphaned(db, session_id)
            if found is None or not self._wanted.takes(found):
                return Raw(session_id)
            if (folder := found.row.directory) is not None and folder not in keys:
                return Raw(session_id, wanting=folder)
            seq = queries.sequence_of(db, schema, session_id)
            if state is None and seen is not None and not seen.pending:
                versions = queries.row_versions(db, schema, session_id, with_parts=True)
                as_seen = (found.digest, digest_of(version.digest for version in versions))
                if as_seen == (seen.row, seen.versions):
                    return Raw(session_id, found, seq, unchanged=True)
            else:
                versions = queries.row_versions(db, schema, session_id, with_parts=deep and state is not None)
            ids = state.changed_among(versions) if state is not None else [version.id for version in versions]
            fetched, done = queries.fetch(db, schema, ids, most_bytes)
            return Raw(session_id, found, seq, versions, fetched, more=done < len(ids))

    def messages(
        self, raw: Raw, state: SessionState, quiet_since: float | None, now: float, wall_ms: int
    ) -> list[ReadMessage]:
        """The rows opened; a message that says what it said is not opened again.

        `quiet_since` of None goes by the rows' own times, for rows that were there before anybody looked.
        """
        heard = []
        for row in raw.fetched.rows:
            digest = hash((row.created, row.data, *(part.data for part in row.parts)))
            version = queries.version_of(row)
            since = _quiet_since(row, now, wall_ms) if quiet_since is None else quiet_since
            if (known := state.unchanged(row.id, digest)) is not None:
                heard.append(ReadMessage(version, known, [], (), digest, since))
            else:
                heard.append(ReadMessage(version, *self._open_with_care(raw, row), digest, since))
        return heard

    def _open_with_care(self, raw: Raw, row: MessageRow) -> _OpenedRow:
        """A row that killed the process again and again is as one that cannot be understood."""
        if not self._hazard.concerns(raw.session_id):
            return self._open(raw, row)
        try:
            with self._hazard.over(raw.session_id, row.id):
                found = self._open(raw, row)
                shelve(found[1], INLINE_BYTES)  # also happens later, but then a crash could not be traced to its row
                return found
        except PassedOver:
            return _not_understood(row), [], (Unusable(f"message {row.id}", len(row.data), FATAL),)

    def _open(self, raw: Raw, row: MessageRow) -> _OpenedRow:
        found = opened(row)
        if isinstance(found, Rejected):
            size = len(row.data) if row.size is None else row.size
            return _not_understood(row), [], (Unusable(f"message {row.id}", size, f"rejected {found.reason}"),)
        calls = calls_in(found)
        content = content_of(raw.session_id, row, found, calls, reasoning=self._wanted.reasoning)
        if self._wanted.tool_outputs:
            content += self._whole_outputs(content, found)
        version = raw.found.row.version if raw.found is not None else None
        return said_of(row, found, calls, version), content, tuple(found.unusable)

    def _whole_outputs(self, content: list[Content], found: Opened) -> list[Content]:
        """Results that were too long for their rows. A path in a row is not to be trusted but for its last name."""
        whole = []
        for saved in saved_outputs(content, found):
            data = self._saved(os.path.basename(saved.name))
            if data is not None:
                whole.append(whole_output(saved, data.decode("utf-8", "replace")))
        return whole

    def _saved(self, name: str) -> bytes | None:
        """A database may be kept elsewhere; what is too long for it never is."""
        outputs = (os.path.join(folder, TOOL_OUTPUTS) for folder in self._folders)
        found = (small_file(os.path.join(folder, name), folder, _LARGEST_OUTPUT) for folder in outputs)
        return next((data for data in found if data is not None), None)


def _not_understood(row: MessageRow) -> Said:
    return Said(row.id, row.created, has_parts=bool(row.parts))


def _quiet_since(row: MessageRow, now: float, wall_ms: int) -> float:
    newest = max([row.updated, *(part.updated for part in row.parts)])
    return now - max(0, wall_ms - newest) / 1000
