"""Content modes and retention; deleted text never comes back."""

from __future__ import annotations

import os
import shutil
import sqlite3
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import zstandard

from burnd.errors import NoSpace
from burnd.ledger.blobs import BlobStore
from burnd.ledger.content_modes import ContentModes
from burnd.paths import Home
from burnd.recording.candidate import Batch
from burnd.recording.retention import ClockReading, ClockTrust
from burnd.records import BlobRef, Session
from burnd.records.times import DAY_MS, wall_ms
from tests.conftest import Opened
from tests.dump import index_dump
from tests.make import START_MS, at, read_content, text, tool_result, turn

CANARY = "zqcanary71"
DAY_S = 86_400


def haystack(home: Home) -> bytes:
    """Every byte below the home, the blobs unpacked, free pages and logs of databases included."""
    parts = []
    for folder, _, names in os.walk(home.root):
        for name in names:
            path = Path(folder) / name
            parts.append(str(path).encode())
            parts.append(path.read_bytes())
            if name in ("blobs.db", "blobs.db.damaged"):
                parts += packs(path)
    return b"\n".join(parts)


def packs(blobs: Path) -> list[bytes]:
    with sqlite3.connect(blobs) as db:
        return [zstandard.decompress(row[0]) for row in db.execute("SELECT data FROM pack")]


def chatter(session_id: str = "s1", seconds: float = 0) -> Batch:
    """A turn with content of every kind, small and large, with a canary in each."""
    facts: dict[str, Any] = {"session_id": session_id, "ts": at(seconds)}
    return Batch(
        entries=[turn(f"m-{session_id}", **facts)],
        content=[
            text("u1", f"{CANARY} please", role="user", **facts),
            text(f"m-{session_id}", f"{CANARY} " * 1000, **facts),
            text("sys", f"you are {CANARY}", role="system", **facts),
            tool_result("r1", f"{CANARY} " * 900, **facts),
            text("t", f"{CANARY} title", kind="title", role="system", b=3, **facts),
            text("t2", f"{CANARY} title", kind="title", role="user", **facts),
        ],
    )


async def test_full_keeps_everything(opened: Opened) -> None:
    """The canary is found where it should be, so that its absence elsewhere means something."""
    pipeline = await opened()
    await pipeline.commit(chatter())
    await opened.close()
    assert CANARY.encode() in haystack(opened.home)


@pytest.mark.parametrize("mode", ["hash-only", "off"])
async def test_without_content_no_text_is_anywhere(opened: Opened, mode: str) -> None:
    """I6: no text in any file of the home; `off` does not even have the folder, nor hashes of results."""
    pipeline = await opened(mode)
    await pipeline.commit(chatter())
    (logged,) = pipeline.journal.read()
    hashes = [call.result_hash for call in logged.entry.tool_calls]  # type: ignore[union-attr]
    await opened.close()
    assert CANARY.encode() not in haystack(opened.home)
    assert not opened.home.content.exists()
    assert hashes == (["bb"] if mode == "hash-only" else [None])


async def test_turns_are_the_same_in_every_mode(opened: Opened) -> None:
    """But for hashes of results, what is counted does not depend on what is kept."""
    dumps = []
    for mode in ("full", "hash-only", "off"):
        pipeline = await opened(mode)
        await pipeline.commit(Batch(entries=[turn(tool_calls=())]))
        dumps.append((await index_dump(pipeline.index))["turns"])
        await opened.close()
        shutil.rmtree(opened.home.root)
    assert dumps[0] == dumps[1] == dumps[2]


async def test_a_session_can_be_off_in_a_full_daemon(opened: Opened) -> None:
    """A session's own mode holds for it and its child sessions, after a restart and a lost index too."""
    pipeline = await opened()
    await pipeline.commit(
        Batch(
            entries=[
                Session(session_id="quiet", source="claude-code", content_mode="off"),
                Session(session_id="child", source="opencode", parent_session_id="quiet"),
            ]
        )
    )
    await pipeline.commit(chatter("quiet"))
    await opened.close()
    shutil.rmtree(opened.home.index)
    pipeline = await opened()
    await pipeline.commit(chatter("child"))
    await pipeline.commit(chatter("quiet"))
    await opened.close()
    assert CANARY.encode() not in haystack(opened.home)


def test_a_sessions_mode_wins_both_ways() -> None:
    """Whatever the daemon's own mode is."""
    modes = ContentModes("off")
    modes.learn(Session(session_id="loud", source="x", content_mode="full"))
    assert (modes.mode_of("loud"), modes.mode_of("other")) == ("full", "off")


async def test_pruning_takes_exactly_what_is_old(opened: Opened) -> None:
    """A folder of mixed ages loses exactly the old sidecars and the unreferenced blobs."""
    shared, own = "shared words " * 200, "own words " * 200
    now_ms = START_MS + 100 * DAY_MS
    pipeline = await opened(now=lambda: now_ms)
    ages = {"a": 100, "b": 91, "c": 90, "d": 89, "e": 0}
    for session_id, days in ages.items():
        ts = at((100 - days) * DAY_S)
        await pipeline.commit(
            Batch(
                entries=[turn(f"m{session_id}", session_id=session_id, ts=ts)],
                content=[
                    text("1", shared, session_id=session_id, ts=ts),
                    text("2", own + session_id, session_id=session_id, ts=ts),
                ],
            )
        )
    pruned = await pipeline.prune_content(90 * DAY_MS)
    assert pruned.files == 2
    assert pruned.bytes > 0
    left = {s.path.name for s in pipeline.content.sidecars.scan()}
    assert left == {"c.jsonl", "d.jsonl", "e.jsonl"}
    with sqlite3.connect(opened.home.blobs) as db:
        assert db.execute("SELECT count(*) FROM blob").fetchone() == (4,)
    dump = await index_dump(pipeline.index)
    assert len(dump["turns"]) == 5
    assert {row[0] for row in dump["messages"]} == {"c", "d", "e"}
    assert (await pipeline.prune_content(90 * DAY_MS)).files == 0


async def test_pruning_everything_includes_times_ahead_of_the_clock(opened: Opened) -> None:
    """A record dated a moment ahead of the clock is pruned when everything is."""
    pipeline = await opened(now=lambda: START_MS)
    await pipeline.commit(Batch(content=[text("1", "words", session_id="a", ts=at(60))]))
    assert (await pipeline.prune_content(0)).files == 1


async def test_pruned_text_is_gone_from_the_whole_home(opened: Opened) -> None:
    """After a prune no file holds the text any more, free pages and logs of databases included."""
    pipeline = await opened(now=lambda: START_MS + 100 * DAY_MS)
    await pipeline.commit(chatter())
    await pipeline.commit(Batch(content=[text("x", "stays", session_id="young", ts=at(99 * DAY_S))]))
    await pipeline.prune_content(90 * DAY_MS)
    assert CANARY.encode() not in haystack(opened.home)
    await opened.close()
    assert CANARY.encode() not in haystack(opened.home)
    assert b"stays" in haystack(opened.home)


@pytest.mark.parametrize("how", ["prune", "forget"])
async def test_what_was_pruned_never_comes_back(opened: Opened, how: str) -> None:
    """Deleting the index and reading the source again brings no pruned text back; later text is stored."""
    clock = {"now_ms": START_MS + 100 * DAY_MS}
    pipeline = await opened(now=lambda: clock["now_ms"])
    await pipeline.commit(chatter())
    if how == "prune":
        await pipeline.prune_content(90 * DAY_MS)
    else:
        await pipeline.forget(["s1"])
    await opened.close()
    shutil.rmtree(opened.home.index)
    pipeline = await opened(now=lambda: clock["now_ms"])
    await pipeline.commit(chatter())
    assert CANARY.encode() not in haystack(opened.home)
    await pipeline.commit(Batch(content=[text("new", "said later", ts=at(101 * DAY_S))]))
    assert [r.text for r in read_content(pipeline.content, "s1")] == ["said later"]


async def test_a_pruned_session_keeps_its_figures(opened: Opened) -> None:
    """Times and message counts outlive the content and the index."""
    pipeline = await opened(now=lambda: START_MS + 100 * DAY_MS)
    await pipeline.commit(Batch(entries=[turn(ts=at(5))], content=[text("u", ts=at(0)), text("m1", ts=at(9))]))
    await pipeline.prune_content(DAY_MS)
    before = await index_dump(pipeline.index)
    await opened.close()
    shutil.rmtree(opened.home.index)
    assert await index_dump((await opened()).index) == before
    (session,) = before["sessions"]
    assert session[7:12] == (START_MS, START_MS + 9000, 0, 2, 0)


async def test_a_prune_cut_short_is_finished_at_the_next_start(opened: Opened) -> None:
    """The ledger records a prune first, so a crash in between neither loses nor retains text."""
    pipeline = await opened(now=lambda: START_MS + 100 * DAY_MS)
    await pipeline.commit(chatter())
    sidecar = pipeline.content.sidecars.path("s1")
    kept = sidecar.read_bytes(), sidecar.stat()
    await pipeline.forget(["s1"])
    await opened.close()
    sidecar.write_bytes(kept[0])
    await opened()
    assert not sidecar.exists()


async def test_forgetting_an_unknown_session_is_harmless(opened: Opened) -> None:
    pipeline = await opened()
    assert (await pipeline.forget(["nobody"])).files == 0


def test_a_leap_of_the_clock_is_not_believed() -> None:
    """F50: the timer deletes nothing when wall time ran ahead of real time, until a day has shown it even."""
    hour = 3_600_000
    trust = ClockTrust(ClockReading(START_MS, 0, "boot"))
    trust = trust.next(ClockReading(START_MS + hour, hour, "boot"))
    assert trust.suspect is None
    ahead = 30 * 365 * DAY_MS
    trust = trust.next(ClockReading(START_MS + ahead, 2 * hour, "boot"))
    assert trust.suspect is not None
    assert trust.next(ClockReading(START_MS + 3 * hour, 3 * hour, "boot")).suspect is None
    trust = trust.next(ClockReading(START_MS + ahead + hour, 3 * hour, "boot"))
    assert trust.suspect is not None
    assert trust.next(ClockReading(START_MS + ahead + 2 * DAY_MS, 2 * hour + 2 * DAY_MS, "boot")).suspect is None


def test_a_leap_across_a_restart_of_the_machine_is_not_believed() -> None:
    """F50: a clock that was years behind before, until a day has passed by it, however often it is restarted."""
    trust = ClockTrust(ClockReading(START_MS - 10 * 365 * DAY_MS, 0, "boot"))
    trust = trust.next(ClockReading(START_MS, 5, "second boot"))
    assert trust.suspect is not None
    trust = trust.next(ClockReading(START_MS + DAY_MS // 2, 5, "third boot"))
    assert trust.suspect is not None
    assert trust.next(ClockReading(START_MS + DAY_MS, 5, "fourth boot")).suspect is None


def test_a_clock_that_is_ahead_from_the_start_is_not_believed() -> None:
    """F50: nothing is known of an earlier reading, but the newest record is years older."""
    now = ClockReading(START_MS, 0, "boot")
    assert ClockTrust(now).next(now, START_MS - 30 * DAY_MS).suspect is None
    trust = ClockTrust(now).next(now).next(now, START_MS - 400 * DAY_MS)
    assert trust.suspect is not None
    trust = trust.next(ClockReading(START_MS + DAY_MS, DAY_MS, "boot"), START_MS - 400 * DAY_MS)
    assert trust.suspect is None
    assert trust.next(ClockReading(START_MS + DAY_MS, DAY_MS, "boot"), START_MS - 400 * DAY_MS).suspect is None


async def test_a_sidecar_is_as_old_as_its_records_say(opened: Opened) -> None:
    """Independent of the wall clock at its writing and of file times."""
    clock = {"now_ms": START_MS - 10 * 365 * DAY_MS}
    pipeline = await opened(now=lambda: clock["now_ms"])
    await pipeline.commit(chatter())
    clock["now_ms"] = START_MS + DAY_MS
    assert (await pipeline.prune_content(90 * DAY_MS)).files == 0
    os.utime(pipeline.content.sidecars.path("s1"), (0, 0))
    assert (await pipeline.prune_content(90 * DAY_MS)).files == 0
    clock["now_ms"] = START_MS + 91 * DAY_MS
    assert (await pipeline.prune_content(90 * DAY_MS)).files == 1


@pytest.mark.parametrize("ts", ["0001-01-01T00:00:00.000Z", "1970-01-01T00:00:00.000Z", "9999-12-31T23:59:59.999Z"])
async def test_records_without_a_plausible_time_are_as_old_as_their_file(opened: Opened, ts: str) -> None:
    """They are neither pruned at once nor stored for ever."""
    clock = {"now_ms": wall_ms()}
    pipeline = await opened(now=lambda: clock["now_ms"])
    await pipeline.commit(Batch(content=[text("m", ts=ts)]))
    assert (await pipeline.prune_content(90 * DAY_MS)).files == 0
    clock["now_ms"] += 91 * DAY_MS
    assert (await pipeline.prune_content(90 * DAY_MS)).files == 1


def test_a_sleeping_machine_is_no_leap() -> None:
    """F79: boot time includes sleep; after a reboot there is no reference."""
    trust = ClockTrust(ClockReading(START_MS, 0, "boot"))
    assert trust.next(ClockReading(START_MS + 40 * DAY_MS, 40 * DAY_MS, "boot")).suspect is None
    assert trust.next(ClockReading(START_MS + 40 * DAY_MS, 5, "another boot")).suspect is None


async def test_an_interrupted_forget_is_finished_everywhere(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    """A crash after the sidecar went and before its blobs did: the next start leaves no trace of the text."""
    pipeline = await opened()
    await pipeline.commit(chatter())

    def crash(_ids: Any) -> int:
        raise OSError("the power went")

    monkeypatch.setattr(pipeline.content, "_release", crash)
    with pytest.raises(Exception, match="power"):
        await pipeline.forget(["s1"])
    assert CANARY.encode() in haystack(opened.home)
    await opened()
    assert CANARY.encode() not in haystack(opened.home)


async def test_a_failed_forget_forgets_nothing(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    """Until the ledger records the prune, later text is stored."""
    pipeline = await opened()
    await pipeline.commit(chatter())

    def full(_lines: Any) -> list[int]:
        raise NoSpace("No space left on device", "ledger")

    with monkeypatch.context() as patched:
        patched.setattr(pipeline.journal, "append", full)
        with pytest.raises(NoSpace):
            await pipeline.forget(["s1"])
    await pipeline.commit(Batch(content=[text("later", "kept", ts=at(5))]))
    assert "kept" in [r.text for r in read_content(pipeline.content, "s1")]


async def test_lines_of_a_later_version_are_not_dropped_as_old(opened: Opened) -> None:
    """F51: a pruned session keeps a sidecar with records of a newer version."""
    pipeline = await opened()
    await pipeline.commit(chatter())
    await pipeline.forget(["s1"])
    await opened.close()
    sidecar = opened.home.content / "s1.jsonl"
    sidecar.write_bytes(b'{"v":2,"sessionId":"s1"}\n')
    await opened()
    assert sidecar.exists()


async def test_a_session_that_only_has_a_mode_can_be_forgotten(opened: Opened) -> None:
    pipeline = await opened()
    await pipeline.commit(Batch(entries=[Session(session_id="s9", source="x", content_mode="off")]))
    assert (await pipeline.forget(["s9"])).files == 0


@pytest.mark.parametrize("damage", [b"", b"rubbish" * 999])
async def test_damaged_blobs_are_moved_aside(opened: Opened, damage: bytes) -> None:
    """A damaged file of blobs costs the large texts in it, said as such, and nothing else."""
    pipeline = await opened()
    await pipeline.commit(chatter())
    await opened.close()
    opened.home.blobs.write_bytes(damage)
    for suffix in ("-wal", "-shm"):
        Path(f"{opened.home.blobs}{suffix}").unlink(missing_ok=True)
    pipeline = await opened()
    await pipeline.commit(Batch(content=[text("new", "y" * 5000, ts=at(9))]))
    found = read_content(pipeline.content, "s1")
    assert found[0].text == f"{CANARY} please"
    assert found[-1].text == "y" * 5000
    assert isinstance(found[1].text, BlobRef)
    assert found[1].text.lost in ("missing", "damaged")
    await pipeline.forget(["s1"])


@pytest.mark.parametrize("how", ["forget", "prune"])
async def test_words_go_from_blobs_that_were_moved_aside(opened: Opened, how: str) -> None:
    """I6: a damaged file of blobs is kept for recovery until some of its text must be deleted."""
    pipeline = await opened()
    await pipeline.commit(chatter())
    await opened.close()
    _damage(opened.home.blobs, "blob_by_sha")
    pipeline = await opened(now=lambda: START_MS + 100 * DAY_MS)
    await pipeline.commit(Batch(content=[text("new", "y" * 5000, session_id="s2", ts=at(9))]))
    aside = opened.home.content / "blobs.db.damaged"
    assert any(CANARY.encode() in pack for pack in packs(aside))
    await (pipeline.forget(["s1"]) if how == "forget" else pipeline.prune_content(DAY_MS))
    assert not list(opened.home.content.glob("*.damaged*"))
    assert CANARY.encode() not in haystack(opened.home)


def _damage(database: Path, name: str) -> None:
    """Overwrites the first page of an index: a damage that writing meets."""
    with sqlite3.connect(database) as db:
        (page,) = db.execute("SELECT rootpage FROM sqlite_master WHERE name = ?", (name,)).fetchone()
        (size,) = db.execute("PRAGMA page_size").fetchone()
    with database.open("r+b") as file:
        file.seek((page - 1) * size)
        file.write(b"\xff" * size)


async def test_retention_frees_a_full_disk(opened: Opened) -> None:
    """Below the reserve, content can still be pruned: that is what makes room."""
    pipeline = await opened(now=lambda: START_MS + 100 * DAY_MS)
    await pipeline.commit(chatter())
    pipeline.disk.reserve = 1 << 60
    assert (await pipeline.prune_content(DAY_MS)).files == 1


async def test_many_prunes_cut_short_are_finished_together(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each time something goes, all references are gone through: not once for every session."""
    sessions = [f"s{n}" for n in range(5)]
    pipeline = await opened()
    for session_id in sessions:
        await pipeline.commit(chatter(session_id))
    left = {path: path.read_bytes() for path in map(pipeline.content.sidecars.path, sessions)}
    await pipeline.forget(sessions)
    await opened.close()
    for path, data in left.items():
        path.write_bytes(data)
    release = Mock(return_value=0)
    monkeypatch.setattr(BlobStore, "release", release)
    await opened()
    assert [sorted(given) for ((given,), _) in release.call_args_list] == [sessions]
    assert not any(path.exists() for path in left)
