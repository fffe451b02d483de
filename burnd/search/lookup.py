"""Looks a query up in the index: its terms, corrections of misspelt words, and the best matches, page by page."""

from __future__ import annotations

import string
from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from itertools import islice
from math import log
from operator import attrgetter
from typing import Any, Final, NamedTuple

import tantivy
from tantivy import Occur, Query

from burnd.search.documents import (
    COMPACTION_FIELDS,
    MESSAGE_FIELDS,
    TITLE_FIELDS,
    WEIGHTS,
    MessageName,
    read_name,
)
from burnd.search.index import WORDS, SearchIndex, as_unusable
from burnd.search.query import NO_SPREAD, Match, ParsedQuery, QueryTerms, SearchFilter, Spread, Term
from burnd.tokens.words import REST, SIGNS, USER, camel_parts, spaced

MOST_WORDS: Final = 24
_LOOKED_UP: Final = 400  # words of a long query, of which the rarest are used
_PART_WEIGHT, _CORRECTED_WEIGHT = 0.3, 0.7
_CORRECTED: Final = 3  # words of one query, at most
_CORRECTIONS: Final = 3  # for one word
_SHORTEST_CORRECTED: Final = 4
_SPREAD_WORDS, _SPREAD_MESSAGES = 8, 200  # the rarest of a query, and of each its best
_SPREAD_SHARE: Final = 50  # a word in more than one of so many messages is in nearly every session
_PAGES: Final = (100, 400, 1600, 3200)
_TIED: Final = 60  # messages that are weighed together: if the rest of a page has the score of the last, more is read
_OF_EACH: Final = 20  # messages read per session to find its best
_FEW: Final = 200  # sessions; with more, tantivy scans all documents
_MOST_FILTERED: Final = 4000  # sessions in a query to tantivy; more are filtered from its results
_SPREAD_LEAST: Final = 500  # messages, whatever share that is
_TITLES_SEEN: Final = 1000  # costs little more than ten; a query for titles of some sessions costs several times that
_MANY_DOCUMENTS, _COMMON_SHARE = 1000, 4
_MOST_COUNTED: Final = 50_000  # messages that are counted, in about 3 ms


class Matches(NamedTuple):
    """The number of all hits; `is_minimum` if there may be more."""

    number: int
    is_minimum: bool


_BY_SESSION: Final = {"sessions": {"terms": {"field": "session", "size": _MOST_COUNTED}}}


Clause = tuple[Occur, Query]


class _MatchPage(NamedTuple):
    """Matching messages as columns, best first, then newest."""

    scores: Sequence[float]
    addresses: Sequence[Any]
    sessions: Sequence[Any]
    times: Sequence[int]
    is_full: bool  # there may be more


_NO_PAGE: Final = _MatchPage((), (), (), (), is_full=False)


class Lookup:
    """Queries on one state of an index."""

    def __init__(self, index: SearchIndex) -> None:
        self._analyzer = index.analyzer
        self._schema = index.schema
        self._searcher = index.searcher
        self._made: dict[tuple[str, float, str], list[Clause]] = {}

    def understand(self, typed: ParsedQuery) -> QueryTerms:
        """Looks up the words of a query, or words that are one typing error away from unknown ones."""
        fields = (*MESSAGE_FIELDS, *TITLE_FIELDS, *COMPACTION_FIELDS)
        terms: dict[str, Term] = {}
        corrected: dict[str, list[str]] = {}
        for word, weight in islice(self._words(typed), _LOOKED_UP):
            term = self._term(word, weight, fields)
            if term.uses:
                # A part of one typed word may be another typed word.
                terms[word] = max(terms.get(word, term), term, key=attrgetter("weight"))
            elif len(corrected) < _CORRECTED and weight == 1.0:
                better = self._corrections(word, fields)
                corrected |= {word: [term.word for term in better]} if better else {}
                for other in better:
                    terms.setdefault(other.word, other)
        in_phrases = dict.fromkeys(word for phrase in typed.phrases for word in self.words(phrase))
        musts = tuple(islice(in_phrases, MOST_WORDS))  # the rest of a long phrase is checked in the text
        rarest = self._chosen(list(terms.values()), musts)
        words = tuple(_as_typed(term.word) for term in rarest)
        return QueryTerms(rarest, musts, words, typed.phrases, corrected)

    def words(self, text: str) -> list[str]:
        return list(self._analyzer.analyze(spaced(text)))

    def messages(self, wanted: QueryTerms, only: SearchFilter) -> Iterator[list[Match]]:
        """Matching messages, best first, up to several thousand. Some may be repeated."""
        page = None
        for page in self._pages(self._query(wanted, only, MESSAGE_FIELDS)):
            yield self._matches(page, _allowed(page, only))
        if page is not None and page.is_full and _is_wide(only):
            for page in self._pages(self._query(wanted, only, MESSAGE_FIELDS, strictly=True)):
                yield self._matches(page, range(len(page.scores)))

    def sessions(self, wanted: QueryTerms, only: SearchFilter) -> Iterator[list[Match]]:
        """The best message of each session, best first."""
        sessions: set[int] = set()
        page = None
        for page in self._pages(self._query(wanted, only, MESSAGE_FIELDS)):
            yield self._matches(page, _first_of_each(page, _allowed(page, only), sessions))
            if only.sessions is not None and sessions >= only.sessions:
                return
        if page is not None and page.is_full:
            # A few long sessions, or some that are filtered out, have all the best messages: read the others.
            query = self._query(wanted, only, MESSAGE_FIELDS, strictly=True)
            if query is not None:
                others = self._page(_all_of([query], but=self._of(sessions)), _PAGES[0], 0)
                yield self._matches(others, _first_of_each(others, range(len(others.scores)), sessions))

    def count(self, wanted: QueryTerms, only: SearchFilter, *, each: bool) -> Matches:
        """The number of matching sessions, or with `each` messages. A minimum if words are in very many messages."""
        rare, total = list[Term](), 0
        for term in sorted(wanted.terms, key=lambda term: term.uses):
            total += term.uses
            if total <= _MOST_COUNTED:
                rare.append(term)
        some = wanted._replace(terms=tuple(rare))
        in_messages = self._counts(self._query(some, only, MESSAGE_FIELDS), only)
        no_author = only._replace(role=None, tool=None)
        titles = set() if only.has_author else self._counts(self._query(some, no_author, TITLE_FIELDS), only).keys()
        titles -= in_messages.keys()
        # Whether the session of a title is in the requested time is not known here.
        has_times = only.since is not None or only.until is not None
        number = sum(in_messages.values()) if each else len(in_messages)
        is_minimum = len(rare) < len(wanted.terms) or bool(has_times and titles)
        return Matches(number + (0 if has_times else len(titles)), is_minimum)

    def _counts(self, query: Query | None, only: SearchFilter) -> dict[int, int]:
        if query is None:
            return {}
        with as_unusable():
            answer = self._searcher.aggregate(query, _BY_SESSION)
        counts = {bucket["key"]: bucket["doc_count"] for bucket in answer["sessions"]["buckets"]}
        allowed = only.sessions
        return counts if allowed is None else {key: counts[key] for key in counts if key in allowed}

    def best_of(self, wanted: QueryTerms, only: SearchFilter) -> list[Match]:
        """The best message of each of these sessions, if it is among the best of all of them."""
        query = self._query(wanted, only, MESSAGE_FIELDS, strictly=True)
        if query is None:
            return []
        page = self._page(query, min(len(only.sessions or ()) * _OF_EACH, _PAGES[1]), 0)
        return self._matches(page, _first_of_each(page, range(len(page.scores)), set()))

    def spread(self, wanted: QueryTerms, only: SearchFilter) -> Spread:
        """Which of the words each session has, with the score of its best message for each."""
        groups = self._groups(wanted) if len(wanted.terms) > 1 else []
        if len(groups) < 2:
            return NO_SPREAD
        best: list[dict[int, float]] = []
        words: list[tuple[float, bool]] = []
        for terms in groups:
            query = self._query(wanted._replace(terms=terms), only, MESSAGE_FIELDS)
            page = self._page(query, _SPREAD_MESSAGES, 0) if query is not None else _NO_PAGE
            best.append(_best_of_each(_without_last_score(page), only))
            uses = min(term.uses for term in terms)
            words.append((_rarity(uses, self._searcher.num_docs), not page.is_full))
        return Spread(best, words)

    def _groups(self, wanted: QueryTerms) -> list[tuple[Term, ...]]:
        most = max(self._searcher.num_docs / _SPREAD_SHARE, _SPREAD_LEAST)
        groups: dict[str, list[Term]] = {}
        for term in wanted.terms:
            if term.typed and term.uses < most:
                groups.setdefault(term.typed, []).append(term)
        return [tuple(terms) for terms in islice(groups.values(), _SPREAD_WORDS)]

    def titles(self, wanted: QueryTerms, only: SearchFilter, limit: int, also: AbstractSet[int]) -> list[Match]:
        """The `limit` best sessions by title, and those of `also` that match."""
        return self._about(wanted, only, limit, also, TITLE_FIELDS)

    def compactions(self, wanted: QueryTerms, only: SearchFilter, limit: int, also: AbstractSet[int]) -> list[Match]:
        """The same by summaries of compactions, of which a session may have several."""
        return self._about(wanted, only, limit, also, COMPACTION_FIELDS)

    def _about(
        self, wanted: QueryTerms, only: SearchFilter, limit: int, also: AbstractSet[int], fields: Sequence[str]
    ) -> list[Match]:
        no_author = only._replace(role=None, tool=None)
        query = self._query(wanted, no_author, fields)
        if query is None:
            return []
        page = self._page(query, _TITLES_SEEN, 0)
        numbers = _allowed(page, only)
        sessions = page.sessions
        others = [number for number in numbers[limit:] if sessions[number] in also]
        found = self._matches(page, [*numbers[:limit], *others])
        if page.is_full and also:
            query = self._query(wanted, no_author._replace(sessions=frozenset(also)), fields, strictly=True)
            most = len(also) if fields is TITLE_FIELDS else min(len(also) * _OF_EACH, _PAGES[1])
            page = self._page(query, most, 0) if query is not None else _NO_PAGE
            found += self._matches(page, range(len(page.scores)))
        return found

    def message_name(self, match: Match) -> MessageName:
        with as_unusable():
            (written,) = self._searcher.doc(match.address).get_all("place")
        return read_name(bytes(written))

    def _words(self, typed: ParsedQuery) -> Iterator[tuple[str, float]]:
        """Words and weights. Parts of a camelCase word weigh less if the index has the whole word."""
        for piece in (*typed.pieces, *typed.phrases):
            whole = self.words(piece)
            yield from ((word, 1.0) for word in whole)
            if parts := self._analyzer.analyze(camel_parts(piece)):
                has_whole = all(self._term(word, 1.0, MESSAGE_FIELDS).uses for word in whole)
                yield from ((part, _PART_WEIGHT if has_whole else 1.0) for part in parts)

    def _term(self, word: str, weight: float, fields: Sequence[str], typed: str | None = None) -> Term:
        counts = {field: self._searcher.doc_freq(WORDS, SIGNS[field] + word) for field in fields}
        typed = typed or ("" if weight == _PART_WEIGHT else word)
        return Term(word, weight, {field: count for field, count in counts.items() if count}, typed)

    def _corrections(self, word: str, fields: Sequence[str]) -> list[Term]:
        if len(word) < _SHORTEST_CORRECTED or not (word.isascii() and word.isalpha()):
            return []  # a number or code next to it means something else
        near, others = slips(word), list[str]()
        for field in (REST, USER):  # nearly every word of the index is in one of these
            if others := [other for other in near if self._searcher.doc_freq(WORDS, SIGNS[field] + other)]:
                break
        found = [self._term(other, _CORRECTED_WEIGHT, fields, word) for other in others]
        return sorted((term for term in found if term.uses), key=lambda term: -term.uses)[:_CORRECTIONS]

    def _chosen(self, terms: list[Term], musts: Sequence[str]) -> tuple[Term, ...]:
        rarest = sorted(terms, key=lambda term: term.uses)[:MOST_WORDS]
        total = self._searcher.num_docs
        if total < _MANY_DOCUMENTS:
            return tuple(rarest)
        telling = [term for term in rarest if term.uses * _COMMON_SHARE < total or term.word in musts]
        return tuple(telling if len(telling) > 1 else rarest)

    def _query(
        self, wanted: QueryTerms, only: SearchFilter, fields: Sequence[str], *, strictly: bool = False
    ) -> Query | None:
        """A query for any of the words and all words of phrases; by many sessions only if `strictly`, which is slow."""
        any_of = [clause for term in wanted.terms for clause in self._clauses(term, fields)]
        if not any_of:
            return None
        # A flat query, since nested ones take tantivy up to twice as long.
        query = Query.boolean_query(any_of)
        anywhere = [[(Occur.Should, self._weighed(field, word, 1.0)) for field in fields] for word in wanted.musts]
        needed = [_silent(Query.boolean_query(clauses)) for clauses in anywhere] + self._narrowed(only, fields)
        if only.sessions is not None and (strictly or not _is_wide(only)):
            needed.append(_silent(self._of(only.sessions)))
        return _all_of([query, *needed]) if needed else query

    def _clauses(self, term: Term, fields: Sequence[str]) -> list[Clause]:
        """Clauses for a word in each field, weighed by its rarity in all fields."""
        key, total = (term.word, term.weight, fields[0]), self._searcher.num_docs
        if key not in self._made:
            weights = {
                field: WEIGHTS[field] * (term.weight * _rarity(term.uses, total) / _rarity(term.counts[field], total))
                for field in fields
                if field in term.counts
            }
            self._made[key] = [
                (Occur.Should, self._weighed(field, term.word, weight)) for field, weight in weights.items()
            ]
        return self._made[key]

    def _of(self, sessions: AbstractSet[int]) -> Query:
        keys = sorted(sessions)
        if len(keys) > _FEW:
            return Query.term_set_query(self._schema, "session", keys)
        each = [Query.term_query(self._schema, "session", key, "basic") for key in keys]
        return Query.boolean_query([(Occur.Should, query) for query in each])

    def _weighed(self, field: str, word: str, weight: float) -> Query:
        return Query.boost_query(Query.term_query(self._schema, WORDS, SIGNS[field] + word, "freq"), weight)

    def _narrowed(self, only: SearchFilter, fields: Sequence[str]) -> list[Query]:
        needed = []
        if (only.since is not None or only.until is not None) and fields is MESSAGE_FIELDS:
            last = only.until - 1 if only.until is not None else None
            needed.append(Query.range_query(self._schema, "ts", tantivy.FieldType.Integer, only.since, last))
        for field, value in (("role", only.role), ("called", only.tool)):
            if value is not None:
                needed.append(Query.term_query(self._schema, field, value, "basic"))
        return [_silent(query) for query in needed]

    def _pages(self, query: Query | None) -> Iterator[_MatchPage]:
        """Growing pages of matches. The first one is extended while all of it has the same score."""
        if query is None:
            return
        limits = iter(_PAGES)
        offset = next(limits)
        page = self._page(query, offset, 0)
        while page.is_full and page.scores[-1] == page.scores[:_TIED][-1] and (more := next(limits, 0)):
            offset += more
            page = self._page(query, offset, 0)
        yield page
        for limit in limits:
            if not page.is_full:
                return
            page = self._page(query, limit, offset)
            yield page
            offset += limit

    def _page(self, query: Query, limit: int, offset: int) -> _MatchPage:
        """A page in an order that does not depend on segments, as the last digits of scores do."""
        with as_unusable():
            hits = self._searcher.search(query, limit, count=False, offset=offset).hits
            if not hits:
                return _NO_PAGE
            addresses = [address for _, address in hits]
            sessions = self._searcher.fast_field_values("session", addresses)
            times = self._searcher.fast_field_values("ts", addresses)
        rows = [
            (-round(score, 3), -(ts or 0), session or 0, number)
            for number, ((score, _), ts, session) in enumerate(zip(hits, times, sessions, strict=True))
        ]
        rows.sort()
        return _MatchPage(
            [-row[0] for row in rows],
            [addresses[row[3]] for row in rows],
            [row[2] for row in rows],
            [int(-row[1]) for row in rows],
            is_full=len(hits) == limit,
        )

    def _matches(self, page: _MatchPage, numbers: Sequence[int]) -> list[Match]:
        return [
            Match(page.scores[number], page.sessions[number], page.times[number], page.addresses[number])
            for number in numbers
        ]


def _rarity(uses: int, total: int) -> float:
    """The inverse document frequency of BM25."""
    return log(1 + (max(total - uses, 0) + 0.5) / (uses + 0.5))


def _is_wide(only: SearchFilter) -> bool:
    return only.sessions is not None and len(only.sessions) > _MOST_FILTERED


def _allowed(page: _MatchPage, only: SearchFilter) -> Sequence[int]:
    allowed = only.sessions
    if allowed is None:
        return range(len(page.scores))
    return [number for number, session in enumerate(page.sessions) if session in allowed]


def _without_last_score(page: _MatchPage) -> _MatchPage:
    """A full page without its lowest score, of which it has an arbitrary part."""
    if not page.is_full:
        return page
    end = page.scores.index(page.scores[-1])
    return page._replace(scores=page.scores[:end], sessions=page.sessions[:end])


def _best_of_each(page: _MatchPage, only: SearchFilter) -> dict[int, float]:
    best = dict(zip(reversed(page.sessions), reversed(page.scores), strict=True))
    allowed = only.sessions
    return best if allowed is None else {session: best[session] for session in best if session in allowed}


def _first_of_each(page: _MatchPage, numbers: Sequence[int], seen: set[int]) -> list[int]:
    """The first row of each session that is not in `seen`, which grows by these sessions."""
    sessions = page.sessions
    # Reversed, so that the first row of a session replaces the others.
    firsts = {sessions[number]: number for number in reversed(numbers)}
    new = sorted([firsts[session] for session in firsts.keys() - seen])
    seen |= firsts.keys()
    return new


def slips(word: str) -> set[str]:
    """All texts that are one typing error away: a letter missing, added or wrong, or two swapped."""
    alphabet = string.ascii_lowercase
    halves = [(word[:i], word[i:]) for i in range(len(word) + 1)]
    shorter = {a + b[1:] for a, b in halves if b}
    swapped = {a + b[1] + b[0] + b[2:] for a, b in halves if len(b) > 1}
    other = {a + c + b[1:] for a, b in halves if b for c in alphabet}
    longer = {a + c + b for a, b in halves for c in alphabet}
    return (shorter | swapped | other | longer) - {word}


def _all_of(queries: Sequence[Query], but: Query | None = None) -> Query:
    clauses = [(Occur.Must, query) for query in queries]
    return Query.boolean_query([*clauses, (Occur.MustNot, but)] if but is not None else clauses)


def _silent(query: Query) -> Query:
    return Query.const_score_query(query, 0.0)


def _as_typed(word: str) -> str:
    if word.startswith("emoji"):
        try:
            return chr(int(word.removeprefix("emoji"), 16))
        except (ValueError, OverflowError):
            return word
    return word
