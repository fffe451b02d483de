"""A turn: one response of a model, what it used, what went into it and what came out."""

from __future__ import annotations

from typing import Final, Literal

import msgspec

from burnd.records.base import VERSION, Count, Record, always
from burnd.records.content import MAIN
from burnd.records.names import Name, PathName

Quality = Literal["final", "partial", "empty"]
FORKED: Final = 4  # the bit of a rank for a message that its log marks as forked


_LARGEST_COUNT: Final = 1 << 40


def token_count(value: float | None) -> int:
    """A token count that is safe to add up; 0 for a number that no model can have billed."""
    return int(value) if value is not None and 0 <= value < _LARGEST_COUNT else 0


class Usage(Record, frozen=True, kw_only=True, omit_defaults=False):
    """Tokens as the provider bills them, disjoint: input net of cache, output net of reasoning."""

    input: Count = 0
    output: Count = 0
    reasoning: Count = 0
    cache_read: Count = 0
    cache_create_5m: Count = 0
    cache_create_1h: Count = 0

    @classmethod
    def disjoint(cls, prompt: int, output: int, *, cached: int = 0, written: int = 0, reasoning: int = 0) -> Usage:
        """From counts in which `cached` and `written` are part of the prompt, and `reasoning` of the output."""
        cached, reasoning = min(cached, prompt), min(reasoning, output)
        written = min(written, prompt - cached)
        return cls(
            input=prompt - cached - written,
            output=output - reasoning,
            reasoning=reasoning,
            cache_read=cached,
            cache_create_5m=written,
        )

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            input=self.input + other.input,
            output=self.output + other.output,
            reasoning=self.reasoning + other.reasoning,
            cache_read=self.cache_read + other.cache_read,
            cache_create_5m=self.cache_create_5m + other.cache_create_5m,
            cache_create_1h=self.cache_create_1h + other.cache_create_1h,
        )

    @property
    def context(self) -> int:
        """The tokens of context that the model was given; price tiers depend on it."""
        return self.input + self.cache_read + self.cache_create_5m + self.cache_create_1h


class ServerTools(Record, frozen=True, kw_only=True):
    """Requests to tools that run at the provider and are billed one by one."""

    search: Count = 0
    fetch: Count = 0


class ToolCall(Record, frozen=True, kw_only=True):
    """A call the model made. `target` names what it worked on and never holds content.

    `edit_hash` is of an edit: the hash of what it replaced, `>`, and the hash of what by.
    `is_refused` marks a failed call that the user rejected. `searches` is the number of billed web searches in its
    result.
    """

    id: str
    name: Name
    target: PathName | None = None
    args_hash: str | None = None
    edit_hash: str | None = None
    result_hash: str | None = None
    is_error: bool | None = None
    is_refused: bool = False
    searches: Count = 0


class Block(Record, frozen=True, kw_only=True):
    """A piece of context by its kind and size: what attribution needs when the text is gone.

    `name` is the path of an instruction file.
    """

    kind: str
    bytes: Count
    call_id: str | None = None
    name: PathName | None = None


class Subagent(Record, frozen=True, kw_only=True):
    """Where a turn of a subagent belongs."""

    is_sidechain: bool = always(True)
    agent_id: str | None = None
    type: Name | None = None
    parent_tool_use_id: str | None = None


class Basis(Record, frozen=True, kw_only=True):
    """Why this record stands as it does, so that a copy read years later joins the same way.

    The ledger must be able to settle who owns a message without the files it came from, since these
    vanish and the index may be deleted. A holder is a (session, rail) whose log holds the message; `rank`
    counts against it: 8 its log lacks the request, 4 marked as forked, 2 a sidechain, 1 no request id. Among
    equals the earlier `ts` owns (the holder's own, where it differs from the turn's), then the one whose log
    was not `lateBorn`, then one whose lines were not `strange`, naming another session or being of one in the
    background, which takes over another's, then the session that parted last from the others that hold it, as the
    turns and copies of all of them tell (`recording.ownership`). `line` is the (time, uuid) of the line whose usage
    counts, `stop` the (output, time, uuid) of the one that told the stop reason, where that is another.
    """

    rank: Count
    ts: str | None = None
    late_born: bool = False
    strange: bool = False
    line: tuple[str, str] | None = None
    stop: tuple[int, str, str] | None = None


class Turn(Record, frozen=True, kw_only=True):
    """One API response. The newest `rev` of a (source, messageId) is the one that counts."""

    v: int = always(VERSION)
    rev: Count = always(1)
    source: Name
    session_id: str
    rail_id: str = always(MAIN)  # missing in the older ledger
    message_id: str
    turn_index: Count
    parent: str | None = None
    ts: str
    model: Name
    provider: Name | None = None
    project: PathName | None = None
    project_key: PathName | None = None
    git_branch: Name | None = None
    usage: Usage
    speed: Name | None = None
    service_tier: Name | None = None
    inference_geo: Name | None = None
    stated_usd: float | None = None  # its cost as the harness states it
    harness_version: Name | None = None  # the release of the harness that made the request
    server_tools: ServerTools | None = None
    tool_calls: tuple[ToolCall, ...] = always(())
    entered: tuple[Block, ...] = msgspec.field(name="in", default_factory=lambda: ())
    made: tuple[Block, ...] = msgspec.field(name="out", default_factory=lambda: ())
    files_touched: tuple[PathName, ...] = ()
    subagent: Subagent | None = None
    agent: Name | None = None  # the named agent that took it, on a main rail: opencode's build, a program's own
    stop_reason: Name | None = None
    activity: str | None = None
    prompt_words: tuple[str, ...] = ()
    retries: Count | None = None
    has_edits: bool | None = None
    prompt_id: str | None = None
    prompt_retries: Count | None = None
    quality: Quality = always("final")
    basis: Basis | None = None
    # The message turned out to be a copy of this one: all that was said of it before is taken back.
    copy_of: str | None = None

    @property
    def searches(self) -> int:
        """Billed web searches. The usage and the results of its calls may count the same ones."""
        stated = self.server_tools.search if self.server_tools is not None else 0
        return max(stated, sum([call.searches for call in self.tool_calls]))


class Copy(Record, frozen=True, kw_only=True):
    """A message that another session holds too. It costs nothing, but its size rides in what follows."""

    v: int = always(VERSION)
    source: Name
    session_id: str
    rail_id: str
    message_id: str
    turn_index: Count
    parent: str | None = None
    ts: str
    entered: tuple[Block, ...] = msgspec.field(name="in", default_factory=lambda: ())
    made: tuple[Block, ...] = msgspec.field(name="out", default_factory=lambda: ())
    basis: Basis | None = None
