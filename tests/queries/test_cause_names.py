"""Tests of the names and groups of causes."""

from __future__ import annotations

import pytest

from burnd.queries.bills import about, group_of, part_of, within


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


@pytest.mark.parametrize(
    ("path", "project", "shown"),
    [
        ("/p/src/a.py", "/p", "src/a.py"),
        ("/p/src/a.py", "/p/", "src/a.py"),
        ("/p", "/p", "."),
        ("/p/", "/p", "."),
        ("/pages/a.py", "/p", "/pages/a.py"),
        ("/p/a.py", None, "/p/a.py"),
        ("npm test", "/p", "npm test"),
        ("", "/", ""),
    ],
)
def test_a_place_in_the_project_is_named_from_there(path: str, project: str | None, shown: str) -> None:
    """Files by their place in the project, the project itself as a dot, all else as it is."""
    assert within(path, project) == shown


def test_a_command_is_named_by_what_was_run() -> None:
    """`other` stands for goals without a name of their own here, so `make other` is not shown."""
    assert about("Bash", "make other", "/p") == "make"
    assert about("Bash", "npm test", "/p") == "npm test"
    assert about("Read", "/p/the other", "/p") == "the other"
    assert about("TodoWrite", None, "/p") is None
