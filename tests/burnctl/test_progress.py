"""The wait for old logs: a bar with files, speed and time left, which disappears at the end; Ctrl-C
ends only the bar."""

from __future__ import annotations

import re
import sys
import threading
from typing import Any

import pytest

from burnctl.progress import waiting
from burnd.paths import Home
from tests.burnctl.fake_daemon import fake_daemon
from tests.burnctl.invoke import TerminalProcess

FOLLOW = """
import sys
from burnctl.cli import main
from burnctl.client import Client
from burnctl import daemon
try:
    daemon.wait_for_old_logs(Client(), color=sys.argv[1] == "colour")
except KeyboardInterrupt:
    sys.exit(130)
print("the answer")
"""


class Reading:
    """A daemon that reads 200 MB, some of it between any two requests."""

    def __init__(self, step: int) -> None:
        self.done, self.step, self.asked = 0, step, 0

    def __call__(self, _params: dict[str, Any], _talk: object) -> dict[str, Any]:
        self.asked += 1
        source = {"name": "claude-code", "detail": "the watcher is starting", "files": 0, "pending": 0}
        if self.asked < 3:
            return {"sources": [source], "backfill": {"done": 0, "total": 0, "bytesPerSecond": 0}}
        self.done = min(self.done + self.step, 200)
        left = 100 - self.done // 2
        reading = {"done": self.done * 1_000_000, "total": 200_000_000, "bytesPerSecond": 64_000_000}
        return {
            "sources": [source | {"detail": "watching", "files": 100, "pending": left}],
            "backfill": reading if left else None,
            "ledger": {"turns": 12_345},
        }


@pytest.mark.parametrize("colour", ["colour", "plain"])
def test_the_bar(home: Home, colour: str) -> None:
    environ = {"RELAYBURN_HOME": str(home.root)}
    command = [sys.executable, "-c", FOLLOW, colour]
    with (
        fake_daemon(home.root / "burnd.sock", status=Reading(20)),
        TerminalProcess(home, command=command, environ=environ, columns=100) as person,
    ):
        shown = person.end()
    assert shown.code == 0
    assert "of 100 files" in shown.text
    assert "64.0 MB/s" in shown.text
    assert " left" in shown.text
    assert "read old logs: 12,345 requests in " in shown.text
    assert shown.text.rstrip().endswith("the answer")
    assert bool(re.search(r"\x1b\[[39]\d", shown.text)) is (colour == "colour")


def test_ctrl_c_ends_the_showing_only(home: Home) -> None:
    with (
        fake_daemon(home.root / "burnd.sock", status=Reading(0)),
        TerminalProcess(home, command=[sys.executable, "-c", FOLLOW, "colour"], columns=80) as person,
    ):
        person.wait_for("of 100 files")
        person.type("\x03")
        shown = person.end()
    assert shown.code == 130
    assert "burnd keeps reading; see the progress with: burnctl status" in shown.text
    assert "\x1b[?25h" in shown.text  # the cursor is back


def test_a_full_disk_is_named_below_the_bar(home: Home) -> None:
    """The bar ends, and the reason is printed before the answer."""
    reading = Reading(20)

    def status(params: dict[str, Any], talk: object) -> dict[str, Any]:
        answer = reading(params, talk)
        if reading.done >= 60:
            answer["backfill"] = answer["backfill"] | {"blocked": "the disk is full"}
        return answer

    with (
        fake_daemon(home.root / "burnd.sock", status=status),
        TerminalProcess(home, command=[sys.executable, "-c", FOLLOW, "colour"], columns=100) as person,
    ):
        shown = person.end()
    assert "old logs cannot be read: the disk is full; see: burnctl status" in shown.text
    assert shown.text.rstrip().endswith("the answer")


def test_nothing_to_wait_for(home: Home) -> None:
    """Without logs there is no bar, and the answer comes at once."""
    nothing = {"sources": [{"name": "claude-code", "detail": "waiting for /x", "files": 0}], "backfill": None}
    with (
        fake_daemon(home.root / "burnd.sock", status=nothing),
        TerminalProcess(home, command=[sys.executable, "-c", FOLLOW, "colour"]) as person,
    ):
        assert person.end().text.rstrip() == "the answer"


def test_a_report_that_takes_long_states_that_it_works(home: Home) -> None:
    """After a second there is a line at a terminal, and it is wiped before the report."""
    seen = threading.Event()
    status: dict[str, Any] = {"sources": [], "backfill": None}

    def limits(_params: dict[str, Any], _talk: object) -> dict[str, Any]:
        seen.wait(60)
        windows: dict[str, Any] = {name: {"current": None, "history": []} for name in ("5h", "7d")}
        budget = {"period": "daily", "limitUsd": 20, "spentUsd": 3, "leftUsd": 17, "projectedUsd": None}
        budgets = [budget | {"unpricedTurns": 0, "crossed": False}]
        return {"source": "x", "now": "2026-11-16T12:30:00.000Z", "windows": windows, "budgets": budgets, "crossed": []}

    with fake_daemon(home.root / "burnd.sock", status=status, limits=limits), TerminalProcess(home, "limits") as person:
        person.wait_for("working ... 1 s")
        seen.set()
        shown = person.end()
    assert shown.code == 0
    assert "\r\x1b[KNo 5-hour window" in shown.text.replace("\x1b[1m", "")


def test_a_command_that_takes_long_shows_what_it_does(home: Home) -> None:
    """`content prune`, as an example of commands that are no reports: a line, wiped before the answer."""
    for words, method, answer, line, end in (
        (
            ["content", "prune", "--dry-run"],
            "content__prune",
            {"files": 2, "bytes": 9, "dryRun": True},
            "looking",
            "would",
        ),
        (["content", "prune"], "content__prune", {"files": 2, "bytes": 9, "dryRun": False}, "deleting", "deleted"),
    ):
        seen = threading.Event()

        def slow(_params: object, _talk: object, seen: threading.Event = seen, answer: Any = answer) -> dict[str, Any]:
            seen.wait(60)
            return dict(answer)

        status: dict[str, Any] = {"sources": [], "backfill": None}
        with (
            fake_daemon(home.root / "burnd.sock", status=status, **{method: slow}),
            TerminalProcess(home, *words) as person,
        ):
            person.wait_for(f"{line} ... 1 s")
            seen.set()
            shown = person.end()
        assert shown.code == 0
        assert f"\r\x1b[K{end}" in shown.text


def test_a_pipe_gets_no_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Neither stdout nor stderr of a process without a terminal."""
    monkeypatch.setattr("burnctl.progress._QUIET_S", 0.0)
    with waiting.during("checking"):
        assert waiting._end is None
    assert capsys.readouterr() == ("", "")
