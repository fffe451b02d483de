"""`burnctl claude` with a real daemon: session, content and cost."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import pytest

from burnd.paths import Home
from tests import warm
from tests.burnctl.runner import BURNCTL
from tests.burnctl.stub_claude import SECRET, SUBAGENT_SECRET
from tests.burnctl.stub_machine import StubMachine
from tests.server.logs import contents
from tests.server.wire import Daemon, Wire, running, until


@pytest.fixture
def daemon(machine: StubMachine) -> Iterator[Daemon]:
    """One in full mode that knows neither the wrapper's CLAUDE_CONFIG_DIR nor its wishes."""
    with running(Home(machine.home)) as found:
        yield found


def ledger(machine: StubMachine, kind: str) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in (machine.home / "ledger.jsonl").read_text().splitlines()]
    return [line.get("record", line) for line in lines if line["kind"] == kind]


def turns(machine: StubMachine) -> set[tuple[str, str]]:
    """(session, rail) of every recorded turn."""
    return {(turn["sessionId"], turn["railId"]) for turn in ledger(machine, "turn")}


def holders(machine: StubMachine, *secrets: str) -> list[str]:
    """Every file below the home in which one of the secrets can be found, compressed or not."""
    import zstandard

    found = []
    for path, data in contents(machine.home):
        for start in (match.start() for match in re.finditer(b"\\x28\\xb5\\x2f\\xfd", data)):
            try:
                data += zstandard.ZstdDecompressor().decompressobj().decompress(data[start:])
            except zstandard.ZstdError:
                continue
        if any(secret.encode() in data for secret in secrets):
            found.append(str(path.relative_to(machine.home)))
    return found


def all_recorded(daemon: Daemon) -> None:
    """Whatever the wrapper, which waits for seconds only, could not wait for."""
    with daemon.wire() as wire:
        wire.call("spool")
        wire.call("flush")


def found_by_search(wire: Wire) -> set[str]:
    """Sessions in which search finds the words."""
    words = ("Hieronymus", "Balthasar")
    return {hit["sessionId"] for word in words for hit in wire.call("sessions.search", query=word)["hits"]}


def test_its_turns_are_recorded_with_its_tags(machine: StubMachine, daemon: Daemon) -> None:
    """A folder the daemon did not know is read from the start of the session on, and everything is tagged."""
    done = machine.run("claude", "--tag", "workflowId=wf-1", "--", "-p", "hello", do="talk exit 3")
    assert done.returncode == 3
    session = machine.note["argv"][1]
    all_recorded(daemon)
    with daemon.wire() as wire:
        assert wire.call("summary", workflow="wf-1")["totals"]["turns"] == 4
    assert machine.note["spool"] == []
    assert turns(machine) == {(session, "main"), (session, "a0123456789abcdef")}
    assert [stamp["selector"] for stamp in ledger(machine, "stamp")] == [{"sessionId": session}]
    assert (machine.home / "content" / f"{session}.jsonl").exists()
    assert holders(machine, SECRET) != []  # so that finding nothing means something below


def test_its_line_shows_turns_tokens_and_cost(machine: StubMachine, daemon: Daemon) -> None:
    """On stderr, when it has ended: exact, since the session was flushed first."""

    def is_told() -> bool:
        """On a busy machine an answer that takes more than three seconds is not shown."""
        done = machine.run("claude", do="talk")
        said = rf"burnctl: session {machine.note['argv'][1][:8]}: 4 requests, 4\.6k tokens, \$0\.\d+ at API prices\n"
        assert done.stdout == ""
        assert not done.stderr or re.fullmatch(said, done.stderr), done.stderr
        return bool(done.stderr)

    until(is_told)


@pytest.mark.parametrize("mode", ["off", "hash-only"])
def test_no_content_of_it_is_kept_anywhere(machine: StubMachine, daemon: Daemon, mode: str) -> None:
    """RELAYBURN_CONTENT_STORE=off: beside a daemon in full mode, neither its text nor its subagents' is in any file,
    while another session's is; and no restart, flush or deleted index brings it back."""
    machine.run("claude", do="talk", RELAYBURN_CONTENT_STORE=mode)
    private = machine.note["argv"][1]
    all_recorded(daemon)
    assert {session for session, _ in turns(machine)} == {private}
    assert holders(machine, SECRET, SUBAGENT_SECRET) == []
    hashes = [call.get("resultHash") for turn in ledger(machine, "turn") for call in turn["toolCalls"]]
    assert all(hashes) if mode == "hash-only" else not any(hashes)

    daemon.terminate()
    for path in sorted((machine.home / "index").rglob("*"), reverse=True):
        path.unlink() if path.is_file() else path.rmdir()
    with running(Home(machine.home), CLAUDE_CONFIG_DIR=str(machine.config)) as again, again.wire() as wire:
        wire.call("flush")
        assert holders(machine, SECRET, SUBAGENT_SECRET) == []
        assert {session for session, _ in turns(machine)} == {private}
        machine.run("claude", do="talk")
        public = machine.note["argv"][1]
        wire.call("flush")
        until(lambda: found_by_search(wire) != set())
        assert found_by_search(wire) == {public}
        assert holders(machine, SECRET) != []
        assert [path.stem for path in (machine.home / "content").glob("*.jsonl")] == [public]


def test_no_content_of_it_is_kept_when_the_daemon_comes_later(machine: StubMachine) -> None:
    """With the daemon down the wish is spooled, and holds when the daemon finds the transcript at its start."""
    machine.run("claude", "--tag", "a=b", do="talk", RELAYBURN_CONTENT_STORE="off")
    assert len(list((machine.home / "spool").iterdir())) == 2
    with running(Home(machine.home), CLAUDE_CONFIG_DIR=str(machine.config)) as daemon, daemon.wire() as wire:
        wire.call("flush")
        assert turns(machine) != set()
        assert holders(machine, SECRET, SUBAGENT_SECRET) == []
        assert list((machine.home / "spool").glob("*.json")) == []
    assert [stamp["enrichment"] for stamp in ledger(machine, "stamp")] == [{"a": "b"}]


def test_no_content_of_a_continued_session_is_kept(machine: StubMachine, daemon: Daemon) -> None:
    """--continue under off: from then on nothing, though which session it would be was not said."""
    machine.run("claude", do="talk", RELAYBURN_CONTENT_STORE="off")
    first = machine.note["argv"][1]
    done = machine.run("claude", "--tag", "step=2", "--", "--continue", do="talk", RELAYBURN_CONTENT_STORE="off")
    assert done.returncode == 0
    all_recorded(daemon)
    assert {session for session, _ in turns(machine)} == {first}
    assert len(ledger(machine, "turn")) >= 8
    assert holders(machine, SECRET, SUBAGENT_SECRET) == []
    assert [stamp["selector"]["sessionId"] for stamp in ledger(machine, "stamp")] == [first]


def test_what_was_captured_against_the_wish_goes(machine: StubMachine, daemon: Daemon) -> None:
    """A session picked within Claude Code is known only afterwards; content stored by then is erased."""
    session = "0f9c1d2e-0000-4000-8000-000000000001"
    done = machine.run(
        "claude", "--", "--resume", do="talk silent 0.5", STUB_SESSION=session, RELAYBURN_CONTENT_STORE="off"
    )
    assert done.returncode == 0
    all_recorded(daemon)
    assert holders(machine, SECRET, SUBAGENT_SECRET) == []


CLEARED = "0f9c1d2e-0000-4000-8000-00000000000c"


@pytest.mark.parametrize("roots", ["known to the daemon", "told by the wrapper"])
def test_no_content_of_a_cleared_session_is_kept(machine: StubMachine, roots: str) -> None:
    """After /clear the process uses a new session, which only the registry names."""
    env: dict[str, Any] = {"CLAUDE_CONFIG_DIR": str(machine.config)} if roots == "known to the daemon" else {}
    with running(Home(machine.home), **env) as daemon:
        do = "live talk clear talk silent 1.5"
        machine.run("claude", do=do, STUB_CLEARED=CLEARED, RELAYBURN_CONTENT_STORE="off")
        private = machine.note["argv"][1]
        all_recorded(daemon)
        assert {session for session, _ in turns(machine)} == {private, CLEARED}
        assert holders(machine, SECRET, SUBAGENT_SECRET) == []


def test_no_content_of_a_session_cleared_just_before_the_end_is_kept(machine: StubMachine) -> None:
    """The wrapper looks into the registry once more when its client has ended."""
    with running(Home(machine.home), CLAUDE_CONFIG_DIR=str(machine.config)) as daemon:
        machine.run("claude", do="talk live clear talk", STUB_CLEARED=CLEARED, RELAYBURN_CONTENT_STORE="off")
        all_recorded(daemon)
        assert CLEARED in {session for session, _ in turns(machine)}
        assert holders(machine, SECRET, SUBAGENT_SECRET) == []


def test_no_content_of_a_session_cleared_without_the_wrapper_is_kept(machine: StubMachine) -> None:
    """The daemon sees by the registry that a process which resumed a private session went on with another."""
    with running(Home(machine.home), CLAUDE_CONFIG_DIR=str(machine.config)) as daemon:
        machine.run("claude", do="talk", RELAYBURN_CONTENT_STORE="off")
        private = machine.note["argv"][1]
        plain = ["claude", "--resume", private]
        with subprocess.Popen(
            plain,
            cwd=machine.work,
            env={**machine.env, "STUB_DO": "live talk silent 4 clear talk silent 4", "STUB_CLEARED": CLEARED},
        ) as started:
            until(lambda: (CLEARED, "main") in turns(machine))
            started.wait()
        all_recorded(daemon)
        assert holders(machine, SECRET, SUBAGENT_SECRET) == []


@pytest.mark.parametrize("mode", ["off", ""])
def test_a_background_session_is_the_one_that_is_tagged(machine: StubMachine, daemon: Daemon, mode: str) -> None:
    """`claude --bg` chooses the id: that one has the tags and the content mode, and no other id appears."""
    chosen = "0f9c1d2e-0000-4000-8000-0000000000b9"
    wishes = {"RELAYBURN_CONTENT_STORE": mode} if mode else {}
    done = machine.run(
        "claude", "--tag", "workflowId=wf-1", "--", "--bg", "hello", do="background", STUB_BACKGROUND=chosen, **wishes
    )
    assert done.returncode == 0, done.stderr
    assert machine.note["argv"] == ["--bg", "hello"]
    with daemon.wire() as wire:
        until(lambda: wire.call("summary", workflow="wf-1")["totals"]["turns"] == 4)
    assert {session for session, _ in turns(machine)} == {chosen}
    assert {stamp["selector"]["sessionId"] for stamp in ledger(machine, "stamp")} == {chosen}
    assert (holders(machine, SECRET, SUBAGENT_SECRET) == []) == bool(mode)


def test_a_resumed_sessions_past_keeps_its_tags(machine: StubMachine, daemon: Daemon) -> None:
    """Each step's tags are on the turns of that step."""
    machine.run("claude", "--tag", "step=1", do="talk")
    session = machine.note["argv"][1]
    time.sleep(0.01)
    machine.run("claude", "--tag", "step=2", "--", "--resume", session, do="talk")
    all_recorded(daemon)
    first, second = ledger(machine, "stamp")
    assert first["selector"] == {"sessionId": session}
    assert second["selector"]["sessionId"] == session
    since = second["selector"]["range"]["fromTs"]
    before = [turn for turn in ledger(machine, "turn") if turn["ts"] < since]
    assert len(before) == 4
    with daemon.wire() as wire:
        steps = wire.call("summary", by="tag:step")["rows"]
    assert {row["key"]: row["turns"] for row in steps} == {"1": 4, "2": 4}
    assert len({turn["messageId"] for turn in ledger(machine, "turn")}) == 8


def test_a_daemon_that_is_busy_does_not_hold_it_up(machine: StubMachine, daemon: Daemon) -> None:
    """With a stopped daemon Claude Code starts all the same, and its log is read when the daemon continues."""
    daemon.process.send_signal(signal.SIGSTOP)
    try:
        begun = time.time()
        done = machine.run("claude", "--tag", "a=b", do="talk exit 4", RELAYBURN_CONTENT_STORE="off")
        assert done.returncode == 4
        assert machine.note["began"] - begun < 30  # the daemon would not have answered for ever
    finally:
        daemon.process.send_signal(signal.SIGCONT)
    all_recorded(daemon)
    assert len(ledger(machine, "stamp")) == 1
    assert turns(machine) != set()
    assert holders(machine, SECRET, SUBAGENT_SECRET) == []


def test_many_at_once(machine: StubMachine, daemon: Daemon) -> None:
    """Ten wrappers in one folder at the same time: ten sessions, each with its own tag."""
    env = {**machine.env, "STUB_DO": "talk"}
    running_ones = [
        warm.Popen([*BURNCTL, "claude", "--quiet", "--tag", f"n={n}"], env=env, cwd=machine.work) for n in range(10)
    ]
    assert [one.wait(timeout=120) for one in running_ones] == [0] * 10
    all_recorded(daemon)
    stamps = {stamp["selector"]["sessionId"]: stamp["enrichment"]["n"] for stamp in ledger(machine, "stamp")}
    assert set(stamps) == {session for session, _ in turns(machine)}
    assert sorted(stamps.values()) == sorted(str(n) for n in range(10))


def test_no_stamp_is_lost_while_the_daemon_is_killed_and_started(machine: StubMachine) -> None:
    """Stamps made one after the other while the daemon is killed and started again: all are in the ledger, once."""
    script = (
        "import sys; from burnctl import Client\n"
        "for n in range(150):\n"
        "    with Client() as client: client.stamp(session=f's{n}', a='b')\n"
    )
    stamping = subprocess.Popen([sys.executable, "-c", script], env=machine.env)
    home = Home(machine.home)
    while stamping.poll() is None:
        with running(home, ready=False) as daemon:
            until((machine.home / "burnd.sock").exists, why=daemon.why)
            time.sleep(0.3)
    assert stamping.returncode == 0
    with running(home) as daemon, daemon.wire() as wire:
        wire.call("spool")
    stamps = [stamp["selector"]["sessionId"] for stamp in ledger(machine, "stamp")]
    assert sorted(set(stamps)) == sorted(f"s{n}" for n in range(150))
    assert len(stamps) == len(set(stamps))
    assert list((machine.home / "spool").glob("*.json")) == []
