"""Hashes of requests, statements of the provider and changes of the prompt, as the reader records them on turns."""

from __future__ import annotations

from typing import Any

import pytest

from burnd.harness.claude_code.state import MAX_PARTS
from burnd.recording.candidate import Candidate, turn_of
from burnd.records import MissStatement, PromptChange
from burnd.records.codec import decode, encode
from tests.harness.claude_code.transcript import Transcript, call, text
from tests.harness.collect import read


def ask(log: Transcript, name: str, tail: list[str], base: str | None = None, keep: int = 0, **fields: Any) -> None:
    params = {"model": "m", "output_config": {"effort": fields.pop("effort", "high")}, "betas": ["a"]}
    facts = {"shapeHash": "s1", "cacheControl": [{"path": ["system", 0]}], "params": params, **fields}
    log.bare(type="api-request", id=name, querySource="sdk", base=base, keep=keep, tail=tail, **facts)


def answer(log: Transcript, name: str, **fields: Any) -> None:
    log.says(f"m-{name}", text("done"), requestRef=name, **fields)


def turns(log: Transcript, **options: Any) -> list[Candidate]:
    return sorted(read(log.lines, **options).candidates.values(), key=lambda one: one.turn_index)


def compared(log: Transcript, **options: Any) -> list[tuple[int | None, int | None]]:
    """For each turn the messages that its request shares with the one before, of how many."""
    found = [one.request for one in turns(log, **options)]
    return [(one.same, one.before) if one is not None else (None, None) for one in found]


def test_a_request_is_compared_with_the_answered_one_before() -> None:
    log = Transcript()
    log.prompt("go")
    ask(log, "r1", ["a", "b"])
    answer(log, "r1")
    ask(log, "r2", ["c"], base="r1", keep=2)
    answer(log, "r2")
    ask(log, "r3", ["x", "d"], base="r2", keep=1)
    answer(log, "r3")
    assert compared(log) == [(None, None), (2, 2), (1, 3)]
    facts = turns(log)[2].request
    assert facts is not None
    assert (facts.messages, facts.effort, facts.breakpoints) == (3, "high", 1)


def test_attempts_that_failed_are_not_compared_with() -> None:
    """The first attempt changed a message; that the second one repeats it does not hide the change."""
    log = Transcript()
    log.prompt("go")
    ask(log, "r1", ["a", "b"])
    answer(log, "r1")
    ask(log, "r2", ["x", "c"], base="r1", keep=1)
    ask(log, "r3", [], base="r2", keep=3)
    answer(log, "r3")
    assert compared(log) == [(None, None), (1, 2)]


@pytest.mark.parametrize(("tail", "same"), [(["a", "b", "c"], 2), (["a", "x", "c"], 1), (["a"], 1)])
def test_a_request_without_a_base_is_compared_by_its_hashes(tail: list[str], same: int) -> None:
    """As the first one of a process that resumed the session."""
    log = Transcript()
    log.prompt("go")
    ask(log, "r1", ["a"])
    answer(log, "r1")
    ask(log, "r2", ["b"], base="r1", keep=1)
    answer(log, "r2")
    ask(log, "r3", tail)
    answer(log, "r3")
    assert compared(log)[-1] == (same, 2)


def test_messages_beyond_those_in_memory_are_not_compared() -> None:
    many = [str(n) for n in range(MAX_PARTS + 1)]
    log = Transcript()
    log.prompt("go")
    ask(log, "r1", many)
    answer(log, "r1")
    ask(log, "r2", [*many, "new"])
    answer(log, "r2")
    ask(log, "r3", ["newer"], base="r2", keep=MAX_PARTS + 2)
    answer(log, "r3")
    ask(log, "r4", ["other"])
    answer(log, "r4")
    assert compared(log) == [(None, None), (None, None), (MAX_PARTS + 2, MAX_PARTS + 2), (0, MAX_PARTS + 3)]


@pytest.mark.parametrize("options", [{}, {"cuts": range(9)}, {"cuts": (2, 4)}])
def test_the_line_of_a_request_may_come_after_its_response(options: dict[str, Any]) -> None:
    log = Transcript()
    log.prompt("go")
    answer(log, "r1")
    ask(log, "r1", ["a", "b"])
    answer(log, "r2")
    ask(log, "r2", ["c"], base="r1", keep=2)
    assert compared(log, **options) == [(None, None), (2, 2)]


def test_the_provider_states_a_reason() -> None:
    log = Transcript()
    log.prompt("go")
    body = {"id": "m1", "model": "m", "content": [text("hi")], "stop_reason": "end_turn", "usage": {"output_tokens": 3}}
    reason = {"type": "tools_changed", "cache_missed_input_tokens": 18_000}
    log.add("assistant", message={**body, "diagnostics": {"cache_miss_reason": reason}}, requestId="q1")
    log.add("assistant", message={**body, "id": "m2", "diagnostics": {"cache_miss_reason": None}}, requestId="q2")
    log.add("assistant", message={**body, "id": "m3", "diagnostics": "broken"}, requestId="q3")
    stated = [one.cache_miss for one in turns(log)]
    assert stated == [MissStatement(type="tools_changed", tokens=18_000), None, None]


def test_changes_of_the_prompt_are_on_the_next_turn() -> None:
    """What a session begins with is no change."""
    memory = "/p/CLAUDE.md"
    log = Transcript()
    log.prompt("go")
    log.attach("deferred_tools_delta", addedNames=["mcp__git__log", "WebFetch"], removedNames=[])
    log.attach("instructions", files=[{"path": memory, "content": "be brief"}])
    log.calls("m1", call("c1", "Edit", file_path="/p/AGENTS.md", old_string="a", new_string="b"))
    log.result("c1")
    log.says("m2")
    log.attach("deferred_tools_delta", addedNames=["mcp__hub__a", "mcp__hub__b"], removedNames=["WebFetch"])
    log.attach("mcp_instructions_delta", addedNames=[], removedNames=["git"])
    log.attach("instructions", files=[{"path": memory, "content": "be very brief"}])
    log.says("m3")
    log.attach("instructions", files=[{"path": memory, "content": "be very brief"}])
    log.says("m4")
    assert [one.prompt_changes for one in turns(log)] == [
        (),
        (PromptChange(kind="memory", name="/p/AGENTS.md"),),
        (
            PromptChange(kind="mcp", name="hub"),
            PromptChange(kind="tool", name="WebFetch", removed=True),
            PromptChange(kind="mcp", name="git", removed=True),
            PromptChange(kind="memory", name=memory),
        ),
        (),
    ]


def test_the_ledger_has_the_facts_and_no_text() -> None:
    log = Transcript()
    log.prompt("a secret prompt")
    ask(log, "r1", ["a"], shapeHash="shape of a secret prompt")
    answer(log, "r1")
    (turn,) = map(turn_of, turns(log))
    line = encode(turn)
    assert decode(line) == turn
    assert b'"request":{"shape":' in line
    assert b"secret" not in line


ADDRESS = "https://github.com/acme/shop/pull/12"


def test_a_pull_request_is_on_the_turn_that_made_it() -> None:
    log = Transcript()
    log.prompt("go")
    log.calls("m1", call("c1", "Bash", command="git push -u origin fix && gh pr create --fill"))
    log.result("c1", f"https://github.com/acme/shop/compare\n{ADDRESS}\n")
    log.calls("m2", call("c2", "Bash", command="gh pr view"))
    log.result("c2", "https://github.com/acme/shop/pull/9")
    log.says("m3")
    assert [one.pull_request for one in turns(log)] == [ADDRESS, None, None]


@pytest.mark.parametrize("cuts", [(), range(9)])
def test_a_link_counts_once_for_the_turn_before_it(cuts: Any) -> None:
    """Clients write it again when a session is resumed, perhaps on another branch."""
    log = Transcript()
    log.prompt("go")
    log.says("m1")
    log.bare(type="pr-link", prNumber=12, prUrl=ADDRESS, prRepository="acme/shop")
    log.says("m2")
    log.bare(type="pr-link", prNumber=12, prUrl=ADDRESS)
    log.bare(type="pr-link", prNumber=13, prUrl="javascript:alert(1)")
    assert [one.pull_request for one in turns(log, cuts=cuts)] == [ADDRESS, None]


def test_a_link_before_the_first_response_is_on_that_response() -> None:
    log = Transcript()
    log.bare(type="pr-link", prUrl=ADDRESS)
    log.prompt("go")
    log.says("m1")
    assert [one.pull_request for one in turns(log)] == [ADDRESS]
