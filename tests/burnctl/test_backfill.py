"""While old logs are read, every answer is marked incomplete; only reports at a terminal wait."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from burnd.paths import Home
from burnd.recording.source import Progress, Status, backfill_state
from tests import warm
from tests.burnctl.invoke import LIMIT_S, TerminalProcess, environment, run
from tests.harness.opencode import data as opencode
from tests.server.logs import conversation, projects, write
from tests.server.wire import Wire, running, until

PARTIAL = "not complete yet."
ASKED: dict[str, dict[str, Any]] = {
    "summary": {},
    "compare": {},
    "export": {},
    "hotspots": {},
    "by_tool": {},
    "waste": {},
    "overhead": {},
    "limits": {},
    "statusline": {},
    "sessions.list": {},
    "sessions.search": {"query": "hello"},
    "why": {"session": "early"},
    "flow": {"session": "early"},
    "sessions.meta": {"id": "early"},
    "sessions.messages": {"id": "early"},
    "content.read": {"session": "early"},
}
REPORTS = ("summary", "waste", "hotspots", "by-tool", "compare", "sessions", "limits", "overhead", "export")


class Gates:
    """A daemon that reads on when a gate is opened."""

    def __init__(self, home: Home, folder: Path) -> None:
        self.home, self.folder = home, folder

    def open(self, *names: str) -> None:
        for name in names:
            (self.folder / name).touch()

    def wire(self) -> Wire:
        return Wire(self.home.root / "burnd.sock")


@contextmanager
def gated(home: Home, *names: str, ready: bool = True, **more: str) -> Iterator[Gates]:
    gates = Gates(home, home.root.parent / "gates")
    gates.folder.mkdir()
    gates.open(*names)
    with running(home, script="tests.server.gated", GATES=str(gates.folder), ready=ready, **more) as daemon:
        until(lambda: daemon.state() != "not listening")
        yield gates


def logs(home: Home) -> None:
    write(home, conversation("late", *["three"] * 5), "late")
    write(home, conversation("early", "one", "two"), "early")
    os.utime(projects(home) / "-home-dev-app" / "late.jsonl", (1e9, 1e9))  # the newest is read first


def backfill(wire: Wire, method: str) -> dict[str, Any]:
    answer = wire.call(method, **ASKED[method])
    found: dict[str, Any] = answer["backfill"]
    return found


def read_early(gates: Gates) -> None:
    with gates.wire() as wire:
        until(lambda: wire.call("summary")["totals"]["turns"] == 2)


@pytest.fixture
def half(home: Home) -> Iterator[Gates]:
    """Of two transcripts one is read."""
    logs(home)
    with gated(home, "scan", "opencode") as gates:
        read_early(gates)
        yield gates


def test_every_answer_carries_it_from_the_first_moment_to_the_last(home: Home) -> None:
    """Before a source has looked at its files, while it reads, and with the same fields when all is read."""
    logs(home)
    with gated(home, "opencode") as gates, gates.wire() as wire:
        unknown = {"done": False, "percent": None, "secondsLeft": None, "blocked": None}
        nameless = [method for method, params in ASKED.items() if not {"session", "id"} & params.keys()]
        assert {method: backfill(wire, method) for method in nameless} == dict.fromkeys(nameless, unknown)
        assert wire.call("status")["backfill"]["total"] == 0
        assert "old logs are still being read" in wire.error("sessions.meta", id="early")["data"]["hint"]
        gates.open("scan")
        read_early(gates)
        for method in ASKED:
            found = backfill(wire, method)
            assert found["done"] is False, method
            assert 0 < found["percent"] < 100, method
        gates.open("late")
        wire.call("flush")
        done = {"done": True, "percent": 100, "secondsLeft": 0, "blocked": None}
        assert {method: backfill(wire, method) for method in ASKED} == dict.fromkeys(ASKED, done)
        assert wire.call("status")["backfill"] is None


def test_a_pipe_does_not_wait_and_states_that_totals_are_partial(half: Gates) -> None:
    """On top of text, in JSON, and beside CSV; the status line too."""
    home = half.home
    for verb in REPORTS:
        done = run(home, verb)
        said = done.stderr if verb == "export" else done.stdout
        assert PARTIAL in said, (verb, done)
        if verb != "export":
            assert said.startswith("Reading old logs: "), (verb, said)
            assert json.loads(run(home, verb, "--json").stdout)["backfill"]["done"] is False, verb
    assert run(home, "summary", "--csv").stdout.startswith("key,")
    assert PARTIAL in run(home, "summary", "--csv").stderr
    assert run(home, "search", "hello").stdout.startswith("Reading old logs: ")
    assert run(home, "show", "early").stdout.startswith("Reading old logs: ")
    assert "reading old logs " in run(home, "statusline").stdout
    half.open("late")
    assert run(home, "flush").returncode == 0
    for verb in ("summary", "export", "sessions"):
        done = run(home, verb)
        assert "old logs" not in done.stdout + done.stderr, verb


def test_at_a_terminal_a_report_waits_with_a_bar(half: Gates) -> None:
    with TerminalProcess(half.home, "summary", columns=100) as person:
        person.wait_for("reading old logs")
        half.open("late")
        shown = person.end()
    assert "read old logs: 7 requests in " in shown.text
    assert PARTIAL not in shown.text


def test_at_a_terminal_search_and_no_wait_print_what_there_is(half: Gates) -> None:
    for arguments in (
        ("summary", "--no-wait"),
        ("sessions", "--no-wait"),
        ("search", "hello"),
        ("hotspots", "--no-wait"),
    ):
        with TerminalProcess(half.home, *arguments, columns=100) as person:
            shown = person.end()
        assert shown.code == 0
        assert "Reading old logs: " in shown.text, arguments
        assert PARTIAL in shown.text, arguments


def test_an_opencode_database_that_was_not_looked_at_is_not_read(home: Home) -> None:
    path = home.root.parent / ".local" / "share" / "opencode" / "opencode.db"
    with closing(opencode.Writer(path)) as writer:
        writer.session("ses")
        with gated(home, "scan", "late") as gates, gates.wire() as wire:
            assert backfill(wire, "summary")["done"] is False
            gates.open("opencode")
            wire.call("flush")
            assert backfill(wire, "summary")["done"] is True


def test_a_short_id_is_not_resolved_before_all_sessions_are_known(home: Home) -> None:
    """Two sessions begin with the same character and one is read: the stamp waits in the spool and is then refused."""
    for session in ("f1", "f2"):
        write(home, conversation(session, "one"), session)
    os.utime(projects(home) / "-home-dev-app" / "f2.jsonl", (1e9, 1e9))
    with gated(home, "scan", "opencode", LATE="f2") as gates, gates.wire() as wire:
        until(lambda: wire.call("summary")["totals"]["turns"] == 1)
        assert wire.error("stamp", selector={"sessionId": "f"}, enrichment={"a": "b"})["data"]["name"] == "not_now"
        assert run(home, "stamp", "--session", "f", "a=b").returncode == 0
        assert wire.call("stamp", selector={"sessionId": "f1"}, enrichment={"a": "c"})["stamped"] == 1
        gates.open("late")
        wire.call("flush")
        assert [one["selector"]["sessionId"] for one in wire.call("stamps.list")["stamps"]] == ["f1"]
        (trouble,) = wire.call("status")["degraded"]
        assert "more than one session begins with 'f'" in trouble["what"]


def test_a_source_that_cannot_go_on_keeps_no_one_waiting(home: Home) -> None:
    """The answer contains the reason for being incomplete, at a terminal too."""
    with gated(home, "scan", "late", "opencode", "broken") as gates, gates.wire() as wire:
        until(lambda: backfill(wire, "summary")["blocked"] is not None)
        with TerminalProcess(home, "summary", columns=200) as person:
            shown = person.end()
        assert "Old logs cannot be read at the moment (codex: stopped on RuntimeError" in shown.text
        assert "Totals are not complete. See: burnctl status" in shown.text


def test_a_flush_right_after_the_start_waits_until_it_can_be_done(home: Home) -> None:
    """Over the socket, and as a script calls it, with a session too."""
    logs(home)
    with gated(home, "scan", "late", "opencode", "shut", ready=False) as gates, gates.wire() as wire:
        assert wire.call("status")["daemon"]["state"] == "starting"
        assert wire.error("summary")["data"]["name"] == "not_now"
        assert run(home, "statusline").stdout == "burnd is starting\n"
        wire.request("flush")
        command = [sys.executable, "-m", "burnctl", "flush", "--session", "late"]
        with warm.Popen(command, env=environment(home), stdout=subprocess.PIPE, text=True) as script:
            (gates.folder / "shut").unlink()
            assert script.communicate(timeout=LIMIT_S)[0] == "everything logged so far is recorded\n"
            assert script.returncode == 0
        answer = wire.line()
        assert answer is not None
        assert answer["result"]["flushed"] is True
        assert wire.call("summary")["totals"]["turns"] == 7


def test_the_state_over_all_sources() -> None:
    ready = Status("a", "watching", "")
    half_read = Status("b", "watching", "", progress=Progress(50, 100, 10.0))
    unseen = Status("c", "waiting", "", has_looked=False)
    full = Status("d", "waiting", "", progress=Progress(1, 2, 0.0), blocked="disk full")

    def state(*sources: Status) -> tuple[Any, ...]:
        found = backfill_state(sources)
        return found.done, found.percent, found.seconds_left, found.blocked

    assert state(ready) == (True, 100, 0, None)
    assert state(ready, half_read) == (False, 50, 5, None)
    assert state(half_read, unseen) == (False, None, None, None)
    assert state(Status("b", "watching", "", progress=Progress(100, 100, 10.0))) == (False, 99, 1, None)
    assert state(full, half_read)[3] is None
    assert state(full) == (False, 50, None, "d: disk full")
