"""Looks for waste of every kind in what has been explained: in a rail, in a session with its agents, in a project."""

from __future__ import annotations

from collections.abc import Sequence

from burnd.attribution.causes import Explained
from burnd.attribution.finding import Finding, bounded
from burnd.attribution.wasted_calls import Calls, wasted_calls
from burnd.attribution.wasted_context import Begun, delegations, prefix_bloat, wasted_context
from burnd.records import Turn


def in_rail(explained: Explained, turns: Sequence[Turn]) -> tuple[Finding, ...]:
    """What one rail tells. `turns` are its own, in order."""
    return bounded(_in_rail(explained, turns))


def in_session(rails: Sequence[tuple[Explained, Sequence[Turn]]]) -> tuple[Finding, ...]:
    """What a session's rails tell together, its child sessions' among them."""
    single = [finding for explained, turns in rails for finding in _in_rail(explained, turns)]
    return bounded([*single, *delegations(rails)])


def _in_rail(explained: Explained, turns: Sequence[Turn]) -> list[Finding]:
    calls = Calls(explained, turns)
    return [*wasted_calls(calls), *wasted_context(calls)]


def in_project(sessions: Sequence[Begun]) -> tuple[Finding, ...]:
    """What only a comparison of a project's sessions tells."""
    return bounded(prefix_bloat(sessions))
