"""Requests of Claude Code without a response (`messages`): which may have been billed, and the least that they used."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from burnd.harness.claude_code.lines import LogPath
from burnd.records import Usage
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
    """Whether its response is read before or after it was reported, or stands before its request."""
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
