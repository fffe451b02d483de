"""Loads turns into an empty index in one go, without a ledger: no look-ups, and all sums at the end.

For an index in memory that is made for a few reports. Of a turn only what totals need is written: no calls, labels or
prompts.
"""

from __future__ import annotations

import sqlite3
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice
from typing import Any, NamedTuple

from msgspec.structs import replace

from burnd.index.dimensions import DimensionNumbers
from burnd.index.rows import TURN_COLUMNS, turn_names
from burnd.index.sums import SumWriter
from burnd.pricing import PriceTable
from burnd.records import Turn, Usage
from burnd.records.content import MAIN
from burnd.records.times import index_ms

_AT_ONCE = 1000
_GROUP_COLUMNS = (
    *("source", "model", "provider", "project", "project_key", "branch", "speed", "class", "place"),
    *("session", "rail", "stated_usd"),
)
_ROW_COLUMNS = (
    *("message_id", "turn_index", "ts", "input", "output", "reasoning", "cache_read", "cache_create_5m"),
    *("cache_create_1h", "searches", "fetches", "quality"),
)
_COLUMNS = (*_GROUP_COLUMNS, *_ROW_COLUMNS)
_INSERT = (
    f"INSERT INTO turns({','.join(_COLUMNS)}, open, rev, digest, subagent) "
    f"VALUES({','.join('?' * len(_COLUMNS))}, 0, 1, 0, 0)"
)
# Indexes are made once all rows are there, which takes a fraction of the time.
_INDEXES = "SELECT name, sql FROM sqlite_master WHERE type = 'index' AND tbl_name = 'turns' AND sql IS NOT NULL"
_DATE_SESSIONS = """
UPDATE sessions SET source = coalesce(sessions.source, t.source),
  created_at = min(coalesce(created_at, t.first), t.first),
  updated_at = max(coalesce(updated_at, t.last), t.last)
FROM (SELECT session, min(source) AS source, min(ts) AS first, max(ts) AS last FROM turns GROUP BY session) t
WHERE t.session = sessions.id
"""
_PLACE_SESSIONS = f"""
UPDATE sessions SET (project, project_key) = (
  SELECT t.project, t.project_key FROM turns t WHERE t.session = sessions.id AND t.project IS NOT NULL
  ORDER BY t.rail <> '{MAIN}', t.rail, t.turn_index LIMIT 1)
WHERE project_by IS NULL
"""
assert set(_COLUMNS) <= set(TURN_COLUMNS)  # noqa: S101 - a column that was renamed


class TurnRow(NamedTuple):
    """The part of a turn that it shares with no other; `ts` as the index has it."""

    message_id: str
    turn_index: int
    ts: int
    input: int
    output: int
    reasoning: int
    cache_read: int
    cache_create_5m: int
    cache_create_1h: int
    searches: int
    fetches: int
    quality: str


class TurnGroup(NamedTuple):
    """Turns on one rail that share model, place and terms with `turn`; one that states its cost is alone."""

    turn: Turn
    rows: Sequence[TurnRow]


def row_of(turn: Turn) -> TurnRow:
    usage, tools = turn.usage, turn.server_tools
    return TurnRow(
        turn.message_id,
        turn.turn_index,
        index_ms(turn.ts),
        usage.input,
        usage.output,
        usage.reasoning,
        usage.cache_read,
        usage.cache_create_5m,
        usage.cache_create_1h,
        turn.searches if tools is not None or turn.tool_calls else 0,
        tools.fetch if tools is not None else 0,
        turn.quality,
    )


class BulkLoader:
    """Used in one transaction, `load` first."""

    def __init__(self, db: sqlite3.Connection, prices: PriceTable) -> None:
        self._db, self._prices = db, prices
        self._numbering = DimensionNumbers(prices)
        self._names: dict[str, int] = {}
        self._sessions: dict[str, int] = {}
        self._kinds: dict[Any, tuple[Any, ...]] = {}  # numbers of all that many turns have in common
        self._tiers: dict[tuple[str, str | None], tuple[int, ...]] = {}

    def load(self, groups: Iterable[TurnGroup]) -> None:
        """Writes turns, each message once."""
        indexes = self._db.execute(_INDEXES).fetchall()
        for name, _ in indexes:
            self._db.execute(f"DROP INDEX {name}")
        rows = chain.from_iterable(map(self._rows, groups))
        while some := list(islice(rows, _AT_ONCE)):
            self._db.executemany(_INSERT, some)
        for _, sql in indexes:
            self._db.execute(sql)

    def finish(self) -> None:
        """Dates sessions by their turns, and writes all sums."""
        self._db.execute(_DATE_SESSIONS)
        self._db.execute(_PLACE_SESSIONS)
        SumWriter(self._prices).rebuild(self._db, lambda _done, _total: None)

    def _rows(self, group: TurnGroup) -> Iterator[tuple[Any, ...]]:
        turn = group.turn
        model = (turn.model, turn.provider)
        if model not in self._tiers:
            price = self._prices.find(*model)
            self._tiers[model] = price.thresholds if price is not None else ()
        sizes = self._tiers[model]
        own = (self._session(turn.session_id), turn.rail_id, turn.stated_usd)
        if not sizes:
            common = (*self._kind(turn, 0, 0), *own)
            return ((*common, *row) for row in group.rows)
        return ((*self._kind_of_row(turn, row, sizes), *own, *row) for row in group.rows)

    def _kind_of_row(self, turn: Turn, row: TurnRow, sizes: tuple[int, ...]) -> tuple[Any, ...]:
        context = row[3] + row[6] + row[7] + row[8]
        return self._kind(turn, bisect_left(sizes, context), context)

    def _kind(self, turn: Turn, tier: int, context: int) -> tuple[Any, ...]:
        """The numbers of source, model, provider, project, its key, branch, speed, class and place."""
        terms = (turn.speed, turn.service_tier, turn.inference_geo)
        key = (turn.source, turn.model, turn.provider, turn.project, turn.project_key, turn.git_branch, terms, tier)
        kind = self._kinds.get(key)
        if kind is not None and turn.stated_usd is None:
            return kind
        names = self._names
        for name in turn_names(turn):
            if name is not None and name not in names:
                names[name] = self._number("names", "name", name)
        if turn.stated_usd is None:  # else its own figure may be part of its class
            turn = replace(turn, usage=Usage(input=context))
        ((class_, place, _),) = self._numbering.number(self._db, [(turn, False)], names)
        texts = (turn.source, *(turn.model, turn.provider), turn.project, turn.project_key, turn.git_branch, turn.speed)
        kind = (*(None if text is None else names[text] for text in texts), class_, place)
        if turn.stated_usd is None:
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
