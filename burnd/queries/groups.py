"""Sorts causes into the few groups that people think in: file reads, shell output, answers, the system prompt."""

from __future__ import annotations

from typing import Final, Literal

from burnd.classify.shell_programs import word_set
from burnd.classify.tools import Kind
from burnd.classify.tools import kind as tool_kind

GroupKey = Literal[
    "prefix", "files", "shell", "edits", "answers", "prompts", "web", "mcp", "agents", "compaction", "history", "rest"
]
SUBAGENTS: Final = "agents"

_BY_CAUSE: Final[dict[str, GroupKey]] = {
    "prefix": "prefix",
    "answer": "answers",
    "thinking": "answers",
    "prompt": "prompts",
    "attachment": "prompts",
    "summary": "compaction",
    "inherited": "history",
}
_BY_TOOL: Final[dict[Kind, GroupKey]] = {
    "read": "files",
    "search": "files",
    "shell": "shell",
    "edit": "edits",
    "web": "web",
    "mcp": "mcp",
    "delegate": "agents",
}
# Programs that a shell call runs only to look at files.
_READING: Final = word_set(
    "cat head tail less more nl bat grep egrep fgrep rg ag ack find fd ls tree wc sed awk cut sort uniq stat file"
)


def group_of(kind: str, tool: str | None, target: str | None) -> GroupKey:
    """The group of a cause by its kind and, if it is a call, by its tool and what it was about."""
    if kind != "call":
        return _BY_CAUSE.get(kind, "rest")
    if tool is None:
        return "rest"
    group = _BY_TOOL.get(tool_kind(tool), "rest")
    return group_of_command(target) if group == "shell" else group


def group_of_command(target: str | None) -> GroupKey:
    """The group of a shell call: what only looks at files is like a tool that reads them."""
    return "files" if program_of(target) in _READING else "shell"


def part_of(kind: str, tool: str | None, target: str | None) -> str:
    """What a cause is called within its group: its tool, the program that a shell ran to read files, or its kind."""
    if kind != "call" or tool is None:
        return kind
    is_program = tool_kind(tool) == "shell" and program_of(target) in _READING
    return program_of(target) if is_program else tool


def program_of(target: str | None) -> str:
    return (target or "").partition(" ")[0]
