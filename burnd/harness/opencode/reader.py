"""Decodes the rows of a session to messages and content; those of a suspect session in a child process."""

from __future__ import annotations

import os
import pickle
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import NamedTuple

import msgspec
import structlog

from burnd.harness.opencode.database import Fetched, StoredSession, version_of
from burnd.harness.opencode.messages import (
    OpencodeMessage,
    calls_of,
    content_of,
    message_of,
    saved_outputs,
    whole_output,
)
from burnd.harness.opencode.product import TOOL_OUTPUTS
from burnd.harness.opencode.rows import (
    DecodedMessage,
    MessageRow,
    MessageVersion,
    UnusableRow,
    decode_message,
    unusable_message,
)
from burnd.harness.opencode.session import SOURCE, MessageReading, SessionState
from burnd.harness.product import absolute
from burnd.ledger.content import INLINE_BYTES, EncodedRecord, encode_records
from burnd.logfiles.scanner import small_file
from burnd.logfiles.tail import FATAL
from burnd.recording.child_process import ChildProcess, try_suspect
from burnd.recording.crash_guard import CrashGuard, Guard, Item
from burnd.records import Content
from burnd.records.foreign_json import Rejected
from burnd.settings.config import Settings

_LARGEST_OUTPUT = 64 << 20
_PATTERN = frozenset("*?[")
log = structlog.get_logger()


class ReadOptions(msgspec.Struct, frozen=True):
    """Which sessions to read, and how much. Folders include all below them, or are patterns."""

    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    archived: bool = True
    reasoning: bool = True
    tool_outputs: bool = False

    def includes(self, stored: StoredSession) -> bool:
        """Whether to read a session; `exclude` wins."""
        if stored.archived is not None and not self.archived:
            return False
        folder = stored.row.directory or ""
        if any(_covers(pattern, folder) for pattern in self.exclude):
            return False
        return not self.include or any(_covers(pattern, folder) for pattern in self.include)


def read_options(settings: Settings, user_home: str) -> ReadOptions:
    values = settings.values
    return ReadOptions(
        include=tuple(os.path.normpath(absolute(name, user_home)) for name in values["opencode.include"]),
        exclude=tuple(os.path.normpath(absolute(name, user_home)) for name in values["opencode.exclude"]),
        archived=values["opencode.archived"],
        reasoning=values["opencode.reasoning"],
        tool_outputs=values["opencode.include_tool_outputs"],
    )


def _covers(pattern: str, folder: str) -> bool:
    below = pattern.rstrip("/") + "/"
    if _PATTERN.isdisjoint(pattern):
        return folder == pattern or folder.startswith(below)
    return fnmatchcase(folder, pattern) or fnmatchcase(folder, below + "*")


class SessionRows(NamedTuple):
    """The rows of a session to decode. Without `stored` the session is gone or excluded now."""

    session_id: str
    stored: StoredSession | None = None
    sequence: int = -1
    versions: Sequence[MessageVersion] = ()
    fetched: Fetched = Fetched([])
    is_partial: bool = False
    is_unchanged: bool = False
    failure: str = ""


class DecodeRequest(NamedTuple):
    session_id: str
    version: str | None
    rows: list[MessageRow]


class DecodedRow(NamedTuple):
    message: OpencodeMessage
    content: list[EncodedRecord]
    unusable: tuple[UnusableRow, ...]


class RowDecoder:
    """Decodes rows, and prepares content for the disk, here and in the child process."""

    def __init__(self, folders: Sequence[str], options: ReadOptions, inline_bytes: int = INLINE_BYTES) -> None:
        self._folders, self._options, self._inline_bytes = folders, options, inline_bytes

    def __call__(self, request: DecodeRequest, guard: Guard) -> bytes:
        return pickle.dumps(self.decode(request, guard))

    def decode(self, request: DecodeRequest, guard: Guard) -> dict[str, DecodedRow]:
        decoded: dict[str, DecodedRow] = {}

        def skip(row: MessageRow) -> None:
            decoded[row.id] = _undecoded(row, FATAL)

        for row in guard.each(request.session_id, request.rows, lambda row: row.id, skip):
            decoded[row.id] = self._decode(request, row)
        return decoded

    def _decode(self, request: DecodeRequest, row: MessageRow) -> DecodedRow:
        decoded = decode_message(row)
        if isinstance(decoded, Rejected):
            return _undecoded(row, f"rejected {decoded.reason}")
        calls = calls_of(decoded)
        content = content_of(request.session_id, row, decoded, calls, reasoning=self._options.reasoning)
        if self._options.tool_outputs:
            content += self._whole_outputs(content, decoded)
        message = message_of(row, decoded, calls, request.version)
        return DecodedRow(message, encode_records(content, self._inline_bytes), tuple(decoded.unusable))

    def _whole_outputs(self, content: Sequence[Content], decoded: DecodedMessage) -> list[Content]:
        """Outputs that were too long for their rows. Only the file name in a row is trusted, not its folder."""
        folders = [os.path.join(folder, TOOL_OUTPUTS) for folder in self._folders]
        whole = []
        for path, record in saved_outputs(content, decoded):
            name = os.path.basename(path)
            files = (small_file(os.path.join(folder, name), folder, _LARGEST_OUTPUT) for folder in folders)
            data = next((data for data in files if data is not None), None)
            if data is not None:
                whole.append(whole_output(record, data.decode("utf-8", "replace")))
        return whole


def _undecoded(row: MessageRow, reason: str) -> DecodedRow:
    message = OpencodeMessage(row.id, row.created, has_parts=bool(row.parts))
    return DecodedRow(message, [], (unusable_message(row, reason),))


class SessionReader:
    """Decodes the rows of sessions, those of a suspect session in a child process."""

    def __init__(self, folders: Sequence[str], options: ReadOptions, guard: CrashGuard, inline_bytes: int) -> None:
        self._guard = guard
        self._decoder = RowDecoder(folders, options, inline_bytes)
        self._child = ChildProcess(RowDecoder, folders, options, inline_bytes, is_trial=True)

    def decode(self, rows: SessionRows, state: SessionState, now: float, wall_ms: int) -> dict[str, MessageReading]:
        readings: dict[str, MessageReading] = {}
        changed: dict[str, tuple[MessageRow, int, float]] = {}
        for row in rows.fetched.rows:
            digest = hash((row.created, row.data, *[part.data for part in row.parts]))
            quiet_since = now
            if state.is_old:  # rows from before: their own times say how long they have been quiet
                newest = max([row.updated, *[part.updated for part in row.parts]])
                quiet_since = now - max(0, wall_ms - newest) / 1000
            if (message := state.unchanged(row.id, digest)) is None:
                changed[row.id] = (row, digest, quiet_since)
            else:
                readings[row.id] = MessageReading(version_of(row), message, [], (), digest, quiet_since)
        if changed:
            version = rows.stored.row.version if rows.stored is not None else None
            request = DecodeRequest(rows.session_id, version, [row for row, _, _ in changed.values()])
            for name, (message, content, unusable) in self._decode_guarded(request, wall_ms).items():
                row, digest, quiet_since = changed[name]
                readings[name] = MessageReading(version_of(row), message, content, unusable, digest, quiet_since)
        return readings

    def close(self) -> None:
        self._child.close()

    def _decode_guarded(self, request: DecodeRequest, wall_ms: int) -> Mapping[str, DecodedRow]:
        """Raises OSError if the child was killed: the session is tried again later."""
        if request.session_id not in self._guard.suspected:
            return self._decoder.decode(request, self._guard)

        def on_crash(item: Item, count: int) -> None:
            log.error("source.reader_crashed", source=SOURCE, item=item, count=count)

        answer = try_suspect(self._guard, self._child, request.session_id, request, wall_ms, on_crash)
        decoded: dict[str, DecodedRow] = pickle.loads(answer)  # noqa: S301 - made by our own child
        return decoded
