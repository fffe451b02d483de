"""Stores after a batch; the index always agrees with ledger and content."""

from __future__ import annotations

import asyncio
import errno
import os
import resource
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import anyio
import pytest

from burnd.errors import NoSpace, NotNow
from burnd.ledger import content, files
from burnd.recording.candidate import Batch
from burnd.records import Session
from tests.conftest import Opened
from tests.dump import index_dump, ledger_dump
from tests.folded import Folded
from tests.make import at, read_content, stamp, text, turn


async def test_a_batch_is_in_ledger_content_and_index(opened: Opened) -> None:
    """After a commit the records are in all three places."""
    pipeline = await opened()
    await pipeline.commit(Batch(entries=[turn()], content=[text()]))
    assert [e.entry for e in pipeline.journal.read()] == [turn()]
    assert read_content(pipeline.content, "s1") == [text()]
    dump = await index_dump(pipeline.index)
    assert len(dump["turns"]) == len(dump["messages"]) == len(dump["calls"]) == 1


async def test_an_equal_record_appends_nothing(opened: Opened) -> None:
    """Saying the same again leaves the ledger as it is; saying something else is the next revision."""
    pipeline = await opened()
    assert await pipeline.commit(Batch(entries=[turn(), turn()])) == 1
    assert await pipeline.commit(Batch(entries=[turn()])) == 0
    assert await pipeline.commit(Batch(entries=[turn(ts=at(1))])) == 1
    (latest,) = Folded(pipeline.journal.read()).turns.values()
    assert (latest.rev, latest.ts) == (2, at(1))


async def test_deleting_the_index_changes_no_answer(opened: Opened) -> None:
    """I3: a rebuilt index equals the deleted one."""
    pipeline = await opened()
    for n in range(5):
        await pipeline.commit(
            Batch(
                entries=[turn(f"m{n}", turn_index=n, ts=at(n)), stamp(n, persona=f"p{n}")],
                content=[text(f"m{n}", f"words {n}", ts=at(n)), text(f"m{n}", "w" * 5000, b=1, ts=at(n))],
            )
        )
    await pipeline.commit(Batch(entries=[turn("m1", session_id="s2", turn_index=1, ts=at(1))]))
    await pipeline.commit(Batch(entries=[Session(session_id="s1", source="claude-code", title="mine")]))
    before = await index_dump(pipeline.index), ledger_dump(pipeline.journal)
    await opened.close()
    shutil.rmtree(opened.home.index)
    again = await opened()
    assert (await index_dump(again.index), ledger_dump(again.journal)) == before


async def test_a_full_disk_prevents_a_new_ledger(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    """F41, F47: the ledger was removed and the disk takes no new file: refused until it does, and then recorded."""
    pipeline = await opened()
    await pipeline.commit(Batch(entries=[turn("m1")]))
    opened.home.ledger.unlink()
    with monkeypatch.context() as full:
        full.setattr(files, "open_private", _refuse)
        for _ in range(2):
            with pytest.raises(NoSpace):
                await pipeline.commit(Batch(entries=[turn("m2")]))
    await pipeline.commit(Batch(entries=[turn("m2")]))
    assert [e.entry for e in pipeline.journal.read()] == [turn("m2")]


@pytest.mark.parametrize("spare", range(7))
async def test_want_of_descriptors_is_waited_out(opened: Opened, spare: int) -> None:
    """F68, P1: whatever cannot be opened for it, a batch is refused for now, and recorded once when some are free."""
    pipeline = await opened()
    await pipeline.commit(Batch(entries=[turn("m1")], content=[text("m1")]))
    small, large = text("m2", "small", session_id="s2"), text("m2", "w" * 5000, b=1, session_id="s2")
    new = Batch(entries=[turn("m2", session_id="s2")], content=[small, large])
    with descriptors_left(spare):
        for _ in range(2):
            try:
                await pipeline.commit(new)
            except NotNow as refusal:
                assert "nothing is lost meanwhile" in str(refusal)  # noqa: PT017 - with enough of them it succeeds
            else:
                assert spare
    await pipeline.commit(new)
    assert [e.entry for e in pipeline.journal.read()] == [turn("m1"), turn("m2", session_id="s2")]
    assert read_content(pipeline.content, "s2") == [small, large]


@contextmanager
def descriptors_left(spare: int) -> Iterator[None]:
    """So many may be opened and no more."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = max(map(int, os.listdir("/dev/fd")))
    resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 10, limits[1]))
    held = []
    try:
        with suppress(OSError):
            while True:
                held.append(os.open(os.devnull, os.O_RDONLY))
        for _ in range(spare):
            os.close(held.pop())
        yield
    finally:
        for fd in held:
            os.close(fd)
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def _refuse(path: Path, _flags: int) -> int:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))


async def test_closing_waits_for_what_is_being_written(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    """F75, P10: a stamp that is half recorded when the daemon ends is recorded, and nothing waits for ever."""
    pipeline = await opened()
    append, is_writing, is_closing = pipeline._encode, anyio.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    def slowly(*given: Any) -> Any:
        loop.call_soon_threadsafe(is_writing.set)
        is_closing.wait()
        return append(*given)

    monkeypatch.setattr(pipeline, "_encode", slowly)
    with anyio.fail_after(60):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(pipeline.commit, Batch(entries=[turn("m1")]))
            await is_writing.wait()
            loop.call_later(0.1, is_closing.set)
            await pipeline.close()
        with pytest.raises(NotNow):
            await pipeline.commit(Batch(entries=[turn("m2")]))
    again = await opened()
    assert [logged.entry.message_id for logged in again.journal.read()] == ["m1"]  # type: ignore[union-attr]


@pytest.mark.parametrize("code", [errno.EIO, errno.EISDIR])
async def test_unreadable_records_are_written_again(opened: Opened, monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    """Records in a bad sector of a sidecar are written again when they are read again from the log."""
    pipeline = await opened()
    said = Batch(content=[text(f"m{n}", f"words {n}") for n in range(3)])
    await pipeline.commit(said)
    sidecar = pipeline.content.sidecars.path("s1")
    length = sidecar.stat().st_size
    pread, bad = os.pread, length // 3  # the second line's

    def fails(fd: int, count: int, position: int) -> bytes:
        if position == bad and os.path.samestat(os.fstat(fd), sidecar.stat()):
            raise OSError(code, os.strerror(code))
        return pread(fd, count, position)

    monkeypatch.setattr(os, "pread", fails)
    await pipeline.commit(said)
    assert sidecar.stat().st_size == length + bad
    await pipeline.commit(said)
    assert sidecar.stat().st_size == length + bad
    assert {record.text for record in read_content(pipeline.content, "s1")} == {"words 0", "words 1", "words 2"}


async def test_what_cannot_be_read_now_is_waited_for(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    """Want of descriptors is no damage: nothing is written twice for it."""
    pipeline = await opened()
    said = Batch(content=[text("m1", "words")])
    await pipeline.commit(said)
    sidecar = pipeline.content.sidecars.path("s1")
    before, opens = sidecar.read_bytes(), os.open

    def fails(path: Any, *arguments: Any, **more: Any) -> int:
        if path == sidecar:
            raise OSError(errno.EMFILE, "too many")
        return opens(path, *arguments, **more)

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", fails)
        with pytest.raises(NotNow):
            await pipeline.commit(said)
    await pipeline.commit(said)
    assert sidecar.read_bytes() == before


@pytest.mark.parametrize("restarted", [False, True])
@pytest.mark.parametrize("put", [lambda path: path.symlink_to("elsewhere"), lambda path: path.mkdir()])
async def test_an_obstacle_in_the_place_of_a_sidecar_is_moved_aside(
    opened: Opened, put: Callable[[Path], None], restarted: bool
) -> None:
    """A link or folder is moved aside and not written through, and recording of this session continues."""
    pipeline = await opened()
    said = Batch(content=[text("m1", "words")])
    await pipeline.commit(said)
    sidecar = pipeline.content.sidecars.path("s1")
    elsewhere = sidecar.rename(sidecar.with_name("elsewhere"))
    before = elsewhere.read_bytes()
    put(sidecar)
    if restarted:
        pipeline = await opened()
    await pipeline.commit(said)
    await pipeline.commit(said)
    assert [record.text for record in read_content(pipeline.content, "s1")] == ["words"]
    assert sidecar.read_bytes() == elsewhere.read_bytes() == before
    assert os.path.lexists(f"{sidecar}.aside")


async def test_ending_a_long_prune_shows_that_it_gets_on(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    """F49, F76: what a full disk cut short is ended before more is written, with a sign of life for each few."""
    pipeline = await opened()
    sessions = [f"s{n}" for n in range(6)]
    await pipeline.commit(Batch(content=[text("m", "w" * 5000, session_id=session) for session in sessions]))
    monkeypatch.setattr(content, "DROPPED_AT_ONCE", 2)
    with monkeypatch.context() as full:
        full.setattr(pipeline.content, "drop", lambda _: _refuse(opened.home.content, 0))
        with pytest.raises(NoSpace):
            await pipeline.forget(sessions)
    before = pipeline.status.heartbeat
    await pipeline.commit(Batch(entries=[turn("m1")]))
    assert pipeline.status.heartbeat - before >= 6
    assert not list(pipeline.content.sidecars.scan())
    assert pipeline.content.orphaned() == []
