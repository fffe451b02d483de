"""Writes, syncs, renames and truncates files. No other module does. An append is complete or has no effect."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
import time
from collections.abc import Iterator
from pathlib import Path

from burnd.errors import (
    FileReplaced,
    HomeBusy,
    HomeError,
    HomeReplaced,
    NoSpace,
    NotAllowed,
    NotNow,
    StorageError,
    SyncFailed,
)

FILE_MODE = 0o600
FOLDER_MODE = 0o700
_NO_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS}
_MOVE_AWAY = "move it away, then start burnd again"
WRITABLE_AGAIN = "make its file system and its folder writable again; nothing is lost meanwhile"
_NETWORK_FILE_SYSTEMS = {"nfs", "nfs4", "cifs", "smb3", "smbfs", "fuse.sshfs", "9p", "afs"}


def make_folder(path: Path) -> None:
    """Creates a private folder, independent of the umask, and its parents by the umask."""
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.mkdir(path, FOLDER_MODE)
    except FileExistsError:
        if not os.path.isdir(path):
            raise StorageError("is not a folder", str(path), "move it away") from None
        return
    os.chmod(path, FOLDER_MODE)
    sync_folder(path.parent)


def open_private(path: Path, flags: int) -> int:
    """Opens a regular file of this user, created with 0600; follows no link and never blocks at a pipe."""
    try:
        fd = os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK, FILE_MODE)
    except OSError as error:
        if error.errno == errno.ENXIO:  # a pipe that is not read, or a socket
            raise StorageError("is not a regular file", str(path), "move it away") from error
        if error.errno != errno.ELOOP:
            raise
        raise StorageError("is a link, which is not followed", str(path), "put the file itself there") from error
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise StorageError("is not a regular file", str(path), "move it away")
        if flags & os.O_CREAT:
            os.fchmod(fd, FILE_MODE)
    except BaseException:
        os.close(fd)
        raise
    return fd


def touch(path: Path) -> None:
    """Creates an empty private file if missing: libraries would create it by the umask."""
    try:
        os.close(open_private(path, os.O_RDWR | os.O_CREAT))
    except OSError as error:
        raise as_storage_error(error, path) from error


def read_plain(path: str | Path) -> bytes:
    """Reads a regular file. Raises OSError, also for a pipe, which would block."""
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(fd, "rb") as file:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise OSError(errno.EINVAL, "is not a regular file", str(path))
        return file.read()


def sync_folder(path: Path) -> None:
    """Makes created, renamed and deleted names in a folder durable."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        _sync(fd, path)
    finally:
        os.close(fd)


def replace_file(path: Path, data: bytes) -> None:
    """Replaces a file atomically and durably."""
    with replacement(path) as new:
        new.append(data)


def replacement_path(path: Path) -> Path:
    return path.with_name(path.name + ".new")


def clear_replacement(path: Path) -> Path:
    """Deletes the rest of an interrupted replacement; returns the path for the next one."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(replacement_path(path))
    return replacement_path(path)


def commit_replacement(path: Path) -> None:
    os.replace(replacement_path(path), path)
    sync_folder(path.parent)


@contextlib.contextmanager
def replacement(path: Path) -> Iterator[AppendFile]:
    """A new file that replaces `path` when the block ends, and is deleted if it raises."""
    new = AppendFile(clear_replacement(path))
    try:
        yield new
        new.close()
        commit_replacement(path)
    except BaseException:
        new.close()
        clear_replacement(path)
        raise


class AppendFile:
    """A file that grows by whole appends; a failed one is undone.

    With `name_later` the caller syncs the folder, once for many new files.
    """

    def __init__(self, path: Path, *, name_later: bool = False) -> None:
        self.path = path
        self.fd = -1
        try:
            self.fd = open_private(path, os.O_RDWR | os.O_CREAT | os.O_APPEND)
            self.end = os.fstat(self.fd).st_size
            self.is_new = not self.end  # or an earlier sync of its name failed
            if self.is_new and not name_later:
                sync_folder(path.parent)
        except OSError as error:
            self.close()
            raise as_storage_error(error, path) from error

    def append(self, data: bytes) -> int:
        """Writes and syncs `data`; returns its position."""
        start = self.extend(data)
        self.sync(start)
        return start

    def extend(self, data: bytes) -> int:
        """Writes `data` without syncing; `sync(start)` must follow."""
        self.check_untouched()
        start = self.end
        try:
            view = memoryview(data)
            while view:
                view = view[os.write(self.fd, view) :]
        except OSError as error:
            self.cut(start)
            raise as_storage_error(error, self.path) from error
        self.end = start + len(data)
        return start

    def sync(self, start: int) -> None:
        """Makes everything durable. If the disk is full, truncates to `start` and raises."""
        try:
            os.fdatasync(self.fd) if hasattr(os, "fdatasync") else os.fsync(self.fd)
        except OSError as error:
            if error.errno not in _NO_ROOM:
                raise SyncFailed(os.strerror(error.errno or 0), str(self.path)) from error
            self.cut(start)
            raise as_storage_error(error, self.path) from error

    def cut(self, length: int) -> None:
        """Truncates the file; works on a full disk."""
        os.ftruncate(self.fd, length)
        _sync(self.fd, self.path)
        self.end = length

    def close(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def check_untouched(self) -> None:
        """Raises FileReplaced if another program changed or replaced the file."""
        ours = os.fstat(self.fd)
        if ours.st_size != self.end:
            raise FileReplaced(f"is {ours.st_size} bytes long, not {self.end}", str(self.path))
        try:
            there = os.lstat(self.path)
        except FileNotFoundError:
            raise FileReplaced("was removed", str(self.path)) from None
        if (there.st_dev, there.st_ino) != (ours.st_dev, ours.st_ino):
            raise FileReplaced("is another file now", str(self.path))


# A process that was killed while it started a child: the child has the lock until it runs its program.
_ORPHAN_S = 2.0


class HomeLock:
    """The exclusive lock on a home. The kernel releases it when the process ends.

    The folder itself is locked: a lock file could be deleted and created by a second daemon. The file `pid_file` only
    has the process id.
    """

    def __init__(self, pid_file: Path) -> None:
        self._root = pid_file.parent
        try:
            self._fd = os.open(pid_file.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            raise HomeError(os.strerror(error.errno or 0), str(pid_file.parent)) from error
        deadline = time.monotonic() + _ORPHAN_S
        while not _try_lock(self._fd):
            pid = _read_pid(pid_file)
            if pid is None or _is_alive(pid) or time.monotonic() > deadline:
                self.release()
                raise HomeBusy(str(pid_file.parent), pid)
            time.sleep(0.01)
        try:
            _write_pid(pid_file)
        except (OSError, StorageError) as error:
            self.release()
            raise _pid_file_error(error, pid_file) from error

    def check(self) -> None:
        """Raises HomeReplaced if the locked folder is no longer at the home's path."""
        try:
            there = os.stat(self._root)
        except (FileNotFoundError, NotADirectoryError):
            raise HomeReplaced(str(self._root)) from None
        if not os.path.samestat(there, os.fstat(self._fd)):
            raise HomeReplaced(str(self._root))

    def release(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def _try_lock(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except OSError:  # of another user
        return True
    return True


def no_home_check() -> None:
    """No-op, for homes without a lock."""


def _pid_file_error(error: OSError | StorageError, pid_file: Path) -> HomeError:
    number = error.errno if isinstance(error, OSError) else None
    what = os.strerror(number) if number else "is not a regular file"
    remedies = {errno.EROFS: "make it writable, or choose another RELAYBURN_HOME", errno.ENOSPC: "free some space"}
    return HomeError(what, str(pid_file), remedies.get(number or 0, "move it away"))


def _write_pid(pid_file: Path) -> None:
    fd = open_private(pid_file, os.O_RDWR | os.O_CREAT)
    try:
        os.ftruncate(fd, 0)
        with contextlib.suppress(OSError):  # a full disk must not keep the daemon from starting
            os.pwrite(fd, b"%d\n" % os.getpid(), 0)
    finally:
        os.close(fd)


def _read_pid(pid_file: Path) -> int | None:
    try:
        text = pid_file.read_text("ascii").strip()
    except (OSError, ValueError):
        return None
    return int(text) if text.isdigit() else None


def prepare_home(root: Path) -> list[str]:
    """Creates the home if missing; returns warnings. Raises HomeError if it is unusable or writable by others."""
    try:
        make_folder(root)
        status = os.stat(root)
    except OSError as error:
        raise HomeError(os.strerror(error.errno or 0), str(root), "choose another RELAYBURN_HOME") from error
    if not stat.S_ISDIR(status.st_mode):
        raise HomeError("is not a folder", str(root), "choose another RELAYBURN_HOME")
    if status.st_uid != os.geteuid():
        raise HomeError(f"belongs to uid {status.st_uid}, not to you", str(root), "choose another RELAYBURN_HOME")
    if status.st_mode & 0o022:
        raise HomeError("is writable by other users", str(root), f"chmod 700 {root}")
    if status.st_mode & 0o077:
        os.chmod(root, FOLDER_MODE)
    warnings = []
    if root.is_symlink():
        warnings.append(f"{root} is a link to {root.resolve()}")
    kind = file_system_of(root)
    if kind in _NETWORK_FILE_SYSTEMS:
        warnings.append(f"{root} is on a network file system ({kind}): locks and SQLite are unreliable there")
    return warnings


def file_system_of(path: Path) -> str:
    """The type of the file system of `path` on Linux; empty if unknown."""
    try:
        with open("/proc/self/mountinfo", encoding="utf-8", errors="replace") as table:
            mounts = [line.split(" ") for line in table]
    except OSError:
        return ""
    best, kind = "", ""
    real = str(path.resolve())
    for fields in mounts:
        point = fields[4]
        inside = real == point or real.startswith(point.rstrip("/") + "/")
        if inside and len(point) >= len(best):
            best, kind = point, fields[fields.index("-") + 1]
    return kind


def free_bytes(path: Path) -> tuple[int, int]:
    """Free bytes for this user, and size, of the file system of `path`."""
    facts = os.statvfs(path)
    return facts.f_bavail * facts.f_frsize, facts.f_blocks * facts.f_frsize


def as_storage_error(error: OSError, path: Path) -> StorageError:
    """Converts an OSError; `path` is the file in question, unless the error names one."""
    path = Path(os.fsdecode(error.filename)) if isinstance(error.filename, str | bytes) else path
    sentence = os.strerror(error.errno) if error.errno else str(error)
    if error.errno == errno.EROFS:
        return NoSpace(sentence, str(path), WRITABLE_AGAIN)
    if error.errno in _NO_ROOM:
        return NoSpace(sentence, str(path), "free some space; nothing is lost meanwhile")
    if error.errno in (errno.EACCES, errno.EPERM):
        return NotAllowed(sentence, str(path), "restore its permissions; nothing is lost meanwhile")
    if error.errno in (errno.EMFILE, errno.ENFILE):
        return NotNow(sentence, str(path), "raise the limit of open files (ulimit -n); nothing is lost meanwhile")
    if error.errno == errno.EISDIR:
        return StorageError("is a folder where a file must be", str(path), _MOVE_AWAY)
    if error.errno == errno.ENOTDIR:
        file = next((one for one in (path, *path.parents) if one.exists() and not one.is_dir()), path)
        return StorageError("is a file where a folder must be", str(file), _MOVE_AWAY)
    return StorageError(sentence, str(path))


def _sync(fd: int, path: Path) -> None:
    try:
        os.fsync(fd)
    except OSError as error:
        raise SyncFailed(os.strerror(error.errno or 0), str(path)) from error
