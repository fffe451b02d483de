"""The registry of Claude Code's processes is read without trusting what is in its folder."""

from __future__ import annotations

import os
from pathlib import Path

from burnd.harness.claude_code.live_sessions import live_sessions


def test_the_session_of_each_process_is_read(tmp_path: Path) -> None:
    registry = tmp_path / "sessions"
    registry.mkdir()
    (registry / "17.json").write_text('{"sessionId": "s1", "cwd": "/home/dev"}')
    (registry / "18.json").write_text('{"sessionId": "s2", "cwd": 7}')
    assert {pid: (one.id, one.cwd) for pid, one in live_sessions(str(tmp_path)).items()} == {
        17: ("s1", "/home/dev"),
        18: ("s2", ""),
    }


def test_entries_that_cannot_be_read_are_left_out(tmp_path: Path) -> None:
    """A pipe would block, and a link may lead anywhere."""
    assert live_sessions(str(tmp_path)) == {}
    registry = tmp_path / "sessions"
    registry.mkdir()
    (tmp_path / "elsewhere.json").write_text('{"sessionId": "s1"}')
    (registry / "1.json").symlink_to(tmp_path / "elsewhere.json")
    os.mkfifo(registry / "2.json")
    (registry / "3.json").mkdir()
    for n, text in enumerate(("", "{", "[]", "[" * 10_000, '{"sessionId": "\\ud800"}', '{"sessionId": ""}'), start=4):
        (registry / f"{n}.json").write_text(text)
    (registry / "name.json").write_text('{"sessionId": "s1"}')
    (registry / f"{'9' * 40}.json").write_text('{"sessionId": "s1"}')
    assert live_sessions(str(tmp_path)) == {}
