"""Finds and opens log files below roots; follows no link below a root and opens only regular files of this user."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import stat
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from collections.abc import Set as AbstractSet
from typing import Literal, NamedTuple

import msgspec

from burnd.harness.registry import PRODUCTS
from burnd.records.names import is_bounded

Suffix = str | tuple[str, ...]
Refusal = Literal["symlink", "not a regular file", "foreign owner", "outside its root"]

SUFFIX = ".jsonl"
MAX_DEPTH = 8  # below a root; the deepest known transcript is three down
PLACES_KEPT = 5
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_WINDING = re.compile(r"//|/\.\.?(/|$)")


class Root(msgspec.Struct, frozen=True, gc=False):
    """A configured folder that exists; `identity` is its device and inode."""

    name: str
    path: str
    identity: tuple[int, int]


def present(names: Iterable[str]) -> list[Root]:
    """The roots that exist now; of several names of one folder only the first."""
    roots: dict[tuple[int, int], Root] = {}
    for name in filter(is_bounded, names):
        try:
            # Resolve the link first, so that a change of it in between is noticed.
            path = os.path.realpath(name)
            status = os.stat(path)
        except (OSError, ValueError):
            continue
        if stat.S_ISDIR(status.st_mode):
            identity = (status.st_dev, status.st_ino)
            roots.setdefault(identity, Root(name=name, path=path, identity=identity))
    return list(roots.values())


class Refused(Exception):
    """Raised when a path must not be read, however often it is tried."""

    def __init__(self, path: str, reason: Refusal) -> None:
        super().__init__(f"not read: {path} ({reason})")
        self.path = path
        self.reason: Refusal = reason


def below(path: str, root: str) -> str:
    if path.startswith(root + os.sep) and not _WINDING.search(path, len(root)):
        return path[len(root) + 1 :]
    return os.path.relpath(path, root)


def open_regular(path: str, *, root: str | None = None) -> int:
    """Opens a regular file of this user read-only; below `root` no folder may be a link.

    Raises Refused, or OSError if the file is missing or unreadable now.
    """
    if root is None:
        return _open_in(None, path, path)
    folder, name = _open_folder_of(path, root)
    try:
        return _open_in(folder, name, path)
    finally:
        os.close(folder)


def small_file(path: str, root: str, largest: int) -> bytes | None:
    """The bytes of a file beside a log; None if it is missing, too large or unreadable."""
    if not os.path.lexists(path):
        return None  # the usual case; `open_regular` takes ten times as long
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


@contextlib.contextmanager
def lines_of(path: str, root: str, first: int = 0) -> Iterator[Callable[[int, int], bytes]]:
    """A function that reads bytes of a log by offset and size; empty if they are gone or before `first`. Opens the log
    when called.
    """
    fds: list[int] = []

    def line_at(offset: int, size: int) -> bytes:
        if offset < first:
            return b""
        try:
            if not fds:
                fds.append(open_regular(path, root=root))
            return os.pread(fds[0], size, offset)
        except (OSError, Refused, ValueError):
            return b""

    try:
        yield line_at
    finally:
        for fd in fds:
            os.close(fd)


def _open_in(folder: int | None, name: str, path: str) -> int:
    # Check before opening: opening a FIFO unblocks its writer, and opening a device can have any effect.
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
    mode = status.st_mode
    if not stat.S_ISREG(mode):
        return "symlink" if stat.S_ISLNK(mode) else "not a regular file"
    return None if status.st_uid == owner else "foreign owner"


def _open_folder_of(path: str, root: str) -> tuple[int, str]:
    *folders, name = below(path, root).split(os.sep)
    if name in ("", os.curdir, os.pardir) or os.pardir in folders:
        raise Refused(path, "outside its root")
    folder = os.open(root, _FOLDER)
    for part in folders:
        try:
            inner = os.open(part, _FOLDER | os.O_NOFOLLOW, dir_fd=folder)
        except OSError as error:
            # A link with O_DIRECTORY|O_NOFOLLOW is ENOTDIR on Linux, ELOOP elsewhere.
            if error.errno in (errno.ELOOP, errno.ENOTDIR):
                raise Refused(path, "symlink") from error
            raise
        finally:
            os.close(folder)
        folder = inner
    return folder, name


class FileEntry(msgspec.Struct, frozen=True, gc=False):
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
    """A number that changes whenever the file changes or is replaced."""
    return hash((dev, ino, size, ctime_ns))


class WalkTally(msgspec.Struct):
    """Folders that a walk entered, and what it skipped, by reason."""

    directories: int = 0
    refused: Counter[str] = msgspec.field(default_factory=Counter)
    places: dict[str, list[str]] = {}  # the first skipped paths for each reason

    def refuse(self, reason: str, path: str) -> None:
        self.refused[reason] += 1
        if self.refused[reason] <= PLACES_KEPT:
            self.places.setdefault(reason, []).append(path)


class Scan(msgspec.Struct, frozen=True):
    """The files that are new, different or gone since the last scan."""

    changed: list[FileEntry]
    gone: list[str]
    files: int
    tally: WalkTally
    seconds: float


class Scanner:
    """Reports every file below the roots whose fingerprint differs from last time.

    Any difference counts, such as a chmod: the cursor decides what is read.
    """

    def __init__(self, *, suffix: Suffix = SUFFIX) -> None:
        self._suffix = suffix
        self._seen: dict[str, dict[str, int]] = {}  # folders, with the fingerprint of each file

    def know(self, path: str, fingerprint: int) -> None:
        folder, _, name = path.rpartition("/")
        self._seen.setdefault(folder, {})[name] = fingerprint

    def count(self, suffix: Suffix) -> int:
        return sum(name.endswith(suffix) for folder in self._seen.values() for name in folder)

    def has_seen(self, path: str) -> bool:
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
        """An unchanged file costs one stat."""
        fingerprints = self._seen.setdefault(folder, {})
        owner = os.geteuid()
        for entry in entries:
            status = _stat(entry)
            now = status and fingerprint(status.st_dev, status.st_ino, status.st_size, status.st_ctime_ns)
            if fingerprints.get(entry.name) == now:  # readable, as at the last look
                continue
            path = os.path.join(folder, entry.name)
            if status is None or now is None or _is_refused(path, status, owner, tally):
                fingerprints.pop(entry.name, None)
            else:
                fingerprints[entry.name] = now
                yield _file_entry(path, root, status)

    def _gone_from(self, folder: str, names: AbstractSet[str]) -> list[str]:
        """Drops the files of a folder that are not among these names; returns their paths."""
        fingerprints = self._seen.get(folder, {})
        gone = [] if fingerprints.keys() <= names else [name for name in fingerprints if name not in names]
        for name in gone:
            del fingerprints[name]
        if not fingerprints:
            self._seen.pop(folder, None)
        return [os.path.join(folder, name) for name in gone]


def walk(root: str, *, suffix: Suffix = SUFFIX, tally: WalkTally | None = None) -> Iterator[FileEntry]:
    tally = WalkTally() if tally is None else tally
    owner = os.geteuid()
    for folder, entries in _sweep(root, suffix, tally):
        for entry in entries:
            path, status = os.path.join(folder, entry.name), _stat(entry)
            if status is not None and not _is_refused(path, status, owner, tally):
                yield _file_entry(path, root, status)


_Entries = list[os.DirEntry[str]]


def _sweep(root: str, suffix: Suffix, tally: WalkTally) -> Iterator[tuple[str, _Entries]]:
    """Yields each folder with its files that end in `suffix`.

    Entries are valid until the next folder: it stays open so that the kernel need not resolve each path.
    """
    folders = [(root, 0)]
    while folders:
        folder, depth = folders.pop()
        with _listed(folder, tally, is_root=depth == 0) as entries:
            files: _Entries = []
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    if depth < MAX_DEPTH:
                        folders.append((os.path.join(folder, entry.name), depth + 1))
                    else:
                        tally.refuse("too deep", os.path.join(folder, entry.name))
                elif entry.name.endswith(suffix):
                    files.append(entry)
                elif entry.is_symlink() and entry.is_dir():
                    tally.refuse("symlink", os.path.join(folder, entry.name))
            yield folder, files


@contextlib.contextmanager
def _listed(folder: str, tally: WalkTally, *, is_root: bool) -> Iterator[_Entries]:
    """A folder's entries, none if it cannot be listed. Follows no link, not even one made just now."""
    fd, items = -1, list[os.DirEntry[str]]()
    try:
        fd = os.open(folder, _FOLDER | (0 if is_root else os.O_NOFOLLOW))
        with os.scandir(fd) as entries:
            items = list(entries)
        tally.directories += 1
    except (FileNotFoundError, NotADirectoryError):
        pass
    except OSError:
        tally.refuse("unreadable folder", folder)
    try:
        yield items
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
    """Why a scan skips something and what to do; `is_normal` if nothing."""

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
