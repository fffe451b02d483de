"""Keeps sums over turns in step with them, in the same transaction: what a changed turn gave is taken off again first.

Reports add these sums up instead of turns. A bucket is a quarter of an hour, since every time zone is a whole number
of those away from UTC; longer grains keep short a sum over years, and one over the hours by which a zone's days differ
from those of UTC. A turn is counted in each grain up to four times: alone, by place, by activity and by both. What one
more turn costs does not depend on how many there are.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Sequence

import msgspec

from burnd.index import cells, changed, endings, figures, unlogged
from burnd.index.dimensions import CLASS_COLUMNS, Dimensions, Numbering, Tiers, shipped_prices
from burnd.index.grains import (
    BUCKET_MS,
    BY_ACTIVITY,
    GRAINS,
    HOUR,
    NO_ACTIVITY,
    SHIFT_MS,
    WHOLE_SESSION,
    WITHIN_SESSION,
)
from burnd.index.store import IndexStore
from burnd.pricing import PriceTable
from burnd.records import Turn

COUNTED = (
    "n",
    "input",
    "output",
    "reasoning",
    "cache_read",
    "cache_create_5m",
    "cache_create_1h",
    "searches",
    "partials",
    "empties",
    "edits",
    "one_shots",
)
_CHUNK = 50_000
Report = Callable[[int, int], None]


class Rollup:
    """The changes of one transaction to the sums. Its temporary tables belong to the writer's connection."""

    def __init__(self, prices: PriceTable | None) -> None:
        self._numbering = Numbering(prices)
        self._turns: set[int] = set()
        self._sessions: set[int] = set()
        self._revised = False
        self._every = False  # also remove figures from turns whose model a list prices now

    def forget(self) -> None:
        """For a transaction that did not happen."""
        self._numbering.forget()
        self._clear()

    def _clear(self) -> None:
        self._turns, self._sessions, self._revised = set(), set(), False

    def number(
        self, db: sqlite3.Connection, turns: Sequence[tuple[Turn, bool]], names: dict[str, int]
    ) -> list[Dimensions]:
        """The numbers that stand in the rows of turns, each given with whether it is open."""
        return self._numbering.number(db, turns, names)

    def leave(self, db: sqlite3.Connection, turns: Iterable[int]) -> None:
        """Takes turns out of the sums as they stand. To be called before their rows change in any way."""
        new = set(turns) - self._turns
        if not new:
            return
        if not self._turns:
            _prepare(db)
        self._turns |= new
        numbers = _listed(new)
        left = db.execute(_MOVE, (-1, numbers))
        if left.rowcount > 0:
            self._revised = True
            changed.mark_turns(db, numbers)
            db.execute(_TOUCH_PROMPTS, (numbers,))
            holders = unlogged.holders(db, numbers)
            self._sessions |= holders

    def touch(self, sessions: Iterable[int]) -> None:
        """Something else was said of these sessions: an event, a copy, what a harness counted."""
        self._sessions.update(sessions)

    def settle(self, db: sqlite3.Connection) -> None:
        """Brings everything in step at the end of the transaction."""
        self._price_by_harness(db)
        if self._turns:
            self._add_turns(db, _listed(self._turns))
        if self._sessions:
            sessions = _listed(self._sessions)
            if self._renew_unlogged(db, sessions):
                self._add_up(db)
            endings.renew(db, sessions)
        self._clear()

    def _price_by_harness(self, db: sqlite3.Connection) -> None:
        """Prices turns without a list price by their harness's running totals."""
        if not db.execute("SELECT 1 FROM cost_states LIMIT 1").fetchall():
            return
        own = db.execute(_SESSIONS_OF, (_listed(self._turns),)).fetchall()
        sessions = unlogged.with_heirs(db, _listed(self._sessions.union(row[0] for row in own)))
        numbers = msgspec.json.decode(sessions, type=list[int])
        moved = figures.reclassified(db, numbers, self._numbering, every=self._every)
        self.leave(db, [turn for _, turn in moved])
        db.executemany("UPDATE turns SET class = ? WHERE id = ?", moved)

    def _add_turns(self, db: sqlite3.Connection, turns: str) -> None:
        db.execute(_MOVE, (1, turns))
        db.execute(_TOUCH_PROMPTS, (turns,))
        moved = db.execute("SELECT DISTINCT session FROM temp.moved").fetchall()
        self.touch(row[0] for row in moved)
        self._add_up(db)
        endings.renew_prompts(db, revised=self._revised)

    def _renew_unlogged(self, db: sqlite3.Connection, sessions: str) -> bool:
        before, after = unlogged.renewed(db, unlogged.with_heirs(db, sessions), self._numbering)
        if before == after:
            return False
        _prepare(db)
        db.executemany(_MOVE_UNLOGGED, [(-1, *row) for row in before] + [(1, *row) for row in after])
        self._revised = self._revised or bool(before)
        return True

    def _add_up(self, db: sqlite3.Connection) -> None:
        db.execute(_ADD_UP)
        db.execute(_ADD_UP_SESSIONS)
        cells.add_up(db, db.execute(_BY_CELL).fetchall())
        if self._revised:
            db.execute("DELETE FROM sums WHERE n = 0")
            db.execute("DELETE FROM session_sums WHERE n = 0")
        db.execute("DELETE FROM temp.moved")

    def anew(self, db: sqlite3.Connection, report: Report) -> None:
        """Makes all sums again from the turns."""
        for table in _DERIVED:
            db.execute(f"DELETE FROM {table}")
        _prepare(db)
        ((last,),) = db.execute("SELECT coalesce(max(id), 0) FROM turns").fetchall()
        for begin in range(1, last + 1, _CHUNK):
            self._add_turns(db, _listed(range(begin, min(begin + _CHUNK, last + 1))))
            report(begin, last)
        found = db.execute(
            "SELECT session FROM turns UNION SELECT session FROM cost_states UNION SELECT session FROM requests"
        ).fetchall()
        self.touch(row[0] for row in found)
        self._every = True
        self.settle(db)
        self._every = False


async def too_coarse(store: IndexStore, prices: PriceTable) -> dict[tuple[int, int], Tiers]:
    """The models whose classes do not fit these prices, with the tiers they need.

    Either a price changes at a context size that their classes do not have, and reports read their turns one by one
    until it is added; or a list gained or lost the price of a model for which a harness states a cost.
    """
    wanted = {}
    for model, provider, model_name, provider_name, text, listed, is_stated in await store.rows(_TIERS):
        price = prices.find(model_name, provider_name)
        sizes = set(msgspec.json.decode(text, type=tuple[int, ...]))
        needed = sizes | set(price.thresholds if price is not None else ())
        if needed != sizes or (is_stated and bool(listed) != (price is not None)):
            wanted[model, provider] = Tiers(tuple(sorted(needed)), price is not None)
    return wanted


async def refine(store: IndexStore, report: Report) -> None:
    """Tells contexts apart wherever the store's prices change. To be called by the one writer."""
    prices = store.prices or shipped_prices()
    coarse = await too_coarse(store, prices)

    def renumber(db: sqlite3.Connection) -> None:
        for (model, provider), tiers in coarse.items():
            _tell_apart(db, model, provider, tiers)
        Rollup(prices).anew(db, report)
        changed.mark_all(db)

    await store.transact(renumber)


def _tell_apart(db: sqlite3.Connection, model: int, provider: int, tiers: Tiers) -> None:
    """Assigns new classes to the turns of a model, by these tiers."""
    sizes = tiers.sizes
    names = ",".join(CLASS_COLUMNS)
    olds = list(
        db.execute(
            f"SELECT id, {names} FROM classes WHERE model = ? AND provider = ? AND unlogged = 0",
            (model, provider),
        ).fetchall()
    )
    tier = CLASS_COLUMNS.index("tier")
    numbering = Numbering(None)
    for old, *key in olds:
        keys = {size: (*key[:tier], size, *key[tier + 1 :]) for size in (0, *sizes)}
        numbers = numbering.classes(db, keys.values())
        # From the largest down, so that each turn ends in the class of the largest size below its own.
        cases = " ".join(f"WHEN {_GROSS} > {size} THEN {numbers[keys[size]]}" for size in reversed(sizes))
        number = f"CASE {cases} ELSE {numbers[keys[0]]} END" if cases else str(numbers[keys[0]])
        db.execute(f"UPDATE turns SET class = {number} WHERE class = ?", (old,))
    moved = figures.restated(db, model, provider, numbering, listed=tiers.listed)
    db.executemany("UPDATE turns SET class = ? WHERE id = ?", moved)
    text = msgspec.json.encode(sizes).decode()
    sql = "UPDATE tiers SET sizes = ?, listed = ? WHERE model = ? AND provider = ?"
    db.execute(sql, (text, tiers.listed, model, provider))


def _listed(numbers: Iterable[int]) -> str:
    return msgspec.json.encode(sorted(numbers)).decode()


def _prepare(db: sqlite3.Connection) -> None:
    db.execute(_MOVED)
    db.execute(_TOUCHED)


_SESSIONS_OF = "SELECT DISTINCT session FROM turns WHERE id IN (SELECT value FROM json_each(?))"
_TIERS = """
SELECT t.model, t.provider, m.name, p.name, t.sizes, t.listed,
       EXISTS (SELECT 1 FROM cost_states s WHERE s.model = t.model AND s.cost > 0 AND t.provider = 0)
       OR EXISTS (SELECT 1 FROM turns x
                  WHERE x.model = t.model AND coalesce(x.provider, 0) = t.provider AND x.stated_usd IS NOT NULL)
FROM tiers t JOIN names m ON m.id = t.model LEFT JOIN names p ON p.id = t.provider
"""
_DERIVED = ("sums", "session_sums", "session_cells", "session_prompts", "prompts", "endings", "unlogged", "inherited")
_GROSS = "input + cache_read + cache_create_5m + cache_create_1h"
_DIMENSIONS = ("session", "bucket", "class", "place", "branch", "activity", "subagent")
_MOVED = f"CREATE TEMP TABLE IF NOT EXISTS moved({','.join((*_DIMENSIONS, *COUNTED))})"
_TOUCHED = "CREATE TEMP TABLE IF NOT EXISTS touched(session, prompt_id, PRIMARY KEY(session, prompt_id)) WITHOUT ROWID"
_MOVE = f"""
INSERT INTO temp.moved
SELECT session, (ts + {SHIFT_MS}) / {BUCKET_MS}, class, place, coalesce(branch, 0), coalesce(activity, {NO_ACTIVITY}),
       subagent, ?1, ?1 * input, ?1 * output, ?1 * reasoning, ?1 * cache_read, ?1 * cache_create_5m,
       ?1 * cache_create_1h, ?1 * searches, ?1 * (quality = 'partial'), ?1 * (quality = 'empty'),
       ?1 * (has_edits IS 1 AND quality <> 'empty'),
       ?1 * (has_edits IS 1 AND quality <> 'empty' AND coalesce(retries, 0) = 0)
FROM turns WHERE id IN (SELECT value FROM json_each(?2))
"""
_MOVE_UNLOGGED = f"""
INSERT INTO temp.moved SELECT ?2, (?4 + {SHIFT_MS}) / {BUCKET_MS}, ?3, ?5, 0, {NO_ACTIVITY}, 0,
       ?1, ?1 * ?6, ?1 * ?7, ?1 * ?8, ?1 * ?9, ?1 * ?10, ?1 * ?11, ?1 * ?12, ?1 * ?13, 0, 0, 0
"""
_TOUCH_PROMPTS = """
INSERT OR IGNORE INTO temp.touched SELECT session, prompt_id FROM turns
WHERE id IN (SELECT value FROM json_each(?)) AND has_edits AND prompt_id IS NOT NULL
"""
_TOTALS = ",".join(f"sum({name}) AS {name}" for name in COUNTED)
_GROWTH = ",".join(f"{name} = {name} + excluded.{name}" for name in COUNTED)
_EVERY_WAY = ",".join(
    f"({grain},{length},{place},{activity})"
    for grain, length in GRAINS.items()
    for place in (0, 1)
    for activity in (0, 1)
    if not (activity and grain == HOUR)  # there are hardly fewer of these than quarters of an hour
)
# First by the finest key: a batch has many turns of few kinds.
_ADD_UP = f"""
INSERT INTO sums
WITH way(grain, length, by_place, by_activity) AS (VALUES {_EVERY_WAY}),
     fine AS MATERIALIZED (
       SELECT place, activity, bucket, class, {_TOTALS} FROM temp.moved GROUP BY 1, 2, 3, 4)
SELECT place * by_place, activity * by_activity, grain, bucket / length, class,
       {",".join(f"sum({name})" for name in COUNTED)}
FROM fine CROSS JOIN way GROUP BY 1, 2, 3, 4, 5
ON CONFLICT DO UPDATE SET {_GROWTH}
"""
_ADD_UP_SESSIONS = f"""
INSERT INTO session_sums
WITH way(grain, by_time, by_activity) AS (
       VALUES ({WITHIN_SESSION}, 1, 0), ({BY_ACTIVITY}, 1, 1), ({WHOLE_SESSION}, 0, 0)),
     fine AS MATERIALIZED (
       SELECT session, bucket, class, place, branch, subagent, activity, {_TOTALS} FROM temp.moved
       GROUP BY 1, 2, 3, 4, 5, 6, 7)
SELECT grain, session, bucket * by_time, activity * by_activity, class, place, branch, subagent,
       {",".join(f"sum({name})" for name in COUNTED)}
FROM fine CROSS JOIN way GROUP BY 1, 2, 3, 4, 5, 6, 7, 8
ON CONFLICT DO UPDATE SET {_GROWTH}
"""
_BY_CELL = f"""
SELECT session, class, place, branch, subagent, activity, {_TOTALS} FROM temp.moved GROUP BY 1, 2, 3, 4, 5, 6
"""
