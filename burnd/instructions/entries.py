"""Splits instruction files into entries and ranks them by BM25. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import log
from typing import Final, NamedTuple

from burnd.search.query import typed
from burnd.tokens.words import spelled_out

_MOST_WORDS: Final = 64  # of a query
_PART_WEIGHT: Final = 0.3  # of a part of a camelCase word, as in search over sessions
_K1, _B = 1.2, 0.75  # the usual constants


class MemoryFile(NamedTuple):
    """`project` is its folder, None for the user's own files."""

    path: str
    kind: str
    project: str | None
    modified_ms: int
    text: str
    is_memory: bool = False  # written by the harness


class MemoryEntry(NamedTuple):
    """A section of an instruction file, or a whole memory file."""

    file: MemoryFile
    heading: str
    line: int
    text: str
    copies: tuple[str, ...] = ()  # other files with the same section


class MemoryMatch(NamedTuple):
    entry: MemoryEntry
    score: float


def entries(files: Iterable[MemoryFile]) -> list[MemoryEntry]:
    """Equal entries are one entry of the first file."""
    unique: dict[tuple[str, str], MemoryEntry] = {}
    for file in files:
        name = file.path.rpartition("/")[2].removesuffix(".md")
        whole = [MemoryEntry(file, name, 1, file.text)] if file.text.strip() else []
        for entry in whole if file.is_memory else _sections(file):
            key = (entry.heading, entry.text)
            first = unique.get(key)
            unique[key] = entry if first is None else first._replace(copies=(*first.copies, file.path))
    return list(unique.values())


def fence_after(line: str, fence: str) -> str:
    """The fence of the code block that is open after a line, or "". `fence` is the one before the line.

    A block ends at a line of at least as many of the same marks. ```` ```code``` ```` opens none.
    """
    text = line.strip()
    marks = text[: len(text) - len(text.lstrip(text[0]))] if text.startswith(("```", "~~~")) else ""
    if not marks:
        return fence
    if not fence:
        return "" if marks[0] == "`" and "`" in text[len(marks) :] else marks
    return "" if marks == text and marks.startswith(fence) else fence


def _sections(file: MemoryFile) -> list[MemoryEntry]:
    """By headings of the first two levels outside of code blocks."""
    sections: list[MemoryEntry] = []
    heading, begin, lines = "", 1, list[str]()
    fence = ""

    def close() -> None:
        body = lines[1:] if heading else lines
        if any(line.strip() for line in body):
            sections.append(MemoryEntry(file, heading, begin, "".join(lines).strip("\n")))

    for number, line in enumerate(file.text.splitlines(keepends=True), 1):
        fence = fence_after(line, fence)
        if not fence and line.startswith(("# ", "## ")):
            close()
            heading, begin, lines = line.lstrip("#").strip(), number, []
        lines.append(line)
    close()
    return sections


class Query:
    """Words with weights, and phrases that an entry must contain."""

    def __init__(self, query: str) -> None:
        parts = typed(query)
        self.weights: dict[str, float] = {}
        for piece in (*parts.pieces, *parts.phrases):
            whole, *camel = spelled_out(piece) or ("",)
            for weight, words in ((1.0, [whole]), (_PART_WEIGHT, camel)):
                for word in " ".join(words).split():
                    if word in self.weights or len(self.weights) < _MOST_WORDS:
                        self.weights[word] = max(weight, self.weights.get(word, 0.0))
        phrases = (spelled_out(phrase) for phrase in parts.phrases)
        self.phrases = [f" {' '.join(words[0].split())} " for words in phrases if words]

    def rank(self, candidates: Sequence[MemoryEntry]) -> list[MemoryMatch]:
        """Best first. Words of a heading count twice."""
        rows: list[tuple[MemoryEntry, dict[str, int], int]] = []
        uses = dict.fromkeys(self.weights, 0)
        length = 0
        for entry in candidates:
            words = " ".join(spelled_out(f"{entry.heading}\n{entry.text}")).split()
            length += len(words)
            counts = {word: n for word in self.weights if (n := words.count(word))}
            for word in counts:
                uses[word] += 1
            if counts and self.phrases:
                text = " ".join(" ".join(spelled_out(entry.text)[:1]).split())
                counts = counts if all(phrase in f" {text} " for phrase in self.phrases) else {}
            if counts:
                rows.append((entry, counts, len(words)))
        average = length / len(candidates) if length else 1.0
        rarity = {word: log(1 + (len(candidates) - n + 0.5) / (n + 0.5)) for word, n in uses.items()}

        def score(counts: dict[str, int], size: int) -> float:
            scale = _K1 * (1 - _B + _B * size / average)
            return sum(self.weights[w] * rarity[w] * n * (_K1 + 1) / (n + scale) for w, n in counts.items())

        matches = [MemoryMatch(entry, score(counts, size)) for entry, counts, size in rows]
        matches.sort(key=lambda match: (-match.score, match.entry.file.path, match.entry.line))
        return matches
