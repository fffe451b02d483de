"""Owns the names that harnesses give their tools: each maps to one kind, which is all the rules look at."""

from __future__ import annotations

from typing import Final, Literal, get_args

Kind = Literal[
    "edit",
    "shell",
    "delegate",
    "plan_exit",
    "read",
    "search",
    "web",
    "todo",
    "skill",
    "mcp",
    "other",
]

KINDS: Final[tuple[Kind, ...]] = get_args(Kind)

_CLAUDE_CODE: Final[dict[Kind, str]] = {
    "edit": "Edit Write MultiEdit NotebookEdit",
    "shell": "Bash",
    "delegate": "Task Agent",
    # Early releases spelled the tool in snake case, and their logs are still read.
    "plan_exit": "ExitPlanMode exit_plan_mode",
    "read": "Read NotebookRead ReadMcpResourceTool",
    "search": "Grep Glob LS LSP ToolSearch ListMcpResourcesTool",
    "web": "WebFetch WebSearch",
    "todo": "TodoWrite TodoRead TaskCreate TaskUpdate TaskList TaskGet",
    "skill": "Skill SlashCommand",
}

_OPENCODE: Final[dict[Kind, str]] = {
    "edit": "edit write multiedit patch",
    "shell": "bash",
    "delegate": "task",
    "plan_exit": "plan_exit",
    "read": "read",
    "search": "grep glob list lsp codesearch",
    "web": "webfetch websearch",
    "todo": "todowrite todoread",
    "skill": "skill",
}

_CODEX: Final[dict[Kind, str]] = {
    "edit": "apply_patch write_file",
    "shell": "exec_command shell shell_command local_shell exec",
    "delegate": "spawn_agent",
    # Codex has no plan to leave; stating the plan is the call that plans.
    "plan_exit": "update_plan",
    "read": "read_file view_image",
    "search": "grep_files list_dir",
    "web": "web_search",
}


def _by_name(*harnesses: dict[Kind, str]) -> dict[str, Kind]:
    return {name: kind for kinds in harnesses for kind, names in kinds.items() for name in names.split()}


_KIND_OF: Final = _by_name(_CLAUDE_CODE, _OPENCODE, _CODEX)
_MCP_PREFIX: Final = "mcp__"
# Codex has tools for agents that run already. They start none, so that nothing stands under their calls.
_MINDING_AGENTS: Final = frozenset({"send_input", "wait_agent", "close_agent", "resume_agent"})
_WRITING_WHOLE: Final = frozenset({"Write", "write", "write_file"})


def kind(name: str) -> Kind:
    """Names count exactly as written: `Edit` and `edit` are two harnesses' tools, `EDIT` is nobody's."""
    known = _KIND_OF.get(name)
    if known is not None:
        return known
    return "mcp" if mcp_server(name) is not None else "other"


def delegates(name: str) -> bool:
    """Whether a tool has to do with work that an agent does: it starts one, or minds one that was started."""
    return kind(name) == "delegate" or name in _MINDING_AGENTS


def writes_whole(name: str) -> bool:
    """Whether a tool is given all that a file is to hold, whatever was in it."""
    return name in _WRITING_WHOLE


def mcp_server(name: str) -> str | None:
    """The server part of `mcp__server__tool`, or None where the name has another shape."""
    if not name.startswith(_MCP_PREFIX):
        return None
    server, separator, tool = name[len(_MCP_PREFIX) :].partition("__")
    return server if server and separator and tool else None
