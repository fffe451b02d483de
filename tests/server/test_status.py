"""`status` and related methods: facts, advice for every issue, and answers while other requests wait."""

from __future__ import annotations

import json
import select
import shutil
import sqlite3
import time
from contextlib import closing
from functools import partial
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from burnd.clients.spool import Spool
from burnd.contract.daemon import StatusParams
from burnd.harness.supervisor import SourceSupervisor
from burnd.paths import Home
from burnd.recording.pipeline import Pipeline
from burnd.recording.source import Source
from burnd.server.methods.status import status
from burnd.server.service import Service
from burnd.settings.config import load
from tests.conftest import Opened
from tests.harness.claude_code.transcript import call
from tests.harness.opencode import data as opencode
from tests.server.failing_source import FailingSource
from tests.server.logs import conversation, projects, write
from tests.server.wire import Daemon, Wire, noise, running, stamp_often, until

STAMPS = 8000  # a ledger that takes a moment to read


def test_what_there_is_is_counted(home: Home) -> None:
    """Turns, open ones, sessions, stamps, content; sizes are those of the files."""
    write(home, conversation("s1", "one", "x" * 5000, "three"), "s1")
    with running(home) as daemon, daemon.wire() as wire:
        wire.call("stamp", selector={"sessionId": "s1"}, enrichment={"a": "b"})
        wire.call("flush")
        log = conversation("s2")
        log.calls("m", call("c", "Bash", command="make"))  # waited for, for minutes
        write(home, log, "s2")
        until(lambda: wire.call("status")["ledger"]["openTurns"] == 1)
        until(lambda: _of(wire.call("status"), "claude-code")["files"] == 2)
        until(lambda: wire.call("status")["ledger"]["bytes"] == home.ledger.stat().st_size)
        status = wire.call("status")
        ledger = status["ledger"]
        assert (ledger["turns"], ledger["sessions"], ledger["stamps"]) == (3, 2, 1)
        assert status["content"]["mode"] == "full"
        assert status["content"]["bytes"] >= status["content"]["blobBytes"] > 0
        assert status["index"]["state"] == "ready"
        source = _of(status, "claude-code")
        assert (source["restarts"], source["lastFailure"], source["hasLooked"]) == (0, None, True)
        assert source["counts"]["lines"] == 6
        assert status["degraded"] == []


def test_damaged_lines_of_the_ledger_are_shown_by_their_place(home: Home) -> None:
    """F46: the byte range of what is passed over, and what to do."""
    with running(home) as daemon, daemon.wire() as wire:
        for n in range(3):
            wire.call("stamp", selector={"sessionId": "s"}, enrichment={"n": str(n)})
        daemon.terminate()
    lines = home.ledger.read_bytes().splitlines(keepends=True)
    damaged = b"#" * (len(lines[1]) - 1) + b"\n"
    home.ledger.write_bytes(lines[0] + damaged + lines[2])
    shutil.rmtree(home.index)
    with running(home) as daemon, daemon.wire() as wire:
        status = wire.call("status")
        assert status["ledger"]["stamps"] == 2
        assert status["ledger"]["skipped"] == {
            "count": 1,
            "lines": [{"position": len(lines[0]), "length": len(damaged), "reason": "corrupt", "kind": ""}],
        }
        assert any("ledger" in notice["what"] and notice["remedy"] for notice in status["degraded"])


def test_an_unusable_price_file_is_reported(daemon: Daemon) -> None:
    """The last good prices stay in use; a mended file counts without a restart."""
    with daemon.wire() as wire:
        assert wire.call("status")["prices"]["own"] == 0
        daemon.home.prices.write_text("{")
        status = wire.call("status")
        assert "models.dev.json" in status["prices"]["problem"]
        assert any("models.dev.json" in notice["what"] for notice in status["degraded"])
        asked = wire.call("pricing.show", model="my-own-model", provider="mine")
        assert not asked["priced"]
        reports = ("summary", "compare", "export", "hotspots", "by_tool", "waste", "overhead", "limits")
        for answer in (asked, *(wire.call(report) for report in reports)):
            assert answer["pricesProblem"].endswith("; until then its last valid version is used")
        listed = {"mine": {"models": {"my-own-model": {"cost": {"input": 1, "output": 2}}}}}
        daemon.home.prices.write_text(json.dumps(listed))
        prices = wire.call("status")["prices"]
        assert (prices["problem"], prices["own"], prices["fetched"]) == (None, 1, None)
        assert wire.call("pricing.show", model="my-own-model", provider="mine")["priced"]
        assert "pricesProblem" not in wire.call("summary")
        daemon.home.prices.write_text("{")
        assert wire.call("pricing.show", model="my-own-model", provider="mine")["priced"]


def test_after_a_restart_only_shipped_prices_are_left(home: Home) -> None:
    """The prices of a broken file are not remembered: answers use and name the shipped ones."""
    home.prices.parent.mkdir(mode=0o700, exist_ok=True)
    home.prices.write_text("{")
    with running(home) as daemon, daemon.wire() as wire:
        problem = wire.call("summary")["pricesProblem"]
        assert problem.endswith("; until then the list shipped with burnd alone is used")
        assert wire.call("status")["prices"]["problem"] == problem


def test_settings_are_shown_as_the_daemon_has_them(home: Home) -> None:
    with running(home, RELAYBURN_CONTENT_STORE="hash-only") as daemon, daemon.wire() as wire:
        shown = {setting["key"]: setting for setting in wire.call("config.show")["settings"]}
        assert (shown["content.store"]["value"], shown["content.store"]["fromEnv"]) == ("hash-only", True)
        assert shown["log.level"]["default"] == "info"


def test_a_session_is_announced_before_it_begins(home: Home) -> None:
    """Its mode holds from the moment that is answered; its subagents are of the same session."""
    projects(home).mkdir(parents=True)
    with running(home) as daemon, daemon.wire() as wire:
        answer = wire.call("announce", sessionId="s1", source="claude-code", contentMode="off")
        assert answer["contentMode"] == "off"
        write(home, conversation("s1", "secret-one"), "s1")
        write(home, conversation("s2", "open-words"), "s2")
        wire.call("flush")
        assert wire.call("content.read", session="s1")["kept"] == "no"
        assert wire.call("content.read", session="s2")["kept"] == "yes"
        assert wire.error("announce", sessionId="s", source="nobody")["data"]["name"] == "refused"
        assert wire.error("announce", sessionId="", source="claude-code")["data"]["name"] == "refused"
        assert wire.error("announce", sessionId="s", roots=["relative"])["data"]["name"] == "refused"
        assert wire.error("announce", sessionId="s", contentMode="some")["data"]["name"] == "bad_params"


def test_a_session_is_announced_late(home: Home) -> None:
    """A late announcement with an earlier start time: text captured since then is erased."""
    write(home, conversation("s1", "secret-one"), "s1")
    with running(home) as daemon, daemon.wire() as wire:
        wire.call("flush")
        assert wire.call("content.read", session="s1")["kept"] == "yes"
        wire.call("announce", sessionId="s1", contentMode="off")
        assert wire.call("content.read", session="s1")["kept"] == "yes"
        wire.call("announce", sessionId="s1", contentMode="off", ts="2020-01-01T00:00:00Z")
        assert wire.call("content.read", session="s1")["kept"] == "pruned"
        assert wire.call("rebuild", index=True)["rebuilt"] == "index"
        assert wire.call("content.read", session="s1")["kept"] == "pruned"
        assert wire.error("announce", sessionId="s1", ts="soon")["message"] == "ts is not an ISO time"


def test_announced_roots_are_read_at_once_and_after_a_restart(home: Home) -> None:
    """I3: a wrapper's own CLAUDE_CONFIG_DIR is read by the running daemon, and by the next one without its index."""
    root = home.root.parent / "elsewhere"
    (root / "projects").mkdir(parents=True)
    with running(home) as daemon, daemon.wire() as wire:
        wire.call("announce", sessionId="s1", roots=[str(root)])
        write(home, conversation("s1", "one"), "s1", root / "projects")
        until(lambda: wire.call("status")["ledger"]["openTurns"] == 1, 30)  # a look at everything is due once a minute
        daemon.terminate()
    shutil.rmtree(home.index)
    write(home, conversation("s2", "two"), "s2", root / "projects")
    with running(home) as daemon, daemon.wire() as wire:
        wire.call("flush")
        assert wire.call("status")["ledger"]["turns"] == 2


def test_a_root_announced_before_it_exists_is_read_later(home: Home) -> None:
    root = home.root.parent / "later"
    with running(home) as daemon, daemon.wire() as wire:
        wire.call("announce", sessionId="s1", roots=[str(root)])
        write(home, conversation("s1", "one"), "s1", root / "projects")
        until(lambda: wire.call("status")["ledger"]["openTurns"] == 1)


def test_a_rebuild_shows_how_far_it_is(home: Home) -> None:
    """Progress while it lasts, then the answer; questions are answered from the old index meanwhile."""
    with running(home) as daemon, daemon.wire() as wire, daemon.wire() as other:
        stamp_often(wire, STAMPS)
        until(lambda: _is_seen_rebuilding(wire, other))  # a busy machine may look when it is over
        assert wire.call("status")["ledger"]["stamps"] == STAMPS
        assert wire.error("rebuild")["data"]["name"] == "refused"
        assert wire.error("rebuild", index=True, reclassify=True)["data"]["name"] == "refused"


def _is_seen_rebuilding(wire: Wire, other: Wire) -> bool:
    request = wire.request("rebuild", index=True)
    told, states = [], set()
    while (line := wire.line()) is not None and "method" in line:
        assert (line["method"], line["params"]["id"]) == ("progress", request)
        told.append(line["params"]["done"] / max(1, line["params"]["total"]))
        states.add(other.call("status")["index"]["state"])
        assert other.call("stamps.list", limit=1)["stamps"]
    assert line is not None
    assert line["result"]["rebuilt"] == "index"
    assert told == sorted(told)
    return any(state.startswith("rebuilding ") for state in states)


@pytest.mark.timed
def test_status_answers_during_a_rebuild(home: Home) -> None:
    """P5: from the start the socket reports progress; other requests get a retry error."""
    with running(home) as daemon, daemon.wire() as wire:
        stamp_often(wire, STAMPS)
        daemon.terminate()
    until(lambda: _is_seen_starting(home))  # a busy machine may look when it is over


def _is_seen_starting(home: Home) -> bool:
    shutil.rmtree(home.index)
    states, times, refusals = [], [], set()
    with running(home, ready=False) as daemon:
        until(lambda: daemon.state() != "not listening")
        with daemon.wire() as wire:
            while True:
                begun = time.monotonic()
                status = wire.call("status")
                times.append(time.monotonic() - begun)
                states.append(status["index"]["state"])
                if status["daemon"]["state"] == "ready":
                    break
                answer = wire.ask("stamps.list")
                refusals.add(answer["error"]["data"]["name"] if "error" in answer else "answered")
                time.sleep(0.005)
            assert states[-1] == "ready"
            assert wire.call("status")["ledger"]["stamps"] == STAMPS
        daemon.terminate()
    times.sort()
    assert times[len(times) * 9 // 10] < 0.2 * noise(), times[-5:]
    is_told = any(state.startswith("rebuilding ") and state.endswith("%") for state in states)
    return is_told and "not_now" in refusals


@pytest.mark.timed
def test_status_answers_while_old_logs_are_read(home: Home) -> None:
    """F18: with the progress of that, and quickly. What the money went to is counted when they have been read."""
    for n in range(120):
        write(home, conversation(f"s{n}", *["words " * 2000] * 20), f"s{n}")
    with running(home) as daemon, daemon.wire() as wire:
        times, seen, causes = [], [], []

        def is_read() -> bool:
            begun = time.monotonic()
            status = wire.call("status")
            times.append(time.monotonic() - begun)
            if status["backfill"] is not None:
                seen.append(status["backfill"])
                causes.append(status["causes"])
            return bool(status["ledger"]["turns"] >= 120 * 19)

        until(is_read)
        assert seen
        assert all(0 <= one["done"] <= one["total"] and one["bytesPerSecond"] >= 0 for one in seen)
        times.sort()
        assert times[len(times) * 99 // 100] < 0.2 * noise(), times[-5:]
        assert any(one["state"] == "waiting" and one["pending"] > 0 for one in causes)
        until(lambda: wire.call("status")["backfill"] is None)
        until(lambda: wire.call("status")["causes"] == {"state": "ready", "pending": 0})


def test_who_is_through_has_recorded_all_there_was(home: Home) -> None:
    """From the first answer on, a source that watches or polls with nothing pending has nothing left to read."""
    for n in range(60):
        write(home, conversation(f"s{n}", *["words"] * 20), f"s{n}")
    path = home.root.parent / ".local" / "share" / "opencode" / "opencode.db"
    path.parent.mkdir(parents=True)
    with closing(opencode.Writer(path)) as writer:
        writer.session("ses")
        writer.user("u", "ses", "hello")
        for n in range(50):
            writer.step(f"a{n}", "ses", "u", opencode.text("words"), tokens=opencode.tokens(input=5, output=1))
    with running(home) as daemon, daemon.wire() as wire:
        for source, turns in (("claude-code", 60 * 20), ("opencode", 50)):

            def is_through(source: str = source) -> bool:
                (told,) = [one for one in wire.call("status")["sources"] if one["name"] == source]
                return told["state"] in ("watching", "polling", "absent") and not told["pending"]

            until(is_through)
            totals = wire.call("summary", source=source)["totals"]
            assert totals["turns"] + totals["openTurns"] >= turns


async def test_a_source_that_fails_is_started_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """F77: with a pause that grows, counted and named by the kind of its failure, not by its words."""
    monkeypatch.setattr("burnd.tasks.FIRST_DELAY_S", 0.05)
    kept = SourceSupervisor("failing", FailingSource)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(kept.run)
        with anyio.fail_after(60):
            while kept.restarts < 3:  # noqa: ASYNC110 - nothing tells of it but the count
                await anyio.sleep(0.01)
            assert await kept.flush() == "stopped on RuntimeError and is started again"
        assert kept.last_failure == "RuntimeError"
        tasks.cancel_scope.cancel()
    assert kept.status().state == "degraded"
    assert "anybody" not in kept.status().detail


async def test_flush_does_not_hang_on_a_source_that_ends() -> None:
    """The answer lists a source that failed during a flush."""
    kept = SourceSupervisor("failing", FailingSource)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(kept.run)
        with anyio.fail_after(60):
            assert await kept.flush() == "stopped on RuntimeError and is started again"
        tasks.cancel_scope.cancel()


def test_others_go_on_beside_a_failing_source(home: Home) -> None:
    """F77: a daemon with a source that fails every time records the rest and shows the restarts."""
    daemon = Daemon(home, script="tests.server.failing")
    try:
        daemon.wait_until_ready()
        write(home, conversation("s1", "one"), "s1")
        with daemon.wire() as wire:
            wire.call("flush")
            assert wire.call("status")["ledger"]["turns"] == 1
            until(lambda: _of(wire.call("status"), "failing")["restarts"] > 0)
            assert _of(wire.call("status"), "claude-code")["restarts"] == 0
            until(lambda: any(notice["what"].startswith("failing: ") for notice in wire.call("status")["degraded"]))
    finally:
        daemon.kill()


def _of(status: dict[str, Any], name: str) -> dict[str, Any]:
    found: dict[str, Any] = next(source for source in status["sources"] if source["name"] == name)
    return found


@pytest.mark.timed
async def test_status_describes_one_moment(opened: Opened, home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """A daemon that opens while its status is collected is not reported as starting with an index that is ready."""
    pipeline = await opened()
    service = Service(home, load(home, {}), socket="", environ={})

    async def machine() -> str:
        service.open(pipeline, Spool(home.spool, pipeline, {}))
        return "m1"

    monkeypatch.setattr(service, "machine", machine)
    answer = await status(service, StatusParams())
    assert (answer["daemon"]["state"], answer["index"]["state"]) == ("ready", "ready")


async def test_a_question_that_takes_too_long_is_stopped(opened: Opened, home: Home) -> None:
    """F56: and the one after it is answered at once."""
    from burnd.index.query_pool import TookTooLong

    pipeline: Pipeline = await opened()
    endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n"
    begun = time.monotonic()
    with pytest.raises(TookTooLong):
        await pipeline.index.ask(lambda db: db.execute(endless).fetchone(), within=0.1)
    assert await pipeline.index.ask(lambda db: db.execute("SELECT 1").fetchone()) == (1,)
    assert time.monotonic() - begun < 3 * noise()


async def test_a_question_that_is_given_up_in_its_first_moments_runs_no_more(opened: Opened) -> None:
    """F70: however early a request is cancelled, its thread and connection are free at once."""
    pipeline: Pipeline = await opened()
    at_work: set[int] = set()

    def endless(db: sqlite3.Connection, number: int) -> None:
        at_work.add(number)
        try:
            db.execute("WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n")
        finally:
            at_work.discard(number)

    for number in range(30):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(pipeline.index.ask, partial(endless, number=number))
            for _ in range(number % 6):
                await anyio.lowlevel.checkpoint()
            await anyio.sleep(number / 10_000)
            tasks.cancel_scope.cancel()
        assert not at_work
    assert await pipeline.index.ask(lambda db: db.execute("SELECT 1").fetchone()) == (1,)


def test_who_leaves_takes_the_question_along(home: Home) -> None:
    """F70: a client that goes away frees the thread its question was running in, at once."""
    daemon = Daemon(home, script="tests.server.endless")
    try:
        daemon.wait_until_ready()
        for _ in range(8):
            with daemon.wire() as wire:
                wire.request("endless")
                time.sleep(0.05)
        with daemon.wire() as wire:
            begun = time.monotonic()
            wire.call("stamps.list")
            assert time.monotonic() - begun < 4.5  # each of those questions may take five seconds
    finally:
        daemon.kill()


def test_long_questions_make_way_for_short_ones(home: Home) -> None:
    """F56, F67: two slow requests run up to five seconds without delaying others, then are stopped."""
    daemon = Daemon(home, script="tests.server.endless")
    try:
        daemon.wait_until_ready()
        with daemon.wire() as one, daemon.wire() as other, daemon.wire() as wire:
            for slow in (one, other):
                slow.request("dawdling")
            time.sleep(0.1)
            begun = time.monotonic()
            for method in ("stamps.list", "statusline", "summary", "status"):
                wire.call(method)
            assert time.monotonic() - begun < 3  # of the five that they take
            for slow in (one, other):
                answer = slow.line()
                assert answer is not None
                assert answer["error"]["data"]["name"] == "too_long"
    finally:
        daemon.kill()


def test_long_questions_hold_up_neither_status_nor_recording(home: Home) -> None:
    """F56: eight questions end only when a gate opens; `status`, the status line and a new turn do not wait for it."""
    daemon = Daemon(home, script="tests.server.endless")
    try:
        daemon.wait_until_ready()
        slow = [daemon.wire() for _ in range(8)]
        for wire in slow:
            wire.request("gated")
        with daemon.wire() as wire:
            write(home, conversation("s1", "one"), "s1")
            until(lambda: wire.call("status")["ledger"]["turns"] == 1)
            wire.call("statusline")
            wire.call("stamp", selector={"sessionId": "s1"}, enrichment={"a": "b"})
            assert select.select([one.socket for one in slow], [], [], 0)[0] == []  # none has an answer yet
            (home.root / "gate").touch()
            for one in slow:
                answer = one.line()
                assert answer is not None
                assert answer["result"]["rows"] == []
        for one in slow:
            one.close()
    finally:
        daemon.kill()


def test_a_bug_in_a_method_is_an_error_and_a_line_in_the_log(home: Home) -> None:
    """F69: the client gets an internal error, the log its place; neither contains the exception's text."""
    daemon = Daemon(home, script="tests.server.endless")
    try:
        daemon.wait_until_ready()
        with daemon.wire() as wire:
            error = wire.error("broken")
            assert error["data"]["name"] == "failed"
            assert "canary" not in json.dumps(error)
            assert wire.call("status")["version"] == 1
        until(lambda: "request.failed" in daemon.log.read_text())  # a thread writes the log
        (failed,) = [json.loads(line) for line in daemon.log.read_text().splitlines() if "request.failed" in line]
        assert (failed["method"], failed["error"]) == ("broken", "ZeroDivisionError")
        assert failed["where"].startswith("endless.py:")
        assert "canary" not in daemon.log.read_text()
    finally:
        daemon.kill()


MADE: Source = FailingSource()  # it is one, as mypy checks
