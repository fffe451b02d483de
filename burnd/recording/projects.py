"""Maps a folder to its project: the canonical git remote, so that clones and worktrees add up.

Without a remote, worktrees and subfolders map to the repository's folder. A repository that git would not trust is not
read: each of its folders is a project.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import re
import stat
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Final, Generic, NamedTuple, TypeVar

import anyio
from msgspec.structs import replace

from burnd.records import Session
from burnd.records.codec import Entry
from burnd.records.names import canonical_remote, is_bounded

T = TypeVar("T")
E = TypeVar("E", bound=Entry)
_CACHE_SIZE: Final = 10_000
_TIMEOUT_S, _SHORT_TIMEOUT_S = 2.0, 0.5
_FEW_STUCK, _MOST_STUCK = 3, 20
_LARGEST_FILE: Final = 1 << 20
_LARGEST_POINTER: Final = 16 * 1024
_LONGEST_VALUE: Final = 4096
_HEADER: Final = re.compile(r'\[\s*([\w.-]+)(?:\s+"((?:[^"\\]|\\.)*+)")?\s*\]')
_ESCAPED: Final = re.compile(r"\\(.)")
_ESCAPES: Final = {"n": "\n", "t": "\t", "b": "\b"}


class DetachedCall(Generic[T]):
    """Runs a function in a daemon thread, for disks that may never answer; a worker thread of anyio would block the
    exit.
    """

    def __init__(self, function: Callable[[], T]) -> None:
        self.is_done = False
        self._function = function
        self._results: list[T] = []
        self._error: Exception | None = None
        self._event = anyio.Event()
        self._loop = asyncio.get_running_loop()
        threading.Thread(target=self._run, name="detached", daemon=True).start()

    async def result(self, within: float) -> T:
        """Waits for the result. Raises TimeoutError; the thread keeps running."""
        with anyio.fail_after(within):
            await self._event.wait()
        if self._error is not None:
            raise self._error
        return self._results[0]

    def _run(self) -> None:
        try:
            self._results.append(self._function())
        except Exception as error:  # noqa: BLE001 - raised again in `result`
            self._error = error
        self.is_done = True
        with contextlib.suppress(RuntimeError):  # the event loop has ended
            self._loop.call_soon_threadsafe(self._event.set)


class ProjectKeys:
    """Looks up each folder once, reading only the config in its `.git`. Blocks for as long as that takes.

    Folder names come from logs and may be anything, such as a dead network mount: each lookup has a thread and a
    timeout, and opens only regular files that git itself would trust.
    """

    def __init__(self) -> None:
        self.keys: dict[str, str | None] = {}
        self._stuck: list[threading.Thread] = []

    def learn(self, folders: Iterable[str]) -> None:
        """Looks up these folders for `keys`."""
        for folder in folders:
            if folder in self.keys:
                continue
            if len(self.keys) >= _CACHE_SIZE:
                self.keys.clear()
            self.keys[folder] = None
            # A shorter timeout while lookups are stuck, and none is begun while many are.
            self._stuck = [lookup for lookup in self._stuck if lookup.is_alive()]
            if len(self._stuck) >= _MOST_STUCK:
                continue
            keys: list[str | None] = []
            find = partial(lambda folder, keys: keys.append(key_of(folder)), folder, keys)
            lookup = threading.Thread(target=find, name="project-lookup", daemon=True)
            lookup.start()
            lookup.join(_TIMEOUT_S if len(self._stuck) < _FEW_STUCK else _SHORT_TIMEOUT_S)
            if lookup.is_alive():
                self._stuck.append(lookup)
            self.keys[folder] = keys[0] if keys else None

    def with_keys(self, entries: Sequence[E]) -> list[E]:
        """Adds the project key to session records with a folder and no key."""
        sessions = [one for one in entries if isinstance(one, Session) and one.project and one.project_key is None]
        self.learn(session.project or "" for session in sessions)
        keyed = {id(session): replace(session, project_key=self.key(session.project or "")) for session in sessions}
        return [keyed.get(id(one), one) for one in entries]

    def key(self, folder: str) -> str | None:
        """`host/path` of the repository's origin, or a folder; None if there is neither or it was not looked up."""
        return self.keys.get(folder)


def key_of(folder: str) -> str | None:
    """The canonical remote of the repository around a folder, or else the repository's folder if it is another. Never
    raises.
    """
    if not os.path.isabs(folder) or not is_bounded(folder):
        return None
    try:
        checkout = checkout_of(Path(folder))
        if checkout is None or not is_trusted(checkout, checkout / ".git"):
            return None
        git_dir = checkout / ".git"
        if not git_dir.is_dir():  # in a worktree or submodule a file names the folder with git's data
            git_dir = checkout / _read_pointer(git_dir).removeprefix("gitdir:").strip()
        common = _common_dir(git_dir)
        if not is_trusted(checkout, common, common / "config"):
            return None
        key = _origin(common / "config")
        if key is None and common != git_dir:  # the repository's own folder, or itself if it is bare
            place = Path(os.path.realpath(common))
            key = str(place.parent if place.name == ".git" else place)
        elif key is None:
            whole = os.path.realpath(checkout)  # the user's home may have several projects
            key = None if whole in (folder, os.path.realpath(os.path.expanduser("~"))) else whole
        return key if key is None else key.encode().decode()  # a link may lead to a folder whose name is not UTF-8
    except (OSError, ValueError):
        return None


def checkout_of(folder: Path) -> Path | None:
    """The nearest folder with a `.git`, from this one upwards."""
    for place in itertools.chain([folder], folder.parents):
        git = place / ".git"
        if git.is_dir() or git.is_file():
            return place
    return None


def _common_dir(git_dir: Path) -> Path:
    """The folder that all worktrees of a repository share."""
    if git_dir.name == ".git" or git_dir.parent.name != "worktrees":
        return git_dir
    pointer = git_dir / "commondir"
    return git_dir / _read_pointer(pointer) if pointer.is_file() else git_dir.parent.parent


def _origin(config: Path) -> str | None:
    """The canonical address of the remote `origin`, or of the first other remote."""
    remotes: dict[str, str] = {}
    try:
        for setting in git_settings(_read_text(config)):
            if (setting.section, setting.name) == ("remote", "url") and setting.value:
                remotes.setdefault(setting.subsection, setting.value)
    except (OSError, ValueError):
        return None
    url = remotes.get("origin") or next(iter(remotes.values()), None)
    return canonical_remote(url) if url else None


class GitSetting(NamedTuple):
    """One line of a git configuration; the value of a name without `=` is empty."""

    section: str
    subsection: str
    name: str
    value: str


def git_settings(text: str) -> Iterator[GitSetting]:
    """Every setting in order, in linear time, without overlong values."""
    section = subsection = ""
    lines = iter(text.split("\n"))
    for each in lines:
        line = each.strip()
        if line.startswith("["):
            header = _HEADER.match(line)
            if header is None:
                section = subsection = ""
                continue
            if header[2] is not None:  # [remote "origin"]
                section, subsection = header[1].lower(), _ESCAPED.sub(r"\1", header[2])
            else:  # the older [remote.origin]
                section, _, subsection = header[1].lower().partition(".")
            line = line[header.end() :].lstrip()
        if not line or line[0] in "#;":
            continue
        name, _, value = line.partition("=")
        parts = [value]
        while (len(parts[-1]) - len(parts[-1].rstrip("\\"))) % 2 == 1:  # continued on the next line
            parts[-1] = parts[-1][:-1]
            parts += islice(lines, 1)
        raw = "".join(parts).strip()
        if len(raw) <= _LONGEST_VALUE:
            yield GitSetting(section, subsection, name.strip().lower(), _value(raw))


def _value(raw: str) -> str:
    chars: list[str] = []
    quoted = False
    rest = iter(raw)
    for char in rest:
        if char == '"':
            quoted = not quoted
        elif char == "\\":
            escaped = next(rest, "")
            chars.append(_ESCAPES.get(escaped, escaped))
        elif char in "#;" and not quoted:
            break
        else:
            chars.append(char)
    return "".join(chars).strip()


def is_trusted(checkout: Path, *files: Path) -> bool:
    """Whether git would trust these files: all belong to this user or root, or `safe.directory` names the checkout."""
    if all(map(_is_ours, files)):
        return True
    folders = {str(checkout), os.path.realpath(checkout)}
    return any(_is_match(pattern, folder) for pattern in _safe_directories() for folder in folders)


def _is_ours(file: Path) -> bool:
    """Whether a file, and a link to it, belongs to this user or root. True for a missing file."""
    owners = (0, os.geteuid())
    try:
        return os.lstat(file).st_uid in owners and os.stat(file).st_uid in owners
    except FileNotFoundError:
        return True


def _is_match(pattern: str, folder: str) -> bool:
    if pattern == "*":
        return True
    whole = os.path.expanduser(pattern)
    return folder.startswith(whole[:-1]) if whole.endswith("/*") else folder == whole.rstrip("/")


def _safe_directories() -> list[str]:
    """The values of `safe.directory` in system and user configuration; an empty value clears earlier ones."""
    home = os.path.expanduser("~")
    xdg = os.environ.get("XDG_CONFIG_HOME") or f"{home}/.config"
    values: list[str] = []
    for path in ("/etc/gitconfig", f"{xdg}/git/config", f"{home}/.gitconfig"):
        if not os.path.isabs(path):
            continue
        try:
            text = _read_text(Path(path))
        except (OSError, ValueError):
            continue
        values += [one.value for one in git_settings(text) if one[:3] == ("safe", "", "directory")]
    last_reset = max((place for place, value in enumerate(values) if not value), default=-1)
    return values[last_reset + 1 :]


def _read_pointer(path: Path) -> str:
    """The path in a small file such as `.git` of a worktree. Raises OSError or ValueError."""
    return _read_text(path, _LARGEST_POINTER).strip()


def _read_text(path: Path, largest: int = _LARGEST_FILE) -> str:
    """A regular file's text. Raises OSError, or ValueError if it is a pipe, a device or too large."""
    _refuse(os.stat(path), largest)  # opening a pipe or a device can have effects
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        facts = os.fstat(fd)
        _refuse(facts, largest)
        return os.pread(fd, facts.st_size, 0).decode("utf-8", "replace")
    finally:
        os.close(fd)


def _refuse(facts: os.stat_result, largest: int) -> None:
    if not stat.S_ISREG(facts.st_mode) or facts.st_size > largest:
        raise ValueError("not a regular file, or too large")
