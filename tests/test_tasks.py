"""Timers that repeat fire at shared moments, so that the machine wakes up less often."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from burnd.tasks import next_tick


@given(st.floats(0, 1e8), st.sampled_from([0.02, 1.0, 5.0, 10.0, 30.0]))
def test_the_next_tick_is_within_the_interval(after: float, every: float) -> None:
    """It comes later, within the requested time."""
    assert after < next_tick(after, every) <= after + every + 1e-6


def test_timers_coincide() -> None:
    """Timers of five, ten and thirty seconds coincide, whenever each began."""
    fives = {next_tick(now, 5.0) for now in (101.3, 104.9, 106.0, 111.7, 118.0)}
    assert fives == {105.0, 110.0, 115.0, 120.0}
    assert {next_tick(now, 10.0) for now in (100.1, 109.0)} == {110.0}
    assert next_tick(90.2, 30.0) == pytest.approx(120.0)
