"""A search query: words and phrases as typed, the terms looked up for them, filters, matches and their score. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

LONGEST: Final = 4000  # characters of a query that are read; enough for a pasted error message
_CLOSING: Final = {'"': '"', "\u201c": "\u201d", "\u201e": "\u201c"}
_BESIDE: Final = 0.6  # weight of words in other messages of the session: some are there by chance
_LEAST: Final = 0.1  # what is left of a match in a session that has none of the rare words


class ParsedQuery(NamedTuple):
    """A query: the pieces between spaces, and the phrases in quotation marks."""

    pieces: tuple[str, ...]
    phrases: tuple[str, ...]


def typed(query: str) -> ParsedQuery:
    """Splits a query. A quotation mark that is not closed is an ordinary character."""
    text = query[:LONGEST]
    phrases: list[str] = []
    rest: list[str] = []
    closing = dict(_CLOSING)
    done = 0
    for start, char in enumerate(text):
        if start < done or char not in closing:
            continue
        end = text.find(closing[char], start + 1)
        if end < 0:
            del closing[char]  # later quotes of this kind are not closed either
            continue
        phrases.append(text[start + 1 : end])
        rest.append(text[done:start])
        done = end + 1
    rest.append(text[done:])
    return ParsedQuery(tuple(" ".join(rest).split()), tuple(phrase for phrase in phrases if phrase.strip()))


class Term(NamedTuple):
    """A word to look up, its weight, and its number of messages by field.

    `typed` is the word itself or the one it corrects; empty for a part of a word that the index has as a whole.
    """

    word: str
    weight: float
    counts: dict[str, int]
    typed: str

    @property
    def uses(self) -> int:
        return sum(self.counts.values())


class QueryTerms(NamedTuple):
    """What to look up for a query: `musts` are words of phrases, `shown` are highlighted."""

    terms: tuple[Term, ...]
    musts: tuple[str, ...]
    shown: tuple[str, ...]
    phrases: tuple[str, ...]
    corrected: dict[str, list[str]]


class SearchFilter(NamedTuple):
    """The filters of a search."""

    sessions: frozenset[int] | None = None
    since: int | None = None
    until: int | None = None
    role: str | None = None
    tool: str | None = None

    @property
    def has_author(self) -> bool:
        return self.role is not None or self.tool is not None


class Match(msgspec.Struct, frozen=True, gc=False):
    """A message that matches; `Lookup.message_name` reads which one."""

    score: float
    session: int
    ts: int
    address: Any  # tantivy's


class Spread:
    """Which words of a query each session has, in any of its messages."""

    def __init__(self, best: Sequence[Mapping[int, float]], words: Sequence[tuple[float, bool]]) -> None:
        self._words = words  # for each its rarity, and whether all messages that have it were seen
        self._together: dict[int, float] = dict(best[0]) if best else {}
        self._which = dict.fromkeys(self._together, 1)  # for each session a bit for each of its words
        for number, scores in enumerate(best[1:], 1):
            for session, score in scores.items():  # the best of each session that has the word
                self._which[session] = self._which.get(session, 0) | 1 << number
                self._together[session] = self._together.get(session, 0.0) + score
        self._left = {which: _LEAST + (1 - _LEAST) * self._share(which) for which in {0, *self._which.values()}}

    def _share(self, which: int) -> float:
        """The share of the query that these words make up, weighed by rarity.

        A word of which not all messages were seen does not count as missing.
        """
        found = missing = 0.0
        for number, (rarity, is_sure) in enumerate(self._words):
            if which >> number & 1:
                found += rarity
            elif is_sure:
                missing += rarity
        return found / (found + missing) if missing else 1.0

    def several(self) -> list[int]:
        return [session for session, which in self._which.items() if which & (which - 1)]

    def worth(self, score: float, session: int) -> float:
        """The score of a message, raised by other messages of its session, lowered by words that the session lacks."""
        which = self._which.get(session, 0)
        if which and (together := self._together[session]) > score:
            score += (together - score) * _BESIDE
        return score * self._left[which]


NO_SPREAD: Final = Spread((), ())
