"""The model: records that must exist for everything written on a machine, and text that must not."""

from __future__ import annotations

from datetime import UTC, datetime


class Known:
    """Turns by message, tags by session, words that must be found, and words that must not be."""

    def __init__(self) -> None:
        self.turns: dict[str, tuple[str, int]] = {}  # message: whose it is, output tokens
        self.tags: dict[str, str] = {}
        self.words: dict[str, str] = {}  # word: session
        self.gone: set[tuple[str, str]] = set()  # words, and the sessions in which they must not be found any more
        self._count = 0

    def next(self) -> int:
        self._count += 1
        return self._count

    def by_session(self) -> dict[str, tuple[int, int]]:
        """Turns and their output tokens."""
        return self._sums({message: session for message, (session, _) in self.turns.items()})

    def by_tag(self) -> dict[str, tuple[int, int]]:
        tagged = {m: self.tags[session] for m, (session, _) in self.turns.items() if session in self.tags}
        return self._sums(tagged)

    def _sums(self, keys: dict[str, str]) -> dict[str, tuple[int, int]]:
        sums: dict[str, tuple[int, int]] = {}
        for message, key in keys.items():
            turns, outputs = sums.get(key, (0, 0))
            sums[key] = (turns + 1, outputs + self.turns[message][1])
        return sums

    def forget(self, *sessions: str) -> None:
        """Text of these sessions up to now must not be found again."""
        self.gone |= {(word, session) for word, session in self.words.items() if session in sessions}
        self.words = {word: session for word, session in self.words.items() if session not in sessions}


def word_of(number: int) -> str:
    return f"word{number}x"


def now_ms() -> int:
    """Real time: text pruned up to now does not come back, later text does."""
    return int(datetime.now(UTC).timestamp() * 1000)
