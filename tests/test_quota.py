"""Readings of an account: which of them are new_readings, and that what is repeated all day is recorded once."""

from __future__ import annotations

from typing import Any

import anyio

from burnd.limits import Quotas, Recorded, new_readings
from burnd.records import Quota
from burnd.records.times import to_ms
from tests.conftest import Opened
from tests.make import at

HOUR = 3600


def reading(seconds: float, percent: float, resets: float | None = 5 * HOUR, window: Any = "5h", **more: Any) -> Quota:
    resets_at = None if resets is None else at(resets)
    facts = {"ts": at(seconds), "source": "claude-code", "window": window, "used_percent": percent}
    return Quota(**{**facts, "resets_at": resets_at, **more})


def taken(*readings: Quota) -> list[tuple[str, float]]:
    return [(quota.window, quota.used_percent) for quota in new_readings(readings, [])]


def test_only_what_rises_is_news() -> None:
    """A session that idles repeats its figure, and an outdated one is lower: neither is recorded."""
    assert taken(reading(1, 16), reading(2, 18), reading(3, 18), reading(4, 16), reading(5, 19)) == [
        ("5h", 16),
        ("5h", 18),
        ("5h", 19),
    ]


def test_the_next_window_starts_at_zero() -> None:
    assert taken(reading(1, 90), reading(6 * HOUR, 2, 10 * HOUR)) == [("5h", 90), ("5h", 2)]


def test_a_window_that_is_over_is_not_spoken_of_any_more() -> None:
    """A session left open overnight still shows yesterday's window."""
    assert taken(reading(5 * HOUR, 90), reading(9 * HOUR, 95)) == []


def test_two_windows_do_not_mix() -> None:
    assert taken(reading(1, 40), reading(1, 10, 90 * HOUR, "7d"), reading(1, 10, source="other")) == [
        ("5h", 40),
        ("7d", 10),
        ("5h", 10),
    ]


def test_an_end_that_is_rounded_is_the_same_end() -> None:
    assert taken(reading(1, 40, 5 * HOUR), reading(2, 40, 5 * HOUR + 59)) == [("5h", 40)]


def test_another_account_is_another_window() -> None:
    """After a login to another account the ends differ, and so both are followed."""
    assert taken(reading(1, 90, 5 * HOUR), reading(2, 3, 4 * HOUR), reading(3, 4, 4 * HOUR)) == [
        ("5h", 90),
        ("5h", 3),
        ("5h", 4),
    ]


def test_tenths_are_enough() -> None:
    """Figures come with the noise of binary fractions, which is no new_readings."""
    assert taken(reading(1, 28.000000000000004), reading(2, 28.04), reading(3, 28.1)) == [("5h", 28.0), ("5h", 28.1)]


def test_without_an_end_every_other_figure_is_news() -> None:
    assert taken(reading(1, 5, None), reading(2, 5, None), reading(3, 2, None)) == [("5h", 5), ("5h", 2)]


def test_nonsense_is_left_out() -> None:
    """No percentage, or an end that lies too far away to be one."""
    for percent in (float("nan"), float("inf"), -1, 5000):
        assert taken(reading(1, percent)) == []
    (kept,) = new_readings([reading(1, 5, 300 * HOUR)], [])
    assert kept.resets_at is None


def test_what_the_ledger_has_counts() -> None:
    recorded = [Recorded("claude-code", "5h", 50.0, to_ms(at(5 * HOUR)))]
    assert new_readings([reading(1, 49), reading(2, 50)], recorded) == []
    assert len(new_readings([reading(3, 50.1)], recorded)) == 1


async def test_it_is_recorded_once(opened: Opened) -> None:
    """For any number of sessions that report it at once, and across restarts."""
    pipeline = await opened()
    quotas = Quotas(pipeline)
    async with anyio.create_task_group() as tasks:
        for n in range(5):
            tasks.start_soon(quotas.record, [reading(n, 42)])
    pipeline = await opened()
    assert await Quotas(pipeline).record([reading(9, 42), reading(9, 43)]) == 1
    recorded = [e.entry.used_percent for e in pipeline.journal.read() if isinstance(e.entry, Quota)]
    assert recorded == [42, 43]


async def test_readings_do_not_wait_for_the_disk(opened: Opened) -> None:
    """Readings are queued and recorded later, even while the ledger is busy."""
    pipeline = await opened()
    quotas = Quotas(pipeline)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(quotas.run)
        async with pipeline._writing():
            for n in range(2000):
                quotas.enqueue([reading(n, n / 100)])
            assert list(pipeline.journal.read()) == []
        with anyio.fail_after(60):
            while not list(pipeline.journal.read()):  # noqa: ASYNC110 - what is waited for is in a file
                await anyio.sleep(0.01)
        tasks.cancel_scope.cancel()
    highest = max(e.entry.used_percent for e in pipeline.journal.read() if isinstance(e.entry, Quota))
    assert highest == 20.0
