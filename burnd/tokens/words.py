"""Splits content records and texts into the words that search indexes: lower-case, without accents. Pure.

A word is a run of letters and digits: `resolve_dirs` has `resolve` and `dirs`. Parts of camelCase words, pairs of
characters in scripts without spaces, and emoji are words as well. tantivy splits the result at spaces only: its own
filters cost several times as much per word as translating a whole ASCII text here.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator
from functools import cache
from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec

from burnd.records import Content
from burnd.records.codec import clean
from burnd.records.times import index_ms

if TYPE_CHECKING:
    import tantivy

LONGEST_WORD: Final = 255  # bytes; longer runs are not indexed

# Scripts without spaces between words: their characters are indexed alone and in pairs.
UNSPACED: Final = (
    "\u0e00-\u0eff\u1000-\u109f\u1100-\u11ff\u1780-\u17ff\u3005-\u3007\u3040-\u318f\u31a0-\u31bf\u31f0-\u31ff"
    "\u3400-\u4dbf\u4e00-\u9fff\ua960-\ua97f\uac00-\ud7ff\uf900-\ufaff\uff66-\uff9f\U00020000-\U0003ffff"
)
EMOJI: Final = (
    "\u231a\u231b\u23e9-\u23f3\u23f8-\u23fa\u2600-\u27bf\u2b05-\u2b07\u2b1b\u2b1c\u2b50\u2b55\U0001f000-\U0001faff"
)
_RUN: Final = re.compile(f"[{UNSPACED}]+")
_PICTURE: Final = re.compile(f"[{EMOJI}]")
# Characters that belong to the letter before them: accents, and the later parts of a Korean syllable.
MARKS: Final = "\u0300-\u036f\u1161-\u11ff\u3099\u309a"
# Scripts whose accents, points and vowel signs are optional, such as Greek, Cyrillic, Hebrew and Arabic. tantivy's
# filter knows Latin letters only; in other scripts a mark is a part of the letter.
_ACCENTED: Final = "\u0300-\u077f\u08a0-\u08ff\u1c80-\u1c8f\u1f00-\u1fff\ua640-\ua69f\ufb13-\ufdff\ufe70-\ufeff"
ACCENTS: Final = (
    "\u0300-\u036f\u0483-\u0487\u0591-\u05bd\u05bf\u05c1\u05c2\u05c4\u05c5\u05c7\u0610-\u061a\u0640\u064b-\u065f\u0670"
    "\u06d6-\u06dc\u06df-\u06e4\u06e7\u06e8\u06ea-\u06ed\u0711\u0730-\u074a\u08d3-\u08e1\u08e3-\u08ff\ua66f\ua674-\ua67d"
    "\ua69e\ua69f\ufb1e"
)
_MARK: Final = re.compile(f"[{MARKS}{_ACCENTED}]")
_ACCENTED_RUN: Final = re.compile(f"[{_ACCENTED}][{_ACCENTED} ]*")
_ACCENT: Final = re.compile(f"[{ACCENTS}]")
_CAMEL_PART: Final = re.compile(rb"[A-Z]+(?![a-z])|[A-Z]?[a-z0-9]+|[A-Z]")

_BOUNDARY: Final = re.compile(rb"[a-z0-9][A-Z]|[A-Z][A-Z][a-z0-9]")

_SMALL: Final = b"abcdefghijklmnopqrstuvwxyz0123456789"
_DIGITS: Final = b"0123456789"
_CAPITALS: Final = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ"
# The class of each byte. Finding the words with a capital in the classes takes a third of a regular expression's time.
_CLASSES: Final = bytes(ord("a" if byte in _SMALL else "A" if byte in _CAPITALS else ".") for byte in range(256))
_CAPITAL, _OUTSIDE = ord("A"), ord(".")  # `find` takes numbers faster than strings
_ASCII: Final = bytes(range(128))
_APART: Final = bytes(byte if byte in _SMALL + _CAPITALS else ord(" ") for byte in range(256)).lower()
# Dashes, quotation marks, arrows and lines as UTF-8. They are in no word, and many texts have no others beyond ASCII.
_SYMBOLS: Final = re.compile(
    rb"\xe2(?:[\x80\x83\x87-\x8b\x8d\x8e\x90\x94-\x97\x9f-\xab\xae\xaf\xb9-\xbf][\x80-\xbf]|\x86[\x8c-\xbf])"
    rb"|\xc2[\x80-\xa9\xab-\xb1\xb4\xb6-\xb8\xbb\xbf]|\xef(?:\xb8[\x80-\xbf]|\xb9[\x80-\xaf]|\xbf[\x9d-\xbf])"
)

_MOST_MARKS: Final = 32
_REMEMBERED: Final = 50_000  # words


def spelled_out(text: str, sign: str = "") -> tuple[str, ...]:
    """The words of a text and the parts of its camelCase words, each with the sign as prefix; empty without words."""
    try:
        data = text.encode()
    except UnicodeEncodeError:
        text = clean(text)
        data = text.encode()
    if len(data) != len(text) and not _SYMBOLS.sub(b"", data.translate(None, _ASCII)):
        data = text.encode("ascii", "replace")
    words = data.translate(_APART) if data.isascii() else " ".join(_analyzed(spaced(text))).encode()
    if not words or words.isspace():
        return ()
    parts = _camel_parts(data).lower()
    if sign:
        words, parts = _signed(words, sign.encode()), _signed(parts, sign.encode()) if parts else b""
    return (words.decode(), parts.decode()) if parts else (words.decode(),)


def signed(words: str, sign: str) -> str:
    """Words between spaces, each prefixed by the sign."""
    return _signed(words.encode(), sign.encode()).decode()


def _signed(words: bytes, sign: bytes) -> bytes:
    return sign + (b" " + sign).join(words.split())


@cache
def analyzer() -> tantivy.TextAnalyzer:
    """Splits at all but letters and digits, and folds accents and case; for queries and texts beyond ASCII."""
    import tantivy  # noqa: PLC0415 - optional

    words = tantivy.TextAnalyzerBuilder(tantivy.Tokenizer.simple()).filter(tantivy.Filter.remove_long(LONGEST_WORD + 1))
    return words.filter(tantivy.Filter.ascii_fold()).filter(tantivy.Filter.lowercase()).build()


def _analyzed(text: str) -> list[str]:
    """The words of any text, by the analyzer for queries; none without tantivy."""
    try:
        return analyzer().analyze(text)
    except ImportError:
        return []


def spaced(text: str) -> str:
    """Text with unspaced scripts as single characters and pairs, emoji as words, and composed accents."""
    if _MARK.search(text):
        text = unaccented(normalized("NFC", text))
    return _PICTURE.sub(_named, _RUN.sub(_paired, text))


def unaccented(text: str) -> str:
    """Text without the accents, and the case that depends on them, that tantivy's filters do not know."""
    return _ACCENTED_RUN.sub(_bare, text)


def _bare(run: re.Match[str]) -> str:
    return _ACCENT.sub("", normalized("NFKD", run[0])).casefold()


def normalized(form: Literal["NFC", "NFKD"], text: str) -> str:
    """Unicode's normal form in linear time: rows of combining marks, whose sorting is quadratic, are split after 32.

    Unicode's stream-safe text format does the same.
    """
    if len(text) > _MOST_MARKS:
        text = _mark_rows().sub("\\g<0>\u034f", text)
    return unicodedata.normalize(form, text)


@cache
def _mark_rows() -> re.Pattern[str]:
    """Matches 32 combining marks, or characters that decompose into them."""
    chars = map(chr, range(0x300, 0x20000))  # there are no combining marks beyond
    marks = [char for char in chars if unicodedata.combining(unicodedata.normalize("NFKD", char)[0])]
    return re.compile(f"[{''.join(marks)}]{{{_MOST_MARKS}}}")


def camel_parts(text: str) -> str:
    """`getUserName HTTPServer2` gives `get User Name HTTP Server2 Server`; words of one part are left out."""
    return _camel_parts(text.encode("utf-8", "replace")).decode()


def _camel_parts(data: bytes) -> bytes:
    row = data.translate(_CLASSES) + b"."
    find, find_last = row.find, row.rfind
    words: list[bytes] = []
    place = find(_CAPITAL)
    while place >= 0:
        end = find(_OUTSIDE, place)
        words.append(data[find_last(_OUTSIDE, 0, place) + 1 : end])
        place = find(_CAPITAL, end)
    return b" ".join(filter(None, set(map(_parts_of.__getitem__, words))))


class _CamelParts(dict[bytes, bytes]):
    """The parts of each word with a capital that was seen, empty if it has only one."""

    def __missing__(self, word: bytes) -> bytes:
        if len(word) > LONGEST_WORD:
            return b""
        found = _CAMEL_PART.findall(word) if _BOUNDARY.search(word) else []
        parts = b" ".join([*found, *[name for part in found if (name := part.rstrip(_DIGITS)) not in (part, b"")]])
        if len(self) >= _REMEMBERED:
            self.clear()
        self[word] = parts
        return parts


_parts_of: Final = _CamelParts()


def _paired(run: re.Match[str]) -> str:
    chars = run[0]
    pairs = [chars[i : i + 2] for i in range(len(chars) - 1)]
    return f" {' '.join([*chars, *pairs])} "


def _named(picture: re.Match[str]) -> str:
    return f" emoji{ord(picture[0]):x} "


# The words of records

USER, TOOL, REST, TITLE, SUMMARY, COMPACTION = "user", "tool", "rest", "title", "summary", "compaction"
# Prefixes in the one field of the index. In separate fields, BM25 would compare the length of a prompt with the average
# over all messages, most of which have no prompt, and rank prompts too low.
SIGNS: Final = {USER: "!", TOOL: "#", REST: "", TITLE: "$", SUMMARY: "%", COMPACTION: "&"}

_TEXTS: Final = frozenset([str])
LONGEST: Final = 4 << 20  # characters in one document; a longer message becomes several

# A system prompt begins with this, or lists tools; other texts of a harness are searched.
_OPENING: Final = "You are "
_SYSTEM_PROMPT, _ITS_HEAD = 4000, 600  # characters: of a longer text, its head is checked


class SearchWords(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A record's words as the search index has them, and the values to filter by."""

    ts: int
    role: str
    words: tuple[str, ...]  # texts; none if it is not searched
    call: str | None  # the call that it makes or answers
    tool: str | None  # the tool that it calls
    is_summary: bool = False  # of a compaction


def search_words(record: Content) -> SearchWords:
    use, result, field = record.tool_use, record.tool_result, REST
    is_summary = record.kind == "summary"
    if not is_summary:
        if record.role == "system" and _is_system_prompt(record):
            field = ""
        elif use is not None:
            field = TOOL
        elif record.role == "user" and record.kind == "text":
            field = USER
    call = use.id if use is not None else result.tool_use_id if result is not None else None
    words: tuple[str, ...] = ()
    if field:
        text = record.text
        if not isinstance(text, str) or use is not None or result is not None or record.file is not None:
            text = "\n".join(strings(record))
        if len(text) <= LONGEST:
            words = spelled_out(text, SIGNS[field])
        else:
            words = tuple(words for piece in _pieces(text) for words in spelled_out(piece, SIGNS[field]))
    name = use.name if use is not None else None
    return SearchWords(index_ms(record.ts), record.role, words, call, name, is_summary)


def _pieces(text: str) -> Iterator[str]:
    """Splits a text into documents, between words if possible."""
    begin = 0
    while begin < len(text):
        end = begin + LONGEST
        if end < len(text):
            space = max(text.rfind(char, max(begin, end - 10_000), end) for char in " \n")
            end = space if space > begin else end
        yield text[begin:end]
        begin = end


def _is_system_prompt(record: Content) -> bool:
    """System prompts of programs are marked; those in logs are recognised by their beginning."""
    text = record.text if isinstance(record.text, str) else ""
    if (
        record.kind == "system_prompt"
        or text.startswith(_OPENING)
        or (len(text) > _SYSTEM_PROMPT and _OPENING in text[:_ITS_HEAD])
    ):
        return True
    return text.startswith("[{") and '"input_schema"' in text


def strings(record: Content) -> Iterator[str]:
    if isinstance(record.text, str):
        yield record.text
    if record.tool_use is not None:
        yield record.tool_use.name
        yield from in_json(record.tool_use.input)
    if record.tool_result is not None:
        yield from in_json(record.tool_result.content)
    if record.file is not None and record.file.name:
        yield record.file.name


def in_json(raw: msgspec.Raw) -> Iterable[str]:
    """The texts and numbers in a JSON value. Keys are left out, since they are the same in every call of a tool."""
    try:
        value = msgspec.json.decode(raw)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return (bytes(raw).decode("utf-8", "replace"),)
    if isinstance(value, str):
        return (value,)
    if isinstance(value, dict):
        if "blob" in value and "lost" in value and bytes(raw).startswith(b'{"blob"'):
            return ()
        if _TEXTS.issuperset(map(type, value.values())):
            return value.values()  # the usual case
    return _leaves(value)


def _leaves(value: Any) -> Iterator[str]:
    waiting = [value]
    while waiting:
        item = waiting.pop()
        if isinstance(item, str):
            yield item
        elif isinstance(item, dict):
            waiting.extend(reversed(item.values()))
        elif isinstance(item, list):
            waiting.extend(reversed(item))
        elif item is not None and not isinstance(item, bool):
            yield str(item)
