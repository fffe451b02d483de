"""The page of `burnctl why`, line by line, for answers that a demo does not give."""

from __future__ import annotations

from typing import Any

import pytest

from burnctl.render import why
from burnctl.render.screen import Screen
from burnctl.render.text import width_of

NOTHING = {"input": 0, "output": 0, "reasoning": 0, "cacheRead": 0, "cacheCreate5m": 0, "cacheCreate1h": 0}


def cause(label: str, **more: Any) -> dict[str, Any]:
    facts = {
        "kind": "answer",
        "label": label,
        "entered": 0,
        "size": 0,
        "rides": 0,
        "reentries": 0,
        "costUsd": 0.02,
        "share": 1.0,
    }
    return {**facts, "usage": NOTHING | {"output": 44}, **more}


def session(*causes: dict[str, Any], turns: int = 1, **more: Any) -> dict[str, Any]:
    totals = {"turns": turns, "emptyTurns": 0, "openTurns": 0, "partialTurns": 0, "unpricedTurns": 0, "costUsd": 0.02}
    parts = {name: {"tokens": 1, "costUsd": 0.005} for name in ("fresh", "write", "read", "output")}
    return {"sessionId": "5e551011-0000", "title": None, "project": "/p", "source": "claude-code", "filters": {},
            "totals": totals | {"usage": NOTHING}, "parts": parts, "models": [], "unpricedModels": [], "unlogged": [],
            "agents": 0, "causes": list(causes), **more}  # fmt: skip


def test_searches_are_told() -> None:
    """They are dearer than the few tokens beside them, which alone would explain nothing."""
    shown = why.shown(session(cause("answer of turn 6", searches=2), cause("Search", searches=1)), Screen(100))
    assert "answer of turn 6: 44 tokens, 2 web searches" in shown
    assert "44 tokens, 1 web search\n" in shown


def test_a_call_is_told_without_what_its_agent_used() -> None:
    """The money is that of both; what the agent said and read is not what entered with the call."""
    agent = {"type": "Explore", "railId": "a1", "sessionId": "s1", "turns": 9, "costUsd": 0.018, "share": 0.9}
    whole = NOTHING | {"output": 8_000, "cacheRead": 1_000_000}
    own = {"usage": NOTHING | {"output": 155}, "costUsd": 0.002}
    for facts, told in (({}, "155 tokens"), ({"entered": 105, "rides": 3}, "105 tokens entered, rode 3 turns")):
        row = cause("Task Explore", kind="call", turnIndex=4, usage=whole, own=own, agents=[agent], **facts)
        assert f"Task Explore (turn 4): {told}\n" in why.shown(session(row), Screen(100))


def test_searches_stand_in_the_bar() -> None:
    """By their number: they are no tokens."""
    answer = session(cause("answer of turn 6", searches=2))
    answer["parts"]["search"] = {"tokens": 0, "searches": 2, "costUsd": 0.02}
    assert "▞ searches $0.02 (2)" in why.shown(answer, Screen(100))


def test_a_turn_of_several_requests() -> None:
    """Each has its heading, its causes below it; one total ends them all."""
    requests = [
        {"context": size, "model": model, "costUsd": 0.01, "miss": None}
        for size, model in ((6_000, "claude-opus-4-5"), (40_000, "claude-sonnet-4-5"))
    ]
    turn = {"turnIndex": 0, "railId": "main", "turns": 1, "ts": "2026-11-16T00:00:00.000Z"}
    causes = [cause("answer of turn 0", request=0), cause("what no block accounts for", request=1)]
    shown = why.shown(session(*causes, turn=turn, requests=requests), Screen(100))
    places = [shown.index(words) for words in ("2 requests", "the response · $0.01 · 6.0k tokens of context · ",
              "answer of turn 0", "billed beside it · $0.01 · 40.0k tokens", "what no block", "total")]  # fmt: skip
    assert places == sorted(places)
    shown = why.shown(session(causes[0], turn=turn, requests=requests[:1]), Screen(100))
    assert "turn 0: $0.02 · 6.0k tokens of context · claude-opus-4-5" in shown
    assert "the response" not in shown


def test_what_came_in_before_has_its_size() -> None:
    shown = why.shown(session(cause("Read big.py", size=8_200, rides=14)), Screen(100))
    assert "Read big.py: 8.2k tokens from before, rode 14 turns" in shown


@pytest.mark.parametrize(
    ("facts", "told"),
    [
        ({"entered": 1, "rides": 1, "reentries": 1}, "1 token entered, rode 1 turn, paid in full again"),
        ({"entered": 10, "rides": 3, "reentries": 3}, "10 tokens entered, rode 3 turns, each paid in full again"),
        ({"entered": 10, "rides": 3, "reentries": 1}, "10 tokens entered, rode 3 turns, 1 of them paid in full again"),
        ({"kind": "unexplained", "entered": 10, "rides": 3}, "10 tokens entered, rode up to 3 turns"),
        ({"usage": NOTHING | {"output": 1}}, "it: 1 token"),
        (
            {"entered": 3, "rides": 1, "usage": NOTHING | {"output": 7_000, "reasoning": 1_000}},
            "3 tokens entered, 8.0k said, rode 1 turn",
        ),
        ({"entered": 40, "rides": 1, "usage": NOTHING | {"output": 44}}, "40 tokens entered, rode 1 turn"),
    ],
)
def test_counts_read_as_people_say_them(facts: dict[str, Any], told: str) -> None:
    lines = why.shown(session(cause("it", **facts)), Screen(120)).splitlines()
    assert any(line.endswith(told) for line in lines)


@pytest.mark.parametrize("width", [60, 80, 83, 100])
def test_a_long_word_stays_one(width: int) -> None:
    """A path that takes several lines is broken where it must, with nothing put into it and nothing lost."""
    path = "/".join(f"folder{n}" for n in range(60))
    shown = why.shown(session(cause(f"Read {path}", entered=5)), Screen(width)).splitlines()
    first = next(n for n, line in enumerate(shown) if "Read" in line)
    until = next(n for n, line in enumerate(shown) if "entered" in line)
    assert path in "".join(line[18:].strip() for line in shown[first : until + 1])
    assert all(width_of(line) <= width for line in shown)


def test_a_turns_heading_has_its_time_on_every_screen() -> None:
    turn = {"turnIndex": 12, "railId": "agent-a-rather-long-name", "ts": "2026-11-16T10:11:12.000Z"}
    request = {"context": 123_456, "model": "claude-sonnet-4-5-20250929", "costUsd": 0.02, "miss": None}
    answer = session(cause("it", request=0), turn=turn, requests=[request])
    shown = why.shown(answer, Screen(60)).splitlines()
    assert any(line.endswith(":12") for line in shown[:4])
    assert not any(line.endswith("·") for line in shown)
    assert all(width_of(line) <= 60 for line in shown)


def test_a_broken_price_file_is_said_below_it() -> None:
    shown = why.shown(session(cause("it"), pricesProblem="models.dev.json: is not JSON"), Screen(80))
    assert "Prices: models.dev.json: is not JSON." in shown


def test_no_turns_are_not_without_a_price() -> None:
    answer = session(turns=0, filters={"since": "2026-11-16T00:00:00.000Z"})
    answer["totals"]["costUsd"] = None
    shown = why.shown(answer, Screen(80))
    assert "5e551011 · 0 turns\nNo turn of it falls into this time." in shown


@pytest.mark.parametrize("width", range(60, 100))
def test_a_sentence_hangs_below_its_beginning(width: int) -> None:
    """However its words fall, every further line begins at the same place and none is too long."""
    shown = why.shown(session(cause(" ".join("abcdefgh"[: n % 8 + 1] for n in range(60)))), Screen(width))
    lines = [line for line in shown.splitlines() if line.startswith(" " * 18)]
    assert len(lines) > 3
    assert {len(line) - len(line.lstrip()) for line in lines} == {20}
    assert all(width_of(line) <= width for line in shown.splitlines())
