"""Lists sessions in pages with those whose logs are gone, gives the facts of one, and lists stamps."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, NamedTuple

import msgspec

from burnd.contract.daemon import ListStampsParams
from burnd.contract.sessions import MOST_SESSIONS, ListParams, MetaParams
from burnd.queries import names
from burnd.queries.money import Tally, classes_of, tallied
from burnd.queries.names import IS_A_SESSION, check_source, row_of, short_ids
from burnd.queries.periods import moment, zone_of
from burnd.queries.selection import Selection
from burnd.queries.spending import Spending
from burnd.queries.sums import By, Reader
from burnd.queries.view import Refusal, View
from burnd.records.content import MAIN, NO_RAIL
from burnd.records.names import bounded
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


class SessionEntry(NamedTuple):
    """A session, its row in the index, and the columns of `_COLUMNS`."""

    row: int
    session_id: str
    columns: tuple[Any, ...]

    @property
    def facts(self) -> dict[str, Any]:
        return facts_of(self.columns)


def list_sessions(view: View, params: ListParams) -> dict[str, Any]:
    """A page of sessions, without logs that only have summaries of other sessions' lines."""
    limit = min(max(params.limit, 1), MOST_SESSIONS)
    conditions, values = _conditions(view, params)
    gone = gone_sessions(view) if params.gone else {}
    if params.gone:
        conditions.append(f"s.id IN ({','.join(map(str, sorted(gone)))})")
    if params.next is not None:
        conditions.append("(coalesce(s.updated_at, 0), s.session_id) < (?, ?)")
        values += _parse_position(params.next)
    where = " AND ".join([IS_A_SESSION, *conditions])
    order = "ORDER BY coalesce(s.updated_at, 0) DESC, s.session_id DESC LIMIT ?"
    rows = view.rows(f"SELECT s.id, {_COLUMNS} WHERE {where} {order}", [*values, limit + 1])
    page = [_shortened(facts_of(row[1:])) for row in rows[:limit]]
    enough = short_ids(view, [session["sessionId"] for session in page])
    page = [session | {"shortId": enough[session["sessionId"]]} for session in page]
    if params.costs:
        tallies = _tallies(view, [row[0] for row in rows[:limit]])
        for session, row in zip(page, rows, strict=False):
            session |= tallies.get(row[0], Tally()).answer()
    for session, row in zip(page, rows, strict=False):
        session |= gone.get(row[0], {})
    answer: dict[str, Any] = {"sessions": page}
    if params.gone:
        unknown = sum(one["goneBy"] == "unknown" for one in gone.values())
        answer["gone"] = {"count": len(gone), "unexplained": unknown}
    if len(rows) > limit:
        last = page[-1]
        answer["next"] = f"{to_ms(last['updatedAt']) if last['updatedAt'] else 0}.{last['sessionId']}"
    return answer


def meta(view: View, params: MetaParams) -> dict[str, Any]:
    session = find(view, params.id)
    children = view.rows(
        "SELECT session_id FROM sessions WHERE parent_session_id = ? ORDER BY 1", (session.session_id,)
    )
    return {
        **session.facts,
        "rails": rails(view, session.row),
        "children": [child for (child,) in children],
        **Spending(view).of_session(session.session_id).answer(),
    }


def find(view: View, given: str) -> SessionEntry:
    """The session with this id or unique prefix. Raises Missing or Refusal."""
    ((row, *columns),) = view.rows(f"SELECT s.id, {_COLUMNS} WHERE s.id = ?", (row_of(view, given),))
    return SessionEntry(row, columns[0], tuple(columns))


def exactly(view: View, session_id: str) -> SessionEntry | None:
    return entries_of(view, [session_id]).get(session_id)


def entries_of(view: View, session_ids: Iterable[str]) -> dict[str, SessionEntry]:
    """Leaves out ids that do not exist."""
    keys = [(session_id,) for session_id in session_ids]
    rows = view.keyed(f"SELECT s.id, {_COLUMNS} WHERE s.session_id IN ({{keys}})", keys)
    return {row[1]: SessionEntry(row[0], row[1], row[1:]) for row in rows}


def facts_of(row: tuple[Any, ...]) -> dict[str, Any]:
    facts = dict(zip(_NAMES, row, strict=True))
    for name in ("createdAt", "updatedAt"):
        facts[name] = to_iso(facts[name]) if facts[name] is not None else None
    return facts


def _shortened(facts: dict[str, Any]) -> dict[str, Any]:
    summary = facts["summary"]
    is_long = summary is not None and len(summary) > _SUMMARY_LISTED
    return facts | {"summary": f"{summary[:_SUMMARY_LISTED]}\u2026"} if is_long else facts


def rails(view: View, session: int) -> list[dict[str, Any]]:
    """The main one first."""
    rows = view.rows(
        "SELECT rail, max(msg_idx) + 1 FROM messages WHERE session = ? AND rail <> ? GROUP BY rail", (session, NO_RAIL)
    )
    rows.sort(key=lambda row: (row[0] != MAIN, row[0]))
    return [{"railId": rail, "messages": count} for rail, count in rows]


def times(
    view: View, since: int | str | None, until: int | str | None, tz: int | str | None
) -> tuple[int | None, int | None]:
    """Raises Refusal."""
    zone = zone_of(tz)
    begin = moment(since, view.now, zone) if since is not None else None
    end = moment(until, view.now, zone, is_end=True) if until is not None else None
    return begin, end


def _conditions(view: View, params: ListParams) -> tuple[list[str], list[Any]]:
    since, until = times(view, params.since, params.until, params.tz)
    if params.source is not None:
        check_source(view, params.source)
    parent = find(view, params.parent).session_id if params.parent is not None else None
    filters = (
        ("s.source = (SELECT id FROM names WHERE name = ?)", params.source),
        ("s.updated_at >= ?", since),
        ("s.created_at < ?", until),
        ("s.agent = ?", params.agent),
        ("s.parent_session_id = ?", parent),
    )
    conditions = [sql for sql, value in filters if value is not None]
    if params.project is not None:
        conditions.append(f"s.id IN ({','.join(map(str, sorted(names.sessions(view, params.project))))})")
    return conditions, [value for _, value in filters if value is not None]


def _tallies(view: View, sessions: Iterable[int]) -> dict[int, Tally]:
    """Without descendants."""
    classes = classes_of(view)
    rows = Reader(view, Selection(sessions=frozenset(sessions)), classes).read(By(("session",)))
    return tallied(rows, classes, lambda keys, _: keys[0])


def _parse_position(token: str) -> list[Any]:
    """Raises Refusal."""
    at, dot, session_id = token.partition(".")
    if not dot or not at.removeprefix("-").isdecimal() or len(at) > 16:
        raise Refusal("next is not the next of a page of sessions", "leave it out for the first page")
    return [int(at), session_id]


# While all turns of a session are open, the ledger has no project for it: take it from the first turn.
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


GONE: Final = "log_gone"
CLEANED: Final = "log_cleaned"  # at an age at which the harness deletes it
BACK: Final = "log_back"
_REASONS: Final = {GONE: "unknown", CLEANED: "clean-up"}


class LoggedSession(NamedTuple):
    """With the newest event about its log."""

    session_id: str
    updated_ms: int
    event: str | None
    event_ms: int | None


def logged_sessions(view: View, source: str) -> list[LoggedSession]:
    return [LoggedSession(*row) for row in view.rows(_SESSIONS, (source,))]


def gone_sessions(view: View) -> dict[int, dict[str, Any]]:
    """By row: when that was noticed, and the reason if it is known."""
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


_PAGE_BYTES: Final = 4 << 20  # a page ends with the stamp that exceeds it; one stamp fits a request of 1 MiB


def list_stamps(view: View, params: ListStampsParams) -> dict[str, Any]:
    """`next` is the `after` of the next page."""
    since = None if params.since is None else time_of(params.since, "since")
    until = None if params.until is None else time_of(params.until, "until")
    filters = (params.after, params.session, params.message, since, until)
    stamps: list[dict[str, Any]] = []
    last = size = 0
    for row in view.db.execute(_STAMPS, filters):
        stamp = _answer(row)
        if not _has(stamp, params):
            continue
        if len(stamps) == params.limit or size >= _PAGE_BYTES:
            return {"stamps": stamps, "next": last}
        stamps.append(stamp)
        last = row[0]
        size += sum(len(text.encode()) for text in (row[2], row[3], row[6]) if text is not None)
    return {"stamps": stamps, "next": None}


def time_of(text: str, name: str) -> int:
    try:
        return to_ms(text)
    except ValueError:
        raise Refusal(f"{name} is not an ISO time", "for example 2026-11-16T09:30:00Z") from None


def unknown_keys(view: View, keys: Iterable[str]) -> list[str]:
    return [key for key in keys if not view.rows(_WITH_KEY, (bounded(key),))]


def _has(stamp: dict[str, Any], params: ListStampsParams) -> bool:
    tags = stamp["enrichment"] | dict.fromkeys(stamp.get("removes", ()))
    if params.key is None:
        return params.value is None or params.value in tags.values()
    key = bounded(params.key)
    return any(bounded(name) == key and params.value in (None, value) for name, value in tags.items())


def _answer(row: tuple[Any, ...]) -> dict[str, Any]:
    _, ts, session_id, message_id, from_ts, to_ts, enrichment = row
    selector: dict[str, Any] = {"messageId": message_id} if session_id is None else {"sessionId": session_id}
    if from_ts is not None:
        selector["range"] = {"fromTs": to_iso(from_ts), "toTs": to_iso(to_ts)}
    tags = msgspec.json.decode(enrichment)
    values = {key: value for key, value in tags.items() if value is not None}
    removes = [key for key in tags if key not in values]
    return {"ts": to_iso(ts), "selector": selector, "enrichment": values} | ({"removes": removes} if removes else {})


_STAMPS = """
SELECT position, ts, session_id, message_id, from_ts, to_ts, enrichment FROM stamps
WHERE position > ?1 AND (?2 IS NULL OR session_id = ?2) AND (?3 IS NULL OR message_id = ?3)
  AND (?4 IS NULL OR ts >= ?4) AND (?5 IS NULL OR ts < ?5)
ORDER BY position
"""
_WITH_KEY = """
SELECT 1 FROM session_tags WHERE key = ?1 UNION ALL SELECT 1 FROM narrow_tags WHERE key = ?1 LIMIT 1
"""
