"""Computes unlogged usage of a session: its harness's running total minus its turns and copies.

What it says of a fork begins with all that the session used which it was made from, and so with that one's overhead,
which counts once. Where the log marks copies as forked, it begins at nothing: these copies are no part of it.

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
from burnd.index.dimensions import Numbering
from burnd.index.harness_costs import KINDS, Model, Stated, copied, plain
from burnd.index.store import keyed
from burnd.pricing import Tokens
from burnd.pricing.terms import figure_of, with_figure
from burnd.records import Compaction, Request, Usage
from burnd.records.times import index_ms

Row = tuple[Any, ...]
Named = tuple[int, Model]  # a source and a model
Said = dict[Named, tuple[int, Stated]]  # with the time of its newest running total


def write_requests(
    db: sqlite3.Connection,
    entries: Mapping[tuple[str, str], tuple[int, Request | Compaction]],
    names: Mapping[str, int],
) -> None:
    """Replace the rows of these requests, given by kind and key with their session's number."""
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
    """The sessions that hold copies of these turns; `turns` is a JSON array of numbers."""
    found = db.execute(
        "SELECT n.name, t.message_id FROM turns t JOIN names n ON n.id = t.source "
        "WHERE t.id IN (SELECT value FROM json_each(?)) AND EXISTS (SELECT 1 FROM cost_states)",
        (turns,),
    ).fetchall()
    return {row[0] for row in keyed(db, keys.selecting_copies("f.session"), keys.copy_spans(found))}


def renewed(db: sqlite3.Connection, sessions: str, numbering: Numbering) -> tuple[list[Row], list[Row]]:
    """Works these sessions out again; returns the rows that stood before and those that stand now."""
    said = _said(db, sessions)
    requests = _requests(db, sessions)
    heard = _Accounts(db)
    where = "WHERE session IN (SELECT value FROM json_each(?))"
    before = [tuple(row) for row in db.execute(f"SELECT * FROM unlogged {where}", (sessions,)).fetchall()]
    after: list[Row] = []
    for session in said.keys() | requests.keys():
        found: list[_Unlogged] = []
        if by_model := said.get(session):
            account = heard.of(session, by_model)
            before_it = heard.inherited(account)
            left = harness_costs.left_over(db, session, numbering)
            for (source, model), (ts, _) in by_model.items():
                beyond = _beyond(account.beyond[source, model], before_it[model.plain])
                if any(beyond.tokens) or beyond.searches:
                    terms = with_figure(None, figure_of(left.pop(model.plain, 0), sum(beyond.tokens)))
                    number = numbering.terms(db, [terms])[terms]
                    found.append(_Unlogged(source, model.id, ts, beyond.tokens, beyond.searches, terms=number))
        is_stated = bool(found)
        found += [_as_unlogged(db, one) for one in requests[session] if not _is_known(db, one, is_stated=is_stated)]
        after += _rows(db, session, found, numbering)
    after.sort()
    db.execute(f"DELETE FROM inherited {where}", (sessions,))
    pairs = [(session, owner) for session in said for owner in heard.of(session, said[session]).owners]
    db.executemany("INSERT INTO inherited VALUES(?,?)", pairs)
    if before != after:
        db.execute(f"DELETE FROM unlogged {where}", (sessions,))
        db.executemany("INSERT INTO unlogged VALUES(?,?,?,?,?,?,?,?,?,?,?,?)", after)
    return before, after


class _RequestRow(NamedTuple):
    """A row of `requests`."""

    kind: str
    session: int
    rail: str
    source: int
    model: int
    ts: int
    tokens: Tokens


class _Unlogged(NamedTuple):
    """Tokens that no turn accounts for, and how many requests they are a lower bound of."""

    source: int
    model: int
    ts: int
    tokens: Tokens
    searches: int = 0
    requests: int = 0
    terms: int = 0


def _requests(db: sqlite3.Connection, sessions: str) -> defaultdict[int, list[_RequestRow]]:
    found: defaultdict[int, list[_RequestRow]] = defaultdict(list)
    for kind, session, rail, source, model, ts, *tokens in db.execute(_REQUESTS, (sessions,)).fetchall():
        found[session].append(_RequestRow(kind, session, rail, source, model, ts, Tokens(*tokens)))
    return found


def _is_known(db: sqlite3.Connection, request: _RequestRow, *, is_stated: bool) -> bool:
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


def _rows(db: sqlite3.Connection, session: int, found: Sequence[_Unlogged], numbering: Numbering) -> list[Row]:
    summed: dict[tuple[int, int], list[int]] = {}
    place = _place(db, session, numbering) if found else 0
    for one in found:
        key = (one.source, one.model, 0, one.terms, 0, 0, 1)
        number = (numbering.classes(db, [key]))[key]
        counts = (*one.tokens, one.searches, one.requests)
        before = summed.get((number, one.ts), [0] * len(counts))
        summed[number, one.ts] = [a + b for a, b in zip(before, counts, strict=True)]
    return [(session, number, ts, place, *counts) for (number, ts), counts in summed.items()]


def with_heirs(db: sqlite3.Connection, sessions: str) -> str:
    """These sessions, and those whose figures begin with theirs."""
    heirs = db.execute(
        "SELECT value FROM json_each(?1) UNION "
        "SELECT session FROM inherited WHERE owner IN (SELECT value FROM json_each(?1))",
        (sessions,),
    ).fetchall()
    return msgspec.json.encode(sorted(row[0] for row in heirs)).decode()


class _UnloggedUsage(NamedTuple):
    """What was said of a session beyond its log, what came with its past included, and who owns that past."""

    beyond: dict[Named, Stated]
    owners: frozenset[int]


class _Accounts:
    """The accounts of some sessions, each made once."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db
        self._made: dict[int, _UnloggedUsage] = {}

    def of(self, session: int, said: Said) -> _UnloggedUsage:
        if session not in self._made:
            logged = _logged(self._db, session)
            beyond = {named: _beyond(stated, logged.used[named[1].plain]) for named, (_, stated) in said.items()}
            self._made[session] = _UnloggedUsage(beyond, logged.owners)
        return self._made[session]

    def inherited(self, account: _UnloggedUsage) -> defaultdict[str, Stated]:
        """By model, the overhead that its past came with: that of a fork holds its parents' already, so not the sum."""
        most: defaultdict[str, Stated] = defaultdict(Stated)
        parents = _said(self._db, msgspec.json.encode(sorted(account.owners)).decode())
        for owner, said in parents.items():
            for (_, model), beyond in self.of(owner, said).beyond.items():
                before = most[model.plain]
                tokens = Tokens(*map(max, before.tokens, beyond.tokens))
                most[model.plain] = Stated(tokens, max(before.searches, beyond.searches))
        return most


def _beyond(stated: Stated, used: Stated) -> Stated:
    return Stated(excess(stated.tokens, used.tokens), max(0, stated.searches - used.searches))


def excess(said: Tokens, used: Tokens) -> Tokens:
    """What was said beyond what was used, never less than nothing.

    A harness may not tell reasoning from other output, nor writes for an hour from those for five minutes: their sums
    are compared, and what is over is shared out as far as the parts allow.
    """
    output = max(0, said.output + said.reasoning - used.output - used.reasoning)
    reasoning = min(output, max(0, said.reasoning - used.reasoning))
    writes = max(0, _writes(said) - _writes(used))
    hour = min(writes, max(0, said.cache_create_1h - used.cache_create_1h))
    return Tokens(
        input=max(0, said.input - used.input),
        output=output - reasoning,
        reasoning=reasoning,
        cache_read=max(0, said.cache_read - used.cache_read),
        cache_create_5m=writes - hour,
        cache_create_1h=hour,
    )


def _writes(tokens: Tokens) -> int:
    return tokens.cache_create_5m + tokens.cache_create_1h


def _said(db: sqlite3.Connection, sessions: str) -> dict[int, Said]:
    histories = harness_costs.load(db, msgspec.json.decode(sessions, type=list[int]))
    return {
        session: {
            (source, model): said
            for source, states in history.items()
            for model, said in harness_costs.in_all(states).items()
        }
        for session, history in histories.items()
    }


class _Logged(NamedTuple):
    """Tokens and searches by model, and the sessions that own the copied messages among them."""

    used: defaultdict[str, Stated]
    owners: frozenset[int]


def _logged(db: sqlite3.Connection, session: int) -> _Logged:
    """The usage of a session's own turns and of the messages it copied."""
    used: defaultdict[str, Stated] = defaultdict(Stated)
    found = db.execute(_OWN, (session,)).fetchall() + copied(db, session)
    for _, name, searches, *tokens in found:
        used[plain(name)] = used[plain(name)].plus(Stated(Tokens(*tokens), searches))
    return _Logged(used, frozenset(row[0] for row in found) - {session})


def _place(db: sqlite3.Connection, session: int, numbering: Numbering) -> int:
    ((project, key),) = db.execute(
        "SELECT coalesce(project, 0), coalesce(project_key, 0) FROM sessions WHERE id = ?", (session,)
    ).fetchall()
    return numbering.place(db, (project, key))


COMPACTION = "compaction"
_REQUESTS = """
SELECT kind, session, rail, source, model, ts, input, output, reasoning, cache_read, cache_create_5m, cache_create_1h
FROM requests WHERE session IN (SELECT value FROM json_each(?)) ORDER BY kind, key
"""
_MODEL_BEFORE = """
SELECT model FROM turns WHERE session = ?1 AND rail = ?2
ORDER BY ts > ?3, abs(ts - ?3), turn_index DESC, message_id LIMIT 1
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
