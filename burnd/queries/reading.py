"""Adds up what was selected, from the fewest rows that give it exactly.

Blocks of days, days and quarters of an hour come from `sums`; where sessions, branches, subagents or tags matter, whole
sessions or their quarters of an hour come from `session_sums`, and whole sessions by activity from `session_cells`.
Only what lies across an edge of the selected time, or belongs to a session whose tags change within it, is read from
the turns themselves.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from operator import add, sub

from burnd.index.grains import (
    BLOCK,
    BUCKET_MS,
    BY_ACTIVITY,
    DAY,
    FOUR_HOURS,
    GRAINS,
    HOUR,
    QUARTER,
    SHIFT_MS,
    WHOLE_SESSION,
    WITHIN_SESSION,
    begin_of,
    bucket_of,
)
from burnd.index.rollup import COUNTED
from burnd.queries.cell_reading import read_prompts, read_sums
from burnd.queries.kinds import Kinds
from burnd.queries.periods import Stretch, stretches
from burnd.queries.scanning import (
    ADDED_UP,
    NOTHING,
    PROMPTS,
    SESSION_SUMS,
    SUMS,
    TURNS,
    UNLOGGED,
    By,
    Clause,
    Parts,
    Row,
    Scan,
    Table,
    during,
    weighed,
    within,
)
from burnd.queries.selection import Selection
from burnd.queries.view import View
from burnd.records.times import DAY_MS, HOUR_MS


class Reader:
    """Reads one selection. `sizes` are contexts that must be told apart beyond what each model's price needs."""

    def __init__(self, view: View, selection: Selection, kinds: Kinds, sizes: tuple[int, ...] = ()) -> None:
        self._view = view
        self._chosen = selection
        self._scan = Scan(view, selection)
        wanted = [kind for kind in kinds if selection.kinds is None or kind.id in selection.kinds]
        needed = {kind.id: {*sizes, *(kind.price.thresholds if kind.price else ())} for kind in wanted}
        # Contexts of these kinds were not told apart where prices now change: their turns are read one by one.
        coarse = [kind for kind in wanted if not kind.is_unlogged and not needed[kind.id] <= set(kind.sizes)]
        self._coarse = frozenset(kind.id for kind in coarse)
        self._cuts = sorted({size for kind in coarse for size in needed[kind.id]})
        self._fine = frozenset(kind.id for kind in wanted) - self._coarse if self._coarse else selection.kinds
        self._wanted = wanted
        self.begin, self.end = self._clipped()
        self._touching: tuple[frozenset[int] | None, frozenset[int]] | None = None

    def _clipped(self) -> tuple[int, int]:
        """The selected time, as far as there is anything."""
        first, last = (self._view.rows(_BOUND.format(order=order)) for order in ("ASC", "DESC"))
        if not first:
            return 0, 0
        begin, end = begin_of(first[0][0]), begin_of(last[0][0] + 1)
        chosen = self._chosen
        return (
            begin if chosen.begin is None else max(begin, chosen.begin),
            end if chosen.end is None else min(end, chosen.end),
        )

    def read(self, by: By) -> Iterator[Parts]:
        """Sums by these keys and by kind, several of them for the same where it was read from several places.

        Beside the kind stands the context size that decides the price where the kind itself does not say it.
        """
        return by.parts(self._sums_by(by))

    def _sums_by(self, by: By) -> list[Row]:
        if self.begin >= self.end:
            return []
        rows: list[Row] = []
        if self._coarse:
            rows += self._one_by_one(TURNS, by, self._coarse, self._tier())
        if self._fine is not None and not self._fine:
            return rows
        if self._chosen.is_by_sums and {"place", "activity", "time"}.issuperset(by.keys):
            return rows + self._from_sums(by)
        rows += self._from_session_sums(by)
        for table in (TURNS, UNLOGGED):
            rows += self._mixed(table, by, self._fine)
        return rows

    def sessions(self) -> tuple[frozenset[int] | None, frozenset[int]]:
        """Those that lie within the selected time, None being all of them, and those across its edges."""
        if self._touching is None:
            self._touching = self._found_sessions()
        return self._touching

    def _found_sessions(self) -> tuple[frozenset[int] | None, frozenset[int]]:
        if self._chosen.begin is None and self._chosen.end is None:
            return None, frozenset()
        (begin, end), _ = _whole_buckets(Stretch(self.begin, self.end))
        found = self._view.rows(_TOUCHING, (begin, end, bucket_of(self.begin), bucket_of(self.end - 1)))
        inside = frozenset(session for session, is_inside in found if is_inside)
        return inside, frozenset(session for session, is_inside in found if not is_inside)

    def session_costs(self, most: int) -> dict[int, float]:
        """Nearly what each session costs that lies within the selected time.

        Nothing where there are no more than so many, or where that takes more to tell.
        """
        chosen = self._chosen
        inside, _ = self.sessions()
        count = self._view.rows("SELECT count(*) FROM endings")[0][0] if inside is None else len(inside)
        is_simple = (chosen.activities, chosen.groups, chosen.agent_groups) == (None, None, None)
        if count <= most or self._coarse or not is_simple:
            return {}
        logged = frozenset(kind.id for kind in self._wanted if not kind.is_unlogged)
        terms = [Clause(_WHOLE_SESSIONS), *self._scan.terms(SESSION_SUMS, logged), *within("x.session", inside)]
        rates = {kind.id: (*kind.own_rates, kind.search_units) for kind in self._wanted if kind.own_rates is not None}
        weight = weighed(rates, COUNTED[1:8])
        sql = f"SELECT x.session, total({weight}) FROM session_sums x WHERE {{}} GROUP BY 1"
        where, bound = " AND ".join(term.sql for term in terms), [value for term in terms for value in term.bound]
        costs: dict[int, float] = dict(self._view.rows(sql.format(where), bound))
        return costs if len(costs) > most else {}

    def read_facts(self, table: Table, by: By, beside: str = NOTHING) -> Iterator[Parts]:
        """Counts rows of a table of its own, with one of its columns beside the kind."""
        return by.parts(self._one_by_one(table, by, self._chosen.kinds, beside))

    def read_prompts(self, by: By) -> Iterator[Parts]:
        """Counts prompts with edits, with their retries beside the kind."""
        return by.parts(self._prompts_by(by))

    def _prompts_by(self, by: By) -> list[Row]:
        is_of_all = self._chosen.is_by_sums and {"place", "activity"}.issuperset(by.keys)
        if by.unit is not None or is_of_all:
            return self._one_by_one(PROMPTS, by, self._chosen.kinds, "x.retries")
        if self.begin >= self.end:
            return []
        inside, across = self.sessions()
        rows = read_prompts(self._scan, by, self._chosen.kinds, inside)
        if across:
            terms = [during(Stretch(self.begin, self.end)), *self._scan.terms(PROMPTS, self._chosen.kinds)]
            rows += self._scan.by_session(PROMPTS, by, terms, beside="x.retries", sessions=across)
        return rows + self._mixed(PROMPTS, by, self._chosen.kinds, "x.retries")

    # Sums over all sessions

    def _from_sums(self, by: By) -> list[Row]:
        rows: list[Row] = []
        for stretch in self._stretches(by):
            (begin, end), edges = _whole_buckets(stretch)
            if by.unit is None:
                for grain, first, last in grains(begin, end, (BLOCK, DAY, FOUR_HOURS, *self._short_grains(by))):
                    rows += self._sums(by, grain, first, last)
            else:
                rows += self._by_clock(by, begin, end, stretch.offset)
            rows += self._at_edges(by, edges)
        return rows

    def _by_clock(self, by: By, begin: int, end: int, offset: int) -> list[Row]:
        """Local days or hours, of what lies between these buckets."""
        short = (QUARTER,) if offset % HOUR_MS else self._short_grains(by)
        rows: list[Row] = []
        for grain, first, last in grains(begin, end, (DAY, *short) if by.unit == "day" else short):
            if grain == DAY:
                rows += self._local_days(by, first, last, offset)
            else:
                rows += self._sums(by, grain, first, last, offset)
        return rows

    def _local_days(self, by: By, first: int, last: int, offset: int) -> list[Row]:
        """These days of UTC, each counted on the local day that has most of it, less its other part, which is moved.

        So a zone's days take far fewer rows than their hours would.
        """
        midnight = -offset // BUCKET_MS % GRAINS[DAY]
        is_end = midnight * 2 > GRAINS[DAY]
        begun = (midnight * BUCKET_MS + offset) // DAY_MS  # which local day begins there, counted from that of UTC
        most, least = (begun - 1, begun) if is_end else (begun, begun - 1)
        days = self._sums(by, DAY, first, last, most * DAY_MS)
        moved = grains(*((midnight, GRAINS[DAY]) if is_end else (0, midnight)), (FOUR_HOURS, *self._short_grains(by)))
        pieces = ",".join(f"({grain},{GRAINS[DAY] // GRAINS[grain]},{begin},{end})" for grain, begin, end in moved)
        if not pieces:
            return days
        among = SUMS._replace(name=_PIECES.format(first, last, pieces), column=f"d.day + {least}", length=DAY_MS)
        parts = self._scan.plain(_told_by(days, among), by, [*self._of_sums(by), Clause(_IN_PIECE)])
        return _moved(days, parts, by.keys.index("time"), most - least)

    def _short_grains(self, by: By) -> tuple[int, ...]:
        """Those of which none can be cut by a local midnight: hours are not kept by activity."""
        return (QUARTER,) if self._is_by_activity(by) else (HOUR, QUARTER)

    def _is_by_activity(self, by: By) -> bool:
        return "activity" in by.keys or self._chosen.activities is not None

    def _sums(self, by: By, grain: int, begin: int, end: int, offset: int = 0) -> list[Row]:
        when = Clause(f"x.grain = {grain} AND x.bucket >= {begin} AND x.bucket < {end}")
        length, chosen = GRAINS[grain] * BUCKET_MS, self._chosen
        is_one = all(some is None or len(some) == 1 for some in (chosen.places, chosen.activities))
        is_added_up = is_one and by.keys == ("time",) and by.unit_ms == length and not offset % length
        table = (ADDED_UP if is_added_up else SUMS)._replace(length=length)
        return self._scan.plain(table, by, [*self._of_sums(by), when], offset)

    def _of_sums(self, by: By) -> list[Clause]:
        chosen = self._chosen
        return [
            _one_or_all("place", by, chosen.places, "SELECT id FROM places"),
            _one_or_all("activity", by, chosen.activities, _ACTIVITIES),
            *within("x.class", self._fine),
        ]

    # Sums by session

    def _from_session_sums(self, by: By) -> list[Row]:
        if by.unit is None:
            return self._whole_sessions(by)
        rows: list[Row] = []
        for stretch in self._stretches(by):
            (begin, end), edges = _whole_buckets(stretch)
            if begin < end:
                when = Clause(f"x.bucket >= {begin} AND x.bucket < {end}")
                grain = BY_ACTIVITY if self._is_by_activity(by) else WITHIN_SESSION
                rows += self._session_sums(by, grain, when, offset=stretch.offset)
            rows += self._at_edges(by, edges)
        return rows

    def _whole_sessions(self, by: By) -> list[Row]:
        """Sessions that lie within the selected time as a whole; those across its edges turn by turn."""
        inside, across = self.sessions()
        if self._is_by_activity(by):
            rows = read_sums(self._scan, by, self._fine, inside)
        else:
            rows = self._session_sums(by, WHOLE_SESSION, Clause("x.bucket = 0"), sessions=inside)
        return rows + (self._at_edges(by, [Stretch(self.begin, self.end)], across) if across else [])

    def _session_sums(
        self, by: By, grain: int, when: Clause, offset: int = 0, sessions: frozenset[int] | None = None
    ) -> list[Row]:
        # Each part of the table's key that is said spares SQLite a sort.
        activity = [] if grain == BY_ACTIVITY else [Clause("x.activity = 0")]
        terms = [Clause(f"x.grain = {grain}"), when, *activity, *self._scan.terms(SESSION_SUMS, self._fine)]
        return self._scan.by_session(SESSION_SUMS, by, terms, offset, sessions=sessions)

    # Rows one by one

    def _at_edges(self, by: By, edges: list[Stretch], sessions: frozenset[int] | None = None) -> list[Row]:
        rows: list[Row] = []
        for edge in edges:
            for table in (TURNS, UNLOGGED):
                terms = [during(edge), *within("x.session", sessions), *self._scan.terms(table, self._fine)]
                rows += self._scan.plain(table, by, terms, edge.offset)
        return rows

    def _one_by_one(self, table: Table, by: By, kinds: frozenset[int] | None, beside: str) -> list[Row]:
        rows: list[Row] = []
        if self.begin >= self.end:
            return rows
        for stretch in self._stretches(by):
            terms = [during(stretch), *self._scan.terms(table, kinds)]
            scan = self._scan.plain if table is TURNS else self._scan.by_session
            rows += scan(table, by, terms, stretch.offset, beside)
        return rows + self._mixed(table, by, kinds, beside)

    def _mixed(self, table: Table, by: By, kinds: frozenset[int] | None, beside: str = NOTHING) -> list[Row]:
        rows: list[Row] = []
        if self._chosen.groups is None or not self._chosen.groups.parts:
            return rows
        inside, across = self.sessions()
        among = None if inside is None else inside | across
        for stretch in self._stretches(by):
            terms = [during(stretch), *self._scan.terms(table, kinds)]
            rows += self._scan.mixed(table, by, terms, stretch.offset, beside, among)
        return rows

    def _tier(self) -> str:
        cases = " ".join(f"WHEN {_GROSS} > {size} THEN {size}" for size in reversed(self._cuts))
        return f"CASE {cases} ELSE 0 END"

    def _stretches(self, by: By) -> list[Stretch]:
        if by.unit is None:
            return [Stretch(self.begin, self.end)]
        return stretches(self.begin, self.end, self._chosen.zone)


def _one_or_all(column: str, by: By, chosen: frozenset[int] | None, every: str) -> Clause:
    """Those that were chosen, each that there is where they are told apart, else the sum over all."""
    if chosen is not None:
        return within(f"x.{column}", chosen)[0]
    return Clause(f"x.{column} IN ({every})" if column in by.keys else f"x.{column} = 0")


def _told_by(rows: list[Row], table: Table) -> Table:
    """The table without sums of what these rows have none of: neither has any part of them."""
    width = len(table.counted)
    has = [any(column) for column in [*zip(*rows, strict=True)][-width:]] or [False] * width
    return table._replace(counted=tuple([sql if some else "0" for sql, some in zip(table.counted, has, strict=True)]))


def _moved(days: list[Row], parts: list[Row], at: int, later: int) -> list[Row]:
    """The days, with each part on its day and taken off the day it was counted on, so many days later."""
    width = len(COUNTED)
    sums = {row[:-width]: row[-width:] for row in days}
    nothing = (0,) * width
    for row in parts:
        key, counts = row[:-width], row[-width:]
        sums[key] = tuple(map(add, sums.get(key, nothing), counts))
        other = (*key[:at], key[at] + later, *key[at + 1 :])
        sums[other] = tuple(map(sub, sums.get(other, nothing), counts))
    return [(*key, *counts) for key, counts in sums.items()]


def _whole_buckets(stretch: Stretch) -> tuple[tuple[int, int], list[Stretch]]:
    """The buckets that lie within a stretch, and what is left of it at its edges."""
    begin, end = -(-(stretch.begin + SHIFT_MS) // BUCKET_MS), bucket_of(stretch.end)
    if begin >= end or stretch.offset % BUCKET_MS:
        return (0, 0), [stretch]
    edges = (stretch._replace(end=begin_of(begin)), stretch._replace(begin=begin_of(end)))
    return (begin, end), [edge for edge in edges if edge.begin < edge.end]


def grains(
    begin: int, end: int, fitting: tuple[int, ...], lengths: Mapping[int, int] = GRAINS
) -> Iterator[tuple[int, int, int]]:
    """Buckets as (grain, from, to), in the longest of these grains that fit, which come longest first."""
    if begin >= end:
        return
    grain, finer = fitting[0], fitting[1:]
    length = lengths[grain]
    first, last = -(-begin // length), end // length
    if first < last:
        yield grain, first, last
        yield from grains(begin, first * length, finer, lengths)
        yield from grains(last * length, end, finer, lengths)
    else:
        yield from grains(begin, end, finer, lengths)


_GROSS = "x.input + x.cache_read + x.cache_create_5m + x.cache_create_1h"
_BOUND = (
    f"SELECT bucket FROM sums WHERE place = 0 AND activity = 0 AND grain = {QUARTER} ORDER BY bucket {{order}} LIMIT 1"
)
_WHOLE_SESSIONS = f"x.grain = {WHOLE_SESSION} AND x.bucket = 0 AND x.activity = 0"
# The same part of every day of UTC that has anything, in pieces of several grains: how many of these a day has, and
# from which of them to which.
_PIECES = (
    f"(SELECT DISTINCT bucket AS day FROM sums WHERE place = 0 AND activity = 0 AND grain = {DAY} "
    "AND bucket >= {} AND bucket < {}) d "
    "CROSS JOIN (SELECT column1 AS grain, column2 AS per, column3 AS begin, column4 AS end FROM (VALUES {})) w "
    "CROSS JOIN sums"
)
_IN_PIECE = "x.grain = w.grain AND x.bucket >= d.day * w.per + w.begin AND x.bucket < d.day * w.per + w.end"
_TOUCHING = (
    "SELECT session, first_bucket >= ? AND last_bucket < ? FROM endings WHERE last_bucket >= ? AND first_bucket <= ?"
)
# Every activity there is, in a handful of steps through the index.
_ACTIVITIES = (
    "WITH RECURSIVE a(id) AS (SELECT min(activity) FROM sums WHERE place = 0 UNION ALL "
    "SELECT (SELECT min(activity) FROM sums WHERE place = 0 AND activity > a.id) FROM a WHERE a.id IS NOT NULL) "
    "SELECT id FROM a WHERE id <> 0"
)
