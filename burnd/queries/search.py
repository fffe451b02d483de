"""Finds sessions by their words: the best message of each, with the messages around it. Bounded for any query.

Matches of words become messages that are there: weighed with their titles, narrowed by filters. The search index knows
words, and messages as wholes; so phrases, and words by their author, are checked in the text.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from heapq import nlargest
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

import msgspec

from burnd.content.recall import Recall, Spot
from burnd.contract.sessions import LAST_HIT, MOST_HITS, MOST_WINDOW, SearchParams
from burnd.index.schema import MESSAGES_BY_ID, is_message
from burnd.queries import names
from burnd.queries.messages import why_not_retained
from burnd.queries.names import check_source
from burnd.queries.search_windows import Hit, Windows
from burnd.queries.sessions import Known, find, known_of, times
from burnd.queries.view import View
from burnd.records import Content
from burnd.records.times import to_ms
from burnd.search.documents import Place, narrowed, session_key
from burnd.search.passages import Spotter
from burnd.search.query import NO_SPREAD, Match, Only, Spread, Typed, Wanted, typed
from burnd.tokens.record_words import strings

# Where nothing was found yet, it is worth more time.
_MOST_READ_CHARS, _SOON_S, _LATE_S = 64 << 20, 0.008, 0.04
_EDGE: Final = "\n"


_Records = list[tuple[int, int, str]]  # of a message: where each stands, how long it is, by whom


class Check:
    """Looks into messages, as many as are worth it."""

    def __init__(self, view: View, recall: Recall, spotter: Spotter, wanted: Wanted, only: Only, pages: int) -> None:
        self._view, self._recall, self._spotter, self._only = view, recall, spotter, only
        self._pages = pages
        self._has_phrases = bool(wanted.phrases)
        self._read_chars = 0
        self._spent = 0.0
        self._passed = 0

    @property
    def is_needed(self) -> bool:
        return self._has_phrases or self._only.has_author

    @property
    def gave_up(self) -> bool:
        """Whether too many messages had the words to look into every one."""
        most = _SOON_S if self._passed else _LATE_S
        return self._read_chars >= _MOST_READ_CHARS * self._pages or self._spent > most * self._pages

    def passed(self, places: Sequence[Place]) -> Sequence[Place]:
        """Those of the messages that really say it, and titles, into which others look."""
        if not self.is_needed:
            return places
        begun = time.thread_time()
        records = self._records([place for place in places if place.message_id])
        unsure = [place for place, own in records.items() if self._has_phrases or not self._is_certain(own)]
        spots = [(place.session_id, [Spot(row[0], row[1]) for row in records[place]]) for place in unsure]
        wrong = {
            place
            for place, found in zip(unsure, self._recall.records(spots), strict=True)
            if not self._says([record for record in found if record is not None])
        }
        self._passed += len(unsure) - len(wrong)
        self._spent += time.thread_time() - begun
        return [place for place in places if place not in wrong]

    def _records(self, places: Sequence[Place]) -> dict[Place, _Records]:
        records: dict[Place, _Records] = {}
        for session_id, rail, message_id, *record in self._view.keyed(_RECORDS, places):
            records.setdefault(Place(session_id, rail, message_id), []).append(tuple(record))
        return records

    def _says(self, records: Sequence[Content]) -> bool:
        """Whether the phrases stand in a message, and who is asked for said one of the words."""
        text = _EDGE.join(text for record in narrowed(records, self._only) for text in strings(record))
        self._read_chars += len(text)
        return self._spotter.has_phrases(text) and (self._has_phrases or bool(self._spotter.spots(text)))

    def _is_certain(self, rows: _Records) -> bool:
        """A message that is all by one, or is one record: then what the index says of it is exact."""
        return len(rows) == 1 or (self._only.tool is None and len({role for _, _, role in rows}) == 1)


_RECORDS = f"""
WITH wanted(session_id, rail, message_id) AS ({{keys}})
SELECT w.session_id, w.rail, w.message_id, max(m.position), m.length, m.role FROM wanted w
CROSS JOIN sessions s ON s.session_id = w.session_id
CROSS JOIN {MESSAGES_BY_ID} ON m.session = s.id AND {is_message("w.message_id")} AND m.rail = w.rail
GROUP BY w.session_id, w.rail, w.message_id, m.n, m.b ORDER BY w.session_id, w.rail, w.message_id, m.n, m.b
"""


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


if TYPE_CHECKING:
    from burnd.search.lookup import Lookup

_ALL_WORDS: Final = 8  # words of a query that are looked up together
# Candidates that are weighed together. The same for every page and limit, so that pages of one query fit together.
_WEIGHED: Final = 3 * MOST_HITS

Role = Literal["user", "assistant", "tool_result", "system"]


def search(view: View, lookup: Lookup, recall: Recall, params: SearchParams) -> dict[str, Any]:
    """The hits, best first."""
    asked = typed(params.query)
    wanted = lookup.understand(asked)
    only = _narrowed(view, params)
    answer: dict[str, Any] = {"query": params.query[:1000], "hits": []}
    if not any(lookup.words(piece) for piece in (*asked.pieces, *asked.phrases)):
        return answer | {"note": "the query has no word to search for"}
    if wanted.corrected:
        answer["corrected"] = wanted.corrected
    limit = min(max(params.limit, 0), MOST_HITS)
    pages = 1 + params.offset // MOST_HITS
    candidates = Candidates(view, lookup, recall, wanted, only, lot=_WEIGHED, each=params.all, pages=pages)
    hits = list(islice(candidates.hits(), params.offset, params.offset + limit))
    if 0 < limit == len(hits) and params.offset + limit < LAST_HIT:
        answer["next"] = params.offset + limit
    windows = Windows(view, recall, candidates.spotter, only, *window(params.before, params.after))
    answer["hits"] = windows.around(hits)
    if hits and not _has_all_words(lookup, asked, wanted, only):
        answer["allWords"] = False
    if note := _note(view, params, candidates, hits):
        answer["note"] = note
    return answer


def _has_all_words(lookup: Lookup, asked: Typed, wanted: Wanted, only: Only) -> bool:
    """Whether any message that passes the filters has every word of the query."""
    words = dict.fromkeys(word for piece in (*asked.pieces, *asked.phrases) for word in lookup.words(piece))
    if len(words) < 2:
        return True
    together = wanted._replace(musts=tuple(islice(words, _ALL_WORDS)))
    return any(next(lookup.messages(together, only), []))


def _note(view: View, params: SearchParams, candidates: Candidates, hits: Sequence[Hit]) -> str:
    """The reason for missing hits, if there is one."""
    if candidates.check.gave_up:
        return "too many messages have these words: only the best were checked"
    if params.session is not None and not hits:
        facts = find(view, params.session).facts
        return why_not_retained(facts) if facts["content"] != "yes" else ""
    return ""


def window(before: int, after: int) -> tuple[int, int]:
    """The number of messages to show before and after a hit, at most sixteen with the hit."""
    most = MOST_WINDOW - 1
    before, after = min(max(before, 0), most), min(max(after, 0), most)
    if before + after > most:
        before = min(before, max(most - after, (most + 1) // 2))
        after = most - before
    return before, after


def _narrowed(view: View, params: SearchParams) -> Only:
    """The filters of the parameters, with sessions by their keys in the index."""
    rows: set[int] | None = None
    if params.session is not None:
        rows = {find(view, params.session).row}
    if params.project is not None:
        own = names.sessions(view, params.project)
        rows = own if rows is None else rows & own
    if params.source is not None:
        check_source(view, params.source)
        own = {row for (row,) in view.rows(_OF_SOURCE, (params.source,))}
        rows = own if rows is None else rows & own
    since, until = times(view, params.since, params.until, params.tz)
    return Only(
        sessions=_keys(view, rows) if rows is not None else None,
        since=since,
        until=until,
        role=params.role,
        tool=params.tool.lower() if params.tool else None,
    )


def _keys(view: View, rows: set[int]) -> frozenset[int]:
    found = view.keyed("SELECT session_id FROM sessions WHERE id IN ({keys})", [(row,) for row in rows])
    return frozenset(session_key(session_id) for (session_id,) in found)


_OF_SOURCE = "SELECT s.id FROM sessions s JOIN names n ON n.id = s.source WHERE n.name = ?"
