"""Adds up what was selected, from the fewest rows that give it exactly.

What needs no session comes from `time_sums`, what needs no time from `session_sums`. Whatever of these is stale, and
all that needs both, comes from `sums`. Only what lies across an edge of the selected time, or belongs to a session
whose tags change within it, is read from the turns themselves.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from burnd.index.grains import BUCKET_MS, GRAINS, SHIFT_MS, begin_of, bucket_of
from burnd.index.sums import DAY
from burnd.queries.kinds import Kinds
from burnd.queries.periods import Stretch, stretches
from burnd.queries.scanning import (
    DAYS,
    NOTHING,
    PROMPTS,
    QUARTERS,
    SESSION_ACTIVITIES,
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
    within,
)
from burnd.queries.selection import Selection
from burnd.queries.view import View
from burnd.records.times import DAY_MS

_FEW_DAYS = 8  # that are stale: of these only the sessions they have turns of are read


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
        ((first, last),) = self._view.rows("SELECT min(first_bucket), max(last_bucket) FROM endings")
        if first is None:
            return 0, 0
        begin, end = begin_of(first), begin_of(last + 1)
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
            rows += self._over_all_sessions(by)
        elif by.unit is None:
            rows += self._whole_sessions(by)
        else:
            rows += self._by_session_and_time(by)
        rows += self._one_by_one(UNLOGGED, by, self._fine)
        return rows + self._mixed(TURNS, by, self._fine)

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

    def read_facts(self, table: Table, by: By, beside: str = NOTHING) -> Iterator[Parts]:
        """Counts rows of a table of its own, with one of its columns beside the kind."""
        return by.parts(self._one_by_one(table, by, self._chosen.kinds, beside))

    def read_prompts(self, by: By) -> Iterator[Parts]:
        """Counts prompts with edits, with their retries beside the kind."""
        return by.parts(self._one_by_one(PROMPTS, by, self._chosen.kinds, "x.tries"))

    def _over_all_sessions(self, by: By) -> list[Row]:
        rows: list[Row] = []
        for stretch in self._stretches(by):
            (begin, end), edges = _whole_buckets(stretch)
            table = self._condensed_by(by, stretch.offset)
            first, last = -(-begin // DAY), end // DAY
            if table is None or first >= last:
                rows += self._fine_sums(by, stretch.offset, begin, end)
            else:
                rows += self._condensed(by, stretch.offset, table, first, last)
                rows += self._fine_sums(by, stretch.offset, begin, first * DAY)
                rows += self._fine_sums(by, stretch.offset, last * DAY, end)
            rows += self._at_edges(by, edges)
        return rows

    def _condensed_by(self, by: By, offset: int) -> Table | None:
        """The condensed table with the longest buckets that no local day or hour cuts; None if there is none."""
        if by.unit is None or (by.unit == "day" and not offset % DAY_MS):
            return DAYS
        is_plain = by.keys == ("time",) and (self._chosen.places, self._chosen.activities) == (None, None)
        return QUARTERS if is_plain else None

    def _condensed(self, by: By, offset: int, table: Table, first: int, last: int) -> list[Row]:
        """Whole days of UTC: from `time_sums`, and those that are stale from `sums`."""
        stale = self._view.rows("SELECT day FROM stale_days WHERE day >= ? AND day < ?", (first, last))
        per_day = DAY if table is QUARTERS else 1
        when = [Clause(f"x.bucket >= {first * per_day} AND x.bucket < {last * per_day}")]
        if stale:
            when.append(Clause(f"x.bucket / {per_day} NOT IN (SELECT day FROM stale_days)"))
        rows = self._scan.plain(table, by, [*when, *self._terms_of_all()], offset)
        if len(stale) <= _FEW_DAYS:
            for (day,) in stale:
                rows += self._fine_sums(by, offset, day * DAY, (day + 1) * DAY)
            return rows
        when = [
            Clause(f"x.bucket >= {first * DAY} AND x.bucket < {last * DAY}"),
            Clause(f"x.bucket / {DAY} IN (SELECT day FROM stale_days)"),
        ]
        return rows + self._scan.plain(SUMS, by, [*when, *self._terms_of_all()], offset)

    def _fine_sums(self, by: By, offset: int, begin: int, end: int) -> list[Row]:
        """What lies between two buckets, of the sessions that were active then."""
        if begin >= end:
            return []
        active = f"x.session IN (SELECT session FROM endings WHERE last_bucket >= {begin} AND first_bucket < {end})"
        terms = [Clause(f"{active} AND x.bucket >= {begin} AND x.bucket < {end}"), *self._terms_of_all()]
        return self._scan.plain(SUMS, by, terms, offset)

    def _terms_of_all(self) -> list[Clause]:
        chosen = self._chosen
        return [
            *within("x.class", self._fine),
            *within("x.place", chosen.places),
            *within("x.activity", chosen.activities),
        ]

    def _whole_sessions(self, by: By) -> list[Row]:
        """Sessions that lie within the selected time as a whole; those across its edges turn by turn."""
        inside, across = self.sessions()
        terms = self._scan.terms(SUMS, self._fine)
        clean = Clause("x.session NOT IN (SELECT session FROM stale_sessions)")
        by_activity = self._chosen.activities is not None or "activity" in by.keys
        table = SESSION_ACTIVITIES if by_activity else SESSION_SUMS
        rows = self._scan.by_session(table, by, [*terms, clean], sessions=inside)
        if self._view.rows("SELECT 1 FROM stale_sessions LIMIT 1"):
            stale = Clause("x.session IN (SELECT session FROM stale_sessions)")
            rows += self._scan.by_session(SUMS, by, [*terms, stale], sessions=inside)
        return rows + (self._at_edges(by, [Stretch(self.begin, self.end)], across) if across else [])

    def _by_session_and_time(self, by: By) -> list[Row]:
        rows: list[Row] = []
        for stretch in self._stretches(by):
            (begin, end), edges = _whole_buckets(stretch)
            if begin < end:
                when = Clause(f"x.bucket >= {begin} AND x.bucket < {end}")
                rows += self._scan.by_session(SUMS, by, [when, *self._scan.terms(SUMS, self._fine)], stretch.offset)
            rows += self._at_edges(by, edges)
        return rows

    def _at_edges(self, by: By, edges: list[Stretch], sessions: frozenset[int] | None = None) -> list[Row]:
        rows: list[Row] = []
        for edge in edges:
            terms = [during(edge), *within("x.session", sessions), *self._scan.terms(TURNS, self._fine)]
            rows += self._scan.plain(TURNS, by, terms, edge.offset)
        return rows

    def _one_by_one(self, table: Table, by: By, kinds: frozenset[int] | None, beside: str = NOTHING) -> list[Row]:
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
_TOUCHING = (
    "SELECT session, first_bucket >= ? AND last_bucket < ? FROM endings WHERE last_bucket >= ? AND first_bucket <= ?"
)
