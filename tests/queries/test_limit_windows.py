"""Where windows begin and end: with the first turn after the last one, at the full hour, or as was reported."""

from __future__ import annotations

import itertools
from bisect import bisect_left

from hypothesis import given
from hypothesis import strategies as st

from burnd.queries.limits import LENGTHS, Window, reported, windows
from burnd.records.times import HOUR_MS

MINUTE_MS = 60_000
FIVE = LENGTHS["5h"]


def laid(turns: list[int], resets: list[int] | None = None, length: int = FIVE) -> list[Window]:
    ordered = sorted(turns)

    def next_turn(ts: int) -> int | None:
        found = bisect_left(ordered, ts)
        return ordered[found] if found < len(ordered) else None

    return list(windows(next_turn, reported(resets or [], length), length))


def at(hours: int, minutes: int = 0) -> int:
    return hours * HOUR_MS + minutes * MINUTE_MS


def test_a_window_begins_at_the_full_hour_before_its_first_turn() -> None:
    """Work from 10:55 on counts from 10:00 to 15:00."""
    assert laid([at(10, 55), at(11, 10), at(14, 59)]) == [Window(at(10), at(15), "counted")]


def test_the_next_window_waits_for_the_next_turn() -> None:
    """A window ends whether or not anybody works; the next begins with work, not with the clock."""
    assert laid([at(10, 55), at(15), at(21, 30)]) == [
        Window(at(10), at(15), "counted"),
        Window(at(15), at(20), "counted"),
        Window(at(21), at(26), "counted"),
    ]


def test_a_week_is_a_longer_window() -> None:
    week = LENGTHS["7d"]
    assert laid([at(10, 55), at(100)], length=week) == [Window(at(10), at(10) + week, "counted")]


def test_a_reported_end_is_believed() -> None:
    """The account says 16:20: then the window is from 11:20 to 16:20, and the next begins after it."""
    assert laid([at(11, 25), at(16, 10), at(16, 30)], [at(16, 20)]) == [
        Window(at(11, 20), at(16, 20), "reported"),
        Window(at(16, 20), at(21, 20), "counted"),
    ]


def test_what_was_only_reckoned_gives_way_to_what_was_reported() -> None:
    """Windows do not overlap: the one before a reported one was over when that began."""
    assert laid([at(10, 55), at(11, 30)], [at(16, 20)]) == [
        Window(at(10), at(11, 20), "counted"),
        Window(at(11, 20), at(16, 20), "reported"),
    ]


def test_two_readings_of_one_end_are_one_window() -> None:
    """A provider rounds: 16:20:00 and 16:20:59 are the same reset."""
    assert laid([at(12)], [at(16, 20), at(16, 20) + 59_000]) == [Window(at(11, 20), at(16, 20), "reported")]


def test_a_window_that_was_cut_short_ends_where_the_next_one_was_told_to_begin() -> None:
    """Providers have moved a week's end: then the later word holds from where the earlier one ended."""
    week = LENGTHS["7d"]
    ends = [at(200), at(250)]
    assert reported(ends, week) == [Window(at(200) - week, at(200), "reported"), Window(at(200), at(250), "reported")]


@given(st.lists(st.integers(0, 100 * HOUR_MS), max_size=60), st.lists(st.integers(0, 100 * HOUR_MS), max_size=6))
def test_every_turn_is_in_exactly_one_window(turns: list[int], resets: list[int]) -> None:
    """Whatever was done and reported: windows are in order, never overlap, are never too long, and miss no turn."""
    found = laid(turns, resets)
    assert found == sorted(found)
    assert all(one.end <= other.begin for one, other in itertools.pairwise(found))
    assert all(0 < window.end - window.begin <= FIVE for window in found)
    for turn in turns:
        assert sum(window.begin <= turn < window.end for window in found) == 1
