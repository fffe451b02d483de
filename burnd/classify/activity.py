"""Activity rules: from tool calls and a prompt's word classes to a label and a retry count."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Final, NamedTuple

from burnd.classify.shell import family
from burnd.classify.tools import delegates, kind
from burnd.contract.reports import ACTIVITIES

LABELS: Final = ACTIVITIES

_EDIT_WORDS: Final = ("debugging", "refactoring", "feature")
_TOOL_WORDS: Final = ("debugging", "review", "refactoring", "feature")
_TALK_WORDS: Final = (*_TOOL_WORDS, "brainstorming", "planning")
_MANY_RETRIES: Final = 2
_DOCUMENT_ENDINGS: Final = (".md", ".mdx", ".rst", ".adoc", ".txt")


class Call(NamedTuple):
    """`command` may be the whole shell command or, from the ledger, its verb."""

    name: str
    command: str | None = None
    path: str | None = None
    failed: bool = False
    paths: tuple[str, ...] = ()


class Walk(NamedTuple):
    state: int = 0
    retries: int = 0


_NO_EDIT, _EDITED, _EDITED_THEN_RAN = range(3)


def label(calls: Sequence[Call], words: Collection[str], *, reasoned: bool) -> str:
    if any(delegates(call.name) for call in calls):
        return "delegation"
    kinds = [kind(call.name) for call in calls]
    if "plan_exit" in kinds:
        return "planning"
    if "edit" in kinds:
        if any(call.failed for call in calls) or retries(calls) >= _MANY_RETRIES:
            return "debugging"
        # an unknown file counts as one that is not a document
        edits = (call.paths or (call.path or "",) for call in calls if kind(call.name) == "edit")
        if all(is_document(path) for paths in edits for path in paths):
            return "docs"
        return _first_word(_EDIT_WORDS, words) or "coding"
    if calls:
        commands = (call.command for call in calls if call.command and kind(call.name) == "shell")
        by_command = next((name for command in commands if (name := family(command))), None)
        return by_command or _first_word(_TOOL_WORDS, words) or "exploration"
    return _first_word(_TALK_WORDS, words) or ("reasoning" if reasoned else "conversation")


def _first_word(order: Sequence[str], words: Collection[str]) -> str | None:
    return next((word for word in order if word in words), None)


def has_edits(calls: Iterable[Call]) -> bool:
    return any(kind(call.name) == "edit" for call in calls)


def retries(calls: Iterable[Call]) -> int:
    """Edits after an earlier edit with a shell call in between: edit, run, edit is one retry."""
    return step(Walk(), calls).retries


def step(walk: Walk, calls: Iterable[Call]) -> Walk:
    """Continues the count over the next calls."""
    state, count = walk
    for call in calls:
        what = kind(call.name)
        if what == "edit":
            count += state == _EDITED_THEN_RAN
            state = _EDITED
        elif what == "shell" and state == _EDITED:
            state = _EDITED_THEN_RAN
    return Walk(state, count)


def is_document(path: str) -> bool:
    *folders, name = path.split("/")
    if "docs" in folders or name.lower().endswith(_DOCUMENT_ENDINGS):
        return True
    return name.startswith(("README", "CHANGELOG")) or name.lower().split(".")[0] in ("readme", "changelog")
