"""A turn: one response of a model, its usage, and the blocks that entered and left."""

from __future__ import annotations

from typing import Final, Literal

import msgspec

from burnd.records.base import VERSION, Count, Record, always
from burnd.records.content import MAIN
from burnd.records.names import Name, PathName

Quality = Literal["final", "partial", "empty"]
FORKED: Final = 4  # the bit of a rank for a message that its log marks as forked


LARGEST_COUNT: Final = 1 << 40


def token_count(value: float | None) -> int:
    """0 for an impossible number."""
    return int(value) if value is not None and 0 <= value < LARGEST_COUNT else 0


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
        """The prompt includes `cached` and `written`, and the output includes `reasoning`."""
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
        """Price tiers depend on it."""
        return self.input + self.cache_read + self.cache_create_5m + self.cache_create_1h


class ServerTools(Record, frozen=True, kw_only=True):
    """Requests to tools at the provider, billed one by one."""

    search: Count = 0
    fetch: Count = 0


class ToolCall(Record, frozen=True, kw_only=True):
    """`target` is the file or the verb of a command, never content.

    `edit_hash` is the hash of the old text, `>`, and the hash of the new text. `is_refused`: the user rejected the
    call. `searches` are billed web searches in its result.
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
    """Kind and size of a block of context. `name` is the path of an instruction file."""

    kind: str
    bytes: Count
    call_id: str | None = None
    name: PathName | None = None


class Subagent(Record, frozen=True, kw_only=True):
    is_sidechain: bool = always(True)
    agent_id: str | None = None
    type: Name | None = None
    parent_tool_use_id: str | None = None


class PromptChange(Record, frozen=True, kw_only=True):
    """A tool or MCP server that was added or removed, or a memory file that changed."""

    kind: Literal["mcp", "tool", "memory"]
    name: PathName
    removed: bool = False


class RequestFacts(Record, frozen=True, kw_only=True):
    """Hashes and counts of a request, to compare it with the one before; no text.

    `shape` is a hash of system prompt and tools, `params` one of the other parameters except model, effort and output
    limit. The first `same` of its `messages` are also the first of the answered request before it on the rail, which
    had `before`; None if unknown. `breakpoints` are cache breakpoints.
    """

    shape: str | None = None
    params: str | None = None
    effort: Name | None = None
    messages: Count = 0
    same: Count | None = None
    before: Count | None = None
    breakpoints: Count = 0


class MissStatement(Record, frozen=True, kw_only=True):
    """The reason of a cache miss as the provider states it, and the tokens it names."""

    type: Name
    tokens: Count = 0


class Basis(Record, frozen=True, kw_only=True):
    """The facts that decide which session owns a message found in several logs.

    The lowest `rank` owns it: 8 for a log without the request, plus 4 if marked as forked, 2 for a sidechain, 1 without
    a request id. Then the earliest `ts` (set if it differs from the turn's), then a log that is not `lateBorn`, then
    lines that are not `strange` (of another or a background session), then the session that branched off last
    (`recording.ownership`). `line` is the (time, uuid) of the line with the usage, `stop` the (output, time, uuid) of
    one with the stop reason.
    """

    rank: Count
    ts: str | None = None
    late_born: bool = False
    strange: bool = False
    line: tuple[str, str] | None = None
    stop: tuple[int, str, str] | None = None


class Turn(Record, frozen=True, kw_only=True):
    """One API response. The newest `rev` of a (source, messageId) counts."""

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
    harness_version: Name | None = None
    request_id: Name | None = None  # the provider's id
    server_tools: ServerTools | None = None
    tool_calls: tuple[ToolCall, ...] = always(())
    entered: tuple[Block, ...] = msgspec.field(name="in", default_factory=lambda: ())
    made: tuple[Block, ...] = msgspec.field(name="out", default_factory=lambda: ())
    files_touched: tuple[PathName, ...] = ()
    subagent: Subagent | None = None
    agent: Name | None = None  # the named agent that took it, on a main rail
    stop_reason: Name | None = None
    activity: str | None = None
    prompt_words: tuple[str, ...] = ()
    retries: Count | None = None
    has_edits: bool | None = None
    prompt_id: str | None = None
    prompt_retries: Count | None = None
    request: RequestFacts | None = None
    cache_miss: MissStatement | None = None
    prompt_changes: tuple[PromptChange, ...] = ()
    pull_request: PathName | None = None  # address of a pull request that was made or named in this turn
    quality: Quality = always("final")
    basis: Basis | None = None
    # the message is a copy of this one: the turn no longer counts
    copy_of: str | None = None

    @property
    def searches(self) -> int:
        """Billed web searches. Usage and results may count the same ones, so the larger number counts."""
        stated = self.server_tools.search if self.server_tools is not None else 0
        return max(stated, sum([call.searches for call in self.tool_calls]))


class Copy(Record, frozen=True, kw_only=True):
    """A message that another session owns. It costs nothing, but later contexts contain it."""

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
