"""Root folders of logs: those that exist, each once however many names it has."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable

import msgspec

from burnd.records.folders import is_bounded


class Root(msgspec.Struct, frozen=True, gc=False):
    """A configured place that exists: how it was named, where it really is, and which folder that is."""

    named: str
    path: str
    identity: tuple[int, int]


def present(named: Iterable[str]) -> list[Root]:
    """Those of the roots that exist now; of several names for one folder only the first."""
    roots: dict[tuple[int, int], Root] = {}
    for name in named:
        root = _identify(name)
        if root is not None:
            roots.setdefault(root.identity, root)
    return list(roots.values())


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
