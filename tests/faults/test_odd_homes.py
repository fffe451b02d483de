"""Homes with a name that is no text, or with something in the place of the search index, work like others."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from burnd.paths import Home
from tests.burnctl.invoke import run
from tests.harness.codex.rollout import Rollout, says
from tests.harness.opencode.data import Writer
from tests.server.logs import conversation, write
from tests.server.wire import Daemon, running, until


def test_a_path_not_in_utf8(tmp_path: Path) -> None:
    """F82: logs of every harness below it are recorded and found, and every command answers."""
    home = Home(tmp_path / os.fsdecode(b"h\xff\xfe") / ".relayburn")
    write(home, conversation("s1", "walrus one"), "s1")
    log = Rollout(1)
    log.task()
    log.item(says("walrus two"))
    log.meter(10, 0, 5, 0)
    folder = home.root.parent / ".codex" / "sessions" / "2026"
    folder.mkdir(parents=True)
    (folder / log.name).write_bytes(log.data)
    database = home.root.parent / ".local" / "share" / "opencode" / "opencode.db"
    database.parent.mkdir(parents=True)
    writer = Writer(database)
    writer.session("ses_1")
    writer.user("msg_1", "ses_1", "walrus three")
    writer.step("msg_2", "ses_1", "msg_1")
    writer.close()
    with running(home) as daemon, daemon.wire() as wire:
        until(lambda: wire.call("summary")["totals"]["turns"] == 3)
        until(lambda: len(wire.call("sessions.search", query="walrus")["hits"]) == 3)
        for words in (
            ["status"],
            ["status", "--json"],
            ["doctor"],
            ["sessions"],
            ["search", "walrus"],
            ["config", "path"],
        ):
            done = run(home, *words)
            assert done.returncode == 0, (words, done.stderr)
            assert done.stdout


def _file(path: Path) -> None:
    path.write_text("not a folder")


def _socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(os.fspath(path))


@pytest.mark.parametrize("make", [_file, os.mkfifo, _socket, lambda path: path.symlink_to("nowhere")])
def test_something_else_in_the_place_of_the_search_index(home: Home, make: Callable[[Path], object]) -> None:
    """It is moved aside, and search works."""
    home.index.mkdir(parents=True, mode=0o700)
    home.root.chmod(0o700)
    make(home.search)
    write(home, conversation("s1", "walrus"), "s1")
    with running(home) as daemon, daemon.wire() as wire:
        until(lambda: len(wire.call("sessions.search", query="walrus")["hits"]) == 1)
    assert [path.name.partition("-")[0] for path in home.index.glob("search.*")] == ["search.aside"]


@pytest.mark.parametrize(
    ("name", "make", "what"),
    [
        ("content", _file, "is a file where a folder must be"),
        ("ledger.jsonl", Path.mkdir, "is a folder where a file must be"),
    ],
)
def test_a_file_in_the_place_of_a_folder_and_the_other_way_round(
    home: Home, name: str, make: Callable[[Path], object], what: str
) -> None:
    """F82: burnd ends at once, and its message names the path, what is wrong and what to do; nothing is touched."""
    home.root.mkdir(parents=True, mode=0o700)
    make(home.root / name)
    daemon = Daemon(home)
    try:
        assert daemon.process.wait(60) == 1
        assert f"{home.root / name}: {what} (move it away, then start burnd again)" in daemon.why()
        assert (home.root / name).is_dir() == (name == "ledger.jsonl")
    finally:
        daemon.kill()
