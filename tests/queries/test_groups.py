"""Causes are sorted into the groups that people think in."""

from __future__ import annotations

import pytest

from burnd.queries.groups import group_of, part_of


@pytest.mark.parametrize(
    ("kind", "tool", "target", "group", "part"),
    [
        ("prefix", None, None, "prefix", "prefix"),
        ("answer", None, None, "answers", "answer"),
        ("thinking", None, None, "answers", "thinking"),
        ("call", "Read", "src/app.py", "files", "Read"),
        ("call", "Grep", None, "files", "Grep"),
        ("call", "Bash", "cat", "files", "cat"),
        ("call", "Bash", "npm test", "shell", "Bash"),
        ("call", "Bash", None, "shell", "Bash"),
        ("call", "Edit", "src/app.py", "edits", "Edit"),
        ("call", "mcp__github__issues", None, "mcp", "mcp__github__issues"),
        ("call", "Task", "Explore", "agents", "Task"),
        ("call", "Frobnicate", None, "rest", "Frobnicate"),
        ("call", None, None, "rest", "call"),
        ("unexplained", None, None, "rest", "unexplained"),
    ],
)
def test_a_cause_has_a_group(kind: str, tool: str | None, target: str | None, group: str, part: str) -> None:
    assert (group_of(kind, tool, target), part_of(kind, tool, target)) == (group, part)
