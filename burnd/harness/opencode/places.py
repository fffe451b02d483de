"""Where opencode keeps its database, found the way it finds it itself, and those of its other channels beside it."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Mapping

_PREFIX, _SUFFIX = "opencode", ".db"
_IN_MEMORY = ":memory:"
TOOL_OUTPUTS = "tool-output"


def data_folder(environ: Mapping[str, str], user_home: str) -> str:
    base = environ.get("XDG_DATA_HOME") or os.path.join(user_home, ".local", "share")
    return os.path.join(user_home, base, "opencode")


def named_databases(environ: Mapping[str, str], user_home: str, extra: Iterable[str] = ()) -> list[str]:
    """Databases that somebody named: OPENCODE_DB, and the settings. `:memory:` is none."""
    folder = data_folder(environ, user_home)
    chosen = environ.get("OPENCODE_DB", "")
    named = [] if chosen in ("", _IN_MEMORY) else [os.path.join(folder, chosen)]
    return named + [os.path.join(user_home, _expanded(path, user_home)) for path in extra]


def announced_places(roots: Iterable[str]) -> tuple[list[str], list[str]]:
    """Folders and databases that a client may mean which says where opencode was told to keep its things.

    That is a database, opencode's own folder, or what XDG_DATA_HOME was for it.
    """
    named = list(roots)
    return [folder for root in named for folder in (root, os.path.join(root, "opencode"))], named


def present_databases(folders: Iterable[str], named: Iterable[str]) -> list[str]:
    """The databases that exist now, each once however many names it has, in the order in which they count.

    A build of another channel keeps its own file beside the usual one.
    """
    found: dict[tuple[int, int], str] = {}
    for path in (*named, *(path for folder in folders for path in _channels(folder))):
        try:
            facts = os.stat(path)
        except (OSError, ValueError):
            continue
        if stat.S_ISREG(facts.st_mode):
            found.setdefault((facts.st_dev, facts.st_ino), path)
    return list(found.values())


def _channels(folder: str) -> list[str]:
    try:
        names = os.listdir(folder)
    except (OSError, ValueError):
        return []
    usual = _PREFIX + _SUFFIX
    channels = [name for name in names if name.startswith(_PREFIX) and name.endswith(_SUFFIX)]
    return [os.path.join(folder, name) for name in sorted(channels, key=lambda name: (name != usual, name))]


def _expanded(path: str, user_home: str) -> str:
    return user_home + path[1:] if path == "~" or path.startswith("~/") else path
