"""Tool names of every harness map to the kinds that the rules look at."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from burnd.classify import tools

NAMES: dict[tools.Kind, list[str]] = {
    "edit": [
        *("Edit", "Write", "MultiEdit", "NotebookEdit"),
        *("edit", "write", "multiedit", "patch"),
        *("apply_patch", "write_file"),
    ],
    "shell": ["Bash", "bash", "exec_command", "shell"],
    "delegate": ["Task", "Agent", "task", "spawn_agent"],
    "plan_exit": ["ExitPlanMode", "exit_plan_mode", "update_plan"],
    "read": ["Read", "NotebookRead", "read", "read_file"],
    "search": ["Grep", "Glob", "LS", "grep", "glob", "list"],
    "web": ["WebFetch", "WebSearch", "webfetch", "websearch"],
    "todo": ["TodoWrite", "TodoRead", "todowrite"],
    "skill": ["Skill", "skill"],
    "mcp": ["mcp__github__get_issue", "mcp__my_server__a__b"],
    "other": ["", "AskUserQuestion", "BashOutput", "KillShell", "EnterPlanMode", "EDIT", "BASH", "mcp__", "x"],
}


@pytest.mark.parametrize(("kind", "name"), [(kind, name) for kind in NAMES for name in NAMES[kind]])
def test_each_name_has_its_kind(kind: tools.Kind, name: str) -> None:
    assert tools.kind(name) == kind


def test_every_kind_is_listed_once() -> None:
    assert sorted(tools.KINDS) == sorted(NAMES)


@pytest.mark.parametrize(
    ("name", "server"),
    [
        ("mcp__github__get_issue", "github"),
        ("mcp__my-server__tool", "my-server"),
        ("mcp__a_b__c__d", "a_b"),
        ("mcp__plugin_x_y__tool", "plugin_x_y"),
        ("mcp__github", None),
        ("mcp__github__", None),
        ("mcp____tool", None),
        ("MCP__github__tool", None),
        ("Bash", None),
        ("", None),
    ],
)
def test_the_server_is_between_the_first_two_double_underscores(name: str, server: str | None) -> None:
    assert tools.mcp_server(name) == server


@given(st.text())
def test_any_name_has_a_known_kind(name: str) -> None:
    assert tools.kind(name) in tools.KINDS
