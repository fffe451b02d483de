"""The spool: files that clients write while the daemon is down or busy."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import time
from collections.abc import Callable, Iterable
from functools import partial
from itertools import islice
from pathlib import Path
from typing import NamedTuple, TypeVar

import anyio
import anyio.to_thread
import msgspec
import structlog

from burnd import errors, tasks
from burnd.clients.announcements import (
    Announcement,
    ClientRecord,
    SessionClaim,
    announce,
    assign,
    claimed_by,
    matching_session,
)
from burnd.errors import IndexDamaged, NotNow
from burnd.ledger import files
from burnd.limits import Quotas
from burnd.queries.names import no_such_session, resolve_stamp_sessions
from burnd.queries.view import Refusal
from burnd.recording.candidate import Batch
from burnd.recording.pipeline import Pipeline
from burnd.records import Quota, Stamp
from burnd.records.codec import decode, encode
from burnd.records.session import ContentMode
from burnd.records.times import to_ms
from burnd.tasks import is_fatal

T = TypeVar("T")
log = structlog.get_logger()

EVERY_S = 5.0
SOON_S = 1.0  # while a claim with a stricter content mode waits for its session
_AWAITED_MS = 600_000
SUFFIX = ".json"
BAD = "bad"
LARGEST = 1 << 20
AT_ONCE = 500
_LEFTOVER_S = 3600
_REASONS_READ = 100  # files in `bad/` whose reason is read
_NOT_PLAIN = {errno.ELOOP, errno.ENXIO, errno.EOPNOTSUPP}  # what opening a link or a socket gives
_FRESH_NS = 2_000_000_000  # clocks of file systems are coarse


class SpoolFile(NamedTuple):
    """`refused` is why it could not be read."""

    name: str
    data: bytes
    mtime_ms: int
    refused: str = ""


class SpoolResult(msgspec.Struct):
    stamps: int = 0
    announcements: int = 0
    bad: int = 0
    refused: str = ""  # it stays in the spool
    claimed: dict[str, str] = {}  # session by claim
    pending: list[str] = []  # claims without a session yet
    waiting: int = 0  # stamps whose session is unknown while old logs are read


class _Announced(ClientRecord, frozen=True):
    v: int
    kind: str
    session_id: str
    source: str
    ts: str | None = None
    content_mode: ContentMode | None = None
    roots: tuple[str, ...] = ()
    is_new: bool | None = None


class _RecordKind(msgspec.Struct):
    kind: str
    v: int


class Spool:
    """Reads the spool, one pass at a time.

    A file is deleted only after its record is durable. Reading one twice changes nothing.
    """

    def __init__(self, folder: Path, pipeline: Pipeline, sources: Iterable[str]) -> None:
        self.folder = folder
        self.blocked = ""
        self.bad = 0  # files in `bad/`
        self.refusals: list[str] = []  # of its refused stamps
        self.pending = 0
        self._awaits = False
        self.waiting = 0
        self.is_reading: Callable[[], bool] = _always  # logs of sessions
        self.is_growing: Callable[[], bool] = _always  # and no source is blocked
        # Sources that are not started yet load announced roots themselves.
        self.on_roots: Callable[[str, list[str]], None] = lambda _source, _roots: None
        self._pipeline = pipeline
        self._sources = frozenset(sources)
        self._changed: int | None = None
        self._lock = anyio.Lock()
        self._thread = anyio.CapacityLimiter(1)

    async def drain(self) -> SpoolResult:
        """Raises NotNow; all files stay then."""
        try:
            return await self._drain()
        except OSError as error:
            what = os.strerror(error.errno or 0)
            raise NotNow(what, str(self.folder), "repair the folder; nothing is lost meanwhile") from error

    async def _drain(self) -> SpoolResult:
        async with self._lock:
            self._pipeline.check_home()
            result = SpoolResult()
            self._changed = _changed_at(self.folder)
            claims: list[tuple[str, SessionClaim]] = []
            after = ""
            while spool_files := await self._in_thread(partial(_read_some, self.folder, after)):
                after = spool_files[-1].name
                claims += await self._process(spool_files, result)
            await self._assign_claims(claims, result)
            self.bad, self.refusals = await self._in_thread(partial(_bad_files, self.folder / BAD))
            self.pending, self.waiting = len(result.pending), result.waiting
            return result

    async def run(self) -> None:
        while True:
            await tasks.sleep_until_tick(SOON_S if self._awaits else EVERY_S)
            self._pipeline.check_home()
            changed = _changed_at(self.folder)
            if self.pending or self.waiting or self.blocked or changed is None or changed != self._changed:
                await self.try_drain()

    async def try_drain(self) -> bool:
        """False if the disk is full or the index damaged. `blocked` has the reason."""
        try:
            result = await self._drain()
        except (NotNow, IndexDamaged) as error:
            self.blocked = error.what
            log.warning("spool.waiting", reason=error.what)
            return False
        except OSError as error:
            self.blocked = os.strerror(error.errno or 0)
            log.error("spool.unreadable", reason=self.blocked)
            return True
        except Exception as error:
            if is_fatal(error):
                raise
            self.blocked = errors.error_types(error)
            log.error("spool.failed", error=self.blocked, where=errors.error_location(error))
            return True
        self.blocked = result.refused
        if self.blocked:
            log.error("spool.unreadable", reason=self.blocked)
        return True

    async def _process(self, spool_files: list[SpoolFile], result: SpoolResult) -> list[tuple[str, SessionClaim]]:
        stamps: dict[str, Stamp] = {}
        quotas: dict[str, Quota] = {}
        claims: list[tuple[str, SessionClaim]] = []
        for item in spool_files:
            if item.refused:
                result.refused = item.refused
                continue
            try:
                record = self._decode(item)
            except (msgspec.MsgspecError, ValueError, RecursionError):
                log.warning("spool.bad", reason="a file could not be used and was moved to bad/")
                await self._in_thread(partial(_move_to_bad, self.folder, item.name))
                result.bad += 1
                continue
            if isinstance(record, Stamp):
                stamps[item.name] = record
            elif isinstance(record, Quota):
                quotas[item.name] = record
            elif isinstance(record, SessionClaim):
                claims.append((item.name, record))
                if record.source is not None and record.roots:
                    self.on_roots(record.source, list(record.roots))
            else:
                await announce(self._pipeline, record)
                self.on_roots(record.source, list(record.roots))
                await self._remove([item.name])
                result.announcements += 1
        stamps = await self._resolve_sessions(stamps, result)
        if stamps:
            await self._pipeline.commit(Batch(entries=list(stamps.values())))
            await self._remove(stamps)
            result.stamps += len(stamps)
        if quotas:
            await Quotas(self._pipeline).record(sorted(quotas.values(), key=lambda quota: quota.ts))
            await self._remove(quotas)
        return claims

    async def _resolve_sessions(self, stamps: dict[str, Stamp], result: SpoolResult) -> dict[str, Stamp]:
        """Completes prefixes of session ids.

        A stamp whose session is uncertain stays in the spool while old logs are read. After that, or if several
        sessions match, it is moved to `bad/` with the reason.
        """
        is_reading = self.is_reading()
        session_ids = {stamp.selector.session_id or "" for stamp in stamps.values()} - {""}
        ask = partial(resolve_stamp_sessions, names=session_ids, is_growing=self.is_growing())
        sessions = await self._pipeline.index.ask(ask, urgent=True) if session_ids else {}
        resolved: dict[str, Stamp] = {}
        for name, stamp in stamps.items():
            session_id = stamp.selector.session_id
            session = sessions[session_id] if session_id is not None else None
            if session_id is None or isinstance(session, str):
                resolved[name] = stamp.of_session(session if isinstance(session, str) else None)
            elif isinstance(session, Refusal):
                await self._refuse(name, stamp, f"{session}: {session.hint}", result)
            elif is_reading:
                result.waiting += 1
            else:
                await self._refuse(name, stamp, no_such_session(session_id), result)
        return resolved

    async def _refuse(self, name: str, stamp: Stamp, reason: str, result: SpoolResult) -> None:
        log.warning("spool.refused", reason=reason)
        await self._in_thread(partial(_refuse, self.folder, name, stamp, reason))
        result.bad += 1

    def _decode(self, item: SpoolFile) -> Stamp | Quota | Announcement | SessionClaim:
        """Raises ValueError."""
        kind = msgspec.json.decode(item.data, type=_RecordKind)
        if kind.v != 1:
            raise ValueError("unknown version")
        if kind.kind in ("stamp", "quota"):
            entry = decode(item.data)
            if isinstance(entry, Stamp | Quota):
                return entry
            raise ValueError("not a record that can be used")
        if kind.kind == "claim":
            return msgspec.json.decode(item.data, type=SessionClaim).checked()
        if kind.kind != "announce":
            raise ValueError("unknown kind")
        record = msgspec.json.decode(item.data, type=_Announced)
        if record.source not in self._sources or not record.session_id or not all(map(os.path.isabs, record.roots)):
            raise ValueError("an announcement of an unknown source or folder")
        at_ms = item.mtime_ms if record.ts is None else to_ms(record.ts)
        return Announcement(
            record.session_id, record.source, at_ms, record.content_mode, record.roots, is_new=record.is_new
        )

    async def _assign_claims(self, claims: list[tuple[str, SessionClaim]], result: SpoolResult) -> None:
        self._awaits = False
        for name, claim in sorted(claims, key=lambda item: (item[1].from_ms, item[0])):
            stem = name.removesuffix(SUFFIX)
            index = self._pipeline.index
            session_id = await claimed_by(index, stem) or claim.session_id or await matching_session(index, claim)
            if session_id is not None:
                await assign(self._pipeline, stem, claim, session_id)
                await self._remove([name])
                result.claimed[stem] = session_id
            elif claim.expires_ms < self._pipeline.now():
                log.info("spool.claim_expired", claim=stem)
                await self._remove([name])
            else:
                result.pending.append(stem)
                is_fresh = self._pipeline.now() - claim.from_ms < _AWAITED_MS
                self._awaits = self._awaits or (claim.content_mode not in (None, "full") and is_fresh)

    async def _remove(self, names: Iterable[str]) -> None:
        def unlink() -> None:
            for name in names:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(self.folder / name)

        await self._in_thread(unlink)

    async def _in_thread(self, work: Callable[[], T]) -> T:
        return await anyio.to_thread.run_sync(work, limiter=self._thread)


def _always() -> bool:
    """Logs are unread as long as there are no sources."""
    return True


def _changed_at(folder: Path) -> int | None:
    """0 without a folder; None if its change is too recent to be relied on."""
    try:
        changed = os.stat(folder).st_mtime_ns
    except FileNotFoundError:
        return 0
    except OSError:
        return None
    return changed if time.time_ns() - changed > _FRESH_NS else None


def _read_some(folder: Path, after: str) -> list[SpoolFile]:
    """By name, which is the order of creation. Half-written files have hidden names."""
    try:
        names = sorted(name for name in os.listdir(folder) if name.endswith(SUFFIX) and name > after)
    except FileNotFoundError:
        return []
    for entry in os.scandir(folder) if not after else ():  # unfinished files of an hour ago
        if entry.name.startswith(".") and entry.is_file(follow_symlinks=False):
            with contextlib.suppress(FileNotFoundError):
                if time.time() - entry.stat(follow_symlinks=False).st_mtime > _LEFTOVER_S:
                    os.unlink(entry.path)
    batch = (_read(folder / name) for name in names if not name.startswith("."))
    return list(islice(filter(None, batch), AT_ONCE))


def _read(path: Path) -> SpoolFile | None:
    """A file that is not regular or is too large reads as empty, which is invalid."""
    try:
        return _read_plain(path)
    except FileNotFoundError:
        return None
    except OSError as error:
        return SpoolFile(path.name, b"", 0, "" if error.errno in _NOT_PLAIN else os.strerror(error.errno or 0))


def _read_plain(path: Path) -> SpoolFile:
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        info = os.fstat(fd)
        is_usable = stat.S_ISREG(info.st_mode) and info.st_size <= LARGEST
        return SpoolFile(path.name, os.read(fd, LARGEST) if is_usable else b"", info.st_mtime_ns // 1_000_000)
    finally:
        os.close(fd)


def _move_to_bad(folder: Path, name: str) -> None:
    files.make_folder(folder / BAD)
    with contextlib.suppress(FileNotFoundError):
        os.replace(folder / name, folder / BAD / name)


def _refuse(folder: Path, name: str, stamp: Stamp, reason: str) -> None:
    """A crash in between leaves both files; it is redone then."""
    files.make_folder(folder / BAD)
    record = msgspec.json.decode(encode(stamp)) | {"refused": reason}
    files.replace_file(folder / BAD / name, msgspec.json.encode(record) + b"\n")
    with contextlib.suppress(FileNotFoundError):
        os.unlink(folder / name)


class _RefusedFile(msgspec.Struct):
    refused: str = ""


def _bad_files(folder: Path) -> tuple[int, list[str]]:
    try:
        names = sorted(os.listdir(folder))
    except (FileNotFoundError, NotADirectoryError):
        return 0, []
    reasons = []
    for name in names[:_REASONS_READ]:
        with contextlib.suppress(OSError, msgspec.MsgspecError, ValueError, RecursionError):
            item = _read_plain(folder / name)
            reasons.append(msgspec.json.decode(item.data, type=_RefusedFile).refused)
    return len(names), list(dict.fromkeys(filter(None, reasons)))
