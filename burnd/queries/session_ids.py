"""Sessions by their ids, found by as much of the beginning as is enough; and all that sessions started."""

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
    """The row of the session with this id, or of the only one whose id begins so. Raises Missing or Refusal."""
    if not given:
        raise Mistaken("a session's id must not be empty", _HINT)
    found = view.rows("SELECT id, session_id FROM sessions WHERE session_id = ?", (given,))
    # A prefix as a range: LIKE would take an underscore for any character.
    found = found or view.rows(_BEGINNING, (given, given + "\U0010ffff", _SHOWN + 1))
    if not found:
        raise NoSession(f"no session is or begins with {given[:80]!r}", _HINT)
    if len(found) > 1:
        raise _ambiguous(given, found)
    return int(found[0][0])


def stamped_sessions(
    db: sqlite3.Connection, names: Iterable[str], *, is_growing: bool = False
) -> dict[str, str | Refusal | None]:
    """The sessions that stamps name by an id, or by as much of its beginning as no other session shares.

    A stamp may come before its session: an id that no session begins with is that of a session to come, unless it
    reads like the beginning of a harness's id. Then None. A Refusal where several sessions begin so. With `is_growing`,
    old logs add sessions that may share a beginning, so a shortened id of a harness is None too.
    """
    return {given: _stamped_session(db, given, is_growing=is_growing) for given in names}


def _stamped_session(db: sqlite3.Connection, given: str, *, is_growing: bool) -> str | Refusal | None:
    if _WHOLE.fullmatch(given) or db.execute(_EXACT, (given,)).fetchone() is not None:
        return given
    found = db.execute(_BEGINNING, (given, given + "\U0010ffff", _SHOWN + 1)).fetchall()
    if len(found) > 1:
        return _ambiguous(given, found)
    is_shortened = _SHORTENED.fullmatch(given) is not None
    if found and not (is_growing and is_shortened):
        return str(found[0][1])
    return None if is_shortened else given


def no_such_session(given: str) -> str:
    """Why a stamp is refused whose session is named by the beginning of an id that no session has."""
    return f"no session begins with {given[:80]!r}, and it is too short for the id of a session to come"


def _ambiguous(given: str, found: Sequence[Row]) -> Refusal:
    shown = ", ".join(session_id for _, session_id in found[:_SHOWN]) + (", ..." if len(found) > _SHOWN else "")
    return Refusal(f"more than one session begins with {given[:80]!r}", f"say more of it: {shown}")


def short_ids(view: View, session_ids: Iterable[str]) -> dict[str, str]:
    """As much of the beginning of each id as no other session shares: its neighbours in the alphabet share most."""
    found = view.keyed(_NEIGHBOURS, [(session_id,) for session_id in session_ids])
    return {own: own[: 1 + max(_alike(own, before), _alike(own, after))] for own, before, after in found}


def _alike(one: str, other: str) -> int:
    """How many characters two ids begin alike."""
    for number, (char, of_other) in enumerate(zip(one, other, strict=False)):
        if char != of_other:
            return number
    return min(len(one), len(other))


# Of a row `s` of sessions: not one whose log only holds summaries of other sessions' lines.
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
    """These sessions and all that they or their children started: ids by rows."""
    return dict(view.keyed(_BELOW, [(session,) for session in sessions]))


def by_root(view: View, sessions: Iterable[int]) -> dict[int, tuple[int, ...]]:
    """All members of the families of these sessions, by their roots. A circle of parents, which only damage could
    make, is cut somewhere."""
    parents: dict[int, int] = dict(view.rows(_PARENTS))
    roots: dict[int, int] = {}

    def root_of(session: int) -> int:
        line = [session]
        while (above := parents.get(line[-1])) is not None and above not in line and line[-1] not in roots:
            line.append(above)
        top = roots.get(line[-1], line[-1] if parents.get(line[-1]) is None else min(line))
        roots.update(dict.fromkeys(line, top))
        return top

    wanted = {root_of(session) for session in sessions}
    members: defaultdict[int, set[int]] = defaultdict(set)
    for session in (*parents, *sessions):
        if (root := root_of(session)) in wanted:
            members[root].add(session)
    return {root: (root, *sorted(members[root] - {root})) for root in sorted(wanted)}


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
