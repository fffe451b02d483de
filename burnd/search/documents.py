"""The documents of the search index: one for each message, one for each title, and the coverage of sessions. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet
from functools import lru_cache
from typing import Any, Final, NamedTuple

import msgspec

from burnd.records import Content
from burnd.records.codec import hash_of
from burnd.records.content import MAIN, NO_RAIL
from burnd.records.names import short_id, whole_id
from burnd.search.query import SearchFilter
from burnd.tokens.words import (
    COMPACTION,
    LONGEST,
    REST,
    SIGNS,
    SUMMARY,
    TITLE,
    TOOL,
    USER,
    SearchWords,
    signed,
    spelled_out,
)

# People remember prompts best. BM25 already weighs a word in a short answer higher than one in a long result.
WEIGHTS: Final = {SUMMARY: 3.0, COMPACTION: 3.0, TITLE: 2.0, USER: 1.5, TOOL: 1.3, REST: 1.0}
MESSAGE_FIELDS: Final = (USER, TOOL, REST)
TITLE_FIELDS: Final = (TITLE, SUMMARY)
# A compaction's summary is a message and, in a second document, the summary of its session. In the title's document
# the words of the title would count less.
COMPACTION_FIELDS: Final = (COMPACTION,)


class MessageName(NamedTuple):
    """A message. Without an id it is the session's title, without a rail a compaction's summary."""

    session_id: str
    rail: str
    message_id: str

    def written(self) -> bytes:
        return _encode((short_id(self.session_id), self.rail, short_id(self.message_id)))


def read_name(data: bytes) -> MessageName:
    session_id, rail, message_id = _message_names.decode(data)
    return MessageName(whole_id(session_id), rail, whole_id(message_id))


@lru_cache(maxsize=1024)
def session_key(session_id: str) -> int:
    """A number for a session that does not depend on its row in the index."""
    return hash_of(session_id.encode())


_encode = msgspec.msgpack.Encoder().encode
_message_names = msgspec.msgpack.Decoder(tuple[Any, str, Any])


class Coverage(NamedTuple):
    """How much of a session an index has: bytes of its sidecar, prunes and erasures, and a hash of its title."""

    covered: int = 0
    pruned: int = 0
    title: int = 0


NO_COVERAGE: Final = Coverage()


class Document(NamedTuple):
    """The words of a message or title, prefixed by the sign of their field, and the values to filter by."""

    name: MessageName
    ts: int
    words: Sequence[str]
    roles: AbstractSet[str] = frozenset()
    tools: AbstractSet[str] = frozenset()


class Names:
    """The tool of each call, by which its result can be found."""

    def __init__(self, calls: Iterable[tuple[str, str]] = ()) -> None:
        self._of = dict(calls)

    def learn(self, records: Iterable[Content]) -> None:
        for record in records:
            if record.tool_use is not None:
                self._of[record.tool_use.id] = record.tool_use.name

    def of(self, record: Content) -> str | None:
        if record.tool_use is not None:
            return record.tool_use.name
        return self._of.get(record.tool_result.tool_use_id) if record.tool_result is not None else None

    def among(self, records: Iterable[SearchWords]) -> set[str]:
        """The tools of the calls and results among these records, in lower case. Adds these calls."""
        calls = [(record.call, record.tool) for record in records if record.call is not None]
        self._of.update([(call, tool) for call, tool in calls if tool is not None])
        return {tool.lower() for call, _ in calls if (tool := self._of.get(call))}


def message_documents(name: MessageName, records: Sequence[SearchWords], names: Names) -> list[Document]:
    """The documents of a message: one, several for a very long one, none for one without words."""
    tools = names.among(records)
    words = [text for record in records for text in record.words]
    if not words:
        return []
    ts = min([record.ts for record in records])
    roles = {record.role for record in records}
    summary = [signed(text, SIGNS[COMPACTION]) for record in records if record.is_summary for text in record.words]
    of_session = compaction_name(name) if summary and name.rail == MAIN else None
    if sum(map(len, words)) <= LONGEST:
        documents = [Document(name, ts, words, roles, tools)]
        return [*documents, Document(of_session, ts, summary)] if of_session is not None else documents
    documents = [Document(name, ts, [text], roles, tools) for text in words]
    return (
        [*documents, *(Document(of_session, ts, [text]) for text in summary)] if of_session is not None else documents
    )


def title_document(session_id: str, title: str | None, summary: str | None, ts: int) -> Document | None:
    fields = ((TITLE, title), (SUMMARY, summary))
    words = [words for field, text in fields if text for words in spelled_out(text, SIGNS[field])]
    return Document(title_name(session_id), ts, words) if words else None


def title_name(session_id: str) -> MessageName:
    return MessageName(session_id, NO_RAIL, "")


def compaction_name(name: MessageName) -> MessageName:
    return name._replace(rail=NO_RAIL)


def narrowed(records: Sequence[Content], only: SearchFilter) -> Sequence[Content]:
    """The records by this role and tool, and results whose call is in another message."""
    if not only.has_author:
        return records
    names = Names()
    names.learn(records)
    return [
        record
        for record in records
        if only.role in (None, record.role) and (only.tool is None or _is_of(record, only.tool, names))
    ]


def _is_of(record: Content, tool: str, names: Names) -> bool:
    name = names.of(record)
    return name.lower() == tool if name is not None else record.tool_result is not None
