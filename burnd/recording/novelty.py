"""Tells what of a batch is new: a source that is read again says everything again, and the ledger says it once."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import msgspec

from burnd.index.apply import fact_key
from burnd.index.change import Known
from burnd.index.store import IndexStore
from burnd.ledger.blobs import sha_of
from burnd.ledger.content import Placed
from burnd.ledger.fold import Key, identity, outranks
from burnd.ledger.journal import Journal
from burnd.ledger.shelving import Shelved
from burnd.recording.batch import SeenSession
from burnd.recording.known import Project, known_projects
from burnd.recording.stores import Stores
from burnd.records import Compaction, Event, Request, Session, Turn
from burnd.records.codec import Entry, Written, decode_content, encode
from burnd.records.content import BlobRef, Content, Label

BlockKey = tuple[str, str, str, int, int]
Gist = tuple[str, str, str | None, str | None]  # a block's role, kind, hash of its text, call
_Place = tuple[int, int]
_NO_POSITION = -1


@dataclass
class Novel:
    """Entries that say something new: their lines, themselves as read back, their digests."""

    lines: list[bytes] = field(default_factory=list)
    entries: list[Entry] = field(default_factory=list)
    digests: list[int] = field(default_factory=list)
    closed: list[Turn] = field(default_factory=list)

    def add(self, line: bytes, entry: Entry, said: int) -> None:
        self.lines.append(line)
        self.entries.append(entry)
        self.digests.append(said)


async def new_sessions(index: IndexStore, seen: set[SeenSession]) -> list[Session]:
    """A record for each session the ledger has none of, or none with this project.

    Should two logs of one session have begun in different folders, the first in the order of their names counts.
    """
    told: dict[str, Session] = {}
    for session_id, source, project in sorted(seen, key=lambda one: (one.session_id, one.project or "", one.source)):
        if session_id not in told or told[session_id].project is None:
            told[session_id] = Session(session_id=session_id, source=source, project=project)
    known = await _known(index, list(told.values()))
    projects = await known_projects(index, told)
    return [
        record
        for record in told.values()
        if identity(record) not in known or _is_news(record.project, projects.get(record.session_id))
    ]


def _is_news(told: str | None, known: Project | None) -> bool:
    return told is not None and (known is None or told < known.folder)


class NotKept(NamedTuple):
    """Content that does not stand in the sidecars already, and those of its blocks that stand there otherwise."""

    shelved: list[Shelved]
    told_anew: set[BlockKey]

    def noted(self, placed: list[Placed]) -> list[Placed]:
        """What was placed, with a note where it takes the place of another line."""
        if not self.told_anew:
            return placed
        return [item._replace(anew=True) if block_of(item.label) in self.told_anew else item for item in placed]


async def not_kept(stores: Stores, shelved: list[Shelved]) -> NotKept:
    places = await stores.index.known_content(
        sorted({(item.label.session_id, item.label.message_id) for item in shelved})
    )
    known = await _lines_kept(stores, shelved, places)
    older = await _older_blocks(stores, places)
    new = NotKept([], set())
    for item in shelved:
        key = block_of(item.label)
        if _is_among(older, item):
            continue
        before = known.get(key)
        if before != item.line:
            known[key] = item.line
            new.shelved.append(item)
            if before is not None:
                new.told_anew.add(key)
    return new


async def _older_blocks(stores: Stores, places: Mapping[BlockKey, _Place]) -> dict[tuple[str, str], set[Gist]]:
    """The blocks of each (session, message) that sidecars have in the older ledger's format.

    Such a block is numbered by its position, which the log does not have, so it is compared by content.
    """
    by_session: defaultdict[str, list[_Place]] = defaultdict(list)
    for (session_id, _, _, n, b), place in places.items():
        if n == 0 and b == place[0]:
            by_session[session_id].append(place)
    found: defaultdict[tuple[str, str], set[Gist]] = defaultdict(set)
    for session_id, some in by_session.items():
        for line in await stores.in_thread(stores.content.lines_at, session_id, some):
            record = decode_content(line, position=_NO_POSITION)
            if isinstance(record, Content) and record.b == _NO_POSITION:
                found[session_id, record.message_id].add(_gist(record))
    return found


def _is_among(older: Mapping[tuple[str, str], set[Gist]], item: Shelved) -> bool:
    blocks = older.get((item.label.session_id, item.label.message_id))
    record = decode_content(item.line) if blocks else None
    return blocks is not None and isinstance(record, Content) and _gist(record) in blocks


def _gist(record: Content) -> Gist:
    """A summary of a block for comparison, whether its text is inline or a blob."""
    text = record.text.blob if isinstance(record.text, BlobRef) else record.text and sha_of(record.text.encode())
    call = record.tool_use.id if record.tool_use else record.tool_result.tool_use_id if record.tool_result else None
    return record.role, record.kind, text, call


async def _lines_kept(
    stores: Stores, shelved: list[Shelved], places: Mapping[BlockKey, _Place]
) -> dict[BlockKey, bytes]:
    """The lines in the sidecars of blocks that are told again, which few are."""
    if not places:
        return {}
    by_session: defaultdict[str, list[BlockKey]] = defaultdict(list)
    for key in {block_of(item.label) for item in shelved} & places.keys():
        by_session[key[0]].append(key)
    kept: dict[BlockKey, bytes] = {}
    for session_id, keys in by_session.items():
        lines = await stores.in_thread(stores.content.lines_at, session_id, [places[key] for key in keys])
        kept |= zip(keys, lines, strict=True)
    return kept


def block_of(label: Label) -> BlockKey:
    return label.session_id, label.rail, label.message_id, label.n, label.b


async def not_said(index: IndexStore, journal: Journal, items: Sequence[Written]) -> Novel:
    """The entries that say something new."""
    known = await _known(index, [item.entry for item in items])
    novel = Novel()
    now_said: dict[Key, Entry] = {}
    for line, entry, said in items:
        key = identity(entry)
        before = known.get(key)
        if before is None and isinstance(entry, Request) and entry.withdrawn:
            continue  # there is no recorded request to withdraw
        if isinstance(entry, Compaction | Event | Request) and before is not None:
            other = now_said.get(key) or before.entry_in(journal)
            if other is not None and outranks(other, entry):
                continue
        if before is not None and before.rev and before.digest == said:
            if before.open and isinstance(entry, Turn):
                novel.closed.append(entry)
            continue
        rev = before.rev + 1 if before else 1
        if isinstance(entry, Turn) and entry.rev != rev:
            entry = msgspec.structs.replace(entry, rev=rev)
            line = encode(entry)
        novel.add(line, entry, said)
        now_said[key] = entry
        known[key] = Known(0, rev, said, None, None)
    return novel


async def _known(index: IndexStore, entries: Sequence[Entry]) -> dict[Key, Known]:
    """What the ledger has already said about the same things."""
    keys = {identity(entry) for entry in entries}
    facts = {(key[0], fact_key(key)): key for key in keys if key[0] != "turn"}
    known: dict[Key, Known] = {facts[fact]: row for fact, row in (await index.known_facts(list(facts))).items()}
    turns = await index.known_turns([(key[1], key[2]) for key in keys if key[0] == "turn"])
    return known | {("turn", *key): row for key, row in turns.items()}
