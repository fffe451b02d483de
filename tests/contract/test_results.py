"""Answers are what `burnd.contract.results` declares: those of a demo's daemon, those recorded, those in the docs."""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from burnd import protocol
from burnd.contract import Params, methods
from burnd.contract.results.daemon import TailEvent
from burnd.paths import Home
from tests.burnctl.demo_home import DemoHome, demo_home
from tests.burnctl.frames import recorded
from tests.server.documented import OTHER, OWN, SESSION, furnish, shown
from tests.server.wire import Wire, running


def type_of(method: type[Params]) -> Any:
    """The type of a method's answer, which the table names as text."""
    owner = next(cls for cls in method.__mro__ if "answer" in vars(cls).get("__annotations__", {}))
    named = re.fullmatch(r"ClassVar\[results\.(\w+)\]", owner.__annotations__["answer"])
    assert named is not None, method
    return getattr(importlib.import_module(owner.__module__.replace("contract.", "contract.results.")), named[1])


def check(method: str, answer: dict[str, Any]) -> None:
    """Fails if a declared key is missing, a value has another type, or a key is not declared."""
    compare(answer, msgspec.convert(answer, type=type_of(methods()[method]), strict=True), method)


def compare(answer: Any, declared: Any, where: str) -> None:
    """Converting drops keys that are not declared."""
    if isinstance(answer, dict):
        assert answer.keys() == declared.keys(), where
        for key, value in answer.items():
            compare(value, declared[key], f"{where}.{key}")
    elif isinstance(answer, list):
        for one, other in zip(answer, declared, strict=True):
            compare(one, other, where)


def test_recorded_answers_are_as_declared() -> None:
    """Of every protocol version that this client understands."""
    for talk in recorded(protocol.VERSION):
        for frame in talk.frames:
            check(frame.request["method"], frame.answers[-1]["result"])


def test_documented_answers_are_as_declared() -> None:
    """docs/protocol.md has an answer of every method."""
    documented = shown()
    assert {method.method for method in documented} == methods().keys()
    for method in documented:
        check(method.method, method.answer["result"])


def test_a_wrong_answer_is_found() -> None:
    """A missing key, a value of another type, a key too many: else the tests above could not fail."""
    check("flush", {"version": 1, "flushed": True, "sources": []})
    with pytest.raises(msgspec.ValidationError, match="missing required field `sources`"):
        check("flush", {"version": 1, "flushed": True})
    with pytest.raises(msgspec.ValidationError, match="Expected `bool`"):
        check("flush", {"version": 1, "flushed": "yes", "sources": []})
    with pytest.raises(AssertionError, match=r"flush\.sources"):
        check("flush", {"version": 1, "flushed": True, "sources": [{"name": "codex", "flushed": True, "more": 1}]})


@pytest.fixture(scope="module")
def demo() -> Iterator[DemoHome]:
    with demo_home() as found:
        yield found


def test_answers_of_a_daemon_are_as_declared(demo: DemoHome) -> None:
    """Every method, with the parameters that change the shape of its answer."""
    asked: set[str] = set()
    with Wire(f"{demo.home}/burnd.sock") as wire, Wire(f"{demo.home}/burnd.sock") as tail:
        sessions = wire.call("sessions.list", limit=200)["sessions"]
        for name, params in requests([one["sessionId"] for one in sessions]):
            check(name, wire.call(name, **params))
            asked.add(name)
        check("tail", tail.call("tail"))
        new = wire.call("sessions.new", agent="summarizer", sender="nightly", source="anthropic-api")
        check("sessions.new", new)
        for name, params in changes(new["sessionId"]):
            check(name, wire.call(name, **params))
            asked.add(name)
        check_event(tail)
    assert asked | {"tail", "sessions.new"} == methods().keys()


def check_event(tail: Wire) -> dict[str, Any]:
    """The next notification of a stream."""
    event = tail.line()
    assert event is not None
    found: dict[str, Any] = event["params"]
    compare(found, msgspec.convert(found, type=TailEvent, strict=True), "tail")
    return found


def test_answers_with_budgets_currency_and_a_bad_price_file_are_as_declared(home: Home) -> None:
    """Settings and problems add keys to answers; without content there are notes."""
    furnish(home)
    (home.root / "config.toml").write_text(_SETTINGS)
    (home.root / "models.dev.json").write_text("no JSON")
    with running(home) as daemon, daemon.wire() as wire, daemon.wire() as tail:
        wire.call("flush")
        summary = wire.call("summary")
        assert summary.keys() >= {"currency", "plans", "pricesProblem"}
        check("summary", summary)
        for name, params in requests([SESSION, OTHER, OWN]):
            if (name, params.get("turn"), params.get("session")) != ("why", 0, OWN):  # it has no turns
                check(name, wire.call(name, **params))
        check("tail", tail.call("tail"))
        assert check_event(tail)["budget"]["crossed"]


_SETTINGS = """\
[budget]
monthly = 0.000001
weekly = 1000
[content]
store = "off"
[guard]
session_tokens = 1
day_usd = 1000
[display]
currency = "EUR"
rate = 0.92
plan = "pro,plus"
"""


def requests(sessions: list[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Requests that change nothing."""
    for name in (
        "status",
        "methods",
        "config.show",
        "stamps.list",
        "export",
        "changes",
        "overhead",
        "waste",
        "statusline",
    ):
        yield name, {}
    for by in (
        *("model", "provider", "project", "branch", "day", "hour", "week", "month", "activity", "source", "version"),
        *("session", "agent", "tag:persona", "day,model", "session,model", "agent,day"),
    ):
        yield "summary", {"by": by, "quality": True, "series": True}
    yield "summary", {"by": "agent", "tree": True}
    for session in sessions[:3]:
        yield "guard.check", {"session": session, "tool": "Bash"}
        yield "guard.status", {"session": session}
    for by in ("model", "source", "version", "tag:persona", "model,source"):
        yield "compare", {"by": by, "whatIf": "claude-haiku-4-5"}
    for by in (
        *("tool", "file", "command", "mcp", "skill", "subagent", "prompt", "prefix", "cache-miss"),
        *("tool,model", "file,session"),
    ):
        yield "hotspots", {"by": by}
    yield "by_tool", {"limit": 2}
    yield "pricing.show", {"model": "claude-sonnet-4-5"}
    yield "pricing.show", {"model": "no-such-model"}
    for source in ("claude-code", "codex"):
        yield "limits", {"source": source, "history": 3}
    yield "sessions.list", {"limit": 2, "costs": True}
    for query in ("checkout", "cron refactor", "chekout", "fix", "?"):
        yield "sessions.search", {"query": query, "all": True}
    for query in ("test", "?"):
        yield "search_memory", {"query": query}
    for session in sessions:
        yield "why", {"session": session, "tree": True, "limit": 5}
        yield "why", {"session": session, "turn": 0}
        yield "flow", {"session": session, "limit": 20}
        yield "statusline", {"session": session}
        yield "sessions.meta", {"id": session}
        yield "sessions.messages", {"id": session, "limit": 200, "blockBytes": 300}
        yield "content.read", {"session": session}
        yield "sessions.recording", {"id": session}


def changes(session: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Requests that change something, the last of which stops the daemon."""
    message = {"id": "m1", "role": "user", "content": "hello"}
    turn = {"id": "m2", "model": "claude-sonnet-4-5", "usage": {"input_tokens": 9, "output_tokens": 3}}
    yield "sessions.append", {"id": session, "messages": [message], "turns": [turn]}
    yield "sessions.set", {"id": session, "title": "Nightly summary"}
    yield "guard.allow", {"session": session, "seconds": 60}
    yield "guard.status", {}
    yield "guard.switch", {"on": True}
    yield "stamp", {"selector": {"sessionId": session}, "enrichment": {"step": "plan"}}
    span = {"fromTs": "2026-11-16T00:00:00Z", "toTs": "2026-11-17T00:00:00Z"}
    yield "stamp", {"selector": {"sessionId": session, "range": span}, "enrichment": {"step": "plan"}}
    yield "stamp", {"selector": {"messageId": "m2"}, "enrichment": {"step": "plan"}}
    yield "stamps.remove", {"selector": {"sessionId": session}, "keys": ["step"]}
    yield "stamps.list", {"key": "step"}
    yield "announce", {"sessionId": "5b6c7d8e-0000-4000-8000-000000000001"}
    yield "spool", {"claim": "1763276978658000000-4711-9f86d081"}
    yield "quota", {"readings": [{"window": "5h", "usedPercent": 42.5}]}
    yield "flush", {}
    yield "limits", {}
    yield "rebuild", {"reclassify": True}
    yield "content.prune", {"olderThanDays": 3650, "dryRun": True}
    yield "content.forget", {"session": session}
    yield "sessions.messages", {"id": session}
    yield "shutdown", {}
