"""Texts of several lines, made fit for a terminal and for the width there is."""

from __future__ import annotations

from burnctl.render.text import clean, width_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from burnctl.render.screen import Screen

_TAB = 4


def lines_of(text: str, room: int) -> list[str]:
    """The text's own lines, cleaned, each broken where it is longer than the room; blank ends are left out."""
    broken = [part for line in text.strip("\n").splitlines() for part in wrapped(clean(line.expandtabs(_TAB)), room)]
    while broken and not broken[-1].strip():
        broken.pop()
    return broken


def wrapped(line: str, room: int, hanging: int = 0) -> list[str]:
    """One line in as many as it takes, broken between words; what is indented stays so.

    All but the first have so much less room as they will be `hanging` below it.
    """
    line = line.rstrip()
    if width_of(line) <= room:
        return [line]
    indent = line[: len(line) - len(line.lstrip())][: room // 2]
    return list(_filled(line.split(), indent, room, hanging))


def _filled(words: Sequence[str], indent: str, room: int, hanging: int) -> Iterator[str]:
    held, used = indent, len(indent)
    for word in words:
        for n, part in enumerate(_pieces(word, max(room - hanging - len(indent), 1))):
            wide = width_of(part)
            gap = 1 if used > len(indent) else 0
            if gap and (n > 0 or used + gap + wide > room):  # between the pieces of a word is no gap
                yield held
                held, used, gap = indent, len(indent), 0
                room, hanging = room - hanging, 0
            held += " " * gap + part
            used += gap + wide
    yield held


def _pieces(word: str, room: int) -> list[str]:
    """A word in pieces that fit; most words are one."""
    if width_of(word) <= room:
        return [word]
    pieces, held, used = [], "", 0
    for char in word:
        wide = width_of(char)
        if held and used + wide > room:
            pieces.append(held)
            held, used = "", 0
        held += char
        used += wide
    return [*pieces, held]


def flow(parts: Sequence[str], screen: Screen, indent: int = 0) -> list[str]:
    """The parts joined by ` · ` in lines that fit the screen beside an indent; in a pipe one line."""
    room = max(screen.width - indent, 1)
    lines: list[str] = []
    for part in parts:
        if lines and (screen.is_pipe or width_of(lines[-1]) + 3 + width_of(part) <= room):
            lines[-1] += f" · {part}"
        else:
            lines.append(part)
    return lines if screen.is_pipe else [piece for line in lines for piece in wrapped(line, room)]
