"""Names causes in a few words, and sorts them into groups like file reads, shell output and answers."""

from __future__ import annotations

from typing import Final, Literal

from burnd.attribution import Cause
from burnd.attribution.rail import CauseOrigin
from burnd.classify.shell_programs import word_set
from burnd.classify.shell_runners import UNKNOWN_GOAL
from burnd.classify.tools import Kind, kind
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


_STANDING: Final = {
    "prefix": "system prompt, tools and memory files",
    "inherited": "history from before this session",
    "unexplained": "what no block accounts for",
}
_IN_A_TURN: Final = {
    "prompt": "prompt of turn {}",
    "answer": "answer of turn {}",
    "thinking": "thinking of turn {}",
    "reminder": "what the harness added in turn {}",
    "attachment": "files attached in turn {}",
    "summary": "summary of the compaction before turn {}",
}
_LONGEST: Final = 200


def label(cause: Cause | CauseOrigin, project: str | None) -> str:
    """`Read src/app.py`, `Bash npm test`, `prompt of turn 3`; files of the project by their place in it."""
    if cause.kind in _STANDING:
        return _STANDING[cause.kind]
    if cause.kind != "call":
        return _IN_A_TURN[cause.kind].format(cause.turn_index)
    named = f"{cause.tool or 'a call that the log does not show'} {about(cause.tool, cause.target, project) or ''}"
    return named.strip()[:_LONGEST]


def about(tool: str | None, target: str | None, project: str | None) -> str | None:
    """What a call was about: a file by its place in the project, a command without the goal that it has no word for."""
    if target is not None and tool is not None and kind(tool) == "shell":
        return target.removesuffix(f" {UNKNOWN_GOAL}")
    return within(target, project) if target is not None else None


def within(path: str, project: str | None) -> str:
    """A file's place in its project, `.` being the project itself; any other one stays as it is."""
    folder = (project or "").rstrip("/") + "/"
    if not project or not path or not (path + "/").startswith(folder):
        return path
    return path[len(folder) :] or "."
