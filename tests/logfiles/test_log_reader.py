"""The history of a log: its lines before those that are being read."""

from __future__ import annotations

from pathlib import Path
from unittest.mock import Mock

from burnd.index.recorded_turns import RecordedTurns
from burnd.logfiles.log_reader import Log, LogHistory
from burnd.logfiles.tail import Cursor, read_open
from burnd.recording.crash_guard import Acknowledger

_NO_TURNS = Mock(RecordedTurns)


def history(path: Path, cursor: Cursor | None, *skipped: int) -> LogHistory:
    log = Log(str(path), str(path.parent), None, cursor, None)
    return LogHistory(_NO_TURNS, "any", log, Acknowledger(None, frozenset(skipped)))


def test_earlier_lines_are_those_before_the_cursor(tmp_path: Path) -> None:
    """Without blank lines, and without those that crashed their reader."""
    path = tmp_path / "log.jsonl"
    path.write_bytes(b"one\n\ntwo\nthree\n")
    with path.open("rb") as file:
        cursor = read_open(file.fileno(), None).cursor
    with path.open("ab") as file:
        file.write(b"four\n")
    assert list(history(path, cursor).lines()) == [(0, b"one"), (5, b"two"), (9, b"three")]
    assert list(history(path, cursor, 5).lines()) == [(0, b"one"), (9, b"three")]
    assert history(path, cursor).mentions(b"hree")
    assert not history(path, cursor).mentions(b"four")


def test_nothing_was_read_of_a_new_a_replaced_or_a_deleted_log(tmp_path: Path) -> None:
    path, other = tmp_path / "log.jsonl", tmp_path / "other.jsonl"
    path.write_bytes(b"one\n")
    other.write_bytes(b"one\n")
    with path.open("rb") as file:
        cursor = read_open(file.fileno(), None).cursor
    assert list(history(path, None).lines()) == []
    assert list(history(other, cursor).lines()) == []
    path.unlink()
    assert list(history(path, cursor).lines()) == []
    assert not history(path, cursor).mentions(b"one")


def test_a_name_is_found_across_blocks(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    path.write_bytes(b"x" * ((1 << 20) - 3) + b"needle\n")
    with path.open("rb") as file:
        cursor = read_open(file.fileno(), None).cursor
    assert history(path, cursor).mentions(b"needle")
