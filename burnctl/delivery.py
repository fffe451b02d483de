"""Delivers stamps and announcements without loss: recorded by burnd in time, or spooled.

The spool has one JSON object in each file, `<time_ns>-<pid>-<random>.json`, so that names sort by time. A file has a
dot before its name until its bytes are on the disk; the daemon ignores such files.
"""

from __future__ import annotations

import contextlib
import json
import os
import time

from burnctl.errors import BurnctlError, Failed
from burnd import paths, protocol

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from burnctl.client import Client

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class NotSpooled(BurnctlError):
    """Raised if the spool cannot be written."""


def spool_records(home: str, records: Sequence[Mapping[str, Any]]) -> None:
    """Spools all records durably, in order; after an error none is there."""
    start = time.time_ns()
    _spool(home, {new_name(start + n): record for n, record in enumerate(records)}, takes_back=True)


def spool_as(home: str, name: str, record: Mapping[str, Any]) -> None:
    """Spools one record under a fixed name; after an error the previous one may remain."""
    _spool(home, {name: record}, takes_back=False)


def new_name(at_ns: int | None = None) -> str:
    return f"{time.time_ns() if at_ns is None else at_ns}-{os.getpid()}-{os.urandom(4).hex()}"


def _spool(home: str, records: Mapping[str, Mapping[str, Any]], *, takes_back: bool) -> None:
    spool = os.path.join(home, "spool")
    try:
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
        try:
            files = {f"{name}.json": json.dumps(record).encode() for name, record in records.items()}
            _write_all(folder, files, takes_back=takes_back)
        finally:
            os.close(folder)
    except OSError as error:
        raise NotSpooled(
            f"{spool}: {os.strerror(error.errno) if error.errno else error}",
            "nothing was recorded; free disk space or correct the folder, then try again",
        ) from None


def _write_all(folder: int, files: Mapping[str, bytes], *, takes_back: bool) -> None:
    renamed: list[str] = []
    try:
        for name, data in files.items():
            _write(folder, "." + name, data + b"\n")
        for name in files:
            os.rename("." + name, name, src_dir_fd=folder, dst_dir_fd=folder)
            renamed.append(name)
        os.fsync(folder)
    except BaseException:
        for name in (*(renamed if takes_back else ()), *("." + name for name in files)):
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


# Then the spool is quicker: programs that spawn sessions must not wait.
ANSWER_S = 2.0
# The daemon would refuse the spooled file as well.
_NO = {protocol.BAD_PARAMS, protocol.REFUSED, protocol.TOO_LARGE, protocol.NOT_A_REQUEST, protocol.NOT_JSON}
_BATCH_BYTES = protocol.REQUEST_BYTES // 2


class Delivery:
    """The numbers of `recorded` and `spooled` records, and why some were spooled."""

    __slots__ = ("reason", "recorded", "spooled")

    def __init__(self, recorded: int, spooled: int, reason: str = "") -> None:
        self.recorded, self.spooled, self.reason = recorded, spooled, reason

    def answer(self) -> dict[str, Any]:
        answer = {"version": protocol.VERSION, "state": "recorded", "stamps": self.recorded + self.spooled}
        return answer | ({"state": "spooled", "spooled": self.spooled, "reason": self.reason} if self.spooled else {})


def stamps(client: Client, stamps: Sequence[Mapping[str, Any]], timeout: float = ANSWER_S) -> Delivery:
    """Makes stamps durable. Raises Failed if refused, NotSpooled if the spool cannot be written."""
    recorded = 0
    for batch in _batches(stamps):
        wire_form = [{key: stamp[key] for key in stamp if key not in ("v", "kind")} for stamp in batch]
        problem = _ask(client, "stamp", {"stamps": wire_form}, timeout)
        if problem is not None:
            rest = stamps[recorded:]
            try:
                spool_records(home(), rest)
            except NotSpooled as error:
                if not recorded:
                    raise
                hint = f"the first {recorded:,} of {len(stamps):,} were recorded, the others were not"
                raise NotSpooled(error.message, hint) from None
            return Delivery(recorded, len(rest), problem.message)
        recorded += len(batch)
    return Delivery(recorded, 0)


def removal(client: Client, stamp: Mapping[str, Any], timeout: float = ANSWER_S) -> Delivery:
    """Makes the removal of tags durable. Raises as `stamps` does."""
    params = {"selector": stamp["selector"], "keys": stamp["removes"], "ts": stamp["ts"]}
    problem = _ask(client, "stamps.remove", params, timeout)
    if problem is None:
        return Delivery(1, 0)
    spool_records(home(), [stamp])
    return Delivery(0, 1, problem.message)


def announcement(client: Client, wishes: Mapping[str, Any], since: str, timeout: float = ANSWER_S) -> Delivery:
    """Announces the wishes for a session from `since` on; content recorded against them is removed."""
    params = {"ts": since, **wishes}
    problem = _ask(client, "announce", params, timeout)
    if problem is None:
        return Delivery(1, 0)
    spool_records(home(), [{"v": 1, "kind": "announce", **params}])
    return Delivery(0, 1, problem.message)


def home() -> str:
    try:
        return paths.home_folder()
    except ValueError as error:
        raise BurnctlError(str(error)) from None


def _ask(client: Client, method: str, params: Mapping[str, Any], timeout: float) -> BurnctlError | None:
    """None if the daemon has it, else why it must be spooled."""
    if timeout <= 0:
        return BurnctlError("burnd did not answer before")
    try:
        client.call(method, params, timeout=timeout)
    except Failed as error:
        if error.code in _NO:
            raise
        return error
    except BurnctlError as error:
        return error
    return None


def _batches(stamps: Sequence[Mapping[str, Any]]) -> list[list[Mapping[str, Any]]]:
    """Splits records so that each batch fits into a request."""
    batches: list[list[Mapping[str, Any]]] = []
    room = 0
    for stamp in stamps:
        size = len(json.dumps(stamp))
        if size > room:
            batches.append([])
            room = _BATCH_BYTES
        batches[-1].append(stamp)
        room -= size
    return batches
