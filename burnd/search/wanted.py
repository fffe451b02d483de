"""What is looked for and what matches it, in words that need no search engine to be understood."""

from __future__ import annotations

from typing import Any, NamedTuple


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
