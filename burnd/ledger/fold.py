"""What a ledger comes down to: the newest revision of everything, and the stamps that fall on each turn."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from burnd.ledger.journal import Logged
from burnd.records import Compaction, Copy, Event, Overhead, Prune, Session, Stamp, Turn
from burnd.records.codec import Entry, Skipped, digest, kind_of
from burnd.records.times import to_ms

Key = tuple[str, ...]


def identity(entry: Entry) -> Key:
    """What makes two lines be about the same thing, so that the later one counts.

    Every stamp and quota counts for itself; only the very same one said twice, as by a retry, counts once.
    """
    if isinstance(entry, Turn):
        return ("turn", entry.source, entry.message_id)
    if isinstance(entry, Copy):
        return ("copy", entry.source, entry.message_id, entry.session_id, entry.rail_id)
    if isinstance(entry, Session | Prune):
        return (kind_of(entry), entry.session_id)
    if isinstance(entry, Overhead):
        return ("overhead", entry.source, entry.session_id)
    if isinstance(entry, Compaction | Event):
        # A fork repeats them with the same uuid; an id made from a place in a file means nothing elsewhere.
        where = (entry.session_id,) if entry.id.startswith("@") else ()
        return (kind_of(entry), entry.source, entry.id, *where)
    return (kind_of(entry), str(digest(entry)))


class Folded:
    """A ledger read from its beginning. Small ledgers and tests use it; the index does the same in SQL."""

    def __init__(self, logged: Iterable[Logged] = ()) -> None:
        self.latest: dict[Key, Entry] = {}
        self.stamps: list[tuple[int, int, Stamp]] = []
        self.skipped: Counter[str] = Counter()
        for item in logged:
            self.add(item)

    def add(self, item: Logged) -> None:
        entry = item.entry
        if isinstance(entry, Skipped):
            self.skipped[entry.reason] += 1
        elif isinstance(entry, Stamp):
            self.stamps.append((to_ms(entry.ts), item.position, entry))
        else:
            key = identity(entry)
            standing = self.latest[key] = merge(self.latest.get(key), entry)
            if isinstance(standing, Turn) and standing.copy_of is not None:
                del self.latest[key]

    @property
    def turns(self) -> dict[Key, Turn]:
        return {key: entry for key, entry in self.latest.items() if isinstance(entry, Turn)}

    @property
    def copies(self) -> dict[Key, Copy]:
        """Who else holds a message; a holder that came to own it is no copy any more."""
        return {k: e for k, e in self.latest.items() if isinstance(e, Copy) and not self._owns(e)}

    def tags(self, turn: Turn) -> dict[str, str]:
        """The stamps of one turn, folded: its session's ancestors first, so that its own keys win."""
        folded: dict[str, str] = {}
        for session_id in lineage(turn.session_id, self._parents()):
            own = session_id == turn.session_id
            matching = [s for s in self.stamps if matches(s[2], turn, session_id, own=own)]
            for _, _, stamp in sorted(matching, key=lambda s: s[:2]):
                folded.update(stamp.enrichment)
        return folded

    def _owns(self, copy: Copy) -> bool:
        turn = self.latest.get(("turn", copy.source, copy.message_id))
        return isinstance(turn, Turn) and (turn.session_id, turn.rail_id) == (copy.session_id, copy.rail_id)

    def _parents(self) -> dict[str, str]:
        sessions = (e for e in self.latest.values() if isinstance(e, Session))
        return {s.session_id: s.parent_session_id for s in sessions if s.parent_session_id}


def merge(old: Entry | None, new: Entry) -> Entry:
    """What stands after `new` was read: a lower revision never displaces a higher one, and a session's
    record or a prune adds to what is known rather than replacing it."""
    if isinstance(old, Turn) and isinstance(new, Turn):
        return old if new.rev < old.rev else new
    if isinstance(old, Prune) and isinstance(new, Prune):
        return max(old, new, key=lambda prune: to_ms(prune.up_to))
    if isinstance(old, Session) and isinstance(new, Session):
        return _merged_session(old, new)
    return old if old is not None and outranks(old, new) else new


def _merged_session(old: Session, new: Session) -> Session:
    known = {name: getattr(old, name) for name in old.__struct_fields__}
    said = {name: getattr(new, name) for name in new.__struct_fields__}
    said["roots"] = tuple(dict.fromkeys((*old.roots, *new.roots)))
    return Session(**known | {name: value for name, value in said.items() if value not in (None, 0)})


def outranks(old: Entry, new: Entry) -> bool:
    """Whether what is known stays, though something else is said of the same thing: two sessions that hold the
    same event are told apart the same way as two that hold the same message without any evidence."""
    if isinstance(old, Compaction | Event) and isinstance(new, Compaction | Event):
        return old.session_id < new.session_id
    return False


def lineage(session_id: str, parents: Mapping[str, str]) -> list[str]:
    """A session's ancestors from the root down to itself; a cycle, which only damage could make, ends it."""
    chain = [session_id]
    while (parent := parents.get(chain[-1])) is not None and parent not in chain:
        chain.append(parent)
    return chain[::-1]


def matches(stamp: Stamp, turn: Turn, session_id: str, *, own: bool) -> bool:
    """Whether a stamp falls on a turn by way of `session_id`, the turn's own session or an ancestor."""
    selector = stamp.selector
    if selector.message_id is not None:
        return own and selector.message_id == turn.message_id
    if selector.session_id != session_id:
        return False
    span = selector.range
    return span is None or to_ms(span.from_ts) <= to_ms(turn.ts) < to_ms(span.to_ts)
