"""Prices turns of unlisted models by the cost that their harness states, as billing terms of their class.

Claude Code states a session's cost so far, by model. The difference between two running totals is divided by tokens
among the turns between them; the rest is the cost of unlogged usage. The figure is part of a turn's class, so all sums
and causes have it; a list price overrides it.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from burnd.index import cost_states, keys
from burnd.index.cost_states import State, epochs, plain
from burnd.index.dimensions import CLASS_COLUMNS, Key, Numbering
from burnd.index.store import keyed
from burnd.pricing import UNITS_PER_USD
from burnd.pricing.terms import figure_of, with_figure

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
    db: sqlite3.Connection, sessions: Iterable[int], numbering: Numbering, *, every: bool = False
) -> list[tuple[int, int]]:
    """The turns of these sessions whose class changes, as (class, turn); `every`: also those of listed models."""
    changes: list[tuple[int, int]] = []
    for session, history in cost_states.load(db, sessions).items():
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


def left_over(db: sqlite3.Connection, session: int, numbering: Numbering) -> dict[str, int]:
    """For each unlisted model, the stated cost minus that of its turns, in units."""
    history = cost_states.load(db, [session]).get(session, {})
    unlisted = _unlisted(db, history, numbering)
    if not unlisted:
        return {}
    turns = _turns(db, session)
    figures = _figures(db, session, turns, history, unlisted)
    left: dict[str, int] = {}
    for source, states in history.items():
        for model in unlisted:
            stated = sum(one.units for one in _increases(db, session, source, states, turns, model))
            priced = sum(figures.get(turn.id, 0) * turn.tokens for turn in turns if turn.model == model)
            left[model] = max(0, left.get(model, 0) + stated - priced)
    return left


def restated(
    db: sqlite3.Connection, model: int, provider: int, numbering: Numbering, *, listed: bool
) -> list[tuple[int, int]]:
    """The turns of a model that state their own cost and whose class changes, as (class, turn)."""
    changes: list[tuple[int, int]] = []
    rows = db.execute(_STATING, (model, provider)).fetchall()
    for turn, usd, tokens, terms, *key in rows:
        figure = 0 if listed else figure_of(round(usd * UNITS_PER_USD), tokens)
        wanted = with_figure(terms, figure)
        if wanted != terms:
            key[_TERMS] = numbering.terms(db, [wanted])[wanted]
            changes.append((numbering.classes(db, [tuple(key)])[tuple(key)], turn))
    return changes


def _unlisted(db: sqlite3.Connection, history: cost_states.History, numbering: Numbering) -> set[str]:
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
    db: sqlite3.Connection, session: int, turns: Sequence[_Turn], history: cost_states.History, unlisted: set[str]
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
    db: sqlite3.Connection, session: int, source: int, states: Sequence[State], turns: Sequence[_Turn], model: str
) -> list[_Increase]:
    found: list[_Increase] = []
    for epoch in epochs(states):
        begin = epoch[0].since - 1 if epoch[0].since else found[-1].end if found else -(1 << 62)
        before = _inherited(db, session, source, epoch[0], turns)
        units, tokens = _stated(before, model) if before is not None else (0, 0)
        for state in epoch:
            now_units, now_tokens = _stated(state, model)
            found.append(_Increase(begin, state.ts, max(0, now_units - units), max(0, now_tokens - tokens)))
            begin, units, tokens = state.ts, max(units, now_units), max(tokens, now_tokens)
    return found


def _stated(state: State, model: str) -> tuple[int, int]:
    """A model's cost in units and its tokens in a running total."""
    of_it = [stated for named, stated in state.models.items() if named.plain == model]
    return sum(round(one.cost * UNITS_PER_USD) for one in of_it), sum(sum(one.tokens) for one in of_it)


def _inherited(db: sqlite3.Connection, session: int, source: int, first: State, turns: Sequence[_Turn]) -> State | None:
    """The total that a fork's own total starts with: its parent's at the time of the fork."""
    owners = {row[0] for row in copied(db, session)}
    if not owners:
        return None
    made = min((turn.ts for turn in turns), default=first.ts)
    totals = [
        state
        for history in cost_states.load(db, owners).values()
        for state in history.get(source, ())
        if state.since == first.since and state.ts <= made and state.total <= first.total
    ]
    return max(totals, key=lambda state: (state.total, state.ts), default=None)


def copied(db: sqlite3.Connection, session: int) -> list[tuple[int, ...]]:
    """The owner and usage of each message that a session copied, except those that its log marks as forked."""
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
