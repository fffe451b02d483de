"""Records about a session rather than about one of its turns."""

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
    """What is known of a session. `title` and `summary` are here only when a client set them.

    `roots` are log folders of its harness that a client announced; they are read from then on. `content_since` is when
    `content_mode` began to apply, if the session had messages before.
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
    """Something that a log has beside the turns of a rail; `id` is its line."""

    v: int = always(VERSION)
    source: Name
    session_id: str
    rail_id: str
    id: str
    ts: str


class Compaction(Occurrence, frozen=True, kw_only=True):
    """The harness replaced a rail's context by a summary.

    `copied` is one that its log repeats from another's: it stands for the other only while that is not known.
    """

    trigger: Name | None = None
    before_tokens: Count | None = None
    after_tokens: Count | None = None
    copied: bool = False


MESSAGE = "message"


class Event(Occurrence, frozen=True, kw_only=True):
    """Something that happened beside the turns: an interrupt, an API error, a retry, a refusal.

    A `message` of a program's own session that was no turn is one, too, without a source: it is known by it ever after.
    `copied` is as for a compaction.
    """

    name: Name
    message_id: str | None = None
    status: Count | None = None
    copied: bool = False


class Overhead(Record, frozen=True, kw_only=True):
    """A harness's running total of a session from `since` to `ts`, by model. Totals are not added up.

    `costs` are USD, `searches` web searches. A total that restarts has another `since`.
    """

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

    `usage` is a lower bound. A `withdrawn` one was refused, or its response was found later: it no longer counts.
    """

    model: Name = ""
    usage: Usage = Usage()
    withdrawn: bool = False


class Quota(Record, frozen=True, kw_only=True):
    """How much of a plan's window an account has used, as the provider said it at `ts`."""

    v: int = always(VERSION)
    ts: str
    source: Name
    window: Window
    used_percent: float
    resets_at: str | None = None


class Prune(Record, frozen=True, kw_only=True):
    """Content of this session up to and including `upTo` is gone, and is never captured again.

    `messages` is how many the session had by then, which nobody could count any more.
    """

    v: int = always(VERSION)
    session_id: str
    up_to: str
    messages: Count = 0


class Origin(Record, frozen=True, kw_only=True):
    """A session was forked, branched, cleared or copied from `origin`, whose text, or part of it, must not be stored.

    `content_mode` is the mode it inherits, and `content_since` when that began to apply to the origin.
    """

    v: int = always(VERSION)
    session_id: str
    origin: str
    content_mode: ContentMode | None = None
    content_since: str | None = None


class Withheld(Record, frozen=True, kw_only=True):
    """Messages of a session whose text must not be stored there, nor in any session that repeats them.

    `ids` are 8-byte hashes of the ids of messages and lines, in base64. `by_mode`: because of the session's content
    mode, not because it was pruned or forgotten.
    """

    v: int = always(VERSION)
    session_id: str
    ids: str
    by_mode: bool = False

    @classmethod
    def of(cls, session_id: str, hashes: Iterable[int], *, by_mode: bool) -> list[Withheld]:
        """Records for these hashes, split so that none is too long for a line."""
        ordered = sorted(hashes)
        groups = (ordered[begin : begin + _HASHES_A_LINE] for begin in range(0, len(ordered), _HASHES_A_LINE))
        packed = (b64encode(struct.pack(f">{len(group)}q", *group)).decode() for group in groups)
        return [cls(session_id=session_id, ids=ids, by_mode=by_mode) for ids in packed]

    def hashes(self) -> tuple[int, ...]:
        """The hashes; empty if they cannot be decoded."""
        try:
            data = b64decode(self.ids, validate=True)
            return struct.unpack(f">{len(data) // 8}q", data)
        except (ValueError, struct.error):
            return ()
