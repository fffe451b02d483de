"""Unlogged usage of a session: its harness's running total minus its turns and copies.

The running total of a fork starts with its parent's, including the parent's unlogged usage, which counts once. If the
log marks copies as forked, the total starts at zero and excludes them.

Requests without a response are in no running total and are added. A compaction is part of a later running total that
exceeds the log; otherwise it counts as a request with at least the context that it summarized.
"""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from burnd.index import harness_costs, keys
from burnd.index.dimensions import DimensionNumbers
from burnd.index.harness_costs import KINDS, Model, ModelTotal, copied, plain
from burnd.index.store import keyed
from burnd.pricing import Tokens
from burnd.pricing.cost import figure_of, with_figure
from burnd.records import Compaction, Request, Usage
from burnd.records.times import index_ms

Row = tuple[Any, ...]
SourceAndModel = tuple[int, Model]  # a source and a model
StatedUsage = dict[SourceAndModel, tuple[int, ModelTotal]]  # with the time of its newest running total


def write_requests(
    db: sqlite3.Connection,
    entries: Mapping[tuple[str, str], tuple[int, Request | Compaction]],
    names: Mapping[str, int],
) -> None:
    """Replaces the rows of these requests, given by kind and key with their session's number."""
    db.executemany("DELETE FROM requests WHERE kind = ? AND key = ?", list(entries))
    rows = []
    for key, (session, entry) in entries.items():
        if isinstance(entry, Compaction):
            usage, model, is_counted = Usage(cache_read=entry.before_tokens or 0), "", not entry.copied
        else:
            usage, model, is_counted = entry.usage, entry.model, not entry.withdrawn
        if is_counted:
            facts = (session, entry.rail_id, names[entry.source], names[model], index_ms(entry.ts))
            rows.append((*key, *facts, *msgspec.structs.astuple(usage)))
    db.executemany("INSERT INTO requests VALUES(?,?,?,?,?,?,?,?,?,?,?,?,?)", rows)


def holders(db: sqlite3.Connection, turns: str) -> set[int]:
    """The sessions with copies of these turns; `turns` is a JSON array of numbers."""
    messages = db.execute(
        "SELECT n.name, t.message_id FROM turns t JOIN names n ON n.id = t.source "
        "WHERE t.id IN (SELECT value FROM json_each(?))",
        (turns,),
    ).fetchall()
    return {row[0] for row in keyed(db, keys.selecting_copies("f.session"), keys.copy_spans(messages))}


def recompute(db: sqlite3.Connection, sessions: str, numbering: DimensionNumbers) -> tuple[list[Row], list[Row]]:
    """Recomputes these sessions; returns their rows before and after."""
    stated = _stated_usage(db, sessions)
    requests = _requests(db, sessions)
    accounts = _Accounts(db)
    where = "WHERE session IN (SELECT value FROM json_each(?))"
    before = [tuple(row) for row in db.execute(f"SELECT * FROM unlogged {where}", (sessions,)).fetchall()]
    after: list[Row] = []
    for session in stated.keys() | requests.keys():
        usage: list[_Unlogged] = []
        if by_model := stated.get(session):
            account = accounts.of(session, by_model)
            before_it = accounts.inherited(account)
            rest = harness_costs.remaining_cost(db, session, numbering)
            for (source, model), (ts, _) in by_model.items():
                excess_usage = _excess_usage(account.excess_usage[source, model], before_it[model.plain])
                if any(excess_usage.tokens) or excess_usage.searches:
                    terms = with_figure(None, figure_of(rest.pop(model.plain, 0), sum(excess_usage.tokens)))
                    number = numbering.terms(db, [terms])[terms]
                    usage.append(
                        _Unlogged(source, model.id, ts, excess_usage.tokens, excess_usage.searches, terms=number)
                    )
        is_stated = bool(usage)
        usage += [_as_unlogged(db, one) for one in requests[session] if not _is_counted(db, one, is_stated=is_stated)]
        after += _rows(db, session, usage, numbering)
    after.sort()
    db.execute(f"DELETE FROM inherited {where}", (sessions,))
    pairs = [(session, owner) for session in stated for owner in accounts.of(session, stated[session]).owners]
    db.executemany("INSERT INTO inherited VALUES(?,?)", pairs)
    if before != after:
        db.execute(f"DELETE FROM unlogged {where}", (sessions,))
        db.executemany("INSERT INTO unlogged VALUES(?,?,?,?,?,?,?,?,?,?,?,?)", after)
    return before, after


class _RequestRow(NamedTuple):
    kind: str
    session: int
    rail: str
    source: int
    model: int
    ts: int
    tokens: Tokens


class _Unlogged(NamedTuple):
    """Tokens without a turn, and the number of requests of which they are a minimum."""

    source: int
    model: int
    ts: int
    tokens: Tokens
    searches: int = 0
    requests: int = 0
    terms: int = 0


def _requests(db: sqlite3.Connection, sessions: str) -> defaultdict[int, list[_RequestRow]]:
    by_session: defaultdict[int, list[_RequestRow]] = defaultdict(list)
    for kind, session, rail, source, model, ts, *tokens in db.execute(_REQUESTS, (sessions,)).fetchall():
        by_session[session].append(_RequestRow(kind, session, rail, source, model, ts, Tokens(*tokens)))
    return by_session


def _is_counted(db: sqlite3.Connection, request: _RequestRow, *, is_stated: bool) -> bool:
    """Whether a compaction is counted elsewhere: in a log, as an agent's in some releases, or in a running total.

    `is_stated`: the session's running total exceeds its log.
    """
    if request.kind != COMPACTION:
        return False
    sql = (_LOGGED_COMPACTION, *([_IN_STATE] if is_stated else []))
    return any(db.execute(one, (request.session, request.ts)).fetchall() for one in sql)


def _as_unlogged(db: sqlite3.Connection, request: _RequestRow) -> _Unlogged:
    """The request as unlogged usage. A compaction uses the model of the turn before it."""
    model = request.model
    if request.kind == COMPACTION:
        rows = db.execute(_MODEL_BEFORE, (request.session, request.rail, request.ts)).fetchall()
        model = rows[0][0] if rows else model
    return _Unlogged(request.source, model, request.ts, request.tokens, requests=1)


def _rows(db: sqlite3.Connection, session: int, usage: Sequence[_Unlogged], numbering: DimensionNumbers) -> list[Row]:
    summed: dict[tuple[int, int], list[int]] = {}
    place = _place(db, session, numbering) if usage else 0
    for one in usage:
        key = (one.source, one.model, 0, one.terms, 0, 0, 1)
        number = (numbering.classes(db, [key]))[key]
        counts = (*one.tokens, one.searches, one.requests)
        before = summed.get((number, one.ts), [0] * len(counts))
        summed[number, one.ts] = [a + b for a, b in zip(before, counts, strict=True)]
    return [(session, number, ts, place, *counts) for (number, ts), counts in summed.items()]


def with_heirs(db: sqlite3.Connection, sessions: str) -> str:
    """These sessions, and those whose running totals start with theirs."""
    heirs = db.execute(
        "SELECT value FROM json_each(?1) UNION "
        "SELECT session FROM inherited WHERE owner IN (SELECT value FROM json_each(?1))",
        (sessions,),
    ).fetchall()
    return msgspec.json.encode(sorted(row[0] for row in heirs)).decode()


class _UnloggedUsage(NamedTuple):
    """The excess of a session's running total over its log, inherited usage included, and the sessions it inherits
    from.
    """

    excess_usage: dict[SourceAndModel, ModelTotal]
    owners: frozenset[int]


class _Accounts:
    """The accounts of some sessions, each computed once."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db
        self._accounts: dict[int, _UnloggedUsage] = {}

    def of(self, session: int, usage: StatedUsage) -> _UnloggedUsage:
        if session not in self._accounts:
            logged = _logged(self._db, session)
            excess_usage = {key: _excess_usage(stated, logged.used[key[1].plain]) for key, (_, stated) in usage.items()}
            self._accounts[session] = _UnloggedUsage(excess_usage, logged.owners)
        return self._accounts[session]

    def inherited(self, account: _UnloggedUsage) -> defaultdict[str, ModelTotal]:
        """By model, the inherited excess: the maximum, since a fork's contains its parents'."""
        most: defaultdict[str, ModelTotal] = defaultdict(ModelTotal)
        parents = _stated_usage(self._db, msgspec.json.encode(sorted(account.owners)).decode())
        for owner, usage in parents.items():
            for (_, model), excess_usage in self.of(owner, usage).excess_usage.items():
                before = most[model.plain]
                tokens = Tokens(*map(max, before.tokens, excess_usage.tokens))
                most[model.plain] = ModelTotal(tokens, max(before.searches, excess_usage.searches))
        return most


def _excess_usage(stated: ModelTotal, used: ModelTotal) -> ModelTotal:
    return ModelTotal(excess(stated.tokens, used.tokens), max(0, stated.searches - used.searches))


def excess(stated: Tokens, used: Tokens) -> Tokens:
    """The stated minus the logged tokens, at least zero.

    A harness may not distinguish reasoning from output, or cache writes by lifetime: their sums are compared, and the
    excess is divided as far as the parts allow.
    """
    output = max(0, stated.output + stated.reasoning - used.output - used.reasoning)
    reasoning = min(output, max(0, stated.reasoning - used.reasoning))
    writes = max(0, _writes(stated) - _writes(used))
    hour = min(writes, max(0, stated.cache_create_1h - used.cache_create_1h))
    return Tokens(
        input=max(0, stated.input - used.input),
        output=output - reasoning,
        reasoning=reasoning,
        cache_read=max(0, stated.cache_read - used.cache_read),
        cache_create_5m=writes - hour,
        cache_create_1h=hour,
    )


def _writes(tokens: Tokens) -> int:
    return tokens.cache_create_5m + tokens.cache_create_1h


def _stated_usage(db: sqlite3.Connection, sessions: str) -> dict[int, StatedUsage]:
    histories = harness_costs.load(db, msgspec.json.decode(sessions, type=list[int]))
    return {
        session: {
            (source, model): total
            for source, states in history.items()
            for model, total in harness_costs.in_all(states).items()
        }
        for session, history in histories.items()
    }


class _Logged(NamedTuple):
    """Tokens and searches by model, and the sessions that own the copied messages among them."""

    used: defaultdict[str, ModelTotal]
    owners: frozenset[int]


def _logged(db: sqlite3.Connection, session: int) -> _Logged:
    used: defaultdict[str, ModelTotal] = defaultdict(ModelTotal)
    rows = db.execute(_OWN, (session,)).fetchall() + copied(db, session)
    for _, name, searches, *tokens in rows:
        used[plain(name)] = used[plain(name)].plus(ModelTotal(Tokens(*tokens), searches))
    return _Logged(used, frozenset(row[0] for row in rows) - {session})


def _place(db: sqlite3.Connection, session: int, numbering: DimensionNumbers) -> int:
    ((project, key),) = db.execute(
        "SELECT coalesce(project, 0), coalesce(project_key, 0) FROM sessions WHERE id = ?", (session,)
    ).fetchall()
    return numbering.place(db, (project, key))


COMPACTION = "compaction"
_REQUESTS = """
SELECT kind, session, rail, source, model, ts, input, output, reasoning, cache_read, cache_create_5m, cache_create_1h
FROM requests WHERE session IN (SELECT value FROM json_each(?)) ORDER BY kind, key
"""
# The last turn up to a moment, else the first after it.
_MODEL_BEFORE = """
SELECT * FROM (SELECT model FROM turns WHERE session = ?1 AND rail = ?2 AND ts <= ?3
               ORDER BY ts DESC, turn_index DESC, message_id LIMIT 1)
UNION ALL
SELECT * FROM (SELECT model FROM turns WHERE session = ?1 AND rail = ?2 AND ts > ?3
               ORDER BY ts, turn_index DESC, message_id LIMIT 1)
LIMIT 1
"""
_LOGGED_COMPACTION = """
SELECT 1 FROM turns WHERE session = ?1 AND rail GLOB 'acompact-*' AND ts <= ?2 AND ts > (
  SELECT coalesce(max(ts), -1) FROM requests WHERE session = ?1 AND kind = 'compaction' AND ts < ?2) LIMIT 1
"""
_IN_STATE = "SELECT 1 FROM cost_states WHERE session = ?1 AND since <= ?2 AND ts >= ?2 LIMIT 1"
_OWN = f"""
SELECT s.session, n.name, sum(s.searches), {",".join(f"sum(s.{kind})" for kind in KINDS)}
FROM sums s JOIN classes c ON c.id = s.class JOIN names n ON n.id = c.model
WHERE s.session = ? GROUP BY c.model
"""
