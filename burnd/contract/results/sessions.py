"""Answers about sessions, their messages and their content."""

from __future__ import annotations

from typing import Any, Literal, NotRequired, TypedDict

from burnd.contract.results import Answer, OptionalCounts, PartialAnswer, Totals, Usage

ContentState = Literal["yes", "pruned", "no"]


class SessionFacts(TypedDict):
    sessionId: str
    source: str | None
    parentSessionId: str | None
    project: str | None
    projectKey: str | None
    agent: str | None
    createdBy: str | None
    title: str | None
    summary: str | None
    createdAt: str | None
    updatedAt: str | None
    messageCount: int
    contentMode: str | None
    content: ContentState


class SessionRow(SessionFacts, OptionalCounts):
    """A session in a list; with `costs` also the fields of `Totals`."""

    shortId: str
    usage: NotRequired[Usage]
    costUsd: NotRequired[float | None]
    goneAt: NotRequired[str]
    goneBy: NotRequired[Literal["unknown", "clean-up"]]


class GoneLogs(TypedDict):
    """Sessions that lost their logs, and those of them that no clean-up explains."""

    count: int
    unexplained: int


class Sessions(PartialAnswer):
    """`sessions.list`; `next` is missing on the last page. `gone` and fields of that name come with the parameter."""

    sessions: list[SessionRow]
    next: NotRequired[str]
    gone: NotRequired[GoneLogs]


class Rail(TypedDict):
    railId: str
    messages: int


class Meta(PartialAnswer, SessionFacts, Totals):
    rails: list[Rail]
    children: list[str]


class OwnSession(Answer, SessionFacts):
    """`sessions.new` and `sessions.set`."""


class ShownToolUse(TypedDict):
    id: str
    name: str
    input: Any


class ShownToolResult(TypedDict):
    toolUseId: str
    content: Any
    toolName: NotRequired[str]
    isError: NotRequired[bool]


class ShownFile(TypedDict):
    mime: str
    name: str | None
    bytes: int | None


class MessageBlock(TypedDict):
    kind: str
    text: NotRequired[str]
    toolUse: NotRequired[ShownToolUse]
    toolResult: NotRequired[ShownToolResult]
    file: NotRequired[ShownFile]
    lost: NotRequired[str | None]
    truncated: NotRequired[bool]


class MessageTurn(TypedDict):
    turnIndex: int
    model: str
    activity: str | None
    open: bool
    usage: Usage
    costUsd: float | None


class Message(TypedDict):
    msgIdx: int
    messageId: str
    role: str
    ts: str
    blocks: list[MessageBlock]
    blocksLeftOut: NotRequired[int]
    turn: NotRequired[MessageTurn]


class Messages(PartialAnswer):
    """`sessions.messages`; `next` is missing on the last page, `why` where content is `retained`."""

    sessionId: str
    source: str | None
    title: str | None
    project: str | None
    railId: str
    rails: list[Rail]
    offset: int
    retained: bool
    why: NotRequired[str]
    total: int
    messages: list[Message]
    next: NotRequired[int]


class HitMeta(TypedDict):
    title: str | None
    createdAt: str | None
    updatedAt: str | None
    messageCount: int
    source: str | None
    project: str | None


class HitMessage(TypedDict):
    """A message around a hit; the match has `match` and `highlights`."""

    role: str
    msgIdx: int
    snippet: str
    truncated: bool
    toolName: NotRequired[str]
    match: NotRequired[bool]
    highlights: NotRequired[list[list[int]]]


class HitTitle(TypedDict):
    snippet: str
    highlights: list[list[int]]
    truncated: bool


class Hit(TypedDict):
    sessionId: str
    shortId: str
    railId: str | None
    msgIdx: int | None
    score: float
    meta: HitMeta
    window: list[HitMessage]
    matchedTitle: NotRequired[HitTitle]


class Search(PartialAnswer):
    """`sessions.search`; `corrected` words by their misspelling, `allWords` only if it is false.

    `matches` counts all hits; with `matchesAtLeast` it is a lower bound. `next` is the offset of a next page.
    """

    query: str
    hits: list[Hit]
    matches: NotRequired[int]
    matchesAtLeast: NotRequired[bool]
    next: NotRequired[int]
    corrected: NotRequired[dict[str, list[str]]]
    allWords: NotRequired[bool]
    note: NotRequired[str]


class MemoryEntry(TypedDict):
    path: str
    kind: str
    project: str | None
    heading: str | None
    line: int
    modifiedAt: str
    score: float
    alsoIn: list[str]
    text: str


class Memory(PartialAnswer):
    """`search_memory`; a query without a word has neither `matches` nor `files`."""

    query: str
    entries: list[MemoryEntry]
    matches: NotRequired[int]
    files: NotRequired[int]
    note: NotRequired[str]


class Append(Answer):
    sessionId: str
    appended: int
    known: int
    messageCount: int
    updatedAt: str | None


# Content


class BlobRef(TypedDict):
    blob: str
    bytes: int
    lost: NotRequired[str]


class StoredToolUse(TypedDict):
    id: str
    name: str
    input: Any


class StoredToolResult(TypedDict):
    toolUseId: str
    content: Any
    isError: NotRequired[bool]


class StoredFile(TypedDict):
    mime: str
    name: NotRequired[str]
    data: NotRequired[str | BlobRef]


class ContentRecord(TypedDict):
    """A content record; `truncated` and `bytes` if it is cut."""

    v: int
    sessionId: str
    railId: str
    messageId: str
    n: int
    b: int
    ts: str
    role: str
    kind: str
    text: NotRequired[str | BlobRef]
    toolUse: NotRequired[StoredToolUse]
    toolResult: NotRequired[StoredToolResult]
    file: NotRequired[StoredFile]
    truncated: NotRequired[bool]
    bytes: NotRequired[int]


class Content(PartialAnswer):
    """`content.read`; `next` is the `offset` of the next page."""

    sessionId: str
    kept: ContentState
    total: int
    records: list[ContentRecord]
    next: int | None


class RecordedSession(SessionFacts):
    """A session, and the number of its messages whose content is gone."""

    prunedMessages: int


class Recording(Answer):
    """`sessions.recording`; the `lines` of all pages are JSON lines: `{"turn": ...}`, then records."""

    session: RecordedSession
    lines: str
    next: str | None


class Pruned(Answer):
    dryRun: bool
    files: int
    bytes: int


class ForgottenSession(TypedDict):
    sessionId: str
    source: str | None
    project: str | None
    messages: int
    bytes: int


class Forgotten(Answer):
    """`content.forget`; `clean` is null in a dry run."""

    dryRun: bool
    files: int
    bytes: int
    count: int
    clean: bool | None
    sessions: list[ForgottenSession]
