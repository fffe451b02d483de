"""Where Claude Code keeps its transcripts on this machine, and which of those places are one and the same."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Mapping

import msgspec

from burnd.records.folders import is_bounded

_TRANSCRIPTS = "projects"


class Root(msgspec.Struct, frozen=True, gc=False):
    """A configured place that exists: how it was named, where it really is, and which folder that is."""

    named: str
    path: str
    identity: tuple[int, int]


def claude_roots(environ: Mapping[str, str], home: str, extra: Iterable[str] = ()) -> list[str]:
    """Every folder that may hold transcripts, in order of preference. Most will not exist, which is normal."""
    configured = environ.get("CLAUDE_CONFIG_DIR", "")
    # To the client the variable is one path, commas included; other tools taught people to write a list.
    listed = configured.split(",") if "," in configured else []
    names = [configured, *listed, "~/.claude", "~/.config/claude", *extra]
    folders = [absolute(name.strip(), home) for name in names if name.strip()]
    return transcripts_below(folders)


def transcripts_below(folders: Iterable[str]) -> list[str]:
    """Where transcripts are in folders that the client was told to keep its things in."""
    return list(dict.fromkeys(os.path.join(folder, _TRANSCRIPTS) for folder in folders))


def present(named: Iterable[str]) -> list[Root]:
    """Those of the roots that exist now; of several names for one folder only the first."""
    roots: dict[tuple[int, int], Root] = {}
    for name in named:
        root = _identify(name)
        if root is not None:
            roots.setdefault(root.identity, root)
    return list(roots.values())


def absolute(name: str, home: str) -> str:
    """A folder as somebody named it in a setting."""
    if name == "~" or name.startswith("~/"):
        name = home + name[1:]
    return os.path.join(home, name)


def _identify(name: str) -> Root | None:
    if not is_bounded(name):
        return None
    try:
        # The link is resolved first, so that a root whose link is turned over in between is met again as changed.
        path = os.path.realpath(name)
        found = os.stat(path)
    except (OSError, ValueError):
        return None
    if not stat.S_ISDIR(found.st_mode):
        return None
    return Root(named=name, path=path, identity=(found.st_dev, found.st_ino))
