"""Finds waste in the context of rails: large results, cache misses, repeated compactions, large prefixes, subagents."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from statistics import median_low
from typing import Final, NamedTuple

from burnd.attribution.call_waste import Calls, wasted_calls
from burnd.attribution.causes import Cause, Explained, TurnMiss
from burnd.attribution.findings import Evidence, Finding, bounded, finding, weight
from burnd.attribution.misses import MissGroup, advice_on
from burnd.attribution.rates import Rate, Spent, add_up
from burnd.classify.tools import Kind as ToolKind
from burnd.classify.tools import kind as tool_kind
from burnd.records import Turn

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

# Other advice for calls whose arguments, not results, are large.
_HEAVY_ADVICE: Final[dict[ToolKind, str]] = {
    "edit": "What is written stays in the context, too: change a file by small edits instead of writing it whole.",
    "delegate": "Ask the agent for a shorter answer: all of it stays in the context that asked.",
}


_FAILED_ADVICE: Final = (
    "The agent failed after its work was paid for: find the reason before starting another, and let agents save "
    "intermediate results."
)


def wasted_context(calls: Calls) -> Iterator[Finding]:
    explained = calls.explained
    for cause in explained.causes:
        yield from _heavy_result(explained, cause)
    yield from _cache_misses(explained)
    yield from _compaction_churn(calls)


def _heavy_result(explained: Explained, cause: Cause) -> Iterator[Finding]:
    """A result that is large, or stayed in the context for many turns.

    After a rewind it enters once per branch, so the largest entry counts.
    """
    if cause.kind != "call" or cause.largest < _LARGE:
        return
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
    """The prefix of a session and its cost; `spent` is empty if the session is only compared with."""

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
        if call is None or turn is None or call.is_refused:  # stopped by the user, not failed
            continue
        cause = causes.get(call.id)
        direct = _directly(explained, len(turns), turn.usage.context, cause.rides if cause is not None else 0)
        # Weights are comparable only at the same prices.
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
    """The weight of a subagent's work if the calling rail had done it.

    Everything that the agent read would enter that context and stay as long as its answer did, and that context would
    be read in each of the agent's turns; the agent's own prefix would not exist.
    """
    entered = sum(cause.entered for cause in agent.causes if cause.kind != "prefix")
    output = sum(spent.output + spent.reasoning for spent in agent.spent.values())
    read = turns * context + rides * entered
    return weight({_ANY: Spent(output=output, cache_read=read, cache_create_5m=entered)})


RailTurns = tuple[Explained, Sequence[Turn]]


def in_rail(explained: Explained, turns: Sequence[Turn]) -> tuple[Finding, ...]:
    """The findings of one rail. `turns` are its own, in order."""
    return bounded(_in_rail(explained, turns))


def in_session(rails: Sequence[RailTurns]) -> tuple[tuple[Finding, ...], dict[Rate, Spent]]:
    """The findings in the rails of a session and its child sessions, and the avoidable tokens, each once."""
    every = all_findings(rails)
    return bounded(every), avoidable(rails, every)


def all_findings(rails: Sequence[RailTurns]) -> list[Finding]:
    """The findings in the rails of a session and its child sessions, of any number."""
    single = [finding for explained, turns in rails for finding in _in_rail(explained, turns)]
    return [*single, *delegations(rails)]


def avoidable(rails: Sequence[RailTurns], findings: Iterable[Finding]) -> dict[Rate, Spent]:
    """The tokens of all findings together, as a lower bound: no token is counted twice.

    A wasted agent counts as a whole. On other rails each cause counts once. Cache misses count without what they may
    have paid for the same causes, which is at most the size of a cause per miss.
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


def _in_rail(explained: Explained, turns: Sequence[Turn]) -> list[Finding]:
    calls = Calls(explained, turns)
    return [*wasted_calls(calls), *wasted_context(calls)]


def in_project(sessions: Sequence[SessionPrefix]) -> tuple[Finding, ...]:
    """Findings from a comparison of a project's sessions."""
    return bounded(prefix_bloat(sessions))
