"""Turns what pieces of rails count now, and what they counted before, into changes of the sums by time and session."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from operator import add
from typing import Final, NamedTuple

from burnd.causes.cause import MISS, TOOL, Numbered
from burnd.causes.packs import A_DAY, Counted, Key
from burnd.index.rollup import BLOCK, DAY, GRAINS

COUNTED: Final = (
    "n",
    "input",
    "output",
    "reasoning",
    "cache_read",
    "cache_create_5m",
    "cache_create_1h",
    "searches",
    "entered",
    "calls",
    "errors",
)
_DAYS_A_BLOCK: Final = GRAINS[BLOCK] // A_DAY
AGE: Final = BLOCK + 1  # for what there is very much of
BLOCKS_AN_AGE: Final = 16
EVERY: Final = 0  # place or activity

Change = list[int]  # how many rows more or less, and what is counted
Number = tuple[int, ...]


class Rolled(NamedTuple):
    """Changes of `cause_sums` and `session_causes`, by their keys."""

    by_time: dict[Number, Change]
    by_session: dict[Number, Change]


def rolled(pieces: Iterable[tuple[int, Counted | None, Counted | None]], causes: Mapping[int, Numbered]) -> Rolled:
    """What pieces, each of a session, change: what they count now in the place of what they counted before."""
    by_day: dict[Number, Change] = {}
    by_session: dict[Number, Change] = {}
    by_activity: dict[Number, Change] = {}
    for session, before, after in pieces:
        old, new = before or Counted(), after or Counted()
        for (bucket, kind, place, branch, subagent, cause), change in _changes(old.by_time, new.by_time).items():
            _add(by_day, (bucket // A_DAY, place, cause, kind), change)
            for level, number in _levels(causes[cause]):
                _add(by_session, (level, session, number, kind, place, branch, subagent), change)
        for activity in old.by_activity.keys() | new.by_activity.keys():
            changes = _changes(old.by_activity.get(activity, {}), new.by_activity.get(activity, {}))
            for (day, kind, place, _, _, cause), change in changes.items():
                block = day // _DAYS_A_BLOCK
                for level, number in _levels(causes[cause]):
                    # Targets of activities are kept by age alone: by block they would take as much as all else.
                    grains = ((DAY, day), (BLOCK, block)) if level in (TOOL, MISS) else ((AGE, block // BLOCKS_AN_AGE),)
                    for grain, bucket in grains:
                        _add(by_activity, (level, grain, activity, place, bucket, number, kind), change)
    return Rolled(_kept(by_activity | _by_time(by_day, causes)), _kept(by_session))


def _by_time(by_day: dict[Number, Change], causes: Mapping[int, Numbered]) -> dict[Number, Change]:
    """Every way in which sums are kept. Days of targets are told by place alone: they are many, and places few."""
    sums: dict[Number, Change] = {}
    for (day, place, cause, kind), change in by_day.items():
        block = day // _DAYS_A_BLOCK
        for level, number in _levels(causes[cause]):
            _add(sums, (level, DAY, EVERY, place, day, number, kind), change)
            _add(sums, (level, BLOCK, EVERY, place, block, number, kind), change)
            _add(sums, (level, BLOCK, EVERY, EVERY, block, number, kind), change)
            if level in (TOOL, MISS):
                _add(sums, (level, DAY, EVERY, EVERY, day, number, kind), change)
            else:
                age = block // BLOCKS_AN_AGE
                _add(sums, (level, AGE, EVERY, EVERY, age, number, kind), change)
                _add(sums, (level, AGE, EVERY, place, age, number, kind), change)
    return sums


def _levels(cause: Numbered) -> tuple[tuple[int, int], ...]:
    """The levels at which a cause is summed up, each with the number it has there."""
    if cause.level in (TOOL, MISS):
        return ((cause.level, cause.id),)
    return (TOOL, cause.whole), (cause.level, cause.subject)


def _changes(before: Mapping[Key, list[int]], after: Mapping[Key, list[int]]) -> dict[Key, Change]:
    changes = {key: [1, *row] for key, row in after.items()}
    for key, row in before.items():
        now = changes.get(key)
        if now is None:
            changes[key] = [-1, *(-amount for amount in row)]
        elif now[1:] == row:
            del changes[key]
        else:
            changes[key] = [0, *(one - other for one, other in zip(now[1:], row, strict=True))]
    return changes


def _add(sums: dict[Number, Change], key: Number, change: Change) -> None:
    row = sums.get(key)
    if row is None:
        sums[key] = change
    else:
        sums[key] = [*map(add, row, change)]


def _kept(sums: dict[Number, Change]) -> dict[Number, Change]:
    return {key: change for key, change in sums.items() if any(change)}
