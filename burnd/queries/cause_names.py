"""Names causes in a few words and assigns them to groups such as file reads, shell output and answers."""

from __future__ import annotations

from typing import Final, Literal

from burnd.attribution import Cause
from burnd.attribution.rail import CauseOrigin
from burnd.classify.shell_programs import UNKNOWN_GOAL, word_set
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
# Programs that only read files.
_FILE_READERS: Final = word_set(
    "cat head tail less more nl bat grep egrep fgrep rg ag ack find fd ls tree wc sed awk cut sort uniq stat file"
)


def group_of(kind: str, tool: str | None, target: str | None) -> GroupKey:
    """The group of a cause by its kind, and of a call by its tool and target."""
    if kind != "call":
        return _BY_CAUSE.get(kind, "rest")
    if tool is None:
        return "rest"
    group = _BY_TOOL.get(tool_kind(tool), "rest")
    return group_of_command(target) if group == "shell" else group


def group_of_command(target: str | None) -> GroupKey:
    """The group of a shell call; commands that only read files count as file reads."""
    return "files" if program_of(target) in _FILE_READERS else "shell"


def part_of(kind: str, tool: str | None, target: str | None) -> str:
    """The name of a cause within its group: its tool, the program that a shell ran to read files, or its kind."""
    if kind != "call" or tool is None:
        return kind
    is_program = tool_kind(tool) == "shell" and program_of(target) in _FILE_READERS
    return program_of(target) if is_program else tool


def program_of(target: str | None) -> str:
    return (target or "").partition(" ")[0]


_FIXED_LABELS: Final = {
    "prefix": "system prompt, tools and memory files",
    "inherited": "history from before this session",
    "unexplained": "what no block accounts for",
}
_TURN_LABELS: Final = {
    "prompt": "prompt of turn {}",
    "answer": "answer of turn {}",
    "thinking": "thinking of turn {}",
    "reminder": "what the harness added in turn {}",
    "attachment": "files attached in turn {}",
    "summary": "summary of the compaction before turn {}",
}
_LONGEST: Final = 200


def label(cause: Cause | CauseOrigin, project: str | None) -> str:
    """`Read src/app.py`, `Bash npm test`, `prompt of turn 3`; files relative to the project."""
    if cause.kind in _FIXED_LABELS:
        return _FIXED_LABELS[cause.kind]
    if cause.kind != "call":
        return _TURN_LABELS[cause.kind].format(cause.turn_index)
    text = f"{cause.tool or 'a call that the log does not show'} {about(cause.tool, cause.target, project) or ''}"
    return text.strip()[:_LONGEST]


def about(tool: str | None, target: str | None, project: str | None) -> str | None:
    """The target of a call for display: a file relative to the project, a command without a placeholder goal."""
    if target is not None and tool is not None and tool_kind(tool) == "shell":
        return target.removesuffix(f" {UNKNOWN_GOAL}")
    return within(target, project) if target is not None else None


def within(path: str, project: str | None) -> str:
    """The path relative to the project, `.` for the project itself; other paths are unchanged."""
    folder = (project or "").rstrip("/") + "/"
    if not project or not path or not (path + "/").startswith(folder):
        return path
    return path[len(folder) :] or "."
