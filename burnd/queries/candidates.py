"""From matches of words to messages that are really there: weighed with their titles, narrowed, phrases checked."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from burnd.queries.sessions import Known, known_of
from burnd.queries.view import View
from burnd.queries.windows import Hit, told
from burnd.recall import Recall
from burnd.records.times import to_ms
from burnd.search.documents import Place
from burnd.search.passages import Spotter
from burnd.search.wanted import Match, Only, Wanted

if TYPE_CHECKING:
    from burnd.search.lookup import Lookup

_TITLES: Final = 200
_LOTS: Final = 3  # a lot is looked up in so many parts: mostly the first is enough
# What is read to see whether a phrase stands in it, at most.
_MOST_READ, _MOST_READ_CHARS = 600, 64 << 20


class Candidate(NamedTuple):
    """A message or a title that matches, and what it is worth with everything that speaks for it."""

    score: float
    match: Match
    is_title: bool = False


class _There(NamedTuple):
    """What there is of some places: sessions by their id, and the numbers of messages along their rails."""

    sessions: dict[str, Known]
    numbers: dict[tuple[Any, ...], int]


class Candidates:
    """One search: candidates in the order of their worth, each looked up in the index, since it may be gone.

    `lot` is how many are weighed together; with `each`, every message of a session counts and not only its best.
    """

    def __init__(
        self, view: View, lookup: Lookup, recall: Recall, wanted: Wanted, only: Only, *, lot: int, each: bool
    ) -> None:
        self._view, self._lookup, self._recall = view, lookup, recall
        self._wanted, self._only = wanted, only
        self._lot, self._each, self._at_once = lot, each, max(lot // _LOTS, 1)
        self._read = self._read_chars = 0
        self.spotter = Spotter(wanted.shown, wanted.phrases)

    @property
    def gave_up(self) -> bool:
        """Whether too many messages had all words of a phrase to look for the phrase in every one."""
        return self._read >= _MOST_READ or self._read_chars >= _MOST_READ_CHARS

    def hits(self) -> Iterator[Hit]:
        """Every hit there is, best first."""
        taken: set[object] = set()
        weighed = self._weighed()
        while lot := list(islice(weighed, self._at_once)):
            places = [self._lookup.place(candidate.match) for candidate in lot]
            there = self._there(places)
            for candidate, place in zip(lot, places, strict=True):
                key = place if self._each else place.session_id
                hit = self._hit(candidate, place, there) if key not in taken else None
                if hit is not None:
                    taken.add(key)
                    yield hit
                if self.gave_up:
                    return

    def _weighed(self) -> Iterator[Candidate]:
        """A session's title speaks for all its messages: so they rank above a twin's without it."""
        titles = {match.session: match for match in self._lookup.titles(self._wanted, self._only, _TITLES)}
        find = self._lookup.messages if self._each else self._lookup.sessions
        found = find(self._wanted, self._only)
        first = list(islice(found, self._lot))
        worth = [_with_title(match, titles) for match in first]
        spoken_for = set() if self._each else {match.session for match in first}
        worth += [Candidate(m.score, m, is_title=True) for m in titles.values() if m.session not in spoken_for]
        yield from sorted(worth, key=lambda candidate: (-candidate.score, -candidate.match.ts))
        yield from (_with_title(match, titles) for match in found)

    def _there(self, places: Sequence[Place]) -> _There:
        sessions = known_of(self._view, {place.session_id for place in places})
        wanted = [
            (sessions[place.session_id].row, place.message_id, place.rail)
            for place in places
            if place.message_id and place.session_id in sessions
        ]
        return _There(sessions, {row[:3]: row[3] for row in self._view.keyed(_NUMBERS, wanted)})

    def _hit(self, candidate: Candidate, place: Place, there: _There) -> Hit | None:
        known = there.sessions.get(place.session_id)
        if known is None:
            return None
        if candidate.is_title:
            return Hit(known, candidate.score) if self._title_matches(known) else None
        number = there.numbers.get((known.row, place.message_id, place.rail))
        if number is None or not self._has_phrases(known, place):
            return None
        return Hit(known, candidate.score, place.rail, number)

    def _title_matches(self, known: Known) -> bool:
        """Whether the title is still the one that matched, and the session was in the time that is asked for."""
        facts, only = known.facts, self._only
        begun, ended = (to_ms(facts[name]) if facts[name] else 0 for name in ("createdAt", "updatedAt"))
        if (only.since is not None and ended < only.since) or (only.until is not None and begun >= only.until):
            return False
        text = "\n".join(filter(None, (facts["title"], facts["summary"])))
        return bool(self.spotter.spots(text)) and self.spotter.has_phrases(text)

    def _has_phrases(self, known: Known, place: Place) -> bool:
        """Whether the phrases stand in the message: the index knows words only, so this is seen in its text."""
        if not self._wanted.phrases:
            return True
        self._read += 1
        rows = self._view.rows(_RECORDS, (known.row, place.message_id, place.rail))
        with self._recall.opened(known.session_id) as reading:
            records = [reading.record(position, length) for position, length in rows]
        text = "\n".join(told(record) for record in records if record is not None)
        self._read_chars += len(text)
        return self.spotter.has_phrases(text)


def _with_title(match: Match, titles: dict[int, Match]) -> Candidate:
    title = titles.get(match.session)
    return Candidate(match.score + (title.score if title is not None else 0.0), match)


_NUMBERS = """
WITH wanted(session, message_id, rail) AS ({keys}) SELECT w.session, w.message_id, w.rail, min(m.msg_idx) FROM wanted w
CROSS JOIN messages m ON m.session = w.session AND m.message_id = w.message_id AND m.rail = w.rail GROUP BY 1, 2, 3
"""
_RECORDS = """
SELECT max(position), length FROM messages WHERE session = ? AND message_id = ? AND rail = ? GROUP BY n, b ORDER BY n, b
"""
