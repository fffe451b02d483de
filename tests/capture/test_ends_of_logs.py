"""Ends of logs: deleted with unread lines, or with a last line without newline."""

from __future__ import annotations

import functools
import time
from collections.abc import Awaitable, Callable
from itertools import count, islice
from pathlib import Path

import pytest

from burnd.logfiles import follower, log_reader, tail
from burnd.logfiles.watcher import Times
from burnd.recording.pipeline import Pipeline
from burnd.records import Turn
from tests.capture import claude_folder
from tests.capture.claude_folder import SESSION, Watched, has_turn, until, watching
from tests.conftest import Opened
from tests.harness.claude_code.transcript import Transcript, text


@pytest.mark.parametrize("was_scanned", [True, False])
async def test_a_scan_alone_tells_of_a_deleted_log(
    opened: Opened, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, was_scanned: bool
) -> None:
    """F08, F21: what was written just before a log was deleted is read even without an event for either."""
    monkeypatch.setattr(claude_folder, "QUICK", Times(roots=0.05, scan=1000.0, poll=1000.0))
    (tmp_path / "projects" / "-home-dev-app").mkdir(parents=True)
    async with watching(opened, tmp_path / "projects") as watched:
        await until(lambda: watched.source.status().detail == "watching 2 folders")
        finder = watched.source._finder
        log = Transcript(session=SESSION)
        log.prompt("hello")
        log.says("m1", text("hi"), output=7)
        watched.append(log)
        await until(lambda: has_turn(watched, "m1", output=7))
        if was_scanned:
            await watched.source.flush()
        assert finder._scanner.has_seen(str(watched.path())) == was_scanned
        finder.watcher.watch.stop()  # no event comes from now on
        log.says("m2", text("well"), output=8)
        watched.append(log)
        watched.path().unlink()
        await watched.source.flush()
        assert {m: t.usage.output for m, t in watched.ledger().items()} == {"m1": 7, "m2": 8}
        assert not len(watched.source.logs.files)


def _by_the_clock(opened: Opened, ahead_ms: int = 0) -> Callable[[], Awaitable[Pipeline]]:
    """A pipeline that has the time that files have."""
    return functools.partial(opened, now=lambda: int(time.time() * 1000) + ahead_ms)


@pytest.mark.parametrize(("hours", "is_there", "is_known"), [(25, False, False), (25, True, True), (23, False, True)])
async def test_the_cursor_of_a_deleted_log_goes_after_a_day(
    opened: Opened, tmp_path: Path, *, hours: int, is_there: bool, is_known: bool
) -> None:
    """F08: not before, and never that of a log which is still there; its turns stay in any case."""
    async with watching(_by_the_clock(opened), tmp_path / "projects") as watched:
        log = Transcript(session=SESSION)
        log.prompt("hello")
        log.says("m1", text("hi"), output=7)
        watched.append(log)
        await watched.source.flush()
        assert watched.ledger()["m1"].usage.output == 7
    if not is_there:
        watched.path().unlink()
    async with watching(_by_the_clock(opened, hours * 3_600_000), tmp_path / "projects") as watched:
        await watched.source.flush()
        rows = await watched.pipeline.index.rows("SELECT path FROM files")
        assert [path for (path,) in rows] == [str(watched.path())] * is_known
        assert await has_turn(watched, "m1", output=7)


def _without_newline(path: Path, message_id: str, *, cut: int = 0) -> bytes:
    """Writes a log whose last line, with the answer, has no newline; `cut` leaves out so many bytes of it."""
    log = Transcript(session=path.stem, prefix=path.stem)
    log.prompt("hello")
    log.says(message_id, text("hi"), output=5)
    *lines, last = log.lines
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"".join(line + b"\n" for line in lines) + last[: len(last) - cut])
    return last


def _grow(path: Path, last: bytes) -> None:
    """Continues a log that was read up to here."""
    with path.open("ab") as file:
        file.write(last)


async def _is_taken_in_time(watched: Watched, message_id: str) -> None:
    assert not await has_turn(watched, message_id, output=5)
    watched.ahead += tail.TAIL_QUIET_S + 1
    watched.source._wake_live.set()
    await until(lambda: has_turn(watched, message_id, output=5))


async def test_a_last_line_is_taken_after_any_number_of_other_logs(opened: Opened, tmp_path: Path) -> None:
    """F10: its log need not be among those that were read lately."""
    folder = tmp_path / "projects" / "-home-dev-app"
    last = _without_newline(folder / "tailed.jsonl", "m-tail", cut=9)
    async with watching(_by_the_clock(opened), tmp_path / "projects") as watched:
        await watched.source.flush()
        _grow(folder / "tailed.jsonl", last[-9:])
        await watched.source.flush()
        numbers = count()

        async def is_dropped() -> bool:
            """Reads 80 more logs; the change of the tailed log may be noticed among them, and read it once more."""
            for n in islice(numbers, 80):
                log = Transcript(session=f"o{n}", prefix=f"o{n}")
                log.prompt("x")
                log.says(f"mo{n}", text("y"), output=1)
                (folder / f"o{n}.jsonl").write_bytes(b"".join(line + b"\n" for line in log.lines))
            await watched.source.flush()
            return str(folder / "tailed.jsonl") not in watched.source.logs

        await until(is_dropped)
        await _is_taken_in_time(watched, "m-tail")


@pytest.mark.parametrize("child_from", [1, follower.CHILD_FROM_BYTES])
async def test_a_last_line_outlives_a_restart(
    opened: Opened, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, child_from: int
) -> None:
    """F10: the next daemon records it once, also when its newline arrives later. Half a line is counted once, and not
    read again before it grows."""
    monkeypatch.setattr(follower, "CHILD_FROM_BYTES", child_from)
    folder = tmp_path / "projects" / "-home-dev-app"
    tail = _without_newline(folder / "tailed.jsonl", "m-tail", cut=9)
    last = _without_newline(folder / "half.jsonl", "m-half", cut=9)
    async with watching(_by_the_clock(opened), tmp_path / "projects") as watched:
        await watched.source.flush()
        _grow(folder / "tailed.jsonl", tail[-9:])
        await watched.source.flush()
    async with watching(_by_the_clock(opened), tmp_path / "projects") as watched:
        await watched.source.flush()
        await _is_taken_in_time(watched, "m-tail")
        await until(lambda: watched.source.counts["unfinished lines"] == 1)
    async with watching(_by_the_clock(opened), tmp_path / "projects") as watched:
        await watched.source.flush()
        assert watched.source._positions.tails == {}
        _grow(folder / "tailed.jsonl", b"\n")
        _grow(folder / "half.jsonl", last[-9:])
        await watched.source.flush()
        await _is_taken_in_time(watched, "m-half")
        await watched.source.flush()
        turns = [logged.entry for logged in watched.pipeline.journal.read() if isinstance(logged.entry, Turn)]
        assert sorted(turn.message_id for turn in turns) == ["m-half", "m-tail"]


async def test_a_log_that_was_found_without_its_last_newline_is_read_whole(opened: Opened, tmp_path: Path) -> None:
    """F10: it was written all at once, so nothing is to be waited for but the rest of a line that is not whole.

    If it grows after all, its newline makes no second one of the line.
    """
    folder = tmp_path / "projects" / "-home-dev-app"
    _without_newline(folder / "whole.jsonl", "m-whole")
    last = _without_newline(folder / "half.jsonl", "m-half", cut=9)
    async with watching(_by_the_clock(opened), tmp_path / "projects") as watched:
        await watched.source.flush()
        assert set(watched.ledger()) == {"m-whole"}
        assert watched.source.counts["unfinished lines"] == 0
        _grow(folder / "half.jsonl", last[-9:] + b"\n")
        log = Transcript(session="whole", prefix="more")
        log.says("m-more", text("on it goes"), output=6)
        _grow(folder / "whole.jsonl", b"\n" + log.lines[0] + b"\n")
        await watched.source.flush()
        turns = [logged.entry for logged in watched.pipeline.journal.read() if isinstance(logged.entry, Turn)]
        assert sorted((turn.message_id, turn.usage.output) for turn in turns) == [
            ("m-half", 5),
            ("m-more", 6),
            ("m-whole", 5),
        ]


async def test_the_last_lines_of_old_logs_are_taken_at_once(
    opened: Opened, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """F10: a log without writes for ten minutes is not waited for; a flush leaves none of them."""
    monkeypatch.setattr(follower, "TAILS_AT_ONCE", 2)
    for n in range(5):
        _without_newline(tmp_path / "projects" / "-home-dev-app" / f"tailed{n}.jsonl", f"m-tail{n}")
    async with watching(_by_the_clock(opened, ahead_ms=log_reader.OLD_MS + 1000), tmp_path / "projects") as watched:
        await watched.source.flush()
        assert {name: turn.usage.output for name, turn in watched.ledger().items()} == {
            f"m-tail{n}": 5 for n in range(5)
        }
