"""Usage of a plan's windows, their forecast, and the account's own readings."""

from __future__ import annotations

import asyncio
import itertools
import time
from bisect import bisect_left
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from burnd.attribution.explainer import Explainer
from burnd.contract.reports import CompareParams, LimitsParams, StatuslineParams
from burnd.paths import Home
from burnd.queries.compare import compare
from burnd.queries.limits import LENGTHS, Window, limits, reported, windows
from burnd.queries.status import statusline
from burnd.queries.view import View
from burnd.recording.candidate import Batch
from burnd.recording.pipeline import Pipeline
from burnd.records import Quota, Usage
from burnd.records.codec import Entry
from burnd.records.times import HOUR_MS, to_iso
from tests.conftest import Opened
from tests.make import START_MS, examples, turn
from tests.queries.looking import look

BASE = START_MS - START_MS % (24 * HOUR_MS)  # midnight, UTC


def at(hours: float) -> str:
    return to_iso(BASE + round(hours * HOUR_MS))


def spends(name: str, hours: float, *, output: int = 1000, **changes: Any) -> Any:
    """A turn that costs $0.015 for every 1,000 tokens of output."""
    return turn(name, ts=at(hours), usage=Usage(output=output), **changes)


def said(hours: float, percent: float, resets: float | None, window: Any = "5h") -> Quota:
    resets_at = None if resets is None else at(resets)
    return Quota(ts=at(hours), source="claude-code", window=window, used_percent=percent, resets_at=resets_at)


async def asked(pipeline: Pipeline, now: float, budgets: Any = None, **params: Any) -> dict[str, Any]:
    return await look(pipeline, lambda view: limits(view, LimitsParams(**params), budgets), at(now))


async def test_the_running_window(opened: Opened) -> None:
    """Turns, tokens and cost since the full hour before the first turn, and how long it still runs."""
    pipeline = await opened()
    await pipeline.commit(Batch(entries=[spends("m1", 10.5), spends("m2", 12), spends("m0", 3)]))
    window = (await asked(pipeline, 12.5))["windows"]["5h"]["current"]
    assert (window["from"], window["to"], window["basis"]) == (at(10), at(15), "counted")
    assert (window["turns"], window["usage"]["output"], window["costUsd"]) == (2, 2000, 0.03)
    assert window["secondsLeft"] == 2.5 * 3600
    assert window["quota"] is None


async def test_pace_and_projection(opened: Opened) -> None:
    """The pace is that since the first turn; what is left of the window is reckoned at the same pace."""
    pipeline = await opened()
    await pipeline.commit(Batch(entries=[spends("m1", 11), spends("m2", 12)]))
    window = (await asked(pipeline, 13))["windows"]["5h"]["current"]
    assert window["firstTurn"] == at(11)
    assert window["pace"] == {"turnsPerHour": 1.0, "tokensPerHour": 1000.0, "usdPerHour": 0.015}
    assert window["projected"] == {"turns": 5, "tokens": 5000, "costUsd": pytest.approx(0.075)}


async def test_a_pace_of_a_minute_is_not_blown_up(opened: Opened) -> None:
    """A first turn a second ago does not make thousands of dollars of a window, nor an hour's work of a week."""
    pipeline = await opened()
    await pipeline.commit(Batch(entries=[spends("m1", 11)]))
    windows = (await asked(pipeline, 11 + 1 / 3600))["windows"]
    assert windows["5h"]["current"]["pace"]["usdPerHour"] == pytest.approx(0.06)
    assert windows["7d"]["current"]["pace"]["usdPerHour"] == pytest.approx(0.015 / 8.4)


async def test_no_window_between_windows(opened: Opened) -> None:
    pipeline = await opened()
    await pipeline.commit(Batch(entries=[spends("m1", 3)]))
    answer = await asked(pipeline, 9)
    assert answer["windows"]["5h"]["current"] is None
    assert [w["from"] for w in answer["windows"]["5h"]["history"]] == [at(3)]
    assert answer["windows"]["7d"]["current"]["turns"] == 1


async def test_an_empty_ledger_has_no_windows(opened: Opened) -> None:
    pipeline = await opened()
    answer = await asked(pipeline, 9)
    assert answer["windows"] == {name: {"current": None, "history": []} for name in ("5h", "7d")}
    assert (answer["budgets"], answer["crossed"]) == ([], [])


async def test_history_is_newest_first_and_as_long_as_asked(opened: Opened) -> None:
    pipeline = await opened()
    await pipeline.commit(Batch(entries=[spends(f"m{n}", n * 6, output=n * 1000) for n in range(1, 6)]))
    history = (await asked(pipeline, 40, history=3))["windows"]["5h"]["history"]
    assert [w["from"] for w in history] == [at(30), at(24), at(18)]
    assert [w["costUsd"] for w in history] == [0.075, 0.06, 0.045]
    assert (await asked(pipeline, 40, history=0))["windows"]["5h"]["history"] == []


def shown(answer: dict[str, Any], name: str) -> list[tuple[str, str, str]]:
    return [(w["from"], w["to"], w["basis"]) for w in answer["windows"][name]["history"]]


async def test_old_readings_cost_nothing(opened: Opened) -> None:
    """A year has a hundred thousand readings: a query for windows reads only its own."""
    pipeline = await opened()
    await pipeline.commit(Batch(entries=[spends("m1", 10.5), said(10.6, 5, 15), said(10.7, 7, 15, "7d")]))

    def plans(view: View) -> list[str]:
        seen: list[str] = []
        view.db.set_trace_callback(seen.append)
        limits(view, LimitsParams())
        statusline(view, StatuslineParams(session="s1"))
        compare(view, CompareParams())
        view.db.set_trace_callback(None)
        asked = [sql for sql in seen if "quotas" in sql]
        return [row[3] for sql in asked for row in view.rows(f"EXPLAIN QUERY PLAN {sql}")]

    found = await look(pipeline, plans, at(12))
    assert any("quotas_by_reset" in step for step in found)
    assert any("quotas_by_time" in step for step in found)
    assert not [step for step in found if step.startswith(("SCAN q", "SCAN quotas"))]


@settings(max_examples=examples(8), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.integers(0, 60 * 60 * 24 * 3), min_size=1, max_size=40), st.sets(st.integers(0, 72), max_size=3))
def test_windows_are_found_in_the_index_as_they_are_reckoned(
    tmp_path_factory: pytest.TempPathFactory, seconds: list[int], resets: set[int]
) -> None:
    """However the index jumps from window to window, it finds those that a walk over all turns finds."""
    moments = sorted(BASE + second * 1000 for second in seconds)

    def next_turn(ts: int) -> int | None:
        found = bisect_left(moments, ts)
        return moments[found] if found < len(moments) else None

    async def check() -> None:
        opener = Opened(Home(tmp_path_factory.mktemp("windows") / "home"))
        try:
            await check_with(await opener())
        finally:
            await opener.close()

    async def check_with(pipeline: Pipeline) -> None:
        entries: list[Entry] = [turn(f"m{n}", ts=to_iso(moment)) for n, moment in enumerate(moments)]
        entries += [said(hour - 0.2, 5, hour + 1 / 3) for hour in resets]
        await pipeline.commit(Batch(entries=entries))
        answer = await asked(pipeline, 1000, history=1000)
        for name, length in LENGTHS.items():
            known = reported([BASE + (hour * 60 + 20) * 60_000 for hour in resets] if name == "5h" else [], length)
            expected = [(to_iso(w.begin), to_iso(w.end), w.basis) for w in windows(next_turn, known, length)]
            assert shown(answer, name) == expected[::-1]
            assert shown(await asked(pipeline, 1000, history=2), name) == expected[:-3:-1]
            laid = [*known, *windows(next_turn, known, length)]
            runs = [w.end for w in laid if w.begin <= moments[-1] < w.end]
            current = (await asked(pipeline, (moments[-1] - BASE) / 3_600_000))["windows"][name]["current"]
            assert (current["to"] if current else None) == (to_iso(runs[0]) if runs else None)

    asyncio.run(check())


async def test_account_readings_are_shown_beside_counted_usage(opened: Opened) -> None:
    """A recorded reading gives the real share, the real end, its pace and when it runs out."""
    pipeline = await opened()
    await pipeline.commit(Batch(entries=[spends("m1", 10.5), said(11, 20, 15.25), said(12.25, 40, 15.25)]))
    window = (await asked(pipeline, 12.5))["windows"]["5h"]["current"]
    assert (window["from"], window["to"], window["basis"]) == (at(10.25), at(15.25), "reported")
    assert (window["turns"], window["costUsd"]) == (1, 0.015)
    quota = window["quota"]
    assert (quota["usedPercent"], quota["seenAt"], quota["resetsAt"]) == (40, at(12.25), at(15.25))
    assert quota["percentPerHour"] == pytest.approx(20)
    assert quota["projectedPercent"] == pytest.approx(100)
    assert quota["fullAt"] is None
    assert window["readings"] == [{"ts": at(11), "usedPercent": 20}, {"ts": at(12.25), "usedPercent": 40}]


async def test_a_quota_that_runs_out_says_when(opened: Opened) -> None:
    pipeline = await opened()
    await pipeline.commit(Batch(entries=[said(12.25, 80, 15.25)]))
    quota = (await asked(pipeline, 12.5))["windows"]["5h"]["current"]["quota"]
    assert quota["fullAt"] == at(12.75)
    assert quota["projectedPercent"] == pytest.approx(200)


async def test_a_figure_that_fell_back_does_not_count(opened: Opened) -> None:
    """An idle session shows an old figure: what is used is the most that was seen."""
    pipeline = await opened()
    await pipeline.commit(Batch(entries=[said(12, 40, 15), said(12.1, 30, 15)]))
    quota = (await asked(pipeline, 12.5))["windows"]["5h"]["current"]["quota"]
    assert (quota["usedPercent"], quota["seenAt"]) == (40, at(12))


async def test_a_window_of_the_account_shows_without_any_turn(opened: Opened) -> None:
    """The quota may have been used on another machine: the ledger counts nothing, and that is shown too."""
    pipeline = await opened()
    await pipeline.commit(Batch(entries=[said(12, 55.5, 14)]))
    window = (await asked(pipeline, 12.5))["windows"]["5h"]["current"]
    assert (window["turns"], window["costUsd"], window["quota"]["usedPercent"]) == (0, None, 55.5)
    assert (window["pace"], window["projected"], window["firstTurn"]) == (None, None, None)


async def test_the_quota_of_windows_that_are_over(opened: Opened) -> None:
    """History keeps the most that was used of each window, beside its cost."""
    pipeline = await opened()
    await pipeline.commit(Batch(entries=[spends("m1", 3), said(4, 10, 8), said(5, 70, 8), said(6, 3, 100, "7d")]))
    answer = await asked(pipeline, 30)
    (over,) = answer["windows"]["5h"]["history"]
    assert (over["quota"]["usedPercent"], over["costUsd"]) == (70, 0.015)
    assert answer["windows"]["7d"]["current"]["quota"]["usedPercent"] == 3


async def test_another_source_has_windows_of_its_own(opened: Opened) -> None:
    pipeline = await opened()
    await pipeline.commit(Batch(entries=[spends("m1", 10), spends("m2", 12, source="opencode"), said(12, 9, 14)]))
    mine = (await asked(pipeline, 12.5))["windows"]["5h"]["current"]
    other = (await asked(pipeline, 12.5, source="opencode"))["windows"]["5h"]["current"]
    assert (mine["turns"], other["turns"], other["from"], other["quota"]) == (1, 1, at(12), None)


async def test_unpriced_and_empty_turns(opened: Opened) -> None:
    """Unpriced usage is counted and reported; a turn without usage begins no window."""
    pipeline = await opened()
    entries = [spends("m1", 10, model="nobody-knows"), spends("m0", 2, quality="empty")]
    await pipeline.commit(Batch(entries=entries))
    answer = await asked(pipeline, 11)
    window = answer["windows"]["5h"]["current"]
    assert (window["turns"], window["unpricedTurns"], window["costUsd"]) == (1, 1, None)
    assert (window["pace"]["usdPerHour"], window["projected"]["costUsd"]) == (None, None)
    assert answer["windows"]["5h"]["history"] == []


@pytest.fixture
def _utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.usefixtures("_utc")
async def test_what_has_no_price_is_no_nothing_spent(opened: Opened) -> None:
    """A day of turns without a price is unknown, not $0.00; a status line and a budget count them."""
    pipeline = await opened()
    await pipeline.commit(Batch(entries=[spends("m1", 10, model="house-model")]))
    (daily,) = (await asked(pipeline, 12, {"daily": Decimal("0.01")}))["budgets"]
    assert (daily["spentUsd"], daily["leftUsd"], daily["projectedUsd"], daily["crossed"]) == (None, None, None, False)
    assert daily["unpricedTurns"] == 1
    line = await look(pipeline, lambda view: statusline(view, StatuslineParams(session="s1")), at(12))
    assert line["today"] == {"costUsd": None, "unpricedTurns": 1}
    assert line["session"] == {"turns": 1, "costUsd": None, "unpricedTurns": 1}
    assert line["window"]["unpricedTurns"] == 1


@pytest.mark.usefixtures("_utc")
async def test_budgets_are_listed_with_the_remainder(opened: Opened) -> None:
    """Spent, left and projected, for every budget that is set, over all sources."""
    pipeline = await opened()
    await pipeline.commit(Batch(entries=[spends("m1", 6), spends("m2", 7, source="opencode"), spends("m0", -3)]))
    answer = await asked(pipeline, 12, {"daily": Decimal("0.02"), "monthly": Decimal(1)})
    daily, monthly = answer["budgets"]
    assert (daily["from"], daily["to"], daily["period"]) == (at(0), at(24), "daily")
    assert (daily["spentUsd"], daily["leftUsd"], daily["projectedUsd"], daily["crossed"]) == (0.03, 0, 0.06, True)
    assert (monthly["spentUsd"], monthly["leftUsd"], monthly["crossed"]) == (0.045, 0.955, False)
    assert answer["crossed"] == ["daily"]


async def test_how_often_a_limit_was_reached_and_what_a_percent_cost(opened: Opened) -> None:
    """By the account's own readings; a reading does not include what was spent after it."""
    pipeline = await opened()
    turns = [spends("m1", 0.5), spends("m2", 4), spends("m3", 6.5, output=4000), spends("m4", 11), spends("m5", 12)]
    readings = [said(1, 10, 5), said(7, 100, 10), said(11.5, 20, 15)]
    await pipeline.commit(Batch(entries=[*turns, *readings]))
    windows = (await asked(pipeline, 13))["windows"]["5h"]
    (reached,) = windows["reached"]
    assert (reached["from"], reached["to"], reached["at"], reached["by"]) == (at(5), at(10), at(7), "account")
    assert (reached["turns"], reached["costUsd"]) == (1, 0.06)
    assert (windows["reachedCount"], windows["windowCount"], windows["limitUsd"]) == (1, 3, None)
    assert windows["usdPerPercent"] == pytest.approx((0.015 + 0.06 + 0.015) / (10 + 100 + 20))
    week = (await asked(pipeline, 13))["windows"]["7d"]
    assert "reached" not in week


async def test_a_plan_in_dollars(opened: Opened) -> None:
    """Without readings, the cost of a window decides whether it reached the limit."""
    pipeline = await opened()
    await pipeline.commit(Batch(entries=[spends("m1", 0.5), spends("m2", 6, output=4000), spends("m3", 12)]))
    answer = await look(pipeline, lambda view: limits(view, LimitsParams(), None, {"5h": 0.05}), at(13))
    windows = answer["windows"]["5h"]
    assert [(one["by"], one["at"], one["costUsd"]) for one in windows["reached"]] == [("dollars", at(6), 0.06)]
    assert (windows["windowCount"], windows["limitUsd"]) == (3, 0.05)
    assert windows["usdPerPercent"] == pytest.approx(0.0005)


async def test_dollars_count_for_the_whole_window(opened: Opened) -> None:
    """A reading before the end does not hide what was spent after it; `at` is the quarter of an hour."""
    pipeline = await opened()
    turns = [spends("m1", 0.5), spends("m2", 2.6), spends("m3", 4)]
    await pipeline.commit(Batch(entries=[*turns, said(1, 10, 5)]))
    answer = await look(pipeline, lambda view: limits(view, LimitsParams(), None, {"5h": 0.03}), at(6))
    (reached,) = answer["windows"]["5h"]["reached"]
    assert (reached["by"], reached["at"], reached["costUsd"]) == ("dollars", at(2.5), 0.045)
    assert answer["windows"]["5h"]["usdPerPercent"] == pytest.approx(0.015 / 10)


async def test_a_reading_without_a_reset_is_of_the_window_at_its_time(opened: Opened) -> None:
    """As from a message in a log that a limit is reached."""
    pipeline = await opened()
    full = Quota(ts=at(7), source="claude-code", window="5h", used_percent=100.0)
    await pipeline.commit(Batch(entries=[spends("m1", 0.5), spends("m2", 6.5), full]))
    windows = (await asked(pipeline, 13))["windows"]["5h"]
    assert [(one["from"], one["at"], one["by"]) for one in windows["reached"]] == [(at(6), at(7), "account")]
    assert windows["usdPerPercent"] == pytest.approx(0.015 / 100)


async def test_what_filled_a_window(opened: Opened) -> None:
    """By project, session and group of causes; each adds up to the cost of the window."""
    pipeline = await opened()
    places = ({"session_id": "a", "project": "/code/a"}, {"session_id": "b", "project": "/code/b"})
    turns = [spends(f"m{n}", 0.5 + n / 10, output=1000 * (1 + 2 * (n % 2)), **places[n % 2]) for n in range(4)]
    await pipeline.commit(Batch(entries=[*turns, said(2, 100, 5)]))
    await Explainer(pipeline).catch_up()
    ledger = pipeline.home.ledger
    answer = await look(pipeline, lambda view: limits(view, LimitsParams(filled=True), None, None, ledger), at(13))
    (filled,) = answer["windows"]["5h"]["filled"]
    assert (filled["from"], filled["to"]) == (at(0), at(5))
    assert [(one["key"], one["share"]) for one in filled["projects"]] == [("/code/b", 0.75), ("/code/a", 0.25)]
    assert [one["key"] for one in filled["sessions"]] == ["b", "a"]
    for rows in (filled["projects"], filled["sessions"], filled["causes"]):
        assert sum(one["costUsd"] for one in rows) == pytest.approx(0.12)
    assert "filled" not in (await asked(pipeline, 13))["windows"]["5h"]


MINUTE_MS = 60_000
FIVE = LENGTHS["5h"]


def laid(turns: list[int], resets: list[int] | None = None, length: int = FIVE) -> list[Window]:
    ordered = sorted(turns)

    def next_turn(ts: int) -> int | None:
        found = bisect_left(ordered, ts)
        return ordered[found] if found < len(ordered) else None

    return list(windows(next_turn, reported(resets or [], length), length))


def clock(hours: int, minutes: int = 0) -> int:
    return hours * HOUR_MS + minutes * MINUTE_MS


def test_a_window_begins_at_the_full_hour_before_its_first_turn() -> None:
    """Work from 10:55 on counts from 10:00 to 15:00."""
    assert laid([clock(10, 55), clock(11, 10), clock(14, 59)]) == [Window(clock(10), clock(15), "counted")]


def test_the_next_window_waits_for_the_next_turn() -> None:
    """A window ends whether or not anybody works; the next begins with work, not with the clock."""
    assert laid([clock(10, 55), clock(15), clock(21, 30)]) == [
        Window(clock(10), clock(15), "counted"),
        Window(clock(15), clock(20), "counted"),
        Window(clock(21), clock(26), "counted"),
    ]


def test_a_week_is_a_longer_window() -> None:
    week = LENGTHS["7d"]
    assert laid([clock(10, 55), clock(100)], length=week) == [Window(clock(10), clock(10) + week, "counted")]


def test_a_reported_end_is_believed() -> None:
    """The account reports 16:20: the window is 11:20 to 16:20, and the next begins after it."""
    assert laid([clock(11, 25), clock(16, 10), clock(16, 30)], [clock(16, 20)]) == [
        Window(clock(11, 20), clock(16, 20), "reported"),
        Window(clock(16, 20), clock(21, 20), "counted"),
    ]


def test_what_was_only_reckoned_gives_way_to_what_was_reported() -> None:
    """Windows do not overlap: the one before a reported one was over when that began."""
    assert laid([clock(10, 55), clock(11, 30)], [clock(16, 20)]) == [
        Window(clock(10), clock(11, 20), "counted"),
        Window(clock(11, 20), clock(16, 20), "reported"),
    ]


def test_two_readings_of_one_end_are_one_window() -> None:
    """A provider rounds: 16:20:00 and 16:20:59 are the same reset."""
    assert laid([clock(12)], [clock(16, 20), clock(16, 20) + 59_000]) == [
        Window(clock(11, 20), clock(16, 20), "reported")
    ]


def test_a_window_ends_where_the_next_reported_one_begins() -> None:
    """Providers have moved a week's end: then the later word holds from where the earlier one ended."""
    week = LENGTHS["7d"]
    ends = [clock(200), clock(250)]
    assert reported(ends, week) == [
        Window(clock(200) - week, clock(200), "reported"),
        Window(clock(200), clock(250), "reported"),
    ]


@given(st.lists(st.integers(0, 100 * HOUR_MS), max_size=60), st.lists(st.integers(0, 100 * HOUR_MS), max_size=6))
def test_every_turn_is_in_exactly_one_window(turns: list[int], resets: list[int]) -> None:
    """Whatever was done and reported: windows are in order, never overlap, are never too long, and miss no turn."""
    found = laid(turns, resets)
    assert found == sorted(found)
    assert all(one.end <= other.begin for one, other in itertools.pairwise(found))
    assert all(0 < window.end - window.begin <= FIVE for window in found)
    for ts in turns:
        assert sum(window.begin <= ts < window.end for window in found) == 1
