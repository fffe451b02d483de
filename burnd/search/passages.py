"""Finds words in a text as the index folds them, and cuts the passage to show. Pure."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import islice
from math import fsum
from typing import Final, NamedTuple

import msgspec

from burnd.tokens.words import ACCENTS, EMOJI, LONGEST_WORD, MARKS, UNSPACED, camel_parts, normalized, unaccented

SNIPPET_BYTES: Final = 1024
_MOST_SPOTS: Final = 100  # of one word, so that a common one does not hide a rare one further on
_CUT: Final = "\u2026"
_PIECE: Final = re.compile(f"[{UNSPACED}]+|[{EMOJI}]|(?:(?![{UNSPACED}])[^\\W_])+")
_FIRST_WORD: Final = re.compile(r"[A-Za-z0-9]*")
_UNSPACED: Final = re.compile(f"[{UNSPACED}]")
_SPACE: Final = re.compile(r"\s")
_EDGELESS: Final = re.compile(f"[{UNSPACED}{EMOJI}]")
Spot = tuple[int, int]
_MARKED: Final = re.compile(f".?[{MARKS}{ACCENTS}]+", re.DOTALL)


class Bend(NamedTuple):
    """A piece whose length differs between the text and its folded form, as positions in both."""

    begin: int
    end: int
    text_begin: int
    text_end: int


class Plain(NamedTuple):
    """A text as the index has it: lower case, without accents. Positions are those of the text up to the first bend."""

    text: str
    bends: tuple[Bend, ...] = ()

    def spot(self, begin: int, end: int) -> tuple[int, int]:
        """The position in the text of a piece of the folded text, with the whole of each bend."""
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
    return plain(text).text


def plain(text: str) -> Plain:
    if text.isascii():
        return Plain(text.lower())
    translated = text.translate(_folding)
    odd = _odd_pieces(text, len(translated) != len(text))
    return Plain(translated) if odd is None else _bent(text, odd)


def _odd_pieces(text: str, has_longer: bool) -> re.Pattern[str] | None:
    """A pattern for pieces whose length changes when folded."""
    longer = "".join(char for char in set(text) if len(_folding[ord(char)]) > 1) if has_longer else ""
    if longer:
        return re.compile(f"{_MARKED.pattern}|[{re.escape(longer)}]", re.DOTALL)
    return _MARKED if _MARKED.search(text) else None


def _bent(text: str, odd: re.Pattern[str]) -> Plain:
    parts: list[str] = []
    bends: list[Bend] = []
    at = length = 0
    for match in odd.finditer(text):
        piece = normalized("NFC", match[0]).translate(_folding)
        begin, end = match.span()
        parts += [text[at:begin].translate(_folding), piece]
        length += len(parts[-2])
        bends.append(Bend(length, length + len(piece), begin, end))
        at, length = end, length + len(piece)
    return Plain("".join([*parts, text[at:].translate(_folding)]), tuple(bends))


class _Folding(dict[int, str]):
    """Each character as the index's analyzer folds it."""

    def __missing__(self, code: int) -> str:
        from burnd.tokens.words import analyzer  # noqa: PLC0415 - needs tantivy

        char = unaccented(chr(code))
        words = analyzer().analyze(char) if not "\ud800" <= char <= "\udfff" else []
        self[code] = "".join(words) or char
        return self[code]


_folding = _Folding()


class Passage(msgspec.Struct, frozen=True, gc=False):
    """The part of a text to show."""

    text: str
    highlights: tuple[Spot, ...] = ()
    truncated: bool = False


def pieces(text: str) -> list[str]:
    """The folded words of a phrase; a run of an unspaced script is one word."""
    return _PIECE.findall(folded(text))


class Spotter:
    """Finds words and phrases in texts: whole words, parts of camelCase words, and phrases word by word."""

    def __init__(self, words: Sequence[str], phrases: Sequence[str] = ()) -> None:
        self._phrases = [_phrase(found) for phrase in phrases if (found := pieces(phrase))]
        self._words = [word for word in dict.fromkeys(words) if word]

    def has_phrases(self, text: str) -> bool:
        as_indexed = folded(text) if self._phrases else ""
        return all(phrase.search(as_indexed) for phrase in self._phrases)

    def spots(self, text: str) -> list[Spot]:
        """The positions of words and phrases, in order, with overlapping ones merged."""
        as_indexed = plain(text)
        matches = [islice(phrase.finditer(as_indexed.text), _MOST_SPOTS) for phrase in self._phrases]
        found = [as_indexed.spot(*match.span()) for some in matches for match in some]
        for word in self._words:
            if word in as_indexed.text:
                spots = [as_indexed.spot(*place) for place in _first_of_word(word, as_indexed.text)]
                found += [spot for spot in spots if _is_edge(text, spot[0]) and _is_edge(text, spot[1])]
        if len(found) < 2:
            return found
        apart: list[Spot] = []
        for begin, end in sorted(found):
            if apart and begin < apart[-1][1]:
                apart[-1] = (apart[-1][0], max(end, apart[-1][1]))
            else:
                apart.append((begin, end))
        return apart


def _first_of_word(word: str, text: str) -> Iterator[Spot]:
    end = 0
    for _ in range(_MOST_SPOTS):
        begin = text.find(word, end)
        if begin < 0:
            return
        end = begin + len(word)
        yield begin, end


def _phrase(words: Sequence[str]) -> re.Pattern[str]:
    return re.compile(r"[\W_]*".join(map(_bound, words)))


def _bound(word: str) -> str:
    """A pattern for a whole word; in scripts without spaces, for any part of a run.

    Looking behind after the word is many times faster than before it.
    """
    literal = re.escape(word)
    before = f"(?<![^\\W_]{literal})" if not _EDGELESS.match(word[0]) else ""
    after = "(?![^\\W_])" if not _EDGELESS.match(word[-1]) else ""
    return f"{literal}{before}{after}"


def _is_edge(text: str, place: int) -> bool:
    """Whether a word, or a part of a camelCase word, begins or ends here."""
    if place <= 0 or place >= len(text):
        return True
    before, after = text[place - 1], text[place]
    if not (before.isalnum() and after.isalnum()):
        return True
    if not before.isupper() and after.isupper():
        return True
    if before.isupper() and after.isupper() and text[place + 1 : place + 2].islower():
        return True
    if before.isalpha() and after.isdigit() and _is_camel(text, place):
        return True
    return bool(_UNSPACED.match(before) or _UNSPACED.match(after))


def _is_camel(text: str, place: int) -> bool:
    before = _FIRST_WORD.match(text[max(place - LONGEST_WORD, 0) : place][::-1])
    after = _FIRST_WORD.match(text, place, place + LONGEST_WORD)
    return bool(before and after and camel_parts(before[0][::-1] + after[0]))


def passage(text: str, spots: Sequence[Spot], limit: int = SNIPPET_BYTES) -> Passage:
    """The part of a text with the most different matches, rare ones first, in at most `limit` bytes of UTF-8."""
    whole = text.strip()
    if len(whole) <= limit and (whole.isascii() or len(whole.encode("utf-8", "replace")) <= limit):
        shift = text.find(whole) if spots else 0
        return Passage(whole, _within(spots, shift, shift + len(whole), 0))
    begin = _begin(text, spots, limit)
    room = limit - (len(_CUT.encode()) if begin > 0 else 0)
    part = _fitting(text[begin : begin + limit], room)
    if begin + len(part) < len(text.rstrip()):
        part = _fitting(part, room - len(_CUT.encode()))
    end = begin + len(part)
    lead = _CUT if begin > 0 else ""
    tail = _CUT if end < len(text.rstrip()) else ""
    return Passage(lead + part + tail, _within(spots, begin, end, len(lead)), truncated=True)


def opening(text: str, limit: int = SNIPPET_BYTES) -> Passage:
    """The beginning of a text, in at most `limit` bytes of UTF-8."""
    whole = text.strip()
    if len(whole) <= limit and whole.isascii():
        return Passage(whole)
    part = _fitting(whole[:limit], limit)
    if len(part) == len(whole):
        return Passage(whole)
    return Passage(_fitting(part, limit - len(_CUT.encode())) + _CUT, truncated=True)


def _begin(text: str, spots: Sequence[Spot], limit: int) -> int:
    if not spots:
        return len(text) - len(text.lstrip())
    starts = [begin for begin, _ in spots]
    words = [folded(text[begin:end]) for begin, end in spots]
    worths = {word: 1 + 1 / count for word, count in Counter(words).items()}
    everything = fsum(worths.values())  # exact, so that the order of words does not matter
    reach = limit * 2 // 3
    best, most = 0, 0.0
    for i, start in enumerate(starts):
        until = bisect_left(starts, start + reach)
        worth = fsum(map(worths.__getitem__, set(words[i:until])))
        if worth > most:
            best, most = i, worth
        if most == everything:
            break
    lead = max(starts[best] - limit // 5, 0)
    if lead == 0:
        return 0
    space = _SPACE.search(text, lead, starts[best])
    return space.end() if space is not None else lead


def _within(spots: Sequence[Spot], begin: int, end: int, shift: int) -> tuple[Spot, ...]:
    if not spots:
        return ()
    return tuple((a - begin + shift, b - begin + shift) for a, b in spots if a >= begin and b <= end)


def _fitting(text: str, limit: int) -> str:
    data = text.encode("utf-8", "replace")
    return text if len(data) <= limit else data[:limit].decode("utf-8", "ignore")
