"""Summaries of compactions with a real daemon, of each harness beside a twin without one."""

from __future__ import annotations

import shutil
from typing import Any

import pytest

from burnd.paths import Home
from tests.harness.codex.rollout import Rollout, says
from tests.harness.opencode import data as opencode_data
from tests.harness.opencode.data import Writer, assistant, tokens
from tests.server import logs
from tests.server.logs import contents, conversation
from tests.server.wire import Daemon, Wire, running, until

SUMMARY = "In short: the zanzibar cron job was refactored." + " More was done." * 80
OTHER = "We went on with other things."
SAID = "zanzibar cron job"
SESSIONS = {source: (f"{source}-compacted", f"{source}-twin") for source in ("claude", "opencode")}


def write_claude(home: Home) -> tuple[str, str]:
    compacted, twin = SESSIONS["claude"]
    for session in (twin, compacted):
        log = conversation(session, "fine", prompt=SAID)
        if session == compacted:
            log.add("system", None, subtype="compact_boundary", compactMetadata={"trigger": "auto", "preTokens": 9})
            log.prompt(SUMMARY, isCompactSummary=True, isVisibleInTranscriptOnly=True)
        else:
            log.prompt("go on")
            log.prompt("and on")
        log.says(f"{session}-last", opencode_data.text("done"))
        logs.write(home, log, session)
    return compacted, twin


def write_codex(home: Home) -> tuple[str, str]:
    folder = home.root.parent / ".codex" / "sessions" / "2026" / "11" / "16"
    folder.mkdir(parents=True)
    threads = []
    for number in (1, 2):
        rollout = Rollout(number)
        rollout.task()
        rollout.prompt(SAID)
        rollout.item(says("fine"))
        rollout.meter(100, 0, 10, 0)
        if number == 1:
            rollout.add("compacted", {"message": SUMMARY})
        rollout.task()
        rollout.prompt("go on")
        rollout.item(says("done"))
        rollout.meter(100, 0, 10, 0)
        rollout.event("task_complete")
        (folder / rollout.name).write_bytes(rollout.data)
        threads.append(rollout.thread)
    return threads[0], threads[1]


def write_opencode(home: Home) -> tuple[str, str]:
    compacted, twin = SESSIONS["opencode"]
    writer = Writer(home.root.parent / ".local" / "share" / "opencode" / "opencode.db")
    for session in (compacted, twin):
        writer.session(session)
        writer.user(f"{session}-u1", session, SAID)
        writer.step(f"{session}-a1", session, f"{session}-u1", opencode_data.text("fine"))
        if session == compacted:
            writer.user(f"{session}-u2", session, None)
            writer.part(f"{session}-u2", session, {"type": "compaction", "auto": True})
            facts: dict[str, Any] = {"summary": True, "agent": "compaction", "mode": "compaction"}
            created = writer.tick()
            begun = assistant(f"{session}-u2", created, **facts)
            writer.message(f"{session}-a2", session, created, begun)
            writer.part(f"{session}-a2", session, opencode_data.text(SUMMARY))
            ended = {"tokens": tokens(input=9, output=9), "finish": "stop"}
            writer.update(f"{session}-a2", begun | ended | {"time": {"created": created, "completed": writer.tick()}})
        writer.user(f"{session}-u3", session, "go on")
        writer.step(f"{session}-a3", session, f"{session}-u3", opencode_data.text("done"))
    writer.close()
    return compacted, twin


def ranked(wire: Wire, query: str = SAID) -> list[str]:
    return [hit["sessionId"] for hit in wire.call("sessions.search", query=query, limit=20)["hits"]]


def check(daemon: Daemon, pairs: list[tuple[str, str]]) -> None:
    with daemon.wire() as wire:
        everybody = {session for pair in pairs for session in pair}
        until(lambda: set(ranked(wire)) == everybody, why=daemon.why)
        until(lambda: wire.call("status")["search"]["pending"] == 0, why=daemon.why)
        order = ranked(wire)
        assert set(order[:3]) == {compacted for compacted, _ in pairs}, order
        for compacted, twin in pairs:
            meta = wire.call("sessions.meta", id=compacted)
            assert meta["summary"] == SUMMARY
            assert meta["title"] == SAID
            assert wire.call("sessions.meta", id=twin)["summary"] is None


def test_a_compaction_sums_up_its_session(home: Home) -> None:
    """It ranks above its twin and has the summary, after a rebuild as well; a client's own comes first; a session that
    is forgotten has none, and the ledger never had one."""
    pairs = [write_claude(home), write_codex(home), write_opencode(home)]
    with running(home) as daemon:
        with daemon.wire() as wire:
            wire.call("flush")
        check(daemon, pairs)
        daemon.terminate()
    shutil.rmtree(home.index)
    with running(home) as daemon:
        check(daemon, pairs)
        with daemon.wire() as wire:
            (claude, _), (codex, _), (opencode, _) = pairs
            assert b"In short" not in home.ledger.read_bytes()
            assert wire.call("sessions.set", id=codex, summary=OTHER)["summary"] == OTHER
            assert wire.call("sessions.meta", id=codex)["summary"] == OTHER
            for session in (claude, opencode):
                wire.call("content.forget", session=session)
                assert wire.call("sessions.meta", id=session)["summary"] is None
                assert session not in ranked(wire)
            assert ranked(wire)[0] == codex


@pytest.mark.parametrize("mode", ["off", "hash-only"])
def test_where_no_content_is_kept_there_is_no_summary(home: Home, mode: str) -> None:
    compacted, _ = write_claude(home)
    with running(home, RELAYBURN_CONTENT_STORE=mode) as daemon, daemon.wire() as wire:
        wire.call("flush")
        assert wire.call("sessions.meta", id=compacted)["summary"] is None
        assert ranked(wire) == []
        daemon.terminate()
    assert [path for path, data in contents(home.root) if b"zanzibar" in data] == []


def test_the_last_compaction_counts(home: Home) -> None:
    """Of several the newest is the summary; its parts are put together, and a very long one is cut."""
    log = conversation("s1", "fine")
    for words in ("the first", [opencode_data.text("the second"), opencode_data.text("x" * 100_000)]):
        log.add("system", None, subtype="compact_boundary", compactMetadata={"trigger": "auto", "preTokens": 9})
        log.prompt(words, isCompactSummary=True)
    log.says("last", opencode_data.text("done"))
    logs.write(home, log, "s1")
    with running(home) as daemon, daemon.wire() as wire:
        wire.call("flush")
        summary = wire.call("sessions.meta", id="s1")["summary"]
        assert summary.startswith("the second\nxxx")
        assert len(summary) == (64 << 10) + 1
        assert len(wire.call("sessions.list")["sessions"][0]["summary"] or "") <= 500
