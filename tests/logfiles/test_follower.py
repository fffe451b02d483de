"""The two tasks that read logs: a live line waits for neither old logs, nor large ones, nor the search index."""

from __future__ import annotations

import threading
from functools import partial
from pathlib import Path

import anyio
import pytest

from burnd.index.change import Change
from burnd.logfiles import follower
from burnd.logfiles.backfill_process import BackfillProcess
from burnd.logfiles.log_reader import Piece
from burnd.recording.candidate import Batch
from burnd.records import Session
from tests.capture.claude_folder import SESSION, Watched, has_turn, until, watching
from tests.conftest import Opened
from tests.harness.claude_code.transcript import Transcript, text

OTHER = "44444444-0000-4000-8000-000000000004"


def _ignore(_change: Change) -> None:
    pass


def _write(watched: Watched, message_id: str, session: str, words: str = "hi") -> None:
    log = Transcript(session=session, prefix=message_id)
    log.prompt("hello")
    log.says(message_id, text(words), output=7)
    watched.append(log, watched.path(session))


@pytest.mark.parametrize("old_logs", [0, 3])
async def test_a_live_line_does_not_wait_for_search(opened: Opened, tmp_path: Path, old_logs: int) -> None:
    """Old logs wait until the search index has caught up, which here it never does; live lines are recorded."""
    never = anyio.Event()
    folder = tmp_path / "projects" / "-home-dev-app"
    folder.mkdir(parents=True)
    for n in range(old_logs):
        log = Transcript(session=f"old{n}", prefix=f"old{n}")
        log.prompt("hello")
        log.says(f"old{n}", text("hi"), output=7)
        (folder / f"old{n}.jsonl").write_bytes(b"".join(line + b"\n" for line in log.lines))
    pipeline = await opened()
    pipeline.follow(_ignore, never.wait)
    watched = Watched(pipeline, tmp_path / "projects")
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(watched.source.run)
        await until(lambda: watched.source.status().has_looked)
        for n in range(3):
            _write(watched, f"live{n}", SESSION if n else OTHER)
            await until(partial(has_turn, watched, f"live{n}", output=7), 20)
        assert not [name for name in await watched.turns() if name.startswith("old")]
        tasks.cancel_scope.cancel()


async def test_a_live_line_does_not_wait_for_a_very_long_one(
    opened: Opened, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """F18: a line that takes long to decode is read in a child process, and other logs are recorded meanwhile."""
    monkeypatch.setattr(follower, "LONG_LINE_BYTES", 1000)
    monkeypatch.setattr(follower, "MAX_BYTES", 2000)
    decoded = threading.Event()
    receive = BackfillProcess.receive_piece

    def wait_and_receive(self: BackfillProcess) -> Piece | None:
        assert decoded.wait(60)
        return receive(self)

    monkeypatch.setattr(BackfillProcess, "receive_piece", wait_and_receive)
    async with watching(opened, tmp_path / "projects") as watched:
        await until(lambda: watched.source.status().has_looked)
        _write(watched, "long", SESSION, "long " * 1000)
        await until(lambda: watched.source._child is not None)
        _write(watched, "short", OTHER)
        await until(lambda: has_turn(watched, "short", output=7))
        assert "long" not in await watched.turns()
        decoded.set()
        await until(lambda: has_turn(watched, "long", output=7))


async def test_a_flush_ends_while_a_log_keeps_growing(opened: Opened, tmp_path: Path) -> None:
    """It waits for the lines that were there when it began. Here the log changes again with everything recorded."""
    async with watching(opened, tmp_path / "projects") as watched:
        await until(lambda: watched.source.status().has_looked)
        path = str(watched.path(SESSION))

        def change_again(_change: Change) -> None:
            watched.source._queue.add(path)

        _write(watched, "m1", SESSION)
        watched.pipeline.follow(change_again)
        with anyio.fail_after(30):
            await watched.source.flush()
        assert set(watched.ledger()) == {"m1"}


async def test_processes_are_looked_at_only_while_there_is_a_private_session(opened: Opened, tmp_path: Path) -> None:
    """An idle daemon sleeps; the first private session wakes it."""
    async with watching(opened, tmp_path / "projects") as watched:
        await until(lambda: watched.source.status().has_looked)
        await watched.source.flush()
        assert watched.source.format.news_every() is None
        await watched.pipeline.commit(
            Batch(entries=[Session(source="claude-code", session_id=SESSION, content_mode="off")])
        )
        await until(lambda: watched.source._waits_for_news)


async def test_no_old_log_is_taken_while_everything_is_queued_again(
    opened: Opened, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An index that was lost: logs are closed and opened again, and none of them is being read meanwhile."""
    taken: list[bool] = []
    async with watching(opened, tmp_path / "projects") as watched:
        await until(lambda: watched.source.status().has_looked)
        _write(watched, "m1", SESSION)
        await watched.source.flush()
        queue = watched.source._queue

        async def queue_old(paths: object = None) -> None:
            queue.backfill([(str(watched.path(SESSION)), 1.0)])
            watched.source._wake()
            await anyio.sleep(0.1)
            taken.append(not queue.has_old)
            await read_again(paths)  # type: ignore[arg-type]

        read_again = watched.source._positions.read_again
        monkeypatch.setattr(watched.source._positions, "read_again", queue_old)
        watched.pipeline._stores.generation += 1
        await watched.source.flush()
        assert taken == [False]
        assert set(watched.ledger()) == {"m1"}
