"""What a person typed, taken apart: words, and phrases in quotation marks. Nothing in it is ever syntax. Pure."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

LONGEST: Final = 4000  # characters of a query that are read; a pasted error message has room
_QUOTED: Final = re.compile('"([^"]*)"|\u201c([^\u201d]*)\u201d|\u201e([^\u201c]*)\u201c')


class Typed(NamedTuple):
    """Pieces between spaces, and what stood in quotation marks."""

    pieces: tuple[str, ...]
    phrases: tuple[str, ...]


def typed(query: str) -> Typed:
    """A quotation mark without its other half is a mark like any other."""
    text = query[:LONGEST]
    phrases = [next(filter(None, found.groups()), "") for found in _QUOTED.finditer(text)]
    rest = _QUOTED.sub(" ", text)
    return Typed(tuple(rest.split()), tuple(phrase for phrase in phrases if phrase.strip()))
