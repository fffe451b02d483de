"""Turns what pieces of rails count now, and what they counted before, into changes of the sums by time and session."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from burnd.attribution.sums import ONE, Packed, Sums, unpack
from burnd.causes.cause import EVERY, MISS, TOOL, Numbered
from burnd.causes.counting import A_DAY
from burnd.causes.packs import Counted
from burnd.index.grains import BLOCK, DAY, GRAINS

COUNTED: Final = (*Sums._fields, "n")
_DAYS_A_BLOCK: Final = GRAINS[BLOCK] // A_DAY
AGE: Final = BLOCK + 1  # for what there is very much of
BLOCKS_AN_AGE: Final = 16

Number = tuple[int, ...]
Cells = dict[int, Packed]  # by cause


class Rolled(NamedTuple):
    """Changes of `cause_sums` and `session_causes`: their keys, with what is counted."""

    by_time: list[Number]
    by_session: list[Number]


def rolled(pieces: Iterable[tuple[int, Counted, Counted]], causes: Mapping[int, Numbered]) -> Rolled:
    """What pieces, each of a session, change: what they count now in the place of what they counted before."""
    sums = _Sums()
    for session, before, after in pieces:
        for dims in before.keys() | after.keys():
            cells = _changes(before.get(dims, {}), after.get(dims, {}))
            if cells and dims.activity == EVERY:
                bucket, *where, _ = dims
                _merge(sums.by_day[session, bucket // A_DAY, *where], cells)
            elif cells:
                _merge(sums.by_activity[dims.activity, dims.bucket, dims.place, dims.kind], cells)
    return sums.rolled(causes)


class _Sums:
    """What is added up on the way: the fewer keys, the less there is to be done for each way in which sums are kept."""

    def __init__(self) -> None:
        self.by_day: defaultdict[Number, Cells] = defaultdict(dict)  # session, day, class, place, branch, subagent
        self.by_activity: defaultdict[Number, Cells] = defaultdict(dict)  # activity, day, place, class

    def rolled(self, causes: Mapping[int, Numbered]) -> Rolled:
        by_place: defaultdict[Number, Cells] = defaultdict(dict)
        by_session: defaultdict[Number, Cells] = defaultdict(dict)
        for (session, day, kind, place, branch, subagent), cells in self.by_day.items():
            _merge(by_place[EVERY, day, place, kind], cells)
            for level, some in _levels(cells, causes):
                _merge(by_session[level, session, subagent, kind, place, branch], some)
        by_time: defaultdict[Number, Cells] = defaultdict(dict)
        for (activity, day, place, kind), cells in (*by_place.items(), *self.by_activity.items()):
            for level, some in _levels(cells, causes):
                for way in _ways(level, activity, day, place):
                    _merge(by_time[*way, kind], some)
        return Rolled(
            sorted((*way, cause, kind, *sums) for (*way, kind), cause, sums in _counted(by_time)),
            sorted((*key[:3], cause, *key[3:], *sums) for key, cause, sums in _counted(by_session)),
        )


def _ways(level: int, activity: int, day: int, place: int) -> Iterator[Number]:
    """Every way in which sums are kept: level, grain, activity, place, bucket.

    Days of targets are told by place alone: they are many, and places few. Targets of activities are kept by age alone:
    by block they would take as much as all else.
    """
    block = day // _DAYS_A_BLOCK
    age = block // BLOCKS_AN_AGE
    of_tool = level in (TOOL, MISS)
    if of_tool or activity == EVERY:
        yield level, DAY, activity, place, day
        yield level, BLOCK, activity, place, block
    if not of_tool:
        yield level, AGE, activity, place, age
    if activity == EVERY:
        yield level, BLOCK, EVERY, EVERY, block
        yield (level, DAY, EVERY, EVERY, day) if of_tool else (level, AGE, EVERY, EVERY, age)


def _levels(cells: Cells, causes: Mapping[int, Numbered]) -> Iterator[tuple[int, Cells]]:
    """The same at each level at which its causes are summed up, under the numbers they have there."""
    found: defaultdict[int, Cells] = defaultdict(dict)
    for cause, counted in cells.items():
        number, whole, subject, level = causes[cause]
        if level in (TOOL, MISS):
            some = found[level]
            some[number] = some.get(number, 0) + counted
        else:
            some, targets = found[TOOL], found[level]
            some[whole] = some.get(whole, 0) + counted
            targets[subject] = targets.get(subject, 0) + counted
    yield from found.items()


def _changes(before: Cells, after: Cells) -> Cells:
    """What is more or less, each with how many rows more or less there are."""
    if not before:
        return {cause: counted + ONE for cause, counted in after.items()}
    changes = {cause: counted + ONE for cause, counted in after.items()}
    for cause, counted in before.items():
        changes[cause] = changes.get(cause, 0) - counted - ONE
    return {cause: change for cause, change in changes.items() if change}


def _merge(sums: Cells, more: Cells) -> None:
    for cause, counted in more.items():
        sums[cause] = sums.get(cause, 0) + counted


def _counted(sums: Mapping[Number, Cells]) -> Iterator[tuple[Number, int, Number]]:
    for key, cells in sums.items():
        for cause, counted in cells.items():
            if counted:
                yield key, cause, unpack(counted)
