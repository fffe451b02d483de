"""F78: the note of the crash guard of logs."""

from __future__ import annotations

import os
from operator import itemgetter
from pathlib import Path

import pytest

from burnd.recording import crash_guard
from burnd.recording.crash_guard import CRASHES, CrashGuard
from burnd.records.times import DAY_MS

LINES = [(0, b"one"), (4, b"two"), (8, b"three")]
NOW_MS = 1_780_000_000_000


@pytest.fixture
def note(tmp_path: Path) -> Path:
    return tmp_path / "reading.claude-code"


def read(guard: CrashGuard, path: str = "/a") -> tuple[list[int], list[int]]:
    """The offsets of the lines that are read and of those that are skipped."""
    skipped: list[int] = []
    lines = [offset for offset, _ in guard.each(path, LINES, itemgetter(0), lambda line: skipped.append(line[0]))]
    return lines, skipped


def die_over(guard: CrashGuard, path: str) -> None:
    """Leaves the note as a process does that ends while it reads a log."""
    reading = guard.each(path, LINES, itemgetter(0), lambda _: None)
    next(reading)
    guard.close()


def test_what_a_process_died_over_is_a_suspect_until_it_was_read(note: Path) -> None:
    """F78: a death proves nothing: it never skips a line."""
    for _ in range(10):
        die_over(CrashGuard(note), "/a")
    guard = CrashGuard(note)
    assert guard.is_suspect("/a")
    assert not guard.is_suspect("/b")
    assert read(guard) == ([0, 4, 8], [])
    guard.close()
    assert CrashGuard(note).is_suspect("/a")
    guard = CrashGuard(note)
    guard.clear("/a")
    assert not CrashGuard(note).is_suspect("/a")


def test_a_line_is_skipped_after_three_crashes_of_the_child(note: Path) -> None:
    """F78: and no other, in every later life too."""
    guard = CrashGuard(note)
    for count in range(1, CRASHES + 1):
        assert guard.skipped("/a") == frozenset()
        assert guard.crashed("/a", 4, NOW_MS).count == count
    assert read(guard) == ([0, 8], [4])
    assert read(guard, "/b") == ([0, 4, 8], [])
    assert read(CrashGuard(note)) == ([0, 8], [4])


def test_crashes_over_several_lines_do_not_add_up(note: Path) -> None:
    guard = CrashGuard(note)
    for offset, _ in LINES * (CRASHES - 1):
        guard.crashed("/a", offset, NOW_MS)
    assert read(guard) == ([0, 4, 8], [])
    guard.clear("/a")
    guard.crashed("/a", 4, NOW_MS)
    assert read(guard) == ([0, 4, 8], [])


@pytest.mark.parametrize("later_ms", [DAY_MS, 400 * DAY_MS, -DAY_MS])
def test_a_skipped_line_is_tried_again_after_a_day(note: Path, later_ms: int) -> None:
    """Also when the clock was set back meanwhile."""
    guard = CrashGuard(note)
    for _ in range(CRASHES):
        guard.crashed("/a", 4, NOW_MS)
    guard.clear("/a")
    assert guard.due(NOW_MS + DAY_MS - 1) == []
    assert not guard.is_suspect("/a")
    assert guard.due(NOW_MS + later_ms) == ["/a"]
    assert guard.due(NOW_MS + later_ms) == []
    assert CrashGuard(note).is_suspect("/a")
    assert read(CrashGuard(note)) == ([0, 4, 8], [])


def test_a_skipped_line_is_tried_again_by_another_version(note: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    guard = CrashGuard(note)
    for _ in range(CRASHES):
        guard.crashed("/a", 4, NOW_MS)
    assert CrashGuard(note).due(NOW_MS) == []
    monkeypatch.setattr(crash_guard, "__version__", "99.0")
    assert CrashGuard(note).due(NOW_MS) == ["/a"]


def test_an_exception_is_no_death(note: Path) -> None:
    guard = CrashGuard(note)
    reading = guard.each("/a", LINES, itemgetter(0), lambda _: None)
    next(reading)
    with pytest.raises(ZeroDivisionError):
        reading.throw(ZeroDivisionError)  # type: ignore[attr-defined]
    assert not CrashGuard(note).is_suspect("/a")


@pytest.mark.parametrize("data", [b"", b"\x00" * 100, b"\xff" * 100, b"\x00\x00\x00\x05abcdefgh"])
def test_a_note_that_makes_no_sense_is_none(note: Path, data: bytes) -> None:
    note.write_bytes(data)
    assert read(CrashGuard(note)) == ([0, 4, 8], [])
    assert note.stat().st_mode & 0o777 == 0o600


def test_what_is_no_file_is_done_without(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to("/dev/null")
    for name in ("pipe", "folder", "link", "missing/folder"):
        assert read(CrashGuard(tmp_path / name)) == ([0, 4, 8], [])
