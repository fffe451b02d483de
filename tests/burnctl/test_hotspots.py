"""Screens of `burnctl hotspots` that the demo sessions do not show."""

from __future__ import annotations

from typing import Any

import pytest

from burnctl.commands import hotspots
from burnctl.render.screen import Screen
from burnctl.render.text import width_of
from burnd.classify.tools import kind

USAGE = {"input": 0, "output": 90, "reasoning": 0, "cacheRead": 0, "cacheCreate5m": 0, "cacheCreate1h": 0}


def row(key: str, of: str = "tool", **more: Any) -> dict[str, Any]:
    facts = {"calls": 120, "errors": 17, "entered": 812_000, "rideTokens": 9_100_000, "usage": USAGE, "costUsd": 12.34}
    return {"key": key, "kind": of, **facts, "costPerCall": 0.1, "share": 0.5, **more}


def answer(by: str, *rows: dict[str, Any]) -> dict[str, Any]:
    totals = {"turns": 9, "emptyTurns": 0, "openTurns": 0, "partialTurns": 0, "unpricedTurns": 0, "costUsd": 24.68}
    return {"by": by, "totals": totals | {"usage": USAGE}, "rows": list(rows), "pending": 0, "moreRows": 0,
            "unpricedModels": [], "unlogged": None, "filters": {}}  # fmt: skip


def page(said: dict[str, Any], screen: Screen) -> str:
    screen.with_notes = True
    return screen.page(said, hotspots.drawn(said, screen))


@pytest.mark.parametrize("width", [80, 160])
def test_a_long_name_shrinks_before_numbers_do(width: int) -> None:
    shown = page(answer("tool", row("mcp__company_tickets__search_issues_in_all_projects")), Screen(width))
    heading = shown.splitlines()[2].split()
    assert {"calls", "failed", "new", "re-sent", "cost", "share"} <= set(heading)
    assert all(width_of(line) <= width for line in shown.splitlines())


def test_rows_are_named_in_words() -> None:
    """Neither a bare reason nor the name of a thing that has none."""
    assert "start changed or dropped" in page(answer("cache-miss", row("prefix", "cache-miss")), Screen(80))
    assert "(unknown type)" in page(answer("subagent", row("subagent", "subagent")), Screen(80))


def test_empty_groups_are_mentioned() -> None:
    """A table of nothing but the rest explains itself."""
    shown = page(answer("mcp", row("prefix", "other"), row("other tools", "other")), Screen(100))
    assert "No MCP server was called." in shown
    assert "(system prompt and tools)" in shown
    some = page(answer("mcp", row("tickets", "mcp"), row("other tools", "other")), Screen(100))
    assert "No MCP server" not in some
    assert "(system prompt and tools)" not in some


def test_an_agents_call_is_not_the_agent() -> None:
    """A table with the call alone refers to the table with the whole agent."""
    assert all(kind(name) == "delegate" for name in hotspots.DELEGATES)
    told = "burnctl hotspots --by subagent has both"
    assert told in " ".join(page(answer("tool", row("Task")), Screen(80)).split())
    assert told not in " ".join(page(answer("tool", row("Read")), Screen(80)).split())


def test_prompts_in_a_spreadsheet_say_where_they_are() -> None:
    where = {"sessionId": "5e550001", "turnIndex": 4, "at": "2026-11-16T00:00:00.000Z"}
    rows = hotspots.flat_rows(answer("prompt", row("p1", "prompt", **where), row("no prompt", "other")))
    assert where.items() <= rows[0].items()
    assert rows[1].keys() == rows[0].keys()
    assert "sessionId" not in hotspots.flat_rows(answer("tool", row("Read")))[0]


def test_tools_beyond_the_limit_are_one_row() -> None:
    """burnd sums them, and the row names the table with the rest."""
    shown = page(answer("tool", row("Read"), row("3 more", "other")), Screen(120))
    assert "(3 more tools)" in shown
    assert "(3 more)" in page(answer("file", row("a.py", "file"), row("3 more", "other")), Screen(120))


def test_a_prompt_is_shown_with_its_words() -> None:
    where = {"sessionId": "5e550001-aaaa", "railId": "main", "turnIndex": 4, "at": "2026-11-16T00:00:00.000Z"}
    shown = page(
        answer("prompt", row("p1", "prompt", **where, quote="Fix the cart"), row("rest", "other")), Screen(120)
    )
    assert shown.splitlines()[3].startswith("Fix the cart  5e550001")
