"""burnctl with a real burnd: start, watch, query, configure and stop."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from burnctl import daemon
from burnctl.client import Client
from burnctl.errors import BurnctlError, NotRunning
from burnd.paths import Home
from tests import warm
from tests.burnctl.fake_daemon import FakeConnection, fake_daemon
from tests.burnctl.invoke import TerminalProcess, environment, run, seen
from tests.harness.claude_code.transcript import Transcript
from tests.server.logs import contents, conversation, write

DONE = "everything logged so far is recorded\n"


@pytest.fixture
def machine(home: Home) -> Iterator[Home]:
    """A home that may have a daemon; none is left of it."""
    yield home
    pid = pid_of(home)
    if pid is not None and daemon.alive(pid):
        os.kill(pid, signal.SIGKILL)


def pid_of(home: Home) -> int | None:
    try:
        return int(home.lock.read_text())
    except (OSError, ValueError):
        return None


def client_of(home: Home) -> Client:
    return Client(home.root / "burnd.sock")


def test_up_and_down(machine: Home) -> None:
    """`up` returns when burnd answers, `down` when it is gone; both can be repeated. burnd runs in another folder, and
    a relative home path still works."""
    first = run(machine, "up", RELAYBURN_HOME=os.path.relpath(machine.root))
    pid = pid_of(machine)
    assert (first.returncode, first.stdout) == (0, f"burnd 0.1.0 (pid {pid}) is running\n")
    assert first.stderr == "starting burnd in the background ...\n"
    assert run(machine, "flush").stdout == DONE
    assert run(machine, "up").stdout == f"burnd 0.1.0 (pid {pid}) is already running\n"
    assert run(machine, "down").stdout == f"burnd (pid {pid}) has stopped\n"
    assert pid is not None
    assert not daemon.alive(pid)
    again = run(machine, "down")
    assert (again.returncode, again.stdout) == (0, "burnd is not running\n")


def test_restart_uses_new_settings(machine: Home) -> None:
    """`config set` states that a restart is needed, `config show` that it is pending, and the restart applies it."""
    run(machine, "up")
    before = pid_of(machine)
    answer = run(machine, "config", "set", "log.level", "debug").stdout
    assert answer == 'log.level = "debug"  (was "info")\nthe running burnd uses it after a restart: burnctl restart\n'
    assert "was started with another log.level" in run(machine, "config", "show").stdout
    assert run(machine, "restart").returncode == 0
    assert pid_of(machine) != before
    assert "was started with another" not in run(machine, "config", "show").stdout
    with client_of(machine) as client:
        values = {setting["key"]: setting["value"] for setting in client.config_show()["settings"]}
    assert values["log.level"] == "debug"


def test_sessions_without_an_answer_are_there(machine: Home) -> None:
    """They have no turn, but can be searched, listed and read; a deleted log is reported."""
    log = Transcript(session="unanswered")
    log.prompt("find the walrus")
    write(machine, log, "unanswered")
    run(machine, "up")
    assert run(machine, "flush").stdout == DONE
    assert run(machine, "search", "mongoose").stdout == "Nothing was found.\n"
    assert run(machine, "search", "mongoose", "--since", "7d").stdout == "Nothing was found in the last 7 days.\n"
    assert run(machine, "sessions", "--source", "claude-code").stdout.splitlines()[1].startswith("unanswer")
    assert run(machine, "summary").stdout.startswith("Nothing is recorded yet.")
    assert "find the walrus" in run(machine, "show", "unanswered").stdout
    (machine.content / "unanswered.jsonl").unlink()
    shown = run(machine, "show", "unanswered").stdout
    assert "Content is gone: the session's file in content/ was deleted or cannot be read." in " ".join(shown.split())
    assert "Nothing was said" not in shown


def test_it_runs_away_from_the_terminal_that_started_it(machine: Home) -> None:
    """A reading command at a terminal starts burnd; closing the terminal does not end it."""
    with TerminalProcess(machine, "status") as person:
        shown = person.end()
        assert shown.code == 0
        assert shown.text.startswith("starting burnd in the background ...\n")
        assert "claude-code" in shown.text
    pid = pid_of(machine)
    assert pid is not None
    assert os.getsid(pid) == pid
    assert os.readlink(f"/proc/{pid}/cwd") == "/"
    assert {os.readlink(f"/proc/{pid}/fd/{n}") for n in (0, 1, 2)} == {"/dev/null", str(machine.log)}
    assert json.loads(run(machine, "status", "--json").stdout)["daemon"]["pid"] == pid
    assert {path.stat().st_mode & 0o077 for path in [machine.root, *machine.root.iterdir()]} == {0}


def test_many_at_once_start_one(machine: Home) -> None:
    """Later starters wait for the first one's daemon, and leave no second daemon behind."""
    results: list[subprocess.CompletedProcess[str]] = []
    threads = [threading.Thread(target=lambda: results.append(run(machine, "up"))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [done.returncode for done in results] == [0] * 4, results
    assert len({done.stdout.split("(")[1].split(")")[0] for done in results}) == 1
    assert run(machine, "down").returncode == 0
    assert run(machine, "status").returncode == 3


def test_a_daemon_that_cannot_start_gives_the_reason(machine: Home) -> None:
    """In its own words, with the place to look, at once."""
    machine.root.mkdir(mode=0o700)
    machine.config.write_text('[content]\nstore = "some"\n')
    done = run(machine, "up")
    assert done.returncode == 1
    assert f'{machine.config}: content.store: must be "full", "hash-only" or "off"' in done.stderr
    machine.config.unlink()
    (machine.root / "burnd.sock").mkdir()
    done = run(machine, "up")
    assert done.returncode == 1
    assert "is there and is no socket" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_unit_that_is_installed_starts_it(machine: Home, tmp_path: Path) -> None:
    """With `service install` for this home, systemd starts it; a unit for another home is ignored."""
    bin_, asked = tmp_path / "bin", tmp_path / "asked"
    bin_.mkdir()
    systemctl = bin_ / "systemctl"
    systemctl.write_text(
        f'#!/bin/sh\necho "$@" >> {asked}\n{sys.executable} -m burnd run >/dev/null 2>&1 </dev/null &\n'
    )
    systemctl.chmod(0o755)
    units = machine.root.parent / ".config" / "systemd" / "user"
    units.mkdir(parents=True)
    path = {"PATH": f"{bin_}:{os.environ['PATH']}"}
    (units / "burnd.service").write_text("[Service]\nEnvironment=RELAYBURN_HOME=/elsewhere\n")
    assert run(machine, "up", **path).stderr == "starting burnd in the background ...\n"
    run(machine, "down")
    assert not asked.exists()
    (units / "burnd.service").write_text(f"[Service]\nEnvironment=RELAYBURN_HOME={machine.root}\n")
    assert run(machine, "up", **path).stderr == "starting burnd through systemd ...\n"
    assert asked.read_text() == "--user start burnd.service\n"


def test_a_daemon_that_will_not_go_is_named(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """`down` falls back to the pid, for a person to decide."""
    monkeypatch.setattr(daemon, "GONE_S", 0.3)
    monkeypatch.setenv("RELAYBURN_HOME", str(home.root))
    with fake_daemon(home.root / "burnd.sock", shutdown={"stopping": True}):
        home.lock.write_text(f"{os.getpid()}\n")
        with pytest.raises(BurnctlError) as raised:
            daemon.stop(client_of(home))
    assert raised.value.hint == f"end it with: kill {os.getpid()}"


def test_a_daemon_that_does_not_listen_is_named(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RELAYBURN_HOME", str(home.root))
    home.root.mkdir(parents=True)
    home.lock.write_text(f"{os.getpid()}\n")
    with pytest.raises(BurnctlError, match="does not listen"):
        daemon.stop(client_of(home))
    with subprocess.Popen([sys.executable, "-c", "pass"]) as ended:
        pass
    home.lock.write_text(f"{ended.pid}\n")
    with pytest.raises(NotRunning):
        daemon.stop(client_of(home))


def test_a_daemon_of_another_version_can_be_stopped(home: Home) -> None:
    """After an upgrade `restart` must work, whatever the old daemon speaks."""

    def leave(_params: object, talk: FakeConnection) -> None:
        talk.answer({"version": 99})
        threading.Thread(target=server.close).start()

    with fake_daemon(home.root / "burnd.sock", shutdown=leave) as server:
        assert run(home, "down").returncode == 0


@pytest.fixture
def recorded(machine: Home) -> Home:
    """A running daemon that has read two sessions."""
    write(machine, conversation("s-one", "the first answer", prompt="my token is hunter2"), "s-one")
    write(machine, conversation("s-two", "the second answer", cwd="/home/dev/other"), "s-two")
    assert run(machine, "up").returncode == 0
    assert run(machine, "flush").stdout == DONE
    return machine


def sidecars(home: Home) -> list[str]:
    return sorted(path.name for path in home.content.glob("*.jsonl"))


def test_forget_shows_and_asks(recorded: Home) -> None:
    """Nothing is deleted before the user has seen the list and confirmed."""
    with TerminalProcess(recorded, "forget", "s-one") as person:
        person.wait_for("erase it for good? [y/N] ")
        assert "s-one" in person.text
        assert "/home/dev/app" in person.text
        person.type("n\n")
        shown = person.end()
    assert shown.code == 1
    assert shown.text.endswith("nothing was erased\n")
    assert sidecars(recorded) == ["s-one.jsonl", "s-two.jsonl"]
    with TerminalProcess(recorded, "forget", "s-o") as person:  # the shortest unique prefix
        person.wait_for("erase it for good? [y/N] ")
        person.type("y\n")
        shown = person.end()
    assert shown.code == 0
    assert "erased the content of 1 session, " in shown.text
    assert sidecars(recorded) == ["s-two.jsonl"]


def test_forget_in_a_script_needs_yes(recorded: Home) -> None:
    """Without --yes a script only learns what it would be."""
    done = run(recorded, "forget", "--match", "hunter2")
    assert done.returncode == 1
    assert (
        done.stderr
        == "burnctl: nothing was erased: there is no terminal to confirm at; to erase without confirmation, add --yes\n"
    )
    plan = json.loads(run(recorded, "forget", "--match", "hunter2", "--json").stdout)
    assert (plan["dryRun"], plan["count"], plan["sessions"][0]["sessionId"]) == (True, 1, "s-one")
    assert sidecars(recorded) == ["s-one.jsonl", "s-two.jsonl"]
    done = run(recorded, "forget", "--match", "hunter2", "--yes")
    assert done.returncode == 0
    assert sidecars(recorded) == ["s-two.jsonl"]
    assert [path for path, data in contents(recorded.root) if b"hunter2" in data] == []
    assert (
        run(recorded, "forget", "--match", "hunter2", "--yes").stdout
        == "nothing to erase: no session contains that text\n"
    )


def test_forget_a_project(recorded: Home) -> None:
    """The confirmation counts folders first, since clones that were not named are included."""
    shown = run(recorded, "forget", "--project", "/home/dev").stdout
    assert "the content of 2 sessions in 2 folders (a project is all clones and worktrees" in " ".join(shown.split())
    assert sidecars(recorded) == ["s-one.jsonl", "s-two.jsonl"]
    assert run(recorded, "forget", "--project", "/home/dev/other", "--yes").returncode == 0
    assert sidecars(recorded) == ["s-one.jsonl"]
    missing = run(recorded, "forget", "--project", "/nowhere/at/all", "--yes")
    assert missing.returncode == 1
    assert "there is no session of project" in missing.stderr


def test_forget_wants_one_thing(home: Home) -> None:
    for words in ([], ["s", "--match", "x"], ["--project", ".", "--match", "x"]):
        done = run(home, "forget", *words)
        assert done.returncode == 2
        assert "name one of SESSION, --project and --match" in done.stderr


def test_content_prune(recorded: Home) -> None:
    """A dry run counts; the real run deletes the same number."""
    assert (
        "would delete the content of 0 sessions"
        in run(recorded, "content", "prune", "--older-than", "36500d", "--dry-run").stdout
    )
    would = run(recorded, "content", "prune", "--older-than", "0h", "--dry-run").stdout
    assert would.startswith("would delete the content of 2 sessions, ")
    assert sidecars(recorded) == ["s-one.jsonl", "s-two.jsonl"]
    assert run(recorded, "content", "prune", "--older-than", "0", "--dry-run", "--json").stdout.startswith("{")
    assert run(recorded, "content", "prune", "--older-than", "0h").stdout == would.replace("would delete", "deleted")
    assert sidecars(recorded) == []
    wrong = run(recorded, "content", "prune", "--older-than", "soon")
    assert (wrong.returncode, wrong.stderr) == (
        2,
        "burnctl: content prune: --older-than: 'soon' is not a duration; for example 30m, 12h, 30d or 2w\n",
    )


def test_tail_shows_turns_as_they_land(recorded: Home) -> None:
    """Each turn gets a line at a terminal, also after burnd was restarted."""
    with TerminalProcess(recorded, "tail", columns=160) as person:
        person.wait_for("tools")
        write(recorded, conversation("s-three", "hello", "again"), "s-three")
        person.wait_for("s-three")
        assert run(recorded, "restart").returncode == 0
        person.wait_for("burnd is back")
        write(recorded, conversation("s-four", "hello"), "s-four")
        run(recorded, "flush")
        person.wait_for("s-four")
        person.type("\x03")
        assert person.end().code == 130


def test_tail_for_programs(recorded: Home) -> None:
    """One JSON object per line, filtered; when burnd stops, the stream ends with a reason."""
    heard = threading.Event()

    def go_on_talking() -> None:
        for n in range(200):
            for session in ("s-six", "s-five"):
                write(recorded, conversation(session, "hello", prefix=f"{session}-{n}"), session)
            if heard.wait(0.2):
                return

    tail = warm.Popen(
        [sys.executable, "-m", "burnctl", "tail", "--json", "--session", "s-five"],
        env=environment(recorded),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert tail.stdout is not None
    assert tail.stderr is not None
    talking = threading.Thread(target=go_on_talking)
    with tail, tail.stdout, tail.stderr:
        talking.start()
        said = [json.loads(tail.stdout.readline()) for _ in range(3)]
        heard.set()
        talking.join()
        assert {turn["turn"]["sessionId"] for turn in said} == {"s-five"}
        assert {turn["version"] for turn in said} == {1}
        run(recorded, "down")
        tail.stdout.read()
        assert "closed the connection" in tail.stderr.read()
        assert tail.wait(60) == 1


def test_the_doctor_on_a_sound_machine(recorded: Home) -> None:
    """Every check has a level, none is a failure, no file is readable by others, and the exit code agrees."""
    done = run(recorded, "doctor", "--json")
    said = json.loads(done.stdout)
    levels = {check["name"]: check["level"] for check in said["checks"]}
    assert (done.returncode, said["ok"], said["version"]) == (0, True, 1)
    assert "fail" not in levels.values()
    assert levels["files"] == "ok"
    assert {"home", "files", "disk", "settings", "socket", "burnd", "version", "Claude Code", "watch limit",
            "log clean-up", "service", "spool", "clock"} <= set(levels)  # fmt: skip
    shown = seen(recorded, "doctor")
    assert "\x1b[32mok" in shown.text
    assert max(len(line) for line in run(recorded, "doctor").stdout.splitlines()) <= 80
