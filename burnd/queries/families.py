"""A session with all that it started, and what those started in turn."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from burnd.queries.view import View


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
