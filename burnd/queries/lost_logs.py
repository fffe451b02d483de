"""Sessions whose logs are gone, by the events that `burnd.lost_logs` records."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from burnd.queries.view import View
from burnd.records.content import MAIN
from burnd.records.times import to_iso

GONE: Final = "log_gone"
CLEANED: Final = "log_cleaned"  # at an age at which the harness deletes it
BACK: Final = "log_back"
_REASONS: Final = {GONE: "unknown", CLEANED: "clean-up"}


class LoggedSession(NamedTuple):
    """A session that has own responses, and the newest event about its log."""

    session_id: str
    updated_ms: int
    event: str | None
    event_ms: int | None


def logged_sessions(view: View, source: str) -> list[LoggedSession]:
    return [LoggedSession(*row) for row in view.rows(_SESSIONS, (source,))]


def gone_sessions(view: View) -> dict[int, dict[str, Any]]:
    """The sessions whose logs are gone, by row: when that was noticed, and the reason if it is known."""
    rows = view.rows(f"SELECT session, ts, name FROM ({_EVENTS}) WHERE name <> '{BACK}'")
    return {session: {"goneAt": to_iso(ts), "goneBy": _REASONS[name]} for session, ts, name in rows}


_EVENTS: Final = f"""
SELECT f.session, max(f.ts) AS ts, n.name FROM names n
CROSS JOIN facts f ON f.kind = 'event' AND f.name = n.id
WHERE n.name IN ('{GONE}', '{CLEANED}', '{BACK}') GROUP BY f.session
"""
_SESSIONS: Final = f"""
SELECT s.session_id, coalesce(s.updated_at, 0), e.name, e.ts FROM sessions s
LEFT JOIN ({_EVENTS}) e ON e.session = s.id
WHERE s.source = (SELECT id FROM names WHERE name = ?)
  AND EXISTS (SELECT 1 FROM turns t WHERE t.session = s.id AND t.rail = '{MAIN}')
"""
