"""Finds waste in rails: calls that were repeated, failed or undone, and contexts larger than needed."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from statistics import median_low
from typing import Final, NamedTuple

from burnd.attribution.causes import Cause, Explained, TurnMiss
from burnd.attribution.findings import Evidence, Finding, FindingKind, bounded, finding, weight
from burnd.attribution.misses import MissGroup, advice_on
from burnd.attribution.rates import Rate, Spent, add_up
from burnd.classify.tools import Kind as ToolKind
from burnd.classify.tools import kind as tool_kind
from burnd.classify.tools import writes_whole
from burnd.records import ToolCall, Turn

_RETRIES: Final = 3
_FAILURES_IN_A_ROW: Final = 5
_LONGEST_CHAIN: Final = 32
_LARGE: Final = 2_000
_FAR: Final = 10
_CARRIED: Final = 40_000
_OVERSIZED: Final = 10_000
_COMPACTIONS: Final = 3
_SOON: Final = 20
_AFTER_A_COMPACTION: Final = 10
_OTHER_SESSIONS: Final = 3
_BLOATED: Final = 2_000
_ANY: Final = Rate("")
_READ_ONLY: Final[frozenset[ToolKind]] = frozenset(("read", "search", "web", "todo"))
SAME_SIZE: Final = "same-size"
_SAME_SIZE_ADVICE: Final = (
    "The result was as large as before, and the first one was still in the context: ask for what is new, or for "
    "the lines needed."
)
# For calls whose arguments, not results, are large.
_HEAVY_ADVICE: Final[dict[ToolKind, str]] = {
    "edit": "What is written stays in the context, too: change a file by small edits instead of writing it whole.",
    "delegate": "Ask the agent for a shorter answer: all of it stays in the context that asked.",
}
_FAILED_ADVICE: Final = (
    "The agent failed after its work was paid for: find the reason before starting another, and let agents save "
    "intermediate results."
)


class Lineage:
    def __init__(self, turns: Sequence[Turn]) -> None:
        ids = {turn.message_id for turn in turns}
        below: dict[str | None, list[str]] = {}
        before: str | None = None
        for turn in turns:
            parent = turn.parent if turn.parent in ids and turn.parent != turn.message_id else before
            below.setdefault(parent, []).append(turn.message_id)
            before = turn.message_id
        # Each turn is numbered before and after its descendants.
        self._first: dict[str, int] = {}
        self._last: dict[str, int] = {}
        waiting: list[tuple[str, bool]] = [(name, False) for name in reversed(below.get(None, []))]
        count = 0
        while waiting:
            name, done = waiting.pop()
            count += 1
            if done:
                self._last[name] = count
            elif name not in self._first:
                self._first[name] = count
                waiting.append((name, True))
                waiting += [(child, False) for child in reversed(below.get(name, []))]

    def is_above(self, one: str, other: str) -> bool:
        """Also if they are the same."""
        if one not in self._first or other not in self._first:
            return False
        return self._first[one] <= self._first[other] and self._last[other] <= self._last[one]


class CallEvent(NamedTuple):
    """`row` is the number of rows that had begun by then."""

    call: ToolCall
    turn: Turn
    row: int

    @property
    def reads(self) -> bool:
        return self.call.target is not None and tool_kind(self.call.name) == "read"

    @property
    def edits(self) -> bool:
        return self.call.target is not None and tool_kind(self.call.name) == "edit" and not self.call.is_error

    @property
    def failed(self) -> bool:
        """A refusal by the user is not a failure."""
        return self.call.is_error is True and not self.call.is_refused

    @property
    def may_change(self) -> bool:
        """Commands and unknown tools may change files."""
        return not self.call.is_error and tool_kind(self.call.name) not in _READ_ONLY


class Calls:
    def __init__(self, explained: Explained, turns: Sequence[Turn]) -> None:
        self.explained = explained
        self._causes = {(cause.message_id, cause.call_id): cause for cause in explained.causes}
        self.events = [
            CallEvent(call, turn, bisect_right(explained.begins, turn.turn_index))
            for turn in turns
            for call in turn.tool_calls
        ]
        self.lineage = Lineage(turns)
        self._shrunk = [shrink.turn_index for shrink in explained.shrinks]
        self.sizes: Counter[str | None] = Counter()  # bytes of results by call
        self._entered: set[tuple[str | None, str]] = set()
        for turn in turns:
            for block in turn.entered:
                self.sizes[block.call_id] += block.bytes
                self._entered.add((block.call_id, turn.message_id))

    def cause(self, event: CallEvent) -> Cause | None:
        return self._causes.get((event.turn.message_id, event.call.id))

    def is_in_context(self, earlier: CallEvent, later: CallEvent) -> bool:
        """Whether the result of the earlier call was certainly still there."""
        cause = self.cause(earlier)
        if cause is None or not self.lineage.is_above(earlier.turn.message_id, later.turn.message_id):
            return False
        begin = bisect_right(self._shrunk, earlier.turn.turn_index)
        end = bisect_right(self._shrunk, later.turn.turn_index)
        return not any(
            shrink.read < cause.end
            and (earlier.call.id, shrink.message_id) not in self._entered
            and self.lineage.is_above(shrink.message_id, later.turn.message_id)
            for shrink in self.explained.shrinks[begin:end]
        )

    def by_file(self) -> dict[str, list[CallEvent]]:
        files: dict[str, list[CallEvent]] = {}
        for event in self.events:
            if event.reads or event.edits:
                files.setdefault(event.call.target or "", []).append(event)
        return files


def _rereads(calls: Calls) -> Iterator[Finding]:
    """Reads with the arguments and result of an earlier read that was still in the context."""
    for target, events in calls.by_file().items():
        rereads: list[CallEvent] = []
        has_hashes = True
        reads: dict[tuple[str, str | None], CallEvent] = {}
        for event in events:
            if event.edits:
                reads.clear()
                continue
            key = (event.call.name, event.call.args_hash)
            before = reads.get(key)
            if before is not None and _is_same(before, event, calls):
                rereads.append(event)
                has_hashes = has_hashes and event.call.result_hash is not None
            if not event.call.is_error:
                reads[key] = event
        if rereads:
            yield _finding(calls, "reread", rereads, rereads, files=(target,), reason=None if has_hashes else SAME_SIZE)


def _is_same(before: CallEvent, event: CallEvent, calls: Calls) -> bool:
    """By the hash of the result, else by its size."""
    if event.call.args_hash is None or event.call.is_error or before.row != event.row:
        return False
    one, other = before.call.result_hash, event.call.result_hash
    if one is not None and other is not None:
        is_unchanged = one == other
    else:
        size = calls.sizes.get(event.call.id)
        is_unchanged = size is not None and size == calls.sizes.get(before.call.id)
    return is_unchanged and calls.is_in_context(before, event)


def _retry_loops(events: Sequence[CallEvent]) -> list[list[CallEvent]]:
    """Three or more failures with the same arguments, without a prompt or a change in between."""
    loops: list[list[CallEvent]] = []
    failures: dict[tuple[str, str | None], list[CallEvent]] = {}
    message_id = ""
    for event in events:
        is_prompted = event.turn.message_id != message_id and any(
            block.kind == "prompt" for block in event.turn.entered
        )
        message_id = event.turn.message_id
        if is_prompted or event.may_change:
            loops += failures.values()
            failures = {}
        key = (event.call.name, event.call.args_hash)
        if event.failed and event.call.args_hash is not None:
            failures.setdefault(key, []).append(event)
        elif not event.call.is_error:
            loops.append(failures.pop(key, []))
    return [loop for loop in (*loops, *failures.values()) if len(loop) >= _RETRIES]


def _failure_runs(calls: Calls, in_loops: set[str]) -> Iterator[Finding]:
    run: list[CallEvent] = []
    for event in (*calls.events, None):
        if event is not None and event.failed:
            run.append(event)
            continue
        others = [one for one in run if one.call.id not in in_loops]
        if len(run) >= _FAILURES_IN_A_ROW and others:
            yield _finding(calls, "failure-run", run, others)
        run = []


def _edit_reverts(calls: Calls) -> Iterator[Finding]:
    """Edits that were undone. Only hashes prove that: a read may return a part of a file."""
    for target, events in calls.by_file().items():
        edits = [event for event in events if event.edits]
        undone = [edits[n] for n in sorted(_reverted(edits, calls.lineage) | _overwritten(edits, calls.lineage))]
        if undone:
            yield _finding(calls, "edit-revert", undone, undone, files=(target,))


class _Chain(NamedTuple):
    """Consecutive edits of the same passage, and its texts."""

    edits: tuple[int, ...]
    texts: tuple[str, ...]


def _reverted(edits: Sequence[CallEvent], lineage: Lineage) -> set[int]:
    """Edits that led back to an earlier text."""
    reverted: set[int] = set()
    chains: dict[str, list[_Chain]] = {}  # by the text that they end with
    for n, event in enumerate(edits):
        change = event.call.edit_hash
        if change is None or event.call.is_error is None:
            chains.clear()  # after a whole write the earlier edits may be gone
            continue
        before, _, after = change.partition(">")
        candidates = chains.setdefault(before, [])
        while candidates and not reverted.isdisjoint(candidates[-1].edits):
            candidates.pop()
        if not candidates or not _follows(edits[candidates[-1].edits[-1]], event, lineage):
            chains.setdefault(after, []).append(_Chain((n,), (before, after)))
            continue
        chain = candidates[-1]
        if after in chain.texts:
            back_to = chain.texts.index(after)
            reverted |= {*chain.edits[back_to:], n}
            candidates.pop()
        else:
            edited, texts = (*chain.edits, n)[-_LONGEST_CHAIN:], (*chain.texts, after)[-_LONGEST_CHAIN - 1 :]
            chains.setdefault(after, []).append(_Chain(edited, texts))
    return reverted


def _overwritten(edits: Sequence[CallEvent], lineage: Lineage) -> set[int]:
    """Edits between two identical writes of the whole file."""
    overwritten: set[int] = set()
    writes: dict[str, int] = {}
    for n, event in enumerate(edits):
        whole = event.call.args_hash
        if whole is None or event.call.is_error is None or not writes_whole(event.call.name):
            continue
        first = writes.get(whole)
        if first is not None and _follows(edits[first], event, lineage):
            overwritten.update(range(first + 1, n))
        writes[whole] = n
    return overwritten


def _follows(earlier: CallEvent, later: CallEvent, lineage: Lineage) -> bool:
    return lineage.is_above(earlier.turn.message_id, later.turn.message_id)


def _finding(
    calls: Calls,
    kind: FindingKind,
    events: Sequence[CallEvent],
    wasted: Iterable[CallEvent],
    files: tuple[str, ...] = (),
    reason: str | None = None,
) -> Finding:
    causes = [cause for event in wasted if (cause := calls.cause(event)) is not None]
    tools = {event.call.name for event in events}
    targets = {event.call.target for event in events}
    evidence = Evidence(
        rail_id=calls.explained.rail_id,
        turns=tuple(sorted({event.turn.turn_index for event in events})),
        calls=tuple(event.call.id for event in events),
        files=files,
        tool=events[0].call.name if len(tools) == 1 else None,
        target=events[0].call.target if len(targets) == 1 else None,
        reason=reason,
        count=len(events),
        entered=sum(cause.entered for cause in causes),
    )
    advice = _SAME_SIZE_ADVICE if reason == SAME_SIZE else None
    return finding(kind, (calls.explained.session_id,), evidence, [], advice, causes)


def _heavy_results(explained: Explained) -> Iterator[Finding]:
    """After a rewind the largest entry counts."""
    for cause in explained.causes:
        if cause.kind != "call" or cause.largest < _LARGE:
            continue
        evidence = Evidence(
            rail_id=explained.rail_id,
            turns=(cause.turn_index,),
            calls=(cause.call_id or "",),
            tool=cause.tool,
            target=cause.target,
            count=1,
            entered=cause.largest,
            rides=cause.rides,
        )
        advice = _HEAVY_ADVICE.get(tool_kind(cause.tool or ""))
        if cause.rides >= _FAR and cause.largest * cause.rides >= _CARRIED:
            yield finding("rode-far", (explained.session_id,), evidence, [], advice, [cause])
        if cause.entered and cause.largest >= _OVERSIZED:
            yield finding("oversized", (explained.session_id,), evidence, [], advice, [cause])


def _cache_misses(explained: Explained) -> Iterator[Finding]:
    groups: dict[MissGroup, list[TurnMiss]] = {}
    for one in explained.misses:
        groups.setdefault(one.miss.group, []).append(one)
    for group, misses in groups.items():
        evidence = Evidence(
            rail_id=explained.rail_id,
            turns=tuple(one.turn_index for one in misses),
            reason=group.reason,
            proof=group.proof,
            changes=tuple(dict.fromkeys(change for one in misses for change in one.miss.changes)),
            count=len(misses),
            entered=sum(one.miss.spent.context for one in misses),
        )
        bills = [{one.rate: one.miss.spent} for one in misses]
        yield finding("cache-miss", (explained.session_id,), evidence, bills, advice_on(group))


def _compaction_churn(calls: Calls) -> Iterator[Finding]:
    """Many compactions, or two close together: the summaries, and files that were read again."""
    explained = calls.explained
    summaries = [cause for cause in explained.causes if cause.kind == "summary"]
    turns = [cause.turn_index for cause in summaries]
    close = any(later - earlier <= _SOON for earlier, later in pairwise(turns))
    if len(turns) < _COMPACTIONS and not close:
        return
    files, again = _read_again(calls, turns)
    evidence = Evidence(
        rail_id=explained.rail_id,
        turns=tuple(turns),
        files=files,
        count=len(turns),
        entered=sum(cause.entered for cause in summaries),
    )
    yield finding("compaction-churn", (explained.session_id,), evidence, [], None, (*summaries, *again))


def _read_again(calls: Calls, compactions: Sequence[int]) -> tuple[tuple[str, ...], list[Cause]]:
    """Files that were read before a compaction and again soon after it."""
    last_reads: dict[str, int] = {}
    files: dict[str, None] = {}
    causes = []
    for event in calls.events:
        if not event.reads or event.call.target is None:
            continue
        turn_index, target = event.turn.turn_index, event.call.target
        at = bisect_right(compactions, turn_index) - 1
        cause = calls.cause(event)
        soon = at >= 0 and turn_index - compactions[at] <= _AFTER_A_COMPACTION
        if soon and cause is not None and last_reads.get(target, turn_index) < compactions[at]:
            files[target] = None
            causes.append(cause)
        last_reads[target] = turn_index
    return tuple(files), causes


class SessionPrefix(NamedTuple):
    """`spent` is empty if the session is only compared with."""

    session_id: str
    prefix: int
    spent: Mapping[Rate, Spent]


def prefix_bloat(project: Sequence[SessionPrefix]) -> Iterator[Finding]:
    """Sessions with a much larger prefix than others of their project."""
    sizes = [one.prefix for one in project if one.prefix]
    if len(sizes) <= _OTHER_SESSIONS:
        return
    usual = median_low(sizes)
    large = [one for one in project if 2 * one.prefix >= 3 * usual and one.prefix - usual >= _BLOATED]
    bloated = [one for one in large if one.spent]
    bloated.sort(key=lambda one: (-one.prefix, one.session_id))
    if not bloated:
        return
    bills = [part_of(one.spent, one.prefix - usual, one.prefix) for one in bloated]
    evidence = Evidence(count=len(bloated), entered=bloated[0].prefix, usual=usual)
    yield finding("prefix-bloat", [one.session_id for one in bloated], evidence, bills)


def part_of(spent: Mapping[Rate, Spent], share: int, whole: int) -> dict[Rate, Spent]:
    return {rate: Spent(*(tokens * share // whole for tokens in of_class)) for rate, of_class in spent.items()}


def delegations(rails: Sequence[tuple[Explained, Sequence[Turn]]]) -> Iterator[Finding]:
    """Subagents that failed, or cost more than their work would have cost on the calling rail. Needs all rails."""
    callers = {call.id: (call, turn) for _, turns in rails for turn in turns for call in turn.tool_calls}
    causes = {cause.call_id: cause for explained, _ in rails for cause in explained.causes if cause.kind == "call"}
    for explained, turns in rails:
        call, turn = callers.get(explained.started_by or "", (None, None))
        if call is None or turn is None or call.is_refused:  # stopped by the user
            continue
        cause = causes.get(call.id)
        direct = _directly(explained, len(turns), turn.usage.context, cause.rides if cause is not None else 0)
        # weights are comparable only at the same prices
        is_comparable = {rate.model for rate in explained.spent} == {turn.model}
        if not call.is_error and not (is_comparable and weight(explained.spent) > direct):
            continue
        evidence = Evidence(
            rail_id=explained.rail_id,
            turns=(turn.turn_index,),
            calls=(call.id,),
            tool=call.name,
            target=call.target,
            reason="failed" if call.is_error else None,
            count=len(turns),
            entered=cause.entered if cause is not None else 0,
            usual=direct,
        )
        advice = _FAILED_ADVICE if call.is_error else None
        yield finding("delegation", (explained.session_id,), evidence, [explained.spent], advice)


def _directly(agent: Explained, turns: int, context: int, rides: int) -> int:
    """The weight of a subagent's work on the calling rail.

    All that the agent read would enter that context and stay as long as its answer did.
    """
    entered = sum(cause.entered for cause in agent.causes if cause.kind != "prefix")
    output = sum(spent.output + spent.reasoning for spent in agent.spent.values())
    read = turns * context + rides * entered
    return weight({_ANY: Spent(output=output, cache_read=read, cache_create_5m=entered)})


RailTurns = tuple[Explained, Sequence[Turn]]


def in_rail(explained: Explained, turns: Sequence[Turn]) -> list[Finding]:
    calls = Calls(explained, turns)
    loops = _retry_loops(calls.events)
    in_loops = {event.call.id for loop in loops for event in loop}
    return [
        *_rereads(calls),
        *(_finding(calls, "retry-loop", loop, loop[1:]) for loop in loops),
        *_failure_runs(calls, in_loops),
        *_edit_reverts(calls),
        *_heavy_results(explained),
        *_cache_misses(explained),
        *_compaction_churn(calls),
    ]


def in_session(rails: Sequence[RailTurns]) -> tuple[tuple[Finding, ...], dict[Rate, Spent]]:
    """Also the avoidable tokens, each once."""
    every = all_findings(rails)
    return bounded(every), avoidable(rails, every)


def all_findings(rails: Sequence[RailTurns]) -> list[Finding]:
    single = [finding for explained, turns in rails for finding in in_rail(explained, turns)]
    return [*single, *delegations(rails)]


def avoidable(rails: Sequence[RailTurns], findings: Iterable[Finding]) -> dict[Rate, Spent]:
    """A lower bound: no token is counted twice.

    A wasted agent counts as a whole. Cache misses count without what they may have paid for causes that count already.
    """
    causes: dict[tuple[str, str], dict[tuple[str, str, str | None], Cause]] = {}
    agents = set()
    for one in findings:
        rail = (one.sessions[0], one.evidence.rail_id)
        if one.kind == "delegation":
            agents.add(rail)
        once = causes.setdefault(rail, {})
        once |= {(cause.kind, cause.message_id, cause.call_id): cause for cause in one.causes}
    bills: list[Mapping[Rate, Spent]] = []
    for explained, _ in rails:
        rail = (explained.session_id, explained.rail_id)
        if rail in agents:
            bills.append(explained.spent)
            continue
        own_causes = causes.get(rail, {}).values()
        missed = add_up([{one.rate: one.miss.spent} for one in explained.misses])
        tokens = sum(map(sum, missed.values()))
        rest = max(0, tokens - sum(cause.size * cause.reentries for cause in own_causes))
        own = add_up([*(cause.spent for cause in own_causes), part_of(missed, rest, tokens or 1)])
        whole = explained.spent
        bills.append({rate: Spent(*map(min, spent, whole[rate])) for rate, spent in own.items() if any(spent)})
    return add_up(bills)


def in_project(sessions: Sequence[SessionPrefix]) -> tuple[Finding, ...]:
    return bounded(prefix_bloat(sessions))
