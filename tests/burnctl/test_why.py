"""The screens of `burnctl why`, for answers that the demo does not give."""

from __future__ import annotations

import json
from typing import Any

import pytest

from burnctl.commands import why
from burnctl.render.screen import Screen
from burnctl.render.text import width_of
from burnd.paths import Home
from tests.burnctl.fake_daemon import fake_daemon
from tests.burnctl.invoke import run

NOTHING = {"input": 0, "output": 0, "reasoning": 0, "cacheRead": 0, "cacheCreate5m": 0, "cacheCreate1h": 0}


def cause(label: str, **more: Any) -> dict[str, Any]:
    facts: dict[str, Any] = {
        "kind": "call",
        "label": label,
        "tool": label.split(" ", maxsplit=1)[0],
        "target": None,
        "entered": 0,
    }
    facts |= {"size": 0, "rides": 0, "reentries": 0, "costUsd": 0.02, "share": 1.0}
    return {**facts, "usage": NOTHING | {"output": 44}, **more}


def group(key: str, cost: float | None, *parts: str, **usage: int) -> dict[str, Any]:
    named = [{"key": part, "kind": "call", "count": 1, "costUsd": cost, "usage": NOTHING, "share": 0} for part in parts]
    return {"key": key, "count": 1, "costUsd": cost, "usage": NOTHING | usage, "share": None, "parts": named}


def session(*causes: dict[str, Any], turns: int = 1, **more: Any) -> dict[str, Any]:
    totals = {"turns": turns, "emptyTurns": 0, "openTurns": 0, "partialTurns": 0, "unpricedTurns": 0, "costUsd": 0.02}
    parts = {name: {"tokens": 1, "costUsd": 0.005} for name in ("fresh", "write", "read", "output")}
    return {"sessionId": "5e551011-0000", "title": None, "project": "/p", "source": "claude-code", "filters": {},
            "totals": totals | {"usage": NOTHING}, "parts": parts, "models": [], "unpricedModels": [], "unlogged": [],
            "agents": 0, "groups": [group("files", 0.02, "Read")], "causes": list(causes), **more}  # fmt: skip


def drawn(answer: dict[str, Any], width: int = 120) -> str:
    return why.draw_session(answer, Screen(width))


@pytest.mark.parametrize(
    ("facts", "detail", "short"),
    [
        ({"entered": 18_300, "rides": 341, "reentries": 14},
         "18.3k tokens, re-sent in 341 requests, 14 of them uncached", "18.3k re-sent 341×, 14 uncached"),  # noqa: RUF001
        ({"entered": 1, "rides": 1, "reentries": 1}, "1 token, re-sent in 1 request, uncached", "1 uncached"),
        ({"entered": 10, "rides": 3, "reentries": 3}, "re-sent in 3 requests, all of them uncached", "3 uncached"),
        ({"kind": "unexplained", "entered": 10, "rides": 3}, "10 tokens, re-sent in up to 3 requests", "up to 3×"),  # noqa: RUF001
        ({"size": 8_200, "rides": 14}, "8.2k tokens from before, re-sent in 14 requests", "re-sent 14×"),  # noqa: RUF001
        ({"usage": NOTHING | {"output": 1}}, "1 token", "1 token"),
        ({"entered": 3, "rides": 1, "usage": NOTHING | {"output": 7_000, "reasoning": 1_000}},
         "3 tokens, 8.0k output, re-sent in 1 request", "8.0k output, re-sent 1×"),  # noqa: RUF001
        ({"searches": 2}, "44 tokens, 2 web searches", "2 web searches"),
    ],
)  # fmt: skip
def test_a_cause_has_its_tokens_and_how_often_they_were_sent(facts: dict[str, Any], detail: str, short: str) -> None:
    answer = session(cause("Read a.py", **facts))
    assert any(line.endswith(detail) for line in drawn(answer).splitlines())
    assert any(line.endswith(short) for line in drawn(answer, 80).splitlines())


@pytest.mark.parametrize(
    ("row", "name"),
    [
        (cause("Read a.py", target="a.py", turnIndex=14), "Read a.py (request 14)"),
        (cause("Bash npm test", target="npm test", quote="npm test -- cart"), "Bash “npm test -- cart”"),
        (cause("Bash make", target="make", quote="cd a && make"), "Bash make “cd a && make”"),
        (cause("Grep", quote="creackwim", turnIndex=171), "Grep “creackwim” (request 171)"),
        (cause("Bash make", isError=True, turnIndex=3), "Bash make (request 3, failed)"),
        (cause("prompt of turn 3", kind="prompt", quote="Fix it", turnIndex=3), "prompt “Fix it” (request 3)"),
        (cause("...", kind="prefix"), "system prompt, tools, memory files"),
    ],
)
def test_a_cause_has_a_name(row: dict[str, Any], name: str) -> None:
    assert why.cause_name(row) == name


def test_a_call_is_shown_without_the_tokens_of_its_agent() -> None:
    """The cost includes the agent, which has its own lines in a tree."""
    below = cause("Read b.py", entered=5)
    agent = {"type": "Explore", "railId": "a1", "sessionId": "s1", "turns": 9, "costUsd": 0.018, "share": 0.9}
    own = {"usage": NOTHING | {"output": 155}, "costUsd": 0.002}
    row = cause("Task Explore", turnIndex=4, usage=NOTHING | {"cacheRead": 1_000_000}, own=own, agents=[agent])
    assert "Task Explore (request 4, a subagent)  155 tokens" in drawn(session(row))
    row["agents"] = [agent | {"causes": [below]}]
    lines = drawn(session(row)).splitlines()
    assert any("  Explore a1" in line and line.endswith("9 requests") for line in lines)
    assert any("    Read b.py" in line for line in lines)


def test_groups_add_up_to_a_hundred_percent() -> None:
    """Shares are rounded to a sum of 100 %. The smallest groups beyond nine are one row, and free ones are left out."""
    keys = ("files", "shell", "edits", "answers", "prompts", "web", "mcp", "agents", "compaction", "history", "rest")
    groups = [group(key, 1.0 / 3 + n / 100) for n, key in enumerate(keys)] + [group("prefix", 0)]
    shown = why.group_table(groups, {"costUsd": 4.0}, Screen(100))
    rows = shown.splitlines()[1:]
    assert len(rows) == 9
    assert sum(int(row.split("%")[0].rsplit(maxsplit=1)[1]) for row in rows) == 100
    assert rows[-1].startswith("everything else")
    assert "system prompt" not in shown


@pytest.mark.parametrize(("amounts", "percents"), [([1, 1, 1], [34, 33, 33]), ([0.999, 0.001], [100, 0]), ([], [])])
def test_whole_percents(amounts: list[float], percents: list[int]) -> None:
    assert why.whole_percents(amounts) == percents


def test_groups_name_their_tools() -> None:
    groups = [
        group("files", 1.0, "Read", "Grep", "cat", "ls"),
        group("mcp", 0.5, "mcp__github__issues", "mcp__github__x"),
    ]
    shown = why.group_table([*groups, group("agents", 0.2)], {"costUsd": 1.7}, Screen(100), agents=3)
    assert "file reads (Read, Grep, cat, ...)" in shown
    assert "MCP tools (github)" in shown
    assert "subagents (3)" in shown


def test_without_a_price_tokens_are_shown() -> None:
    groups = [group("files", None, "Read", cacheRead=3_000), group("answers", None, output=1_000)]
    answer = session(cause("Read a.py", costUsd=None, share=None), groups=groups)
    answer["totals"] |= {"costUsd": None}
    answer["parts"] = {"read": {"tokens": 3_000, "costUsd": None}}
    shown = drawn(answer)
    assert "· no price" in shown
    assert "3.0k    75%" in shown
    assert "cache reads 3.0k tokens" in shown


@pytest.mark.parametrize("width", [40, 60, 80, 100, 160])
def test_a_screen_fits(width: int) -> None:
    path = "/".join(f"folder{n}" for n in range(60))
    answer = session(
        cause(f"Read {path}", entered=5, turnIndex=3), cause("Bash x", quote="make " * 60), title="A " * 90
    )
    answer["groups"] = [group("shell", 0.02, "Bash"), group("history", 0.01)]
    assert all(width_of(line) <= width for line in drawn(answer, width).splitlines())


def test_a_pipe_cuts_nothing() -> None:
    path = "/".join(f"folder{n}" for n in range(60))
    shown = why.draw_session(session(cause(f"Read {path}", entered=5), title="A " * 90), Screen(80, is_pipe=True))
    assert path in shown
    assert "A " * 89 in shown


def test_requests_of_one_number() -> None:
    """Each has its heading, its causes below it."""
    requests = [
        {"context": size, "model": model, "costUsd": 0.01, "miss": None}
        for size, model in ((6_000, "claude-opus-4-5"), (40_000, "claude-sonnet-4-5"))
    ]
    turn = {"turnIndex": 12, "railId": "main", "turns": 1, "ts": "2026-11-16T10:11:12.000Z"}
    causes = [cause("first", kind="call", request=0), cause("second", kind="call", request=1)]
    shown = why.draw_request(session(*causes, turn=turn, requests=requests), Screen(100))
    words = ("request 12 · ", ":12 · $0.02", "the response · $0.0100 · 6.0k tokens of context · opus-4-5",
             "first", "billed with it · $0.0100 · 40.0k tokens", "second")  # fmt: skip
    places = [shown.index(one) for one in words]
    assert places == sorted(places)
    shown = why.draw_request(session(causes[0], turn=turn, requests=requests[:1]), Screen(100))
    assert "the response" not in shown


def test_requests_are_below_the_title_of_other_screens(home: Home) -> None:
    """Also that of a session without one, which is its first prompt."""
    step = {"turnIndex": 0, "lastTurnIndex": 0, "turns": 1, "ts": "2026-11-16T00:00:00.000Z", "costUsd": 0.02,
            "context": 900, "miss": None, "asked": True, "beside": False, "began": False, "calls": []}  # fmt: skip
    lane = {"sessionId": "5e551011", "railId": "main", "type": None, "turns": 1, "costUsd": 0.02, "steps": [step]}
    requests = session(lanes=[lane])
    answers = {"flow": requests, "why": session(title="Fix the parser"), "sessions__meta": {"sessionId": "5e551011"}}
    with fake_daemon(home.root / "burnd.sock", **answers):
        done = run(home, "why", "5e55", "--by", "turn")
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout.startswith("Fix the parser · ")
        answer = json.loads(run(home, "why", "5e55", "--by", "turn", "--json").stdout)
        assert answer["title"] is None


def test_a_cache_miss_has_its_reason() -> None:
    miss = {"reason": "pause", "usage": NOTHING | {"input": 20_000}, "costUsd": 0.06}
    request = {"context": 30_000, "model": "claude-opus-4-5", "costUsd": 0.1, "miss": miss}
    turn = {"turnIndex": 1, "railId": "main", "ts": "2026-11-16T10:11:12.000Z"}
    shown = why.draw_request(session(cause("it", request=0), turn=turn, requests=[request]), Screen(160))
    assert "20.0k tokens were sent uncached again for $0.0600: the cache expired during a pause." in shown


def test_a_broken_price_file_is_a_footnote() -> None:
    screen, answer = Screen(80), session(cause("it"), pricesProblem="models.dev.json: is not JSON")
    assert "Prices: models.dev.json: is not JSON." in screen.page(answer, why.draw_session(answer, screen))


def test_a_period_without_requests() -> None:
    answer = session(turns=0, filters={"since": "2026-11-16T00:00:00.000Z"})
    answer["totals"]["costUsd"] = None
    assert "No request of it is in this period." in drawn(answer)
