"""What search wants of one content record, made where its text is at hand: its words as they are indexed. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from burnd.records import Content
from burnd.records.times import to_ms
from burnd.search.documents import LONGEST, field_of, strings
from burnd.search.words import spelled_out


class Heard(NamedTuple):
    """A record's words: for each of its texts as the tokenizer should see it, and the parts of camelCase words."""

    ts: int
    role: str
    field: str | None  # None: it is not searched
    spelled: tuple[tuple[str, str], ...]
    call: str | None  # the call it makes or answers
    tool: str | None  # what it calls

    @property
    def size(self) -> int:
        return sum(len(plain) for plain, _ in self.spelled)


def heard(record: Content) -> Heard:
    use, result = record.tool_use, record.tool_result
    call = use.id if use is not None else result.tool_use_id if result is not None else None
    field = field_of(record)
    spelled = tuple(map(spelled_out, _pieces("\n".join(strings(record))))) if field is not None else ()
    return Heard(to_ms(record.ts), record.role, field, spelled, call, use.name if use is not None else None)


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
