"""`burnctl limits`: screens of windows, quotas and budgets, and the exit code for scripts."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest

from burnctl.commands.limits import blocks, moment
from burnctl.commands.limits import drawn as shown
from burnctl.render.screen import Screen
from burnctl.render.text import width_of
from burnd.paths import Home
from tests.burnctl.fake_daemon import fake_daemon
from tests.burnctl.invoke import run

USAGE = {
    "input": 1000,
    "output": 200_000,
    "reasoning": 0,
    "cacheRead": 8_000_000,
    "cacheCreate5m": 100_000,
    "cacheCreate1h": 0,
}
QUOTA = {
    "usedPercent": 42.5,
    "seenAt": "2026-11-16T12:20:00.000Z",
    "resetsAt": "2026-11-16T15:20:00.000Z",
    "percentPerHour": 20.3,
    "projectedPercent": 104.0,
    "fullAt": "2026-11-16T15:02:00.000Z",
}


def window(begin: str, end: str, **more: Any) -> dict[str, Any]:
    facts = {"basis": "counted", "turns": 120, "openTurns": 0, "unpricedTurns": 0, "usage": USAGE, "costUsd": 12.4}
    return {"from": begin, "to": end, **facts, "quota": None, **more}


def running(begin: str, end: str, **more: Any) -> dict[str, Any]:
    facts = {
        "firstTurn": begin,
        "secondsLeft": 10_200,
        "pace": {"turnsPerHour": 3.0, "tokensPerHour": 1e6, "usdPerHour": 4.2},
        "projected": {"turns": 9, "tokens": 20_000_000, "costUsd": 24.7},
        "readings": [],
    }
    return window(begin, end, **{**facts, **more})


def budget(period: str, limit: float, spent: float, projected: float | None = None) -> dict[str, Any]:
    return {
        "period": period,
        "limitUsd": limit,
        "spentUsd": spent,
        "leftUsd": max(limit - spent, 0),
        "projectedUsd": projected,
        "unpricedTurns": 0,
        "crossed": spent >= limit,
    }


def answer(budgets: Any = (), **windows: Any) -> dict[str, Any]:
    empty: dict[str, Any] = {"current": None, "history": []}
    return {
        "version": 1,
        "source": "claude-code",
        "now": "2026-11-16T12:30:00.000Z",
        "windows": {"5h": windows.get("five", empty), "7d": windows.get("seven", empty)},
        "budgets": list(budgets),
        "crossed": [one["period"] for one in budgets if one["crossed"]],
    }


FULL = answer(
    [budget("daily", 20, 21.3, 42.6), budget("monthly", 200, 121.3)],
    five={
        "current": running(
            "2026-11-16T10:20:00.000Z",
            "2026-11-16T15:20:00.000Z",
            basis="reported",
            quota=QUOTA,
            readings=[{"ts": "x", "usedPercent": percent} for percent in (1, 5, 14, 30, 42.5)],
        ),
        "history": [
            window("2026-11-16T03:00:00.000Z", "2026-11-16T08:00:00.000Z", quota=QUOTA),
            window("2026-11-01T03:00:00.000Z", "2026-11-01T08:00:00.000Z", costUsd=None, unpricedTurns=120),
        ],
    },
)


@pytest.fixture
def screen(monkeypatch: pytest.MonkeyPatch) -> Iterator[Screen]:
    """A screen in Greenwich."""
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield Screen(80)
    monkeypatch.undo()
    time.tzset()


def test_a_page(screen: Screen) -> None:
    """Everything at once: the running window with the account's own word, budgets, what was before."""
    assert shown(FULL, screen).splitlines() == [
        "5-hour window  42% used, resets 15:20 (in 2 h 50 min)",
        "  ██████████▎·············  reported 10 min ago",
        "  ▁▁▃▆█                     20% an hour, full at 15:02",
        "  since 10:20  120 requests, 8.3M tokens, $12.40",
        "  at this rate  $4.20 an hour, $24.70 by its end",
        "",
        "No week is running.",
        "",
        "Budgets",
        "  daily    ████████████████  $21.30 of $20.00, exceeded, on course for $42.60",
        "  monthly  █████████▊······  $121.30 of $200.00, $78.70 left",
        "",
        "Earlier 5-hour windows",
        "from          to            requests  tokens    cost  used",
        "Nov  1 03:00  Nov  1 08:00       120    8.3M       -",
        "Nov 16 03:00  Nov 16 08:00       120    8.3M  $12.40   42%  ████████████████",
    ]


def test_blocks_end_with_the_running_one(screen: Screen) -> None:
    lines = blocks(FULL, screen).splitlines()
    assert lines[0] == "5-hour window  42% used, resets 15:20 (in 2 h 50 min)"
    assert lines[-1].split()[:4] == ["Nov", "16", "10:20", "running"]


@pytest.mark.parametrize("columns", [80, 160])
def test_it_fits(screen: Screen, columns: int) -> None:
    """Coloured or not, no line is wider than the screen."""
    plain = shown(FULL, Screen(columns)).splitlines()
    assert max(map(width_of, plain)) <= columns
    assert "\x1b" not in "".join(plain)
    assert "\x1b[31m" in shown(FULL, Screen(columns, color=True))


def test_unpriced_usage_is_mentioned(screen: Screen) -> None:
    current = running(
        "2026-11-16T10:00:00.000Z",
        "2026-11-16T15:00:00.000Z",
        costUsd=None,
        unpricedTurns=120,
        pace={"turnsPerHour": 3.0, "tokensPerHour": 1e6, "usdPerHour": None},
        projected={"turns": 9, "tokens": 20_000_000, "costUsd": None},
    )
    lines = shown(answer(five={"current": current, "history": []}), screen).splitlines()
    assert lines[:3] == [
        "5-hour window  - so far, resets 15:00 (in 2 h 50 min)",
        "  since 10:00  120 requests, 8.3M tokens, - (120 without a price)",
        "  at this rate  1.0M tokens an hour, 20.0M tokens by its end",
    ]


def test_a_budget_shows_what_has_no_price(screen: Screen) -> None:
    """Turns without a price are listed separately and not counted as $0.00."""
    nothing = budget("daily", 20, 0) | {"spentUsd": None, "leftUsd": None, "unpricedTurns": 12}
    some = budget("monthly", 20, 3) | {"unpricedTurns": 12}
    lines = shown(answer([nothing, some]), screen)
    assert "- of $20.00 (12 without a price)" in lines
    assert "$3.00 of $20.00, $17.00 left (12 without a price)" in lines
    assert "$0.00" not in lines


def test_times_of_today_have_no_date(screen: Screen) -> None:
    now = 1_794_832_200_000.0  # Monday, 2026-11-16 12:30
    assert moment("2026-11-16T15:00:00Z", now) == "15:00"
    assert moment("2026-11-17T15:00:00Z", now) == "Nov 17 15:00"
    assert moment("2026-11-23T15:00:00Z", now) == "Nov 23 15:00"


@pytest.mark.parametrize(
    ("budgets", "code", "said"),
    [
        (
            [budget("daily", 20, 31.2), budget("monthly", 500, 31.2)],
            1,
            "the daily budget is exceeded: $31.20 of $20.00\n",
        ),
        ([budget("daily", 20, 3)], 0, "no budget is exceeded\n"),
        (
            [budget("daily", 20, 3) | {"spentUsd": None, "leftUsd": None, "unpricedTurns": 4000}],
            0,
            "no budget is exceeded (4,000 requests without a price)\n",
        ),
        ([], 0, "no budget is set; set one with: burnctl config set budget.daily 20\n"),
    ],
)
def test_check_has_an_exit_code_for_scripts(home: Home, budgets: Any, code: int, said: str) -> None:
    """--check prints one line that agrees with its exit code."""
    with fake_daemon(home.root / "burnd.sock", limits=answer(budgets)) as server:
        done = run(home, "limits", "--check")
        assert (done.returncode, done.stdout, done.stderr) == (code, said, "")
        assert server.asked == [("limits", {"history": 0})]
        as_json = run(home, "limits", "--check", "--json")
        assert (as_json.returncode, json.loads(as_json.stdout)["crossed"]) == (code, answer(budgets)["crossed"])


def test_json_is_the_answer_of_the_socket(home: Home) -> None:
    with fake_daemon(home.root / "burnd.sock", limits=FULL) as server:
        done = run(home, "limits", "--json", "--history", "3", "--source", "opencode")
        assert json.loads(done.stdout) == FULL
        assert server.asked == [("limits", {"source": "opencode", "history": 3})]


def test_without_a_daemon(home: Home) -> None:
    """A script learns that burnd is down from the exit code, --check or not."""
    for flags in ([], ["--check"]):
        done = run(home, "limits", *flags)
        assert (done.returncode, done.stdout) == (3, "")


@pytest.mark.parametrize("count", ["-1", "many", "1001", "1.5"])
def test_a_bad_number_is_a_mistake_of_usage(home: Home, count: str) -> None:
    assert run(home, "limits", f"--history={count}").returncode == 2


def test_limits_that_were_reached_and_what_filled_them(screen: Screen) -> None:
    begin, end = "2026-11-15T10:00:00.000Z", "2026-11-15T15:00:00.000Z"
    reached = {"from": begin, "to": end, "at": "2026-11-15T11:02:00.000Z", "by": "account", "turns": 9, "costUsd": 14.2}
    shares = {
        "projects": [{"key": "/code/shop", "costUsd": 10.0, "share": 0.7}],
        "sessions": [{"key": "0f9c1d2e-6b7a", "title": "Fix the tests", "costUsd": 9.0, "share": 0.6}],
        "causes": [{"key": "files", "costUsd": 5.0, "share": 0.35}],
    }
    use = {"limitUsd": None, "reached": [reached], "reachedCount": 3, "windowCount": 41, "usdPerPercent": 0.31}
    five = {"current": None, "history": [], **use, "filled": [{"from": begin, "to": end, **shares}]}
    page = " ".join(shown(answer([budget("daily", 20, 1)], five=five), screen).split())
    assert "5-hour limit: reached in 3 of 41 windows, last Nov 15 11:02, 1% cost about $0.31" in page
    assert "What filled the 5-hour window Nov 15 10:00 to Nov 15 15:00" in page
    assert "sessions Fix the tests $9.00 (60%)" in page
    assert "causes file reads $5.00 (35%)" in page


def test_a_plan_in_dollars_has_a_share(screen: Screen) -> None:
    current = running("2026-11-16T10:00:00.000Z", "2026-11-16T15:00:00.000Z")
    page = shown(answer(five={"current": current, "history": [], "limitUsd": 31.0}), screen)
    assert "5-hour window  40% used ($12.40 of $31.00)" in page
