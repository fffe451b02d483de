"""Splits content records into the words that search indexes. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

import msgspec

from burnd.records import Content
from burnd.records.times import index_ms
from burnd.tokens.words import spelled_out

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
    use, result, field = record.tool_use, record.tool_result, field_of(record)
    call = use.id if use is not None else result.tool_use_id if result is not None else None
    words: tuple[str, ...] = ()
    if field is not None:
        text = record.text
        if not isinstance(text, str) or use is not None or result is not None or record.file is not None:
            text = "\n".join(strings(record))
        if len(text) <= LONGEST:
            words = spelled_out(text, SIGNS[field])
        else:
            words = tuple(words for piece in _pieces(text) for words in spelled_out(piece, SIGNS[field]))
    name = use.name if use is not None else None
    return SearchWords(index_ms(record.ts), record.role, words, call, name, record.kind == "summary")


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


def field_of(record: Content) -> str | None:
    """The field of a record's words; None if it is not searched."""
    if record.kind == "summary":
        return REST
    if record.role == "system" and _is_system_prompt(record):
        return None
    if record.tool_use is not None:
        return TOOL
    return USER if record.role == "user" and record.kind == "text" else REST


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
