"""Drops what ledger and sidecars already have, since a log that is read again repeats it."""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec

from burnd.index.apply import fact_key
from burnd.index.change import IndexedRecord
from burnd.index.store import known_content, known_facts, known_turns
from burnd.ledger.blobs import sha_of
from burnd.ledger.content import ContentStore, EncodedRecord
from burnd.ledger.journal import Journal, Key, identity, outranks
from burnd.recording.candidate import SeenSession
from burnd.recording.turn_builder import projects_of
from burnd.records import Occurrence, Overhead, Request, Session, Turn
from burnd.records.codec import EncodedEntry, Entry, decode_content, encode
from burnd.records.content import BlobRef, Content, Label

BlockKey = tuple[str, str, str, int, int]
_Gist = tuple[str, str, str | None, str | None]  # a block's role, kind, hash of its text, call
_Span = tuple[int, int]  # position and length of a line
_NO_POSITION = -1


def new_sessions(db: sqlite3.Connection, seen: set[SeenSession]) -> list[Session]:
    """Builds a record for each session that has none, or none with this project.

    If logs of a session began in different folders, the first in alphabetical order counts.
    """
    records: dict[str, Session] = {}
    for session_id, source, project in sorted(seen, key=lambda one: (one.session_id, one.project or "", one.source)):
        if session_id not in records or records[session_id].project is None:
            records[session_id] = Session(session_id=session_id, source=source, project=project)
    recorded = _recorded(db, list(records.values()))
    projects = projects_of(db, records)
    new: list[Session] = []
    for record in records.values():
        before = projects.get(record.session_id)
        has_new_project = record.project is not None and (before is None or record.project < before.folder)
        if has_new_project or identity(record) not in recorded:
            new.append(record)
    return new


class NewContent(NamedTuple):
    """Content that the sidecars lack, and its blocks that they have with another line."""

    encoded_records: list[EncodedRecord]
    replacing: set[BlockKey]


def new_content(db: sqlite3.Connection, content: ContentStore, encoded_records: list[EncodedRecord]) -> NewContent:
    blocks = [block_of(item.label) for item in encoded_records]
    spans = known_content(db, {(block[0], block[2]) for block in blocks})
    if not spans and len(set(blocks)) == len(blocks):  # most of a backlog
        return NewContent(encoded_records, set())
    lines = _stored_lines(content, encoded_records, spans) if spans else {}
    older = _older_blocks(content, spans) if spans else {}
    new = NewContent([], set())
    for item, key in zip(encoded_records, blocks, strict=True):
        if older and _is_among(older, item):
            continue
        before = lines.get(key)
        if before != item.line:
            lines[key] = item.line
            new.encoded_records.append(item)
            if before is not None:
                new.replacing.add(key)
    return new


def _stored_lines(
    content: ContentStore, encoded_records: list[EncodedRecord], spans: Mapping[BlockKey, _Span]
) -> dict[BlockKey, bytes]:
    by_session: defaultdict[str, list[BlockKey]] = defaultdict(list)
    for key in {block_of(item.label) for item in encoded_records} & spans.keys():
        by_session[key[0]].append(key)
    stored: dict[BlockKey, bytes] = {}
    for session_id, keys in by_session.items():
        lines = content.lines_at(session_id, [spans[key] for key in keys])
        stored |= zip(keys, lines, strict=True)
    return stored


def _older_blocks(content: ContentStore, spans: Mapping[BlockKey, _Span]) -> dict[tuple[str, str], set[_Gist]]:
    """Reads the blocks of each (session, message) in the older ledger's format.

    These are numbered by position, which the log does not have, so they are compared by content.
    """
    by_session: defaultdict[str, list[_Span]] = defaultdict(list)
    for (session_id, _, _, n, b), span in spans.items():
        if n == 0 and b == span[0]:
            by_session[session_id].append(span)
    blocks: defaultdict[tuple[str, str], set[_Gist]] = defaultdict(set)
    for session_id, some in by_session.items():
        for line in content.lines_at(session_id, some):
            record = decode_content(line, position=_NO_POSITION)
            if isinstance(record, Content) and record.b == _NO_POSITION:
                blocks[session_id, record.message_id].add(_gist(record))
    return blocks


def _is_among(older: Mapping[tuple[str, str], set[_Gist]], item: EncodedRecord) -> bool:
    blocks = older.get((item.label.session_id, item.label.message_id))
    record = decode_content(item.line) if blocks else None
    return blocks is not None and isinstance(record, Content) and _gist(record) in blocks


def _gist(record: Content) -> _Gist:
    """Summarizes a block for comparison, whether its text is inline or a blob."""
    text = record.text.blob if isinstance(record.text, BlobRef) else record.text and sha_of(record.text.encode())
    call = record.tool_use.id if record.tool_use else record.tool_result.tool_use_id if record.tool_result else None
    return record.role, record.kind, text, call


def block_of(label: Label) -> BlockKey:
    return label.session_id, label.rail, label.message_id, label.n, label.b


def new_entries(
    db: sqlite3.Connection,
    journal: Journal,
    items: Sequence[EncodedEntry],
    messages: Mapping[tuple[str, str], IndexedRecord | None],
) -> tuple[list[EncodedEntry], list[Turn]]:
    """Drops entries that the ledger has, and gives turns the next revision.

    Also returns open turns of the index that the ledger has in the same state. `messages` were looked up before.
    """
    recorded = _recorded(db, [item.entry for item in items], messages)
    new: list[EncodedEntry] = []
    closed: list[Turn] = []
    latest: dict[Key, Entry] = {}
    for line, entry, digest in items:
        key = identity(entry)
        before = recorded.get(key)
        if before is None and isinstance(entry, Request) and entry.withdrawn:
            continue  # no recorded request to withdraw
        if isinstance(entry, Occurrence) and before is not None:
            other = latest.get(key) or before.entry_in(journal)
            if other is not None and outranks(other, entry):
                continue
        if before is not None and before.rev and before.digest == digest:
            if before.open and isinstance(entry, Turn):
                closed.append(entry)
            continue
        rev = before.rev + 1 if before else 1
        if isinstance(entry, Turn) and entry.rev != rev:
            entry = msgspec.structs.replace(entry, rev=rev)
            line = encode(entry)
        new.append(EncodedEntry(line, entry, digest))
        latest[key] = entry
        recorded[key] = IndexedRecord(0, rev, digest, None, None)
    return new, closed


def largest_overheads(db: sqlite3.Connection, journal: Journal, overheads: Sequence[Overhead]) -> list[Overhead]:
    """Keeps the largest of running totals with the same time: a client writes two when it ends."""
    largest: dict[Key, Overhead] = {}
    for overhead in overheads:
        key = identity(overhead)
        before: Entry | None = largest.get(key)
        if before is None:
            fact = (key[0], fact_key(key))
            recorded = known_facts(db, [fact]).get(fact)
            before = recorded.entry_in(journal) if recorded is not None else None
        if not isinstance(before, Overhead) or overhead_size(before) < overhead_size(overhead):
            largest[key] = overhead
    return list(largest.values())


def overhead_size(overhead: Overhead) -> int:
    return sum(sum(getattr(usage, name) for name in usage.__struct_fields__) for usage in overhead.models.values())


def _recorded(
    db: sqlite3.Connection,
    entries: Sequence[Entry],
    messages: Mapping[tuple[str, str], IndexedRecord | None] = {},  # that were looked up before
) -> dict[Key, IndexedRecord]:
    turns = {(entry.source, entry.message_id) for entry in entries if isinstance(entry, Turn)}
    recorded: dict[Key, IndexedRecord] = {
        ("turn", *key): row for key in turns & messages.keys() if (row := messages[key]) is not None
    }
    recorded |= {("turn", *key): row for key, row in known_turns(db, list(turns - messages.keys())).items()}
    facts = {(key[0], fact_key(key)): key for one in entries if not isinstance(one, Turn) and (key := identity(one))}
    if not facts:
        return recorded
    return recorded | {facts[fact]: row for fact, row in known_facts(db, list(facts)).items()}
