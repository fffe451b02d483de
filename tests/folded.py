"""A naive fold of a ledger, as the reference for the SQL of the index."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from burnd.ledger.journal import Key, Logged, identity, lineage, outranks
from burnd.records import Copy, Prune, Request, Session, Stamp, Turn
from burnd.records.codec import Entry, Skipped
from burnd.records.times import to_ms


class Folded:
    """A ledger read from its beginning."""

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
            is_gone = isinstance(standing, Turn) and standing.copy_of is not None
            if is_gone or (isinstance(standing, Request) and standing.withdrawn):
                del self.latest[key]

    @property
    def turns(self) -> dict[Key, Turn]:
        return {key: entry for key, entry in self.latest.items() if isinstance(entry, Turn)}

    @property
    def copies(self) -> dict[Key, Copy]:
        """Other sessions with a message; one that came to own it is no longer a copy."""
        return {k: e for k, e in self.latest.items() if isinstance(e, Copy) and not self._owns(e)}

    def tags(self, turn: Turn) -> dict[str, str]:
        """The stamps of one turn, folded: its session's ancestors first, so that its own keys win."""
        folded: dict[str, str] = {}
        for session_id in lineage(turn.session_id, self._parents()):
            own = session_id == turn.session_id
            matching = [s for s in self.stamps if matches(s[2], turn, session_id, own=own)]
            for _, _, stamp in sorted(matching, key=lambda s: s[:2]):
                folded.update(stamp.enrichment)
                for key in stamp.removes:
                    folded.pop(key, None)
        return folded

    def _owns(self, copy: Copy) -> bool:
        turn = self.latest.get(("turn", copy.source, copy.message_id))
        return isinstance(turn, Turn) and (turn.session_id, turn.rail_id) == (copy.session_id, copy.rail_id)

    def _parents(self) -> dict[str, str]:
        sessions = (e for e in self.latest.values() if isinstance(e, Session))
        return {s.session_id: s.parent_session_id for s in sessions if s.parent_session_id}


def merge(old: Entry | None, new: Entry) -> Entry:
    """The state after `new`: a lower revision never replaces a higher one, and session records and prunes are merged
    with earlier ones."""
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


def matches(stamp: Stamp, turn: Turn, session_id: str, *, own: bool) -> bool:
    """True if a stamp applies to a turn via `session_id`, the turn's session or an ancestor."""
    selector = stamp.selector
    if selector.message_id is not None:
        return own and selector.message_id == turn.message_id
    if selector.session_id != session_id:
        return False
    span = selector.range
    return span is None or to_ms(span.from_ts) <= to_ms(turn.ts) < to_ms(span.to_ts)
