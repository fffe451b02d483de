"""From matches of words to messages that are really there: weighed with their titles, narrowed, phrases checked."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from heapq import nlargest
from itertools import chain, islice
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from burnd.content.recall import Recall
from burnd.index.schema import MESSAGES_BY_ID, is_message
from burnd.queries.checking import Check
from burnd.queries.sessions import Known, known_of
from burnd.queries.view import View
from burnd.queries.windows import Hit
from burnd.records.times import to_ms
from burnd.search.documents import Place
from burnd.search.passages import Spotter
from burnd.search.query import NO_SPREAD, Match, Only, Spread, Wanted

if TYPE_CHECKING:
    from burnd.search.lookup import Lookup

_TITLES: Final = 200
_LOTS: Final = 3  # a lot is looked up in so many parts: where nothing is checked, mostly the first is enough


class Candidate(msgspec.Struct, frozen=True, gc=False):
    """A message or a title that matches, and what it is worth with everything that speaks for it."""

    score: float
    match: Match
    is_title: bool = False


class _There(NamedTuple):
    """What there is of some places: sessions by their id, and the numbers of messages along their rails."""

    sessions: dict[str, Known]
    numbers: dict[tuple[int, str, str], int]  # by a session's row, a message, a rail


class Candidates:
    """One search: candidates in the order of their worth, each looked up in the index, since it may be gone.

    `lot` is how many are weighed together; with `each`, every message of a session counts and not only its best.
    `pages` is how many pages of hits are needed, for which more messages may be read.
    """

    def __init__(
        self,
        view: View,
        lookup: Lookup,
        recall: Recall,
        wanted: Wanted,
        only: Only,
        *,
        lot: int,
        each: bool,
        pages: int,
    ) -> None:
        self._view, self._lookup = view, lookup
        self._wanted, self._only = wanted, only
        self._lot, self._each = lot, each
        self.spotter = Spotter(wanted.shown, wanted.phrases)
        self.check = Check(view, recall, self.spotter, wanted, only, pages)
        self._at_once = max(lot if self.check.is_needed else lot // _LOTS, 1)

    def hits(self) -> Iterator[Hit]:
        """Every hit there is, best first."""
        taken: set[object] = set()
        told: set[str] = set()
        weighed = self._weighed()
        while lot := list(islice(weighed, self._at_once)):
            places = [self._lookup.place(candidate.match) for candidate in lot]
            there = self._there(self.check.passed(places))
            for candidate, place in zip(lot, places, strict=True):
                key = place if self._each else place.session_id
                # A title speaks for the messages that are hits themselves.
                is_known = place.session_id in told if candidate.is_title else key in taken
                hit = self._hit(candidate, place, there) if not is_known else None
                if hit is not None:
                    taken.add(key)
                    told.add(place.session_id)
                    yield hit
            if self.check.gave_up:
                return

    def _weighed(self) -> Iterator[Candidate]:
        """A session's title speaks for all its messages: so they rank above a twin's without it."""
        pages = self._find(self._only)
        matches: list[Match] = []
        while len(matches) < self._lot and (page := next(pages, None)) is not None:
            matches += page
        found_in = {match.session for match in matches}
        titles = self._titles(found_in)
        about = self._about(titles, found_in)
        spread = self._spread()
        worth = _weighed(matches, about, spread)
        if others := self._to_look_into(about, spread, worth):
            found = self._more(self._only._replace(sessions=frozenset(others)), len(others))
            worth += _weighed(found, about, spread)
        if not self._only.has_author:
            # Messages that are looked into may turn out to be none: then the title still speaks.
            spoken_for = {candidate.match.session for candidate in worth} if self._is_by_session else set()
            worth += [Candidate(m.score, m, is_title=True) for m in titles.values() if m.session not in spoken_for]
        yield from sorted(worth, key=_order)
        for page in pages:
            yield from _weighed(page, about, spread)

    @property
    def _is_by_session(self) -> bool:
        """Whether a session's best message is all that is wanted of it, and certain."""
        return not self._each and not self.check.is_needed

    def _spread(self) -> Spread:
        return self._lookup.spread(self._wanted, self._only) if self._is_by_session else NO_SPREAD

    def _find(self, only: Only) -> Iterator[list[Match]]:
        """Where matches are looked into, a session's best may turn out to be none: then all are needed."""
        return (self._lookup.sessions if self._is_by_session else self._lookup.messages)(self._wanted, only)

    def _more(self, only: Only, sessions: int) -> Iterable[Match]:
        if self._is_by_session:
            return self._lookup.best_of(self._wanted, only)
        return islice(chain.from_iterable(self._lookup.messages(self._wanted, only)), self._lot + sessions)

    def _titles(self, sessions: set[int]) -> dict[int, Match]:
        """The titles that match best, and those of these sessions."""
        found = self._lookup.titles(self._wanted, self._only, _TITLES, sessions)
        return {match.session: match for match in found}

    def _about(self, titles: Mapping[int, Match], sessions: set[int]) -> dict[int, float]:
        """The score of each session's title and best compaction summary."""
        best: dict[int, float] = {}
        for match in self._lookup.compactions(self._wanted, self._only, _TITLES, sessions):
            best[match.session] = max(best.get(match.session, 0.0), match.score)
        for session, match in titles.items():
            best[session] = best.get(session, 0.0) + match.score
        return best

    def _to_look_into(self, about: Mapping[int, float], spread: Spread, worth: Sequence[Candidate]) -> list[int]:
        """Sessions whose title, summaries or other messages rank them above their best message alone."""
        known = set() if self._each else {candidate.match.session for candidate in worth}
        others = [session for session in dict.fromkeys([*about, *spread.several()]) if session not in known]
        last = least = 0.0
        if self._is_by_session and len(worth) >= self._lot:
            # What is not among the matches has no better message than the last of them.
            last = worth[-1].match.score
            least = nlargest(self._at_once, [candidate.score for candidate in worth])[-1]
        at_most = {session: _worth(last, session, about, spread) for session in others}
        return nlargest(self._lot, [session for session in others if at_most[session] > least], key=at_most.__getitem__)

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
        return Hit(known, candidate.score, place.rail, number) if number is not None else None

    def _title_matches(self, known: Known) -> bool:
        """Whether the title is still the one that matched, and the session was in the time that is asked for."""
        facts, only = known.facts, self._only
        begun, ended = (to_ms(facts[name]) if facts[name] else 0 for name in ("createdAt", "updatedAt"))
        if (only.since is not None and ended < only.since) or (only.until is not None and begun >= only.until):
            return False
        text = "\n".join(filter(None, (facts["title"], facts["summary"])))
        return bool(self.spotter.spots(text)) and self.spotter.has_phrases(text)


def _order(candidate: Candidate) -> tuple[float, int, int]:
    """Best first, then newest first; the same in every index of the same content."""
    return -round(candidate.score, 3), -candidate.match.ts, candidate.match.session


def _weighed(matches: Iterable[Match], about: Mapping[int, float], spread: Spread) -> list[Candidate]:
    return [Candidate(_worth(match.score, match.session, about, spread), match) for match in matches]


def _worth(score: float, session: int, about: Mapping[int, float], spread: Spread) -> float:
    """The score of a message together with its session's other messages, title and summaries."""
    return spread.worth(score, session) + about.get(session, 0.0)


_NUMBERS = f"""
WITH wanted(session, message_id, rail) AS ({{keys}})
SELECT w.session, w.message_id, w.rail, min(m.msg_idx) FROM wanted w
CROSS JOIN {MESSAGES_BY_ID} ON m.session = w.session AND {is_message("w.message_id")} AND m.rail = w.rail
GROUP BY 1, 2, 3
"""
