"""Sums the tokens of selected turns by cause, from the fewest rows that give exact figures.

Whole UTC days come from precomputed sums: over all sessions from `cause_blocks`, else from `cause_sums`. Partial days
at the ends of the period, and sessions whose tags change while they run, are attributed again for the selected turns
only.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, groupby
from operator import add, sub
from pathlib import Path
from typing import Any, NamedTuple

from burnd.attribution import segments
from burnd.attribution.cause_keys import FILE, NAMED, PAID_LEVELS, TOOL, CauseKey, CauseNumber, cause_number
from burnd.attribution.segments import ALL_ACTIVITIES, SHIFT_MS
from burnd.attribution.tally import Sums
from burnd.index.sums import bucket_of
from burnd.pricing import UNITS_PER_USD
from burnd.queries.periods import Stretch, stretches
from burnd.queries.selection import Selection
from burnd.queries.sums import SUMS, TURNS, By, Clause, Reader, Table, during, within
from burnd.queries.tally import Kind, Kinds, Parts, Tally, usage
from burnd.queries.view import Mistaken, View
from burnd.records.times import DAY_MS

_CONTEXT = Sums(input=1, cache_read=1, cache_create_5m=1, cache_create_1h=1)


def rates_of(rank: str, kinds: Kinds) -> dict[int, Sums]:
    """By kind, the weight of each field of `attribution.Sums` in `CauseSum.weight`."""
    ids = [kind.id for kind in kinds]
    if rank == "tokens":
        return dict.fromkeys(ids, _CONTEXT._replace(output=1, reasoning=1))
    if rank == "rides":
        return dict.fromkeys(ids, _CONTEXT._replace(entered=-1))
    return {kind.id: Sums(*kind.own_rates, searches=kind.search_units) if kind.own_rates else Sums() for kind in kinds}


class CauseSum:
    """A running sum over causes. `units` counts priced tokens, in 10^-15 USD."""

    __slots__ = ("calls", "entered", "errors", "is_priced", "tokens", "units")

    def __init__(self) -> None:
        self.tokens = [0] * 6
        self.entered = self.calls = self.errors = self.units = 0
        self.is_priced = False

    @classmethod
    def of(cls, tally: Tally) -> CauseSum:
        total = cls()
        total.tokens, total.units = [*tally.tokens], tally.units
        total.is_priced = tally.cost_usd is not None
        return total

    def add(self, kind: Kind, sums: Sequence[int]) -> None:
        """Adds the sums of turns of one kind, in the order of `attribution.Sums`."""
        i, o, r, read, five, hour, searches, entered, calls, errors = sums
        tokens = self.tokens
        tokens[0] += i
        tokens[1] += o
        tokens[2] += r
        tokens[3] += read
        tokens[4] += five
        tokens[5] += hour
        self.entered += entered
        self.calls += calls
        self.errors += errors
        rates = kind.own_rates
        if rates is not None:
            a, b, c, d, e, f = rates
            self.units += i * a + o * b + r * c + read * d + five * e + hour * f + searches * kind.search_units
            self.is_priced = True

    def merge(self, other: CauseSum) -> None:
        self.tokens = [*map(add, self.tokens, other.tokens)]
        self.entered += other.entered
        self.calls += other.calls
        self.errors += other.errors
        self.units += other.units
        self.is_priced = self.is_priced or other.is_priced

    def subtract(self, other: CauseSum) -> None:
        """Subtracts another sum. A rest of zero units counts as unpriced."""
        self.tokens = [*map(sub, self.tokens, other.tokens)]
        self.entered -= other.entered
        self.calls -= other.calls
        self.errors -= other.errors
        self.units -= other.units
        self.is_priced = self.units != 0

    def __bool__(self) -> bool:
        return any(self.tokens) or self.units != 0

    @property
    def ride_tokens(self) -> int:
        """Tokens paid for context after the turn in which it entered."""
        fresh, _, _, read, five, hour = self.tokens
        return fresh + read + five + hour - self.entered

    @property
    def cost_usd(self) -> float | None:
        return self.units / UNITS_PER_USD if self.is_priced else None

    def weight(self, rank: str) -> int:
        if rank == "cost":
            return self.units
        return self.ride_tokens if rank == "rides" else sum(self.tokens)

    def answer(self) -> dict[str, Any]:
        cost = self.cost_usd
        return {
            "calls": self.calls,
            "errors": self.errors,
            "entered": self.entered,
            "rideTokens": self.ride_tokens,
            "usage": usage(self.tokens),
            "costUsd": cost,
            "costPerCall": cost / self.calls if cost is not None and self.calls else None,
        }


CAUSE_SUMS = Table(
    "cause_sums x", "1", SUMS.columns, tuple(f"sum(x.{name})" for name in Sums._fields), "x.day", DAY_MS, 0
)
_BLOCKS = CAUSE_SUMS._replace(source="cause_blocks x")
_TURNS = Table("turns x", "1", TURNS.columns, ("x.session", "x.rail", "x.turn_index"))
_MOST_FOLLOWED = 50_000  # turns, about three seconds
_WITHOUT_SESSIONS = frozenset(("place", "activity", "version"))


class CauseRow(NamedTuple):
    """Tokens of one cause in turns of one class: the requested keys, and counts in the order of `Sums`."""

    keys: tuple[Any, ...]
    kind: int
    cause: int
    counts: tuple[int, ...]


class Days(NamedTuple):
    """The whole UTC days of a period, from `first` to before `end`, and the rest of it as edges."""

    first: int
    end: int
    edges: list[Stretch]


class CauseReader:
    """Reads the cause sums of one selection; `reader` sums the turns of the same selection."""

    def __init__(self, view: View, ledger: Path, selection: Selection, reader: Reader) -> None:
        self._view = view
        self._ledger = ledger
        self._selection = selection
        self._reader = reader
        self.days = whole_days(selection, reader)
        self._numbers: dict[int, CauseNumber] = {}
        self._followed: dict[By, list[tuple[tuple[Any, int], segments.ByCause]]] = {}

    def read(self, level: int, by: By = By()) -> Iterator[CauseRow]:  # noqa: B008 - it is immutable
        """Sums by these keys, class and cause. A cause may come several times, from several tables."""
        if self._reader.begin >= self._reader.end:
            return
        days = self._days_by(by)
        if days.first < days.end and self._selection.is_of_all_sessions and _WITHOUT_SESSIONS.issuperset(by.keys):
            yield from self._over_all_sessions(level, by, days)
        elif days.first < days.end:
            yield from self._numbered(level, self.fine(level, by, days.first, days.end))
        yield from self._by_following(level, by, days)

    def fine(self, level: int, by: By, first: int, end: int, extra: Iterable[Clause] = ()) -> list[Parts]:
        """Rows of `cause_sums` at a level between two days, with the cause as extra column."""
        return self._reader.select(
            CAUSE_SUMS, by, [*self.terms(level, by, first, end), *extra], extra="x.cause", kinds=self._selection.kinds
        )

    def terms(self, level: int, by: By, first: int, end: int) -> list[Clause]:
        """The conditions of `cause_sums` besides those of the selection."""
        levels = PAID_LEVELS if level == TOOL else (level,)
        selection = self._selection
        terms = [Clause(f"x.level IN ({','.join(map(str, levels))})"), *_activities(selection, by)]
        if selection.begin is not None or selection.end is not None or (first, end) != self.days[:2]:
            terms.append(Clause(f"x.day >= {first} AND x.day < {end}"))
        if selection.branches is not None:
            branches = within("branch", selection.branches)[0]
            on_branches = f"x.session IN (SELECT session FROM sums WHERE {branches.sql})"
            terms.append(Clause(on_branches, branches.bound))
        if selection.agent_groups is not None and selection.groups is None:
            agents = within("subagent", selection.subagents)[0]
            with_agents = f"x.session IN (SELECT session FROM sums WHERE subagent <> 0 AND {agents.sql})"
            terms.append(Clause(with_agents, agents.bound))
        return terms

    def _days_by(self, by: By) -> Days:
        """The days to read; none if local days or hours differ from UTC days: then turns are read one by one."""
        begin, end = self._reader.begin, self._reader.end
        if by.unit is None:
            return self.days
        local = stretches(begin, end, self._selection.zone)
        if by.unit == "day" and all(not stretch.offset % DAY_MS for stretch in local):
            return self.days
        ((turns,),) = self._view.rows("SELECT count(*) FROM turns WHERE ts >= ? AND ts < ?", (begin, end))
        if turns > _MOST_FOLLOWED:
            what = f"causes by {by.unit} in this time zone are for {_MOST_FOLLOWED:,} turns at most, here are {turns:,}"
            raise Mistaken(what, "shorten the period with since and until, or use the time zone UTC")
        return Days(0, 0, [Stretch(begin, end)])

    def _over_all_sessions(self, level: int, by: By, days: Days) -> Iterator[CauseRow]:
        """Sums from whole blocks that are not stale, and other days from the sessions active then."""
        first, end, _ = days
        blocks = range(-(-first // segments.BLOCK_DAYS), end // segments.BLOCK_DAYS)
        stale = {row[0] for row in self._view.rows("SELECT block FROM stale_blocks")}
        whole = [block for block in blocks if block not in stale]
        if whole:
            terms = [
                *within("x.block", frozenset(whole)),
                Clause(f"x.level = {level}"),
                *_activities(self._selection, by),
            ]
            for parts in self._reader.select(_BLOCKS, by, terms, extra="x.cause", kinds=self._selection.kinds):
                yield CauseRow(*parts)  # type: ignore[arg-type]
        for begin, upto in _between(first, end, whole):
            buckets = [bucket_of(day * DAY_MS - SHIFT_MS) for day in (begin, upto)]
            active = Clause(
                "x.session IN (SELECT session FROM endings WHERE last_bucket >= ? AND first_bucket < ?)", tuple(buckets)
            )
            yield from self._numbered(level, self.fine(level, by, begin, upto, [active]))

    def _numbered(self, level: int, rows: Iterable[Parts]) -> Iterator[CauseRow]:
        """Rows of `cause_sums` with the numbers of their causes at a level."""
        rows = [*rows]
        missing = {(cause,) for _, _, cause, _ in rows if cause not in self._numbers}
        for row in self._view.keyed(
            "SELECT id, level, whole, subject FROM causes WHERE id IN ({keys})", sorted(missing)
        ):
            self._numbers[row[0]] = cause_number(*row)
        for keys, kind, cause, counts in rows:
            number = self._numbers[cause].at(level)
            if number is not None:
                yield CauseRow(keys, kind, number, tuple(counts))

    def _by_following(self, level: int, by: By, days: Days) -> Iterator[CauseRow]:
        """Sums of turns outside whole days, and of sessions whose tags change."""
        if by not in self._followed:
            self._followed[by] = [*self._follow(by, days)]
        sums = self._followed[by]
        numbers = self._numbers_of({key for _, causes in sums for key in causes}, level)
        for (keys, kind), causes in sums:
            for key, counts in causes.items():
                if (number := numbers[key]) is not None:
                    yield CauseRow(keys, kind, number, tuple(counts))

    def _follow(self, by: By, days: Days) -> Iterator[tuple[tuple[Any, int], segments.ByCause]]:
        wide, kinds = By(("turn", *by.keys), by.unit), self._selection.kinds
        parts = [self._reader.select(_TURNS, wide, [during(edge)], kinds=kinds) for edge in days.edges]
        rows = [
            (counts, keys, kind) for keys, kind, _, counts in chain(*parts, self._reader.mixed(_TURNS, wide, kinds))
        ]
        rows.sort(key=_segment)
        for segment, some in groupby(rows, key=_segment):
            buckets = {turn: (tuple(keys), kind) for _, (turn, *keys), kind in some}
            yield from segments.explain_turns(self._view.db, self._ledger, *segment, buckets).items()

    def _numbers_of(self, keys: set[CauseKey], level: int) -> dict[CauseKey, int | None]:
        """The numbers of causes at a level; None if a cause does not count there or has no row yet."""
        targets: dict[CauseKey, CauseKey] = {}
        for key in keys:
            if level == TOOL and key.level in PAID_LEVELS:
                targets[key] = key.whole
            elif level != TOOL and key.level == level:
                targets[key] = key.subject if FILE <= level <= NAMED else key
        rows = self._view.keyed(_BY_NAME, [tuple(key) for key in {*targets.values()}])
        numbers = {CauseKey(*row[1:]): row[0] for row in rows}
        return {key: numbers.get(targets[key]) if key in targets else None for key in keys}


def _activities(selection: Selection, by: By) -> list[Clause]:
    """Without a filter on activity, selects the rows that sum over all activities."""
    if selection.activities is not None:
        return []
    return [Clause(f"x.activity {'<>' if 'activity' in by.keys else '='} {ALL_ACTIVITIES}")]


def whole_days(selection: Selection, reader: Reader) -> Days:
    """Divides the selected period into whole days and edges; an open end cuts no block."""
    begin, end = reader.begin + SHIFT_MS, reader.end + SHIFT_MS
    block = segments.BLOCK_DAYS * DAY_MS
    first = begin // block * segments.BLOCK_DAYS if selection.begin is None else -(-begin // DAY_MS)
    last = -(-end // block) * segments.BLOCK_DAYS if selection.end is None else end // DAY_MS
    if first >= last:
        return Days(0, 0, [Stretch(reader.begin, reader.end)])
    edges = (Stretch(reader.begin, first * DAY_MS - SHIFT_MS), Stretch(last * DAY_MS - SHIFT_MS, reader.end))
    return Days(first, last, [edge for edge in edges if edge.begin < edge.end])


def _between(first: int, end: int, blocks: Iterable[int]) -> Iterator[tuple[int, int]]:
    """The ranges of days outside these blocks."""
    for block in sorted(blocks):
        if first < block * segments.BLOCK_DAYS:
            yield first, block * segments.BLOCK_DAYS
        first = (block + 1) * segments.BLOCK_DAYS
    if first < end:
        yield first, end


def _segment(row: tuple[Any, ...]) -> tuple[int, str, int]:
    session, rail, turn_index = row[0]
    return session, rail, turn_index // segments.LENGTH


_BY_NAME = """
WITH w(kind, tool, target, agent) AS ({keys})
SELECT c.id, w.kind, w.tool, w.target, w.agent FROM w
LEFT JOIN names t ON t.name = w.tool LEFT JOIN names g ON g.name = w.target LEFT JOIN names a ON a.name = w.agent
CROSS JOIN causes c ON c.kind = w.kind AND c.tool = iif(w.tool = '', 0, t.id)
  AND c.target = iif(w.target = '', 0, g.id) AND c.agent = iif(w.agent = '', 0, a.id)
"""
