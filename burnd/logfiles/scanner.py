"""Finding files below roots: names, sizes and owners, never through a link and never opening anything."""

from __future__ import annotations

import contextlib
import os
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from collections.abc import Set as AbstractSet

import msgspec

from burnd.logfiles.cursor import looks_of
from burnd.logfiles.safe_open import objection

Suffix = str | tuple[str, ...]

SUFFIX = ".jsonl"
MAX_DEPTH = 8  # folders below a root; the deepest known transcript lies three down
PLACES_KEPT = 5


class Found(msgspec.Struct, frozen=True, gc=False):
    """A file that may be read, as it was when it was found."""

    path: str
    root: str
    dev: int
    ino: int
    size: int
    ctime_ns: int
    mtime: float


class Tally(msgspec.Struct):
    """What a walk met besides the files it yields: folders entered, and what it left alone, by reason."""

    directories: int = 0
    refused: Counter[str] = msgspec.field(default_factory=Counter)
    places: dict[str, list[str]] = {}  # of the first that were left alone for each reason

    def refuse(self, reason: str, path: str) -> None:
        self.refused[reason] += 1
        if self.refused[reason] <= PLACES_KEPT:
            self.places.setdefault(reason, []).append(path)


class Scan(msgspec.Struct, frozen=True):
    """What is new or different since the scan before."""

    changed: list[Found]
    gone: list[str]
    files: int
    directories: int
    refused: dict[str, int]
    places: dict[str, list[str]]
    seconds: float


class Scanner:
    """Looks at every file below the roots and reports those that look different from last time.

    Any difference counts, the change time too, which also tells of a chmod. It only ever causes a second look:
    what is read is decided by the cursor.
    """

    def __init__(self, *, suffix: Suffix = SUFFIX, max_depth: int = MAX_DEPTH) -> None:
        self._suffix = suffix
        self._max_depth = max_depth
        self._seen: dict[str, dict[str, int]] = {}  # folders, and how each file in them looked

    def know(self, path: str, looks: int) -> None:
        """Before the first scan: a file that is nothing new as long as it looks like this."""
        folder, _, name = path.rpartition("/")
        self._seen.setdefault(folder, {})[name] = looks

    def count(self, suffix: Suffix) -> int:
        """How many of the files that the last scan saw have such a name."""
        return sum(name.endswith(suffix) for folder in self._seen.values() for name in folder)

    def has_seen(self, path: str) -> bool:
        """Whether the last scan saw this file."""
        folder, _, name = path.rpartition("/")
        return name in self._seen.get(folder, ())

    def scan(self, roots: Iterable[str]) -> Scan:
        started = time.perf_counter()
        tally = Tally()
        changed: list[Found] = []
        gone: list[str] = []
        entered: set[str] = set()
        for root in roots:
            for folder, entries in _sweep(root, self._suffix, self._max_depth, tally):
                entered.add(folder)
                changed += self._news_in(folder, entries, root, tally)
                gone += self._missed_in(folder, {entry.name for entry in entries})
        for folder in self._seen.keys() - entered:
            gone += self._missed_in(folder, set())
        return Scan(
            changed=changed,
            gone=gone,
            files=sum(map(len, self._seen.values())),
            directories=tally.directories,
            refused=dict(tally.refused),
            places=tally.places,
            seconds=time.perf_counter() - started,
        )

    def _news_in(self, folder: str, entries: Iterable[os.DirEntry[str]], root: str, tally: Tally) -> Iterator[Found]:
        """The files of a folder that look different. What is as it was costs a look and nothing else."""
        known = self._seen.setdefault(folder, {})
        owner = os.geteuid()
        for entry in entries:
            found = _looked_at(entry)
            looks = found and looks_of(found.st_dev, found.st_ino, found.st_size, found.st_ctime_ns)
            if known.get(entry.name) == looks:  # it may be read, as it could when it was last looked at
                continue
            path = os.path.join(folder, entry.name)
            if found is None or looks is None or _is_refused(path, found, owner, tally):
                known.pop(entry.name, None)
            else:
                known[entry.name] = looks
                yield _found(path, root, found)

    def _missed_in(self, folder: str, names: AbstractSet[str]) -> list[str]:
        """Lets go of the files of a folder that are not among these: they are gone."""
        known = self._seen.get(folder, {})
        gone = [] if known.keys() <= names else [name for name in known if name not in names]
        for name in gone:
            del known[name]
        if not known:
            self._seen.pop(folder, None)
        return [os.path.join(folder, name) for name in gone]


def walk(
    root: str, *, suffix: Suffix = SUFFIX, max_depth: int = MAX_DEPTH, tally: Tally | None = None
) -> Iterator[Found]:
    """Every file below `root` that may be read and whose name ends in `suffix`; a root that is missing has none."""
    tally = Tally() if tally is None else tally
    owner = os.geteuid()
    for folder, entries in _sweep(root, suffix, max_depth, tally):
        for entry in entries:
            path, found = os.path.join(folder, entry.name), _looked_at(entry)
            if found is not None and not _is_refused(path, found, owner, tally):
                yield _found(path, root, found)


_Entries = list[os.DirEntry[str]]


def _sweep(root: str, suffix: Suffix, max_depth: int, tally: Tally) -> Iterator[tuple[str, _Entries]]:
    """The walk itself: every folder, with its entries whose names end in `suffix` and that are no folders.

    An entry can be looked at until the next folder is asked for: the folder is open until then, so that the kernel
    need not find the way to each of its files.
    """
    folders = [(root, 0)]
    while folders:
        folder, depth = folders.pop()
        with _opened(folder, tally, is_root=depth == 0) as listed:
            wanted: _Entries = []
            for entry in listed:
                if entry.is_dir(follow_symlinks=False):
                    if depth < max_depth:
                        folders.append((os.path.join(folder, entry.name), depth + 1))
                    else:
                        tally.refuse("too deep", os.path.join(folder, entry.name))
                elif entry.name.endswith(suffix):
                    wanted.append(entry)
                elif entry.is_symlink() and entry.is_dir():
                    tally.refuse("symlink", os.path.join(folder, entry.name))
            yield folder, wanted


@contextlib.contextmanager
def _opened(folder: str, tally: Tally, *, is_root: bool) -> Iterator[_Entries]:
    """A folder's entries, none where it cannot be listed. Below a root no link is followed, not even a sudden one."""
    fd, listed = -1, list[os.DirEntry[str]]()
    try:
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | (0 if is_root else os.O_NOFOLLOW))
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


def _looked_at(entry: os.DirEntry[str]) -> os.stat_result | None:
    try:
        return entry.stat(follow_symlinks=False)
    except OSError:
        return None


def _is_refused(path: str, found: os.stat_result, owner: int, tally: Tally) -> bool:
    reason = objection(found, owner=owner)
    if reason is not None:
        tally.refuse(reason, path)
    return reason is not None


def _found(path: str, root: str, found: os.stat_result) -> Found:
    return Found(
        path=path,
        root=root,
        dev=found.st_dev,
        ino=found.st_ino,
        size=found.st_size,
        ctime_ns=found.st_ctime_ns,
        mtime=found.st_mtime,
    )
