"""Which project a folder belongs to: its git remote in canonical form, so that clones and worktrees add up.

Of a repository that has no remote, worktrees and the folders below it belong to its own folder.
"""

from __future__ import annotations

import configparser
import os
import stat
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path

from msgspec.structs import replace

from burnd.recording.looking import Look
from burnd.records import Session
from burnd.records.remotes import canonical_remote

_MOST_REMEMBERED = 10_000
_LARGEST_FILE = 1 << 20
_PATIENCE_S, _LESS_PATIENCE_S = 2.0, 0.5
_FEW_STUCK, _MOST_STUCK = 3, 20


class ProjectKeys:
    """Looks folders up once. Only `.git` is ever read, and only its config.

    The folder's name comes out of a log and may be anything, a dead network mount or a pipe for a config: it is
    looked at in a thread that nobody waits for longer than a moment, and only regular files are opened.
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
    if not os.path.isabs(folder):
        return None
    try:
        found = _checkout_of(Path(folder))
        if found is None:
            return None
        place, git_dir = found
        common = _common_dir(git_dir)
        remote = _origin(common / "config")
        key = remote or (_folder_of(common) if common != git_dir else _around(folder, place))
        return key if key is None else key.encode().decode()  # a link may lead to a folder whose name is no text
    except (OSError, ValueError):
        return None


def _checkout_of(folder: Path) -> tuple[Path, Path] | None:
    """The checkout around a folder, and where git keeps what it knows of it.

    In a worktree and in a submodule `.git` is a file that names that.
    """
    for place in (folder, *folder.parents):
        git = place / ".git"
        if git.is_dir():
            return place, git
        if git.is_file():
            return place, place / _text_of(git).strip().removeprefix("gitdir:").strip()
    return None


def _around(folder: str, place: Path) -> str | None:
    """A checkout around a folder. Who keeps their whole home in git has more than one project there."""
    whole = os.path.realpath(place)
    return None if whole in (folder, os.path.realpath(os.path.expanduser("~"))) else whole


def _common_dir(git_dir: Path) -> Path:
    """What all worktrees of a repository share."""
    if git_dir.name == ".git" or git_dir.parent.name != "worktrees":
        return git_dir
    named = git_dir / "commondir"
    return git_dir / _text_of(named).strip() if named.is_file() else git_dir.parent.parent


def _folder_of(common: Path) -> str:
    """A repository's own folder: the one around its `.git`, or itself where it is bare."""
    place = Path(os.path.realpath(common))
    return str(place.parent if place.name == ".git" else place)


def _origin(config: Path) -> str | None:
    parser = configparser.RawConfigParser(strict=False, allow_no_value=True, inline_comment_prefixes=("#", ";"))
    try:
        parser.read_string(_text_of(config))
    except (OSError, ValueError, configparser.Error):
        return None
    remotes = {s: parser.get(s, "url", fallback=None) for s in parser.sections() if s.startswith("remote ")}
    chosen = remotes.get('remote "origin"') or next((url for url in remotes.values() if url), None)
    return canonical_remote(chosen.strip('"')) if chosen else None


def _text_of(path: Path) -> str:
    """A regular file's text. Opened so that a pipe cannot hang us, and refused when it is none or too large."""
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        facts = os.fstat(fd)
        if not stat.S_ISREG(facts.st_mode) or facts.st_size > _LARGEST_FILE:
            raise ValueError("not a file that git would write")
        return os.pread(fd, facts.st_size, 0).decode("utf-8", "replace")
    finally:
        os.close(fd)
