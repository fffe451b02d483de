"""Format page 3.3, F03-F06: what was read of a log that was cut, emptied or replaced is recorded, each turn once."""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import sqlite3
from collections.abc import Callable, Sequence
from pathlib import Path

import anyio
import pytest

from burnd.records import Turn
from tests.capture.claude_folder import SESSION, has_turn, until, watching
from tests.capture.kill_loop import finish, start, wait_until_ready
from tests.capture.rig import Rig
from tests.capture.trees import comparable
from tests.conftest import Opened
from tests.folded import Folded
from tests.harness.claude_code.transcript import Transcript, call, text
from tests.make import seeds
from tests.server import wire


def in_place(path: Path, lines: Sequence[bytes]) -> None:
    """As a client cuts a line out, or a person empties a file: the same file with other bytes."""
    with path.open("r+b") as file:
        file.truncate(0)
        file.write(joined(lines))


def replaced(path: Path, lines: Sequence[bytes]) -> None:
    """As an editor saves: another file at the same path."""
    new = path.with_suffix(".new")
    new.write_bytes(joined(lines))
    os.replace(new, path)


def unlinked(path: Path, lines: Sequence[bytes]) -> None:
    """Renames the log away while the client continues: the path is missing for a while."""
    path.unlink()
    path.write_bytes(joined(lines))


def joined(lines: Sequence[bytes]) -> bytes:
    return b"".join(line + b"\n" for line in lines)


WAYS = [in_place, replaced, unlinked]
Way = Callable[[Path, Sequence[bytes]], None]


class CutLog:
    """A log of one session below a rig, and what it said so far."""

    def __init__(self, folder: Path) -> None:
        self.rig = Rig(folder / "home", folder / "projects")
        self.path = folder / "projects" / "-home-dev-app" / f"{SESSION}.jsonl"
        self.path.parent.mkdir(parents=True)
        self.log = Transcript(session=SESSION)

    async def read(self, way: Way = in_place, **how: int) -> None:
        if not self.path.exists():
            self.path.write_bytes(joined(self.log.lines))
        else:
            way(self.path, self.log.lines)
        await self.rig.read(self.path, **how)

    def recorded(self) -> list[str]:
        """Every turn's line in the ledger, revisions included."""
        return [e.entry.message_id for e in self.rig.pipeline.journal.read() if isinstance(e.entry, Turn)]

    def indexes(self) -> dict[str, int]:
        turns = Folded(self.rig.pipeline.journal.read()).turns.values()
        return {turn.message_id: turn.turn_index for turn in turns}

    async def open_turns(self) -> list[str]:
        return [message for (message,) in await self.rig.pipeline.index.rows("SELECT message_id FROM turns WHERE open")]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("restarted", [False, True])
async def test_an_open_turn_outlives_its_line(tmp_path: Path, way: Way, *, restarted: bool) -> None:
    """A turn that was not settled when its line left the log is in the ledger once, and its number is its own."""
    cut = CutLog(tmp_path)
    await cut.rig.open()
    cut.log.prompt("hello")
    cut.log.says("m0", text("hi"))
    kept = list(cut.log.lines)
    cut.log.prompt("this one dies")
    cut.log.calls("dead", call("c1", "Bash", command="make"), output=1, done=False, stop=None)
    await cut.read()
    assert await cut.open_turns() == ["dead"]
    cut.log.lines = kept
    await cut.read(way)
    assert cut.recorded() == ["m0", "dead"]
    cut.log.prompt("go on")
    cut.log.says("m2", text("later"))
    await cut.read(way)
    if restarted:
        await cut.rig.restart()
    cut.log.says("m3", text("last"))
    await cut.read()
    await cut.rig.flush()
    assert cut.recorded() == ["m0", "dead", "m2", "m3"]
    assert cut.indexes() == {"m0": 0, "dead": 1, "m2": 2, "m3": 3}
    assert await cut.open_turns() == []
    await cut.rig.close()


async def test_a_log_cut_while_the_daemon_was_down(tmp_path: Path) -> None:
    """The same where the daemon was down meanwhile, the log has many pieces, and the index was lost afterwards."""
    cut = CutLog(tmp_path)
    await cut.rig.open()
    for n in range(6):
        cut.log.says(f"m{n}", text("words " * 40))
    kept = [*cut.log.lines[:2], *cut.log.lines[3:]]
    cut.log.says("dead", text("half"), output=1, done=False, stop=None)
    await cut.read()
    await cut.rig.close()
    cut.log.lines = kept
    for n in (6, 7):
        cut.log.says(f"m{n}", text("more"))
    await cut.rig.open()
    await cut.read(max_bytes=600)
    await cut.rig.flush()
    expected = {**{f"m{n}": n for n in range(6)}, "dead": 6, "m6": 7, "m7": 8}
    assert cut.indexes() == expected
    await cut.rig.close()
    shutil.rmtree(cut.rig.home.index)
    await cut.rig.open()
    await cut.read()
    await cut.rig.flush()
    assert cut.indexes() == expected
    assert cut.recorded() == list(expected)
    await cut.rig.close()


@seeds(2, 20)
async def test_settled_before_or_after_the_cut_is_the_same(tmp_path: Path, seed: int) -> None:
    """I1, I2: a log that grows and is cut, emptied and replaced at random, read by one who settles at once, by one who
    never does and is restarted, and once more without an index: the same ledger, content and index."""
    eager, lazy = CutLog(tmp_path / "eager"), CutLog(tmp_path / "lazy")
    lazy.log = eager.log
    for one in (eager, lazy):
        await one.rig.open()
    rng = random.Random(seed)
    said = 0
    for _ in range(14):
        said += _happens(eager.log, rng, said)
        way = rng.choice(WAYS)
        await eager.read(way)
        await eager.rig.flush()
        await lazy.read(way, max_bytes=rng.choice([700, 4 << 20]))
        if rng.random() < 0.3:
            await lazy.rig.restart()
    await lazy.rig.flush()
    assert sorted(lazy.indexes()) == sorted(f"m{n}" for n in range(said))
    assert sorted(lazy.indexes().values()) == list(range(said))
    assert await lazy.open_turns() == []
    expected = comparable(await eager.rig.outcome())
    assert comparable(await lazy.rig.outcome()) == expected
    await eager.rig.close()
    await lazy.rig.close()
    shutil.rmtree(lazy.rig.home.index)
    await lazy.rig.open()
    await lazy.read()
    await lazy.rig.flush()
    assert comparable(await lazy.rig.outcome()) == expected
    await lazy.rig.close()


def _happens(log: Transcript, rng: random.Random, said: int) -> int:
    """Applies an event to a log; returns the number of new messages after it."""
    what = rng.choice(["says", "says", "calls", "cut", "cut", "truncated"])
    if what == "truncated":
        del log.lines[rng.randrange(len(log.lines) + 1) :]
    elif what == "cut" and log.lines:
        del log.lines[max(0, len(log.lines) - rng.choice([1, 1, 2, 5]))]
    if what == "calls":
        log.calls(f"m{said}", call(f"c{said}", "Bash", command="make"), output=said + 1)
        if rng.random() < 0.5:
            log.result(f"c{said}", "done")
    elif what == "says" or rng.random() < 0.5:
        log.prompt("go on")
        log.says(f"m{said}", text("words " * rng.randrange(1, 60)), output=said + 1)
    else:
        return 0
    return 1


@pytest.mark.parametrize("way", [*WAYS, None])
async def test_a_source_settles_what_its_log_lost(opened: Opened, tmp_path: Path, way: Way | None) -> None:
    """F03, F06, F08: the running source records a turn whose line is lost while it is open, also when the log is
    deleted."""
    async with watching(opened, tmp_path / "projects") as watched:
        log = Transcript(session=SESSION)
        log.prompt("hello")
        kept = list(log.lines)
        log.says("dead", text("half"), output=1, done=False, stop=None)
        watched.append(log)
        await until(lambda: has_turn(watched, "dead", open=1))
        if way is None:
            watched.path().unlink()
            await anyio.sleep(0.3)
        else:
            log.says("m2", text("after"), output=5)
            way(watched.path(), [*kept, *log.lines])
            await until(lambda: has_turn(watched, "m2", output=5))
        await watched.source.flush()
        assert "dead" in watched.ledger()
        assert not any(turn["open"] for turn in (await watched.turns()).values())


async def test_a_file_that_cannot_be_read_any_more_keeps_its_open_turn(opened: Opened, tmp_path: Path) -> None:
    """F16: a log that became a link, which is not followed, does not take its open turn with it."""
    async with watching(opened, tmp_path / "projects") as watched:
        log = Transcript(session=SESSION)
        log.prompt("hello")
        log.says("m1", text("hi"), output=7)
        watched.append(log)
        await until(lambda: has_turn(watched, "m1", open=1))
        watched.source.logs.files.close()
        watched.path().unlink()
        watched.path().symlink_to(tmp_path / "elsewhere.jsonl")
        watched.source._queue.add(str(watched.path()))
        await watched.source.flush()
        assert "m1" in watched.ledger()


async def test_a_line_cut_during_a_rebuild(opened: Opened, tmp_path: Path) -> None:
    """I3: what was open before a rebuild, and is not in the log when that is read again, is recorded all the same."""
    async with watching(opened, tmp_path / "projects") as watched:
        log = Transcript(session=SESSION)
        log.prompt("hello")
        kept = list(log.lines)
        log.says("dead", text("half"), output=1, done=False, stop=None)
        watched.append(log)
        await until(lambda: has_turn(watched, "dead", open=1))
        await watched.pipeline.rebuild_index()
        in_place(watched.path(), kept)
        watched.source._wake_live.set()
        await until(lambda: watched.source._generation == watched.pipeline.generation)
        await watched.source.flush()
        assert list(watched.ledger()) == ["dead"]
        assert await has_turn(watched, "dead", open=0)


async def test_a_daemon_that_is_killed_while_its_log_is_cut(tmp_path: Path) -> None:
    """I1, F04, F40: kill -9 with a turn open, its line cut out, kill -9 again: in the ledger once, under its number."""
    home, path = tmp_path / "home", tmp_path / "claude" / "projects" / "-p" / f"{SESSION}.jsonl"
    path.parent.mkdir(parents=True)
    log = Transcript(session=SESSION)
    log.says("m0", text("hi"))
    kept = list(log.lines)
    log.says("dead", text("half"), output=1, done=False, stop=None)
    path.write_bytes(joined(log.lines))
    log.lines = kept
    for after in ("m1", "m2"):
        daemon = start(home, path.parents[1])
        wait_until_ready(daemon)
        wire.until(lambda: _open_turns(home) == {"m1": "dead", "m2": "m1"}[after])  # noqa: B023
        daemon.kill()
        daemon.wait()
        daemon.stderr.close()  # type: ignore[union-attr]
        log.says(after, text("more"))
        in_place(path, log.lines)
    await finish(home, path.parents[1], Rig)
    lines = [json.loads(line) for line in (home / "ledger.jsonl").read_text().splitlines()]
    turns = [line["record"] for line in lines if line["kind"] == "turn"]
    assert [(turn["messageId"], turn["turnIndex"]) for turn in turns] == [("m0", 0), ("dead", 1), ("m1", 2), ("m2", 3)]


def _open_turns(home: Path) -> str:
    with contextlib.closing(sqlite3.connect(f"file:{home}/index/burn.db?mode=ro", uri=True)) as db:
        return ",".join(message for (message,) in db.execute("SELECT message_id FROM turns WHERE open"))
