"""Looks for waste of every kind in what has been explained: in a rail, in a session with its agents, in a project."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from burnd.attribution.cause import Cause
from burnd.attribution.causes import Explained
from burnd.attribution.finding import Finding, bounded
from burnd.attribution.rates import Rate, Spent, add_up
from burnd.attribution.wasted_calls import Calls, wasted_calls
from burnd.attribution.wasted_context import Begun, delegations, part_of, prefix_bloat, wasted_context
from burnd.records import Turn

RailTurns = tuple[Explained, Sequence[Turn]]


def in_rail(explained: Explained, turns: Sequence[Turn]) -> tuple[Finding, ...]:
    """What one rail tells. `turns` are its own, in order."""
    return bounded(_in_rail(explained, turns))


def in_session(rails: Sequence[RailTurns]) -> tuple[tuple[Finding, ...], dict[Rate, Spent]]:
    """The findings in a session's rails, its child sessions' among them, and what is avoidable, nothing twice."""
    single = [finding for explained, turns in rails for finding in _in_rail(explained, turns)]
    every = [*single, *delegations(rails)]
    return bounded(every), avoidable(rails, every)


def avoidable(rails: Sequence[RailTurns], found: Iterable[Finding]) -> dict[Rate, Spent]:
    """What findings of all kinds cost together; a lower bound, since no token is counted twice.

    An agent that was a waste counts as a whole, and nothing else on its rail. Elsewhere each cause counts once, however
    many findings name it. A cache miss paid for some of the same causes again: at most for their size each time, which
    is subtracted from it.
    """
    causes: dict[tuple[str, str], dict[tuple[str, str, str | None], Cause]] = {}
    agents = set()
    for one in found:
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
        counted = causes.get(rail, {}).values()
        missed = add_up([{one.rate: one.miss.spent} for one in explained.misses])
        tokens = sum(map(sum, missed.values()))
        left = max(0, tokens - sum(cause.size * cause.reentries for cause in counted))
        own = add_up([*(cause.spent for cause in counted), part_of(missed, left, tokens or 1)])
        whole = explained.spent
        bills.append({rate: Spent(*map(min, spent, whole[rate])) for rate, spent in own.items() if any(spent)})
    return add_up(bills)


def _in_rail(explained: Explained, turns: Sequence[Turn]) -> list[Finding]:
    calls = Calls(explained, turns)
    return [*wasted_calls(calls), *wasted_context(calls)]


def in_project(sessions: Sequence[Begun]) -> tuple[Finding, ...]:
    """What only a comparison of a project's sessions tells."""
    return bounded(prefix_bloat(sessions))
