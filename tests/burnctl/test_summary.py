"""Screens of summary and compare, from answers as the socket gives them."""

from __future__ import annotations

import re
import time
from datetime import date, timedelta
from typing import Any

import pytest

from burnctl.commands import compare, summary
from burnctl.render.screen import Screen
from burnctl.render.text import width_of
from burnd.paths import Home
from tests.burnctl.fake_daemon import fake_daemon
from tests.burnctl.invoke import run

EVIL = "\x1b]52;c;cm0gLXJm\x07\x1b[31m\u202e"


def sums(turns: int = 3, cost: float | None = 1.5, **more: Any) -> dict[str, Any]:
    usage = {"input": 12_345, "output": 999, "reasoning": 1, "cacheRead": 9_000_000, "cacheCreate5m": 70_000,
             "cacheCreate1h": 5}  # fmt: skip
    counts = {"openTurns": 0, "partialTurns": 0, "unpricedTurns": 0, "emptyTurns": 0}
    return {"turns": turns, **counts, "usage": usage, "costUsd": cost, "cacheHitRate": 0.93} | more


def answer(by: str, *keys: Any, **more: Any) -> dict[str, Any]:
    rows = [{"key": key, **sums(), "share": 1 / len(keys)} for key in keys]
    return {"by": by, "totals": sums(9), "rows": rows, "moreRows": 0, "unpricedModels": [], "unlogged": None,
            "filters": {}, "pending": 0, "newest": "2026-11-16T00:00:00.000Z"} | more  # fmt: skip


def page(said: dict[str, Any], width: int = 80, **options: Any) -> str:
    screen = Screen(width, with_notes=True)
    shown = screen.page(said, summary.drawn(said, screen, **options))
    assert all(width_of(line) <= width for line in shown.splitlines())
    assert "\x1b" not in shown
    return shown


@pytest.mark.parametrize("width", [60, 80, 160])
def test_names_are_whole_before_columns_are(width: int) -> None:
    """Models that differ only at their ends are distinguishable at any width; columns are dropped, and the wide screen
    has all."""
    shown = page(answer("model", "claude-sonnet-4-5", "claude-sonnet-4-6", "claude-opus-4-5-20251101"), width)
    assert "sonnet-4-5 " in shown
    assert "sonnet-4-6 " in shown
    assert "opus-4-5 " in shown
    alike = page(answer("model", "claude-opus-4-5-20251101", "claude-opus-4-5"), width)
    assert "claude-opus-4-5-20251101" in alike
    assert ("No room for" in shown) == (width != 160)


def test_a_plan_is_named_with_what_it_covers() -> None:
    """Above rows that it does not cover, it is not."""
    shown = page(answer("source", "claude-code", "api", covered=[("Claude Max 20x", 1.25)]))
    assert "Claude Max 20x covers $1.25 of it" in shown
    plans = [{"name": "max20", "title": "Claude Max 20x", "source": "claude-code", "monthlyUsd": 200}]
    assert "Claude Max" not in page(answer("source", "api", plans=plans, covered=[]))


def test_a_tree_of_agents_with_a_plan(home: Home) -> None:
    """What the plan covers is asked by harness, with the same filters, without the tree and its limit."""
    plans = [{"name": "max20", "title": "Claude Max 20x", "source": "claude-code", "monthlyUsd": 200}]
    with fake_daemon(home.root / "burnd.sock", summary=answer("agent", "a", plans=plans)) as server:
        assert run(home, "agents", "--tree", "--limit", "1", "--model", "opus").returncode == 0
    first, second = (params for method, params in server.asked if method == "summary")
    assert (first["by"], first["tree"], first["limit"]) == ("agent", True, 1)
    assert second == {"by": "source", "model": "opus"}


def test_a_missing_model_name_is_marked() -> None:
    """In its row and where requests without a price are counted."""
    shown = page(answer("model", "gpt-5", "", unpricedModels=["", "house"]))
    assert shown.splitlines()[4].startswith("(unknown) ")
    assert "0 requests without a price ((unknown), house)" in shown


def test_hours_have_distinct_labels() -> None:
    shown = page(answer("hour", "2026-10-25T01:00+02:00", "2026-10-25T03:00+01:00"))
    assert "2026-10-25 01:00" in shown
    assert "2026-10-25 03:00" in shown


def test_sessions_are_shown_by_what_can_be_typed_back() -> None:
    said = answer("session", "0f9c12ab-1111-4222-8333-444455556666")
    said["rows"][0] |= {"project": "github.com/me/it", "createdAt": "2026-11-16T10:00:00.000Z", "parentSessionId": None}
    assert "0f9c12ab  it" in page(said)
    said["rows"][0]["title"] = "Fix it"
    assert "0f9c12ab  Fix it  it" in page(said, 160)


def test_a_tree_shows_whose_agents_are_whose() -> None:
    """A parent's line includes everything below it."""
    said = answer("agent", "lead", "helper")
    said["rows"][0] |= {"depth": 0, "subtree": sums(6, 3.0)}
    said["rows"][1] |= {"depth": 1, "subtree": sums(3, 1.5)}
    lines = page(said).splitlines()
    assert "with subagents" in lines[2]
    assert lines[3].startswith("lead")
    assert "$3.00" in lines[3]
    assert lines[4].startswith("  helper")


def test_a_broken_price_file_is_noted_below_every_report() -> None:
    said = answer("model", "a", pricesProblem=f"models.dev.json: {EVIL}is not JSON")
    assert "Prices: models.dev.json: is not JSON." in page(said)
    said = compared(cell("a", "coding", 9), pricesProblem="models.dev.json: is not JSON")
    assert "Prices: models.dev.json: is not JSON." in comparison(said, Screen(80))


def test_a_chart_has_every_day_that_was_requested() -> None:
    """Days without turns before the first and after the last are shown, up to today; future days are not."""
    series = [{"key": "2026-05-03", "turns": 1, "costUsd": 2.0}]

    def days(**filters: str) -> list[str]:
        shown = page(answer("model", "a", series=series, filters=filters), chart=True)
        return [line[:6].rstrip() for line in shown.splitlines() if re.match("[A-Z][a-z]{2} [ 0-9]", line)]

    assert days() == ["May 3"]
    assert days(since="1900-05-02T12:00:00.000Z") == ["May 3"]
    asked = days(since="2026-05-01T12:00:00.000Z", until="2026-05-05T12:00:00.000Z")
    assert len(asked) == 5
    today = f"{time.strftime('%b')} {time.localtime().tm_mday:>2}"
    assert days(since="2026-05-02T12:00:00.000Z")[-1] == today
    assert days(since="2026-05-02T12:00:00.000Z", until="2099-01-01T00:00:00.000Z")[-1] == today


@pytest.mark.parametrize(
    ("length", "said"),
    [
        (2, "by day █▂ up to $5.00, 2 days"),
        (40, f"by day █{'▂' * 39} up to $5.00, 40 days"),
        (41, "by week █▇▇▇▇▇▁ up to $9.00, 7 weeks"),
        (278, f"by week █{'▇' * 39} up to $9.00, 40 weeks"),
        (279, "by month █▇█▇█▇██▇▂ up to $35.00, 10 months"),
        (1300, f"by month {'█' * 39}▆ up to $31.00, the last 40 months"),
    ],
)
def test_the_line_of_costs_shows_what_a_cell_is(length: int, said: str) -> None:
    """A cell is a day, a calendar week or a month, as the line states."""
    days = [date(2025, 1, 1) + timedelta(days=n) for n in range(length)]  # from a Wednesday on
    series = [{"key": day.isoformat(), "turns": 1, "costUsd": 1.0} for day in days]
    series[0]["costUsd"] = 5.0
    assert said in page(answer("model", "a", series=series), 160).splitlines()


def test_notes_on_reliability_are_shown() -> None:
    """Open, partial, empty and unpriced turns, what was not logged, and rows that are left out."""
    said = answer("model", "a", "b", moreRows=12, unpricedModels=[f"house-{EVIL}model"])
    said["totals"] = sums(9, openTurns=1, partialTurns=2, unpricedTurns=3, emptyTurns=4)
    said["rows"][0]["openTurns"] = 1
    said["unlogged"] = {"usage": sums()["usage"], "costUsd": 0.25, "models": ["a"]}
    shown = page(said)
    for words in (
        "3*",
        "1 request still running",
        "2 responses cut off in the log",
        "3 requests without a price (house-model)",
        "4 requests failed or aborted without any usage",
        "$0.25 (9.1M tokens) that harnesses used without logging it",
        "12 more in the total: --limit 14",
    ):
        assert words in shown
    assert "$0.00" not in shown


def test_no_price_is_a_dash() -> None:
    said = answer("model", "house")
    said["rows"][0] |= {"costUsd": None, "share": None}
    said["totals"]["costUsd"] = None
    assert "$" not in page(said)


def test_days_without_turns_are_seen() -> None:
    """A chart has a line for every day from the first to the last, and so has the small chart."""
    series = [{"key": "2026-11-01", "turns": 1, "costUsd": 2.0}, {"key": "2026-11-04", "turns": 1, "costUsd": 4.0}]
    shown = page(answer("model", "a", series=series), chart=True)
    assert [line[:6] for line in shown.splitlines()[2:6]] == [f"Nov  {n}" for n in (1, 2, 3, 4)]
    assert "4 days" not in shown
    small = page(answer("model", "a", series=series))
    assert "▄▁▁█" in small
    assert "4 days" in small


def test_days_too_many_for_a_screen_are_left_out_with_their_cost() -> None:
    series = [{"key": f"2026-{month:02}-01", "turns": 1, "costUsd": 1.5} for month in range(1, 12)]
    shown = page(answer("model", "a", series=series), chart=True)
    assert "The chart leaves out 245 earlier days ($13.50)." in shown
    assert shown.splitlines()[2].startswith("Sep  3")


def test_a_day_of_a_broken_clock_does_not_draw_a_thousand_years() -> None:
    series = [{"key": "0001-01-01", "turns": 1, "costUsd": 2.0}, {"key": "2026-11-04", "turns": 1, "costUsd": 4.0}]
    assert len(page(answer("model", "a", series=series), chart=True).splitlines()) < 20


def test_endings_of_sessions_are_shown() -> None:
    ended = {"completed": 3, "abandoned": 1, "errored": 0, "unknown": 2}
    quality = {"editPrompts": 4, "oneShotPrompts": 3, "oneShotPromptRate": 0.75, "oneShotInterval": [0.3, 0.95],
               "sessions": ended}  # fmt: skip
    said = answer("model", "a", quality=quality)
    said["rows"][0]["quality"] = quality
    shown = page(said, 160)
    assert "75%" in shown
    assert "3 of 4" in shown
    assert "sessions: 3 completed · 1 abandoned · 0 errored · 2 unknown" in shown


def cell(model: str | None, category: str, turns: int, **more: Any) -> dict[str, Any]:
    facts = {"model": model, "category": category, "turns": turns, "costPerTurn": 0.0123 if turns else None,
             "oneShotRate": None, "oneShotPromptRate": None, "oneShotInterval": None,
             "medianRetries": None, "quotaShare": None,
             "cacheHitRate": 0.9 if turns else None, "noData": not turns, "insufficientSample": 0 < turns < 5,
             "insufficientPrompts": False}  # fmt: skip
    return facts | more


def compared(*cells: dict[str, Any], **more: Any) -> dict[str, Any]:
    models = list(dict.fromkeys(one["model"] for one in cells))
    coverage = [{"model": model, "turns": 9, "pricedTurns": 8, "categories": 1, "sufficientCategories": 1}
                for model in models]  # fmt: skip
    categories = list(dict.fromkeys(one["category"] for one in cells))
    return {"by": "model", "models": models, "categories": categories, "minSample": 5, "cells": list(cells),
            "coverage": coverage, "notes": []} | more  # fmt: skip


def comparison(said: dict[str, Any], screen: Screen) -> str:
    screen.with_notes = True
    return screen.page(said, compare.drawn(said, screen))


@pytest.mark.parametrize("width", [80, 160])
def test_a_comparison_shows_what_it_knows_and_what_it_does_not(width: int) -> None:
    """Dashes where there is no data, a mark for little, intervals beside rates, and what the whole rests on."""
    judged = {
        "oneShotRate": 0.2,
        "oneShotPromptRate": 0.8,
        "oneShotInterval": [0.49, 0.94],
        "medianRetries": 0.5,
        "quotaShare": 0.25,
    }
    said = compared(
        cell("claude-sonnet-4-5", "coding", 20, costUsd=9.0, **judged), cell("gpt-5", "coding", 0),
        cell("claude-sonnet-4-5", "docs", 3), cell("gpt-5", "docs", 30, costUsd=2.0),
    )  # fmt: skip
    shown = comparison(said, Screen(width))
    assert all(width_of(line) <= width for line in shown.splitlines())
    coding, docs = shown.splitlines()[1:3]
    assert coding.split()[:6] == ["coding", "sonnet-4-5", "20", "$0.01", "80%", "49-94%"]
    assert docs.split()[:3] == ["docs", "gpt-5", "30"]
    assert "not enough data (fewer than 5 requests): docs (sonnet-4-5)" in shown
    assert "2 requests without a price." in shown


def test_the_rows_of_all_activities_come_first() -> None:
    """One for each model, the costliest first; a rate from few prompts is marked."""
    said = compared(cell("a", "coding", 9, costUsd=1.0), cell("b", "coding", 9, costUsd=2.0))
    quality = {"editPrompts": 3, "oneShotPromptRate": 0.5, "oneShotInterval": [0.1, 0.9]}
    said["overall"] = [{"key": key, **sums(9, cost), "quality": quality} for key, cost in (("a", 1.0), ("b", 2.0))]
    lines = comparison(said, Screen(100)).splitlines()
    assert [line.split()[:2] for line in lines[1:5]] == [["all", "b"], ["a", "9"], ["coding", "b"], ["a", "9"]]
    assert "~50%" in lines[1]
    assert "~ from fewer than 5 prompts" in lines[-2] + lines[-1] + lines[6]


def test_an_activity_with_one_model_has_a_note() -> None:
    """A line with each model that is alone; another where only one model is compared."""
    notes = [{"category": "docs", "model": f"gpt-5{EVIL}", "note": ""}, {"category": "testing", "model": None}]
    cells = (cell("a", "coding", 9), cell("gpt-5", "coding", 9), cell("gpt-5", "docs", 9), cell("a", "testing", 9))
    shown = comparison(compared(*cells, notes=notes), Screen(80)).splitlines()
    assert "nothing to compare with: docs (only gpt-5); testing (only (untagged))" in shown
    alone = comparison(compared(cell("a", "coding", 9), cell("a", "docs", 9), notes=notes[:1] * 2), Screen(80))
    assert "only a has data: there is nothing to compare it with" in alone
    assert "nothing to compare with:" not in alone


def test_a_comparison_marks_the_harness_s_own_figures() -> None:
    answer = compared(cell("house-1", "coding", 9), cell("gpt-5", "coding", 9))
    answer["coverage"][0] |= {"pricedTurns": 9, "harnessTurns": 7}
    shown = comparison(answer, Screen(160))
    assert "house-1: the cost of 7 requests is the harness's own figure." in shown


def test_no_stamp_is_not_a_stamp_called_none() -> None:
    """A tag value spelled like the row without the tag gets a separate row."""
    said = compared(cell(None, "coding", 7), cell("None", "coding", 8), by="tag:persona")
    shown = comparison(said, Screen(80)).splitlines()
    assert shown[1].split()[1:3] == ["(untagged)", "7"]
    assert shown[2].split()[:2] == ["None", "8"]


def test_what_if_is_labelled_where_it_is_shown() -> None:
    what_if = {"model": f"other{EVIL}", "costUsd": 1.0, "actualUsd": 2.0, "note": "arithmetic, not a prediction"}
    what_if |= {"unpricedTurns": 0, "unpricedCostUsd": None}
    said = compared(cell("a", "coding", 9, whatIfCostPerTurn=0.5, whatIfCostUsd=4.5), whatIf=what_if)
    shown = comparison(said, Screen(80))
    assert "what if" in shown
    assert "All of it as other: $1.00 instead of $2.00 (arithmetic, not a prediction)." in shown
    assert "\x1b" not in shown


@pytest.mark.parametrize(
    ("actual", "said"),
    [
        (
            2.0,
            "What has a price as other: $1.00 instead of $2.00; 3 requests without a price as other: $9.00 (any).",
        ),
        (None, "3 requests without a price as other: $9.00 (any)."),
    ],
)
def test_what_if_distinguishes_what_has_no_price(actual: float | None, said: str) -> None:
    """A model without a price is not shown as a sum of money or as $0.00."""
    what_if = {"model": "other", "costUsd": actual and 1.0, "actualUsd": actual, "note": "any"}
    what_if |= {"unpricedTurns": 3, "unpricedCostUsd": 9.0}
    shown = comparison(compared(cell("a", "coding", 9, whatIfCostPerTurn=0.5), whatIf=what_if), Screen(200))
    assert said in shown
    assert "$0.00" not in shown
