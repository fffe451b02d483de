"""Pictures of sessions contain text of logs as text only."""

from __future__ import annotations

from typing import Any
from xml.etree import ElementTree

import pytest

from burnctl.commands import flow
from burnctl.render.screen import Screen
from burnctl.render.text import width_of

EVIL = '</title><script>alert(1)</script>"; click s "javascript:x" \x1b]52;c;x\x07 `|#&\ud800\x00'


def step(n: int, **more: Any) -> dict[str, Any]:
    parts = {"fresh": 0.001, "write": 0.02, "read": 0.01, "output": 0.005}
    facts = {"turnIndex": n, "lastTurnIndex": n + more.get("turns", 1) - 1, "turns": 1,
             "ts": "2026-11-16T00:00:00.000Z", "at": n, "model": "claude-sonnet-4-5",
             "context": 1000 * n, "costUsd": 0.036, "parts": parts, "asked": n == 0, "beside": False,
             "goesOnFrom": None, "began": False, "miss": None,
             "calls": [{"tool": "Read", "target": "src/a.ts", "times": 1, "isError": False}]}  # fmt: skip
    return facts | more


def session(*steps: dict[str, Any], **more: Any) -> dict[str, Any]:
    lane = {"sessionId": "s1", "railId": "main", "type": None, "startedBy": None, "turns": len(steps), "costUsd": 0.1,
            "steps": list(steps)}  # fmt: skip
    agent = lane | {"railId": "a1", "type": "Explore", "startedBy": {"lane": 0, "turnIndex": 1}}
    facts = {"sessionId": "s1", "source": "claude-code", "project": "/code/a", "title": "A title", "moreLanes": None}
    totals = {"turns": 2 * len(steps), "costUsd": 0.2}
    return {**facts, "totals": totals, "lanes": [lane, agent], **more}


@pytest.mark.parametrize("width", [80, 160])
def test_a_terminal_shows_turns_and_subagents(width: int) -> None:
    shown = flow.draw(session(step(0), step(1, began=True), step(2, miss="pause", turns=3)), Screen(width))
    assert all(width_of(line) <= width for line in shown.splitlines())
    for words in (
        "Read src/a.ts",
        "a new context begins",
        "cache miss (expired in a pause)",
        "└ Explore a1",
        "2-4",
    ):
        assert words in shown


@pytest.mark.parametrize("width", [80, 100, 160])
def test_a_cache_miss_is_listed_first(width: int) -> None:
    """For steps with any number of calls on narrow screens: in the terminal, in a diagram and in a picture."""
    calls = [{"tool": "mcp__server__a_long_name", "target": "x" * 50, "times": 3, "isError": True}] * 9
    said = session(step(0), step(1, miss="prefix", calls=calls))
    assert "cache miss (start changed or dropped)" in flow.draw(said, Screen(width))
    assert "cache miss (start changed or dropped)" in flow.draw_mermaid(said)
    assert "or the provider dropped it" in flow.draw_svg(said)


def test_a_subagent_is_drawn_once() -> None:
    """Though several steps have the index of the turn that started it."""
    shown = flow.draw(session(step(0), step(1), step(1), step(2)), Screen(100))
    assert shown.count("└ Explore a1") == 1


def test_what_was_billed_beside_a_turn_has_its_own_place() -> None:
    """It is listed apart from the turn with the same number, and no picture draws one over the other."""
    said = session(step(0), step(0, beside=True, parts=None, costUsd=None, at=0), step(1), step(2, goesOnFrom=0))
    shown = flow.draw(said, Screen(120))
    assert " 0+ " in shown
    assert "billed with request 0" in shown
    assert "back to request 0" in shown
    picture = ElementTree.fromstring(flow.draw_svg(said))
    numbers = [(node.get("x"), node.get("y")) for node in picture.iter() if node.text in ("0", "0+", "1", "2 ↩0")]
    assert len(numbers) == len(set(numbers)) == 8
    diagram = flow.draw_mermaid(said)
    assert 'n0_1["billed with request 0: -' in diagram
    assert "n0_0 --> n0_3" in diagram
    assert "n0_2 --> n1_0" in diagram


def test_costs_line_up_below_each_other() -> None:
    """However many digits turns have."""
    shown = flow.draw(session(step(6, turns=6), step(102, turns=6), step(1002, turns=6)), Screen(80))
    lines = [line for line in shown.splitlines() if line.lstrip().startswith(("6-11 ", "102-107 ", "1002-1007 "))]
    ends = [line.index("$0.04") + len("$0.04") for line in lines[:3]]
    heading = next(line for line in shown.splitlines() if " cost " in line)
    assert ends == [heading.index("cost") + len("cost")] * 3


def test_evil_words_are_only_words() -> None:
    """In a terminal no escape, in XML no element, in a diagram no syntax comes out of a log."""
    call = {"tool": EVIL, "target": EVIL, "times": 2, "isError": True}
    said = session(step(0, calls=[call], model=EVIL), title=EVIL, project=EVIL)
    said["lanes"][1] |= {"type": EVIL, "railId": EVIL}
    assert "\x1b" not in flow.draw(said, Screen(100))
    picture = ElementTree.fromstring(flow.draw_svg(said))
    assert {node.tag.rpartition("}")[2] for node in picture.iter()} <= {
        "svg", "style", "rect", "text", "line", "circle", "polygon", "path", "g", "title",
    }  # fmt: skip
    diagram = flow.draw_mermaid(said)
    assert "<script" not in diagram
    assert "click s" not in diagram.replace("#quot;#59; click s", "")
    for line in diagram.splitlines():
        assert line.count('"') in (0, 2)


def test_large_sessions_stay_pictures() -> None:
    """Hundreds of steps keep within the width of the picture and within what Mermaid draws."""
    many = session(*(step(n, asked=True) for n in range(300)))
    picture = ElementTree.fromstring(flow.draw_svg(many))
    edges = [float(node.get("x", 0)) + float(node.get("width", 0)) for node in picture.iter() if node.get("width")]
    assert max(edge for edge in edges[1:]) <= 1200
    assert flow.draw_mermaid(many).count("\n") < 300
    few = session(*(step(n) for n in range(40)))
    assert flow.draw_mermaid(few).count("$0.04") == 80  # each turn has its own


def test_a_session_without_turns() -> None:
    nothing = session()
    assert "0 requests" in flow.draw(nothing, Screen(80))
    ElementTree.fromstring(flow.draw_svg(nothing))
    assert flow.draw_mermaid(nothing).startswith("flowchart TD")
