"""Reading in a child process gives the same result as reading here, and its death loses nothing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest

from burnd.harness.claude_code.source import ClaudeLogs
from burnd.logfiles import follower
from burnd.logfiles.backfill_process import BackfillProcess, ReadRequest
from burnd.logfiles.log_reader import Piece
from burnd.logfiles.scanner import Refused
from burnd.recording import child_process
from tests.capture.claude_folder import SESSION, Watched, has_turn, watching
from tests.capture.rig import Rig
from tests.capture.trees import own_tree
from tests.conftest import Opened
from tests.harness.claude_code.transcript import Transcript, text


class RigInChild(Rig):
    """Reads a backlog as the source does: every piece from the state in the index, in a child process."""

    async def open(self) -> None:
        await super().open()
        self.child = BackfillProcess(ClaudeLogs, self.home.index_db)

    async def close(self) -> None:
        self.child.close()
        await super().close()

    async def _piece(self, path: Path, max_bytes: int) -> Piece | None:
        rows = await self.pipeline.index.rows("SELECT cursor, state FROM files WHERE path = ?", (str(path),))
        saved = (bytes(rows[0][0]), bytes(rows[0][1])) if rows else None
        self.child.send(ReadRequest(str(path), str(self.projects), saved, max_bytes, 0.0, 0))
        return self.child.receive_piece()


@pytest.mark.parametrize("max_bytes", [4 << 20, 1000])
async def test_reading_in_a_child_equals_reading_here(tmp_path: Path, max_bytes: int) -> None:
    """Whole files or many small pieces, each begun from stored state alone, end in the same ledger and index."""
    projects = own_tree(tmp_path / "claude")
    outcomes = []
    for kind, name in ((Rig, "here"), (RigInChild, "child")):
        rig = kind(tmp_path / name, projects)
        await rig.open()
        await rig.read(*rig.files(), max_bytes=max_bytes, pieces_at_once=3)
        await rig.flush()
        outcomes.append(await rig.outcome())
        await rig.close()
    assert outcomes[0] == outcomes[1]


async def test_old_logs_are_read_in_small_parts_beside_live_ones(
    opened: Opened, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A live line waits for the commit in progress, so each part of an old log is small then."""
    monkeypatch.setattr(follower, "CHILD_FROM_BYTES", 1)
    monkeypatch.setattr(follower, "SMALL_BATCH_BYTES", 1000)
    parts: list[int] = []
    receive = BackfillProcess.receive_piece

    def receive_and_note(self: BackfillProcess) -> Piece | None:
        piece = receive(self)
        parts.append(piece.consumed if piece is not None else 0)
        return piece

    monkeypatch.setattr(BackfillProcess, "receive_piece", receive_and_note)
    log = Transcript(session=SESSION)
    log.prompt("hello")
    for n in range(20):
        log.says(f"m{n}", text("a long story"), output=8)
    path = tmp_path / "projects" / "-home-dev-app" / f"{SESSION}.jsonl"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"".join(line + b"\n" for line in log.lines))
    watched = Watched(await opened(), tmp_path / "projects")
    watched.source._live_at = watched.source._clock()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(watched.source.run)
        await watched.source.flush()
        assert await has_turn(watched, "m19", output=8)
        tasks.cancel_scope.cancel()
    assert len(parts) > 3
    assert max(parts) <= 1000


async def test_a_backlog_is_read_in_a_child_and_settled_here(
    opened: Opened, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Turns left open by a backlog settle, later appends are read, and the child process ends."""
    monkeypatch.setattr(follower, "CHILD_FROM_BYTES", 1)
    log = Transcript(session=SESSION)
    log.prompt("hello")
    log.says("m1", text("hi"), output=7)
    log.says("m2", text("well"), output=8)
    path = tmp_path / "projects" / "-home-dev-app" / f"{SESSION}.jsonl"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"".join(line + b"\n" for line in log.lines))
    log.lines.clear()
    async with watching(opened, tmp_path / "projects") as watched:
        await watched.source.flush()
        assert await has_turn(watched, "m2", open=0, rev=1)
        assert watched.source._child is None
        log.says("m3", text("more"), output=9)
        watched.append(log)
        await watched.source.flush()
        assert await has_turn(watched, "m3", open=0, rev=1)


@pytest.mark.parametrize(
    ("at", "how"),
    [(1, signal.SIGKILL), (2, signal.SIGKILL), (3, signal.SIGKILL), (5, signal.SIGKILL), (2, signal.SIGSTOP)],
)
async def test_a_reader_that_dies_is_done_without(
    opened: Opened, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: int, how: signal.Signals
) -> None:
    """F76: a child process that is killed or hangs loses nothing: its files are read here, in any order. One file is
    always requested ahead."""
    monkeypatch.setattr(follower, "CHILD_FROM_BYTES", 1)
    monkeypatch.setattr(child_process, "HANGS_S", 0.5 if how == signal.SIGSTOP else 60.0)
    send, sent = BackfillProcess.send, 0

    def send_and_kill(self: BackfillProcess, request: ReadRequest, *skipped: Any) -> None:
        nonlocal sent
        sent += 1
        send(self, request, *skipped)
        if sent == at:
            assert self._process is not None
            os.kill(self._process.pid, how)

    monkeypatch.setattr(BackfillProcess, "send", send_and_kill)
    folder = tmp_path / "projects" / "-home-dev-app"
    folder.mkdir(parents=True)
    for n in range(5):
        log = Transcript(session=f"{SESSION[:-1]}{n}")
        log.prompt("hello")
        log.says(f"m{n}", text("hi"), output=7)
        (folder / f"{SESSION[:-1]}{n}.jsonl").write_bytes(b"".join(line + b"\n" for line in log.lines))
    async with watching(opened, tmp_path / "projects") as watched:
        await watched.source.flush()
        assert sorted(watched.ledger()) == ["m0", "m1", "m2", "m3", "m4"]
    assert sent >= at


async def test_a_file_begun_ahead_that_grows_meanwhile_is_read_to_its_end(
    opened: Opened, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Appends after the child's read are noticed, since the file was in progress."""
    monkeypatch.setattr(follower, "CHILD_FROM_BYTES", 1)
    receive = BackfillProcess.receive_piece
    folder = tmp_path / "projects" / "-home-dev-app"
    folder.mkdir(parents=True)
    paths = [folder / f"{SESSION[:-1]}{n}.jsonl" for n in range(2)]
    later: list[tuple[Path, bytes]] = []
    for n, path in enumerate(paths):
        log = Transcript(session=path.stem)
        log.prompt("hello")
        log.says(f"m{n}", text("hi"), output=7)
        path.write_bytes(b"".join(line + b"\n" for line in log.lines))
        log.lines.clear()
        log.says(f"later{n}", text("more"), output=9)
        later.append((path, b"".join(line + b"\n" for line in log.lines)))

    def receive_then_grow(self: BackfillProcess) -> Piece | None:
        piece = receive(self)
        while later:
            path, data = later.pop()
            with path.open("ab") as file:
                file.write(data)
        return piece

    monkeypatch.setattr(BackfillProcess, "receive_piece", receive_then_grow)
    async with watching(opened, tmp_path / "projects") as watched:
        await watched.source.flush()
        await watched.source.flush()
        assert sorted(watched.ledger()) == ["later0", "later1", "m0", "m1"]


def test_what_must_not_be_read_is_refused_apart_too(tmp_path: Path) -> None:
    """A link is refused and a missing file is missing, in the words they have here."""
    (tmp_path / "p").mkdir()
    (tmp_path / "p" / f"{SESSION}.jsonl").symlink_to("/etc/passwd")
    (tmp_path / "index").mkdir()
    (tmp_path / "index" / "burn.db").touch()
    child = BackfillProcess(ClaudeLogs, tmp_path / "index" / "burn.db")
    request = ReadRequest(str(tmp_path / "p" / f"{SESSION}.jsonl"), str(tmp_path), None, 1000, 0.0, 0)
    try:
        child.send(request)
        child.send(request._replace(path=str(tmp_path / "p" / f"{SESSION[:-1]}9.jsonl")))
        with pytest.raises(Refused):
            child.receive_piece()
        with pytest.raises(FileNotFoundError):
            child.receive_piece()
    finally:
        child.close()


def test_the_other_process_brings_little_along() -> None:
    """It reads, and needs neither an event loop nor a log: what it imports for nothing is memory twice."""
    kinds = "import burnd.logfiles.backfill_process, burnd.harness.claude_code.source, sys; "
    needless = "{'anyio', 'asyncio', 'aiosqlite', 'structlog', 'tantivy', 'watchdog'}"
    found = subprocess.run(
        [sys.executable, "-c", f"{kinds}print({needless} & set(sys.modules))"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert found.stdout.strip() == "set()"
