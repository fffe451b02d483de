"""The log: events with keys, small files, few repetitions, and no conversation text."""

from __future__ import annotations

import contextlib
import io
import json
import logging
import os
import pty
import signal
import stat
import subprocess
import sys
import termios
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import structlog

from burnd.daemon import log as logs
from burnd.daemon.log import RateLimit, RotatedFile
from burnd.paths import Home
from tests import warm
from tests.burnctl.invoke import run as burnctl
from tests.harness.claude_code.transcript import Transcript, call, text
from tests.server.logs import conversation, write
from tests.server.wire import Wire, environment, running, until


@pytest.fixture(autouse=True)
def _as_it_was() -> Any:
    handlers = logging.getLogger().handlers[:]
    yield
    structlog.reset_defaults()
    logging.getLogger().handlers[:] = handlers


def test_events_are_json_or_for_a_person() -> None:
    """One line each, with the time, the level and the keys."""
    out = io.StringIO()
    logs.configure(as_json=True, stream=out)
    structlog.get_logger().info("ledger.appended", lines=3)
    said = json.loads(out.getvalue())
    assert (said["event"], said["level"], said["lines"]) == ("ledger.appended", "info", 3)
    assert said["timestamp"].endswith("Z")
    out = io.StringIO()
    logs.configure(as_json=False, stream=out)
    structlog.get_logger().info("ledger.appended", lines=3)
    assert "ledger.appended" in out.getvalue()
    assert "\x1b" not in out.getvalue()


def test_what_is_below_the_level_is_not_written() -> None:
    out = io.StringIO()
    logs.configure(as_json=True, level="warning", stream=out)
    structlog.get_logger().info("one")
    structlog.get_logger().warning("two")
    assert out.getvalue().count("\n") == 1


def test_a_repeated_warning_is_logged_once_a_minute() -> None:
    """F83: with the number of those held back; ten thousand bad lines are one piece of news."""
    now = 1000.0
    seldom = RateLimit(clock=lambda: now)
    said = []

    def warn(**event: Any) -> None:
        with contextlib.suppress(structlog.DropEvent):
            said.append(seldom(None, "warning", {"event": "line.bad", **event}))

    for n in range(10_000):
        warn(offset=n, reason=f"{n} bytes too many")
    assert len(said) == 1
    warn(offset=1, reason="another reason")
    assert len(said) == 2
    now += 61
    warn(offset=2, reason="7 bytes too many")
    assert said[-1]["dropped"] == 9999
    seldom(None, "info", {"event": "line.bad"})
    seldom(None, "info", {"event": "line.bad"})


def test_what_is_remembered_of_warnings_is_bounded() -> None:
    """P8: any number of different ones."""
    seldom = RateLimit()
    for n in range(5000):
        seldom(None, "error", {"event": "x" * (n % 100) + chr(97 + n % 26) * (n // 100 + 1)})
    assert len(seldom._last) <= 1000


def test_a_log_file_is_private_and_rotated_when_full(tmp_path: Path) -> None:
    """A few generations, each no larger than the limit, none lost in between."""
    before = os.umask(0)
    try:
        out = RotatedFile(tmp_path / "burnd.log", most_bytes=1000, old_files=3)
        for n in range(100):
            out.write(f"line {n:04} " + "x" * 40 + "\n")
        out.close()
    finally:
        os.umask(before)
    names = ["burnd.log", "burnd.log.1", "burnd.log.2", "burnd.log.3"]
    assert sorted(path.name for path in tmp_path.iterdir()) == names
    assert all(stat.S_IMODE((tmp_path / name).stat().st_mode) == 0o600 for name in names)
    assert all((tmp_path / name).stat().st_size <= 1000 for name in names)
    kept = "".join((tmp_path / name).read_text() for name in reversed(names)).splitlines()
    assert [int(line.split()[1]) for line in kept] == list(range(100 - len(kept), 100))


def test_a_log_that_cannot_be_written_costs_lines_only(tmp_path: Path) -> None:
    """With a full disk or a deleted log file the daemon continues."""
    out_file = RotatedFile(tmp_path / "log")
    out_file.close()
    out_file.write("x\n")


def test_a_daemon_outlives_who_read_its_log(home: Home) -> None:
    """With the reading end of its stderr closed it records and stops normally."""
    reader, writer = os.pipe()
    started = warm.Popen([sys.executable, "-m", "burnd", "run"], env=environment(home), stderr=writer)
    os.close(writer)
    os.close(reader)
    try:
        until((home.root / "burnd.sock").exists)
        with Wire(home.root / "burnd.sock") as wire:
            until(lambda: wire.call("status")["daemon"]["state"] == "ready")
            wire.call("stamp", selector={"sessionId": "s"}, enrichment={"a": "b"})
            wire.call("rebuild", index=True)
            wire.call("shutdown")
        assert started.wait(30) == 0
    finally:
        started.kill()
        started.wait()


def test_a_log_that_is_not_read_blocks_nothing() -> None:
    """Lines beyond the bound are dropped, and counted in the log once it is read again."""
    begun, may_go_on = threading.Event(), threading.Event()
    lines: list[str] = []

    class Unread:
        def write(self, text: str) -> None:
            begun.set()
            may_go_on.wait()
            lines.append(text)

        def flush(self) -> None: ...

    background = logs.Background(Unread(), most=10)
    logs.configure(as_json=True, stream=background)
    structlog.get_logger().info("first")
    begun.wait()
    for n in range(30):
        structlog.get_logger().info("another", n=n)
    may_go_on.set()
    until(lambda: len(lines) == 12)
    background.drain()
    said = [json.loads(line) for line in lines]
    assert [event.get("n") for event in said[1:11]] == list(range(10))
    assert (said[11]["event"], said[11]["lines"]) == ("logging.dropped", 20)


@contextlib.contextmanager
def stopped_terminal() -> Iterator[int]:
    """A terminal in which Ctrl-S was pressed."""
    master, terminal = pty.openpty()
    termios.tcflow(terminal, termios.TCOOFF)
    try:
        yield terminal
    finally:
        os.close(terminal)
        os.close(master)


@contextlib.contextmanager
def full_pipe() -> Iterator[int]:
    """The pipe to a pager that has stopped reading."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    with contextlib.suppress(BlockingIOError):
        while True:
            os.write(writer, b"x" * 4096)
    os.set_blocking(writer, True)
    try:
        yield writer
    finally:
        os.close(reader)
        os.close(writer)


@pytest.mark.parametrize("stderr", [full_pipe, stopped_terminal])
def test_a_daemon_whose_stderr_is_not_read_records_and_stops(
    home: Home, stderr: Callable[[], contextlib.AbstractContextManager[int]]
) -> None:
    """F82: it records, answers and obeys SIGTERM, with far more to log than waits for the reader."""
    write(home, conversation("s1", "one"), "s1")
    command = [sys.executable, "-m", "burnd", "run", "--log-level", "debug"]
    with stderr() as fd:
        started = warm.Popen(command, env=environment(home), stdout=fd, stderr=fd)
        second = None
        try:
            until((home.root / "burnd.sock").exists)
            with Wire(home.root / "burnd.sock") as wire:
                until(lambda: wire.call("status")["daemon"]["state"] == "ready")
                until(lambda: wire.call("summary", by="session")["totals"]["turns"] == 1)
                for _ in range(3):
                    wire.call("rebuild", index=True)
                write(home, conversation("s2", "two"), "s2")
                until(lambda: wire.call("summary", by="session")["totals"]["turns"] == 2)
            second = warm.Popen(command, env=environment(home), stdout=fd, stderr=fd)
            assert second.wait(30) == 5
            started.send_signal(signal.SIGTERM)
            assert started.wait(30) == 0
        finally:
            for process in filter(None, (started, second)):
                process.kill()
                process.wait()


def test_a_last_line_is_given_up_where_stderr_is_not_read() -> None:
    """As the process that reads old logs writes it when it fails."""
    with full_pipe() as fd:
        code = "from burnd.errors import write_stderr; write_stderr('a last line')"
        assert subprocess.run([sys.executable, "-c", code], stderr=fd, timeout=30, check=False).returncode == 0


def test_a_log_file_that_is_a_pipe_is_refused(home: Home, tmp_path: Path) -> None:
    """Opening it for writing would wait for a reader."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    done = warm.run(
        [sys.executable, "-m", "burnd", "run", "--log-file", str(pipe)],
        env=environment(home),
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert (done.returncode, done.stderr) == (1, f"burnd: {pipe}: is not a regular file (move it away)\n")
    home.root.mkdir(exist_ok=True)
    os.mkfifo(home.root / "burnd.log")
    up = burnctl(home, "up")
    assert up.returncode == 1
    assert f"{home.root}/burnd.log: it is not a regular file" in up.stderr


def test_libraries_are_heard_without_their_words() -> None:
    """Only the name of the library is logged, not its message."""
    out = io.StringIO()
    logs.configure(as_json=True, stream=out)
    logging.getLogger("somebody").warning("the canary sings %s", "/home/dev/project")
    said = json.loads(out.getvalue())
    assert (said["event"], said["library"]) == ("library.warned", "somebody")
    assert "canary" not in out.getvalue()


CANARY = "canary-7f3a9"


def test_no_conversation_text_reaches_the_log(home: Home) -> None:
    """F83, I6: prompts, answers, titles, commands, results, folders of projects and stamps, at the most talkative."""
    log = Transcript(session="s1", cwd=f"/home/dev/{CANARY}-folder", gitBranch=f"{CANARY}-branch")
    log.bare(type="summary", summary=f"{CANARY} title", leafUuid="u1")
    log.prompt(f"{CANARY} prompt")
    log.calls("m1", call("c1", "Bash", command=f"cat {CANARY}.txt"))
    log.result("c1", f"{CANARY} result", is_error=True)
    log.says("m2", text(f"{CANARY} answer " + "x" * 3000))
    log.lines += [f'{{"type":"{CANARY}","x":'.encode(), f'{{"type":"{CANARY}-unknown"}}'.encode(), b"\xff" * 50]
    write(home, log, "s1")
    with running(home, log_level="debug") as daemon, daemon.wire() as wire:
        wire.call("flush")
        wire.call("stamp", selector={"sessionId": CANARY}, enrichment={CANARY: CANARY})
        wire.error("stamp", selector={"sessionId": CANARY}, enrichment={CANARY: 7})
        wire.error(f"{CANARY}.method")
        wire.error("content.read", session=CANARY)
        wire.call("content.read", session="s1")
        wire.send(f"{CANARY}\n".encode())
        assert wire.line() is not None
        wire.call("announce", sessionId=f"{CANARY}-session", contentMode="off")
        home.spool.mkdir(exist_ok=True)
        (home.spool / f"1-{CANARY}.json").write_text(CANARY)
        wire.call("spool")
        home.prices.write_text(f'{{"{CANARY}": 7}}')
        wire.call("status")
        (home.root.parent / ".claude" / "projects" / "-home-dev-app" / "s1.jsonl").write_bytes(b"{}\n")
        until(lambda: "source.rewound" in daemon.log.read_text())
        wire.call("content.forget", match=CANARY)
        wire.call("rebuild", index=True)
        wire.call("flush")
        assert daemon.terminate() == 0
    said = daemon.log.read_text()
    assert said.count("\n") > 5
    assert CANARY not in said


def test_many_bad_lines_make_few_lines_of_log(home: Home) -> None:
    """F83: ten thousand of them, and the log stays short."""
    log = Transcript(session="s1")
    log.lines = [b"{not json %d" % n for n in range(10_000)]
    write(home, log, "s1")
    with running(home, log_level="debug") as daemon, daemon.wire() as wire:
        wire.call("flush")
        counts = next(s["counts"] for s in wire.call("status")["sources"] if s["name"] == "claude-code")
        assert sum(number for name, number in counts.items() if name.startswith("rejected")) == 10_000
        assert len(daemon.log.read_text().splitlines()) < 20


def test_the_settings_say_where_the_log_goes(home: Home) -> None:
    """A private file below the home in the chosen format; the command line wins."""
    home.root.mkdir(mode=0o700)
    home.config.write_text('[log]\nfile = "burnd.log"\nformat = "console"\nlevel = "info"\n')
    with running(home) as daemon:
        assert daemon.terminate() == 0
    first = (home.root / "burnd.log").read_text().splitlines()
    assert json.loads(first[0])["event"], "the test's daemon is told --log-format json"
    assert stat.S_IMODE((home.root / "burnd.log").stat().st_mode) == 0o600
    assert daemon.log.read_text() == ""
    with running(home, "--log-file", "other.log") as daemon:
        assert daemon.terminate() == 0
    assert "daemon.stopped" in (home.root / "other.log").read_text()


def test_a_log_for_a_person_needs_no_library() -> None:
    """The daemon avoids rich, which structlog would import; the output is the same."""
    script = (
        "import sys; from burnd import cli; cli._block_rich(); import structlog; from burnd.daemon import log as logs; "
        "logs.configure(as_json=False, colors=True); structlog.get_logger().warning('said', reason='x'); "
        "assert not sys.modules['rich'] and 'pygments' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "said" in done.stderr


def test_a_usual_start_logs_no_error(home: Home) -> None:
    """Neither while logs are found nor while they are read for the first time."""
    write(home, conversation("s1", "one", "two"), "s1")
    with running(home) as daemon, daemon.wire() as wire:
        wire.call("flush")
        assert daemon.terminate() == 0
        levels = {json.loads(line)["level"] for line in daemon.log.read_text().splitlines()}
    assert levels == {"info"}
