"""The folders around one: those above it, up to a repository's, and those below it."""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

_MOST_FOLDERS, _DEEPEST = 20_000, 64
_SKIPPED = {"node_modules", "vendor", "target", "dist", "build", "__pycache__", "venv"}


def upwards(folder: str) -> list[str]:
    """The folder and those above it, the highest first."""
    folders = [os.path.abspath(folder)]
    while (above := os.path.dirname(folders[-1])) != folders[-1]:
        folders.append(above)
    return folders[::-1]


def repository(folder: str) -> str | None:
    """The folder of the repository that this one lies in."""
    return next((above for above in reversed(upwards(folder)) if os.path.exists(os.path.join(above, ".git"))), None)


def in_repository(folder: str) -> list[str] | None:
    """The folders from the repository's down to this one; None where there is no repository."""
    root = repository(folder)
    return [above for above in upwards(folder) if len(above) >= len(root)] if root is not None else None


def below(folder: str) -> Iterator[tuple[str, set[str]]]:
    """The folders further down with the names in each. `os.walk` would go down as far as Python's stack does."""
    waiting, seen = [(folder, 0)], 0
    while waiting and seen < _MOST_FOLDERS:
        where, deep = waiting.pop()
        seen += 1
        try:
            with os.scandir(where) as listed:
                entries = sorted(listed, key=lambda entry: entry.name, reverse=True)
        except OSError:
            continue
        if deep:
            yield where, {entry.name for entry in entries}
        if deep < _DEEPEST:
            waiting += [(entry.path, deep + 1) for entry in entries if _is_looked_into(entry)]


def _is_looked_into(entry: os.DirEntry[str]) -> bool:
    return entry.name not in _SKIPPED and not entry.name.startswith(".") and entry.is_dir(follow_symlinks=False)
