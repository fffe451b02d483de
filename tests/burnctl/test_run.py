"""`burnctl run`: tags wait for the session that a harness begins."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from burnd.paths import Home
from tests.burnctl.runner import BURNCTL, spool_files, spooled
from tests.burnctl.stub_claude import SECRET
from tests.burnctl.stub_machine import StubMachine
from tests.server.wire import Daemon, running, until

OLD, OURS, OTHER = (f"0f9c1d2e-0000-4000-8000-00000000000{n}" for n in (1, 2, 3))


@pytest.fixture
def daemon(machine: StubMachine) -> Iterator[Daemon]:
    with running(Home(machine.home), CLAUDE_CONFIG_DIR=str(machine.config)) as found:
        yield found


def stamps(machine: StubMachine) -> dict[str, dict[str, str]]:
    """Tags of each session."""
    lines = [json.loads(line) for line in (machine.home / "ledger.jsonl").read_text().splitlines()]
    return {line["selector"]["sessionId"]: line["enrichment"] for line in lines if line["kind"] == "stamp"}


def all_recorded(daemon: Daemon) -> None:
    """Whatever the wrapper, which waits for seconds only, could not wait for."""
    with daemon.wire() as wire:
        wire.call("flush")
        wire.call("spool")


def harness(machine: StubMachine, session: str, do: str = "talk") -> None:
    """Starts the harness without the wrapper."""
    env = {**machine.env, "STUB_DO": do, "STUB_SESSION": session}
    subprocess.run(["harness"], env=env, cwd=machine.work, check=True)


def test_a_claim_is_written_before_the_start_and_closed_after(machine: StubMachine) -> None:
    """With no daemon: folder, time and tags are on the disk when the harness starts; its end is noted in the same
    file."""
    done = machine.run("run", "--tag", "workflowId=wf-1", "--", "harness", "--flag", "a b", do="exit 5")
    assert (done.returncode, done.stderr) == (5, "")
    assert machine.note["argv"] == ["--flag", "a b"]
    (before,) = machine.note["spool"]
    (after,) = spooled(machine.home)
    assert before == {
        "v": 1,
        "kind": "claim",
        "project": str(machine.work),
        "fromTs": before["fromTs"],
        "enrichment": {"workflowId": "wf-1"},
    }
    assert after == before | {"toTs": after["toTs"]}
    assert after["toTs"] >= after["fromTs"]


def test_the_claim_describes_the_harness(machine: StubMachine) -> None:
    """opencode and claude by name; the content mode of this environment."""
    machine.run("run", "--", "claude", RELAYBURN_CONTENT_STORE="off")
    (claim,) = spooled(machine.home)
    assert (claim["source"], claim["contentMode"]) == ("claude-code", "off")


def test_its_session_is_tagged(machine: StubMachine, daemon: Daemon) -> None:
    """The session that began in this folder while it ran, with its subagents; the spool is empty after."""
    done = machine.run("run", "--tag", "workflowId=wf-1", "--", "harness", do="talk", STUB_SESSION=OURS)
    assert done.returncode == 0, done.stderr
    all_recorded(daemon)
    assert stamps(machine) == {OURS: {"workflowId": "wf-1"}}
    assert spool_files(machine.home) == []


def test_an_older_session_is_not_taken(machine: StubMachine, daemon: Daemon) -> None:
    """A harness that resumes an old session, or writes nothing, leaves the tags unused, with a message."""
    harness(machine, OLD)
    time.sleep(0.02)

    def is_told() -> bool:
        """On a busy machine an answer that takes more than three seconds is not shown."""
        said = machine.run("run", "--tag", "a=b", "--", "harness", do="talk", STUB_SESSION=OLD).stderr
        assert not said or said.startswith("burnctl: no new session began in this folder"), said
        return bool(said)

    until(is_told)
    assert machine.run("run", "--tag", "a=b", "--quiet", "--", "harness", do="exit 0").stderr == ""
    all_recorded(daemon)
    assert stamps(machine) == {}


def test_a_session_after_its_end_is_not_taken(machine: StubMachine, daemon: Daemon) -> None:
    """A session that begins in this folder after the harness ended is unrelated."""
    machine.run("run", "--tag", "a=b", "--", "harness", do="exit 0")
    time.sleep(0.02)
    harness(machine, OTHER)
    all_recorded(daemon)
    assert stamps(machine) == {}


def test_another_folders_session_is_not_taken(machine: StubMachine, daemon: Daemon, folder: Path) -> None:
    """Only sessions of the folder it was started in."""
    elsewhere = folder / "elsewhere"
    elsewhere.mkdir()
    env = {**machine.env, "STUB_DO": "talk", "STUB_SESSION": OTHER}
    with machine.start("run", "--tag", "a=b", "--", "harness", do="wait talk", STUB_SESSION=OURS) as ours:
        assert ours.stdout is not None
        assert ours.stdout.readline() == "READY\n"
        subprocess.run(["claude"], env={k: v for k, v in env.items() if k != "STUB_NOTE"}, cwd=elsewhere, check=True)
        os.kill(machine.note["pid"], signal.SIGUSR1)
        ours.communicate(timeout=60)
    all_recorded(daemon)
    assert stamps(machine) == {OURS: {"a": "b"}}


def test_a_session_that_claude_was_wrapped_with_is_not_taken(machine: StubMachine, daemon: Daemon) -> None:
    """`burnctl claude` in the same folder at the same time has its own session, whichever writes first."""
    with machine.start("run", "--tag", "who=run", "--", "harness", do="wait talk", STUB_SESSION=OURS) as ours:
        assert ours.stdout is not None
        assert ours.stdout.readline() == "READY\n"
        pid = machine.note["pid"]
        machine.run("claude", "--tag", "who=claude", do="talk")
        wrapped = machine.note["argv"][1]
        with daemon.wire() as wire:
            wire.call("spool")
        os.kill(pid, signal.SIGUSR1)
        ours.communicate(timeout=60)
    all_recorded(daemon)
    assert stamps(machine) == {wrapped: {"who": "claude"}, OURS: {"who": "run"}}


def test_two_at_once_get_one_each(machine: StubMachine, daemon: Daemon, folder: Path) -> None:
    """Two claims on one folder: two sessions, one tag each. Both sessions begin while both claims are open."""
    notes = {session: folder / f"note-{session}" for session in (OURS, OTHER)}
    both = [
        machine.start(
            *("run", "--quiet", "--tag", f"n={session}", "--", "harness"),
            do="wait talk wait",
            STUB_SESSION=session,
            STUB_NOTE=str(note),
        )
        for session, note in notes.items()
    ]
    for lines in (["READY\n"], ["SIGUSR1\n", "READY\n"]):  # when both wait, both go on
        for one in both:
            assert one.stdout is not None
            assert [one.stdout.readline() for _ in lines] == lines
        for note in notes.values():
            os.kill(json.loads(note.read_text())["pid"], signal.SIGUSR1)
    for one in both:
        one.communicate(timeout=60)
        assert one.returncode == 0
    all_recorded(daemon)
    found = stamps(machine)
    assert set(found) == {OURS, OTHER}
    assert {tags["n"] for tags in found.values()} == {OURS, OTHER}


def test_with_the_daemon_down_it_is_tagged_later(machine: StubMachine) -> None:
    """The daemon finds claim and session together when it starts, however long after."""
    machine.run("run", "--tag", "a=b", "--", "harness", do="talk", STUB_SESSION=OURS)
    with running(Home(machine.home), CLAUDE_CONFIG_DIR=str(machine.config)) as daemon, daemon.wire() as wire:
        wire.call("flush")
        wire.call("spool")
    assert stamps(machine) == {OURS: {"a": "b"}}


def test_killed_with_its_harness_it_is_tagged_all_the_same(machine: StubMachine, daemon: Daemon) -> None:
    """After kill -9 of the wrapper the claim still applies."""
    with machine.start("run", "--tag", "a=b", "--", "harness", do="talk wait", STUB_SESSION=OURS) as ours:
        assert ours.stdout is not None
        assert ours.stdout.readline() == "READY\n"
        ours.kill()
        os.kill(machine.note["pid"], signal.SIGKILL)
        ours.communicate()
    all_recorded(daemon)
    assert stamps(machine) == {OURS: {"a": "b"}}


def test_no_content_of_it_is_kept(machine: StubMachine, daemon: Daemon) -> None:
    """RELAYBURN_CONTENT_STORE=off: text captured before the session was known is erased."""
    machine.run("run", "--", "harness", do="talk", STUB_SESSION=OURS, RELAYBURN_CONTENT_STORE="off")
    all_recorded(daemon)
    assert not (machine.home / "content" / f"{OURS}.jsonl").exists()
    assert SECRET.encode() not in (machine.home / "index" / "burn.db").read_bytes()


def test_signals_and_exit_codes_are_the_harness_s(machine: StubMachine) -> None:
    """As for claude: it is the same code."""
    assert machine.run("run", "--", "harness", do="exit 42").returncode == 42
    assert machine.run("run", "--", "harness", do=f"die {signal.SIGKILL}").returncode == 137
    with machine.start("run", "--", "harness", do="wait exit 7") as running_one:
        assert running_one.stdout is not None
        assert running_one.stdout.readline() == "READY\n"
        running_one.send_signal(signal.SIGTERM)
        assert running_one.wait(timeout=60) == 7
        running_one.communicate()
    assert machine.signals == "SIGTERM"


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        ([], 2, "COMMAND is missing"),
        (["--tag", "a=b", "--"], 2, "COMMAND is missing"),
        (["--tag", "a", "--", "harness"], 2, "is not KEY=VALUE"),
        (["--", "no-such-harness"], 127, "no-such-harness was not found on PATH"),
        (["--", "/no/such/harness"], 127, "/no/such/harness was not found"),
        (["--", "/etc/passwd"], 126, "is not executable"),
    ],
)
def test_mistakes(machine: StubMachine, words: list[str], code: int, says: str) -> None:
    """Said in a line, before anything is claimed or started."""
    done = machine.run("run", *words)
    assert done.returncode == code
    assert says in done.stderr
    assert not machine.home.exists()


def test_a_working_folder_that_is_gone(machine: StubMachine) -> None:
    """F82: said, and nothing is started."""
    script = f"rmdir {machine.work}; exec {' '.join(BURNCTL)} run -- harness"
    done = subprocess.run(
        ["sh", "-c", script], env=machine.env, cwd=machine.work, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "this folder no longer exists" in done.stderr
    assert not machine.home.exists()


def test_its_line_is_about_the_session_it_took(machine: StubMachine, daemon: Daemon) -> None:
    """Turns, tokens and cost on stderr, when it is known which session it was."""
    sessions = iter(range(100))

    def is_told() -> bool:
        """On a busy machine an answer that takes more than three seconds is not shown."""
        session = f"{next(sessions):08d}-0000-4000-8000-000000000009"
        said = machine.run("run", "--", "harness", do="talk", STUB_SESSION=session).stderr
        assert not said or said.startswith(f"burnctl: session {session[:8]}: 4 requests, 4.6k tokens, $0."), said
        return bool(said)

    until(is_told)
