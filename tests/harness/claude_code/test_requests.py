"""Requests of Claude Code without a response (`messages`): which may have been billed, and the least that they used."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from burnd.harness.claude_code.lines import LogPath
from burnd.harness.claude_code.state import MAX_PARTS
from burnd.recording.candidate import Candidate, turn_of
from burnd.records import MissStatement, PromptChange, Usage
from burnd.records.codec import decode, encode
from tests.harness.claude_code.transcript import Transcript, call, text
from tests.harness.collect import SESSION, Collected, cases, client_versions, read, read_file, transcripts

MODEL = "claude-opus-5"


class Log(Transcript):
    """A transcript with its requests."""

    def asks(self, request_id: str, base: str | None = None, keep: int = 0, new: int = 1, **fields: Any) -> None:
        params = {"model": MODEL, "max_tokens": 64_000} | fields.pop("params", {})
        self.bare(
            type="api-request",
            id=request_id,
            timestamp=fields.pop("ts", None) or self.time(len(self.lines)),
            querySource="sdk",
            params=params,
            base=base,
            keep=keep,
            tail=["hash"] * new,
            **fields,
        )

    def answers(self, request_id: str, context: int = 1000, **fields: Any) -> None:
        usage = {"input_tokens": 0, "cache_read_input_tokens": context, "cache_creation_input_tokens": 0}
        self.says(f"m-{request_id}", text("done"), requestRef=request_id, usage=usage, output=5, **fields)

    def retries(self, **error: Any) -> None:
        self.add("system", subtype="api_error", error=error, ts=self.time(len(self.lines)))

    def fails(self, status: int | None) -> None:
        self.add(
            "assistant",
            ts=self.time(len(self.lines)),
            message={"id": "e", "model": "<synthetic>", "content": [text("API Error")]},
            isApiErrorMessage=True,
            apiErrorStatus=status,
        )


def lost(log: Log, **options: Any) -> dict[str, int]:
    """The requests that may have been billed, and the tokens they had at least."""
    found: Collected = read(log.lines, **options)
    assert all(one.usage == Usage(cache_read=one.usage.cache_read) for one in found.requests.values())
    return {name: one.usage.cache_read for name, one in found.requests.items()}


def test_a_killed_request_had_at_least_the_context_that_it_extends() -> None:
    log = Log()
    log.prompt("go")
    log.asks("r1", new=2)
    log.answers("r1", context=1000)
    log.asks("r2", base="r1", keep=2)
    assert lost(log) == {"r2": 1000}
    log.asks("r3", base="r2", keep=3, new=0)
    assert lost(log) == {"r2": 1000, "r3": 1000}
    log.asks("r4", base="r1", keep=1)
    assert lost(log)["r4"] == 0


def test_one_that_is_answered_in_the_end_is_not_lost() -> None:
    """In any order of response, request and report."""
    log = Log()
    log.prompt("go")
    log.asks("r1")
    log.prompt("another process asks, too")
    log.asks("r2")
    log.answers("r2")
    log.answers("r1")
    for n in range(len(log.lines)):
        assert lost(log, flushes=[n], cuts=[n]) == {}
    early = Log()
    early.answers("r1")
    early.asks("r1")
    assert lost(early) == {}


def test_a_stream_that_failed_in_silence_had_the_context_of_its_repetition() -> None:
    log = Log()
    log.prompt("go")
    log.asks("r1", new=2)
    log.asks("r2", base="r1", keep=2, new=0, params={"max_tokens": 32_000})
    log.answers("r2", context=900)
    for n in range(len(log.lines)):
        assert lost(log, flushes=[n], cuts=[n]) == {"r1": 900}


def test_what_was_refused_was_not_billed() -> None:
    """By its status, by a connection that was never made; one that broke may have been."""
    log = Log()
    log.prompt("go")
    refused: list[dict[str, Any]] = [{"status": 529}, {"status": 429}, {"cause": {"code": "ECONNREFUSED"}}]
    for n, error in enumerate(refused):
        log.asks(f"r{n}")
        log.retries(**error)
    log.asks("cut")
    log.retries(cause={"code": "ECONNRESET"})
    log.asks("last")
    log.fails(529)
    log.prompt("again")
    assert lost(log) == {"cut": 0}


def test_a_request_that_is_wrong_is_refused_however_often_it_is_repeated() -> None:
    log = Log()
    log.prompt("first")
    log.asks("killed")
    log.prompt("second")
    for n in range(3):
        log.asks(f"r{n}", params={"betas": ["x"] * n})
    log.fails(400)
    assert lost(log) == {"killed": 0}
    log.prompt("third")
    log.asks("r8", params={"betas": ["x"]})
    log.asks("r9")
    log.answers("r9")
    assert lost(log) == {"killed": 0}


def test_a_model_that_was_overloaded_was_not_billed() -> None:
    log = Log()
    log.prompt("go")
    log.asks("r1")
    log.asks("r2", params={"model": "claude-sonnet-4-5"})
    log.add("system", subtype="model_fallback", originalModel=MODEL)
    log.answers("r2")
    assert lost(log) == {}


def test_an_agents_request_is_on_its_rail() -> None:
    log = Log(isSidechain=True, agentId="a17")
    log.prompt("look")
    log.asks("r1", agentId="a17")
    (request,) = read(log.lines, LogPath("agent-a17", SESSION, "a17")).requests.values()
    assert (request.session_id, request.rail_id, request.model) == (SESSION, "a17", MODEL)


def test_more_requests_than_are_remembered_are_reported_all_the_same() -> None:
    log = Log()
    log.prompt("go")
    for n in range(100):
        log.asks(f"r{n}")
    assert len(lost(log)) == 100
    assert len(lost(log, cuts=range(100))) == 100


def test_a_call_between_two_requests_ends_no_run() -> None:
    log = Log()
    log.prompt("go")
    log.asks("r1")
    log.calls("m1", call("c1", "Bash", command="ls"), requestRef="r1")
    log.result("c1", "files")
    log.asks("r2", base="r1", keep=1)
    log.retries(status=529)
    log.asks("r3", base="r1", keep=1)
    log.answers("r3")
    assert lost(log) == {}


@pytest.mark.parametrize("version", cases(client_versions()), ids=lambda path: path.name)
def test_real_logs_lose_the_requests_that_were_served_and_not_logged(version: Path) -> None:
    """Killed and cut streams, each with no more tokens than were served; what the API refused is not among them."""
    found = [one for path in transcripts(version) for one in read_file(path).requests.values()]
    truth = version / "served.json"
    if not truth.exists():
        assert len(found) == (3 if version.name == "2.1.325" else 0)
        return
    served = json.loads(truth.read_text())["requests"]
    gone = [one for one in served if not one["logged"] and one["outcome"] in ("client_gone", "cut", "mid_stream_error")]
    assert sorted(one.session_id for one in found) == sorted(one["session"] for one in gone)
    context = {one["session"]: sum(one["usage"].values()) - one["usage"]["output"] for one in gone}
    assert all(0 < one.usage.cache_read <= context[one.session_id] for one in found)


def ask(log: Transcript, name: str, tail: list[str], base: str | None = None, keep: int = 0, **fields: Any) -> None:
    params = {"model": "m", "output_config": {"effort": fields.pop("effort", "high")}, "betas": ["a"]}
    facts = {"shapeHash": "s1", "cacheControl": [{"path": ["system", 0]}], "params": params, **fields}
    log.bare(type="api-request", id=name, querySource="sdk", base=base, keep=keep, tail=tail, **facts)


def answer(log: Transcript, name: str, **fields: Any) -> None:
    log.says(f"m-{name}", text("done"), requestRef=name, **fields)


def turns(log: Transcript, **options: Any) -> list[Candidate]:
    return sorted(read(log.lines, **options).candidates.values(), key=lambda one: one.turn_index)


def compared(log: Transcript, **options: Any) -> list[tuple[int | None, int | None]]:
    """For each turn: messages that its request shares with the previous one, and the total."""
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
    """The initial state of a session is not a change."""
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
