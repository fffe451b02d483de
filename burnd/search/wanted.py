"""What is looked for and what matches it, in words that need no search engine to be understood."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

_BESIDE: Final = 0.6  # what words are worth that stand elsewhere in the session: some are there by chance
_LEAST: Final = 0.1  # what is left of a match in a session that has none of the telling words


class Term(NamedTuple):
    """A word to look for, what a match is worth, in which fields it stands at all, and what was typed for it.

    That is the word itself, or the one it corrects; a part of a word that is known as a whole stands for nothing.
    """

    word: str
    weight: float
    counts: dict[str, int]
    typed: str

    @property
    def uses(self) -> int:
        return sum(self.counts.values())


class Wanted(NamedTuple):
    """A query understood: its words, the words that must all be there, how to spot them, what was corrected."""

    terms: tuple[Term, ...]
    musts: tuple[str, ...]
    shown: tuple[str, ...]
    phrases: tuple[str, ...]
    corrected: dict[str, list[str]]


class Only(NamedTuple):
    """What the matches are narrowed to; None narrows nothing."""

    sessions: frozenset[int] | None = None
    since: int | None = None
    until: int | None = None
    role: str | None = None
    tool: str | None = None

    @property
    def is_by_somebody(self) -> bool:
        """Whether it matters who said a word, or which tool brought it: not what a title could tell."""
        return self.role is not None or self.tool is not None


class Match(msgspec.Struct, frozen=True, gc=False):
    """A message that matches; where it stands is read when it is wanted."""

    score: float
    session: int
    ts: int
    address: Any  # the engine's own


class Spread:
    """What is known of the words of sessions, in whichever of their messages each of the words stands."""

    def __init__(self, best: Sequence[Mapping[int, float]], words: Sequence[tuple[float, bool]]) -> None:
        self._words = words  # how rare each is, and whether every message that has it was seen
        self._together: dict[int, float] = dict(best[0]) if best else {}
        self._which = dict.fromkeys(self._together, 1)  # of the words a session has, a bit for each
        for number, of_word in enumerate(best[1:], 1):  # the sessions that have it, and what their best is worth
            self._add(of_word, 1 << number)
        self._left = {which: _LEAST + (1 - _LEAST) * self._share(which) for which in {0, *self._which.values()}}

    def _add(self, best: Mapping[int, float], bit: int) -> None:
        together, which = self._together, self._which
        for session, score in best.items():
            if session in which:
                which[session] |= bit
                together[session] += score
            else:
                which[session], together[session] = bit, score

    def _share(self, which: int) -> float:
        """How much of what is looked for these words are. Rare ones count most, and a word that a session may have,
        since not all messages with it were seen, not at all."""
        found = missing = 0.0
        for number, (rarity, is_sure) in enumerate(self._words):
            if which >> number & 1:
                found += rarity
            elif is_sure:
                missing += rarity
        return found / (found + missing) if missing else 1.0

    def several(self) -> list[int]:
        """The sessions that have more than one of the words."""
        return [session for session, which in self._which.items() if which & (which - 1)]

    def worth(self, score: float, session: int) -> float:
        """What a message of this score is worth with the rest of its session, and without what that lacks."""
        which = self._which.get(session, 0)
        if which and (together := self._together[session]) > score:
            score += (together - score) * _BESIDE
        return score * self._left[which]


NO_SPREAD: Final = Spread((), ())
