"""Finds and opens log files: roots, what is skipped below them, and opening nothing but our own regular files.

A scan looks at names, sizes and owners, never goes through a link and opens no file.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import stat
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from collections.abc import Set as AbstractSet
from typing import Literal, NamedTuple

import msgspec

from burnd.harness.registry import PRODUCTS
from burnd.records.names import is_bounded

Suffix = str | tuple[str, ...]
Refusal = Literal["symlink", "not a regular file", "foreign owner", "outside its root"]

SUFFIX = ".jsonl"
MAX_DEPTH = 8  # folders below a root; the deepest known transcript is three down
PLACES_KEPT = 5
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_WINDING = re.compile(r"//|/\.\.?(/|$)")


class Root(msgspec.Struct, frozen=True, gc=False):
    """A configured folder that exists: its configured name, its real path, and its device and inode."""

    named: str
    path: str
    identity: tuple[int, int]


def present(named: Iterable[str]) -> list[Root]:
    """The roots that exist now; of several names for one folder only the first."""
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
        # The link is resolved first, so that a root whose link is changed in between is noticed as changed.
        path = os.path.realpath(name)
        status = os.stat(path)
    except (OSError, ValueError):
        return None
    if not stat.S_ISDIR(status.st_mode):
        return None
    return Root(named=name, path=path, identity=(status.st_dev, status.st_ino))


class Refused(Exception):
    """Raised when a path names something that must not be read, however often it is tried."""

    def __init__(self, path: str, reason: Refusal) -> None:
        super().__init__(f"not read: {path} ({reason})")
        self.path = path
        self.reason: Refusal = reason


def below(path: str, root: str) -> str:
    """A path relative to its root. The plain case, nearly all of them, is cut without normalising it."""
    if path.startswith(root + os.sep) and not _WINDING.search(path, len(root)):
        return path[len(root) + 1 :]
    return os.path.relpath(path, root)


def open_regular(path: str, *, root: str | None = None) -> int:
    """Opens a regular file of ours and returns a read-only descriptor.

    With `root`, no folder between it and the file may be a link either; the root itself may. Raises Refused,
    or the OSError of a file that is missing or cannot be read just now.
    """
    if root is None:
        return _open_in(None, path, path)
    folder, name = _open_folder_of(path, root)
    try:
        return _open_in(folder, name, path)
    finally:
        os.close(folder)


def small_file(path: str, root: str, largest: int) -> bytes | None:
    """The bytes of a file beside a log; None if it is missing, too large or cannot be read."""
    if not os.path.lexists(path):
        return None  # the usual case; `open_regular` takes ten times as long to find out
    try:
        fd = open_regular(path, root=root)
    except (OSError, Refused, ValueError):
        return None
    try:
        size = os.fstat(fd).st_size
        return os.pread(fd, size, 0) if size <= largest else None
    except OSError:
        return None
    finally:
        os.close(fd)


def _open_in(folder: int | None, name: str, path: str) -> int:
    # Checked before it is opened: opening a FIFO lets its writer go on, and opening a device can do anything.
    _check(path, os.stat(name, dir_fd=folder, follow_symlinks=False))
    try:
        fd = os.open(name, _FILE, dir_fd=folder)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise Refused(path, "symlink") from error
        if error.errno == errno.ENXIO:
            raise Refused(path, "not a regular file") from error
        raise
    try:
        _check(path, os.fstat(fd))
    except BaseException:
        os.close(fd)
        raise
    return fd


def _check(path: str, status: os.stat_result) -> None:
    reason = _objection(status, os.geteuid())
    if reason is not None:
        raise Refused(path, reason)


def _objection(status: os.stat_result, owner: int) -> Refusal | None:
    """Why a file with this lstat must not be read, or None."""
    mode = status.st_mode
    if not stat.S_ISREG(mode):
        return "symlink" if stat.S_ISLNK(mode) else "not a regular file"
    return None if status.st_uid == owner else "foreign owner"


def _open_folder_of(path: str, root: str) -> tuple[int, str]:
    """Opens the folder of `path`, reached from `root` without following a link; returns it and the file's name."""
    *folders, name = below(path, root).split(os.sep)
    if name in ("", os.curdir, os.pardir) or os.pardir in folders:
        raise Refused(path, "outside its root")
    folder = os.open(root, _FOLDER)
    for part in folders:
        try:
            inner = os.open(part, _FOLDER | os.O_NOFOLLOW, dir_fd=folder)
        except OSError as error:
            # O_DIRECTORY|O_NOFOLLOW on a link is ENOTDIR on Linux and ELOOP elsewhere.
            if error.errno in (errno.ELOOP, errno.ENOTDIR):
                raise Refused(path, "symlink") from error
            raise
        finally:
            os.close(folder)
        folder = inner
    return folder, name


class FileEntry(msgspec.Struct, frozen=True, gc=False):
    """A file that may be read, as a scan saw it."""

    path: str
    root: str
    dev: int
    ino: int
    size: int
    ctime_ns: int
    mtime: float

    @property
    def fingerprint(self) -> int:
        return fingerprint(self.dev, self.ino, self.size, self.ctime_ns)


def fingerprint(dev: int, ino: int, size: int, ctime_ns: int) -> int:
    """Changes whenever a file changes or is replaced: one number, since there are many files."""
    return hash((dev, ino, size, ctime_ns))


class WalkTally(msgspec.Struct):
    """What a walk met besides the files it yields: folders entered, and what it skipped, by reason."""

    directories: int = 0
    refused: Counter[str] = msgspec.field(default_factory=Counter)
    places: dict[str, list[str]] = {}  # the first skipped paths for each reason

    def refuse(self, reason: str, path: str) -> None:
        self.refused[reason] += 1
        if self.refused[reason] <= PLACES_KEPT:
            self.places.setdefault(reason, []).append(path)


class Scan(msgspec.Struct, frozen=True):
    """The files that are new, different or gone since the scan before."""

    changed: list[FileEntry]
    gone: list[str]
    files: int
    tally: WalkTally
    seconds: float


class Scanner:
    """Looks at every file below the roots and reports those whose fingerprint differs from last time.

    Any difference counts, the change time too, which also shows a chmod. It only ever causes a second look:
    what is read is decided by the cursor.
    """

    def __init__(self, *, suffix: Suffix = SUFFIX) -> None:
        self._suffix = suffix
        self._seen: dict[str, dict[str, int]] = {}  # folders, and the fingerprint of each file in them

    def know(self, path: str, fingerprint: int) -> None:
        """Before the first scan: a file that is not changed as long as it has this fingerprint."""
        folder, _, name = path.rpartition("/")
        self._seen.setdefault(folder, {})[name] = fingerprint

    def count(self, suffix: Suffix) -> int:
        """The number of files with such a name in the last scan."""
        return sum(name.endswith(suffix) for folder in self._seen.values() for name in folder)

    def has_seen(self, path: str) -> bool:
        """Whether the last scan saw this file."""
        folder, _, name = path.rpartition("/")
        return name in self._seen.get(folder, ())

    def scan(self, roots: Iterable[str]) -> Scan:
        started = time.perf_counter()
        tally = WalkTally()
        changed: list[FileEntry] = []
        gone: list[str] = []
        entered: set[str] = set()
        for root in roots:
            for folder, entries in _sweep(root, self._suffix, tally):
                entered.add(folder)
                changed += self._changed_in(folder, entries, root, tally)
                gone += self._gone_from(folder, {entry.name for entry in entries})
        for folder in self._seen.keys() - entered:
            gone += self._gone_from(folder, set())
        files = sum(map(len, self._seen.values()))
        return Scan(changed, gone, files, tally, time.perf_counter() - started)

    def _changed_in(
        self, folder: str, entries: Iterable[os.DirEntry[str]], root: str, tally: WalkTally
    ) -> Iterator[FileEntry]:
        """The files of a folder that look different. An unchanged one costs a stat and nothing else."""
        seen = self._seen.setdefault(folder, {})
        owner = os.geteuid()
        for entry in entries:
            status = _stat(entry)
            now = status and fingerprint(status.st_dev, status.st_ino, status.st_size, status.st_ctime_ns)
            if seen.get(entry.name) == now:  # it may be read, as it could when it was last looked at
                continue
            path = os.path.join(folder, entry.name)
            if status is None or now is None or _is_refused(path, status, owner, tally):
                seen.pop(entry.name, None)
            else:
                seen[entry.name] = now
                yield _file_entry(path, root, status)

    def _gone_from(self, folder: str, names: AbstractSet[str]) -> list[str]:
        """Forgets the files of a folder that are not among these names, and returns their paths."""
        seen = self._seen.get(folder, {})
        gone = [] if seen.keys() <= names else [name for name in seen if name not in names]
        for name in gone:
            del seen[name]
        if not seen:
            self._seen.pop(folder, None)
        return [os.path.join(folder, name) for name in gone]


def walk(root: str, *, suffix: Suffix = SUFFIX, tally: WalkTally | None = None) -> Iterator[FileEntry]:
    """Every file below `root` that may be read and whose name ends in `suffix`; none if the root is missing."""
    tally = WalkTally() if tally is None else tally
    owner = os.geteuid()
    for folder, entries in _sweep(root, suffix, tally):
        for entry in entries:
            path, status = os.path.join(folder, entry.name), _stat(entry)
            if status is not None and not _is_refused(path, status, owner, tally):
                yield _file_entry(path, root, status)


_Entries = list[os.DirEntry[str]]


def _sweep(root: str, suffix: Suffix, tally: WalkTally) -> Iterator[tuple[str, _Entries]]:
    """Walks all folders and yields each with its entries that end in `suffix` and are not folders.

    Entries are valid until the next folder is yielded: the folder is open until then, so that the kernel
    need not resolve the path of each file.
    """
    folders = [(root, 0)]
    while folders:
        folder, depth = folders.pop()
        with _listed(folder, tally, is_root=depth == 0) as entries:
            wanted: _Entries = []
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    if depth < MAX_DEPTH:
                        folders.append((os.path.join(folder, entry.name), depth + 1))
                    else:
                        tally.refuse("too deep", os.path.join(folder, entry.name))
                elif entry.name.endswith(suffix):
                    wanted.append(entry)
                elif entry.is_symlink() and entry.is_dir():
                    tally.refuse("symlink", os.path.join(folder, entry.name))
            yield folder, wanted


@contextlib.contextmanager
def _listed(folder: str, tally: WalkTally, *, is_root: bool) -> Iterator[_Entries]:
    """A folder's entries, none if it cannot be listed. Below a root no link is followed, not even a sudden one."""
    fd, listed = -1, list[os.DirEntry[str]]()
    try:
        fd = os.open(folder, _FOLDER | (0 if is_root else os.O_NOFOLLOW))
        with os.scandir(fd) as entries:
            listed = list(entries)
        tally.directories += 1
    except (FileNotFoundError, NotADirectoryError):
        pass
    except OSError:
        tally.refuse("unreadable folder", folder)
    try:
        yield listed
    finally:
        if fd >= 0:
            os.close(fd)


def _stat(entry: os.DirEntry[str]) -> os.stat_result | None:
    try:
        return entry.stat(follow_symlinks=False)
    except OSError:
        return None


def _is_refused(path: str, status: os.stat_result, owner: int, tally: WalkTally) -> bool:
    reason = _objection(status, owner)
    if reason is not None:
        tally.refuse(reason, path)
    return reason is not None


def _file_entry(path: str, root: str, status: os.stat_result) -> FileEntry:
    return FileEntry(
        path=path,
        root=root,
        dev=status.st_dev,
        ino=status.st_ino,
        size=status.st_size,
        ctime_ns=status.st_ctime_ns,
        mtime=status.st_mtime,
    )


class Explanation(NamedTuple):
    """Why a scan skips something, and what a person can do; `is_normal` if nothing need be done."""

    why: str
    remedy: str = ""
    is_normal: bool = False


_ROOTS_KEYS = " or ".join(product.roots_key for product in PRODUCTS if not product.has_databases)
EXPLANATIONS = {
    "unreadable folder": Explanation(
        "the folder cannot be read", "let yourself read it (chmod u+rx); burnd tries it again"
    ),
    "foreign owner": Explanation(
        "it belongs to another user", "if it is yours, make it so again (chown); logs of others are never read"
    ),
    "too deep": Explanation("the folder lies too deep", f"move it up: logs are looked for {MAX_DEPTH} folders deep"),
    "symlink": Explanation(
        "links are not followed",
        f"if it leads to logs, put the folder itself there, or name what it leads to in {_ROOTS_KEYS}",
        is_normal=True,
    ),
    "not a regular file": Explanation("it is no file that holds lines", is_normal=True),
}
