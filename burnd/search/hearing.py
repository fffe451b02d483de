"""What search wants of one content record, made where its text is at hand: its words as they are indexed. Pure."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from burnd.records import Content
from burnd.records.times import index_ms
from burnd.search.documents import LONGEST, SIGNS, field_of, strings
from burnd.search.words import spelled_out


class Heard(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A record's words as the index has them, and what it can be filtered by."""

    ts: int
    role: str
    words: tuple[str, ...]  # texts; none where it is not searched
    call: str | None  # the call it makes or answers
    tool: str | None  # what it calls
    is_summary: bool = False  # of a compaction


def heard(record: Content) -> Heard:
    use, result = record.tool_use, record.tool_result
    call = use.id if use is not None else result.tool_use_id if result is not None else None
    field = field_of(record)
    words = _words(_text(record), SIGNS[field]) if field is not None else ()
    name = use.name if use is not None else None
    return Heard(index_ms(record.ts), record.role, words, call, name, record.kind == "summary")


def _text(record: Content) -> str:
    if isinstance(record.text, str) and record.tool_use is None and record.tool_result is None and record.file is None:
        return record.text  # as most are
    return "\n".join(strings(record))


def _words(text: str, sign: str) -> tuple[str, ...]:
    if len(text) <= LONGEST:
        return spelled_out(text, sign)
    return tuple(words for piece in _pieces(text) for words in spelled_out(piece, sign))


def _pieces(text: str) -> Iterator[str]:
    """The text in pieces that are not too long for one document, cut between words where there are any."""
    begin = 0
    while begin < len(text):
        end = _cut(text, begin, begin + LONGEST)
        yield text[begin:end]
        begin = end


def _cut(text: str, begin: int, end: int) -> int:
    if end >= len(text):
        return len(text)
    space = max(text.rfind(char, max(begin, end - 10_000), end) for char in " \n")
    return space if space > begin else end
