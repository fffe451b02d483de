"""What a cause is, in the few words that people call it by; never what was said in it."""

from __future__ import annotations

from typing import Final

from burnd.attribution import Cause
from burnd.attribution.rail import CauseOrigin
from burnd.classify.shell_runners import UNKNOWN_GOAL
from burnd.classify.tools import kind

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
