"""Maps a folder to its project: the git remote in canonical form, so that clones and worktrees add up.

In a repository without a remote, worktrees and folders below it belong to the repository's folder. In a repository of
another user that git would not trust, each folder is a project of its own.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path

from msgspec.structs import replace

from burnd.recording.git_config import is_trusted, read_pointer, remotes
from burnd.recording.looking import Look
from burnd.records import Session
from burnd.records.folders import is_bounded
from burnd.records.remotes import canonical_remote

_MOST_REMEMBERED = 10_000
_PATIENCE_S, _LESS_PATIENCE_S = 2.0, 0.5
_FEW_STUCK, _MOST_STUCK = 3, 20


class ProjectKeys:
    """Looks up each folder once. Only `.git` is read, and only its config.

    Folder names come from logs and may be anything, such as a dead network mount or one with a pipe for a config: each
    lookup runs in a thread of its own with a timeout, and opens only regular files that git itself would trust.
    """

    def __init__(self) -> None:
        self._known: dict[str, str | None] = {}
        self._stuck: list[Look[str | None]] = []

    async def learn(self, folders: Iterable[str]) -> None:
        """Makes sure that `key` can tell of these folders."""
        for folder in folders:
            if folder in self._known:
                continue
            if len(self._known) >= _MOST_REMEMBERED:
                self._known.clear()
            self._known[folder] = None
            self._known[folder] = await self._look(folder)

    async def _look(self, folder: str) -> str | None:
        """Where some looks do not come back there is less patience with others, and none where many do not."""
        self._stuck = [look for look in self._stuck if not look.has_ended]
        if len(self._stuck) >= _MOST_STUCK:
            return None
        look = Look(partial(key_of, folder))
        try:
            return await look.within(_PATIENCE_S if len(self._stuck) < _FEW_STUCK else _LESS_PATIENCE_S)
        except TimeoutError:
            return None
        finally:
            if not look.has_ended:
                self._stuck.append(look)

    async def named(self, sessions: Sequence[Session]) -> list[Session]:
        """The records with the keys of their projects."""
        await self.learn(session.project for session in sessions if session.project is not None)
        return [replace(session, project_key=self.key(session.project or "")) for session in sessions]

    def key(self, folder: str) -> str | None:
        """`host/path` of the repository's origin, or a folder, or None where there is neither to be found."""
        return self._known.get(folder)


def key_of(folder: str) -> str | None:
    """The canonical remote of the repository around a folder; without one, the repository's folder if it is another.

    Never raises.
    """
    if not os.path.isabs(folder) or not is_bounded(folder):
        return None
    try:
        place = _checkout_of(Path(folder))
        if place is None or not is_trusted(place, place / ".git"):
            return None
        git_dir = _git_dir(place / ".git")
        common = _common_dir(git_dir)
        if not is_trusted(place, common, common / "config"):
            return None
        remote = _origin(common / "config")
        key = remote or (_folder_of(common) if common != git_dir else _around(folder, place))
        return key if key is None else key.encode().decode()  # a link may lead to a folder whose name is no text
    except (OSError, ValueError):
        return None


def _checkout_of(folder: Path) -> Path | None:
    """The nearest folder with a `.git`, from this one upwards."""
    for place in itertools.chain([folder], folder.parents):
        git = place / ".git"
        if git.is_dir() or git.is_file():
            return place
    return None


def _git_dir(git: Path) -> Path:
    """The folder with git's data. In a worktree and in a submodule `.git` is a file that names it."""
    return git if git.is_dir() else git.parent / read_pointer(git).removeprefix("gitdir:").strip()


def _around(folder: str, place: Path) -> str | None:
    """A checkout around a folder. Who keeps their whole home in git has more than one project there."""
    whole = os.path.realpath(place)
    return None if whole in (folder, os.path.realpath(os.path.expanduser("~"))) else whole


def _common_dir(git_dir: Path) -> Path:
    """What all worktrees of a repository share."""
    if git_dir.name == ".git" or git_dir.parent.name != "worktrees":
        return git_dir
    named = git_dir / "commondir"
    return git_dir / read_pointer(named) if named.is_file() else git_dir.parent.parent


def _folder_of(common: Path) -> str:
    """A repository's own folder: the one around its `.git`, or itself where it is bare."""
    place = Path(os.path.realpath(common))
    return str(place.parent if place.name == ".git" else place)


def _origin(config: Path) -> str | None:
    """The canonical address of the remote `origin`, or of the first other remote."""
    try:
        found = remotes(config)
    except (OSError, ValueError):
        return None
    chosen = found.get("origin") or next(iter(found.values()), None)
    return canonical_remote(chosen) if chosen else None
