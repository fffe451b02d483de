"""Running totals of sessions stated by a harness, and the prices they imply for turns of unlisted models.

Claude Code writes a total of tokens, web searches and cost by model when it ends. A resumed session continues its
total, a fork its parent's; after a kill the total restarts at zero, with another start time.

The difference between two totals is divided by tokens among the turns between them; the rest is the cost of unlogged
usage. The figure is part of a turn's class, so all sums and causes have it; a list price overrides it.
"""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec

from burnd.index import keys
from burnd.index.dimensions import CLASS_COLUMNS, DimensionNumbers, Key
from burnd.index.store import keyed
from burnd.pricing import UNITS_PER_USD, Tokens
from burnd.pricing.cost import figure_of, with_figure
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


class ModelTotal(NamedTuple):
    """One model's part of a running total; `cost` is USD."""

    tokens: Tokens = Tokens()
    searches: int = 0
    cost: float = 0.0

    def plus(self, other: ModelTotal) -> ModelTotal:
        tokens = Tokens(*map(sum, zip(self.tokens, other.tokens, strict=True)))
        return ModelTotal(tokens, self.searches + other.searches, self.cost + other.cost)


class CostState(NamedTuple):
    """A running total at `ts` of usage since `since` (0: unknown)."""

    ts: int
    since: int
    models: dict[Model, ModelTotal]

    @property
    def total(self) -> int:
        return sum(sum(stated.tokens) for stated in self.models.values())


History = dict[int, list[CostState]]  # by source, in the order of time


def plain(model: str) -> str:
    return model.removesuffix(_LONG_CONTEXT)


def write(db: sqlite3.Connection, totals: Sequence[tuple[int, int, Overhead]], names: dict[str, int]) -> None:
    """Writes running totals, given with the numbers of their session and source."""
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
    histories: dict[int, History] = {}
    for session, source, ts, since, model, name, searches, cost, *tokens in db.execute(
        _STATES, (msgspec.json.encode(sorted(sessions)).decode(),)
    ):
        states = histories.setdefault(session, {}).setdefault(source, [])
        if not states or states[-1].ts != ts:
            states.append(CostState(ts, since, {}))
        states[-1].models[Model(model, name)] = ModelTotal(Tokens(*tokens), searches, cost)
    return histories


def epochs(states: Sequence[CostState]) -> list[list[CostState]]:
    """Groups totals that continue each other, in the order of time.

    They have the same start time. If that is unknown, a total smaller than the previous one starts a new group.
    """
    groups: defaultdict[tuple[int, int], list[CostState]] = defaultdict(list)
    restarts, last = 0, 0
    for state in states:
        if not state.since:
            restarts, last = restarts + (state.total < last), state.total
        groups[state.since, 0 if state.since else restarts].append(state)
    return list(groups.values())


def in_all(states: Sequence[CostState]) -> dict[Model, tuple[int, ModelTotal]]:
    """Usage by model, with the time it was last stated: the sum of the largest totals of all epochs."""
    added: dict[Model, tuple[int, ModelTotal]] = {}
    for epoch in epochs(states):
        largest = max(epoch, key=lambda state: (state.total, state.ts))
        for model, stated in largest.models.items():
            ts, before = added.get(model, (largest.ts, ModelTotal()))
            added[model] = max(ts, largest.ts), before.plus(stated)
    return added


_STATES = """
SELECT o.session, o.source, o.ts, o.since, o.model, n.name, o.searches, o.cost, o.input, o.output, o.reasoning,
       o.cache_read, o.cache_create_5m, o.cache_create_1h
FROM cost_states o JOIN names n ON n.id = o.model
WHERE o.session IN (SELECT value FROM json_each(?)) ORDER BY o.session, o.source, o.ts, o.model
"""


_TERMS = CLASS_COLUMNS.index("terms")


class _Turn(NamedTuple):
    id: int
    ts: int
    source: int
    model: str  # without the long-context suffix
    tokens: int
    kind: int
    key: Key  # of its class
    terms: str | None


class _Increase(NamedTuple):
    """The increase of a model's running total; it belongs to turns after `begin`, up to `end`."""

    begin: int
    end: int
    units: int
    tokens: int


def reclassified(
    db: sqlite3.Connection, sessions: Iterable[int], numbering: DimensionNumbers, *, every: bool = False
) -> list[tuple[int, int]]:
    """The turns of these sessions whose class changes, as (class, turn); with `every`, also of listed models."""
    changes: list[tuple[int, int]] = []
    for session, history in load(db, sessions).items():
        unlisted = _unlisted(db, history, numbering)
        if not unlisted and not every:
            continue
        turns = _turns(db, session)
        figures = _figures(db, session, turns, history, unlisted)
        for turn in turns:
            terms = with_figure(turn.terms, figures.get(turn.id, 0))
            if terms != turn.terms:
                key = (*turn.key[:_TERMS], numbering.terms(db, [terms])[terms], *turn.key[_TERMS + 1 :])
                changes.append((numbering.classes(db, [key])[key], turn.id))
    return changes


def remaining_cost(db: sqlite3.Connection, session: int, numbering: DimensionNumbers) -> dict[str, int]:
    """For each unlisted model, the stated cost minus the cost of its turns, in units."""
    history = load(db, [session]).get(session, {})
    unlisted = _unlisted(db, history, numbering)
    if not unlisted:
        return {}
    turns = _turns(db, session)
    figures = _figures(db, session, turns, history, unlisted)
    rest: dict[str, int] = {}
    for source, states in history.items():
        for model in unlisted:
            stated = sum(one.units for one in _increases(db, session, source, states, turns, model))
            priced = sum(figures.get(turn.id, 0) * turn.tokens for turn in turns if turn.model == model)
            rest[model] = max(0, rest.get(model, 0) + stated - priced)
    return rest


def restated(
    db: sqlite3.Connection, model: int, provider: int, numbering: DimensionNumbers, *, listed: bool
) -> list[tuple[int, int]]:
    """The turns of a model that state their own cost and whose class changes, as (class, turn)."""
    changes: list[tuple[int, int]] = []
    rows = db.execute(_STATING, (model, provider)).fetchall()
    for turn, usd, tokens, terms, *key in rows:
        figure = 0 if listed else figure_of(round(usd * UNITS_PER_USD), tokens)
        new_terms = with_figure(terms, figure)
        if new_terms != terms:
            key[_TERMS] = numbering.terms(db, [new_terms])[new_terms]
            changes.append((numbering.classes(db, [tuple(key)])[tuple(key)], turn))
    return changes


def _unlisted(db: sqlite3.Connection, history: History, numbering: DimensionNumbers) -> set[str]:
    """The models with a cost in running totals and no list price."""
    costly = {
        model
        for states in history.values()
        for state in states
        for model, stated in state.models.items()
        if stated.cost > 0
    }
    return {model.plain for model in costly if not numbering.is_listed(db, model.id, model.name)}


def _figures(
    db: sqlite3.Connection, session: int, turns: Sequence[_Turn], history: History, unlisted: set[str]
) -> dict[int, int]:
    """Units per token of each turn that a running total covers, by turn."""
    figures: dict[int, int] = {}
    for source, states in history.items():
        for model in unlisted:
            own = [turn for turn in turns if turn.source == source and turn.model == model and turn.tokens]
            for begin, end, units, stated in _increases(db, session, source, states, turns, model):
                between = [turn for turn in own if begin < turn.ts <= end and turn.id not in figures]
                figure = figure_of(units, max(stated, sum(turn.tokens for turn in between)))
                figures |= {turn.id: figure for turn in between if figure}
    return figures


def _increases(
    db: sqlite3.Connection, session: int, source: int, states: Sequence[CostState], turns: Sequence[_Turn], model: str
) -> list[_Increase]:
    increases: list[_Increase] = []
    for epoch in epochs(states):
        begin = epoch[0].since - 1 if epoch[0].since else increases[-1].end if increases else -(1 << 62)
        before = _inherited(db, session, source, epoch[0], turns)
        units, tokens = _stated(before, model) if before is not None else (0, 0)
        for state in epoch:
            now_units, now_tokens = _stated(state, model)
            increases.append(_Increase(begin, state.ts, max(0, now_units - units), max(0, now_tokens - tokens)))
            begin, units, tokens = state.ts, max(units, now_units), max(tokens, now_tokens)
    return increases


def _stated(state: CostState, model: str) -> tuple[int, int]:
    """A model's cost in units and its tokens in a running total."""
    of_it = [stated for other, stated in state.models.items() if other.plain == model]
    return sum(round(one.cost * UNITS_PER_USD) for one in of_it), sum(sum(one.tokens) for one in of_it)


def _inherited(
    db: sqlite3.Connection, session: int, source: int, first: CostState, turns: Sequence[_Turn]
) -> CostState | None:
    """The total that a fork's own total starts with: its parent's at the time of the fork."""
    owners = {row[0] for row in copied(db, session)}
    if not owners:
        return None
    forked_at = min((turn.ts for turn in turns), default=first.ts)
    totals = [
        state
        for history in load(db, owners).values()
        for state in history.get(source, ())
        if state.since == first.since and state.ts <= forked_at and state.total <= first.total
    ]
    return max(totals, key=lambda state: (state.total, state.ts), default=None)


def copied(db: sqlite3.Connection, session: int) -> list[tuple[int, ...]]:
    """The owner and usage of each message that a session copied, except copies that its log marks as forked."""
    sql = "SELECT key FROM facts WHERE session = ? AND kind = 'copy' AND NOT forked"
    messages = {keys.copy_holder(row[0])[0] for row in db.execute(sql, (session,)).fetchall()}
    return keyed(db, _COPIED, [(*message, session) for message in sorted(messages)])


def _turns(db: sqlite3.Connection, session: int) -> list[_Turn]:
    rows = db.execute(_OF_SESSION, (session,)).fetchall()
    return [
        _Turn(number, ts, key[0], plain(name), tokens, kind, tuple(key), terms)
        for number, ts, name, tokens, kind, terms, *key in rows
    ]


KINDS = ("input", "output", "reasoning", "cache_read", "cache_create_5m", "cache_create_1h")
_TOKENS = " + ".join(f"t.{kind}" for kind in KINDS)
_KEY = ",".join(f"c.{name}" for name in CLASS_COLUMNS)
_OF_SESSION = f"""
SELECT t.id, t.ts, m.name, {_TOKENS}, t.class, n.name, {_KEY}
FROM turns t JOIN classes c ON c.id = t.class JOIN names m ON m.id = t.model LEFT JOIN names n ON n.id = c.terms
WHERE t.session = ? AND t.stated_usd IS NULL ORDER BY t.id
"""
_STATING = f"""
SELECT t.id, t.stated_usd, {_TOKENS}, n.name, {_KEY}
FROM turns t JOIN classes c ON c.id = t.class LEFT JOIN names n ON n.id = c.terms
WHERE t.stated_usd IS NOT NULL AND t.model = ? AND coalesce(t.provider, 0) = ?
"""
_COPIED = f"""
WITH w(source, message_id, holder) AS ({{keys}})
SELECT t.session, m.name, t.searches, {",".join(f"t.{kind}" for kind in KINDS)} FROM w
CROSS JOIN names n ON n.name = w.source
CROSS JOIN turns t ON t.source = n.id AND t.message_id = w.message_id AND t.session <> w.holder
JOIN names m ON m.id = t.model
"""
