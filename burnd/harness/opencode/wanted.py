"""Which of opencode's sessions are to be read, and how much of them: what the settings say."""

from __future__ import annotations

import os
from collections.abc import Sequence
from fnmatch import fnmatchcase

import msgspec

from burnd.harness.opencode.queries import SessionFound
from burnd.settings.config import Settings

_PATTERN = frozenset("*?[")


class Wanted(msgspec.Struct, frozen=True):
    """`include` and `exclude` are folders, which stand for all below them, or patterns of folders."""

    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    archived: bool = True
    reasoning: bool = True
    tool_outputs: bool = False

    def takes(self, found: SessionFound) -> bool:
        """Whether a session is to be read. What is excluded stays out, whatever includes it."""
        if found.archived is not None and not self.archived:
            return False
        folder = found.row.directory or ""
        if any(_covers(named, folder) for named in self.exclude):
            return False
        return not self.include or any(_covers(named, folder) for named in self.include)


def wanted_by(settings: Settings, user_home: str) -> Wanted:
    values = settings.values
    return Wanted(
        include=named_folders(values["opencode.include"], user_home),
        exclude=named_folders(values["opencode.exclude"], user_home),
        archived=values["opencode.archived"],
        reasoning=values["opencode.reasoning"],
        tool_outputs=values["opencode.include_tool_outputs"],
    )


def named_folders(names: Sequence[str], user_home: str) -> tuple[str, ...]:
    """Folders as they stand in the settings, with `~` and what is relative to it written out."""
    expanded = (user_home + name[1:] if name == "~" or name.startswith("~/") else name for name in names)
    return tuple(os.path.normpath(os.path.join(user_home, name)) for name in expanded)


def _covers(named: str, folder: str) -> bool:
    if _PATTERN.isdisjoint(named):
        return folder == named or folder.startswith(named.rstrip("/") + "/")
    return fnmatchcase(folder, named) or fnmatchcase(folder, named.rstrip("/") + "/*")
