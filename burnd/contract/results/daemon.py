"""Answers about the daemon, and of stamps."""

from __future__ import annotations

from typing import Any, Literal, NotRequired, TypedDict

from burnd.contract.results import Answer, Budget, Usage


class DaemonState(TypedDict):
    version: str
    protocol: int
    pid: int
    state: Literal["starting", "ready", "stopping"]
    startedAt: str
    uptimeMs: int
    home: str
    socket: str
    clients: int
    requests: int
    clientsTurnedAway: int
    clientsRefused: int


class UnusedLine(TypedDict):
    """A line of a log, or a row of a database, that could not be used."""

    path: str
    offset: int
    size: int
    reason: str
    row: str | None


class UnusedLines(TypedDict):
    count: int
    lines: list[UnusedLine]


class SkippedPaths(TypedDict):
    reason: str
    why: str
    count: int
    paths: list[str]
    remedy: str
    isNormal: bool


class SourceState(TypedDict):
    name: str
    state: str
    detail: str
    files: int
    pending: int
    lagMs: int
    restarts: int
    lastFailure: str | None
    hasLooked: bool
    counts: dict[str, int]
    unused: UnusedLines
    leftAlone: list[SkippedPaths]


class TotalsBytes(TypedDict):
    done: int
    total: int


class BackfillBytes(TypedDict):
    """The progress of reading old logs.

    `exact`: totals are complete; `totals`: they are being added up first.
    """

    done: int
    total: int
    bytesPerSecond: int
    percent: int | None
    secondsLeft: int | None
    blocked: str | None
    exact: NotRequired[bool]
    totals: NotRequired[TotalsBytes]


class SkippedLine(TypedDict):
    position: int
    length: int
    reason: str
    kind: str


class SkippedLines(TypedDict):
    """The number of unusable lines of the ledger, and the first of them."""

    count: int
    lines: list[SkippedLine]


class LedgerState(TypedDict):
    bytes: int
    turns: int
    openTurns: int
    sessions: int
    stamps: int
    skipped: SkippedLines
    refusedRecords: int


class ContentSize(TypedDict):
    mode: str
    bytes: int
    sidecars: int
    blobBytes: int


class IndexState(TypedDict):
    """`state` may be `rebuilding 41%`."""

    state: str
    bytes: int


class SearchState(TypedDict):
    """`pending` sessions are not in the search index yet."""

    state: str
    pending: int
    detail: str
    bytes: int


class CausesState(TypedDict):
    """The causes of `pending` rails are not attributed yet."""

    state: str
    pending: int


class SpoolState(TypedDict):
    claims: int
    stamps: int
    bad: int
    blocked: str | None


class DiskState(TypedDict):
    """Free bytes and the reserve; None while the daemon is starting."""

    free: int | None
    reserve: int | None


class PricesState(TypedDict):
    asOf: str
    fetched: str | None
    own: int
    problem: str | None


class Problem(TypedDict):
    """What is wrong, and what to do about it."""

    what: str
    remedy: str


class LostLogs(TypedDict):
    """Sessions whose logs disappeared with no clean-up to explain it, and when the newest was noticed."""

    sessions: int
    noticedAt: str | None


class Status(Answer):
    daemon: DaemonState
    machine: NotRequired[str | None]
    sources: list[SourceState]
    backfill: BackfillBytes | None
    ledger: LedgerState
    content: ContentSize
    index: IndexState
    search: SearchState
    causes: CausesState
    spool: SpoolState
    disk: DiskState
    prices: PricesState
    budget: list[Budget]
    lostLogs: NotRequired[LostLogs]
    degraded: list[Problem]


class ListedParam(TypedDict):
    name: str
    type: str
    required: bool
    default: Any
    choices: list[str]
    about: str


class ListedMethod(TypedDict):
    name: str
    about: str
    params: list[ListedParam]
    errors: list[str]
    deadline: float | None
    progress: bool


class Methods(Answer):
    methods: list[ListedMethod]


class FlushedSource(TypedDict):
    name: str
    flushed: bool
    reason: NotRequired[str]


class Flush(Answer):
    flushed: bool
    sources: list[FlushedSource]


class Tail(Answer):
    """`tail`, before the first turn."""

    following: bool


class ServerTools(TypedDict):
    search: NotRequired[int]
    fetch: NotRequired[int]


class ToolCall(TypedDict):
    id: str
    name: str
    target: NotRequired[str]
    argsHash: NotRequired[str]
    editHash: NotRequired[str]
    resultHash: NotRequired[str]
    isError: NotRequired[bool]
    isRefused: NotRequired[bool]
    searches: NotRequired[int]


class LedgerBlock(TypedDict):
    """Kind and size of a block that entered a turn's context or that the turn made."""

    kind: str
    bytes: int
    callId: NotRequired[str]
    name: NotRequired[str]


class Subagent(TypedDict):
    isSidechain: bool
    agentId: NotRequired[str]
    type: NotRequired[str]
    parentToolUseId: NotRequired[str]


class _LedgerBlocks(TypedDict, total=False):
    out: list[LedgerBlock]


_Entered = TypedDict("_Entered", {"in": NotRequired[list[LedgerBlock]]})


class LedgerTurn(_Entered, _LedgerBlocks):
    v: int
    rev: int
    source: str
    sessionId: str
    railId: str
    messageId: str
    turnIndex: int
    parent: NotRequired[str]
    ts: str
    model: str
    provider: NotRequired[str]
    project: NotRequired[str]
    projectKey: NotRequired[str]
    gitBranch: NotRequired[str]
    usage: Usage
    speed: NotRequired[str]
    serviceTier: NotRequired[str]
    inferenceGeo: NotRequired[str]
    statedUsd: NotRequired[float]
    harnessVersion: NotRequired[str]
    serverTools: NotRequired[ServerTools]
    toolCalls: list[ToolCall]
    filesTouched: NotRequired[list[str]]
    subagent: NotRequired[Subagent]
    agent: NotRequired[str]
    stopReason: NotRequired[str]
    activity: NotRequired[str]
    promptWords: NotRequired[list[str]]
    retries: NotRequired[int]
    hasEdits: NotRequired[bool]
    promptId: NotRequired[str]
    promptRetries: NotRequired[int]
    quality: Literal["final", "partial", "empty"]
    basis: NotRequired[dict[str, Any]]
    copyOf: NotRequired[str]


class TailEvent(Answer):
    """A `turn` with `open` and `costUsd`, or a `budget` that is exceeded."""

    missed: int
    open: NotRequired[bool]
    costUsd: NotRequired[float | None]
    turn: NotRequired[LedgerTurn]
    budget: NotRequired[Budget]


class Rebuild(Answer):
    rebuilt: Literal["index", "labels"]
    turns: int


class Setting(TypedDict):
    key: str
    value: Any
    default: Any
    env: str | None
    fromEnv: bool
    restart: NotRequired[bool]
    says: str


class Config(Answer):
    path: str
    settings: list[Setting]


class Shutdown(Answer):
    stopping: bool


# Stamps


class StampResult(Answer):
    """`stamp`; `new` of them were not recorded before."""

    stamped: int
    new: int


class StampRange(TypedDict):
    fromTs: str
    toTs: str


class StampSelector(TypedDict, total=False):
    """A session, a range of it, or a message."""

    sessionId: str
    messageId: str
    range: StampRange


class StampRow(TypedDict):
    ts: str
    selector: StampSelector
    enrichment: dict[str, str]
    removes: NotRequired[list[str]]


class Stamps(Answer):
    """`stamps.list`; `next` is the `after` of the next page."""

    stamps: list[StampRow]
    next: int | None


class RemovedStamps(Answer):
    """`stamps.remove`; `new` is 0 if the same removal was recorded before."""

    removed: list[str]
    new: int


class Announcement(Answer):
    sessionId: str
    contentMode: str


class Claim(TypedDict):
    claim: str
    sessionId: str | None


class Spool(Answer):
    stamps: int
    announcements: int
    bad: int
    claims: list[Claim]


class GuardLimit(TypedDict):
    """`used` is null for a limit of sessions if no session was given."""

    key: str
    scope: str
    unit: str
    limit: float
    used: float | None
    reached: bool


class GuardCheck(Answer):
    """`guard.check`; `decision` is "allow" or "deny", `limit` the one that is reached.

    With `stop` the agent is ended, after several denials.
    """

    decision: str
    reason: str | None
    limit: GuardLimit | None
    stop: bool


class AllowedSession(TypedDict):
    """A session that no limit stops; `until` is null for ever."""

    session: str
    until: str | None


class GuardDenial(TypedDict):
    ts: str
    session: str
    tool: str | None
    reason: str


class GuardStatus(Answer):
    """`guard.status`; `denials` are the newest since the daemon started."""

    on: bool
    limits: list[GuardLimit]
    allowed: list[AllowedSession]
    denials: list[GuardDenial]


class GuardAllow(Answer):
    sessionId: str
    until: str | None


class GuardSwitch(Answer):
    on: bool
