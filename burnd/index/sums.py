"""Sums of turns, rewritten in the same transaction as the turns.

`sums` has one row for each session, quarter of an hour, class, place, branch, activity, version and subagent. A quarter
of an hour whose turns changed has its rows deleted and written again from `turns`, so no row is ever adjusted by a
difference, and one more turn costs the same however long its session is.

`time_sums` is the same for all sessions, at three levels:

- level 0: by quarter of an hour and class;
- level 1: by day and class;
- level 2: by day, class and activity.

Days that changed are listed as stale in the same transaction, and are read from `sums` until `condense` has rewritten
them.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Sequence

import msgspec

from burnd.index import changes, harness_costs, stale_causes, unlogged
from burnd.index.dimensions import CLASS_COLUMNS, DimensionNumbers, Dimensions, Tiers, shipped_prices
from burnd.index.store import IndexStore, name_feed
from burnd.pricing import PriceTable
from burnd.records import Turn
from burnd.records.content import MAIN

BUCKET_MS = 900_000
SHIFT_MS = 62_135_596_800_000  # from the year 1 on, so that no bucket is negative; whole days, so that days stay days
NO_ACTIVITY = -1  # of turns that have none


def bucket_of(ts: int) -> int:
    return (ts + SHIFT_MS) // BUCKET_MS


def begin_of(bucket: int) -> int:
    """The first millisecond of a bucket."""
    return bucket * BUCKET_MS - SHIFT_MS


DAY = 96  # in buckets
MEASURES = (
    *("n", "input", "output", "reasoning", "cache_read", "cache_create_5m", "cache_create_1h", "searches"),
    *("partials", "empties", "edits", "one_shots", "prompts", "one_shot_prompts"),
)
# Events after the last turn of a session that end it: it was cut short or failed. A retry is not one.
ENDING_EVENTS = ("api_error", "interrupt", "no_response", "refusal")
Report = Callable[[int, int], None]
_SESSIONS_AT_ONCE = 1000


class SumWriter:
    """Collects what one transaction changes, and writes its sums at the end.

    Uses temporary tables of the connection.
    """

    def __init__(self, prices: PriceTable | None) -> None:
        self._numbering = DimensionNumbers(prices)
        self._turns: set[int] = set()
        self._sessions: set[int] = set()
        self._reprices_listed = False  # ignore the harness's own cost where a list price now exists

    def forget(self) -> None:
        """Drops what was collected in a transaction that was rolled back."""
        self._numbering.forget()
        self._clear()

    def number(
        self, db: sqlite3.Connection, turns: Sequence[tuple[Turn, bool]], names: dict[str, int]
    ) -> list[Dimensions]:
        """The class, place and subagent of turns, each given with whether it is open."""
        return self._numbering.number(db, turns, names)

    def mark_before_change(self, db: sqlite3.Connection, turns: Iterable[int], first_new: int | None = None) -> None:
        """Marks the buckets that turns are in now; call it before their rows change.

        Turns from `first_new` on have no rows yet.
        """
        new = set(turns) - self._turns
        if not new:
            return
        _prepare(db)
        self._turns |= new
        numbers = _json(new if first_new is None else [turn for turn in new if turn < first_new])
        if numbers != "[]" and _mark_turns(db, numbers):
            stale_causes.mark_turns(db, numbers)
            if db.execute(_HAS_STATES).fetchall():
                self._sessions |= unlogged.holders(db, numbers)

    def mark_sessions(self, sessions: Iterable[int]) -> None:
        """Marks sessions of which an event, a copy or a running total changed."""
        self._sessions.update(sessions)

    def write_sums(self, db: sqlite3.Connection) -> None:
        """Writes the sums of all that was marked, at the end of the transaction."""
        self._price_by_harness(db)
        if self._turns:
            _mark_turns(db, _json(self._turns))
            self._sessions.update(row[0] for row in db.execute("SELECT DISTINCT session FROM temp.marked").fetchall())
            _write(db)
        if self._sessions:
            sessions = _json(self._sessions)
            if db.execute(_HAS_UNLOGGED, (sessions,)).fetchall():
                unlogged.recompute(db, unlogged.with_heirs(db, sessions), self._numbering)
            db.execute("DELETE FROM endings WHERE session IN (SELECT value FROM json_each(?))", (sessions,))
            db.execute(_WRITE_ENDINGS, (sessions,))
        self._clear()

    def rebuild(self, db: sqlite3.Connection, report: Report) -> None:
        for table in _DERIVED:
            db.execute(f"DELETE FROM {table}")
        _prepare(db)
        ((last,),) = db.execute("SELECT coalesce(max(id), 0) FROM sessions").fetchall()
        for begin in range(1, last + 1, _SESSIONS_AT_ONCE):
            db.execute(_MARK_SESSIONS, (begin, begin + _SESSIONS_AT_ONCE))
            db.execute(_MARK_PROMPTS_OF_SESSIONS, (begin, begin + _SESSIONS_AT_ONCE))
            _write(db)
            report(begin, last)
        self.mark_sessions(row[0] for row in db.execute(_WITH_ANYTHING).fetchall())
        self._reprices_listed = True
        self.write_sums(db)
        self._reprices_listed = False

    def _clear(self) -> None:
        self._turns, self._sessions = set(), set()

    def _price_by_harness(self, db: sqlite3.Connection) -> None:
        """Prices turns without a list price by their harness's running totals."""
        if not db.execute(_HAS_STATES).fetchall():
            return
        own = db.execute(_SESSIONS_OF, (_json(self._turns),)).fetchall()
        sessions = unlogged.with_heirs(db, _json(self._sessions.union(row[0] for row in own)))
        numbers = msgspec.json.decode(sessions, type=list[int])
        classes = harness_costs.reclassified(db, numbers, self._numbering, every=self._reprices_listed)
        if not classes:
            return
        turns = [turn for _, turn in classes]
        self.mark_before_change(db, turns)
        db.executemany("UPDATE turns SET class = ? WHERE id = ?", classes)
        changes.mark_turns(db, changes.next_seq(db), db.execute(_WITH_SESSION, (_json(turns),)).fetchall())


def _json(numbers: Iterable[int]) -> str:
    return msgspec.json.encode(sorted(numbers)).decode()


def _prepare(db: sqlite3.Connection) -> None:
    db.execute("CREATE TEMP TABLE IF NOT EXISTS marked(session, bucket, PRIMARY KEY(session, bucket)) WITHOUT ROWID")
    db.execute(
        "CREATE TEMP TABLE IF NOT EXISTS touched(session, prompt_id, PRIMARY KEY(session, prompt_id)) WITHOUT ROWID"
    )


def _mark_turns(db: sqlite3.Connection, turns: str) -> bool:
    """Marks the buckets and prompts of turns; returns whether any of the turns has a row."""
    db.execute(_MARK_PROMPTS, (turns,))
    db.execute(_MARK, (turns,))
    return bool(
        db.execute("SELECT 1 FROM turns WHERE id IN (SELECT value FROM json_each(?)) LIMIT 1", (turns,)).fetchall()
    )


def _write(db: sqlite3.Connection) -> None:
    """Rewrites the marked prompts and buckets.

    A prompt counts in the bucket of its first edit, with the retries of its last one: both its old and its new bucket
    change with it.
    """
    prompts = [tuple(row) for row in db.execute("SELECT session, prompt_id FROM temp.touched").fetchall()]
    db.execute(_MARK_FIRST_EDITS)
    db.executemany("DELETE FROM prompts WHERE session = ? AND prompt_id = ?", prompts)
    db.execute(_WRITE_PROMPTS)
    db.execute(_MARK_FIRST_EDITS)
    db.execute("DELETE FROM temp.touched")
    buckets = [tuple(row) for row in db.execute("SELECT session, bucket FROM temp.marked").fetchall()]
    db.executemany("DELETE FROM sums WHERE session = ? AND bucket = ?", buckets)
    db.execute(_WRITE_BUCKETS)
    db.execute(f"INSERT OR IGNORE INTO stale_days SELECT DISTINCT bucket / {DAY} FROM temp.marked")
    db.execute("DELETE FROM temp.marked")


def condense(db: sqlite3.Connection, days: int) -> bool:
    """Rewrites the condensed sums of some stale days; returns whether any are left."""
    for (day,) in db.execute("SELECT day FROM stale_days ORDER BY day DESC LIMIT ?", (days,)).fetchall():
        begin, end = day * DAY, (day + 1) * DAY
        db.execute("DELETE FROM time_sums WHERE level = 0 AND bucket >= ? AND bucket < ?", (begin, end))
        db.execute("DELETE FROM time_sums WHERE level IN (1, 2) AND bucket = ?", (day,))
        for sql in _CONDENSE:
            db.execute(sql, (begin, end))
        db.execute("DELETE FROM stale_days WHERE day = ?", (day,))
    return bool(db.execute("SELECT 1 FROM stale_days LIMIT 1").fetchall())


async def missing_tiers(store: IndexStore, prices: PriceTable) -> dict[tuple[int, int], Tiers]:
    """Models whose stored tiers differ from these prices, with the tiers they need.

    Either a price changes at a context size that the classes do not have, or a list gained or lost the price of a model
    for which a harness states a cost.
    """
    tiers_needed = {}
    for model, provider, model_name, provider_name, text, listed, is_stated in await store.rows(_TIERS):
        price = prices.find(model_name, provider_name)
        sizes = set(msgspec.json.decode(text, type=tuple[int, ...]))
        needed = sizes | set(price.thresholds if price is not None else ())
        if needed != sizes or (is_stated and bool(listed) != (price is not None)):
            tiers_needed[model, provider] = Tiers(tuple(sorted(needed)), price is not None)
    return tiers_needed


async def refine(store: IndexStore, report: Report) -> None:
    """Reassigns price classes and rebuilds the sums. Writer only."""
    prices = store.prices or shipped_prices()
    missing = await missing_tiers(store, prices)

    def renumber(db: sqlite3.Connection) -> None:
        for (model, provider), tiers in missing.items():
            _assign_tiers(db, model, provider, tiers)
        SumWriter(prices).rebuild(db, report)
        stale_causes.mark_all(db)
        name_feed(db)

    await store.transact(renumber)


def _assign_tiers(db: sqlite3.Connection, model: int, provider: int, tiers: Tiers) -> None:
    """Assigns new classes to the turns of a model, by these tiers."""
    sizes = tiers.sizes
    names = ",".join(CLASS_COLUMNS)
    sql = f"SELECT id, {names} FROM classes WHERE model = ? AND provider = ? AND unlogged = 0"
    tier = CLASS_COLUMNS.index("tier")
    numbering = DimensionNumbers(None)
    for old, *key in db.execute(sql, (model, provider)).fetchall():
        keys = {size: (*key[:tier], size, *key[tier + 1 :]) for size in (0, *sizes)}
        numbers = numbering.classes(db, keys.values())
        # From the largest down, so that each turn ends in the class of the largest size below its own.
        cases = " ".join(f"WHEN {_CONTEXT} > {size} THEN {numbers[keys[size]]}" for size in reversed(sizes))
        number = f"CASE {cases} ELSE {numbers[keys[0]]} END" if cases else str(numbers[keys[0]])
        db.execute(f"UPDATE turns SET class = {number} WHERE class = ?", (old,))
    classes = harness_costs.restated(db, model, provider, numbering, listed=tiers.is_listed)
    db.executemany("UPDATE turns SET class = ? WHERE id = ?", classes)
    text = msgspec.json.encode(sizes).decode()
    sql = "UPDATE tiers SET sizes = ?, listed = ? WHERE model = ? AND provider = ?"
    db.execute(sql, (text, tiers.is_listed, model, provider))


_HAS_STATES = "SELECT 1 FROM cost_states LIMIT 1"
# Whether any of these sessions has, had or inherits usage that no log has, or another inherits it from one of them.
_HAS_UNLOGGED = """
SELECT 1 FROM json_each(?) w WHERE EXISTS (SELECT 1 FROM cost_states WHERE session = w.value)
  OR EXISTS (SELECT 1 FROM requests WHERE session = w.value)
  OR EXISTS (SELECT 1 FROM unlogged WHERE session = w.value)
  OR EXISTS (SELECT 1 FROM inherited WHERE session = w.value)
  OR EXISTS (SELECT 1 FROM inherited WHERE owner = w.value) LIMIT 1
"""
_WITH_SESSION = "SELECT id, session FROM turns WHERE id IN (SELECT value FROM json_each(?))"
_SESSIONS_OF = "SELECT DISTINCT session FROM turns WHERE id IN (SELECT value FROM json_each(?))"
_TIERS = """
SELECT t.model, t.provider, m.name, p.name, t.sizes, t.listed,
       EXISTS (SELECT 1 FROM cost_states s WHERE s.model = t.model AND s.cost > 0 AND t.provider = 0)
       OR EXISTS (SELECT 1 FROM turns x
                  WHERE x.model = t.model AND coalesce(x.provider, 0) = t.provider AND x.stated_usd IS NOT NULL)
FROM tiers t JOIN names m ON m.id = t.model LEFT JOIN names p ON p.id = t.provider
"""
_DERIVED = (*("sums", "time_sums", "stale_days", "prompts", "endings", "unlogged", "inherited"),)
_CONTEXT = "input + cache_read + cache_create_5m + cache_create_1h"
_WITH_ANYTHING = "SELECT session FROM turns UNION SELECT session FROM cost_states UNION SELECT session FROM requests"
_BUCKET = f"(ts + {SHIFT_MS}) / {BUCKET_MS}"
_MARK = f"""
INSERT OR IGNORE INTO temp.marked SELECT session, {_BUCKET} FROM turns WHERE id IN (SELECT value FROM json_each(?))
"""
_MARK_SESSIONS = f"""
INSERT OR IGNORE INTO temp.marked SELECT DISTINCT session, {_BUCKET} FROM turns WHERE session >= ? AND session < ?
"""
_PROMPTS_OF_TURNS = (
    "INSERT OR IGNORE INTO temp.touched SELECT session, prompt_id FROM turns "
    "WHERE has_edits AND prompt_id IS NOT NULL AND"
)
_MARK_PROMPTS = f"{_PROMPTS_OF_TURNS} id IN (SELECT value FROM json_each(?))"
_MARK_PROMPTS_OF_SESSIONS = f"{_PROMPTS_OF_TURNS} session >= ? AND session < ?"
_MARK_FIRST_EDITS = f"""
INSERT OR IGNORE INTO temp.marked SELECT t.session, (t.ts + {SHIFT_MS}) / {BUCKET_MS}
FROM temp.touched k CROSS JOIN prompts p ON p.session = k.session AND p.prompt_id = k.prompt_id
CROSS JOIN turns t ON t.id = p.turn
"""
_EDITS = "turns WHERE session = k.session AND prompt_id = k.prompt_id AND has_edits"
_WRITE_PROMPTS = f"""
INSERT INTO prompts
SELECT k.session, k.prompt_id, t.id, coalesce((SELECT max(prompt_retries) FROM {_EDITS}), 0)
FROM temp.touched k CROSS JOIN turns t
  ON t.id = (SELECT id FROM {_EDITS} ORDER BY prompt_retries, ts, turn_index, message_id LIMIT 1)
"""
_EDITED = "x.has_edits IS 1 AND x.quality <> 'empty'"
# Sums over turns `x`, joined with the prompts `p` whose first edit is in the turn; in the order of MEASURES.
COUNT_TURNS = (
    "count(*)",
    *(f"sum(x.{name})" for name in MEASURES[1:8]),
    "sum(x.quality = 'partial')",
    "sum(x.quality = 'empty')",
    f"sum({_EDITED})",
    f"sum({_EDITED} AND coalesce(x.retries, 0) = 0)",
    "count(p.turn)",
    "coalesce(sum(p.retries = 0), 0)",
)
FIRST_EDITS = "prompts p ON p.turn = x.id"
_WRITE_BUCKETS = f"""
INSERT INTO sums
SELECT k.session, k.bucket, x.class, x.place, coalesce(x.branch, 0), coalesce(x.activity, {NO_ACTIVITY}),
       coalesce(x.version, 0), x.subagent, {",".join(COUNT_TURNS)}
FROM temp.marked k CROSS JOIN turns x INDEXED BY turns_by_session_time ON x.session = k.session
  AND x.ts >= k.bucket * {BUCKET_MS} - {SHIFT_MS} AND x.ts < (k.bucket + 1) * {BUCKET_MS} - {SHIFT_MS}
LEFT JOIN {FIRST_EDITS}
GROUP BY k.session, k.bucket, x.class, x.place, 5, 6, 7, x.subagent
"""
_TOTALS = ",".join(f"sum(x.{name})" for name in MEASURES)
_OF_DAY = """
FROM endings e CROSS JOIN sums x ON x.session = e.session AND x.bucket >= ?1 AND x.bucket < ?2
WHERE e.last_bucket >= ?1 AND e.first_bucket < ?2
"""
_CONDENSE = (
    f"INSERT INTO time_sums SELECT 0, x.bucket, x.class, 0, {_TOTALS} {_OF_DAY} GROUP BY x.bucket, x.class",
    f"""
INSERT INTO time_sums SELECT 1, x.bucket / {DAY}, x.class, 0, {_TOTALS}
FROM time_sums x WHERE x.level = 0 AND x.bucket >= ?1 AND x.bucket < ?2 GROUP BY x.class
""",
    f"""
INSERT INTO time_sums SELECT 2, x.bucket / {DAY}, x.class, x.activity, {_TOTALS} {_OF_DAY}
GROUP BY x.class, x.activity
""",
)
_BUCKETS_OF = "bucket) FROM sums WHERE session = s.value"
_WRITE_ENDINGS = f"""
INSERT INTO endings
WITH unlogged_of AS (
       SELECT session, min(ts) AS first, max(ts) AS last FROM unlogged
       WHERE session IN (SELECT value FROM json_each(?1)) GROUP BY session),
     buckets AS (
       SELECT s.value AS session, (SELECT min({_BUCKETS_OF}) AS first, (SELECT max({_BUCKETS_OF}) AS last
       FROM json_each(?1) s
       UNION ALL
       SELECT session, (first + {SHIFT_MS}) / {BUCKET_MS}, (last + {SHIFT_MS}) / {BUCKET_MS} FROM unlogged_of),
     spans AS (SELECT session, min(first) AS first, max(last) AS last FROM buckets GROUP BY session)
SELECT k.session, k.first, k.last, t.id,
       (SELECT f.name FROM facts f JOIN names n ON n.id = f.name
        WHERE f.session = k.session AND f.kind = 'event' AND f.rail = '{MAIN}' AND f.ts >= t.ts
          AND n.name IN ({",".join(repr(name) for name in ENDING_EVENTS)})
        ORDER BY f.ts DESC, f.key DESC LIMIT 1)
FROM spans k LEFT JOIN turns t
  ON t.id = (SELECT id FROM turns WHERE session = k.session AND rail = '{MAIN}'
          ORDER BY turn_index DESC, ts DESC, message_id LIMIT 1)
WHERE k.first IS NOT NULL
"""
