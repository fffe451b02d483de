"""What a person typed, taken apart: words, and phrases in quotation marks. Nothing in it is ever syntax. Pure."""

from __future__ import annotations

from typing import Final, NamedTuple

LONGEST: Final = 4000  # characters of a query that are read; a pasted error message has room
_CLOSING: Final = {'"': '"', "\u201c": "\u201d", "\u201e": "\u201c"}


class Typed(NamedTuple):
    """Pieces between spaces, and what stood in quotation marks."""

    pieces: tuple[str, ...]
    phrases: tuple[str, ...]


def typed(query: str) -> Typed:
    """A quotation mark without its other half is a mark like any other."""
    text = query[:LONGEST]
    phrases: list[str] = []
    rest: list[str] = []
    closing = dict(_CLOSING)
    done = 0
    for place, char in enumerate(text):
        if place < done or char not in closing:
            continue
        end = text.find(closing[char], place + 1)
        if end < 0:
            del closing[char]  # later quotes of this kind are not closed either
            continue
        phrases.append(text[place + 1 : end])
        rest.append(text[done:place])
        done = end + 1
    rest.append(text[done:])
    return Typed(tuple(" ".join(rest).split()), tuple(phrase for phrase in phrases if phrase.strip()))
