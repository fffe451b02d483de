"""Decides which text of a batch may be stored, by the session that owns each message, and what stored text must go.

A fork, a branch or a copy repeats messages of another session under the same ids. Text that its own session must not
keep is withheld in every session, whichever log is read first: ids of such messages are in the ledger, as hashes.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Final, NamedTuple

import anyio.to_thread

from burnd.index.schema import MESSAGES_BY_ID
from burnd.index.store import IndexStore
from burnd.ledger.keeping import Keeping
from burnd.ledger.shelving import Shelved
from burnd.readers.codex_memory import born_at
from burnd.recording.batch import Batch, CameFrom
from burnd.records import Content, Origin, Session, Withheld
from burnd.records.codec import Entry, hash_of
from burnd.records.content import MAIN, NO_RAIL, TITLE
from burnd.records.times import index_ms, to_iso

HELD: Final = "held"  # the cursors that name sessions of which text is held back
HELD_MS: Final = 600_000  # for how long: then it counts as the session's own
OPENCODE: Final = "opencode"
CODEX: Final = "codex"
_SHARED: Final = frozenset({"claude-code", CODEX, OPENCODE})  # whose ids, or times, mean the same in every session
_SOURCES: Final = ",".join(f"'{source}'" for source in sorted(_SHARED))
_UUID: Final = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_UNIQUE_LENGTH: Final = 8
_MANY: Final = 1000  # messages: more are worth a thread
_EVERYWHERE: Final = (
    "WITH wanted(id) AS ({keys}) SELECT s.session_id, n.name, m.message_id, min(m.ts) FROM wanted w "
    f"CROSS JOIN {MESSAGES_BY_ID} ON substr(m.message_id, -5) = substr(w.id, -5) AND +m.message_id = w.id "
    f"JOIN sessions s ON s.id = m.session JOIN names n ON n.id = s.source AND n.name IN ({_SOURCES}) "
    "GROUP BY s.id, m.message_id"
)
_STORED: Final = (
    "WITH wanted(session_id) AS ({keys}) SELECT s.session_id, n.name, m.rail, m.message_id, min(m.ts) FROM wanted w "
    "CROSS JOIN sessions s ON s.session_id = w.session_id JOIN messages m ON m.session = s.id "
    f"JOIN names n ON n.id = s.source AND n.name IN ({_SOURCES}) "
    f"WHERE m.rail <> '{NO_RAIL}' GROUP BY s.id, m.rail, m.message_id"
)
_WITHHELD: Final = (
    "WITH wanted(id) AS ({keys}) SELECT w.id, s.session_id, h.by_mode FROM wanted w "
    "CROSS JOIN withheld h ON h.id = w.id JOIN sessions s ON s.id = h.session"
)
_COPYING: Final = (
    "SELECT DISTINCT s.session_id FROM sessions s CROSS JOIN facts f ON f.session = s.id AND f.kind = 'copy' "
    f"WHERE s.session_id IN ({{keys}}) AND f.rail = '{MAIN}'"
)
_CODEX_FORKS: Final = (
    "WITH wanted(origin) AS ({keys}) SELECT s.session_id, w.origin FROM wanted w "
    "CROSS JOIN origins o ON o.origin = w.origin JOIN sessions s ON s.id = o.session "
    f"JOIN names n ON n.id = s.source AND n.name = '{CODEX}'"
)
# What a fork of Codex repeats is older than its thread, or stands before the last message that another session owns.
_CODEX_COPIES: Final = (
    "WITH wanted(session_id, born) AS ({keys}) SELECT DISTINCT m.message_id FROM wanted w "
    "CROSS JOIN sessions s ON s.session_id = w.session_id "
    f"JOIN names n ON n.id = s.source AND n.name = '{CODEX}' JOIN messages m ON m.session = s.id AND m.rail = '{MAIN}' "
    "AND (m.ts < w.born OR m.ts <= (SELECT max(f.ts) FROM facts f WHERE f.session = s.id AND f.kind = 'copy'))"
)
_WITH_TEXT: Final = "SELECT session_id FROM sessions WHERE content_bytes > 0 AND session_id IN ({keys})"
_TIMES: Final = "SELECT session_id, created_at, updated_at FROM sessions WHERE session_id IN ({keys})"
# Of each copy that a session holds, when it was made and which session owns the message.
_COPIES: Final = (
    "WITH wanted(session_id) AS ({keys}) SELECT w.session_id, f.ts, o.session_id FROM wanted w "
    "CROSS JOIN sessions s ON s.session_id = w.session_id "
    f"CROSS JOIN facts f ON f.session = s.id AND f.kind = 'copy' AND f.rail = '{MAIN}' "
    "LEFT JOIN names n ON n.name = json_extract(f.key, '$[0]') "
    "LEFT JOIN turns t ON t.source = n.id AND t.message_id = json_extract(f.key, '$[1]') "
    "LEFT JOIN sessions o ON o.id = t.session"
)


class Spoken(NamedTuple):
    """A message of a session: when, and a hash of what identifies it in every session that repeats it.

    One that `is_copy` for certain is not the session's own. One that is not said to be may be a copy all the same,
    where copies have the same id (`may_be_copy`).
    """

    session_id: str
    rail: str
    message_id: str
    ts: int
    key: int
    may_be_copy: bool = True
    is_copy: bool = False


class Ruling(NamedTuple):
    """Text that may be stored, what the ledger is to know first, and the sessions whose stored text must go."""

    shelved: list[Shelved]
    entries: list[Entry]
    erase: set[str]
    held: frozenset[str] = frozenset()  # sessions whose text is held back for now


class TextPolicy:
    """Rules on one batch at a time. Used only by the one writer."""

    def __init__(self, index: IndexStore, keeping: Keeping) -> None:
        self.held: dict[str, int] = {}  # sessions of which text is held back, since when; 0 where it is not any more
        self._index = index
        self._keeping = keeping

    async def rule(
        self,
        batch: Batch,
        shelved: Sequence[Shelved],
        origins: Iterable[CameFrom],
        copiers: AbstractSet[str],
        now_ms: int,
    ) -> Ruling:
        """What may be stored of a batch.

        `origins` are the sessions that its sessions came out of; `copiers` those whose copies are known to be owned by
        another session.
        """
        changed = {
            entry.session_id
            for entry in batch.entries
            if isinstance(entry, Session) and entry.content_mode not in (None, "full")
        }
        work = _Work(self._index, self._keeping)
        for session_id, origin, at_ms in origins:
            self._keeping.came_from(session_id, origin)
            work.inherit(session_id, origin, at_ms)
            if batch.source == OPENCODE and self._keeping.is_pruned(origin):
                work.note_origin(session_id, origin)  # a fork, whose title is told before its messages
        if not changed and not work.entries and not self.has_limits() and self._keeping.mode == "full":
            return Ruling([item for item in shelved if self._allows(item)], [], set())
        spoken = _spoken_in(batch, shelved)
        await work.run(spoken, changed | work.changed)
        barred = work.barred(spoken.values())
        if batch.source == CODEX:  # whose lines have no ids: what a fork repeats is known by its times
            repeated = {name for name in batch.copied if self._keeping.forks_pruned(name[0])}
            barred |= repeated
            for session_id, origin in {(name[0], one) for name in repeated for one in self._keeping.origins(name[0])}:
                work.note_origin(session_id, origin)
        if self._keeping.mode != "full":
            barred |= batch.copied  # they have the daemon's mode, whatever was asked for the session that repeats them
        kept = [
            item
            for item in shelved
            if self._allows(item) and (item.label.session_id, item.label.message_id) not in barred
        ]
        held = await self._without_origin(batch, kept, copiers)
        for session_id in held:
            self.held.setdefault(session_id, now_ms)
        kept = [item for item in kept if not self.held.get(item.label.session_id)]
        return Ruling(kept, work.entries, await self._with_text(work.erase), held)

    async def released(self, now_ms: int) -> list[str]:
        """Sessions whose text is not held back any more: its origin is known by now, or was not found in time."""
        waiting = [session_id for session_id, since in self.held.items() if since]
        unknown = await self._unknown(set(waiting), frozenset()) if waiting else set()
        done = [one for one in waiting if one not in unknown or now_ms - self.held[one] > HELD_MS]
        self.held |= dict.fromkeys(done, 0)
        return done

    async def _without_origin(self, batch: Batch, kept: Iterable[Shelved], copiers: AbstractSet[str]) -> frozenset[str]:
        """The sessions whose copied text may be a private session's: nothing tells yet which session it is of."""
        if not batch.copied or batch.source == OPENCODE:
            return frozenset()
        names = ((item.label.session_id, item.label.message_id) for item in kept)
        sessions = {name[0] for name in names if name in batch.copied}
        return frozenset(one for one in await self._unknown(sessions, copiers) if self.held.get(one, 1))

    async def _unknown(self, sessions: set[str], copiers: AbstractSet[str]) -> set[str]:
        keeping = self._keeping
        asked = [(one,) for one in sorted(sessions - copiers) if not keeping.is_private(one)]
        found = {one for (one,) in asked} - {row[0] for row in await self._index.keyed(_COPYING, asked)}
        named = {one: keeping.origins(one) for one in found}
        origins = sorted({(origin,) for some in named.values() for origin in some})
        known = {row[0] for row in await self._index.keyed(_TIMES, origins)}
        has_unread = keeping.has_unread()
        return {one for one, some in named.items() if (not some <= known if some else has_unread)}

    async def pruned(self, session_ids: Sequence[str], going: AbstractSet[str]) -> Ruling:
        """What the ledger is to know before all text of these sessions goes, and which sessions repeat some of it.

        What a session only repeats of another is not its own: that stays where it came from. The text of all that are
        `going` goes in any case.
        """
        copies = await self._index.keyed(_COPIES, [(session_id,) for session_id in session_ids])
        work = _Work(self._index, self._keeping)
        held = await stored(self._index, session_ids)
        holders = await work.holders(held)
        own, repeating = await anyio.to_thread.run_sync(_owned, held, copies, holders, going)
        asked = [(session_id,) for session_id in session_ids]
        known = [*await opencode_copies(self._index, session_ids), *await self._index.keyed(_CODEX_FORKS, asked)]
        repeating |= {(copier, origin) for copier, origin in known if copier not in going}
        for copier, origin in sorted(repeating):
            work.note_origin(copier, origin)
        for session_id, keys in own.items():
            work.entries += Withheld.of(session_id, keys, by_mode=False)
        return Ruling([], work.entries, {copier for copier, _ in repeating})

    async def predicate(self, session_id: str) -> Callable[[Content], bool]:
        """Tells of each stored record of a session whether it may stay."""
        keeping = self._keeping
        spoken = await stored(self._index, [session_id])
        work = _Work(self._index, keeping)
        await work.look_up([one.key for one in spoken])
        barred = {message_id for _, message_id in work.barred(spoken)}
        if keeping.forks_pruned(session_id):
            asked = [(session_id, born_at(session_id) or 0)]
            barred |= {message_id for (message_id,) in await self._index.keyed(_CODEX_COPIES, asked)}
        before = keeping.allowed_before(session_id)
        titles = keeping.keeps_titles(session_id)

        def keeps(record: Content) -> bool:
            # A title that stands before every line has no time.
            if before is not None and (index_ms(record.ts) >= before or not index_ms(record.ts)):
                return False
            return titles if record.message_id.startswith(TITLE) else record.message_id not in barred

        return keeps

    async def doubtful(self) -> set[str]:
        """Every session whose stored text may hold something that must go: for an index that was made anew."""
        keeping = self._keeping
        if not self.has_limits():
            return set()
        private = set(keeping.private_sessions())
        found = private | keeping.children(private)
        if keeping.has_withheld:
            rows = await self._index.rows("SELECT s.session_id FROM origins o JOIN sessions s ON s.id = o.session")
            found |= {session_id for (session_id,) in rows}
        return await self._with_text(found)

    async def times(self, session_id: str) -> Session | None:
        """The record that keeps a session's times when text that told them goes."""
        for _, created, updated in await self._index.keyed(_TIMES, [(session_id,)]):
            if created is not None and updated is not None:
                return Session(session_id=session_id, source="", created_at=to_iso(created), updated_at=to_iso(updated))
        return None

    def has_limits(self) -> bool:
        """Whether any text is to be kept out of content at all."""
        return self._keeping.has_withheld or next(self._keeping.private_sessions(), None) is not None

    def _allows(self, item: Shelved) -> bool:
        label = item.label
        if label.rail == NO_RAIL and not self._keeping.keeps_titles(label.session_id):
            return False
        return self._keeping.keeps(label.session_id, label.ts_ms)

    async def _with_text(self, session_ids: Iterable[str]) -> set[str]:
        found = await self._index.keyed(_WITH_TEXT, [(session_id,) for session_id in sorted(session_ids)])
        return {session_id for (session_id,) in found}


class _Work:
    """One pass over messages: who withholds which, and which sessions become private by that."""

    def __init__(self, index: IndexStore, keeping: Keeping) -> None:
        self.entries: list[Entry] = []
        self.changed: set[str] = set()
        self.erase: set[str] = set()
        self._index = index
        self._keeping = keeping
        self._withheld: dict[int, dict[str, bool]] = {}
        self._noted: set[tuple[str, str]] = set()

    def inherit(self, session_id: str, origin: str, at_ms: int) -> None:
        """A session came out of another: it has that one's mode where that is stricter."""
        record = self._keeping.inherited(session_id, origin, at_ms)
        if record is not None:
            self._keeping.learn(record)
            self.entries.append(record)
            if record.content_mode is not None:
                self.changed.add(session_id)

    def note_origin(self, session_id: str, origin: str) -> None:
        """A session repeats messages of another that are withheld, and need not have its mode."""
        if (session_id, origin) not in self._noted:
            self._noted.add((session_id, origin))
            if not self._keeping.is_private(session_id):
                record = Origin(session_id=session_id, origin=origin)
                self._keeping.learn(record)
                self.entries.append(record)

    async def run(self, spoken: Mapping[tuple[str, str], Spoken], changed: set[str]) -> None:
        """Withholds what private sessions say, and spreads their mode to all sessions that repeat any of it."""
        await self.look_up([one.key for one in spoken.values() if one.may_be_copy])
        every, fresh = list(spoken.values()), set(changed)
        while True:
            for one in every:
                self._meet(one)
            fresh |= self.changed
            self.changed = set()
            if fresh:
                for copier, origin in await opencode_copies(self._index, sorted(fresh)):
                    self._keeping.came_from(copier, origin)
                await self._spread(fresh)
                fresh |= self.changed | self._keeping.children(fresh)
                self.changed = set()
                before = await stored(self._index, sorted(fresh))
                await self.look_up([one.key for one in before])
                every += before
                self.erase |= fresh
                fresh = set()
            if not await self._withhold(every) and not self.changed:
                return

    async def look_up(self, keys: Iterable[int]) -> None:
        """Learns which of these messages are withheld, and by which sessions."""
        wanted = sorted({key for key in keys if key not in self._withheld})
        if self._keeping.has_withheld and wanted:
            for key, session_id, by_mode in await self._index.keyed(_WITHHELD, [(key,) for key in wanted]):
                self._withheld.setdefault(key, {})[session_id] = bool(by_mode)

    def barred(self, spoken: Iterable[Spoken]) -> set[tuple[str, str]]:
        """The messages that another session withholds."""
        return {
            (one.session_id, one.message_id)
            for one in spoken
            if one.may_be_copy and any(owner != one.session_id for owner in self._withheld.get(one.key, ()))
        }

    async def holders(self, spoken: Iterable[Spoken]) -> defaultdict[int, set[str]]:
        """The sessions that have stored text of the same messages."""
        found: defaultdict[int, set[str]] = defaultdict(set)
        wanted = sorted({(one.message_id,) for one in spoken})
        for session_id, source, message_id, ts in await self._index.keyed(_EVERYWHERE, wanted):
            found[key_of(source, message_id, ts)].add(session_id)
        return found

    def _meet(self, one: Spoken) -> None:
        """A message that another session withholds was copied from there."""
        for owner, by_mode in self._withheld.get(one.key, {}).items() if one.may_be_copy else ():
            if owner != one.session_id:
                if by_mode:
                    self.inherit(one.session_id, owner, one.ts)
                self.note_origin(one.session_id, owner)

    async def _spread(self, changed: set[str]) -> None:
        """Gives their mode to sessions that were known before to come out of these."""
        children = sorted(self._keeping.children(changed))
        newest = {row[0]: row[2] or 0 for row in await self._index.keyed(_TIMES, [(child,) for child in children])}
        for _ in children:
            before = len(self.entries)
            for child in children:
                for origin in sorted(self._keeping.origins(child)):
                    self.inherit(child, origin, newest.get(child, 0))
            if len(self.entries) == before:
                return

    async def _withhold(self, every: Sequence[Spoken]) -> bool:
        """Notes what private sessions say as withheld; whether there was anything new."""
        new: defaultdict[str, dict[int, Spoken]] = defaultdict(dict)
        for one in every:
            owners = self._withheld.get(one.key, {})
            if one.is_copy or any(owners.values()) or not self._keeping.is_private(one.session_id):
                continue
            if one.ts >= self._keeping.since(one.session_id):
                new[one.session_id][one.key] = one
        if not new:
            return False
        for session_id, found in new.items():
            self.entries += Withheld.of(session_id, found, by_mode=True)
            for key in found:
                self._withheld.setdefault(key, {})[session_id] = True
        self._keeping.has_withheld = True
        own = [one for found in new.values() for one in found.values()]
        holders = await self.holders(own)
        for one in own:
            for holder in holders[one.key] - {one.session_id}:
                self.inherit(holder, one.session_id, one.ts)
                self.note_origin(holder, one.session_id)
                self.erase.add(holder)
        return True


def _owned(
    held: Iterable[Spoken],
    copies: Iterable[tuple[str, int, str | None]],
    holders: Mapping[int, set[str]],
    going: AbstractSet[str],
) -> tuple[dict[str, set[int]], set[tuple[str, str]]]:
    """The messages that are sessions' own, and (session, origin) for all other sessions that repeat any of them."""
    limits: dict[str, int] = {}
    upstream: defaultdict[str, set[str | None]] = defaultdict(set)
    for session_id, ts, owner in copies:
        limits[session_id] = max(limits.get(session_id, -1), ts)
        upstream[session_id].add(owner)
    own: defaultdict[str, set[int]] = defaultdict(set)
    repeating: set[tuple[str, str]] = set()
    for session_id, rail, _, ts, key, *_ in held:
        others = holders.get(key, set())
        if rail == MAIN and (ts <= limits.get(session_id, -1) or not others.isdisjoint(upstream[session_id])):
            continue
        own[session_id].add(key)
        repeating |= {(other, session_id) for other in others - going}
    return own, repeating


async def stored(index: IndexStore, session_ids: Sequence[str]) -> list[Spoken]:
    """The messages of these sessions that have text, titles aside."""
    rows = await index.keyed(_STORED, [(session_id,) for session_id in session_ids])

    def spoken() -> list[Spoken]:
        return [
            Spoken(session_id, rail, message_id, ts, key_of(source, message_id, ts))
            for session_id, source, rail, message_id, ts in rows
            if _is_shared(source, message_id)
        ]

    return await anyio.to_thread.run_sync(spoken) if len(rows) > _MANY else spoken()


def key_of(source: str, message_id: str, made_ms: int) -> int:
    """A hash of what a copy of a message has in common with it: its id, or the time it was made (opencode).

    An id that is too short to be unique counts together with the time.
    """
    if source == OPENCODE:
        return hash_of(f"{OPENCODE} {made_ms}".encode())
    return hash_of((message_id if len(message_id) >= _UNIQUE_LENGTH else f"{message_id} {made_ms}").encode())


def _is_shared(source: str, message_id: str) -> bool:
    """Whether an id means the same message in every session: one that was made from a place in a file does not."""
    return "@" not in message_id if source != CODEX else _UUID.search(message_id) is not None


def _spoken_in(batch: Batch, shelved: Sequence[Shelved]) -> dict[tuple[str, str], Spoken]:
    found: dict[tuple[str, str], Spoken] = {}
    for item in shelved if batch.source in _SHARED else ():
        label = item.label
        name = (label.session_id, label.message_id)
        if label.rail == NO_RAIL or not _is_shared(batch.source, label.message_id):
            continue
        made = batch.made_at.get(name)
        before = found.get(name)
        if before is None:
            is_copy = name in batch.copied
            key = key_of(batch.source, label.message_id, label.ts_ms if made is None else made)
            may_be_copy = batch.source != OPENCODE or is_copy
            found[name] = Spoken(label.session_id, label.rail, label.message_id, label.ts_ms, key, may_be_copy, is_copy)
        elif label.ts_ms > before.ts:
            found[name] = before._replace(ts=label.ts_ms)
    return found


async def opencode_copies(index: IndexStore, session_ids: Sequence[str]) -> list[tuple[str, str]]:
    """(session, origin) for sessions of opencode that hold copies of messages of these: made at the same times."""
    sql = (
        "WITH wanted(origin) AS ({keys}) SELECT DISTINCT s.session_id, w.origin FROM wanted w "
        "CROSS JOIN sessions o ON o.session_id = w.origin JOIN names n ON n.id = o.source AND n.name = 'opencode' "
        "JOIN turns t ON t.session = o.id JOIN facts f ON f.kind = 'copy' AND f.ts = t.ts "
        "JOIN sessions s ON s.id = f.session AND s.source = o.source"
    )
    found = await index.keyed(sql, [(session_id,) for session_id in session_ids])
    return [(session_id, origin) for session_id, origin in found]
