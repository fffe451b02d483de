"""Locates stored content: the records of a page, and the sessions to forget."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

from burnd.queries import families, projects
from burnd.queries.view import Missing, NoSession, View

Kept = Literal["yes", "pruned", "no"]


class Page(NamedTuple):
    """The positions of records in their sidecar, the number of all records, and whether content is stored."""

    places: list[tuple[int, int]]
    total: int
    kept: Kept


def page(view: View, session_id: str, message_id: str | None, offset: int, limit: int) -> Page:
    """The newest line of each record, in the order of the rails. Raises Missing."""
    found = view.rows("SELECT id, pruned_up_to IS NOT NULL FROM sessions WHERE session_id = ?", (session_id,))
    if not found:
        raise NoSession(f"there is no session {session_id[:100]!r}")
    ((session, was_pruned),) = found
    rows = view.rows(_RECORDS, (session, message_id, limit, offset))
    ((total,),) = view.rows(_HOW_MANY, (session, message_id))
    if total == 0 and message_id is not None and not _has_turn(view, session, message_id):
        raise Missing(f"there is no message {message_id[:100]!r} in this session")
    kept: Kept = "yes" if total else "pruned" if was_pruned else "no"
    return Page([(position, length) for position, length in rows], total, kept)


def _has_turn(view: View, session: int, message_id: str) -> bool:
    return bool(view.rows("SELECT 1 FROM turns WHERE session = ? AND message_id = ?", (session, message_id)))


def family(view: View, session_id: str) -> set[str]:
    """A session and all sessions that it or its children started. Raises Missing."""
    if not (found := view.rows("SELECT id FROM sessions WHERE session_id = ?", (session_id,))):
        raise NoSession(f"there is no session {session_id[:100]!r}")
    return set(families.below(view, [found[0][0]]).values())


def of_project(view: View, project: str) -> set[str]:
    """The sessions of a project, with all sessions that they or their children started. Raises Missing or Refusal."""
    found = projects.sessions(view, project)
    if not found:
        raise Missing(f"there is no session of project {project[:200]!r}")
    return set(families.below(view, found).values())


def summaries(view: View, session_ids: Sequence[str]) -> list[dict[str, Any]]:
    """Facts by which a user recognises sessions."""
    names = ("sessionId", "source", "project", "messages", "bytes")
    found = view.keyed(_SUMMARIES, [(session_id,) for session_id in session_ids])
    return [dict(zip(names, row, strict=True)) for row in sorted(found)]


_NEWEST = """
FROM messages WHERE session = ?1 AND (?2 IS NULL OR message_id = ?2) GROUP BY rail, msg_idx, message_id, n, b
"""
_RECORDS = f"""
SELECT max(position), length {_NEWEST} ORDER BY rail, msg_idx, message_id, n, b LIMIT ?3 OFFSET ?4
"""
_HOW_MANY = f"SELECT count(*) FROM (SELECT 1 {_NEWEST})"
_SUMMARIES = """
WITH wanted(session_id) AS ({keys})
SELECT s.session_id, n.name, p.name, s.kept_count, s.content_bytes FROM wanted w
JOIN sessions s ON s.session_id = w.session_id
LEFT JOIN names n ON n.id = s.source LEFT JOIN names p ON p.id = s.project
"""
