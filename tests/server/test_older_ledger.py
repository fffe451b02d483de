"""A home that the older ledger left behind: turns without `railId`, content without `railId`, `n` and `b`."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from burnd.paths import Home
from tests.harness.claude_code.transcript import Transcript, call, text
from tests.server import logs
from tests.server.wire import Daemon, Wire, running, until

SESSION = "5f0f2d34-8a57-4a0e-9a54-aa9f1d6f0001"
PROMPT = "where is the zanzibar lookup"
ANSWER = "It is in spice.py, next to the cardamom table."


def turn(message_id: str, index: int, ts: str, **more: Any) -> dict[str, Any]:
    usage = {"input": 10, "output": 20, "reasoning": 0, "cacheRead": 0, "cacheCreate5m": 0, "cacheCreate1h": 0}
    return {
        "v": 1,
        "kind": "turn",
        "record": {
            "v": 1,
            "source": "claude-code",
            "sessionId": SESSION,
            "messageId": message_id,
            "turnIndex": index,
            "ts": ts,
            "model": "claude-sonnet-4-5",
            "project": "/home/dev/app",
            "usage": usage,
            "toolCalls": [],
            **more,
        },
    }


def block(message_id: str, ts: str, role: str, kind: str, **more: Any) -> dict[str, Any]:
    place = {"v": 1, "source": "claude-code", "sessionId": SESSION, "messageId": message_id, "ts": ts}
    return {**place, "role": role, "kind": kind, **more}


LEDGER = [
    turn("m0", 0, "2026-11-16T00:00:02.000Z", toolCalls=[{"id": "c1", "name": "Grep", "argsHash": "abc"}]),
    turn("m1", 1, "2026-11-16T00:00:04.000Z"),
]
CONTENT = [
    block("u0", "2026-11-16T00:00:01.000Z", "user", "text", text=PROMPT),
    block("m0", "2026-11-16T00:00:02.000Z", "assistant", "thinking", text="Grep for it."),
    block("m0", "2026-11-16T00:00:02.000Z", "assistant", "text", text="Looking."),
    block(
        "m0",
        "2026-11-16T00:00:02.000Z",
        "assistant",
        "tool_use",
        toolUse={"id": "c1", "name": "Grep", "input": {"pattern": "zanzibar"}},
    ),
    block(
        "u1",
        "2026-11-16T00:00:03.000Z",
        "tool_result",
        "tool_result",
        toolResult={"toolUseId": "c1", "content": "spice.py:3: zanzibar", "isError": False},
    ),
    block("m1", "2026-11-16T00:00:04.000Z", "assistant", "text", text=ANSWER),
]


def written(records: list[dict[str, Any]]) -> str:
    return "".join(json.dumps(record, separators=(",", ":")) + "\n" for record in records)


def leave_behind(home: Home) -> Path:
    home.content.mkdir(parents=True)
    home.ledger.write_text(written(LEDGER))
    sidecar = home.content / f"{SESSION}.jsonl"
    sidecar.write_text(written(CONTENT))
    return sidecar


def texts(wire: Wire) -> list[list[str]]:
    """The kinds of each message's blocks with their text, as `show` has them."""
    page = wire.call("sessions.messages", id=SESSION)
    assert page["retained"] is True
    return [[block["kind"] for block in message["blocks"]] for message in page["messages"]]


def finds(wire: Wire, query: str) -> list[str]:
    return [hit["sessionId"] for hit in wire.call("sessions.search", query=query)["hits"]]


SHOWN = [["text"], ["thinking", "text", "tool_use"], ["tool_result"], ["text"]]


def check(daemon: Daemon) -> None:
    with daemon.wire() as wire:
        assert wire.call("summary")["totals"]["turns"] == 2
        assert wire.call("status")["ledger"]["skipped"]["count"] == 0
        assert [(one["railId"], one["messageId"]) for one in wire.call("export")["turns"]] == [
            ("main", "m0"),
            ("main", "m1"),
        ]
        assert texts(wire) == SHOWN
        records = wire.call("content.read", session=SESSION)["records"]
        assert [record.get("text") for record in records] == [record.get("text") for record in CONTENT]
        assert {record["railId"] for record in records} == {"main"}
        assert len({(record["messageId"], record["n"], record["b"]) for record in records}) == len(CONTENT)
        meta = wire.call("sessions.meta", id=SESSION)
        assert (meta["content"], meta["messageCount"]) == ("yes", 4)
        until(lambda: finds(wire, "cardamom") == [SESSION])
        assert finds(wire, '"zanzibar lookup"') == [SESSION]
        assert wire.call("why", session=SESSION)["totals"]["turns"] == 2


def test_an_older_ledger_is_read_with_defaults(home: Home) -> None:
    """Its turns are counted, its content is shown, found and exported, after a rebuild as well, and can go."""
    sidecar = leave_behind(home)
    with running(home) as daemon:
        check(daemon)
        daemon.terminate()
    shutil.rmtree(home.index)
    with running(home) as daemon:
        check(daemon)
        with daemon.wire() as wire:
            assert wire.call("content.forget", match="cardamom table", dryRun=True)["count"] == 1
            assert wire.call("content.prune", olderThanDays=0)["files"] == 1
            assert wire.call("sessions.meta", id=SESSION)["content"] == "pruned"
            assert finds(wire, "cardamom") == []
    assert not sidecar.exists()


def test_a_log_that_an_older_ledger_has_read_adds_only_what_is_new(home: Home) -> None:
    """The log still exists: its turns and blocks are not duplicated, and later lines are added."""
    leave_behind(home)
    log = Transcript(session=SESSION)
    log.prompt(PROMPT, uuid="u0")
    log.says("m0", text("Looking."), call("c1", "Grep", pattern="zanzibar"), output=20)
    log.says("m2", text("Also in the saffron table."), output=20)
    logs.write(home, log, SESSION)
    with running(home) as daemon, daemon.wire() as wire:
        until(lambda: wire.call("summary")["totals"]["turns"] == 3)
        until(lambda: finds(wire, "saffron") == [SESSION])
        assert texts(wire) == [*SHOWN, ["text"]]
