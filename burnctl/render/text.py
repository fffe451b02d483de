"""Makes text from logs safe for a terminal, and cuts and wraps it by its width."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from burnctl.render.screen import Screen

# C0 and C1 controls, DEL, line separators, and bidirectional controls.
_HARMFUL = {
    *range(0x20),
    *range(0x7F, 0xA0),
    0x061C,
    0x200B,
    0x200E,
    0x200F,
    *range(0x2028, 0x202F),
    *range(0x2060, 0x2070),
    0xFEFF,
    *range(0xFFF9, 0xFFFC),
    *range(0xE0000, 0xE0080),  # tag characters: invisible, can hide words
}
_SPACE = {0x09, 0x0A, 0x0B, 0x0C, 0x0D, 0x85, 0x2028, 0x2029}
_SAFE = {code: (" " if code in _SPACE else None) for code in _HARMFUL}
_ZWJ, _VARIATION, _EMOJI_VARIATION = "\u200d", range(0xFE00, 0xFE10), "\ufe0f"


def clean(text: object) -> str:
    """Without escape sequences, control and bidi characters; line breaks and tabs become spaces (F74)."""
    plain = text if isinstance(text, str) else str(text)
    if plain.isascii() and plain.isprintable():
        return plain
    whole = plain.encode("utf-8", "replace").decode()  # half of a surrogate pair cannot be printed
    return _without_escapes(whole).translate(_SAFE)


def _without_escapes(text: str) -> str:
    """Removes whole escape sequences, such as `ESC ] 52 ; ... BEL`."""
    if not any(start in text for start in "\x1b\x90\x98\x9b\x9d\x9e\x9f"):
        return text
    import re

    return re.sub(_ESCAPES, "", text)


_ESCAPES = (
    r"(?:\x1b[\]PX^_]|[\x90\x98\x9d\x9e\x9f])[^\x07\x1b\x9c]*(?:\x07|\x1b\\|\x9c|$)?"  # strings, to their end
    r"|(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]?"  # CSI
    r"|\x1b[ -/]*[0-~]?"  # short ones
)


def width_of(text: str) -> int:
    if text.isascii():
        return len(text)
    return sum(wide for _, wide in _pieces(text))


def cut(text: str, width: int, where: str = "end") -> str:
    """The text in at most `width` cells, with `…` at the end, start or middle where it was cut."""
    if width_of(text) <= width:
        return text
    if width <= 1:
        return "…"[:width]
    if where == "start":
        return "…" + _last_cells(text, width - 1)
    if where == "middle":
        tail = (width - 1) // 2
        return _first_cells(text, width - 1 - tail) + "…" + _last_cells(text, tail)
    return _first_cells(text, width - 1).rstrip() + "…"


def pad(text: str, width: int, align: str = "left") -> str:
    space = " " * (width - width_of(text))
    return space + text if align == "right" else text + space


def _first_cells(text: str, width: int) -> str:
    pieces, used = [], 0
    for piece, wide in _pieces(text):
        used += wide
        if used > width:
            break
        pieces.append(piece)
    return "".join(pieces)


def _last_cells(text: str, width: int) -> str:
    pieces, used = [], 0
    for piece, wide in reversed(_pieces(text)):
        used += wide
        if used > width:
            break
        pieces.append(piece)
    return "".join(reversed(pieces))


def _pieces(text: str) -> list[tuple[str, int]]:
    """The characters with their widths; marks belong to the letter before them."""
    pieces: list[tuple[str, int]] = []
    is_joined = False
    for char in text:
        wide = _width_of_char(char)
        if pieces and (is_joined or wide == 0):
            before, its_width = pieces[-1]
            wide_now = 2 if char == _EMOJI_VARIATION and its_width == 1 else its_width
            pieces[-1] = (before + char, wide_now)
        else:
            pieces.append((char, wide))
        is_joined = char == _ZWJ
    return pieces


def _width_of_char(char: str) -> int:
    if char.isascii():
        return 1
    from unicodedata import category, combining, east_asian_width

    code = ord(char)
    if combining(char) or code in _VARIATION or char == _ZWJ or category(char) in ("Mn", "Me", "Cf"):
        return 0
    if 0x1F3FB <= code <= 0x1F3FF:  # skin tones colour the one before
        return 0
    if 0x1160 <= code <= 0x11FF:  # the later parts of a Hangul syllable
        return 0
    return 2 if east_asian_width(char) in "WF" else 1


_TAB = 4
_NARROW = 60  # columns: too few for a label beside its text


def lines_of(text: str, room: int) -> list[str]:
    """The text's lines, cleaned and broken to the room, without blank ends."""
    broken = [part for line in text.strip("\n").splitlines() for part in wrap(clean(line.expandtabs(_TAB)), room)]
    while broken and not broken[-1].strip():
        broken.pop()
    return broken


def wrap(line: str, room: int, hanging: int = 0) -> list[str]:
    """Breaks a line between words, keeping its indent.

    All but the first line are shorter by `hanging`.
    """
    line = line.rstrip()
    if width_of(line) <= room:
        return [line]
    indent = line[: len(line) - len(line.lstrip())][: room // 2]
    return list(_filled(line.split(), indent, room, hanging))


def _filled(words: Sequence[str], indent: str, room: int, hanging: int) -> Iterator[str]:
    line, used = indent, len(indent)
    for word in words:
        for n, part in enumerate(_word_parts(word, max(room - hanging - len(indent), 1))):
            wide = width_of(part)
            gap = 1 if used > len(indent) else 0
            if gap and (n > 0 or used + gap + wide > room):  # no gap between the pieces of a word
                yield line
                line, used, gap = indent, len(indent), 0
                room, hanging = room - hanging, 0
            line += " " * gap + part
            used += gap + wide
    yield line


def _word_parts(word: str, room: int) -> list[str]:
    """A word in pieces that fit."""
    if width_of(word) <= room:
        return [word]
    pieces, line, used = [], "", 0
    for char in word:
        wide = width_of(char)
        if line and used + wide > room:
            pieces.append(line)
            line, used = "", 0
        line += char
        used += wide
    return [*pieces, line]


def flow(parts: Iterable[str | tuple[str, str]], screen: Screen, indent: int = 0) -> list[str]:
    """The parts joined by ` · ` in lines that fit beside an indent; one line in a pipe. A part may have a style."""
    room = max(screen.width - indent, 1)
    lines: list[str] = []
    used = 0
    for part in parts:
        text, style = (part, "") if isinstance(part, str) else part
        wide = width_of(text)
        if lines and (screen.is_pipe or used + 3 + wide <= room):
            lines[-1] += f" · {screen.paint(text, style)}"
            used += 3 + wide
        else:
            lines += [screen.paint(line, style) for line in ([text] if screen.is_pipe else wrap(text, room))]
            used = wide
    return lines


def labelled(label: str, parts: Iterable[str], screen: Screen, margin: int = 0) -> list[str]:
    """The same beside a bold label, or below it on a narrow screen; `margin` is the width of the longest label."""
    is_above = not margin and not screen.is_pipe and screen.width < _NARROW
    margin = margin or (2 if is_above else len(label) + 3)
    head = screen.paint(label, "bold")
    lines = [" " * margin + line for line in flow(parts, screen, margin)]
    return [head, *lines] if is_above else [head + lines[0][len(label) :], *lines[1:]]
