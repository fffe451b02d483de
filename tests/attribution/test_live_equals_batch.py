"""Turns fed one by one, with restarts in between, end in the same sums as one clean pass."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import add
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from burnd.attribution import rail as rail_module
from burnd.attribution.causes import GroupTally, tally
from burnd.attribution.rail import Rail, RailEntry, restore, save
from burnd.attribution.rates import Sums, rate_of
from burnd.records import Block, Turn, Usage
from tests import make
from tests.attribution.strategies import ON_MANY_RAILS, THRESHOLDS, rails

Key = tuple[object, int]
Taken = Mapping[Key, Mapping[Any, Sequence[int]]]


def bucket_of(turn: Turn) -> Key:
    return (rate_of(turn, THRESHOLDS), turn.turn_index % 2)


def merged(parts: Sequence[Taken]) -> Taken:
    """All that was taken, added up as an index would."""
    sums: dict[Key, dict[Any, Sums]] = {}
    for part in parts:
        for bucket, groups in part.items():
            known = sums.setdefault(bucket, {})
            for group, more in groups.items():
                known[group] = Sums(*map(add, known.get(group, Sums()), more))
    return {bucket: groups for bucket, groups in sums.items() if groups}


def batch(entries: Sequence[RailEntry]) -> Taken:
    return merged([tally(Rail(), entries, bucket_of)])


@ON_MANY_RAILS
@given(rails(), st.lists(st.booleans(), max_size=30))
def test_one_by_one_with_restarts(entries: list[RailEntry], restarts: list[bool]) -> None:
    """A rail saved and restored between any two entries gives the same result."""
    rail, taken = Rail(), []
    counted: GroupTally[Key] = GroupTally(rail)
    for n, entry in enumerate(entries):
        if n < len(restarts) and restarts[n]:
            taken.append(counted.take())
            rail = restore(save(rail))
            counted = GroupTally(rail)
        step = rail.feed(entry)
        if step is not None and isinstance(entry, Turn):
            counted.add(step, bucket_of(entry))
    assert merged([*taken, counted.take()]) == batch(entries)


def test_a_restored_rail_finds_its_prefix_after_an_unbilled_message() -> None:
    """An unbilled message that begins a row does not make the next turn's prefix a new block."""

    def turn(n: int, parent: str | None, usage: Usage, kind: str) -> Turn:
        entered = (Block(kind=kind, bytes=400),)
        return make.turn(message_id=f"m{n}", turn_index=n, parent=parent, usage=usage, entered=entered)

    context = Usage(input=10, cache_read=20_000, cache_create_5m=2_000)
    entries: list[RailEntry] = [
        turn(0, None, Usage(cache_create_5m=20_000), "prompt"),
        turn(1, "m0", context, "prompt"),
        turn(2, None, Usage(output=5), "summary"),
        turn(3, "m2", context, "prompt"),
    ]
    rail = Rail()
    first = tally(rail, entries[:3], bucket_of)
    second = tally(restore(save(rail)), entries[3:], bucket_of)
    assert merged([first, second]) == batch(entries)


@ON_MANY_RAILS
@given(rails(most=40), st.integers(2, 8))
def test_what_is_out_of_reach_is_so_live_and_batch(entries: list[RailEntry], reach: int) -> None:
    """The reach of a rewind is a fixed rule and does not depend on what is in memory."""
    with_reach = rail_module.REACH
    rail_module.REACH = reach  # type: ignore[misc]
    try:
        rail, taken = Rail(), []
        for n in range(0, len(entries), 3):
            rail = restore(save(rail))
            taken.append(tally(rail, entries[n : n + 3], bucket_of))
        assert merged(taken) == batch(entries)
    finally:
        rail_module.REACH = with_reach  # type: ignore[misc]
