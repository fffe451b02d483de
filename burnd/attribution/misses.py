"""Cache misses: tokens that a turn paid again, and why; and bills with other lifetimes of cache writes.

A reason is proved if the log leaves no other. Otherwise it is inferred from times, models and sizes.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Literal, NamedTuple

from burnd.attribution.rates import CLASSES, ByRate, Rate, Spent, add_up
from burnd.attribution.row import Bounds
from burnd.records import PromptChange, Turn
from burnd.records.times import HOUR_MS, index_ms

Reason = Literal[
    "compaction",
    "model-switch",
    "tools",
    "system",
    "prefix",
    "settings",
    "rewind",
    "edited",
    "not-requested",
    "pause",
    "slow-call",
    "dropped",
    "unknown",
]

# Providers cache no fewer tokens. The last few of a turn are rarely cached.
LEAST_TOKENS: Final = 1024
FIVE_MINUTES_MS: Final = 300_000
# how far before a cache breakpoint a provider looks for cached blocks
_LOOKBACK_BLOCKS: Final = 20
_MODEL_CHANGED: Final = "model_changed"
_MESSAGES_CHANGED: Final = "messages_changed"
_STATED: Final[dict[str, Reason]] = {"tools_changed": "tools", "system_changed": "system"}


_ADVICE: Final[dict[Reason, str]] = {
    "pause": "The cache had expired: answer sooner, or begin a new session after a long break.",
    "slow-call": "The cache had expired while a call ran, or waited to be allowed: let long work run in the "
    "background, and allow beforehand what may run.",
    "prefix": "The beginning of the context changed, or the provider dropped it early: do not change tools, MCP "
    "servers and memory files within a session.",
    "tools": "The list of tools changed: connect MCP servers before the first prompt, and leave them on.",
    "system": "The system prompt changed: leave memory files, output style and working folders as they are within a "
    "session.",
    "settings": "Effort, thinking or other settings of requests changed: choose them before the first prompt.",
    "model-switch": "Each model has its own cache: switch models between sessions, not within one.",
    "compaction": "A compaction restarted the context: its prefix was written again.",
    "rewind": "Going back to an earlier point paid for the context there again.",
    "edited": "Something in the middle of the context was changed or removed, and everything after it was paid for "
    "again.",
    "not-requested": "The request asked for no caching: check whether the harness or a setting turned it off.",
    "dropped": "Nothing had changed and the cache had not expired: the provider dropped it, and no setting helps.",
    "unknown": "The cache did not have what it should: the provider may have dropped it early.",
}
_PROVED_ADVICE: Final[dict[Reason, str]] = {
    "prefix": "The system prompt or the tools changed: do not change tools, MCP servers and memory files within a "
    "session.",
    "edited": "An earlier message was changed, and everything after it was paid for again: a hook, a plugin or a new "
    "release of the harness may rewrite history.",
}


class PromptPrint(NamedTuple):
    """Hashes of a request."""

    shape: str | None
    params: str | None
    effort: str | None


Proof = Literal["proved", "inferred"]


class MissGroup(NamedTuple):
    reason: Reason
    proof: Proof


class Miss(NamedTuple):
    """Tokens of earlier contexts that were not read from the cache.

    `position` is the number of the first message that changed, `settings` are the efforts before and after.
    """

    reason: Reason
    spent: Spent
    proof: Proof = "inferred"
    position: int | None = None
    changes: tuple[PromptChange, ...] = ()
    settings: tuple[str | None, str | None] | None = None

    @property
    def group(self) -> MissGroup:
        return MissGroup(self.reason, self.proof)


class Circumstances(NamedTuple):
    """Facts about a turn and the one before it.

    `waited`: calls returned in between, without a prompt. `prompt` is of the request before, `blocks` counts the blocks
    since then.
    """

    compacted: bool
    switched: bool
    rewound: bool
    rewritten: bool
    for_an_hour: bool
    earlier: str
    later: str
    prefix: int
    waited: bool
    prompt: PromptPrint | None = None
    blocks: int = 0


def advice_on(group: MissGroup) -> str:
    proved = _PROVED_ADVICE.get(group.reason) if group.proof == "proved" else None
    return proved or _ADVICE[group.reason]


def prompt_print(turn: Turn) -> PromptPrint | None:
    request = turn.request
    return PromptPrint(request.shape, request.params, request.effort) if request is not None else None


def miss_of(before: int, bounds: Bounds, facts: Circumstances, turn: Turn) -> Miss:
    """The first `before` tokens were in the context of the turn before."""
    tokens_paid = [0] * CLASSES
    for rate_class, tokens in bounds.between(bounds.read, before):
        tokens_paid[rate_class] = tokens
    spent = Spent(*tokens_paid)
    proved = _proved(facts, turn)
    if proved is None:
        return Miss(_inferred(bounds.read, facts), spent)
    return _with_details(Miss(proved, spent, "proved"), facts, turn)


def _proved(facts: Circumstances, turn: Turn) -> Reason | None:
    """The only reason that the log leaves, if any."""
    request, stated = turn.request, turn.cache_miss.type if turn.cache_miss is not None else ""
    if facts.compacted:
        return "compaction"
    if facts.switched or stated == _MODEL_CHANGED:
        return "model-switch"
    if stated in _STATED:
        return _STATED[stated]
    before = facts.prompt
    if before is None or request is None:
        return "edited" if stated == _MESSAGES_CHANGED and not facts.rewound else None
    if _differ(request.shape, before.shape):
        return "prefix"
    # a request without an effort has the default, if its other settings could be read
    is_comparable = None not in (request.effort, before.effort) or None not in (request.params, before.params)
    if _differ(request.params, before.params) or (is_comparable and request.effort != before.effort):
        return "settings"
    is_changed = request.same is not None and request.same < (request.before or 0)
    if is_changed or stated == _MESSAGES_CHANGED:
        return "rewind" if facts.rewound else "edited"
    usage = turn.usage
    has_cached = usage.cache_read or usage.cache_create_5m or usage.cache_create_1h
    if not request.breakpoints and not has_cached:  # a log may lack the points of a request that did ask for caching
        return "not-requested"
    if request.shape is None or request.same is None or facts.rewound:
        return None
    if _is_expired(facts):
        return "slow-call" if facts.waited else "pause"
    return "dropped" if facts.earlier and facts.blocks <= _LOOKBACK_BLOCKS else None


def _inferred(read: int, facts: Circumstances) -> Reason:
    if _is_expired(facts):
        return "slow-call" if facts.waited else "pause"
    if facts.rewound:
        return "rewind"
    if read < facts.prefix:
        return "prefix"
    return "edited" if facts.rewritten else "unknown"


def _with_details(miss: Miss, facts: Circumstances, turn: Turn) -> Miss:
    if miss.reason in ("tools", "system", "prefix"):
        return miss._replace(changes=turn.prompt_changes)
    request = turn.request
    if request is None:
        return miss
    if miss.reason == "edited" and request.same is not None and request.same < (request.before or 0):
        return miss._replace(position=request.same)
    if miss.reason == "settings" and facts.prompt is not None and request.effort != facts.prompt.effort:
        return miss._replace(settings=(facts.prompt.effort, request.effort))
    return miss


def _is_expired(facts: Circumstances) -> bool:
    lifetime = HOUR_MS if facts.for_an_hour else FIVE_MINUTES_MS
    return facts.earlier != "" and index_ms(facts.later) - index_ms(facts.earlier) > lifetime


def _differ(one: str | None, other: str | None) -> bool:
    return one is not None and other is not None and one != other


class CacheBills(NamedTuple):
    """Tokens of contexts, without output: as billed, and as if all cache writes lived five minutes or an hour.

    With an hour, what was paid again after a pause of up to an hour would have been read. With five minutes, what was
    read after a longer pause would have been written again. An estimate: other sessions may keep a prefix cached.
    """

    now: ByRate = {}  # noqa: RUF012 - never changed
    five: ByRate = {}  # noqa: RUF012
    hour: ByRate = {}  # noqa: RUF012

    @property
    def is_written(self) -> bool:
        return any(spent.cache_create_5m or spent.cache_create_1h for spent in self.now.values())

    @classmethod
    def total(cls, bills: Iterable[CacheBills]) -> CacheBills:
        return cls(*(add_up(some) for some in zip(cls(), *bills, strict=True)))


class CacheMeter:
    def __init__(self) -> None:
        # By rate: fresh input, reads, writes for five minutes and an hour; reads that would have expired with five
        # minutes; writes and fresh input that would have been reads with an hour.
        self._sums: dict[Rate, list[int]] = {}
        self._at = -1
        self._is_hour = False  # the lifetime of the last write

    def add(self, ts: str, bounds: Bounds, miss: Miss | None, rate: Rate | None) -> None:
        """A turn without a rate only counts as the one before the next."""
        if not bounds.end:
            return
        now, was_hour = index_ms(ts), self._is_hour
        gap = now - self._at if self._at >= 0 else 0
        self._at = now
        read, until_hour, until_five = bounds.read, bounds.hour, bounds.five
        if until_five > read:
            self._is_hour = until_five == until_hour
        if rate is None:
            return
        sums = self._sums.get(rate)
        if sums is None:
            sums = self._sums[rate] = [0] * 7
        sums[0] += bounds.end - until_five
        sums[1] += read
        sums[2] += until_five - until_hour
        sums[3] += until_hour - read
        if FIVE_MINUTES_MS < gap <= HOUR_MS:
            sums[4] += read if was_hour else 0
            if miss is not None and miss.reason in ("pause", "slow-call"):
                missed = miss.spent
                sums[5] += missed.cache_create_1h + missed.cache_create_5m
                sums[6] += missed.input

    def bills(self) -> CacheBills:
        now, all_five, all_hour = {}, {}, {}
        for rate, (fresh, read, five, hour, expired, written, missed) in self._sums.items():
            now[rate] = Spent(input=fresh, cache_read=read, cache_create_5m=five, cache_create_1h=hour)
            all_five[rate] = Spent(input=fresh, cache_read=read - expired, cache_create_5m=five + hour + expired)
            reads = read + written + missed
            all_hour[rate] = Spent(input=fresh - missed, cache_read=reads, cache_create_1h=five + hour - written)
        return CacheBills(now, all_five, all_hour)
