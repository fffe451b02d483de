"""What is looked for and what matches it, in words that need no search engine to be understood."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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

    def __init__(self, sums: Mapping[int, float], has: Mapping[int, int], words: Sequence[tuple[float, bool]]) -> None:
        self.sums = sums  # for each session what its best message for each word is worth
        self._has = has  # which of the words it has, a bit for each
        self._words = words  # how rare each is, and whether every message that has it was seen
        self._shares: dict[int, float] = {}

    def several(self) -> list[int]:
        """The sessions that have more than one of the words."""
        return [session for session, has in self._has.items() if has & (has - 1)]

    def share(self, session: int) -> float:
        """How much of what is looked for the session has, the rare words counting most: 1 is everything."""
        has = self._has.get(session, 0)
        if has not in self._shares:
            found = sum(rarity for n, (rarity, _) in enumerate(self._words) if has >> n & 1)
            missing = sum(rarity for n, (rarity, sure) in enumerate(self._words) if sure and not has >> n & 1)
            self._shares[has] = found / (found + missing) if missing else 1.0
        return self._shares[has]


NO_SPREAD: Final = Spread({}, {}, ())
