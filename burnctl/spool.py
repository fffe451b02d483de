"""The spool: small files that wait for the daemon. What is put here is durable and whole, or not there at all.

One JSON object a file, `<time_ns>-<pid>-<random>.json`, so that names sort as they were put. A file gets its name only
when its bytes are on the disk; until then it is hidden behind a dot, where the daemon does not look.
"""

from __future__ import annotations

import contextlib
import json
import os
import time

from burnctl.errors import BurnctlError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class NotSpooled(BurnctlError):
    """Raised when nothing could be put into the spool: the disk is full, or the home is not ours to write."""


def put(home: str, records: Sequence[Mapping[str, Any]]) -> None:
    """Makes all records durable in the spool of a home, in their order; after an error none of them is there."""
    begun = time.time_ns()
    _put(home, {new_name(begun + n): record for n, record in enumerate(records)}, takes_back=True)


def put_as(home: str, name: str, record: Mapping[str, Any]) -> None:
    """Makes one record durable under a name of the caller's; after an error the one before it may still stand."""
    _put(home, {name: record}, takes_back=False)


def new_name(at_ns: int | None = None) -> str:
    """A name that nobody else has, and that sorts by time."""
    return f"{time.time_ns() if at_ns is None else at_ns}-{os.getpid()}-{os.urandom(4).hex()}"


def _put(home: str, records: Mapping[str, Mapping[str, Any]], *, takes_back: bool) -> None:
    spool = os.path.join(home, "spool")
    try:
        folder = _private_folder(home, spool)
        try:
            files = {f"{name}.json": json.dumps(record).encode() for name, record in records.items()}
            _write_all(folder, files, takes_back=takes_back)
        finally:
            os.close(folder)
    except OSError as error:
        raise NotSpooled(
            f"{spool}: {os.strerror(error.errno) if error.errno else error}",
            "nothing was recorded; make room or mend the folder, then try again",
        ) from None


def _write_all(folder: int, files: Mapping[str, bytes], *, takes_back: bool) -> None:
    named: list[str] = []
    try:
        for name, data in files.items():
            _write(folder, "." + name, data + b"\n")
        for name in files:
            os.rename("." + name, name, src_dir_fd=folder, dst_dir_fd=folder)
            named.append(name)
        os.fsync(folder)
    except BaseException:
        for name in (*(named if takes_back else ()), *("." + name for name in files)):
            with contextlib.suppress(OSError):
                os.unlink(name, dir_fd=folder)
        raise


def _write(folder: int, name: str, data: bytes) -> None:
    fd = os.open(name, _NEW_FILE, 0o600, dir_fd=folder)
    try:
        os.fchmod(fd, 0o600)  # whatever the umask
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(fd, rest) :]
        os.fsync(fd)
    finally:
        os.close(fd)


def _private_folder(home: str, spool: str) -> int:
    """A descriptor of the spool folder, made where it is missing, open to nobody else."""
    os.makedirs(os.path.dirname(home), exist_ok=True)
    for path in (home, spool):
        if _made(path):
            _sync(os.path.dirname(path))
    folder = os.open(spool, _FOLDER)
    try:
        facts = os.fstat(folder)
        if facts.st_uid != os.geteuid():
            raise OSError(f"belongs to uid {facts.st_uid}, not to you")
        if facts.st_mode & 0o077:
            os.fchmod(folder, 0o700)
    except BaseException:
        os.close(folder)
        raise
    return folder


def _made(path: str) -> bool:
    try:
        os.mkdir(path, 0o700)
    except FileExistsError:
        return False
    os.chmod(path, 0o700)
    return True


def _sync(path: str) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
