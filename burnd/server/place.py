"""Where the socket stands: puts it there, private from its first moment, and never in the place of anything else."""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import stat
from pathlib import Path

from burnd.errors import HomeBusy, SocketTaken
from burnd.server.peers import peer_of

BACKLOG = 1024  # a client that does not want to block is refused at once when this is full
_LONGEST_PATH = 103  # bytes; what macOS takes, and Linux takes four more
_PRIVATE = 0o600

Identity = tuple[int, int]


def bind(path: Path) -> socket.socket:
    """A socket that listens at `path`, mode 0600. To be called by the one who holds the home's lock.

    A socket that a killed daemon left there is replaced. Raises HomeBusy when somebody answers at it, and
    SocketTaken when anything else is there: that is never touched.
    """
    check_folder(path)
    _clear_stale(path)
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        # The mode is right from the moment the name exists: nobody can connect in between.
        before = os.umask(0o177)
        try:
            listening.bind(str(path))
        finally:
            os.umask(before)
        if stat.S_IMODE(os.lstat(path).st_mode) != _PRIVATE:
            raise SocketTaken("cannot be made private there", str(path), "choose a local disk with BURND_SOCKET")
        listening.listen(BACKLOG)
        listening.setblocking(False)
    except OSError as error:
        listening.close()
        raise SocketTaken(f"the socket cannot be made: {os.strerror(error.errno or 0)}", str(path)) from error
    except BaseException:
        listening.close()
        raise
    return listening


def identity(path: Path) -> Identity | None:
    """Which file stands at a path; None when there is none."""
    try:
        found = os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    return found.st_dev, found.st_ino


def remove(path: Path, ours: Identity | None) -> None:
    """Takes away the socket that we put there; whatever took its place since stays."""
    if ours is not None and identity(path) == ours:
        with contextlib.suppress(OSError):
            os.unlink(path)


def check_folder(path: Path) -> None:
    """Raises SocketTaken where a socket could not be made, or not be private."""
    if len(os.fsencode(path)) > _LONGEST_PATH:
        raise SocketTaken("is too long for a socket", str(path), "set BURND_SOCKET to a shorter path")
    folder = path.parent
    try:
        found = os.stat(folder)
    except OSError as error:
        raise SocketTaken(os.strerror(error.errno or 0), str(folder), "the socket's folder must exist") from error
    if not stat.S_ISDIR(found.st_mode):
        raise SocketTaken("is not a folder", str(folder), "set BURND_SOCKET to a path in a folder of yours")
    if found.st_uid != os.geteuid() or found.st_mode & 0o022:
        raise SocketTaken("others may write in it", str(folder), "put the socket into a folder of yours, mode 0700")


def _clear_stale(path: Path) -> None:
    """Removes a socket of ours that nobody listens at. A refused connection alone proves nothing: files refuse too."""
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(found.st_mode):
        raise SocketTaken("is there and is no socket", str(path), "move it away")
    if found.st_uid != os.geteuid():
        raise SocketTaken("is a socket of somebody else", str(path), "set BURND_SOCKET to another path")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)
        code = probe.connect_ex(str(path))
        if code != errno.ECONNREFUSED:
            raise HomeBusy(str(path), peer_of(probe).pid if code == 0 else None)
    os.unlink(path)
