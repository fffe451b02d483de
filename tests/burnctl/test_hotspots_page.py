"""The page of `burnctl hotspots`, for answers that a demo does not give."""

from __future__ import annotations

from typing import Any

import pytest

from burnctl.render import hotspots
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


@pytest.mark.parametrize("width", [80, 160])
def test_a_long_name_gives_way_before_numbers_do(width: int) -> None:
    shown = hotspots.shown(answer("tool", row("mcp__company_tickets__search_issues_in_all_projects")), Screen(width))
    heading = shown.splitlines()[0].split()
    assert {"calls", "failed", "entered", "rode", "cost", "share"} <= set(heading)
    assert "a call" in shown
    assert all(width_of(line) <= width for line in shown.splitlines())


def test_rows_are_named_in_words() -> None:
    """Neither a bare reason nor the name of a thing that has none."""
    assert "new beginning, or dropped" in hotspots.shown(answer("cache-miss", row("prefix", "cache-miss")), Screen(80))
    assert "type not known" in hotspots.shown(answer("subagent", row("subagent", "subagent")), Screen(80))


def test_what_there_is_none_of_is_said() -> None:
    """A table of nothing but the rest explains itself; the largest row of the rest says what it is."""
    shown = hotspots.shown(answer("mcp", row("prefix", "other"), row("other tools", "other")), Screen(100))
    assert "No MCP server was called." in shown
    assert "(prefix) is what sessions begin with" in shown
    some = hotspots.shown(answer("mcp", row("tickets", "mcp"), row("other tools", "other")), Screen(100))
    assert "No MCP server" not in some
    assert "(prefix)" not in some
    assert "(tools)" in hotspots.shown(answer("prefix", row("/p", "prefix"), row("other tools", "other")), Screen(100))


def test_an_agents_call_is_not_the_agent() -> None:
    """Where a table has the call alone, it says where the whole is found."""
    assert all(kind(name) == "delegate" for name in hotspots.DELEGATES)
    told = "`burnctl hotspots --by subagent` has both"
    assert told in " ".join(hotspots.shown(answer("tool", row("Task")), Screen(80)).split())
    assert told not in " ".join(hotspots.shown(answer("tool", row("Read")), Screen(80)).split())


def test_prompts_in_a_spreadsheet_say_where_they_are() -> None:
    where = {"sessionId": "5e550001", "turnIndex": 4, "at": "2026-11-16T00:00:00.000Z"}
    rows = hotspots.flat_rows(answer("prompt", row("p1", "prompt", **where), row("no prompt", "other")))
    assert where.items() <= rows[0].items()
    assert rows[1].keys() == rows[0].keys()
    assert "sessionId" not in hotspots.flat_rows(answer("tool", row("Read")))[0]
