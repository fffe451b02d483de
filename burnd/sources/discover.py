"""Finding files below roots: names, sizes and owners, never through a link and never opening anything."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

import msgspec

from burnd.sources.safe_open import objection

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
        self._seen: dict[str, int] = {}

    def count(self, suffix: Suffix) -> int:
        """How many of the files that the last scan saw have such a name."""
        return sum(path.endswith(suffix) for path in self._seen)

    def has_seen(self, path: str) -> bool:
        """Whether the last scan saw this file."""
        return path in self._seen

    def scan(self, roots: Iterable[str]) -> Scan:
        started = time.perf_counter()
        tally = Tally()
        before, seen = self._seen, dict[str, int]()
        changed: list[Found] = []
        owner = os.geteuid()
        for root in roots:
            for entry in _sweep(root, self._suffix, self._max_depth, tally):
                found = _looked_at(entry)
                if found is None:
                    continue
                path, looks = entry.path, hash((found.st_dev, found.st_ino, found.st_size, found.st_ctime_ns))
                if before.get(path) != looks:  # else it may be read, as it could when it was last looked at
                    if _is_refused(path, found, owner, tally):
                        continue
                    if path not in seen:
                        changed.append(_found(path, root, found))
                seen[path] = looks
        self._seen = seen
        return Scan(
            changed=changed,
            gone=[path for path in before if path not in seen],
            files=len(seen),
            directories=tally.directories,
            refused=dict(tally.refused),
            places=tally.places,
            seconds=time.perf_counter() - started,
        )


def walk(
    root: str, *, suffix: Suffix = SUFFIX, max_depth: int = MAX_DEPTH, tally: Tally | None = None
) -> Iterator[Found]:
    """Every file below `root` that may be read and whose name ends in `suffix`; a root that is missing has none."""
    tally = Tally() if tally is None else tally
    owner = os.geteuid()
    for entry in _sweep(root, suffix, max_depth, tally):
        found = _looked_at(entry)
        if found is not None and not _is_refused(entry.path, found, owner, tally):
            yield _found(entry.path, root, found)


def _sweep(root: str, suffix: Suffix, max_depth: int, tally: Tally) -> Iterator[os.DirEntry[str]]:
    """The walk itself: every entry whose name ends in `suffix` and that is no folder."""
    folders = [(root, 0)]
    while folders:
        folder, depth = folders.pop()
        for entry in _entries(folder, tally):
            if entry.is_dir(follow_symlinks=False):
                if depth < max_depth:
                    folders.append((entry.path, depth + 1))
                else:
                    tally.refuse("too deep", entry.path)
            elif entry.name.endswith(suffix):
                yield entry
            elif entry.is_symlink() and entry.is_dir():
                tally.refuse("symlink", entry.path)


def _entries(folder: str, tally: Tally) -> Sequence[os.DirEntry[str]]:
    """A folder's entries, read at once so that no descriptor stays open while somebody consumes the walk."""
    try:
        with os.scandir(folder) as entries:
            listed = list(entries)
    except (FileNotFoundError, NotADirectoryError):
        return ()
    except OSError:
        tally.refuse("unreadable folder", folder)
        return ()
    tally.directories += 1
    return listed


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
