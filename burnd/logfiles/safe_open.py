"""Opening files that other programs own: never through a link, never anything but a regular file of ours."""

from __future__ import annotations

import errno
import os
import re
import stat
from typing import Literal

Reason = Literal["symlink", "not a regular file", "foreign owner", "outside its root"]

_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_WINDING = re.compile(r"//|/\.\.?(/|$)")
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


class Refused(Exception):
    """Raised when a path names something that must not be read, however often it is tried."""

    def __init__(self, path: str, reason: Reason) -> None:
        super().__init__(f"not read: {path} ({reason})")
        self.path = path
        self.reason: Reason = reason


def objection(found: os.stat_result, *, owner: int) -> Reason | None:
    """Why a file with this lstat must not be read, or None."""
    mode = found.st_mode
    if not stat.S_ISREG(mode):
        return "symlink" if stat.S_ISLNK(mode) else "not a regular file"
    return None if found.st_uid == owner else "foreign owner"


def below(path: str, root: str) -> str:
    """A path as it reads from its root. Plainly written below it, as nearly always, it need not be worked out."""
    if path.startswith(root + os.sep) and not _WINDING.search(path, len(root)):
        return path[len(root) + 1 :]
    return os.path.relpath(path, root)


def open_regular(path: str, *, root: str | None = None) -> int:
    """A read-only descriptor of a regular file of ours.

    With `root`, no folder between it and the file may be a link either; the root itself may. Raises Refused,
    or the OSError of a file that is missing or cannot be read just now.
    """
    if root is None:
        return _open_in(None, path, path)
    folder, name = _enter(root, path)
    try:
        return _open_in(folder, name, path)
    finally:
        os.close(folder)


def small_file(path: str, root: str, largest: int) -> bytes | None:
    """The bytes of a file that stands beside what is read, or None: it is never more than an addition."""
    if not os.path.lexists(path):
        return None  # as most often; finding out the careful way takes ten times as long
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
    # Looked at before it is opened: opening a FIFO lets its writer go on, and opening a device can do anything.
    _refuse(path, os.stat(name, dir_fd=folder, follow_symlinks=False))
    try:
        fd = os.open(name, _FILE, dir_fd=folder)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise Refused(path, "symlink") from error
        if error.errno == errno.ENXIO:
            raise Refused(path, "not a regular file") from error
        raise
    try:
        _refuse(path, os.fstat(fd))
    except BaseException:
        os.close(fd)
        raise
    return fd


def _refuse(path: str, found: os.stat_result) -> None:
    reason = objection(found, owner=os.geteuid())
    if reason is not None:
        raise Refused(path, reason)


def _enter(root: str, path: str) -> tuple[int, str]:
    """A descriptor of the folder that holds `path`, reached from `root` without following a link."""
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
