"""Answers of reports, attribution and limits."""

from __future__ import annotations

from typing import Any, Literal, NotRequired, TypedDict

from burnd.contract.results import (
    Answer,
    Budget,
    Cost,
    OptionalCounts,
    PartialAnswer,
    PriceNotes,
    Span,
    Totals,
    Unlogged,
    Usage,
)

Basis = Literal["reported", "counted"]


class SelectedReport(PartialAnswer, PriceNotes):
    """A report of the turns that its filters select. `unlogged` is usage that no log has; `totals` lack it."""

    filters: dict[str, Any]
    totals: Totals
    unlogged: Unlogged | None


class NamedUnpriced(TypedDict):
    """Models without a price; the harness stated the cost of `harnessModels`."""

    unpricedModels: list[str]
    harnessModels: list[str]


class Outcomes(TypedDict):
    completed: int
    abandoned: int
    errored: int
    unknown: int


class Quality(TypedDict):
    editTurns: int
    oneShotTurns: int
    oneShotRate: float | None
    editPrompts: int
    oneShotPrompts: int
    oneShotPromptRate: float | None
    oneShotInterval: list[float] | None
    sessions: Outcomes


class SummaryRow(Totals):
    """`keys` are those of two dimensions."""

    key: str | None
    keys: NotRequired[dict[str, str | None]]
    share: float | None
    quality: NotRequired[Quality]
    # by session
    shortId: NotRequired[str]
    parentSessionId: NotRequired[str | None]
    project: NotRequired[str | None]
    createdAt: NotRequired[str | None]
    title: NotRequired[str | None]
    # by agent; all but `stamped` with `tree`
    stamped: NotRequired[bool]
    parent: NotRequired[str | None]
    depth: NotRequired[int]
    subtree: NotRequired[Totals]


class SeriesDay(TypedDict):
    key: str
    turns: int
    costUsd: float | None


class Summary(SelectedReport, NamedUnpriced):
    by: str
    rows: list[SummaryRow]
    moreRows: int
    newest: str | None
    quality: NotRequired[Quality]
    series: NotRequired[list[SeriesDay]]


class CompareCell(TypedDict):
    model: str | None
    keys: NotRequired[dict[str, str | None]]
    category: str
    turns: int
    editTurns: int
    oneShotTurns: int
    editPrompts: int
    oneShotPrompts: int
    pricedTurns: int
    costUsd: float | None
    costPerTurn: float | None
    oneShotRate: float | None
    oneShotTurnRate: float | None
    oneShotPromptRate: float | None
    oneShotInterval: list[float] | None
    cacheHitRate: float | None
    medianRetries: float | None
    quotaShare: float | None
    noData: bool
    insufficientSample: bool
    insufficientPrompts: bool
    whatIfCostUsd: NotRequired[float | None]
    whatIfCostPerTurn: NotRequired[float | None]


class Coverage(TypedDict):
    model: str | None
    keys: NotRequired[dict[str, str | None]]
    turns: int
    pricedTurns: int
    harnessTurns: int
    partialTurns: int
    openTurns: int
    labelledTurns: int
    editPrompts: int
    categories: int
    sufficientCategories: int


class CompareNote(TypedDict):
    category: str
    model: str | None
    note: str


class WhatIf(TypedDict):
    model: str
    costUsd: float | None
    actualUsd: float | None
    unpricedTurns: int
    unpricedCostUsd: float | None
    note: str


class Compare(PartialAnswer, PriceNotes):
    filters: dict[str, Any]
    by: str
    models: list[str | None]
    categories: list[str]
    minSample: int
    cells: list[CompareCell]
    coverage: list[Coverage]
    notes: list[CompareNote]
    moreModels: int
    unlogged: Unlogged | None
    whatIf: NotRequired[WhatIf]


class ExportedTurn(TypedDict):
    ts: str
    source: str
    sessionId: str
    railId: str
    messageId: str
    turnIndex: int
    parent: str | None
    model: str
    provider: str | None
    project: str | None
    projectKey: str | None
    gitBranch: str | None
    usage: Usage
    costUsd: float | None
    isHarnessCost: bool
    speed: str | None
    searches: int
    fetches: int
    quality: str
    open: bool
    activity: str | None
    stopReason: str | None
    hasEdits: bool | None
    retries: int | None
    promptId: str | None
    promptRetries: int | None
    agentId: str | None
    agentType: str | None
    parentToolUseId: str | None
    agent: NotRequired[str | None]  # the named agent of a main rail, such as opencode's build
    tags: dict[str, str]


class Export(PartialAnswer, PriceNotes):
    """`export`; `next` is the `after` of the next page, `machine` the id of this machine."""

    machine: NotRequired[str | None]
    since: NotRequired[str | None]
    until: NotRequired[str | None]
    turns: list[ExportedTurn]
    next: str | None


class FormerProject(TypedDict):
    project: str | None
    projectKey: str | None


class ChangedTurn(ExportedTurn):
    """A turn in the change feed, with the names of its model and provider in reports."""

    formerProjects: NotRequired[list[FormerProject]]

    rev: int
    version: str | None
    requestId: str | None
    modelName: str
    providerName: str | None


class ChangedSession(TypedDict):
    """`causesSeq` and `findingsSeq` are the `seq` of the session's rows there, or 0.

    With `mayGoOn` the outcome is unknown: the last request is open or recent. `erased`: some content was pruned or
    forgotten.
    """

    sessionId: str
    source: str | None
    parentSessionId: str | None
    project: str | None
    projectKey: str | None
    agent: str | None
    createdAt: str | None
    updatedAt: str | None
    lastMessageId: str | None
    outcome: str | None
    mayGoOn: bool
    erased: bool
    formerProjects: NotRequired[list[FormerProject]]
    causesSeq: int
    findingsSeq: int


class ChangedCause(TypedDict):
    """Tokens of a session by UTC day, cause and model; `n` counts the causes of the session."""

    sessionId: str
    source: str
    n: int
    day: str
    kind: str
    tool: str | None
    target: str | None
    agent: str | None
    model: str
    provider: str | None
    modelName: str
    providerName: str | None
    project: str | None
    projectKey: str | None
    usage: Usage
    searches: int
    entered: int
    calls: int
    errors: int
    costUsd: float | None


class ChangedFinding(TypedDict):
    """A finding in a session and those that it started; `n` counts them."""

    sessionId: str
    source: str | None
    n: int
    kind: str
    tool: str | None
    target: str | None
    reason: str | None
    project: str | None
    projectKey: str | None
    count: int
    tokens: int
    costUsd: float | None


class GoneTurn(TypedDict):
    source: str
    messageId: str
    formerProjects: NotRequired[list[FormerProject]]


class Changes(PartialAnswer):
    """`changes`. `seq` is the number of all rows of the page, `left` counts the sessions since the pass before.

    `complete` is set on the last page of a pass, `more` if another page is due. `reset` is set on every page of a pass
    that begins with everything: at its end, rows below `firstSeq` are obsolete.
    """

    machine: str | None
    cursor: str
    complete: bool
    more: bool
    reset: bool
    seq: int
    firstSeq: int
    priceDate: str
    left: int
    turns: list[ChangedTurn]
    sessions: list[ChangedSession]
    causes: list[ChangedCause]
    findings: list[ChangedFinding]
    gone: list[GoneTurn]


class ListedModel(TypedDict):
    provider: str
    model: str
    list: Literal["yours", "fetched", "shipped"]
    asOf: str
    retiredAfter: str | None


class PriceTier(TypedDict):
    over: int
    input: float
    output: float
    reasoning: float
    cacheRead: float
    cacheCreate5m: float
    cacheCreate1h: float


class Pricing(Answer, PriceNotes):
    """`pricing.show`. A priced model has `found`, `tiers`, `fast` and `searchUsd`, any other the last three."""

    model: str
    provider: str | None
    priced: bool
    lookedIn: list[str]
    found: NotRequired[ListedModel]
    tiers: NotRequired[list[PriceTier]]
    fast: NotRequired[list[PriceTier]]
    searchUsd: NotRequired[float]
    reason: NotRequired[str]
    soldBy: NotRequired[list[str]]
    near: NotRequired[list[str]]


# Attribution


class WhyPart(TypedDict):
    """Cost of fresh input, cache writes, cache reads, output or searches."""

    tokens: int
    searches: NotRequired[int]
    costUsd: float | None


class WhyParts(TypedDict):
    fresh: WhyPart
    write: WhyPart
    read: WhyPart
    output: WhyPart
    search: NotRequired[WhyPart]


class CauseGroupPart(Cost):
    key: str
    kind: str
    count: int
    share: float | None


class CauseGroup(Cost):
    key: str
    count: int
    share: float | None
    parts: list[CauseGroupPart]


class CauseAgent(Cost):
    """An agent that a call started; `causes` with `tree`."""

    sessionId: str
    railId: str
    type: str | None
    turns: int
    share: float | None
    causes: NotRequired[list[Cause]]


class Cause(Cost):
    """A cause of a session's or turn's cost. Of a turn, it has `tokens` instead of `entered` to `reentries`."""

    kind: str
    label: str
    railId: str
    share: float | None
    sessionId: NotRequired[str]
    count: NotRequired[int]
    tool: NotRequired[str | None]
    target: NotRequired[str | None]
    isError: NotRequired[bool | None]
    turnIndex: NotRequired[int]
    messageId: NotRequired[str]
    quote: NotRequired[str]
    entered: NotRequired[int]
    size: NotRequired[int]
    rides: NotRequired[int]
    reentries: NotRequired[int]
    own: NotRequired[Cost]
    agents: NotRequired[list[CauseAgent]]
    tokens: NotRequired[int]
    request: NotRequired[int]


class WhyTotals(Cost, OptionalCounts):
    """Of a session it has all fields of `Totals`."""


class WhyTurn(TypedDict):
    turnIndex: int
    railId: str
    turns: int
    ts: str
    activity: str | None


class PromptChange(TypedDict):
    kind: str
    name: str
    removed: NotRequired[bool]


class EffortChange(TypedDict):
    before: str | None
    after: str | None


class CacheMiss(Cost):
    """What a request paid again because of a cache miss. `position` is the first message that changed."""

    reason: str
    proof: NotRequired[Literal["proved", "inferred"]]
    changes: NotRequired[list[PromptChange]]
    advice: NotRequired[str]
    position: NotRequired[int]
    effort: NotRequired[EffortChange]


class MissedRequest(TypedDict):
    sessionId: str
    railId: str
    turnIndex: int
    position: NotRequired[int]
    effort: NotRequired[EffortChange]


class SessionMisses(Cost):
    """The cache misses of a session with one reason, and the first of their requests."""

    reason: str
    proof: Literal["proved", "inferred"]
    count: int
    share: float | None
    requests: list[MissedRequest]
    changes: list[PromptChange]
    advice: str


class CacheTtl(TypedDict):
    """The cost of contexts, and with all cache writes of one lifetime. `written` has the lifetimes that occur."""

    written: list[str]
    costUsd: float
    if5mUsd: float | None
    if1hUsd: float | None


class WhyRequest(Cost):
    messageId: str
    model: str
    context: int
    quality: str
    miss: CacheMiss | None


class Why(PartialAnswer, PriceNotes, NamedUnpriced):
    """`why`: of a session with the fields from `filters` on, of a turn with `turn` and `requests`."""

    sessionId: str
    shortId: NotRequired[str]
    source: str | None
    project: str | None
    title: str | None
    totals: WhyTotals
    causes: list[Cause]
    turn: NotRequired[WhyTurn]
    requests: NotRequired[list[WhyRequest]]
    filters: NotRequired[dict[str, Any]]
    parts: NotRequired[WhyParts]
    models: NotRequired[list[str]]
    unlogged: NotRequired[Unlogged | None]
    agents: NotRequired[int]
    groups: NotRequired[list[CauseGroup]]
    misses: NotRequired[list[SessionMisses]]
    cacheTtl: NotRequired[CacheTtl | None]


class HotspotRow(TypedDict):
    """A tool, file, command, prompt or other cause. `keys` are those of two dimensions."""

    key: str
    kind: str
    group: str | None
    keys: NotRequired[dict[str, str | None]]
    calls: int
    errors: int
    entered: int
    rideTokens: int
    usage: Usage
    costUsd: float | None
    costPerCall: float | None
    share: float | None
    # by cache-miss
    proof: NotRequired[Literal["proved", "inferred"]]
    # by prompt
    sessionId: NotRequired[str]
    shortId: NotRequired[str]
    railId: NotRequired[str]
    turnIndex: NotRequired[int]
    at: NotRequired[str]
    quote: NotRequired[str]


class Hotspots(SelectedReport, NamedUnpriced):
    """`hotspots` and `by_tool`."""

    by: str
    rank: str
    rows: list[HotspotRow]
    moreRows: int
    pending: int


class Severities(TypedDict):
    high: float
    medium: float


class WasteKind(Cost):
    kind: str
    findings: int
    advice: str


class Evidence(TypedDict):
    sessionId: str
    shortId: NotRequired[str]
    railId: str | None
    turns: list[int]
    calls: list[str]
    files: list[str]
    tool: str | None
    target: str | None
    reason: str | None
    proof: NotRequired[Literal["proved", "inferred"]]
    changes: NotRequired[list[PromptChange]]
    count: int
    entered: int
    rides: int
    usual: int
    others: int
    quote: NotRequired[str]
    error: NotRequired[str]


class Finding(Cost):
    kind: str
    severity: Literal["high", "medium", "low"]
    project: str | None
    projectCount: int
    sessions: list[str]
    sessionCount: int
    times: int
    evidence: Evidence
    tokens: int
    advice: str


class ReleaseUse(TypedDict):
    version: str
    requests: int
    sessions: int
    costPerRequest: float
    missRate: float


class ReleaseChange(TypedDict):
    """A release after which requests of a model cost more (`cost`) or missed the cache more often (`misses`)."""

    source: str
    model: str
    what: list[str]
    extraUsd: float
    before: ReleaseUse
    after: ReleaseUse


class Waste(SelectedReport):
    families: int
    avoidable: Cost
    cacheTtl: NotRequired[CacheTtl | None]
    severities: Severities
    kinds: list[WasteKind]
    findings: list[Finding]
    moreFindings: int
    cheaperFindings: int
    releases: NotRequired[list[ReleaseChange]]


class PrefixSizes(TypedDict):
    median: int
    smallest: int
    largest: int


class InstructionFile(TypedDict):
    path: str
    bytes: int
    sessions: int


class OverheadSource(Cost):
    source: str
    sessions: int
    prefix: PrefixSizes
    rides: int
    usdPerToken: float | None
    instructions: list[InstructionFile]


class McpServer(TypedDict):
    server: str
    calls: int


class Overhead(SelectedReport):
    sources: list[OverheadSource]
    servers: list[McpServer]


class FlowTotals(Cost):
    turns: int


class LaneStart(TypedDict):
    lane: int
    turnIndex: int


class StepParts(TypedDict):
    fresh: float
    write: float
    read: float
    output: float


class StepCall(TypedDict):
    tool: str
    target: str | None
    times: int
    isError: bool


class FlowStep(Cost):
    turnIndex: int
    lastTurnIndex: int
    turns: int
    ts: str
    at: int
    model: str
    context: int
    parts: StepParts | None
    asked: bool
    beside: bool
    goesOnFrom: int | None
    began: bool
    miss: str | None
    calls: list[StepCall]


class Lane(Cost):
    sessionId: str
    railId: str
    type: str | None
    startedBy: LaneStart | None
    turns: int
    steps: list[FlowStep]


class MoreLanes(Cost):
    count: int


class Flow(PartialAnswer, PriceNotes, NamedUnpriced):
    sessionId: str
    shortId: NotRequired[str]
    source: str | None
    project: str | None
    title: str | None
    totals: FlowTotals
    lanes: list[Lane]
    moreLanes: MoreLanes | None


# Limits


class QuotaReading(TypedDict):
    usedPercent: float
    seenAt: str
    resetsAt: str | None


class RunningQuota(QuotaReading):
    percentPerHour: float
    projectedPercent: float
    fullAt: str | None


class PastWindow(Span, Totals):
    basis: Basis
    quota: QuotaReading | None


class Pace(TypedDict):
    turnsPerHour: float
    tokensPerHour: float
    usdPerHour: float | None


class Projection(TypedDict):
    turns: int
    tokens: int
    costUsd: float | None


class ReadingAt(TypedDict):
    ts: str
    usedPercent: float


class RunningWindow(Span, Totals):
    basis: Basis
    quota: RunningQuota | None
    firstTurn: str | None
    secondsLeft: int
    pace: Pace | None
    projected: Projection | None
    readings: list[ReadingAt]


class ReachedLimit(Span):
    """A window whose limit was reached: `by` the account's reading, first seen `at`, or by its cost."""

    at: str | None
    by: Literal["account", "dollars"]
    turns: int
    costUsd: float | None


class WindowShare(TypedDict):
    """The part of a window's cost that a project, session or group of causes has."""

    key: str | None
    costUsd: float | None
    share: float | None
    shortId: NotRequired[str]
    parentSessionId: NotRequired[str | None]
    project: NotRequired[str | None]
    createdAt: NotRequired[str | None]
    title: NotRequired[str | None]


class FilledWindow(Span):
    projects: list[WindowShare]
    sessions: list[WindowShare]
    causes: list[WindowShare]


class PlanWindows(TypedDict):
    current: RunningWindow | None
    history: list[PastWindow]
    limitUsd: NotRequired[float | None]
    reached: NotRequired[list[ReachedLimit]]
    reachedCount: NotRequired[int]
    windowCount: NotRequired[int]
    usdPerPercent: NotRequired[float | None]
    filled: NotRequired[list[FilledWindow]]


WindowsByLength = TypedDict("WindowsByLength", {"5h": PlanWindows, "7d": PlanWindows})


class Limits(PartialAnswer, PriceNotes):
    source: str
    now: str
    windows: WindowsByLength
    budgets: list[Budget]
    crossed: list[str]


class Spending(TypedDict):
    costUsd: float | None
    unpricedTurns: int


class SessionSpending(Spending):
    turns: int


class StatuslineWindow(Span):
    basis: Basis
    turns: int
    unpricedTurns: int
    costUsd: float | None
    secondsLeft: int
    quota: RunningQuota | None


class Statusline(PartialAnswer):
    session: SessionSpending | None
    today: Spending
    window: StatuslineWindow | None
    weekQuota: QuotaReading | None
    crossed: list[str]


class Quota(Answer):
    taken: int
