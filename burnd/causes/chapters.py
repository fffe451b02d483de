"""The rails of sessions as they were followed: what is kept of long ones, and the rest of each followed now."""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import msgspec

from burnd.attribution import Rail
from burnd.attribution.following import Chapter, follow, joined
from burnd.causes import counting
from burnd.causes.counting import Before, opened_chapter
from burnd.causes.rails import LAST, Key, RailEntries, RailName, Span, load, load_span, main_first


class RailFollowed(RailName, frozen=True):
    """One rail with all that its causes are told from."""

    chapter: Chapter


class _Kept(NamedTuple):
    """A piece of a rail that others follow: what these stand on, and what came up on it."""

    n: int
    end: Before
    chapter: bytes


def followed(rail: RailEntries) -> RailFollowed:
    """A rail that was loaded, followed from its first entry to its last."""
    return RailFollowed(rail.session, rail.session_id, rail.rail_id, follow(Rail(), rail.entries))


def follow_all(db: sqlite3.Connection, ledger: Path, sessions: Iterable[int]) -> list[RailFollowed]:
    """All rails of these sessions (by their rows) with a turn on them: by session, the main rail first."""
    wanted = sorted(set(sessions))
    kept = _kept(db, wanted)
    rails = [followed(rail) for rail in load(db, ledger, wanted, but=kept.keys())]
    rails += [_long(db, ledger, key, pieces) for key, pieces in kept.items()]
    return sorted((rail for rail in rails if rail.chapter.turns), key=lambda rail: main_first(rail.key))


def _kept(db: sqlite3.Connection, sessions: list[int]) -> dict[Key, list[_Kept]]:
    """The pieces of long rails from the first one on, as far as nothing on them has changed since."""
    found: defaultdict[Key, list[_Kept]] = defaultdict(list)
    rows = db.execute(_CHAPTERS, (msgspec.json.encode(sessions).decode(), counting.LENGTH))
    for session, rail, n, newest, state, chapter in rows:
        found[session, rail].append(_Kept(n, Before(state, newest), chapter))
    return found


def _long(db: sqlite3.Connection, ledger: Path, key: Key, pieces: list[_Kept]) -> RailFollowed:
    session, rail = key
    ((session_id,),) = db.execute("SELECT session_id FROM sessions WHERE id = ?", (session,)).fetchall()
    chapters = [opened_chapter(piece.chapter) for piece in pieces]
    last, end, _ = pieces[-1]
    rest = load_span(db, ledger, session, rail, Span((last + 1) * counting.LENGTH, LAST, end.newest))
    return RailFollowed(session, session_id, rail, joined([*chapters, follow(end.rail(), rest)]))


# A piece without a chapter is the last one, or could not be followed.
_CHAPTERS = """
SELECT s.session, s.rail, s.n, s.newest, s.state, s.chapter FROM json_each(?1) w
CROSS JOIN segments s ON s.session = w.value
LEFT JOIN changed c ON c.session = s.session AND c.rail = s.rail
WHERE s.chapter IS NOT NULL AND (c.turn_index IS NULL OR s.n < c.turn_index / ?2) AND NOT EXISTS (
  SELECT 1 FROM segments e WHERE e.session = s.session AND e.rail = s.rail AND e.n < s.n AND e.chapter IS NULL)
ORDER BY s.session, s.rail, s.n
"""
