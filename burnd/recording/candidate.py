"""A message as one log or row has it, its conversion to a Turn, and the batches that sources pass to the pipeline."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final, NamedTuple

import msgspec

from burnd.classify import activity
from burnd.classify.activity import Call
from burnd.classify.tools import kind
from burnd.index.change import AgentRow, CursorChange, FileChange
from burnd.ledger.blobs import Pack
from burnd.ledger.content import EncodedRecord
from burnd.records import (
    Basis,
    Block,
    Content,
    MissStatement,
    Overhead,
    PromptChange,
    RequestFacts,
    ServerTools,
    Subagent,
    ToolCall,
    Turn,
    Usage,
)
from burnd.records.codec import Entry
from burnd.records.turn import FORKED, Quality

LACKS_REQUEST: Final = 8
SIDECHAIN: Final = 2
NO_REQUEST_ID: Final = 1
NO_USAGE: Final = -1
WORST_RANK: Final = LACKS_REQUEST | FORKED | SIDECHAIN | NO_REQUEST_ID


class OwnerClaim(NamedTuple):
    """The evidence that a holder owns a message; the smallest claim wins. `Basis` explains the fields."""

    rank: int
    ts: str
    late_born: bool = False
    strange: bool = False


class LineKey(NamedTuple):
    """Orders the lines of a message: the highest counts. A line without usage (-1 tokens) is below all others."""

    output_tokens: int = NO_USAGE
    ts: str = ""
    uuid: str = ""

    @property
    def stated(self) -> tuple[int, str, str]:
        """The key as the ledger has it: without usage, neither time nor uuid counts."""
        return self if self.output_tokens != NO_USAGE else (0, "", "")


class BilledCall(NamedTuple):
    """A model call within a response that the response's usage does not include."""

    n: int
    model: str | None
    usage: Usage


class Candidate(msgspec.Struct, kw_only=True, gc=False, array_like=True):
    """A message as one log or row has it; in a log it grows while its lines arrive.

    `rank` only falls and `best` only rises, so that a later state never counts for less; `stopped` is the best line
    with a stop reason. `lines` are the uuids of its lines in file order and `prints` hashes of its blocks, to find
    repeated ones. `prompt_retries` counts the retries of the whole prompt up to the last call. `billed_calls` become
    candidates of their own, labelled like the response (`response_activity`). `submitted_calls` were submitted before;
    one that the best line no longer has is `dropped`. `is_strange`: its lines name another session than their file, or
    belong to a background session, which continues another. `is_row`: a database row, which is rewritten in place and
    which a fork copies under a new id; copied rows claim the message from `claim_ts` on, the start of their session.
    """

    message_id: str
    session_id: str
    rail_id: str
    turn_index: int
    ts: str
    source: str
    parent: str | None = None
    settled: bool = False
    rank: int = WORST_RANK
    late_born: bool = False
    request_ref: str | None = None
    best: LineKey = LineKey()
    usage: Usage = Usage()
    model: str = ""
    stop_reason: str | None = None
    speed: str | None = None
    server_tools: ServerTools | None = None
    billed_calls: tuple[BilledCall, ...] = ()
    final: bool = False
    calls: tuple[ToolCall, ...] = ()
    entered: tuple[Block, ...] = ()
    made: tuple[Block, ...] = ()
    files: tuple[str, ...] = ()
    subagent: Subagent | None = None
    agent: str | None = None
    project: str | None = None
    git_branch: str | None = None
    prompt_id: str | None = None
    prompt_words: tuple[str, ...] = ()
    prompt_retries: int = 0
    lines: tuple[str, ...] = ()
    response_activity: str | None = None
    project_key: str | None = None
    stopped: LineKey = LineKey()
    prints: tuple[int, ...] = ()
    submitted_calls: tuple[int, ...] = ()
    dropped: bool = False
    is_strange: bool = False
    service_tier: str | None = None
    inference_geo: str | None = None
    provider: str | None = None
    stated_usd: float | None = None
    is_row: bool = False
    claim_ts: str | None = None
    harness_version: str | None = None
    request: RequestFacts | None = None
    cache_miss: MissStatement | None = None
    prompt_changes: tuple[PromptChange, ...] = ()
    restored: bool = False  # from lines that `burnctl restore` wrote: it is recorded already
    pull_request: str | None = None
    request_id: str | None = None

    @property
    def holder(self) -> tuple[str, str]:
        return (self.session_id, self.rail_id)

    @property
    def claim(self) -> OwnerClaim:
        return OwnerClaim(self.rank, self.claim_ts or self.ts, self.late_born, self.is_strange)

    @property
    def answered(self) -> bool:
        return all(call.is_error is not None for call in self.calls)

    @property
    def quality(self) -> Quality:
        """`empty` only if the log states zero usage; without usage in the log it is `partial`."""
        if self.best.output_tokens == NO_USAGE:
            return "partial"
        is_billed = self.server_tools is not None and self.server_tools.search > 0
        if self.usage == _NO_USAGE and not is_billed:
            return "empty"
        return "final" if self.final else "partial"

    @property
    def reasoned(self) -> bool:
        return self.usage.reasoning > 0 or any(block.kind == "thinking" for block in self.made)

    @property
    def activity(self) -> str:
        return self.response_activity or _facts(as_calls(self.calls), self.prompt_words, self.reasoned)[0]


_NO_USAGE: Final = Usage()


def with_iterations(candidate: Candidate) -> Iterator[Candidate]:
    """Yields the candidate, its billed calls and those it no longer has, each as a candidate."""
    before, candidate.submitted_calls = (
        candidate.submitted_calls,
        tuple(one.n for one in candidate.billed_calls),
    )
    gone = [BilledCall(n, None, _NO_USAGE) for n in before if n not in candidate.submitted_calls]
    yield copy.copy(candidate)
    for n, model, usage in (*candidate.billed_calls, *gone):
        own = copy.copy(candidate)
        own.message_id = f"{candidate.message_id}:iter:{n}"
        own.response_activity = candidate.activity
        own.parent = candidate.message_id
        own.model, own.usage = model or candidate.model, usage
        own.best = candidate.best._replace(output_tokens=usage.output + usage.reasoning)
        own.stopped = own.best if candidate.stopped == candidate.best else candidate.stopped
        own.server_tools, own.billed_calls, own.calls, own.entered, own.made, own.files = None, (), (), (), (), ()
        own.request, own.cache_miss, own.prompt_changes, own.pull_request = None, None, (), None
        own.dropped = n not in candidate.submitted_calls
        yield own


def billed_turn(candidate: Candidate) -> Turn:
    """The billed part of the turn: no label, claim, prompt or blocks."""
    return Turn(**_billed(candidate))


def _billed(candidate: Candidate) -> dict[str, Any]:
    return {
        "source": candidate.source,
        "session_id": candidate.session_id,
        "rail_id": candidate.rail_id,
        "message_id": candidate.message_id,
        "turn_index": candidate.turn_index,
        "ts": candidate.ts,
        "model": candidate.model,
        "provider": candidate.provider,
        "project": candidate.project,
        "project_key": candidate.project_key,
        "git_branch": candidate.git_branch,
        "usage": candidate.usage,
        "speed": candidate.speed,
        "service_tier": candidate.service_tier,
        "inference_geo": candidate.inference_geo,
        "stated_usd": candidate.stated_usd,
        "harness_version": candidate.harness_version,
        "request_id": candidate.request_id,
        "server_tools": candidate.server_tools,
        "tool_calls": candidate.calls,
        "quality": candidate.quality,
    }


def turn_of(candidate: Candidate) -> Turn:
    """The turn as this candidate alone has it, with its claim."""
    calls = as_calls(candidate.calls) if candidate.calls else ()
    label, retries, has_edits = _facts(calls, candidate.prompt_words, candidate.reasoned)
    return Turn(
        **_billed(candidate),
        parent=candidate.parent,
        entered=candidate.entered,
        made=candidate.made,
        files_touched=candidate.files,
        subagent=candidate.subagent,
        agent=candidate.agent,
        stop_reason=candidate.stop_reason,
        activity=candidate.response_activity or label,
        prompt_words=candidate.prompt_words,
        retries=retries,
        has_edits=has_edits,
        prompt_id=candidate.prompt_id,
        prompt_retries=candidate.prompt_retries,
        request=candidate.request,
        cache_miss=candidate.cache_miss,
        prompt_changes=candidate.prompt_changes,
        pull_request=candidate.pull_request,
        basis=_basis(candidate),
    )


def _basis(candidate: Candidate) -> Basis | None:
    if candidate.is_row:  # one that no fork copied needs no evidence
        return Basis(rank=candidate.rank, ts=candidate.claim_ts) if candidate.rank else None
    best, stopped = candidate.best, candidate.stopped
    is_other_line = stopped not in (best, LineKey()) and stopped.stated != best.stated
    return Basis(
        rank=candidate.rank,
        late_born=candidate.late_born,
        strange=candidate.is_strange,
        line=best[1:] if best.output_tokens != NO_USAGE else None,
        stop=stopped.stated if is_other_line else None,
    )


def with_label_of(turn: Turn, earlier: Turn) -> Turn:
    """Keeps the label and targets of an earlier record with the same facts, since rules change between releases."""
    if turn.activity == earlier.activity and turn.tool_calls == earlier.tool_calls:
        return turn
    if earlier.activity is None or _label_facts(turn) != _label_facts(earlier):
        return turn
    calls = tuple(
        msgspec.structs.replace(call, target=before.target) if before.target is not None else call
        for call, before in zip(turn.tool_calls, earlier.tool_calls, strict=True)
    )
    return msgspec.structs.replace(turn, activity=earlier.activity, tool_calls=calls)


def _label_facts(turn: Turn) -> tuple[object, ...]:
    """The facts that a label depends on, except the verb of a command, which also comes from a rule."""
    calls = [(call.id, call.name, call.args_hash, call.is_error) for call in turn.tool_calls]
    return turn.prompt_id, turn.prompt_words, _has_reasoned(turn), calls


def _has_reasoned(turn: Turn) -> bool:
    return turn.usage.reasoning > 0 or any(block.kind == "thinking" for block in turn.made)


def relabelled(turn: Turn) -> Turn:
    label, retries, has_edits = _facts(as_calls(turn.tool_calls), turn.prompt_words, _has_reasoned(turn))
    return msgspec.structs.replace(turn, activity=label, retries=retries, has_edits=has_edits)


def as_calls(calls: tuple[ToolCall, ...]) -> tuple[Call, ...]:
    return tuple([_as_call(call) for call in calls])


def _as_call(call: ToolCall) -> Call:
    target = call.target
    what = kind(call.name) if target is not None else None
    command = target if what == "shell" else None
    return Call(call.name, command, target if what in ("edit", "read") else None, bool(call.is_error))


@lru_cache(maxsize=4096)  # most turns repeat a few patterns of calls, and parsing shell commands is slow
def _facts(calls: tuple[Call, ...], words: tuple[str, ...], reasoned: bool) -> tuple[str, int, bool]:
    return activity.label(calls, words, reasoned=reasoned), activity.retries(calls), activity.has_edits(calls)


class Submission(NamedTuple):
    """A candidate with the log or database it was read from.

    `beside` are records to write once it is settled. `session_messages` are the ids of all messages of its session,
    unless another database may have more.
    """

    candidate: Candidate
    path: str
    beside: tuple[Entry, ...] = ()
    session_messages: frozenset[str] | None = None


class SeenSession(NamedTuple):
    """A session that needs a record, and the project that its main log states."""

    session_id: str
    source: str
    project: str | None = None


class SessionOrigin(NamedTuple):
    """A session and its origin (fork, branch, clear); `at_ms` is the time of the newest line that shows it.

    `by_process`: only the process connects them; the session it continued with may be older.
    """

    session_id: str
    origin: str
    at_ms: int
    by_process: bool = False


@dataclass
class Batch:
    """Records, content and candidates, with the cursors of their sources."""

    entries: list[Entry] = field(default_factory=list)
    content: list[Content] = field(default_factory=list)
    encoded_records: list[EncodedRecord] = field(default_factory=list)  # content in its stored form
    packs: list[Pack] = field(default_factory=list)  # with large texts of that content
    cursors: list[CursorChange] = field(default_factory=list)
    sessions: set[SeenSession] = field(default_factory=set)
    candidates: list[Submission] = field(default_factory=list)
    orphans: list[Turn] = field(default_factory=list)  # open turns whose rows are gone, to be settled as they are
    agents: list[AgentRow] = field(default_factory=list)
    overheads: list[Overhead] = field(default_factory=list)
    files: list[FileChange] = field(default_factory=list)
    source: str = ""  # of the content; decides whether copies share its message ids
    origins: list[SessionOrigin] = field(default_factory=list)
    copied: set[tuple[str, str]] = field(default_factory=set)  # (session, message) of certain copies
    # Creation times of messages in milliseconds, for sources whose copies have ids of their own.
    message_times: dict[tuple[str, str], int] = field(default_factory=dict)
