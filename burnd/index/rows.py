"""Converts records to rows, writes the positions of content, and loads turns in bulk.

A bulk load fills an empty index in one go, without a ledger: no look-ups, and all sums at the end. Of a turn only what
totals need is written: no calls, labels or prompts.
"""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, get_args

import msgspec
from msgspec.structs import replace

from burnd.harness.registry import is_client_error
from burnd.index.dimensions import DimensionNumbers
from burnd.index.schema import MESSAGES_BY_ID, is_message
from burnd.index.store import keyed, many
from burnd.index.sums import SumWriter
from burnd.ledger.content import Placed
from burnd.pricing import PriceTable
from burnd.records import (
    Copy,
    Origin,
    Prune,
    Quota,
    Session,
    Stamp,
    Turn,
    Usage,
    Withheld,
)
from burnd.records.codec import Entry
from burnd.records.content import MAIN, NO_RAIL, TITLE, Kind, Label, Role
from burnd.records.names import bounded_tags, short_id
from burnd.records.times import index_ms, to_iso, to_ms
from burnd.records.turn import FORKED

Value = str | int | float | bytes | None
Row = tuple[Value, ...]
NameId = Callable[[str | None], int | None]

TURN_COLUMNS = [
    "id",
    "source",
    "message_id",
    "session",
    "rail",
    "turn_index",
    "parent",
    "ts",
    "model",
    "provider",
    "project",
    "project_key",
    "branch",
    "input",
    "output",
    "reasoning",
    "cache_read",
    "cache_create_5m",
    "cache_create_1h",
    "speed",
    "searches",
    "fetches",
    "quality",
    "activity",
    "stop_reason",
    "has_edits",
    "retries",
    "prompt",
    "prompt_retries",
    "agent_id",
    "agent_type",
    "parent_call",
    "stated_usd",
    "version",
    "pull",
    "request_id",
    "open",
    "rev",
    "digest",
    "position",
    "length",
    "class",
    "place",
    "subagent",
    "seq",
]


def turn_names(turn: Turn) -> list[str | None]:
    """The texts of a turn that the index stores once."""
    texts = [
        turn.source,
        turn.model,
        turn.provider,
        turn.project,
        turn.project_key,
        turn.git_branch,
        turn.speed,
        turn.activity,
        turn.stop_reason,
        turn.harness_version,
        turn.pull_request,
        turn.subagent.type if turn.subagent else turn.agent,
    ]
    for call in turn.tool_calls:
        texts += (call.name, call.target)
    return texts


def turn_row(turn: Turn, row_id: int, session: int, name_id: NameId) -> Row:
    """The columns from the turn itself, up to `request_id`; the others locate its line in the ledger."""
    usage, subagent, tools = turn.usage, turn.subagent, turn.server_tools
    return (
        row_id,
        name_id(turn.source),
        turn.message_id,
        session,
        turn.rail_id,
        turn.turn_index,
        turn.parent,
        index_ms(turn.ts),
        name_id(turn.model),
        name_id(turn.provider),
        name_id(turn.project),
        name_id(turn.project_key),
        name_id(turn.git_branch),
        usage.input,
        usage.output,
        usage.reasoning,
        usage.cache_read,
        usage.cache_create_5m,
        usage.cache_create_1h,
        name_id(turn.speed),
        turn.searches,
        tools.fetch if tools else 0,
        turn.quality,
        name_id(turn.activity),
        name_id(turn.stop_reason),
        turn.has_edits,
        turn.retries,
        short_id(turn.prompt_id) if turn.prompt_id is not None else None,
        turn.prompt_retries,
        subagent.agent_id if subagent else None,
        name_id(subagent.type) if subagent else None,
        subagent.parent_tool_use_id if subagent else None,
        turn.stated_usd,
        name_id(turn.harness_version),
        name_id(turn.pull_request),
        turn.request_id,
    )


def stamp_row(stamp: Stamp, position: int) -> Row:
    """A stamp, with null for keys that it removes. Its times are not clamped: an open range ends at the latest time."""
    selector = stamp.selector
    span = selector.range
    return (
        position,
        to_ms(stamp.ts),
        selector.session_id,
        selector.message_id,
        to_ms(span.from_ts) if span else None,
        to_ms(span.to_ts) if span else None,
        msgspec.json.encode(stamp.tags).decode(),
    )


def session_tag_rows(stamp: Stamp, position: int) -> list[Row]:
    """The tags of a stamp on a whole session, a row for each key; none for other stamps."""
    selector = stamp.selector
    if selector.session_id is None or selector.range is not None:
        return []
    tags = bounded_tags(stamp.tags)
    return [(key, selector.session_id, to_ms(stamp.ts), position, value) for key, value in tags.items()]


def narrow_tag_rows(stamp: Stamp, position: int) -> list[Row]:
    """The tags of a stamp on a message or a time range, a row for each key; none for other stamps."""
    if session_tag_rows(stamp, position):
        return []
    _, ts, *selected, _ = stamp_row(stamp, position)
    return [(key, position, ts, *selected, value) for key, value in bounded_tags(stamp.tags).items()]


def quota_row(quota: Quota, position: int, name_id: NameId) -> Row:
    resets = index_ms(quota.resets_at) if quota.resets_at else None
    return (position, index_ms(quota.ts), name_id(quota.source), quota.window, quota.used_percent, resets)


def session_row(session: Session, name_id: NameId) -> Row:
    """The values of a session record; None and an empty source change nothing."""
    return (
        name_id(session.source or None),
        session.parent_session_id,
        name_id(session.project),
        name_id(session.project_key),
        session.agent,
        session.created_by,
        index_ms(session.created_at) if session.created_at else None,
        index_ms(session.updated_at) if session.updated_at else None,
        session.message_count,
        session.content_mode,
        index_ms(session.content_since) if session.content_since else None,
        session.title,
        session.summary,
        session.session_id,
    )


def time_of(entry: Entry) -> int | None:
    if isinstance(entry, Session):
        return index_ms(entry.created_at) if entry.created_at else None
    if isinstance(entry, Origin | Withheld):
        return None
    return index_ms(entry.up_to if isinstance(entry, Prune) else entry.ts)


def copy_columns(copy: Copy) -> Row:
    """The number of a copy on its rail, and whether its log marks it as a copy."""
    return (copy.turn_index, copy.basis is not None and bool(copy.basis.rank & FORKED))


_CUSTOM, _SUMMARY = f"{TITLE}custom", f"{TITLE}summary"


def is_title(label: Label) -> bool:
    return label.message_id.startswith(TITLE) and not label.message_id.startswith(_SUMMARY) and _is_name(label)


def title_rank(label: Label) -> int:
    """A custom title beats a generated one."""
    return 2 if label.message_id == _CUSTOM else 1


def is_summary(label: Label) -> bool:
    return label.message_id.startswith(_SUMMARY) and _is_name(label)


def _is_name(label: Label) -> bool:
    """Whether a title is real: some clients store the error of a failed request for one."""
    is_custom = label.message_id == _CUSTOM
    return label.title is not None and (is_custom or not is_client_error(label.title))


def summary_key(label: Label) -> str:
    """Orders the summaries of a session by the line they name, since they may come from several files in any order."""
    return f"{label.n:016d} {to_iso(label.ts_ms)} {label.message_id}"


# Role and kind as one number.
ROLE_AND_KIND = {
    (role, kind): 8 * r + k for r, role in enumerate(get_args(Role)) for k, kind in enumerate(get_args(Kind))
}


# A block may be in its sidecar twice; the later line counts.
_MESSAGE = (
    "INSERT OR REPLACE INTO messages(session, rail, msg_idx, message, n, b, ts, said, tool, position, length) "
    "VALUES(?,?,?,?,?,?,?,?,?,?,?)"
)
_RAIL_END = "SELECT coalesce(max(msg_idx), -1) + 1 FROM messages WHERE session = ? AND rail = ?"
_MESSAGE_NUMBERS = (
    "WITH wanted(session, message_id) AS ({keys}) SELECT DISTINCT m.rail, m.message_id, m.msg_idx FROM wanted w "
    f"CROSS JOIN {MESSAGES_BY_ID} ON m.session = w.session AND {is_message('w.message_id')}"
)


def write_messages(
    db: sqlite3.Connection, placed: Sequence[Placed], sessions: Mapping[str, int], names: Mapping[str, int]
) -> None:
    """Adds rows of stored content; `sessions` and `names` have all its numbers."""
    by_session: defaultdict[str, list[Placed]] = defaultdict(list)
    for item in placed:
        by_session[item.label.session_id].append(item)
    for session_id, items in by_session.items():
        session = sessions[session_id]
        rails = {item.label.rail for item in items}
        ends = {rail: int(db.execute(_RAIL_END, (session, rail)).fetchone()[0]) for rail in rails}
        numbers: dict[tuple[str, str], int] = {}
        if any(ends.values()):  # most sessions of a backlog are new and complete
            keys = [(session, message_id) for message_id in sorted({item.label.message_id for item in items})]
            numbers = {(row[0], row[1]): row[2] for row in keyed(db, _MESSAGE_NUMBERS, keys)}
        message_rows: list[Row] = []
        new_messages = 0
        for label, position, length, _, _ in items:
            rail, message_id = label.rail, label.message_id
            number = numbers.get((rail, message_id))
            if number is None:
                number = numbers[rail, message_id] = ends[rail]
                ends[rail] += 1
                new_messages += rail != NO_RAIL
            kind = ROLE_AND_KIND[label.role, label.kind]
            tool = names[label.tool] if label.tool is not None else None
            place = (session, rail, number, short_id(message_id), label.n, label.b)
            message_rows.append((*place, label.ts_ms, kind, tool, position, length))
        db.executemany(_MESSAGE, message_rows)
        _update_session(db, session, items, new_messages)


def _update_session(db: sqlite3.Connection, session: int, items: list[Placed], new_messages: int) -> None:
    times = [ms for item in items if (ms := item.label.ts_ms)]  # 0 is a title before the first line
    end = max(item.position + item.length for item in items)
    db.execute(
        "UPDATE sessions SET created_at = min(coalesce(created_at, ?1), coalesce(?1, created_at)), "
        "updated_at = max(coalesce(updated_at, ?2), coalesce(?2, updated_at)), kept_count = kept_count + ?3, "
        "content_bytes = max(content_bytes, ?4) WHERE id = ?5",
        (min(times, default=None), max(times, default=None), new_messages, end, session),
    )
    labels = [item.label for item in items if item.label.title is not None]
    if not labels:
        return
    titles = [(label.title, title_rank(label), session) for label in labels if is_title(label)]
    many(db, "UPDATE sessions SET harness_title = ?1, title_rank = ?2 WHERE id = ?3 AND title_rank <= ?2", titles)
    summaries = [(label.title, summary_key(label), session) for label in labels if is_summary(label)]
    many(
        db, "UPDATE sessions SET harness_summary = ?1, summary_key = ?2 WHERE id = ?3 AND summary_key <= ?2", summaries
    )


def prune_messages(db: sqlite3.Connection, prunes: Sequence[Prune]) -> None:
    """Deletes the content of pruned sessions."""
    for prune in prunes:
        db.execute(
            "DELETE FROM messages WHERE session = (SELECT id FROM sessions WHERE session_id = ?)", (prune.session_id,)
        )
        db.execute(
            "UPDATE sessions SET pruned_up_to = max(coalesce(pruned_up_to, ?1), ?1), "
            "pruned_count = max(pruned_count, ?2), kept_count = 0, content_bytes = 0, harness_title = NULL, "
            "title_rank = -1, harness_summary = NULL, summary_key = '' WHERE session_id = ?3",
            (index_ms(prune.up_to), prune.messages, prune.session_id),
        )


_LARGEST = (1 << 63) - 1
_GROUP_COLUMNS = (
    *("source", "model", "provider", "project", "project_key", "branch", "speed", "class", "place"),
    *("session", "rail", "stated_usd"),
)
_ROW_COLUMNS = (
    *("message_id", "turn_index", "ts", "input", "output", "reasoning", "cache_read", "cache_create_5m"),
    *("cache_create_1h", "searches", "fetches", "quality"),
)
TurnRow = tuple[str, int, int, int, int, int, int, int, int, int, int, str]  # what a turn shares with no other
_COLUMNS = (*_GROUP_COLUMNS, *_ROW_COLUMNS)
_STAGING = (
    f"CREATE TABLE staged_rows(grp INTEGER, {','.join(_ROW_COLUMNS)})",
    f"CREATE TABLE staged_groups(grp INTEGER, low, high, {','.join(_GROUP_COLUMNS)}, PRIMARY KEY(grp, low))",
)
_STAGE = f"INSERT INTO staged_rows VALUES(?, {','.join('?' * len(_ROW_COLUMNS))})"
_STAGE_GROUP = f"INSERT INTO staged_groups VALUES(?, ?, ?, {','.join('?' * len(_GROUP_COLUMNS))})"
_CONTEXT = "r.input + r.cache_read + r.cache_create_5m + r.cache_create_1h"
_WRITE = f"""
INSERT INTO turns({",".join(_COLUMNS)}, open, rev, digest, subagent)
SELECT {",".join(f"g.{name}" for name in _GROUP_COLUMNS)}, {",".join(f"r.{name}" for name in _ROW_COLUMNS)}, 0, 1, 0, 0
FROM staged_rows r CROSS JOIN staged_groups g ON g.grp = r.grp AND {_CONTEXT} > g.low AND {_CONTEXT} <= g.high
ORDER BY g.source, r.message_id
"""
# Indexes are made once all rows are there, which takes a fraction of the time.
_INDEXES = "SELECT name, sql FROM sqlite_master WHERE type = 'index' AND tbl_name = 'turns' AND sql IS NOT NULL"
_OF_SESSION = "FROM turns WHERE session = sessions.id"
_DATE_SESSIONS = f"""
UPDATE sessions SET source = coalesce(source, (SELECT source {_OF_SESSION} LIMIT 1)),
  created_at = min(coalesce(created_at, first), first), updated_at = max(coalesce(updated_at, last), last)
FROM (SELECT session, min(ts) AS first, max(ts) AS last FROM turns INDEXED BY turns_by_session_time GROUP BY session) t
WHERE t.session = sessions.id
"""
_PLACE_SESSIONS = f"""
UPDATE sessions SET (project, project_key) = (
  SELECT t.project, t.project_key FROM turns t WHERE t.session = sessions.id AND t.project IS NOT NULL
  ORDER BY t.rail <> '{MAIN}', t.rail, t.turn_index LIMIT 1)
WHERE project_by IS NULL
"""
assert set(_COLUMNS) <= set(TURN_COLUMNS)  # noqa: S101 - a column that was renamed


class BulkLoader:
    """Used in one transaction after the other, in the order of its methods.

    Turns come in groups on one rail that share model, place and terms. Their rows are staged before the group itself is
    known: its project may depend on a log that was not read yet.
    """

    def __init__(self, db: sqlite3.Connection, prices: PriceTable) -> None:
        self._db, self._prices = db, prices
        self._numbering = DimensionNumbers(prices)
        self._names: dict[str, int] = {}
        self._sessions: dict[str, int] = {}
        self._kinds: dict[Any, tuple[Any, ...]] = {}  # numbers of all that many turns have in common
        for sql in _STAGING:
            db.execute(sql)

    def stage(self, groups: Iterable[tuple[int, Sequence[TurnRow]]]) -> None:
        self._db.executemany(_STAGE, ((group, *row) for group, rows in groups for row in rows))

    def unstage(self, rows: Iterable[int]) -> None:
        """Removes rows by their position in the order of staging, from 0."""
        self._db.executemany("DELETE FROM staged_rows WHERE rowid = ?", ((row + 1,) for row in rows))

    def first_times(self) -> dict[int, int]:
        return dict(self._db.execute("SELECT grp, min(ts) FROM staged_rows GROUP BY grp"))

    def write(self, groups: Iterable[tuple[int, Turn]]) -> None:
        sizes = f"SELECT grp, min({_CONTEXT}), max({_CONTEXT}) FROM staged_rows r GROUP BY grp"
        sizes_of = {group: most_and_least for group, *most_and_least in self._db.execute(sizes)}
        rows = (
            row for group, turn in groups if group in sizes_of for row in self._group(group, turn, *sizes_of[group])
        )
        self._db.executemany(_STAGE_GROUP, rows)
        indexes = self._db.execute(_INDEXES).fetchall()
        for name, _ in indexes:
            self._db.execute(f"DROP INDEX {name}")
        self._db.execute(_WRITE)
        self._db.execute("DROP TABLE staged_rows")
        self._db.execute("DROP TABLE staged_groups")
        for _, sql in indexes:
            self._db.execute(sql)

    def finish(self) -> None:
        self._db.execute(_DATE_SESSIONS)
        self._db.execute(_PLACE_SESSIONS)
        SumWriter(self._prices).rebuild(self._db, lambda _done, _total: None)

    def _group(self, group: int, turn: Turn, least: int, most: int) -> Iterator[tuple[Any, ...]]:
        """A row of the group for each price tier that its contexts have."""
        price = self._prices.find(turn.model, turn.provider)
        bounds = (-1, *(price.thresholds if price is not None else ()), _LARGEST)
        own = (self._session(turn.session_id), turn.rail_id, turn.stated_usd)
        has_own_figure = price is None and turn.stated_usd is not None
        for tier, (low, high) in enumerate(pairwise(bounds)):
            if low < most and least <= high:
                yield (group, low, high, *self._kind(turn, tier, low + 1, has_own_figure), *own)

    def _kind(self, turn: Turn, tier: int, context: int, has_own_figure: bool) -> tuple[Any, ...]:
        """The numbers of source, model, provider, project, its key, branch, speed, class and place.

        The class of a turn may depend on the cost that its log states for it.
        """
        terms = (turn.speed, turn.service_tier, turn.inference_geo)
        key = (turn.source, turn.model, turn.provider, turn.project, turn.project_key, turn.git_branch, terms, tier)
        kind = self._kinds.get(key)
        if kind is not None and not has_own_figure:
            return kind
        names = self._names
        for name in turn_names(turn):
            if name is not None and name not in names:
                names[name] = self._number("names", "name", name)
        if not has_own_figure:
            turn = replace(turn, usage=Usage(input=context))
        ((class_, place, _),) = self._numbering.number(self._db, [(turn, False)], names)
        texts = (turn.source, *(turn.model, turn.provider), turn.project, turn.project_key, turn.git_branch, turn.speed)
        kind = (*(None if text is None else names[text] for text in texts), class_, place)
        if not has_own_figure:
            self._kinds[key] = kind
        return kind

    def _session(self, session_id: str) -> int:
        number = self._sessions.get(session_id)
        if number is None:
            number = self._sessions[session_id] = self._number("sessions", "session_id", session_id)
        return number

    def _number(self, table: str, column: str, text: str) -> int:
        self._db.execute(f"INSERT OR IGNORE INTO {table}({column}) VALUES(?)", (text,))
        return int(self._db.execute(f"SELECT id FROM {table} WHERE {column} = ?", (text,)).fetchone()[0])
