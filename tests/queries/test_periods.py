"""Parses times in the caller's words and time zone."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from burnd.queries.periods import (
    HOUR_SLOTS,
    day_name,
    hour_name,
    hour_slot,
    local,
    moment,
    offset_at,
    stretches,
    zone_of,
)
from burnd.queries.view import Refusal
from burnd.records.times import DAY_MS, HOUR_MS, to_iso, to_ms

NOW = to_ms("2026-11-16T10:20:30.400Z")
BERLIN, KATHMANDU, SAO_PAULO = zone_of("Europe/Berlin"), zone_of("Asia/Kathmandu"), zone_of("America/Sao_Paulo")
ZONES = (
    "UTC",
    "Europe/Berlin",
    "America/New_York",
    "Asia/Kathmandu",
    "Australia/Lord_Howe",
    "+05:45",
    "America/Sao_Paulo",
)


@pytest.mark.parametrize(
    ("said", "means"),
    [
        (0, "1970-01-01T00:00:00.000Z"),
        ("now", "2026-11-16T10:20:30.400Z"),
        ("24h", "2026-11-15T10:20:30.400Z"),
        ("30m", "2026-11-16T09:50:30.400Z"),
        ("7d", "2026-11-09T10:20:30.400Z"),
        ("4W", "2026-10-19T10:20:30.400Z"),
        ("today", "2026-11-15T23:00:00.000Z"),
        ("yesterday", "2026-11-14T23:00:00.000Z"),
        ("week", "2026-11-15T23:00:00.000Z"),
        ("Month", "2026-10-31T23:00:00.000Z"),
        ("2026-10", "2026-09-30T22:00:00.000Z"),
        ("2026-10-25", "2026-10-24T22:00:00.000Z"),
        ("20261025", "2026-10-24T22:00:00.000Z"),
        ("2026-10-25T12:00", "2026-10-25T11:00:00.000Z"),
        ("2026-10-25T12:00:00Z", "2026-10-25T12:00:00.000Z"),
        ("2026-10-25 12:00:00.5+02:00", "2026-10-25T10:00:00.500Z"),
    ],
)
def test_forms_of_a_time(said: str | int, means: str) -> None:
    """Relative times count back from now, days and times without a zone are the caller's."""
    assert to_iso(moment(said, NOW, BERLIN)) == means


@pytest.mark.parametrize(
    ("said", "means"),
    [
        ("2026-10-25", "2026-10-25T23:00:00.000Z"),
        ("2026-10", "2026-10-31T23:00:00.000Z"),
        ("2025-12", "2025-12-31T23:00:00.000Z"),
        ("week", "2026-11-22T23:00:00.000Z"),
        ("month", "2026-11-30T23:00:00.000Z"),
        ("yesterday", "2026-11-15T23:00:00.000Z"),
        ("today", "2026-11-16T23:00:00.000Z"),
        ("2026-10-25T12:00Z", "2026-10-25T12:00:00.000Z"),
        ("2d", "2026-11-14T10:20:30.400Z"),
    ],
)
def test_a_day_that_is_the_end_is_meant_whole(said: str, means: str) -> None:
    """`until 2026-10-25` takes that day in, all 25 hours of it; a time of day is itself."""
    assert to_iso(moment(said, NOW, BERLIN, is_end=True)) == means


def test_a_day_without_midnight_begins_when_clocks_jump() -> None:
    """Where clocks moved forward at midnight, the day began at one o'clock."""
    assert to_iso(moment("2018-11-04", NOW, SAO_PAULO)) == "2018-11-04T03:00:00.000Z"


@pytest.mark.parametrize(
    "said",
    ["soon", "7x", "", "2026-13-01", "2026-02-30", "99999999999999999999d", "1e9", "0000-01-01", "2026-13", "9999-12"],
)
def test_what_is_no_time_is_refused_with_what_would_be(said: str) -> None:
    with pytest.raises(Refusal, match="invalid time") as refused:
        moment(said, NOW, BERLIN)
    assert "7d" in refused.value.hint


@pytest.mark.parametrize("said", ["Mars/Olympus", "../etc/passwd", "+99:00", 5000, "berlin\0"])
def test_what_is_no_time_zone_is_refused(said: str | int) -> None:
    with pytest.raises(Refusal, match="unknown time zone"):
        zone_of(said)


def test_a_time_zone_can_be_a_name_or_an_offset() -> None:
    assert (
        offset_at(NOW, zone_of("Asia/Kathmandu")) == offset_at(NOW, zone_of("+05:45")) == offset_at(NOW, zone_of(345))
    )
    assert offset_at(NOW, zone_of("UTC-3")) == offset_at(NOW, zone_of("-0300")) == -3 * HOUR_MS
    assert zone_of(None) is UTC


@given(st.sampled_from(ZONES), st.integers(0, 4_000_000_000_000), st.integers(1, 800 * DAY_MS), st.data())
def test_stretches_have_one_offset_and_leave_nothing_out(
    name: str, begin: int, length: int, data: st.DataObject
) -> None:
    """Cut where clocks are set, stretches cover the time without gaps; at any moment the offset is the zone's."""
    zone = zone_of(name)
    found = stretches(begin, begin + length, zone)
    assert [s.begin for s in found] == [begin, *(s.end for s in found[:-1])]
    assert found[-1].end == begin + length
    at = data.draw(st.integers(begin, begin + length - 1))
    (around,) = [s for s in found if s.begin <= at < s.end]
    assert around.offset == offset_at(at, zone)


@given(st.sampled_from(ZONES), st.integers(0, 4_000_000_000_000))
def test_days_and_hours_are_named_as_clocks_show_them(name: str, at: int) -> None:
    zone = zone_of(name)
    clock, offset = local(at, zone), offset_at(at, zone)
    shifted = at + offset + to_ms("1970-01-01") - to_ms("0001-01-01")
    assert day_name(shifted // DAY_MS) == clock.strftime("%Y-%m-%d")
    if offset % HOUR_MS % 60_000 == 0:
        hour = datetime.fromisoformat(hour_name(shifted // HOUR_MS * HOUR_SLOTS + hour_slot(offset)))
        assert hour <= clock < hour + timedelta(hours=1)
