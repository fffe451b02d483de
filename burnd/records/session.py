"""Records about sessions."""

from __future__ import annotations

import struct
from base64 import b64decode, b64encode
from collections.abc import Iterable
from typing import Literal

import msgspec

from burnd.records.base import VERSION, Count, Record, always
from burnd.records.names import Name, PathName
from burnd.records.turn import Usage

ContentMode = Literal["full", "hash-only", "off"]
Window = Literal["5h", "7d"]
_HASHES_A_LINE = 4096


class Session(Record, frozen=True, kw_only=True):
    """`title` and `summary` are set only by clients.

    `roots` are log folders that a client announced. `content_since` is when `content_mode` began to apply, if later
    than the first message.
    """

    v: int = always(VERSION)
    session_id: str
    source: Name
    parent_session_id: str | None = None
    project: PathName | None = None
    project_key: PathName | None = None
    agent: Name | None = None
    created_by: Name | None = None
    created_at: str | None = None
    updated_at: str | None = None
    message_count: Count = 0
    content_mode: ContentMode | None = None
    content_since: str | None = None
    roots: tuple[str, ...] = ()
    title: str | None = None
    summary: str | None = None


class Occurrence(Record, frozen=True, kw_only=True):
    """The base of records of a rail other than turns; `id` is that of the log line."""

    v: int = always(VERSION)
    source: Name
    session_id: str
    rail_id: str
    id: str
    ts: str


class Compaction(Occurrence, frozen=True, kw_only=True):
    """A summary replaced a rail's context.

    A `copied` one, which the log repeats from another, counts only until the original is found.
    """

    trigger: Name | None = None
    before_tokens: Count | None = None
    after_tokens: Count | None = None
    copied: bool = False


MESSAGE = "message"


class Event(Occurrence, frozen=True, kw_only=True):
    """An interrupt, an API error, a retry, a refusal; or a `message` of a pushed session that is not a turn."""

    name: Name
    message_id: str | None = None
    status: Count | None = None
    copied: bool = False


class Overhead(Record, frozen=True, kw_only=True):
    """A harness's running total of a session from `since` to `ts`, by model, in USD. Not to be added up."""

    v: int = always(VERSION)
    source: Name
    session_id: str
    ts: str
    models: dict[Name, Usage]
    since: str | None = None
    costs: dict[Name, float] = msgspec.field(default_factory=dict)
    searches: dict[Name, Count] = msgspec.field(default_factory=dict)


class Request(Occurrence, frozen=True, kw_only=True):
    """A request that may have been billed but whose response is in no log.

    `usage` is a lower bound. A `withdrawn` one was refused, or its response was found later.
    """

    model: Name = ""
    usage: Usage = Usage()
    withdrawn: bool = False


class Quota(Record, frozen=True, kw_only=True):
    """The used share of a plan's limit window, as the provider reported it at `ts`."""

    v: int = always(VERSION)
    ts: str
    source: Name
    window: Window
    used_percent: float
    resets_at: str | None = None


class Prune(Record, frozen=True, kw_only=True):
    """Content up to and including `upTo` was deleted, and is never captured again.

    `messages` counts those that the session had by then.
    """

    v: int = always(VERSION)
    session_id: str
    up_to: str
    messages: Count = 0


class Origin(Record, frozen=True, kw_only=True):
    """The session was forked, branched, cleared or copied from `origin`, whose text must not be stored.

    `content_mode` is inherited, `content_since` is when it began to apply to the origin.
    """

    v: int = always(VERSION)
    session_id: str
    origin: str
    content_mode: ContentMode | None = None
    content_since: str | None = None


class Withheld(Record, frozen=True, kw_only=True):
    """Messages of a session whose text must not be stored there, nor in any session that repeats them.

    `ids` are 8-byte hashes of the ids of messages and lines, in base64. `by_mode`: because of the session's content
    mode.
    """

    v: int = always(VERSION)
    session_id: str
    ids: str
    by_mode: bool = False

    @classmethod
    def of(cls, session_id: str, hashes: Iterable[int], *, by_mode: bool) -> list[Withheld]:
        """Splits the hashes to limit the length of a line."""
        ordered = sorted(hashes)
        groups = (ordered[begin : begin + _HASHES_A_LINE] for begin in range(0, len(ordered), _HASHES_A_LINE))
        encoded = (b64encode(struct.pack(f">{len(group)}q", *group)).decode() for group in groups)
        return [cls(session_id=session_id, ids=ids, by_mode=by_mode) for ids in encoded]

    def hashes(self) -> tuple[int, ...]:
        """Empty if they cannot be decoded."""
        try:
            data = b64decode(self.ids, validate=True)
            return struct.unpack(f">{len(data) // 8}q", data)
        except (ValueError, struct.error):
            return ()
