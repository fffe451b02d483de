"""F78: the crash guard's note, and the number of crashes until an item is skipped."""

from __future__ import annotations

import os
from operator import itemgetter
from pathlib import Path

import pytest

from burnd.recording import crash_guard
from burnd.recording.crash_guard import (
    CRASHES,
    CRASHES_OF_WHOLE,
    LAST_CRASH,
    WHOLE,
    CrashGuard,
    InProcessGuard,
    SkippedItem,
)
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
    assert "/a" in guard.suspected
    assert "/b" not in guard.suspected
    assert read(guard) == ([0, 4, 8], [])
    guard.close()
    assert "/a" in CrashGuard(note).suspected
    guard = CrashGuard(note)
    guard.clear("/a")
    assert "/a" not in CrashGuard(note).suspected


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
    assert "/a" not in guard.suspected
    assert guard.due(NOW_MS + later_ms) == ["/a"]
    assert guard.due(NOW_MS + later_ms) == []
    assert "/a" in CrashGuard(note).suspected
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
    assert "/a" not in CrashGuard(note).suspected


@pytest.mark.parametrize("data", [b"", b"\x00" * 100, b"\xff" * 100, b"\x00\x00\x00\x05abcdefgh"])
def test_an_invalid_note_is_ignored(note: Path, data: bytes) -> None:
    note.write_bytes(data)
    assert read(CrashGuard(note)) == ([0, 4, 8], [])
    assert note.stat().st_mode & 0o777 == 0o600


def test_what_is_no_file_is_done_without(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to("/dev/null")
    for name in ("pipe", "folder", "link", "missing/folder"):
        assert read(CrashGuard(tmp_path / name)) == ([0, 4, 8], [])


def start(note: Path, now_ms: int = NOW_MS) -> InProcessGuard:
    """The guard of a process that has just been started."""
    guard = InProcessGuard(note, now_ms)
    note.with_name(LAST_CRASH).unlink(missing_ok=True)
    return guard


def die(guard: InProcessGuard, note: Path, *, by_crash: bool = True) -> None:
    if by_crash:
        note.with_name(LAST_CRASH).touch()
    guard.close()


def count(note: Path, item: str = "", *, by_crash: bool = True, now_ms: int = NOW_MS) -> list[str]:
    """One life, which counts the pieces of a rail and dies over one; returns those it could count."""
    guard = start(note, now_ms)
    counted: list[str] = []
    for piece in ("1", "2", "3"):
        try:
            with guard.item("rail", piece):
                if piece == item:
                    die(guard, note, by_crash=by_crash)
                    return counted
                counted.append(piece)
        except SkippedItem:
            continue
    guard.close()
    return counted


def test_an_item_is_skipped_after_three_crashes_of_the_process(note: Path) -> None:
    """F78: and no other, in every later life too."""
    for _ in range(CRASHES):
        assert count(note, "2") == ["1"]
    for _ in range(2):
        assert count(note, "2") == ["1", "3"]
    guard = start(note)
    assert guard.summary("piece") == "passes over piece 2 of rail, which crashed burnd repeatedly"
    with guard.item("other", "2"):
        pass


def test_kill_nine_never_counts(note: Path) -> None:
    """F78: however often it comes at the same item, after crashes there as well."""
    for _ in range(CRASHES - 1):
        count(note, "2")
    for _ in range(10):
        assert count(note, "2", by_crash=False) == ["1"]
    assert count(note) == ["1", "2", "3"]


def test_an_item_that_passes_is_trusted_again(note: Path) -> None:
    """F78: crashes count in a row."""
    for _ in range(CRASHES):
        for _ in range(CRASHES - 1):
            assert count(note, "2") == ["1"]
        assert count(note) == ["1", "2", "3"]


def test_crashes_at_several_items_do_not_add_up(note: Path) -> None:
    for item in ("1", "2", "3", "1", "2", "3"):
        count(note, item)
    assert count(note) == ["1", "2", "3"]


def test_an_exception_is_no_crash(note: Path) -> None:
    for _ in range(5):
        guard = start(note)
        with pytest.raises(ZeroDivisionError), guard.item("rail", "2"):
            raise ZeroDivisionError
        die(guard, note)
    assert count(note) == ["1", "2", "3"]


def test_one_more_crash_skips_an_item_again_that_is_tried_again(note: Path) -> None:
    """F78: after a day, and at once after an upgrade."""
    for _ in range(CRASHES):
        count(note, "2")
    guard = start(note)
    assert guard.due(NOW_MS) == []
    assert guard.due(NOW_MS + DAY_MS) == ["rail"]
    assert guard.due(NOW_MS + DAY_MS) == []
    guard.close()
    assert count(note, "2") == ["1"]
    assert count(note, "2", now_ms=NOW_MS + DAY_MS) == ["1", "3"]


def index(note: Path, sessions: dict[str, list[str]], deadly: tuple[str, str]) -> list[str]:
    """One life, which indexes sessions in the background and dies over an item of one; returns those it did."""
    guard = start(note)
    in_progress: list[str] = []
    indexed: list[str] = []

    def commit() -> bool:
        if deadly[0] in in_progress and (deadly[1] == WHOLE or deadly[1] not in guard.skipped(deadly[0])):
            die(guard, note)
            return False
        for name in in_progress:
            guard.clear(name)
        indexed.extend(in_progress)
        in_progress.clear()
        return True

    for name, items in sessions.items():
        if WHOLE in guard.skipped(name):
            continue
        if name in guard.suspects() and not commit():
            return indexed
        in_progress.append(name)
        guard.set_in_progress(in_progress[:])
        for item in set(items) - guard.skipped(name) if guard.takes_items(name) else ():
            with guard.item(name, item):
                if (name, item) == deadly:
                    die(guard, note)
                    return indexed
        if name in guard.suspects() and not commit():
            return indexed
    if commit():
        guard.close()
    return indexed


def test_the_item_is_found_among_many_sessions(note: Path) -> None:
    """F78: many in progress, then each alone, then its items: the fourth life skips the one."""
    sessions = {f"s{n}": ["a", "b", "c"] for n in range(10)}
    assert index(note, sessions, ("s5", "b")) == []
    assert index(note, sessions, ("s5", "b")) == ["s0", "s1", "s2", "s3", "s4"]
    assert len(index(note, sessions, ("s5", "b"))) == 5
    assert sorted(index(note, sessions, ("s5", "b"))) == sorted(sessions)
    guard = start(note)
    assert [(one.name, one.item) for one in guard.all_skipped()] == [("s5", "b")]
    assert guard.suspects() == frozenset()


def test_a_session_that_crashes_outside_of_its_items_is_skipped_after_ten(note: Path) -> None:
    """F78: only then as a whole, since the crash may have another cause."""
    sessions = {f"s{n}": ["a"] for n in range(3)}
    for _ in range(CRASHES_OF_WHOLE):
        assert "s1" not in index(note, sessions, ("s1", WHOLE))
    assert index(note, sessions, ("s1", WHOLE)) == ["s0", "s2"]
    assert start(note).summary("message") == "passes over s1, which crashed burnd repeatedly"


def test_a_note_that_was_closed_writes_to_no_other_file(tmp_path: Path) -> None:
    """Its descriptor's number is given to the next file that is opened."""
    guard = InProcessGuard(tmp_path / "searching", NOW_MS)
    number = guard._fd
    assert number is not None
    with open(tmp_path / "another", "wb") as other:
        guard.close()
        os.dup2(other.fileno(), number)
        guard.set_in_progress(["/a"])
        guard.close()
        os.close(number)
    assert (tmp_path / "another").read_bytes() == b""
