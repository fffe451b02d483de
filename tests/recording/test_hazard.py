"""A line that kills the process is passed over at last; no other ever is."""

from __future__ import annotations

import os
from operator import itemgetter
from pathlib import Path
from typing import Any

import pytest

from burnd.recording.hazard import LAST_CRASH, Hazard, PassedOver

LINES = [(0, b"one"), (4, b"two"), (8, b"three")]


def read(
    note: Path, path: str = "/a", kills: bytes = b"", lines: list[tuple[int, bytes]] = LINES, *, by_crash: bool = True
) -> list[int] | None:
    """One life: reads the lines and gives where the fed ones stand; None when it died."""
    hazard = born(note)
    fed: list[int] = []
    passed_over: list[tuple[int, bytes]] = []
    for offset, line in hazard.each(path, lines, itemgetter(0), passed_over.append):
        if line == kills:
            _die(hazard, by_crash=by_crash)
            return None
        fed.append(offset)
    hazard.clear(path)
    hazard.close()
    assert {offset for offset, _ in lines} == {*fed, *(offset for offset, _ in passed_over)}
    return fed


def born(note: Path) -> Hazard:
    """The guard of a process that has just been started."""
    hazard = Hazard(note)
    note.with_name(LAST_CRASH).unlink(missing_ok=True)
    hazard.trace = note.with_name(LAST_CRASH)  # type: ignore[attr-defined]
    return hazard


def _die(hazard: Hazard, *, by_crash: bool = True) -> None:
    if by_crash:
        hazard.trace.touch()  # type: ignore[attr-defined]
    hazard.close()
    hazard._write = lambda note: None  # type: ignore[method-assign]


def test_the_fourth_start_passes_what_killed_three(tmp_path: Path) -> None:
    """F78: first the piece is known, then the line, then it is passed over, for good."""
    note = tmp_path / "reading"
    assert [read(note, kills=b"two") for _ in range(3)] == [None, None, None]
    assert read(note, kills=b"two") == [0, 8]
    assert read(note, kills=b"two") == [0, 8]
    assert read(note, "/b", kills=b"none") == [0, 4, 8]


def test_a_death_or_two_costs_nothing(tmp_path: Path) -> None:
    """A crash while a file is read: the next life reads all of it, and forgets."""
    note = tmp_path / "reading"
    for _ in range(5):
        assert read(note, kills=b"two") is None
        assert read(note) == [0, 4, 8]
    for line in (b"one", b"two", b"three", b"one", b"two", b"three"):
        assert read(note, kills=line) is None
    assert read(note) == [0, 4, 8]


def test_kill_nine_never_counts(tmp_path: Path) -> None:
    """However often it comes at the same place, after a crash there as well."""
    note = tmp_path / "reading"
    assert read(note, kills=b"two") is None
    assert [read(note, kills=b"two", by_crash=False) for _ in range(10)] == [None] * 10
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
        hazard = born(note)
        reading = hazard.each("/a", LINES, itemgetter(0), _must_not_be)
        next(reading)
        reading.close()
        hazard.close()
    assert read(note) == [0, 4, 8]


def test_nothing_to_read_is_no_hazard(tmp_path: Path) -> None:
    assert read(tmp_path / "reading", lines=[]) == []


def _must_not_be(item: Any) -> None:
    raise AssertionError(f"{item} was passed over")


def test_a_piece_that_passes_does_not_clear_the_next(tmp_path: Path) -> None:
    """F78: the deadly line may stand in a later piece than the one that is read first."""
    note = tmp_path / "reading"

    def life() -> bool:
        hazard = born(note)
        for piece in (LINES, [(12, b"deadly")]):
            for offset, _ in hazard.each("/a", piece, itemgetter(0), lambda _: None):
                if offset == 12:
                    _die(hazard)
                    return False
        hazard.close()
        return True

    assert [life() for _ in range(5)] == [False, False, False, True, True]


def test_what_goes_on_in_the_background_is_narrowed_down(tmp_path: Path) -> None:
    """F78: three were in hand, then each was alone, then each of its items: the fourth start passes the one."""
    note = tmp_path / "search"

    def life() -> list[tuple[str, int]] | None:
        hazard = born(note)
        hazard.hold(["a", "b", "c"])
        done = []
        for place in ("a", "b", "c"):
            if not hazard.is_suspect(place):
                if place == "b":
                    _die(hazard)  # in the background, after all were given to it
                    return None
                continue
            for item in hazard.each(place, [1, 2, 3], int, lambda _: None):
                if (place, item) == ("b", 2):
                    _die(hazard)
                    return None
                done.append((place, item))
            hazard.clear(place)
        hazard.close()
        return done

    assert [life() for _ in range(3)] == [None, None, None]
    left = born(note)
    assert left.condemned == [("b", 2)]
    left.close()


def test_of_very_many_groups_are_tried_first(tmp_path: Path) -> None:
    """F78: a thousand in hand at the first death cost one more: the fifth start passes the item."""
    note = tmp_path / "search"
    names = [f"s{n}" for n in range(1000)]

    def life() -> int | None:
        hazard = born(note)
        in_hand: list[str] = []
        commits = 0
        for name in names:
            if not hazard.allows([*in_hand, name]):
                if "s500" in in_hand:
                    _die(hazard)
                    return None
                for done in in_hand:
                    hazard.clear(done)
                commits, in_hand = commits + 1, []
            in_hand.append(name)
            hazard.hold(in_hand)
            if name == "s500" and hazard.is_alone(name, 3):
                with hazard.over(name, 1):
                    _die(hazard)
                return None
        if "s500" in in_hand and not hazard.condemned:
            _die(hazard)
            return None
        hazard.close()
        return commits

    assert [life() for _ in range(4)] == [None] * 4
    assert life() == 0
    left = born(note)
    assert left.condemned == [("s500", 1)]
    left.close()


def test_only_a_place_of_which_something_is_passed_over_is_told_apart(tmp_path: Path) -> None:
    """F78: all others are worked on as ever."""
    note = tmp_path / "reading"
    for _ in range(3):
        assert read(note, kills=b"two") is None
    hazard = born(note)
    assert hazard.concerns("/a")
    assert not hazard.concerns("/b")
    hazard.close()


def test_one_item_alone_is_passed_over_in_words(tmp_path: Path) -> None:
    """F78: work on one thing raises for it at the fourth start; what is around it is noted again after it."""
    note = tmp_path / "causes"
    for _ in range(3):
        hazard = born(note)
        for item in (1, 2):
            with hazard.over("rail", item):
                if item == 2:
                    _die(hazard)
    hazard = born(note)
    with hazard.over("rail", 1), pytest.raises(PassedOver), hazard.over("rail", 2):
        pass
    with hazard.over("other", 2):
        pass
    hazard.close()


def test_what_is_no_file_is_done_without(tmp_path: Path) -> None:
    """Whatever stands in the note's place, nobody is kept from working by it."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to("/dev/null")
    for name in ("pipe", "folder", "link", "missing/folder"):
        assert read(tmp_path / name) == [0, 4, 8]


def test_a_note_that_was_closed_writes_to_nobody_elses_file(tmp_path: Path) -> None:
    """Its descriptor's number is given to whoever opens a file next."""
    hazard = Hazard(tmp_path / "reading")
    number = hazard._fd
    assert number is not None
    with open(tmp_path / "another", "wb") as other:
        hazard.close()
        os.dup2(other.fileno(), number)
        hazard.hold(["/a"])
        hazard.close()
        os.close(number)
    assert (tmp_path / "another").read_bytes() == b""
