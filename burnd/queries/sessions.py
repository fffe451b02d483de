"""Which sessions there are, and what is known of one: rows of facts, never what was said."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from burnd.contract.sessions import MOST_SESSIONS, ListParams, MetaParams
from burnd.queries import names
from burnd.queries.names import check_source
from burnd.queries.periods import moment, zone_of
from burnd.queries.selection import Selection
from burnd.queries.session_ids import IS_A_SESSION, row_of, short_ids
from burnd.queries.spending import Spending
from burnd.queries.sums import By, Reader
from burnd.queries.tally import Tally, kinds_of, tallied
from burnd.queries.view import Refusal, View
from burnd.records.content import MAIN, NO_RAIL
from burnd.records.times import to_iso, to_ms

_SUMMARY_LISTED: Final = 500  # characters
_NAMES: Final = (
    "sessionId",
    "source",
    "parentSessionId",
    "project",
    "projectKey",
    "agent",
    "createdBy",
    "title",
    "summary",
    "createdAt",
    "updatedAt",
    "messageCount",
    "contentMode",
    "content",
)


class Known(NamedTuple):
    """A session, its row in the index, and what is known of it."""

    row: int
    session_id: str
    columns: tuple[Any, ...]

    @property
    def facts(self) -> dict[str, Any]:
        """What is known of it as answers show it."""
        return shown(self.columns)


def list_sessions(view: View, params: ListParams) -> dict[str, Any]:
    """A page of sessions. Left out are those that only hold summaries of other sessions' lines."""
    limit = min(max(params.limit, 1), MOST_SESSIONS)
    conditions, values = _conditions(view, params)
    if params.next is not None:
        conditions.append("(coalesce(s.updated_at, 0), s.session_id) < (?, ?)")
        values += _place(params.next)
    where = " AND ".join([IS_A_SESSION, *conditions])
    order = "ORDER BY coalesce(s.updated_at, 0) DESC, s.session_id DESC LIMIT ?"
    rows = view.rows(f"SELECT s.id, {_COLUMNS} WHERE {where} {order}", [*values, limit + 1])
    page = [_briefly(shown(row[1:])) for row in rows[:limit]]
    enough = short_ids(view, [session["sessionId"] for session in page])
    page = [session | {"shortId": enough[session["sessionId"]]} for session in page]
    if params.costs:
        spent = _spent(view, [row[0] for row in rows[:limit]])
        for session, row in zip(page, rows, strict=False):
            session |= spent.get(row[0], Tally()).answer()
    answer: dict[str, Any] = {"sessions": page}
    if len(rows) > limit:
        last = page[-1]
        answer["next"] = f"{to_ms(last['updatedAt']) if last['updatedAt'] else 0}.{last['sessionId']}"
    return answer


def meta(view: View, params: MetaParams) -> dict[str, Any]:
    """All that is known of one session: its rails, what it started, what it has spent with them."""
    known = find(view, params.id)
    children = view.rows("SELECT session_id FROM sessions WHERE parent_session_id = ? ORDER BY 1", (known.session_id,))
    return {
        **known.facts,
        "rails": rails(view, known.row),
        "children": [child for (child,) in children],
        **Spending(view).of_session(known.session_id).answer(),
    }


def find(view: View, given: str) -> Known:
    """The session with this id, or the only one whose id begins so. Raises Missing or Refusal."""
    ((row, *columns),) = view.rows(f"SELECT s.id, {_COLUMNS} WHERE s.id = ?", (row_of(view, given),))
    return Known(row, columns[0], tuple(columns))


def exactly(view: View, session_id: str) -> Known | None:
    """The session with this very id."""
    return known_of(view, [session_id]).get(session_id)


def known_of(view: View, session_ids: Iterable[str]) -> dict[str, Known]:
    """The sessions with these very ids, as far as there are any."""
    keys = [(session_id,) for session_id in session_ids]
    rows = view.keyed(f"SELECT s.id, {_COLUMNS} WHERE s.session_id IN ({{keys}})", keys)
    return {row[1]: Known(row[0], row[1], row[1:]) for row in rows}


def shown(row: tuple[Any, ...]) -> dict[str, Any]:
    """A row of `_COLUMNS` as answers show it."""
    found = dict(zip(_NAMES, row, strict=True))
    for name in ("createdAt", "updatedAt"):
        found[name] = to_iso(found[name]) if found[name] is not None else None
    return found


def _briefly(facts: dict[str, Any]) -> dict[str, Any]:
    """For a list: a summary may be long, and there may be many."""
    summary = facts["summary"]
    is_long = summary is not None and len(summary) > _SUMMARY_LISTED
    return facts | {"summary": f"{summary[:_SUMMARY_LISTED]}\u2026"} if is_long else facts


def rails(view: View, session: int) -> list[dict[str, Any]]:
    """The conversations of a session, the main one first, with how many messages are kept of each."""
    found = view.rows(
        "SELECT rail, max(msg_idx) + 1 FROM messages WHERE session = ? AND rail <> ? GROUP BY rail", (session, NO_RAIL)
    )
    found.sort(key=lambda row: (row[0] != MAIN, row[0]))
    return [{"railId": rail, "messages": count} for rail, count in found]


def times(
    view: View, since: int | str | None, until: int | str | None, tz: int | str | None
) -> tuple[int | None, int | None]:
    """From when and until when, in milliseconds since 1970. Raises Refusal."""
    zone = zone_of(tz)
    begin = moment(since, view.now, zone) if since is not None else None
    end = moment(until, view.now, zone, is_end=True) if until is not None else None
    return begin, end


def _conditions(view: View, params: ListParams) -> tuple[list[str], list[Any]]:
    since, until = times(view, params.since, params.until, params.tz)
    if params.source is not None:
        check_source(view, params.source)
    parent = find(view, params.parent).session_id if params.parent is not None else None
    wanted = (
        ("s.source = (SELECT id FROM names WHERE name = ?)", params.source),
        ("s.updated_at >= ?", since),
        ("s.created_at < ?", until),
        ("s.agent = ?", params.agent),
        ("s.parent_session_id = ?", parent),
    )
    conditions = [sql for sql, value in wanted if value is not None]
    if params.project is not None:
        conditions.append(f"s.id IN ({','.join(map(str, sorted(names.sessions(view, params.project))))})")
    return conditions, [value for _, value in wanted if value is not None]


def _spent(view: View, sessions: Iterable[int]) -> dict[int, Tally]:
    """What each of these sessions itself has spent."""
    kinds = kinds_of(view)
    rows = Reader(view, Selection(sessions=frozenset(sessions)), kinds).read(By(("session",)))
    return tallied(rows, kinds, lambda keys, _: keys[0])


def _place(token: str) -> list[Any]:
    """Where the page before ended. Raises Refusal."""
    at, dot, session_id = token.partition(".")
    if not dot or not at.removeprefix("-").isdecimal() or len(at) > 16:
        raise Refusal("next is not what a page of sessions gave", "leave it out to begin with the first page")
    return [int(at), session_id]


# What the ledger does not say of a session yet, since all of its turns still grow, these say themselves.
_FIRST_TURN = "FROM turns t WHERE s.project IS NULL AND t.session = s.id ORDER BY t.rail, t.turn_index LIMIT 1"
_COLUMNS = f"""
s.session_id, n.name, s.parent_session_id, p.name, k.name, s.agent, s.created_by,
coalesce(nullif(s.title, ''), s.harness_title), coalesce(nullif(s.summary, ''), s.harness_summary),
s.created_at, s.updated_at,
coalesce(nullif(max(s.said_count, s.pruned_count + s.kept_count), 0),
         (SELECT count(*) FROM turns t WHERE t.session = s.id)), s.content_mode,
CASE WHEN s.kept_count > 0 THEN 'yes' WHEN s.pruned_up_to IS NOT NULL THEN 'pruned' ELSE 'no' END
FROM sessions s LEFT JOIN names n ON n.id = s.source
LEFT JOIN names p ON p.id = coalesce(s.project, (SELECT t.project {_FIRST_TURN}))
LEFT JOIN names k ON k.id = coalesce(s.project_key, (SELECT t.project_key {_FIRST_TURN}))
"""
