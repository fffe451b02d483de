"""`burnctl restore` with a real burnd: a lost log is written again, and nothing is counted twice."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from burnd.paths import Home
from tests.burnctl.invoke import run
from tests.harness.claude_code.transcript import Transcript, call, text, thinking
from tests.server.wire import Daemon, running

SESSION = "5e551011-0000-4000-8000-000000000001"


@pytest.fixture
def log(home: Home) -> Path:
    """A session of Claude Code with a call, in the folder of its harness."""
    t = Transcript()
    t.prompt("fix the bug " * 200)
    t.attach("skill_listing", content="- a skill", rendered="a skill")
    t.calls("msg_a1", thinking("hm"), output=5)
    t.calls("msg_a1", call("c1", "Bash", command="pytest " * 200), output=5)
    t.result("c1", "all passed " * 200)
    t.says("msg_a2", text("done"))
    path = home.root.parent / ".claude" / "projects" / "-home-dev-app" / f"{SESSION}.jsonl"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"".join(line + b"\n" for line in t.lines))
    return path


@pytest.fixture
def daemon(home: Home, log: Path) -> Iterator[Daemon]:
    with running(home) as daemon:
        with daemon.wire() as wire:
            wire.call("flush")
        yield daemon


def files_of(home: Home) -> dict[str, bytes]:
    """The ledger's turns and all content."""
    turns = [line for line in home.ledger.read_bytes().splitlines() if b'"kind":"turn"' in line]
    return {"turns": b"\n".join(turns)} | {path.name: path.read_bytes() for path in home.content.glob("*.jsonl")}


def test_a_restored_log_adds_nothing(home: Home, log: Path, daemon: Daemon) -> None:
    """No turn, no revision, no content, the same totals; what the harness appends to it is recorded."""
    with daemon.wire() as wire:
        before, totals = files_of(home), wire.call("summary")["totals"]
        original = log.read_text()
        log.unlink()
        wire.call("flush")
        done = run(home, "restore", SESSION[:8])
        assert done.returncode == 0, done.stderr
        assert done.stdout == f"{log}\n"
        assert "thinking blocks left out" in done.stderr
        assert f"claude --resume {SESSION}" in done.stderr
        assert "fix the bug" in log.read_text() != original
        assert log.stat().st_mode & 0o777 == 0o600
        wire.call("flush")
        assert files_of(home) == before
        assert wire.call("summary")["totals"] == totals
        t = Transcript(prefix="v")
        t.begin(60)
        t.last = "u5"
        t.prompt("and now?")
        t.says("msg_a3", text("more"))
        t.prompt("thanks")
        with log.open("ab") as file:
            file.write(b"".join(line + b"\n" for line in t.lines))
        wire.call("flush")
        added = files_of(home)["turns"].removeprefix(before["turns"]).splitlines()
        (turn,) = [json.loads(line)["record"] for line in added if line]
        assert (turn["messageId"], turn["turnIndex"], turn["parent"]) == ("msg_a3", 2, "msg_a2")
        wire.call("rebuild", index=True)
        assert wire.call("summary")["totals"]["turns"] == totals["turns"] + 1


def test_nothing_is_replaced(home: Home, log: Path, daemon: Daemon, tmp_path: Path) -> None:
    """A log that is there is not restored; elsewhere only new files are written."""
    refused = run(home, "restore", SESSION)
    assert refused.returncode == 1
    assert f"the session's log is there: {log}" in refused.stderr
    there = tmp_path / "there"
    done = run(home, "restore", SESSION, "--to", str(there), "--json")
    answer = json.loads(done.stdout)
    path = there / "projects" / "-home-dev-app" / f"{SESSION}.jsonl"
    assert answer["files"] == [str(path)]
    assert len(answer["missing"]) == 1
    path.write_text("mine")
    again = run(home, "restore", SESSION, "--to", str(there))
    assert again.returncode == 1
    assert "is there already, and nothing was written" in again.stderr
    assert path.read_text() == "mine"


def test_logs_of_subagents_that_are_there_stay(home: Home, log: Path, daemon: Daemon) -> None:
    """Only what is missing is written."""
    t = Transcript(prefix="w", isSidechain=True, agentId="a12")
    t.prompt("look around")
    t.says("msg_b1", text("nothing here"))
    agent = log.with_suffix("") / "subagents" / "agent-a12.jsonl"
    agent.parent.mkdir(parents=True)
    agent.write_bytes(b"".join(line + b"\n" for line in t.lines))
    before = agent.read_bytes()
    with daemon.wire() as wire:
        wire.call("flush")
    log.unlink()
    done = run(home, "restore", SESSION)
    assert done.stdout == f"{log}\n", done.stderr
    assert agent.read_bytes() == before
    agent.unlink()
    log.unlink()
    assert run(home, "restore", SESSION).stdout == f"{log}\n{agent}\n"


def test_a_failed_write_leaves_nothing_and_can_be_tried_again(
    home: Home, log: Path, daemon: Daemon, tmp_path: Path
) -> None:
    """A file in place of a folder, a folder that may not be written to, a link to nothing in place of the log."""
    taken = tmp_path / "taken"
    taken.write_text("mine")
    refused = run(home, "restore", SESSION, "--to", str(taken))
    assert refused.returncode == 1
    assert "could not be written" in refused.stderr
    assert taken.read_text() == "mine"
    refused = run(home, "restore", SESSION, "--to", "/proc/nowhere")
    assert refused.returncode == 1
    assert "could not be written" in refused.stderr
    path = tmp_path / "there" / "projects" / "-home-dev-app" / f"{SESSION}.jsonl"
    path.parent.mkdir(parents=True)
    path.symlink_to(tmp_path / "nothing")
    assert "is there already" in run(home, "restore", SESSION, "--to", str(tmp_path / "there")).stderr
    assert [*path.parent.iterdir()] == [path]
    path.unlink()
    assert run(home, "restore", SESSION, "--to", str(tmp_path / "there")).returncode == 0


def test_a_session_without_content_gives_the_reason(home: Home, log: Path, daemon: Daemon) -> None:
    log.unlink()
    with daemon.wire() as wire:
        wire.call("content.forget", session=SESSION)
    refused = run(home, "restore", SESSION)
    assert refused.returncode == 1
    assert "cannot be restored: its content was pruned" in refused.stderr


def test_forgotten_lines_do_not_come_back_with_later_records(home: Home, log: Path, daemon: Daemon) -> None:
    """A log that ends in lines without records, which are stored with the next prompt."""
    t = Transcript(prefix="w")
    t.begin(30)
    t.attach("skill_listing", content="zanzibar", rendered="zanzibar")
    with daemon.wire() as wire, log.open("ab", buffering=0) as file:
        file.write(t.lines[-1] + b"\n")
        wire.call("flush")
        wire.call("content.forget", session=SESSION)
        t = Transcript(prefix="x")
        t.prompt("go on", timestamp="2099-01-01T00:00:00.000Z")
        file.write(t.lines[-1] + b"\n")
        wire.call("flush")
        stored = wire.call("sessions.recording", id=SESSION)["lines"]
    assert "go on" in stored
    assert "zanzibar" not in stored


@pytest.mark.parametrize("mode", ["off", "hash-only"])
def test_lines_read_while_no_text_is_stored_do_not_come_with_later_records(home: Home, log: Path, mode: str) -> None:
    """A log that ends in a reminder, read before the mode became full; the next reminder is stored."""
    t = Transcript(prefix="w")
    t.begin(30)
    t.attach("skill_listing", content="zanzibar", rendered="zanzibar")
    t.attach("skill_listing", content="lisbon", rendered="lisbon")
    t.prompt("go on")
    with log.open("ab") as file:
        file.write(t.lines[0] + b"\n")
    with running(home, RELAYBURN_CONTENT_STORE=mode) as daemon, daemon.wire() as wire:
        wire.call("flush")
    with running(home) as daemon, daemon.wire() as wire, log.open("ab", buffering=0) as file:
        file.write(b"\n".join(t.lines[1:]) + b"\n")
        wire.call("flush")
        stored = wire.call("sessions.recording", id=SESSION)["lines"]
    assert "go on" in stored
    assert "lisbon" in stored
    assert "zanzibar" not in stored
    assert "fix the bug" not in stored


def test_a_recording_is_paged_and_never_cut(home: Home, log: Path, daemon: Daemon) -> None:
    """A long result comes in several pages, and is whole when they are put together."""
    t = Transcript(session=SESSION, prefix="w")
    t.calls("msg_b1", call("c9", "Bash", command="cat"))
    t.result("c9", "één " * 500_000)
    with log.open("ab") as file:
        file.write(b"".join(line + b"\n" for line in t.lines))
    with daemon.wire() as wire:
        wire.call("flush")
        pages: list[str] = []
        token = None
        while not pages or token:
            page = wire.call("sessions.recording", id=SESSION, **({"next": token} if token else {}))
            pages.append(page["lines"])
            token = page["next"]
        assert wire.error("sessions.recording", id=SESSION, next="nonsense")["data"]["name"] == "refused"
    assert len(pages) > 1
    lines = [json.loads(line) for line in "".join(pages).split("\n") if line]
    assert [line["turn"]["messageId"] for line in lines if "turn" in line] == ["msg_a1", "msg_a2", "msg_b1"]
    assert lines[-1]["toolResult"]["content"] == "één " * 500_000


def test_resume_offers_to_restore_a_session_whose_log_is_gone(home: Home, log: Path, daemon: Daemon) -> None:
    """The command is printed as usual, followed by the offer."""
    assert run(home, "resume", SESSION).stderr.count("restore") == 0
    log.unlink()
    done = run(home, "resume", SESSION)
    assert done.stdout.endswith(f"claude --resume {SESSION}\n")
    assert f"burnctl restore {SESSION}" in done.stderr
    with daemon.wire() as wire:
        wire.call("content.forget", session=SESSION)
    assert "its log is gone, and it cannot be restored" in run(home, "resume", SESSION).stderr


def test_sessions_whose_logs_are_gone_are_listed(home: Home, log: Path, daemon: Daemon) -> None:
    """With when that was noticed and why, in `status` too, until the log is back; each change is one event."""
    assert json.loads(run(home, "sessions", "--gone", "--json").stdout)["sessions"] == []
    with daemon.wire() as wire:
        assert wire.call("status")["lostLogs"] == {"sessions": 0, "noticedAt": None}
        log.unlink()
        answer = wire.call("sessions.list", gone=True)
        assert wire.call("sessions.list", gone=True) == answer
        (session,) = answer["sessions"]
        assert (session["sessionId"], session["goneBy"]) == (SESSION, "unknown")
        assert answer["gone"] == {"count": 1, "unexplained": 1}
        assert wire.call("status")["lostLogs"] == {"sessions": 1, "noticedAt": session["goneAt"]}
        assert "unexplained" in run(home, "sessions", "--gone").stdout
        assert "the logs of 1 session are gone" in run(home, "status").stdout
        assert run(home, "restore", SESSION).returncode == 0
        assert wire.call("sessions.list", gone=True)["sessions"] == []
        assert wire.call("status")["lostLogs"]["sessions"] == 0
        wire.call("rebuild", index=True)
        assert wire.call("sessions.list", gone=True)["sessions"] == []
    assert events_of(home) == ["log_gone", "log_back"]


def test_a_clean_up_explains_old_logs(home: Home, log: Path, daemon: Daemon) -> None:
    """At the age of `cleanupPeriodDays`; a folder that is not there shows nothing."""
    settings = home.root.parent / ".claude" / "settings.json"
    settings.write_text('{"cleanupPeriodDays": 1}')
    with daemon.wire() as wire:
        (log.parents[1]).rename(log.parents[2] / "elsewhere")
        assert wire.call("sessions.list", gone=True)["gone"] == {"count": 0, "unexplained": 0}
        log.parents[1].mkdir()
        assert wire.call("sessions.list", gone=True)["gone"] == {"count": 1, "unexplained": 0}
        assert wire.call("status")["lostLogs"]["sessions"] == 0
    assert events_of(home) == ["log_cleaned"]


def events_of(home: Home) -> list[str]:
    entries = [json.loads(line) for line in home.ledger.read_bytes().splitlines()]
    return [entry["record"]["name"] for entry in entries if entry["kind"] == "event"]


def test_a_restart_between_a_line_and_its_record_changes_nothing(home: Home, tmp_path: Path) -> None:
    """The stored state of a reader has only the place of the line, whose text is read again."""
    t = Transcript()
    t.prompt("fix the bug")
    t.attach("skill_listing", content="- a skill", rendered="a skill")
    t.add("system", subtype="local_command", content="<command-name>/status</command-name>")
    t.prompt("go on")
    t.says("msg_a1", text("done"))
    stored, lines = [], ""
    for cuts, root in (((), home), ((2, 3), Home(tmp_path / "cut" / "burn"))):
        path = root.root.parent / ".claude" / "projects" / "-home-dev-app" / f"{SESSION}.jsonl"
        path.parent.mkdir(parents=True)
        for begin, end in zip((0, *cuts), (*cuts, len(t.lines)), strict=True):
            with path.open("ab") as file:
                file.write(b"".join(line + b"\n" for line in t.lines[begin:end]))
            with running(root) as daemon, daemon.wire() as wire:
                wire.call("flush")
                lines = wire.call("sessions.recording", id=SESSION)["lines"]
        stored.append([one for one in map(json.loads, lines.splitlines()) if "turn" not in one])
    assert stored[0] == stored[1]
    assert "a skill" in stored[0][1]["context"]
