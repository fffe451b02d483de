"""A line that kills the process is passed over at last; no other ever is."""

from __future__ import annotations

from pathlib import Path

from burnd.sources.hazard import Hazard

LINES = [(0, b"one"), (4, b"two"), (8, b"three")]


def read(note: Path, path: str = "/a", kills: bytes = b"", lines: list[tuple[int, bytes]] = LINES) -> list[int] | None:
    """One life: reads the lines and gives where the fed ones stand; None when it died."""
    hazard = Hazard(note)
    fed, passed_over = [], list[tuple[int, int]]()
    reading = hazard.lines(path, lines, passed_over)
    for offset, line in reading:
        if line == kills:
            hazard._clear = lambda: None  # type: ignore[method-assign] # nothing runs after a death
            reading.close()
            hazard.close()
            return None
        fed.append(offset)
    hazard.close()
    assert {offset for offset, _ in lines} == {*fed, *(offset for offset, _ in passed_over)}
    return fed


def test_the_fourth_start_passes_what_killed_three(tmp_path: Path) -> None:
    """F78: first the piece is known, then the line, then it is passed over, for good."""
    note = tmp_path / "reading"
    assert [read(note, kills=b"two") for _ in range(3)] == [None, None, None]
    assert read(note, kills=b"two") == [0, 8]
    assert read(note, kills=b"two") == [0, 8]
    assert read(note, "/b", kills=b"none") == [0, 4, 8]


def test_a_death_or_two_costs_nothing(tmp_path: Path) -> None:
    """kill -9 while a file is read: the next life reads all of it, and forgets."""
    note = tmp_path / "reading"
    for _ in range(5):
        assert read(note, kills=b"two") is None
        assert read(note) == [0, 4, 8]
    for line in (b"one", b"two", b"three", b"one", b"two", b"three"):
        assert read(note, kills=line) is None
    assert read(note) == [0, 4, 8]


def test_deaths_over_other_files_do_not_count(tmp_path: Path) -> None:
    """Each line has to kill by itself."""
    note = tmp_path / "reading"
    for _ in range(4):
        assert read(note, "/a", kills=b"two") is None
        assert read(note, "/b", kills=b"two") is None


def test_a_note_that_makes_no_sense_is_none(tmp_path: Path) -> None:
    """Whatever a crash left there."""
    note = tmp_path / "reading"
    for data in (b"", b"\x00" * 100, b"\xff" * 100, b"\x00\x00\x00\x05abcdefgh"):
        note.write_bytes(data)
        assert read(note) == [0, 4, 8]
    assert note.stat().st_mode & 0o777 == 0o600


def test_an_exception_is_no_death(tmp_path: Path) -> None:
    """A reader that fails is heard of elsewhere, and its file is tried again as a whole."""
    note = tmp_path / "reading"
    for _ in range(5):
        hazard = Hazard(note)
        reading = hazard.lines("/a", LINES, [])
        next(reading)
        reading.close()
        hazard.close()
    assert read(note) == [0, 4, 8]


def test_nothing_to_read_is_no_hazard(tmp_path: Path) -> None:
    assert read(tmp_path / "reading", lines=[]) == []
