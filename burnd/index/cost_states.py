"""Running totals of sessions as a harness states them: tokens, web searches and cost by model.

Claude Code writes one when it ends. A resumed session continues its total, a fork its parent's; after a kill the total
starts at zero again, with another start time.
"""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec

from burnd.pricing import Tokens
from burnd.records import Overhead, Usage
from burnd.records.times import index_ms

_LONG_CONTEXT = "[1m]"  # suffix that logs use for some requests of the same model


class Model(NamedTuple):
    """A model by its number and its name in the harness's total."""

    id: int
    name: str

    @property
    def plain(self) -> str:
        return plain(self.name)


class Stated(NamedTuple):
    """One model's part of a running total; `cost` is USD."""

    tokens: Tokens = Tokens()
    searches: int = 0
    cost: float = 0.0

    def plus(self, other: Stated) -> Stated:
        tokens = Tokens(*map(sum, zip(self.tokens, other.tokens, strict=True)))
        return Stated(tokens, self.searches + other.searches, self.cost + other.cost)


class State(NamedTuple):
    """A running total at `ts` of usage since `since` (0: unknown)."""

    ts: int
    since: int
    models: dict[Model, Stated]

    @property
    def total(self) -> int:
        return sum(sum(stated.tokens) for stated in self.models.values())


History = dict[int, list[State]]  # by source, in the order of time


def plain(model: str) -> str:
    return model.removesuffix(_LONG_CONTEXT)


def write(db: sqlite3.Connection, totals: Sequence[tuple[int, int, Overhead]], names: dict[str, int]) -> None:
    """Adds running totals, given with the numbers of their session and source."""
    for session, source, overhead in totals:
        ts, since = index_ms(overhead.ts), index_ms(overhead.since) if overhead.since is not None else 0
        db.execute("DELETE FROM cost_states WHERE session = ? AND source = ? AND ts = ?", (session, source, ts))
        rows = [
            (
                *(session, source, ts, names[model], since),
                *msgspec.structs.astuple(overhead.models.get(model, Usage())),
                *(overhead.searches.get(model, 0), overhead.costs.get(model, 0.0)),
            )
            for model in overhead.models
        ]
        db.executemany("INSERT OR REPLACE INTO cost_states VALUES(?,?,?,?,?,?,?,?,?,?,?,?,?)", rows)


def load(db: sqlite3.Connection, sessions: Iterable[int]) -> dict[int, History]:
    """All running totals of these sessions."""
    found: dict[int, History] = {}
    for session, source, ts, since, model, name, searches, cost, *tokens in db.execute(
        _STATES, (msgspec.json.encode(sorted(sessions)).decode(),)
    ):
        states = found.setdefault(session, {}).setdefault(source, [])
        if not states or states[-1].ts != ts:
            states.append(State(ts, since, {}))
        states[-1].models[Model(model, name)] = Stated(Tokens(*tokens), searches, cost)
    return found


def epochs(states: Sequence[State]) -> list[list[State]]:
    """Groups totals that continue each other, in the order of time.

    They have the same start time. If that is unknown, a total smaller than the previous one starts a new group.
    """
    found: defaultdict[tuple[int, int], list[State]] = defaultdict(list)
    restarts, last = 0, 0
    for state in states:
        if not state.since:
            restarts, last = restarts + (state.total < last), state.total
        found[state.since, 0 if state.since else restarts].append(state)
    return list(found.values())


def in_all(states: Sequence[State]) -> dict[Model, tuple[int, Stated]]:
    """Usage by model, with the time it was last stated: the sum of the largest totals of all epochs."""
    added: dict[Model, tuple[int, Stated]] = {}
    for epoch in epochs(states):
        largest = max(epoch, key=lambda state: (state.total, state.ts))
        for model, stated in largest.models.items():
            ts, before = added.get(model, (largest.ts, Stated()))
            added[model] = max(ts, largest.ts), before.plus(stated)
    return added


_STATES = """
SELECT o.session, o.source, o.ts, o.since, o.model, n.name, o.searches, o.cost, o.input, o.output, o.reasoning,
       o.cache_read, o.cache_create_5m, o.cache_create_1h
FROM cost_states o JOIN names n ON n.id = o.model
WHERE o.session IN (SELECT value FROM json_each(?)) ORDER BY o.session, o.source, o.ts, o.model
"""
