"""What a ledger is folded by: which lines are about the same thing, which counts, whom a session descends from."""

from __future__ import annotations

from collections.abc import Mapping

from burnd.records import Compaction, Copy, Event, Origin, Overhead, Prune, Request, Session, Turn
from burnd.records.codec import Entry, digest, kind_of
from burnd.records.content import MAIN
from burnd.records.times import index_ms

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
    if isinstance(entry, Origin):
        return ("origin", entry.session_id, entry.origin)
    if isinstance(entry, Overhead):
        return ("overhead", entry.source, entry.session_id, entry.ts)
    if isinstance(entry, Request):
        return ("request", entry.source, entry.id)
    if isinstance(entry, Compaction | Event):
        # A fork repeats them with the same uuid; an id made from a place in a file means nothing elsewhere.
        where = (entry.session_id, entry.rail_id) if entry.id.startswith("@") else ()
        return (kind_of(entry), entry.source, entry.id, *where)
    return (kind_of(entry), str(digest(entry)))


def outranks(old: Entry, new: Entry) -> bool:
    """Whether what is known stays, though something else is said of the same thing.

    Several logs may hold the same event: it is that of one which does not repeat another's, told at the earliest time,
    and in the conversation itself rather than in an agent's log of it. A withdrawn request stays withdrawn when
    its log is read again; the earlier of two times counts.
    """
    if isinstance(old, Compaction | Event) and isinstance(new, Compaction | Event):
        return _claim(old) < _claim(new)
    if isinstance(old, Request) and isinstance(new, Request):
        return (not old.withdrawn, index_ms(old.ts)) < (not new.withdrawn, index_ms(new.ts))
    return False


def _claim(said: Compaction | Event) -> tuple[bool, int, str, bool, str]:
    return (said.copied, index_ms(said.ts), said.session_id, said.rail_id != MAIN, said.rail_id)


def lineage(session_id: str, parents: Mapping[str, str]) -> list[str]:
    """A session's ancestors from the root down to itself; a cycle, which only damage could make, ends it."""
    chain = [session_id]
    while (parent := parents.get(chain[-1])) is not None and parent not in chain:
        chain.append(parent)
    return chain[::-1]
