"""`status` lists unused lines with place and reason, also after a restart, and never their text."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from burnd.logfiles import follower, tail
from burnd.recording.source import UnusedLine
from tests.capture.claude_folder import SESSION, Watched, until, watching
from tests.conftest import Opened
from tests.harness.claude_code.transcript import Transcript, text

CANARY = b"canary-in-an-unreadable-line"


def _listed(watched: Watched) -> list[UnusedLine]:
    return list(watched.source.status().unused.lines)


def _log_with_garbage(*garbage: bytes) -> list[bytes]:
    log = Transcript(session=SESSION)
    log.prompt("hello")
    for n, junk in enumerate(garbage):
        log.lines.append(junk)
        log.says(f"m{n}", text(f"answer {n}"), output=n + 1)
    return log.lines


def _begins(lines: list[bytes], wanted: bytes) -> int:
    return sum(len(line) + 1 for line in lines[: lines.index(wanted)])


@pytest.mark.parametrize("child_from", [1, follower.CHILD_FROM_BYTES])
async def test_positions_of_unused_lines_survive_a_restart(
    opened: Opened, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, child_from: int
) -> None:
    """P1, F11: of what is no JSON and what is no object, status has path, offset, size and reason; not a byte of it."""
    monkeypatch.setattr(follower, "CHILD_FROM_BYTES", child_from)
    junk, other = b'{"type":"user", ' + CANARY, b'["' + CANARY + b'"]'
    lines = _log_with_garbage(junk, b"", other)
    path = tmp_path / "projects" / "-home-dev-app" / f"{SESSION}.jsonl"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"".join(line + b"\n" for line in lines))
    expected = [
        UnusedLine(str(path), _begins(lines, junk), len(junk) + 1, "rejected not-json"),
        UnusedLine(str(path), _begins(lines, other), len(other) + 1, "rejected not-an-object"),
    ]
    for _ in range(2):
        async with watching(opened, tmp_path / "projects") as watched:
            await watched.source.flush()
            assert _listed(watched) == expected
            assert CANARY not in msgspec.json.encode(watched.source.status())
    async with watching(opened, tmp_path / "projects") as watched:
        path.write_bytes(b"".join(line + b"\n" for line in lines if line not in (junk, other)))
        await watched.source.flush()
        assert _listed(watched) == []  # it was written again, without them


async def test_many_unused_lines_are_counted_and_the_first_are_shown(opened: Opened, tmp_path: Path) -> None:
    """P8: the memory per log is bounded."""
    async with watching(opened, tmp_path / "projects") as watched:
        junk = b"x\n" * 5000
        watched.path().write_bytes(junk)
        watched.path("other").write_bytes(b"[1]\n")
        await watched.source.flush()
        unused = watched.source.status().unused
        assert unused.count == 5001
        assert len(unused.lines) == tail.PLACES_KEPT + 1
        assert {line.path for line in unused.lines[:2]} == {str(watched.path()), str(watched.path("other"))}
        watched.path().unlink()
        await until(lambda: [line.path for line in _listed(watched)] == [str(watched.path("other"))])
    async with watching(opened, tmp_path / "projects") as watched:
        await watched.source.flush()
        assert watched.source.status().unused.count == 1  # none of a deleted log


async def test_an_unfinished_line_is_listed_until_complete(opened: Opened, tmp_path: Path) -> None:
    """F10: half a last line is listed after ten quiet minutes, and no more when the rest of it has come."""
    lines = _log_with_garbage(b"")
    whole = b"".join(line + b"\n" for line in lines)
    cut, begin = len(whole) - 9, len(whole) - len(lines[-1]) - 1
    async with watching(opened, tmp_path / "projects") as watched:
        watched.path().write_bytes(whole[:cut])
        await watched.source.flush()
        assert _listed(watched) == []
        watched.ahead += tail.TAIL_QUIET_S + 1
        watched.source._wake_live.set()
        half = UnusedLine(str(watched.path()), begin, cut - begin, "unfinished")
        await until(lambda: _listed(watched) == [half])
    async with watching(opened, tmp_path / "projects") as watched:
        await watched.source.flush()
        assert _listed(watched) == [half]
        with watched.path().open("ab") as file:
            file.write(whole[cut:])
        await watched.source.flush()
        assert _listed(watched) == []


async def test_a_line_too_long_is_listed_after_a_restart(
    opened: Opened, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """F09, D9: its size and its offset are in status for as long as its log is there."""
    read = tail.read_open
    monkeypatch.setattr(tail, "read_open", lambda *args, **named: read(*args, **named, max_line=2000))
    long = b'{"type":"user","message":"' + b"long " * 1000 + b'"}'
    lines = _log_with_garbage(long)
    for _ in range(2):
        async with watching(opened, tmp_path / "projects") as watched:
            watched.path().touch()
            if not watched.path().stat().st_size:
                watched.path().write_bytes(b"".join(line + b"\n" for line in lines))
            await watched.source.flush()
            place = UnusedLine(str(watched.path()), _begins(lines, long), len(long) + 1, tail.TOO_LONG)
            assert _listed(watched) == [place]
            assert "m0" in watched.ledger()
