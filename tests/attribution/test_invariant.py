"""Every billed token has exactly one cause, on any rail."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from hypothesis import given

from burnd.attribution.causes import explain, parts, tally
from burnd.attribution.misses import MissGroup
from burnd.attribution.rail import Rail, RailEntry, Step
from burnd.attribution.rates import NOTHING, Rate, Spent, Sums, rate_of, spent_by
from burnd.records import Turn
from tests.attribution.strategies import ON_MANY_RAILS, THRESHOLDS, rails


def billed(entries: Iterable[RailEntry]) -> dict[Rate, Spent]:
    """The bill, from the turns alone."""
    total: dict[Rate, Spent] = {}
    for entry in entries:
        if isinstance(entry, Turn) and any(spent_by(entry)):
            rate = rate_of(entry, THRESHOLDS)
            total[rate] = total.get(rate, NOTHING).plus(spent_by(entry))
    return total


def along_the_row(rail: Rail, step: Step) -> Counter[int]:
    """Runs and pieces of a step by slot; no slot exceeds its whole."""
    row = rail.row
    by_class: Counter[int] = Counter()
    by_slot: Counter[int] = Counter()
    for rate_class, slot, below in step.runs:
        while slot != below:
            by_class[rate_class] += row.size(slot)
            by_slot[slot] += row.size(slot)
            slot = row.parents[slot]
    for rate_class, slot, tokens in step.pieces:
        assert tokens > 0
        by_class[rate_class] += tokens
        by_slot[slot] += tokens
    assert by_slot == {slot: row.size(slot) for slot in row.path[1:]}
    return by_class


@ON_MANY_RAILS
@given(rails())
def test_shares_of_every_turn_and_class_add_up_to_the_bill(entries: list[RailEntry]) -> None:
    """For every turn and every rate class the blocks' shares sum to the billed integer."""
    rail = Rail()
    for entry in entries:
        step = rail.feed(entry)
        if step is None or not isinstance(entry, Turn):
            continue
        paid = spent_by(entry)
        shares = [part.spent for part in parts(rail, step)]
        assert Spent(*(sum(column) for column in zip(*shares, strict=True))) == paid if shares else not any(paid)
        assert all(min(share) >= 0 for share in shares)
        if entry.usage.context:
            assert rail.row.total == entry.usage.context
            assert along_the_row(rail, step) == {n: paid[n] for n in (0, 3, 4, 5) if paid[n]}


@ON_MANY_RAILS
@given(rails())
def test_causes_add_up_to_the_bill(entries: list[RailEntry]) -> None:
    """The causes of a rail sum to all that its turns were billed, by model, threshold, speed and class."""
    explained = explain(entries, THRESHOLDS)
    assert explained.spent == billed(entries)
    for cause in explained.causes:
        assert all(min(spent) >= 0 for spent in cause.spent.values())
        assert cause.entered >= 0
        assert 0 <= cause.reentries <= cause.rides


@ON_MANY_RAILS
@given(rails())
def test_groups_add_up_to_the_bill(entries: list[RailEntry]) -> None:
    """The sums by group of causes, however the turns are put into buckets, are the bill, too."""
    taken = tally(Rail(), entries, lambda turn: (rate_of(turn, THRESHOLDS), turn.turn_index % 3))
    total: dict[Rate, Spent] = {}
    for (rate, _), groups in taken.items():
        for group, sums in groups.items():
            assert min(sums) >= 0
            if isinstance(group, MissGroup):
                continue  # a cache miss: its tokens are those of the causes once more
            total[rate] = total.get(rate, NOTHING).plus(Sums(*sums).spent)
    assert {rate: spent for rate, spent in total.items() if any(spent)} == billed(entries)


@ON_MANY_RAILS
@given(rails())
def test_causes_are_what_the_single_turns_say(entries: list[RailEntry]) -> None:
    """The total of a cause is the sum over its turns: no share is lost or moved."""
    slow: dict[tuple[str, str, str | None], Counter[Rate]] = {}
    rail = Rail()
    for entry in entries:
        step = rail.feed(entry)
        if step is None or not isinstance(entry, Turn):
            continue
        for part in parts(rail, step):
            key = (part.cause.kind, part.cause.message_id, part.cause.call_id)
            slow.setdefault(key, Counter())[rate_of(entry, THRESHOLDS)] += sum(part.spent)
    fast: dict[tuple[str, str, str | None], Counter[Rate]] = {}
    for cause in explain(entries, THRESHOLDS).causes:
        counted = fast.setdefault((cause.kind, cause.message_id, cause.call_id), Counter())
        counted.update({rate: sum(spent) for rate, spent in cause.spent.items()})
    assert {key: +counts for key, counts in slow.items() if +counts} == fast


@ON_MANY_RAILS
@given(rails())
def test_selected_turns_count_alone(entries: list[RailEntry]) -> None:
    """With a filter the causes are what they paid in the selected turns, and both halves make the whole."""
    odd = explain(entries, THRESHOLDS, lambda turn: turn.turn_index % 2 == 1)
    even = explain(entries, THRESHOLDS, lambda turn: turn.turn_index % 2 == 0)
    assert odd.spent == billed(e for e in entries if isinstance(e, Turn) and e.turn_index % 2 == 1)
    assert even.spent == billed(e for e in entries if isinstance(e, Turn) and e.turn_index % 2 == 0)
