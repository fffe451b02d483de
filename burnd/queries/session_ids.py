"""Session ids: finds sessions by id or unique prefix, and the families of sessions."""

from __future__ import annotations

import re
import sqlite3
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Final

from burnd.harness.registry import PRODUCTS
from burnd.queries.view import Mistaken, NoSession, Refusal, Row, View

_SHOWN: Final = 8
_HINT: Final = "burnctl sessions lists them"
# Ids of harnesses, and prefixes of them.
_FORMS: Final = {product.session_ids: None for product in PRODUCTS}
_WHOLE: Final = re.compile("|".join(whole for whole, _ in _FORMS))
_SHORTENED: Final = re.compile("|".join(shortened for _, shortened in _FORMS))


def row_of(view: View, given: str) -> int:
    """The row of the session with this id or unique prefix. Raises Missing or Refusal."""
    if not given:
        raise Mistaken("a session's id must not be empty", _HINT)
    matches = view.rows("SELECT id, session_id FROM sessions WHERE session_id = ?", (given,))
    # A range, since LIKE treats an underscore as any character.
    matches = matches or view.rows(_BEGINNING, (given, given + "\U0010ffff", _SHOWN + 1))
    if not matches:
        raise NoSession(f"no session is or begins with {given[:80]!r}", _HINT)
    if len(matches) > 1:
        raise _ambiguous(given, matches)
    return int(matches[0][0])


def resolve_stamp_sessions(
    db: sqlite3.Connection, names: Iterable[str], *, is_growing: bool = False
) -> dict[str, str | Refusal | None]:
    """Resolves the ids or unique prefixes that stamps name.

    A stamp may come before its session: an id that no session begins with belongs to a future session, unless it looks
    like a shortened id of a harness; then None. Refusal if several sessions match. With `is_growing`, old logs are
    still being read and may add matches, so a shortened id of a harness is None too.
    """
    return {name: _resolve(db, name, is_growing=is_growing) for name in names}


def _resolve(db: sqlite3.Connection, given: str, *, is_growing: bool) -> str | Refusal | None:
    if _WHOLE.fullmatch(given) or db.execute(_EXACT, (given,)).fetchone() is not None:
        return given
    matches = db.execute(_BEGINNING, (given, given + "\U0010ffff", _SHOWN + 1)).fetchall()
    if len(matches) > 1:
        return _ambiguous(given, matches)
    is_shortened = _SHORTENED.fullmatch(given) is not None
    if matches and not (is_growing and is_shortened):
        return str(matches[0][1])
    return None if is_shortened else given


def no_such_session(given: str) -> str:
    """The error for a stamp whose session is given by a prefix that no session has."""
    return f"no session begins with {given[:80]!r}, and it is too short for the id of a session to come"


def _ambiguous(given: str, matches: Sequence[Row]) -> Refusal:
    ids = ", ".join(session_id for _, session_id in matches[:_SHOWN]) + (", ..." if len(matches) > _SHOWN else "")
    return Refusal(f"more than one session begins with {given[:80]!r}", f"give a longer prefix: {ids}")


def short_ids(view: View, session_ids: Iterable[str]) -> dict[str, str]:
    """The shortest unique prefix of each id, by comparison with its neighbours in order."""
    rows = view.keyed(_NEIGHBOURS, [(session_id,) for session_id in session_ids])
    return {own: own[: 1 + max(_common_prefix(own, before), _common_prefix(own, after))] for own, before, after in rows}


def _common_prefix(one: str, other: str) -> int:
    """The length of the common prefix."""
    for number, (char, of_other) in enumerate(zip(one, other, strict=False)):
        if char != of_other:
            return number
    return min(len(one), len(other))


# Condition on a row `s` of sessions: excludes logs that only have summaries of other sessions' lines.
IS_A_SESSION = """
(s.kept_count + s.pruned_count + s.said_count > 0 OR s.created_by IS NOT NULL OR s.title IS NOT NULL
 OR EXISTS (SELECT 1 FROM turns t WHERE t.session = s.id)
 OR EXISTS (SELECT 1 FROM facts f WHERE f.session = s.id AND f.kind IN ('copy', 'event', 'compaction'))
 OR EXISTS (SELECT 1 FROM messages m WHERE m.session = s.id))
"""
_EXACT = f"SELECT 1 FROM sessions s WHERE {IS_A_SESSION} AND s.session_id = ?"
_BEGINNING = f"""
SELECT s.id, s.session_id FROM sessions s
WHERE {IS_A_SESSION} AND s.session_id >= ? AND s.session_id < ? ORDER BY 2 LIMIT ?
"""
_NEIGHBOURS = """
WITH wanted(own) AS ({keys})
SELECT own, coalesce((SELECT max(session_id) FROM sessions WHERE session_id < own), ''),
       coalesce((SELECT min(session_id) FROM sessions WHERE session_id > own), '') FROM wanted
"""


def below(view: View, sessions: Iterable[int]) -> dict[int, str]:
    """These sessions and all their descendants: ids by row."""
    return dict(view.keyed(_BELOW, [(session,) for session in sessions]))


def by_root(view: View, sessions: Iterable[int]) -> dict[int, tuple[int, ...]]:
    """The members of the families of these sessions, by root. A cycle of parents, possible only by damage, is cut."""
    parents: dict[int, int] = dict(view.rows(_PARENTS))
    roots: dict[int, int] = {}

    def root_of(session: int) -> int:
        line = [session]
        while (above := parents.get(line[-1])) is not None and above not in line and line[-1] not in roots:
            line.append(above)
        top = roots.get(line[-1], line[-1] if parents.get(line[-1]) is None else min(line))
        roots.update(dict.fromkeys(line, top))
        return top

    tops = {root_of(session) for session in sessions}
    members: defaultdict[int, set[int]] = defaultdict(set)
    for session in (*parents, *sessions):
        if (root := root_of(session)) in tops:
            members[root].add(session)
    return {root: (root, *sorted(members[root] - {root})) for root in sorted(tops)}


_BELOW = """
WITH RECURSIVE family(id, session_id) AS (
  SELECT id, session_id FROM sessions WHERE id IN ({keys})
  UNION SELECT s.id, s.session_id FROM family f JOIN sessions s ON s.parent_session_id = f.session_id
) SELECT id, session_id FROM family
"""
_PARENTS = """
SELECT c.id, p.id FROM sessions c JOIN sessions p ON p.session_id = c.parent_session_id
WHERE c.parent_session_id IS NOT NULL
"""
