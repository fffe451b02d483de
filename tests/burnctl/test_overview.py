"""The figures of the overview: each period against the average of the time before it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pytest

from burnctl.client import Client
from burnctl.commands.overview import _PASSED_ON, drawn, gather, periods
from burnctl.render.names import distinct_names
from burnctl.render.notes import add_caveats
from burnctl.render.screen import Screen
from tests.burnctl.demo_home import DemoHome

TODAY = date(2025, 11, 17)
NOW = 1_763_389_800.0  # 14:30 in Greenwich
USAGE = {"input": 10, "output": 5, "reasoning": 0, "cacheRead": 80, "cacheCreate5m": 5, "cacheCreate1h": 0}


@pytest.fixture(autouse=True)
def _greenwich(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def day(age: int, cost: float | None) -> dict[str, Any]:
    key = (TODAY - timedelta(days=age)).isoformat()
    return {"key": key, "costUsd": cost, "turns": 2, "usage": USAGE}


def hour(age: int, at: int, cost: float) -> dict[str, Any]:
    return {"key": f"{TODAY - timedelta(days=age)}T{at:02d}:00+00:00", "costUsd": cost}


def changes(days: list[dict[str, Any]], hours: list[dict[str, Any]]) -> list[float | None]:
    return [period["change"] for period in periods(days, hours, NOW)]


def test_periods_add_up_their_days() -> None:
    rows = periods([day(age, 1.0) for age in range(60)], [], NOW)
    assert [(row["period"], row["costUsd"], row["requests"], row["tokens"]) for row in rows] == [
        ("today", 1.0, 2, 100), ("7 days", 7.0, 14, 700), ("30 days", 30.0, 60, 3000),
    ]  # fmt: skip


def test_today_is_compared_with_the_same_hours_of_earlier_days() -> None:
    """The hours before now count in full, the running one by half at half past, later ones not at all."""
    days = [day(0, 3.0), day(28, 0.0)]
    hours = [hour(3, 10, 14.0), hour(2, 14, 28.0), hour(1, 20, 100.0), hour(0, 9, 3.0)]
    assert changes(days, hours)[0] == pytest.approx((3.0 - 1.0) / 1.0)


def test_weeks_and_months_are_compared_with_those_before() -> None:
    """7 days with the average of the four before, 30 days with the 30 before."""
    days = [day(age, 2.0 if age < 7 else 1.0) for age in range(60)]
    _, week, month = changes(days, [])
    assert week == pytest.approx(1.0)
    assert month == pytest.approx((37.0 - 30.0) / 30.0)


def test_without_a_whole_period_before_there_is_no_change() -> None:
    assert changes([day(0, 1.0)], []) == [None, None, None]
    assert changes([day(age, 1.0) for age in range(13)], [])[1] is None
    assert changes([day(age, 1.0) for age in range(14)], [])[1] == pytest.approx(0.0)
    assert changes([day(age, 1.0) for age in range(59)], [])[2] is None


def answer(**more: Any) -> dict[str, Any]:
    period = {"period": "today", "costUsd": 1.0, "requests": 2, "tokens": 100, "change": 0.08}
    rows = [{"key": "claude-code", "costUsd": 310.22, "share": 1.0}]
    empty: dict[str, Any] = {"days": [], "hours": [], "projects": [], "models": [], "windows": [], "running": []}
    periods = [period, period | {"period": "30 days"}]
    return {"periods": periods, **empty, "harnesses": rows, "avoidable": None, "totals": {"costUsd": 310.22}} | more


def test_after_a_month_without_requests_all_time_is_shown(demo: DemoHome) -> None:
    """Logs that did not grow for long show their totals at once."""
    with Client(Path(demo.home) / "burnd.sock") as client:
        answer = gather(client, time.time() + 90 * 86_400)
        totals: dict[str, Any] = {**client.summary()["totals"]}
    assert [row["period"] for row in answer["periods"]] == ["today", "7 days", "30 days", "all time"]
    last = answer["periods"][-1]
    assert (last["requests"], last["costUsd"]) == (totals["turns"], totals["costUsd"])
    assert last["tokens"] == sum(totals["usage"].values())
    shown = drawn(answer, Screen(80))
    assert "projects, all time" in shown
    assert "shop-api" in shown


def test_periods_fit_a_narrow_screen() -> None:
    """Tokens are left out first, and the footnote line names them."""
    period = {"period": "30 days", "costUsd": 1204.4, "requests": 12_345, "tokens": 4_800_000, "change": -0.25}
    narrow, said = Screen(36), answer(periods=[period])
    lines = narrow.page(said, drawn(said, narrow)).splitlines()
    assert max(map(len, lines)) <= 36
    assert lines[1] == "30 days  $1,204.40    12,345   ▼ 25%"
    assert lines[-1] == "No room for: tokens."


def test_the_plan_shows_what_it_covers_and_what_is_left() -> None:
    window = {"to": "2025-11-17T15:00:00Z", "quota": {"usedPercent": 42.0, "projectedPercent": 88.0}}
    week = {"to": "2025-11-20T15:00:00Z", "quota": {"usedPercent": 61.0, "projectedPercent": 88.0}}
    plan = {"name": "max20", "source": "claude-code", "title": "Claude Max 20x", "monthlyUsd": 200}
    said = answer(windows=[{"source": "claude-code", "windows": {"5h": window, "7d": week}}], plans=[plan])
    lines = drawn(said, Screen(100)).splitlines()
    assert "plan     Claude Max 20x, $200.00 a month, covers $310.22 of the last 30 days" in lines
    assert "Claude Code 5-hour window 42% used, resets 15:00 · week 61% used, on course for 88%" in lines[-1]


def test_a_plan_in_dollars_shows_what_is_used() -> None:
    """By the cost of a window, where no provider reported its use."""
    window = {"to": "2025-11-17T15:00:00Z", "quota": None, "costUsd": 14.0}
    plan = {"source": "claude-code", "windows": {"5h": window, "7d": window}, "limitUsd": {"5h": 35, "7d": None}}
    text = drawn(answer(windows=[plan]), Screen(200))
    assert "plan     Claude Code 5-hour window 40% used, resets 15:00" in text
    assert "week" not in text


def test_limits_that_were_reached_are_mentioned() -> None:
    window = {"to": "2025-11-17T15:00:00Z", "quota": {"usedPercent": 42.0, "projectedPercent": 88.0}}
    plan = {"source": "claude-code", "windows": {"5h": window, "7d": None}, "reached": {"5h": 3, "7d": 1}}
    text = drawn(answer(windows=[plan]), Screen(200))
    assert "5-hour limit reached 3 times in 30 days: burnctl limits" in text
    assert "weekly limit reached once in 30 days: burnctl limits" in text


def test_what_runs_and_what_could_be_saved() -> None:
    session = {"project": "/w/shop-api", "model": "claude-opus-4-5", "costUsd": 2.1}
    said = answer(running=[session] * 6, avoidable={"costUsd": 74.0, "kind": "cache-miss"})
    text = drawn(said, Screen(200))
    assert "running  shop-api (opus-4-5, $2.10 so far) · " in text
    assert "2 more: burnctl top" in text
    assert "save     about $74.00 of the last 30 days was avoidable, most of all cache misses: burnctl waste" in text


def test_lost_logs_are_mentioned_with_what_restores_them() -> None:
    text = drawn(answer(lostLogs={"sessions": 3, "noticedAt": "2025-11-17T15:00:00Z"}), Screen(200))
    assert "lost     the logs of 3 sessions are gone, and no clean-up explains it · burnctl sessions --gone" in text
    assert "lost" not in drawn(answer(lostLogs={"sessions": 0, "noticedAt": None}), Screen(200))


def test_old_prices_and_figures_of_the_harness_are_named_without_being_asked() -> None:
    """In the footnote of every report with costs, not only with `--notes`."""
    answer = {
        "totals": {"harnessCostUsd": 0.25},
        "harnessModels": ["house-1"],
        "unlogged": {"usage": {"input": 1000}, "costUsd": 0.5, "requests": 2},
        "stalePrices": "2025-01-01",
    }
    screen = Screen(200, is_pipe=True)
    add_caveats(answer, screen)
    assert screen.page(answer, "").strip() == (
        "$0.25 is the harness's own figure: no price list has house-1. "
        "Not included: 2 requests without a logged response (at least $0.50, 1.0k tokens). "
        "The price list of 2025-01-01 is more than 60 days old and lacks models in use: burnctl pricing update."
    )
    assert set(answer) <= set(_PASSED_ON)


def test_what_matters_little_is_not_in_the_footnote() -> None:
    """Below one percent of the bill a caveat is printed with `--notes` alone."""
    totals = {"costUsd": 10.0, "harnessCostUsd": 0.05}
    for cost, text in ((0.05, ""), (0.5, "$0.50 is the harness's own figure: no price list has house-1.")):
        screen = Screen(200)
        add_caveats({"totals": totals | {"harnessCostUsd": cost}, "harnessModels": ["house-1"]}, screen)
        assert screen.page({}, "") == text
    screen = Screen(200, with_notes=True)
    add_caveats({"totals": totals, "harnessModels": ["house-1"]}, screen)
    assert screen.page({}, "") == "$0.05 is the harness's own figure: no price list has house-1."


def test_projects_of_one_name_have_their_folder() -> None:
    assert distinct_names(["/w/a/misc", "/w/b/misc", "/w/app", None]) == ["a/misc", "b/misc", "app", ""]
