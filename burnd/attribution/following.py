"""Follows a whole rail and keeps what its causes are computed from: its slots, its causes and the bill of each turn."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from burnd.attribution.rail import Entry, Rail
from burnd.attribution.steps import TurnStep, turn_step
from burnd.records import Subagent, Turn


class Trace(msgspec.Struct):
    """A rail fed with all of its entries, and a step for each of its turns. Names are those of its last turn."""

    rail: Rail
    steps: list[TurnStep]
    session_id: str = ""
    rail_id: str = ""
    agent: Subagent | None = None


def follow(entries: Iterable[Entry]) -> Trace:
    """Feed a new rail with its entries, in order."""
    rail = Rail()
    steps: list[TurnStep] = []
    last: Turn | None = None
    for entry in entries:
        step = rail.feed(entry)
        if step is not None and isinstance(entry, Turn):
            last = entry
            steps.append(turn_step(entry, step))
    if last is None:
        return Trace(rail, steps)
    return Trace(rail, steps, last.session_id, last.rail_id, last.subagent)
