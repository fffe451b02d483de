"""Writes what was said into the index: where each block stands in its sidecar, numbered along its rail."""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from collections.abc import Mapping, Sequence

from burnd.index import rows
from burnd.index.schema import MESSAGES_BY_ID, is_message
from burnd.index.store import keyed, many
from burnd.ledger.content import Placed
from burnd.records import Prune
from burnd.records.content import NO_RAIL
from burnd.records.times import index_ms

# Of a block that stands in its sidecar twice the later line counts.
_MESSAGE = (
    "INSERT OR REPLACE INTO messages(session, rail, msg_idx, message, n, b, ts, said, tool, position, length) "
    "VALUES(?,?,?,?,?,?,?,?,?,?,?)"
)


def write(
    db: sqlite3.Connection, placed: Sequence[Placed], sessions: Mapping[str, int], names: Mapping[str, int]
) -> None:
    """Takes in records that were placed; `sessions` and `names` are the numbers of all that they name."""
    by_session: defaultdict[str, list[Placed]] = defaultdict(list)
    for item in placed:
        by_session[item.label.session_id].append(item)
    for session_id, items in by_session.items():
        _write_session(db, sessions[session_id], items, names)


def _write_session(db: sqlite3.Connection, session: int, items: list[Placed], names: Mapping[str, int]) -> None:
    ends = _rail_ends(db, session, {p.label.rail for p in items})
    # On rails that have nothing yet no message can be known: most sessions of a backlog come whole.
    numbers = _numbers(db, session, {p.label.message_id for p in items}) if any(ends.values()) else {}
    message_rows: list[rows.Row] = []
    new_messages = 0
    for item in items:
        label = item.label
        rail = label.rail
        place = (rail, label.message_id)
        if place not in numbers:
            numbers[place] = ends[rail]
            ends[rail] += 1
            new_messages += rail != NO_RAIL
        message_rows.append(
            rows.message_row(item, session, numbers[place], names[label.tool] if label.tool is not None else None)
        )
    many(db, _MESSAGE, message_rows)
    _touch_session(db, session, items, new_messages)


def _numbers(db: sqlite3.Connection, session: int, message_ids: set[str]) -> dict[tuple[str, str], int]:
    sql = (
        "WITH wanted(session, message_id) AS ({keys}) SELECT DISTINCT m.rail, m.message_id, m.msg_idx FROM wanted w "
        f"CROSS JOIN {MESSAGES_BY_ID} ON m.session = w.session AND {is_message('w.message_id')}"
    )
    keys = [(session, message_id) for message_id in sorted(message_ids)]
    found = keyed(db, sql, keys)
    return {(row[0], row[1]): row[2] for row in found}


def _rail_ends(db: sqlite3.Connection, session: int, rails: set[str]) -> dict[str, int]:
    ends = {}
    for rail in rails:
        ((end,),) = db.execute(
            "SELECT coalesce(max(msg_idx), -1) + 1 FROM messages WHERE session = ? AND rail = ?",
            (session, rail),
        ).fetchall()
        ends[rail] = int(end)
    return ends


def _touch_session(db: sqlite3.Connection, session: int, items: list[Placed], new_messages: int) -> None:
    times = [ms for item in items if (ms := item.label.ts_ms)]  # a title that stands before every time has none: 0
    end = max(item.position + item.length for item in items)
    db.execute(
        "UPDATE sessions SET created_at = min(coalesce(created_at, ?1), coalesce(?1, created_at)), "
        "updated_at = max(coalesce(updated_at, ?2), coalesce(?2, updated_at)), kept_count = kept_count + ?3, "
        "content_bytes = max(content_bytes, ?4) WHERE id = ?5",
        (min(times, default=None), max(times, default=None), new_messages, end, session),
    )
    labels = [item.label for item in items if item.label.title is not None]
    titles = [(label.title, rows.title_rank(label), session) for label in labels if rows.is_title(label)]
    many(db, "UPDATE sessions SET harness_title = ?1, title_rank = ?2 WHERE id = ?3 AND title_rank <= ?2", titles)
    summaries = [(label.title, rows.summary_key(label), session) for label in labels if rows.is_summary(label)]
    many(
        db, "UPDATE sessions SET harness_summary = ?1, summary_key = ?2 WHERE id = ?3 AND summary_key <= ?2", summaries
    )


def prune(db: sqlite3.Connection, prunes: Sequence[Prune]) -> None:
    """Forgets what these say is gone."""
    for said in prunes:
        _prune(db, said)


def _prune(db: sqlite3.Connection, prune: Prune) -> None:
    db.execute(
        "DELETE FROM messages WHERE session = (SELECT id FROM sessions WHERE session_id = ?)",
        (prune.session_id,),
    )
    db.execute(
        "UPDATE sessions SET pruned_up_to = max(coalesce(pruned_up_to, ?1), ?1), pruned_count = max(pruned_count, ?2), "
        "kept_count = 0, content_bytes = 0, "
        "harness_title = NULL, title_rank = -1, harness_summary = NULL, summary_key = '' WHERE session_id = ?3",
        (index_ms(prune.up_to), prune.messages, prune.session_id),
    )
