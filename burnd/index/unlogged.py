"""Works out what a harness used beyond what it logged: what it says of a session, less its turns and its copies.

What it says of a fork begins with all that the session used which it was made from, and so with that one's overhead,
which counts once. Where the log marks copies as forked, it begins at nothing: these copies are no part of it.
"""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from burnd.index import copies
from burnd.index.dimensions import Numbering
from burnd.index.grains import WHOLE_SESSION
from burnd.index.store import keyed
from burnd.pricing import Tokens
from burnd.records import Overhead
from burnd.records.times import to_ms

Row = tuple[Any, ...]
Named = tuple[int, int, str]  # a source, a model, and that model's name
Said = dict[Named, tuple[int, Tokens]]
_LONG_CONTEXT = "[1m]"  # the same model; a log names it with and without


def write(db: sqlite3.Connection, said: Sequence[tuple[int, int, Overhead]], names: dict[str, int]) -> None:
    """Keeps the newest word of each (session, source)."""
    if not said:
        return
    db.executemany(
        "DELETE FROM overheads WHERE session = ? AND source = ?", [(session, source) for session, source, _ in said]
    )
    rows = [
        (session, source, names[model], to_ms(overhead.ts), *msgspec.structs.astuple(usage))
        for session, source, overhead in said
        for model, usage in overhead.models.items()
    ]
    db.executemany("INSERT OR REPLACE INTO overheads VALUES(?,?,?,?,?,?,?,?,?,?)", rows)


def holders(db: sqlite3.Connection, turns: str) -> set[int]:
    """The sessions that hold copies of these turns; `turns` is a JSON array of numbers."""
    found = db.execute(
        "SELECT n.name, t.message_id FROM turns t JOIN names n ON n.id = t.source "
        "WHERE t.id IN (SELECT value FROM json_each(?)) AND EXISTS (SELECT 1 FROM overheads)",
        (turns,),
    ).fetchall()
    return {row[0] for row in keyed(db, copies.selecting("f.session"), copies.spans(found))}


def renewed(db: sqlite3.Connection, sessions: str, numbering: Numbering) -> tuple[list[Row], list[Row]]:
    """Works these sessions out again; returns the rows that stood before and those that stand now."""
    said = _said(db, sessions)
    heard = _Accounts(db)
    where = "WHERE session IN (SELECT value FROM json_each(?))"
    before = [tuple(row) for row in db.execute(f"SELECT * FROM unlogged {where}", (sessions,)).fetchall()]
    after: list[Row] = []
    for session, by_model in said.items():
        account = heard.of(session, by_model)
        before_it = heard.inherited(account)
        place = _place(db, session, numbering)
        for (source, model, name), (ts, _) in by_model.items():
            beyond = excess(account.beyond[source, model, name], before_it[_plain(name)])
            if any(beyond):
                key = (source, model, 0, 0, 0, 0, 1)
                number = (numbering.classes(db, [key]))[key]
                after.append((session, number, ts, place, *beyond))
    after.sort()
    db.execute(f"DELETE FROM inherited {where}", (sessions,))
    pairs = [(session, owner) for session in said for owner in heard.of(session, said[session]).owners]
    db.executemany("INSERT INTO inherited VALUES(?,?)", pairs)
    if before != after:
        db.execute(f"DELETE FROM unlogged {where}", (sessions,))
        db.executemany("INSERT INTO unlogged VALUES(?,?,?,?,?,?,?,?,?,?)", after)
    return before, after


def with_heirs(db: sqlite3.Connection, sessions: str) -> str:
    """These sessions, and those whose figures begin with theirs."""
    heirs = db.execute(
        "SELECT value FROM json_each(?1) UNION "
        "SELECT session FROM inherited WHERE owner IN (SELECT value FROM json_each(?1))",
        (sessions,),
    ).fetchall()
    return msgspec.json.encode(sorted(row[0] for row in heirs)).decode()


class _Account(NamedTuple):
    """What was said of a session beyond its log, what came with its past included, and who owns that past."""

    beyond: dict[Named, Tokens]
    owners: frozenset[int]


class _Accounts:
    """The accounts of some sessions, each made once."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db
        self._made: dict[int, _Account] = {}

    def of(self, session: int, said: Said) -> _Account:
        if session not in self._made:
            logged = _logged(self._db, session)
            beyond = {named: excess(tokens, logged.used[_plain(named[2])]) for named, (_, tokens) in said.items()}
            self._made[session] = _Account(beyond, logged.owners)
        return self._made[session]

    def inherited(self, account: _Account) -> defaultdict[str, Tokens]:
        """By model, the overhead that its past came with: that of a fork holds its parents' already, so not the sum."""
        most: defaultdict[str, Tokens] = defaultdict(Tokens)
        parents = _said(self._db, msgspec.json.encode(sorted(account.owners)).decode())
        for owner, said in parents.items():
            for (_, _, name), beyond in self.of(owner, said).beyond.items():
                most[_plain(name)] = Tokens(*map(max, most[_plain(name)], beyond))
        return most


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
    rows = db.execute(
        "SELECT o.session, o.source, o.model, n.name, o.ts, o.input, o.output, o.reasoning, o.cache_read, "
        "o.cache_create_5m, o.cache_create_1h FROM overheads o JOIN names n ON n.id = o.model "
        "WHERE o.session IN (SELECT value FROM json_each(?)) ORDER BY o.session, o.source, o.model",
        (sessions,),
    ).fetchall()
    said: defaultdict[int, Said] = defaultdict(dict)
    for session, source, model, name, ts, *tokens in rows:
        said[session][source, model, name] = (ts, Tokens(*tokens))
    return said


class _Logged(NamedTuple):
    """Tokens by model, and the sessions that own what is copied of them."""

    used: defaultdict[str, Tokens]
    owners: frozenset[int]


def _logged(db: sqlite3.Connection, session: int) -> _Logged:
    """The tokens of a session's own turns and of the messages it holds copies of."""
    used: defaultdict[str, Tokens] = defaultdict(Tokens)
    found = db.execute(_OWN, (session,)).fetchall() + _copied(db, session)
    for _, name, *tokens in found:
        used[_plain(name)] = Tokens(*(a + b for a, b in zip(used[_plain(name)], tokens, strict=True)))
    return _Logged(used, frozenset(row[0] for row in found) - {session})


def _copied(db: sqlite3.Connection, session: int) -> list[Row]:
    sql = "SELECT key FROM facts WHERE session = ? AND kind = 'copy' AND NOT forked"
    facts = db.execute(sql, (session,)).fetchall()
    messages = {copies.holding(row[0])[0] for row in facts}
    return keyed(db, _COPIED, [(*message, session) for message in sorted(messages)])


def _place(db: sqlite3.Connection, session: int, numbering: Numbering) -> int:
    ((project, key),) = db.execute(
        "SELECT coalesce(project, 0), coalesce(project_key, 0) FROM sessions WHERE id = ?", (session,)
    ).fetchall()
    return numbering.place(db, (project, key))


def _plain(model: str) -> str:
    return model.removesuffix(_LONG_CONTEXT)


_KINDS = ("input", "output", "reasoning", "cache_read", "cache_create_5m", "cache_create_1h")
_OWN = f"""
SELECT s.session, n.name, {",".join(f"sum(s.{kind})" for kind in _KINDS)}
FROM session_sums s JOIN classes c ON c.id = s.class JOIN names n ON n.id = c.model
WHERE s.grain = {WHOLE_SESSION} AND s.session = ? AND c.unlogged = 0 GROUP BY c.model
"""
_COPIED = f"""
WITH w(source, message_id, holder) AS ({{keys}})
SELECT t.session, m.name, {",".join(f"t.{kind}" for kind in _KINDS)} FROM w
CROSS JOIN names n ON n.name = w.source
CROSS JOIN turns t ON t.source = n.id AND t.message_id = w.message_id AND t.session <> w.holder
JOIN names m ON m.id = t.model
"""
