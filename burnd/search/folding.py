"""A text as the search index sees it, letter for letter: small, without accents, and where each letter came from."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator
from typing import Final, NamedTuple

from burnd.tokens.words import ACCENTS, MARKS, normalized, unaccented

_MARKED: Final = re.compile(f".?[{MARKS}{ACCENTS}]+", re.DOTALL)


class Bend(NamedTuple):
    """A piece that is longer or shorter in the folded text than in the text itself."""

    begin: int
    end: int
    text_begin: int
    text_end: int


class Plain(NamedTuple):
    """A folded text. Its places are those of the text, but behind a bend."""

    text: str
    bends: tuple[Bend, ...] = ()

    def spot(self, begin: int, end: int) -> tuple[int, int]:
        """Where in the text a piece of the folded text stands; of a bent piece, all of it."""
        if not self.bends:
            return begin, end
        return self._place(begin, is_end=False), self._place(end, is_end=True)

    def _place(self, place: int, *, is_end: bool) -> int:
        number = bisect_right(self.bends, place, key=lambda bend: bend.begin) - 1
        if number < 0:
            return place
        bend = self.bends[number]
        if place >= bend.end:
            return bend.text_end + place - bend.end
        return bend.text_end if is_end and place > bend.begin else bend.text_begin


def folded(text: str) -> str:
    """The text alone."""
    return plain(text).text


def plain(text: str) -> Plain:
    """The text as the index has it."""
    if text.isascii():
        return Plain(text.lower())
    translated = text.translate(_folding)
    odd = _odd_pieces(text, len(translated) != len(text))
    return Plain(translated) if odd is None else _bent(text, odd)


def _odd_pieces(text: str, has_longer: bool) -> re.Pattern[str] | None:
    """What has another length when it is folded: letters with marks of their own behind them, and such as \u00df."""
    longer = "".join(char for char in set(text) if len(_folding[ord(char)]) > 1) if has_longer else ""
    if longer:
        return re.compile(f"{_MARKED.pattern}|[{re.escape(longer)}]", re.DOTALL)
    return _MARKED if _MARKED.search(text) else None


def _bent(text: str, odd: re.Pattern[str]) -> Plain:
    parts: list[str] = []
    bends: list[Bend] = []
    at = length = 0
    for piece, begin, end in _odd(text, odd):
        parts += [text[at:begin].translate(_folding), piece]
        length += len(parts[-2])
        bends.append(Bend(length, length + len(piece), begin, end))
        at, length = end, length + len(piece)
    return Plain("".join([*parts, text[at:].translate(_folding)]), tuple(bends))


def _odd(text: str, pattern: re.Pattern[str]) -> Iterator[tuple[str, int, int]]:
    for match in pattern.finditer(text):
        yield normalized("NFC", match[0]).translate(_folding), *match.span()


class _Folding(dict[int, str]):
    """Each character as the index has it: asked of its own analyzer once, so that the two cannot differ."""

    def __missing__(self, code: int) -> str:
        from burnd.tokens.words import analyzer  # noqa: PLC0415 - what is folded was searched, so there is tantivy

        char = unaccented(chr(code))
        words = analyzer().analyze(char) if not "\ud800" <= char <= "\udfff" else []
        self[code] = "".join(words) or char
        return self[code]


_folding = _Folding()
