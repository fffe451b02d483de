"""How text becomes words: what a tokenizer that splits at every non-letter would miss is spelled out for it. Pure.

The tokenizer itself is tantivy's, in its own thread: it takes runs of letters and digits, folds accents and case.
That finds `resolve` and `dirs` in `resolve_dirs`, the first word of every line, and every part of a path. Spelled out
here are the parts of camelCase words, pairs of characters where a script has no spaces, and emoji.
"""

from __future__ import annotations

import re
import unicodedata
from typing import Final

from burnd.records.codec import clean

LONGEST_WORD: Final = 255  # bytes; what is longer is no word

# Scripts that write words without spaces between them: their characters are found alone and in pairs.
UNSPACED: Final = (
    "\u0e00-\u0eff\u1000-\u109f\u1100-\u11ff\u1780-\u17ff\u3005-\u3007\u3040-\u318f\u31a0-\u31bf\u31f0-\u31ff"
    "\u3400-\u4dbf\u4e00-\u9fff\ua960-\ua97f\uac00-\ud7ff\uf900-\ufaff\uff66-\uff9f\U00020000-\U0003ffff"
)
EMOJI: Final = (
    "\u231a\u231b\u23e9-\u23f3\u23f8-\u23fa\u2600-\u27bf\u2b05-\u2b07\u2b1b\u2b1c\u2b50\u2b55\U0001f000-\U0001faff"
)
_RUN: Final = re.compile(f"[{UNSPACED}]+")
_PICTURE: Final = re.compile(f"[{EMOJI}]")
# What is written behind a letter and belongs to it: accents, and the later parts of a Korean syllable.
MARKS: Final = "\u0300-\u036f\u1161-\u11ff\u3099\u309a"
_MARK: Final = re.compile(f"[{MARKS}]")
_CAMEL_PART: Final = re.compile(rb"[A-Z]+(?![a-z])|[A-Z]?[a-z0-9]+|[A-Z]")

# One byte of UTF-8 as what it can be: a small letter or digit, a capital, the first of a character that needs a
# closer look, or anything else. Looking for a pair in such a row is many times faster than a regular expression.
_SMALL, _CAPITAL, _SPECIAL, _OTHER = b"aA!."
_LEADS: Final = (0xCC, 0xCD, 0xE0, 0xE1, *range(0xE3, 0xF5))
_CLASSES: Final = bytes(
    _SMALL
    if chr(byte) in "abcdefghijklmnopqrstuvwxyz0123456789"
    else _CAPITAL
    if chr(byte) in "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
    else _SPECIAL
    if byte in _LEADS
    else _OTHER
    for byte in range(256)
)
# The emoji that share their first byte with arrows, dashes and quotation marks, which are everywhere.
_OLD_EMOJI: Final = tuple(bytes((0xE2, second)) for second in (0x8C, 0x8F, *range(0x98, 0x9F), 0xAC, 0xAD))

_REMEMBERED: Final = 50_000
_parts_of: dict[bytes, bytes] = {}


def spelled_out(text: str) -> tuple[str, str]:
    """The text as the tokenizer should see it, and beside it the parts of its camelCase words."""
    try:
        data = text.encode()
    except UnicodeEncodeError:
        text = clean(text)
        data = text.encode()
    row = data.translate(_CLASSES)
    if len(data) != len(text) and (_SPECIAL in row or any(lead in data for lead in _OLD_EMOJI)):
        text = spaced(text)
        row = row.replace(b"!", b".")
    return text, _camel_parts(data, row)


def spaced(text: str) -> str:
    """Text in which unspaced scripts are single characters and pairs, emoji are words, and accents are whole."""
    if _MARK.search(text):
        text = unicodedata.normalize("NFC", text)
    return _PICTURE.sub(_named, _RUN.sub(_paired, text))


def camel_parts(text: str) -> str:
    """`getUserName HTTPServer` is `get User Name HTTP Server`; words of one part are left out."""
    data = text.encode("utf-8", "replace")
    return _camel_parts(data, data.translate(_CLASSES).replace(b"!", b"."))


def _camel_parts(data: bytes, row: bytes) -> str:
    words: set[bytes] = set()
    for boundary in (b"aA", b"AAa"):
        _collect(data, row, boundary, words)
    if not words:
        return ""
    return b" ".join([_parts_of.get(word) or _split(word) for word in words]).decode()


def _collect(data: bytes, row: bytes, boundary: bytes, words: set[bytes]) -> None:
    """Adds every word that has this pattern of small letters and capitals in it."""
    place = row.find(boundary)
    while place >= 0:
        begin, end = row.rfind(b".", 0, place) + 1, row.find(b".", place)
        words.add(data[begin : end if end >= 0 else len(data)])
        place = row.find(boundary, end) if end >= 0 else -1


def _split(word: bytes) -> bytes:
    parts = b" ".join(_CAMEL_PART.findall(word)) if len(word) <= LONGEST_WORD else b""
    if len(_parts_of) >= _REMEMBERED:
        _parts_of.clear()
    _parts_of[word] = parts
    return parts


def _paired(run: re.Match[str]) -> str:
    chars = run[0]
    pairs = [chars[i : i + 2] for i in range(len(chars) - 1)]
    return f" {' '.join([*chars, *pairs])} "


def _named(picture: re.Match[str]) -> str:
    return f" emoji{ord(picture[0]):x} "
