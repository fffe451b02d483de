"""Locations of Claude Code's transcripts, and their retention time."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from burnd.harness.claude_code.product import PRODUCT, live_sessions


def test_the_usual_places() -> None:
    """Without any setting: the client's own folder, and the one that older tools used."""
    assert PRODUCT.logs({}, "/home/u") == ["/home/u/.claude/projects", "/home/u/.config/claude/projects"]


def test_a_configured_folder_comes_first() -> None:
    """CLAUDE_CONFIG_DIR and configured roots are added; the usual places stay."""
    roots = PRODUCT.logs({"CLAUDE_CONFIG_DIR": "/data/c"}, "/home/u", ["~/work", "rel"])
    assert roots == [
        "/data/c/projects",
        "/home/u/.claude/projects",
        "/home/u/.config/claude/projects",
        "/home/u/work/projects",
        "/home/u/rel/projects",
    ]


def test_a_comma_may_belong_to_the_name_or_separate_two() -> None:
    """To the client `a,b` is one folder; people who write a list are understood as well."""
    roots = PRODUCT.logs({"CLAUDE_CONFIG_DIR": "/a, ~/b"}, "/home/u")
    assert roots[:3] == ["/a, ~/b/projects", "/a/projects", "/home/u/b/projects"]


def test_empty_settings_are_no_roots() -> None:
    assert PRODUCT.logs({"CLAUDE_CONFIG_DIR": ""}, "/h", [" "]) == PRODUCT.logs({}, "/h")


@pytest.mark.parametrize(
    ("settings", "level", "says"),
    [
        (None, "ok", "after 30 days; burnd keeps what it recorded"),
        ({"cleanupPeriodDays": 365}, "ok", "after 365 days"),
        ({"cleanupPeriodDays": 1}, "warn", "after a day"),
        ({"cleanupPeriodDays": 0}, "ok", "deletes no logs"),
        ("not json", "ok", "after 30 days"),
        ([], "ok", "after 30 days"),
    ],
)
def test_the_clean_up_of_logs(tmp_path: Path, settings: Any, level: str, says: str) -> None:
    """The user is informed that the harness deletes logs and burnd does not."""
    assert list(PRODUCT.checks([str(tmp_path)])) == []
    (tmp_path / "projects").mkdir()
    if settings is not None:
        (tmp_path / "settings.json").write_text(settings if isinstance(settings, str) else json.dumps(settings))
    (check,) = PRODUCT.checks([str(tmp_path)])
    assert (check.name, check.level) == ("log clean-up", level)
    assert says in check.says


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
