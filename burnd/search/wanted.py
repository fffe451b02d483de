"""What is looked for and what matches it, in words that need no search engine to be understood."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any, Final, NamedTuple


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


class Match(NamedTuple):
    """A message that matches; where it stands is read when it is wanted."""

    score: float
    session: int
    ts: int
    address: Any  # the engine's own


class Spread:
    """What is known of the words of sessions, in whichever of their messages each of the words stands."""

    def __init__(self, best: Sequence[Mapping[int, float]], words: Sequence[tuple[float, bool]]) -> None:
        self._best = best  # for each word the sessions that have it, and what their best message for it is worth
        self._words = words  # how rare each is, and whether every message that has it was seen

    def several(self) -> list[int]:
        """The sessions that have more than one of the words."""
        return [session for session, count in Counter(chain.from_iterable(self._best)).items() if count > 1]

    def of(self, session: int) -> tuple[float, float]:
        """What the session's messages are worth together, and how much of what is looked for it has: 1 is everything.

        Rare words count most, and a word that it may have, since not all messages with it were seen, not at all.
        """
        together = found = missing = 0.0
        for best, (rarity, is_sure) in zip(self._best, self._words, strict=True):
            score = best.get(session)
            if score is not None:
                together += score
                found += rarity
            elif is_sure:
                missing += rarity
        return together, found / (found + missing) if missing else 1.0


NO_SPREAD: Final = Spread((), ())
