"""Records about a session rather than about one of its turns."""

from __future__ import annotations

from typing import Literal

import msgspec

from burnd.records.base import VERSION, Count, Record, always
from burnd.records.turn import Usage

ContentMode = Literal["full", "hash-only", "off"]
Window = Literal["5h", "7d"]


class Session(Record, frozen=True, kw_only=True):
    """What is known of a session. `title` and `summary` are here only when a client set them.

    `roots` are folders that a client said its harness keeps logs in: they are read ever after.
    """

    v: int = always(VERSION)
    session_id: str
    source: str
    parent_session_id: str | None = None
    project: str | None = None
    project_key: str | None = None
    agent: str | None = None
    created_by: str | None = None
    created_at: str | None = None
    updated_at: str | None = None
    message_count: Count = 0
    content_mode: ContentMode | None = None
    roots: tuple[str, ...] = ()
    title: str | None = None
    summary: str | None = None


class Compaction(Record, frozen=True, kw_only=True):
    """The harness replaced a rail's context by a summary; `id` is the line that says so.

    `copied` is one that its log repeats from another's: it stands for the other only while that is not known.
    """

    v: int = always(VERSION)
    source: str
    session_id: str
    rail_id: str
    id: str
    ts: str
    trigger: str | None = None
    before_tokens: Count | None = None
    after_tokens: Count | None = None
    copied: bool = False


MESSAGE = "message"


class Event(Record, frozen=True, kw_only=True):
    """Something that happened beside the turns: an interrupt, an API error, a retry, a refusal.

    A `message` of a program's own session that was no turn is one, too, without a source: it is known by it ever after.
    `copied` is as for a compaction.
    """

    v: int = always(VERSION)
    source: str
    session_id: str
    rail_id: str
    id: str
    ts: str
    name: str
    message_id: str | None = None
    status: Count | None = None
    copied: bool = False


class Overhead(Record, frozen=True, kw_only=True):
    """What a harness states a session has used up to `ts`, by model: a running total since `since`, never an addend.

    `costs` are USD, `searches` web searches. A total that begins again has another `since`.
    """

    v: int = always(VERSION)
    source: str
    session_id: str
    ts: str
    models: dict[str, Usage]
    since: str | None = None
    costs: dict[str, float] = msgspec.field(default_factory=dict)
    searches: dict[str, Count] = msgspec.field(default_factory=dict)


class Quota(Record, frozen=True, kw_only=True):
    """How much of a plan's window an account has used, as the provider said it at `ts`."""

    v: int = always(VERSION)
    ts: str
    source: str
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
