"""`burnctl claude`: terminal, signals and exit code are those of Claude Code."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from tests.burnctl.cpu_time import cpu_seconds
from tests.burnctl.fake_daemon import Answer, FakeConnection, FakeDaemon, fake_daemon
from tests.burnctl.runner import BURNCTL, spooled
from tests.burnctl.stub_machine import StubMachine

OLD = "0f9c1d2e-0000-4000-8000-000000000001"
OLDER = "0f9c1d2e-0000-4000-8000-000000000002"
TOTALS = {"turns": 12, "usage": {"input": 300_000, "output": 45_000}, "costUsd": 1.234, "unpricedTurns": 0}
UUID = r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}"


def daemon(machine: StubMachine, answer: Answer) -> AbstractContextManager[FakeDaemon]:
    """One that gives the same answer to everything a wrapper asks."""
    methods = ("announce", "stamp", "spool", "flush", "summary")
    return fake_daemon(machine.home / "burnd.sock", **dict.fromkeys(methods, answer))


def test_the_session_is_made_tagged_and_announced_first(machine: StubMachine) -> None:
    """When Claude Code starts, its id is chosen and the stamp and announcement are on disk."""
    done = machine.run("claude", "--tag", "workflowId=wf-1", "--tag", "persona=senior", "--", "-p", "hello there")
    assert done.returncode == 0, done.stderr
    flag, session, *rest = machine.note["argv"]
    assert (flag, rest) == ("--session-id", ["-p", "hello there"])
    assert re.fullmatch(UUID, session)
    announced, stamp = machine.note["spool"]
    assert announced.pop("ts") == stamp.pop("ts")
    assert announced == {
        "v": 1,
        "kind": "announce",
        "sessionId": session,
        "source": "claude-code",
        "roots": [str(machine.config)],
    }
    assert stamp == {
        "v": 1,
        "kind": "stamp",
        "selector": {"sessionId": session},
        "enrichment": {"workflowId": "wf-1", "persona": "senior"},
    }


def test_over_the_socket_both_are_known_before_it_starts(machine: StubMachine) -> None:
    """With a daemon up: announce, then stamp, answered before Claude Code runs; flush and summary after it."""
    runs: list[bool] = []

    def answer(_params: dict[str, Any], _talk: FakeConnection) -> dict[str, Any]:
        runs.append(Path(machine.env["STUB_NOTE"]).exists())
        return {"totals": TOTALS}

    with daemon(machine, answer) as burnd:
        done = machine.run("claude", "--tag", "a=b", RELAYBURN_CONTENT_STORE="off")
    asked = dict(burnd.asked)
    assert list(asked) == ["announce", "stamp", "flush", "summary"]
    assert runs == [False, False, True, True]
    session = machine.note["argv"][1]
    assert asked["announce"]["contentMode"] == "off"
    assert asked["flush"] == asked["summary"] == {"session": session}
    assert done.stderr == f"burnctl: session {session[:8]}: 12 requests, 345k tokens, $1.23 at API prices\n"
    assert done.stdout == ""
    assert not (machine.home / "spool").exists()


def test_quiet_prints_nothing_but_still_flushes(machine: StubMachine) -> None:
    """--quiet: the last turns are recorded, and stderr is Claude Code's alone."""
    with daemon(machine, {}) as burnd:
        done = machine.run("claude", "--quiet")
    assert (done.returncode, done.stderr) == (0, "")
    assert [method for method, _ in burnd.asked] == ["announce", "flush"]


def test_a_daemon_that_hangs_delays_little(machine: StubMachine) -> None:
    """A hanging daemon costs two cpu_seconds before and three after, and nothing is lost."""
    with daemon(machine, lambda _params, _talk: None):
        begun = time.time()
        done = machine.run("claude", "--tag", "a=b")
        assert machine.note["began"] - begun < 20  # it would not have answered for ever
        assert time.time() - begun < 40
    assert (done.returncode, done.stderr) == (0, "")
    assert {record["kind"] for record in spooled(machine.home)} == {"announce", "stamp"}


def test_it_starts_quickly(machine: StubMachine) -> None:
    """The wrapper adds a few starts of a bare interpreter to Claude Code, with a daemon up. Some 35 ms of CPU against
    12 on an idle machine; a ratio is measurable on a busy machine as well."""
    with daemon(machine, {}):
        wrapper = [*BURNCTL, "claude", "--tag", "a=b", "--quiet"]
        bare, alone, wrapped = cpu_seconds([sys.executable, "-c", ""], ["claude"], wrapper, env=machine.env, times=6)
    assert wrapped - alone < 8 * bare, (wrapped, alone, bare)


@pytest.mark.parametrize("code", [0, 1, 2, 3, 42, 255])
def test_the_exit_code_is_its_own(machine: StubMachine, code: int) -> None:
    """Whatever Claude Code ends with, the wrapper ends with."""
    assert machine.run("claude", do=f"exit {code}").returncode == code


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGSEGV, signal.SIGINT])
def test_death_by_a_signal_has_the_exit_code_of_a_shell(machine: StubMachine, number: int) -> None:
    """128 + n."""
    assert machine.run("claude", do=f"die {number}").returncode == 128 + number


def test_arguments_are_passed_untouched(machine: StubMachine) -> None:
    """Empty words, spaces, newlines, quotes, a second -- and our own flags' names behind -- are Claude Code's."""
    words = ["", "a b", "c\nd", "'\"$HOME`", "--tag", "x", "--json", "é", "--", "-h", "--"]
    assert machine.run("claude", "--", *words).returncode == 0
    assert machine.note["argv"][2:] == words


def test_output_goes_straight_through(machine: StubMachine) -> None:
    """Nothing of ours on stdout, so that `burnctl claude -- -p ... | jq` works."""
    done = machine.start("claude", do="wait")
    assert done.stdout is not None
    assert done.stdout.readline() == "READY\n"
    done.send_signal(signal.SIGTERM)
    out, err = done.communicate(timeout=60)
    assert (out, err) == ("SIGTERM\n", "")


def test_signals_are_as_claude_would_find_them(machine: StubMachine) -> None:
    """None is blocked or ignored for the child because we, or Python, block or ignore it."""
    assert machine.run("claude").returncode == 0
    assert (machine.note["blocked"], machine.note["ignored"]) == ([], [])


@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP", "SIGINT", "SIGUSR1"])
def test_a_signal_to_the_wrapper_reaches_claude(machine: StubMachine, name: str) -> None:
    """A spawner that knows only our pid can end, interrupt or poke Claude Code through it."""
    with machine.start("claude", do="wait exit 7") as running:
        assert running.stdout is not None
        assert running.stdout.readline() == "READY\n"
        running.send_signal(getattr(signal, name))
        assert running.wait(timeout=60) == 7
        running.communicate()
    assert machine.signals == name


def test_a_spawner_may_pause_it(machine: StubMachine) -> None:
    """Without a terminal, stopping Claude Code does not stop the wrapper for good."""
    with machine.start("claude", do="wait exit 7") as running:
        assert running.stdout is not None
        assert running.stdout.readline() == "READY\n"
        child = machine.note["pid"]
        os.kill(child, signal.SIGSTOP)
        time.sleep(0.1)
        os.kill(child, signal.SIGCONT)
        os.kill(child, signal.SIGTERM)
        assert running.wait(timeout=60) == 7
        running.communicate()


def test_what_was_ignored_stays_ignored(machine: StubMachine) -> None:
    """Started under nohup, Claude Code is under nohup; and a parent that ignores SIGCHLD does not confuse us."""
    script = "trap '' HUP; exec \"$@\""
    command = ["sh", "-c", script, "sh", *BURNCTL, "claude", "--quiet"]
    done = subprocess.run(
        command,
        env={**machine.env, "STUB_DO": "exit 9"},
        cwd=machine.work,
        preexec_fn=lambda: signal.signal(signal.SIGCHLD, signal.SIG_IGN),
        check=False,
    )
    assert done.returncode == 9
    assert machine.note["ignored"] == [signal.SIGHUP]


def test_ctrl_c_is_claudes_once(machine: StubMachine) -> None:
    """The terminal's Ctrl-C reaches Claude Code, once, and does not end the wrapper under it."""
    with machine.at_terminal("claude", do="wait-all exit 5") as terminal:
        terminal.see("READY")
        terminal.type("\x03")
        terminal.see("SIGINT")
        terminal.type("\x1c")
        terminal.see("SIGQUIT")
        os.kill(machine.note["pid"], signal.SIGTERM)
        assert terminal.end() == 5
    assert machine.signals == "SIGINT SIGQUIT SIGTERM"


def test_it_has_the_terminal(machine: StubMachine) -> None:
    """Claude Code is in the foreground: it reads what is typed, and sees the terminal change its size."""
    with machine.at_terminal("claude", do="size read size exit 0") as terminal:
        terminal.see("COLUMNS 80")
        terminal.see("ASK")
        terminal.resize(132)
        terminal.type("hello\r")
        terminal.see("GOT hello")
        terminal.see("COLUMNS 132")
        assert terminal.end() == 0


def test_when_the_terminal_goes_so_does_it(machine: StubMachine) -> None:
    """A closed window ends both, without a traceback and without waiting for a daemon."""
    with machine.at_terminal("claude", do="wait exit 0") as terminal:
        terminal.see("READY")
        terminal.hang_up()
        assert terminal.process.wait(timeout=60) == 0
    assert machine.signals == "SIGHUP"


needs_bash = pytest.mark.skipif(
    shutil.which("bash") is None, reason="job control is shown with bash, which is not here"
)


@needs_bash
@pytest.mark.parametrize("key", ["\x1a", ""])
def test_job_control_works(machine: StubMachine, key: str) -> None:
    """Ctrl-Z, or Claude Code stopping itself, stops the job of the shell; fg continues it."""
    with machine.shell(do="wait exit 6" if key else "stop exit 6") as shell:
        shell.see("shell> ")
        shell.type("$BURNCTL claude; echo CODE $?\r")
        if key:
            shell.see("READY")
            shell.type(key)
        shell.see("Stopped")
        shell.see("shell> ")
        shell.type("jobs\r")
        shell.see(r"Stopped\s+\$BURNCTL claude")
        shell.type("fg; echo CODE $?\r")
        if key:
            shell.until_foreground(machine.note["group"])
            shell.type("\x03")
            shell.see("SIGINT")
        else:
            shell.see("AWAKE")
        shell.see("CODE 6")
        shell.type("exit\r")
        shell.end()


@needs_bash
def test_stopping_again_and_again(machine: StubMachine) -> None:
    """Each stop needs one fg, never two, however often."""
    with machine.shell(do="stop stop stop stop stop exit 4") as shell:
        shell.see("shell> ")
        shell.type("$BURNCTL claude\r")
        for _ in range(5):
            shell.see("Stopped")
            shell.see("shell> ")
            shell.type("fg\r")
            shell.see("AWAKE")
        shell.see("shell> ")
        shell.type("echo CODE $?\r")
        shell.see("CODE 4")
        shell.type("exit\r")
        shell.end()


def test_without_claude(machine: StubMachine) -> None:
    """127 and what to do, as a shell would; nothing is stamped for a session that never was."""
    done = machine.run("claude", "--tag", "a=b", PATH="/nonexistent")
    assert done.returncode == 127
    assert "claude was not found on PATH" in done.stderr
    assert "install Claude Code" in done.stderr
    assert not machine.home.exists()


def test_a_claude_that_cannot_be_run(machine: StubMachine, tmp_path: Path) -> None:
    """126 when the file is there but is no program."""
    folder = tmp_path / "odd"
    folder.mkdir()
    (folder / "claude").write_text("not a program")
    assert machine.run("claude", PATH=str(folder)).returncode == 126
    (folder / "claude").chmod(0o755)
    done = machine.run("claude", PATH=str(folder))
    assert done.returncode == 126
    assert "cannot be run" in done.stderr


@pytest.mark.parametrize(
    ("words", "env", "says"),
    [
        (["--tag", "workflow"], {}, "is not KEY=VALUE"),
        (["--tag", "=x"], {}, "no key before the ="),
        ([], {"RELAYBURN_CONTENT_STORE": "none"}, "RELAYBURN_CONTENT_STORE is 'none'"),
        (["--resume", OLD], {}, f"try: burnctl claude -- --resume {OLD}"),
    ],
)
def test_mistakes_stop_it_before_it_starts(
    machine: StubMachine, words: list[str], env: dict[str, str], says: str
) -> None:
    """Exit code 2 with the reason; Claude Code did not run and nothing was recorded."""
    done = machine.run("claude", *words, **env)
    assert done.returncode == 2
    assert says in done.stderr
    assert not Path(machine.env["STUB_NOTE"]).exists()
    assert not machine.home.exists()


def test_what_cannot_be_kept_stops_it_before_it_starts(machine: StubMachine) -> None:
    """With nowhere to put the stamp, Claude Code is not started untagged."""
    machine.home.write_text("a file where the home should be")
    done = machine.run("claude", "--tag", "a=b")
    assert done.returncode == 1
    assert "spool" in done.stderr
    assert not Path(machine.env["STUB_NOTE"]).exists()


def test_resume_tags_that_session_from_now_on(machine: StubMachine) -> None:
    """No id of ours, the named session announced and stamped before the start, its earlier turns left alone."""
    begun = time.time()
    assert machine.run("claude", "--tag", "step=2", "--", "--resume", OLD, "go on").returncode == 0
    assert machine.note["argv"] == ["--resume", OLD, "go on"]
    announced, stamp = machine.note["spool"]
    assert announced["sessionId"] == stamp["selector"]["sessionId"] == OLD
    span = stamp["selector"]["range"]
    assert span["toTs"] == "9999-12-31T23:59:59.999Z"
    assert span["fromTs"] == stamp["ts"] >= time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(begun))


def test_a_named_session_is_tagged_whole(machine: StubMachine) -> None:
    """--session-id among the arguments: that one, and no second --session-id."""
    assert machine.run("claude", "--tag", "a=b", "--", f"--session-id={OLD}").returncode == 0
    assert machine.note["argv"] == [f"--session-id={OLD}"]
    assert machine.note["spool"][1]["selector"] == {"sessionId": OLD}


def test_a_fork_gets_an_id_of_its_own(machine: StubMachine) -> None:
    """--resume with --fork-session begins a new session: it gets our id and the tags, the old one gets nothing."""
    assert machine.run("claude", "--tag", "a=b", "--", "--resume", OLD, "--fork-session").returncode == 0
    flag, session, *rest = machine.note["argv"]
    assert (flag, rest) == ("--session-id", ["--resume", OLD, "--fork-session"])
    assert machine.note["spool"][1]["selector"] == {"sessionId": session}
    assert session != OLD


def transcript(machine: StubMachine, session: str, age: float) -> None:
    machine.transcripts.mkdir(parents=True, exist_ok=True)
    path = machine.transcripts / f"{session}.jsonl"
    path.write_text("{}\n")
    os.utime(path, (time.time() - age,) * 2)


def test_continue_tags_the_session_it_went_on_with(machine: StubMachine) -> None:
    """--continue: the newest session of the folder is announced before, and tagged from the start of the run on."""
    transcript(machine, OLDER, 900)
    transcript(machine, OLD, 90)
    done = machine.run("claude", "--tag", "step=2", "--", "--continue", do="talk", RELAYBURN_CONTENT_STORE="off")
    assert done.returncode == 0, done.stderr
    (announced,) = machine.note["spool"]
    assert (announced["sessionId"], announced["contentMode"]) == (OLD, "off")
    _, stamp = spooled(machine.home)
    assert stamp["selector"]["sessionId"] == OLD
    assert stamp["selector"]["range"]["fromTs"] == announced["ts"]


def test_a_wrong_guess_is_put_right(machine: StubMachine) -> None:
    """If --continue resumes another session than expected, that session is tagged and announced afterwards."""
    transcript(machine, OLDER, 900)
    transcript(machine, OLD, 90)
    done = machine.run(
        "claude", "--tag", "a=b", "--", "-c", do="talk", STUB_SESSION=OLDER, RELAYBURN_CONTENT_STORE="off"
    )
    assert done.returncode == 0
    first, late, stamp = spooled(machine.home)
    assert (first["sessionId"], late["sessionId"], stamp["selector"]["sessionId"]) == (OLD, OLDER, OLDER)
    assert late["ts"] == first["ts"]
    assert late["contentMode"] == "off"


def test_a_picked_session_is_tagged_afterwards(machine: StubMachine) -> None:
    """--resume without an id: the session that was written to is the one."""
    transcript(machine, OLDER, 900)
    transcript(machine, OLD, 90)
    assert machine.run("claude", "--tag", "a=b", "--", "--resume", do="talk", STUB_SESSION=OLDER).returncode == 0
    assert machine.note["spool"] == []
    assert [r["selector"]["sessionId"] for r in spooled(machine.home) if r["kind"] == "stamp"] == [OLDER]


def test_an_ambiguous_session_is_not_tagged(machine: StubMachine) -> None:
    """No log written, or several sessions at once: reported on stderr, and no other session is tagged."""
    transcript(machine, OLD, 90)
    done = machine.run("claude", "--tag", "a=b", "--", "--resume", do="exit 3")
    assert done.returncode == 3
    assert "nothing was tagged" in done.stderr
    assert [record for record in spooled(machine.home) if record["kind"] == "stamp"] == []


def test_what_holds_no_conversation_is_just_run(machine: StubMachine) -> None:
    """`claude mcp list`, `claude --version`: no session id, no stamp, no announcement."""
    for words in (["mcp", "list"], ["--version"], ["-h"], ["update"]):
        assert machine.run("claude", "--tag", "a=b", "--", *words, do="exit 3").returncode == 3
        assert machine.note["argv"] == words
    assert not machine.home.exists()


WRAPPERS = {
    "a script that is replaced": '#!/bin/sh\nexec $BURNCTL claude -- "$@"\n# a wrapper of burnctl\n',
    "a script that waits": '#!/bin/sh\n$BURNCTL claude -- "$@"\nexit $?\n# a wrapper of burnctl\n',
    "a script without our arguments": "#!/bin/sh\nexec $BURNCTL claude --tag more=tags # burnctl\n",
    "a program": "#!/usr/bin/env python3\nimport os\nos.execvp('sh', ['sh', '-c', 'exec $BURNCTL claude'])\n",
    "a script by burnctl run": '#!/bin/sh\n$BURNCTL run -- claude "$@"\n# a wrapper of burnctl\n',
}


@pytest.mark.parametrize(
    ("wrapper", "wrappers"),
    [
        *((wrapper, 1) for wrapper in WRAPPERS),
        ("a script that waits", 2),
        *(pytest.param(wrapper, 2, marks=pytest.mark.slow) for wrapper in WRAPPERS if wrapper != "a script that waits"),
    ],
)
def test_a_claude_that_wraps_burnctl_claude_ends_at_the_real_one(
    machine: StubMachine, wrapper: str, wrappers: int
) -> None:
    """A `claude` first on PATH that runs `burnctl claude` is passed over the second time, and so are two of them."""
    path = machine.env["PATH"]
    for number in range(wrappers):
        folder = machine.work.parent / f"wrapper-{number}"
        folder.mkdir()
        (folder / "claude").write_text(WRAPPERS[wrapper])
        (folder / "claude").chmod(0o755)
        path = f"{folder}:{path}"
    done = machine.run("claude", "--quiet", do="exit 7", PATH=path, BURNCTL=" ".join(BURNCTL))
    assert done.returncode == 7, done.stderr
    assert machine.note["argv"][0] == "--session-id" or "burnctl run" in wrapper
    alone = machine.run("claude", PATH=f"{machine.work.parent}/wrapper-0:/usr/bin:/bin", BURNCTL=" ".join(BURNCTL))
    assert alone.returncode == 127
    assert "starts burnctl again, and there is no other claude after it on PATH" in alone.stderr


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="the ancestors of a process are in /proc")
def test_a_wrapper_that_clears_the_environment(machine: StubMachine) -> None:
    """The ancestors show that it was started before. Bounded: it would go on until there are no processes left."""
    folder = machine.work.parent / "wrapper"
    folder.mkdir()
    names = ("PATH", "HOME", "RELAYBURN_HOME", "DEPTH", *(name for name in machine.env if name.startswith("STUB")))
    clean = " ".join(f'{name}="${name}"' for name in names)
    again = f'[ "$DEPTH" = xxxx ] && exit 9\nDEPTH="x$DEPTH"\nexec env -i {clean} {" ".join(BURNCTL)} claude -- "$@"'
    (folder / "claude").write_text(f"#!/bin/sh\n{again}\n")
    (folder / "claude").chmod(0o755)
    assert machine.run("claude", PATH=f"{folder}:/usr/bin:/bin").returncode == 127
    done = machine.run("claude", "--quiet", PATH=f"{folder}:{machine.env['PATH']}")
    assert done.returncode == 0, done.stderr


def test_a_client_may_run_burnctl_for_its_own_ends(machine: StubMachine) -> None:
    """`burnctl claude` within a session that `burnctl claude` started finds the same Claude Code."""
    real = Path(shutil.which("claude", path=machine.env["PATH"]) or "")
    moved = real.with_name("real-claude")
    real.rename(moved)
    real.write_text('#!/bin/sh\n[ -n "$NESTED" ] && exec "$REAL" "$@"\nNESTED=1 sh -c "$STEP; exit \\$?"\n')
    real.chmod(0o755)
    step = " ".join([*BURNCTL, "claude", "--quiet"])
    done = machine.run("claude", "--quiet", do="exit 7", STEP=step, REAL=str(moved))
    assert done.returncode == 7, done.stderr
