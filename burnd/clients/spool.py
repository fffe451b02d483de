"""The spool: files in which clients leave word while the daemon is down or busy, taken in without losing any.

A file is deleted only when what it says is durable; taken in twice, it changes nothing.
"""

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

from burnd import failures, tasks
from burnd.clients.announcing import Announcement, announce
from burnd.clients.claims import Claim, ClientRecord, claimed_by, matching, settle
from burnd.errors import IndexDamaged, NotNow
from burnd.ledger import files
from burnd.queries.session_ids import no_such_session, stamped_sessions
from burnd.queries.view import Refusal
from burnd.quota import Quotas
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


class Left(NamedTuple):
    """A file that a client left: its name, its bytes, when it was written, and why it could not be read just now."""

    name: str
    data: bytes
    mtime_ms: int
    refused: str = ""


class Taken(msgspec.Struct):
    """What one look at the spool brought."""

    stamps: int = 0
    announcements: int = 0
    bad: int = 0
    refused: str = ""  # why a file could not be read; it stays
    claimed: dict[str, str] = {}  # the claims that found their session
    pending: list[str] = []  # those that still wait for one
    waiting: int = 0  # stamps whose session is not known yet, while old logs are read


class _Announced(ClientRecord, frozen=True):
    v: int
    kind: str
    session_id: str
    source: str
    ts: str | None = None
    content_mode: ContentMode | None = None
    roots: tuple[str, ...] = ()
    is_new: bool | None = None


class _Kind(msgspec.Struct):
    kind: str
    v: int


class Spool:
    """Takes in what clients left. One look at a time."""

    def __init__(self, folder: Path, pipeline: Pipeline, sources: Iterable[str]) -> None:
        self.folder = folder
        self.blocked = ""
        self.bad = 0  # files put aside so far, those of earlier daemons included
        self.refusals: list[str] = []  # reasons of the refused stamps among them
        self.pending = 0
        self._awaits = False
        self.waiting = 0  # stamps whose session is not known yet
        self.is_reading: Callable[[], bool] = _always  # whether logs of sessions are still to be read
        self.is_growing: Callable[[], bool] = _always  # whether they are being read, and no source is blocked
        self.on_roots: Callable[[str, list[str]], None] = _nobody
        self._pipeline = pipeline
        self._sources = frozenset(sources)
        self._changed: int | None = None
        self._one_at_a_time = anyio.Lock()
        self._thread = anyio.CapacityLimiter(1)

    async def take_in(self) -> Taken:
        """Takes in everything that is there now. Raises NotNow when that cannot be done; then all of it stays."""
        try:
            return await self._take_all_in()
        except OSError as error:
            what = os.strerror(error.errno or 0)
            raise NotNow(what, str(self.folder), "mend the folder; nothing is lost meanwhile") from error

    async def _take_all_in(self) -> Taken:
        async with self._one_at_a_time:
            self._pipeline.check_home()
            taken = Taken()
            self._changed = _changed_at(self.folder)
            claims: list[tuple[str, Claim]] = []
            after = ""
            while left := await self._in_thread(partial(_read_some, self.folder, after)):
                after = left[-1].name
                claims += await self._take(left, taken)
            await self._settle_claims(claims, taken)
            self.bad, self.refusals = await self._in_thread(partial(_bad_files, self.folder / BAD))
            self.pending, self.waiting = len(taken.pending), taken.waiting
            return taken

    async def keep_taking_in(self) -> None:
        """Looks every few seconds, for ever."""
        while True:
            await tasks.sleep_until_tick(SOON_S if self._awaits else EVERY_S)
            self._pipeline.check_home()
            if not self._is_as_it_was_left():
                await self.try_to_take_in()

    async def try_to_take_in(self) -> bool:
        """A look that may fail for want of room or of a sound index, which `blocked` then says."""
        try:
            taken = await self._take_all_in()
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
            self.blocked = failures.error_types(error)
            log.error("spool.failed", error=self.blocked, where=failures.error_location(error))
            return True
        self.blocked = taken.refused
        if self.blocked:
            log.error("spool.unreadable", reason=self.blocked)
        return True

    def _is_as_it_was_left(self) -> bool:
        """Whether nothing came since the last look, and nothing waits: an idle daemon has better things to do."""
        return (
            not (self.pending or self.waiting or self.blocked) and self._changed == _changed_at(self.folder) is not None
        )

    async def _take(self, left: list[Left], taken: Taken) -> list[tuple[str, Claim]]:
        stamps: dict[str, Stamp] = {}
        quotas: dict[str, Quota] = {}
        claims: list[tuple[str, Claim]] = []
        for item in left:
            if item.refused:
                taken.refused = item.refused
                continue
            try:
                said = self._understood(item)
            except (msgspec.MsgspecError, ValueError, RecursionError):
                await self._put_aside(item.name)
                taken.bad += 1
                continue
            if isinstance(said, Stamp):
                stamps[item.name] = said
            elif isinstance(said, Quota):
                quotas[item.name] = said
            elif isinstance(said, Claim):
                claims.append((item.name, said))
                if said.source is not None and said.roots:
                    self.on_roots(said.source, list(said.roots))
            else:
                await announce(self._pipeline, said)
                self.on_roots(said.source, list(said.roots))
                await self._remove([item.name])
                taken.announcements += 1
        stamps = await self._for_known_sessions(stamps, taken)
        if stamps:
            await self._pipeline.commit(Batch(entries=list(stamps.values())))
            await self._remove(stamps)
            taken.stamps += len(stamps)
        if quotas:
            await Quotas(self._pipeline).record(sorted(quotas.values(), key=lambda quota: quota.ts))
            await self._remove(quotas)
        return claims

    async def _for_known_sessions(self, stamps: dict[str, Stamp], taken: Taken) -> dict[str, Stamp]:
        """The stamps with prefixes of session ids replaced by whole ids.

        A stamp whose session is uncertain stays in the spool while old logs are read. After that, or if several
        sessions match, it is moved to `bad/` with the reason.
        """
        is_reading = self.is_reading()
        named = {stamp.selector.session_id or "" for stamp in stamps.values()} - {""}
        ask = partial(stamped_sessions, names=named, is_growing=self.is_growing())
        sessions = await self._pipeline.index.ask(ask) if named else {}
        known: dict[str, Stamp] = {}
        for name, stamp in stamps.items():
            given = stamp.selector.session_id
            session = sessions[given] if given is not None else None
            if given is None or isinstance(session, str):
                known[name] = stamp.of_session(session if isinstance(session, str) else None)
            elif isinstance(session, Refusal):
                await self._refuse(name, stamp, f"{session}: {session.hint}", taken)
            elif is_reading:
                taken.waiting += 1
            else:
                await self._refuse(name, stamp, no_such_session(given), taken)
        return known

    async def _refuse(self, name: str, stamp: Stamp, reason: str, taken: Taken) -> None:
        log.warning("spool.refused", reason=reason)
        await self._in_thread(partial(_refuse, self.folder, name, stamp, reason))
        taken.bad += 1

    def _understood(self, left: Left) -> Stamp | Quota | Announcement | Claim:
        """What a file says. Raises ValueError when nothing can be made of it."""
        kind = msgspec.json.decode(left.data, type=_Kind)
        if kind.v != 1:
            raise ValueError("of a version to come")
        if kind.kind in ("stamp", "quota"):
            entry = decode(left.data)
            if isinstance(entry, Stamp | Quota):
                return entry
            raise ValueError("not a record that can be used")
        if kind.kind == "claim":
            return msgspec.json.decode(left.data, type=Claim).checked()
        if kind.kind == "announce":
            return self._announcement(left)
        raise ValueError("of a kind nobody knows")

    def _announcement(self, left: Left) -> Announcement:
        said = msgspec.json.decode(left.data, type=_Announced)
        if said.source not in self._sources or not said.session_id or not all(map(os.path.isabs, said.roots)):
            raise ValueError("an announcement of nothing we read")
        at_ms = left.mtime_ms if said.ts is None else to_ms(said.ts)
        return Announcement(said.session_id, said.source, at_ms, said.content_mode, said.roots, is_new=said.is_new)

    async def _settle_claims(self, claims: list[tuple[str, Claim]], taken: Taken) -> None:
        """Gives each claim its session, the claim that was made first its choice first."""
        self._awaits = False
        for name, claim in sorted(claims, key=lambda item: (item[1].from_ms, item[0])):
            stem = name.removesuffix(SUFFIX)
            index = self._pipeline.index
            session_id = await claimed_by(index, stem) or claim.session_id or await matching(index, claim)
            if session_id is not None:
                await settle(self._pipeline, stem, claim, session_id)
                await self._remove([name])
                taken.claimed[stem] = session_id
            elif claim.expires_ms < self._pipeline.now():
                log.info("spool.claim_expired", claim=stem)
                await self._remove([name])
            else:
                taken.pending.append(stem)
                is_fresh = self._pipeline.now() - claim.from_ms < _AWAITED_MS
                self._awaits = self._awaits or (claim.content_mode not in (None, "full") and is_fresh)

    async def _remove(self, names: Iterable[str]) -> None:
        await self._in_thread(partial(_unlink, [self.folder / name for name in names]))

    async def _put_aside(self, name: str) -> None:
        log.warning("spool.bad", reason="a file could not be used and was put aside")
        await self._in_thread(partial(_move_aside, self.folder, name))

    async def _in_thread(self, work: Callable[[], T]) -> T:
        return await anyio.to_thread.run_sync(work, limiter=self._thread)


def _always() -> bool:
    """Logs are unread as long as there are no sources."""
    return True


def _nobody(_source: str, _roots: list[str]) -> None:
    """Before there are sources, which find the roots by themselves when they start."""


def _changed_at(folder: Path) -> int | None:
    """When names last came or went in a folder, 0 where there is none; None while that is too fresh to tell by."""
    try:
        changed = os.stat(folder).st_mtime_ns
    except FileNotFoundError:
        return 0
    except OSError:
        return None
    return changed if time.time_ns() - changed > _FRESH_NS else None


def _read_some(folder: Path, after: str) -> list[Left]:
    """Some of the files, in the order of their names, which is that of their making; half-written ones are hidden."""
    try:
        names = sorted(name for name in os.listdir(folder) if name.endswith(SUFFIX) and name > after)
    except FileNotFoundError:
        return []
    if not after:
        _clear_leftovers(folder)
    left = (_read(folder / name) for name in names if not name.startswith("."))
    return list(islice(filter(None, left), AT_ONCE))


def _read(path: Path) -> Left | None:
    """One file; what is no plain file, or too large to be one of ours, reads as empty and is put aside as such."""
    try:
        return _read_plain(path)
    except FileNotFoundError:
        return None
    except OSError as error:
        return Left(path.name, b"", 0, "" if error.errno in _NOT_PLAIN else os.strerror(error.errno or 0))


def _read_plain(path: Path) -> Left:
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        found = os.fstat(fd)
        may_be_ours = stat.S_ISREG(found.st_mode) and found.st_size <= LARGEST
        return Left(path.name, os.read(fd, LARGEST) if may_be_ours else b"", found.st_mtime_ns // 1_000_000)
    finally:
        os.close(fd)


def _clear_leftovers(folder: Path) -> None:
    """Files that a client began and never finished, an hour ago or more."""
    for entry in os.scandir(folder):
        if entry.name.startswith(".") and entry.is_file(follow_symlinks=False):
            with contextlib.suppress(FileNotFoundError):
                if _age_s(entry) > _LEFTOVER_S:
                    os.unlink(entry.path)


def _age_s(entry: os.DirEntry[str]) -> float:
    return time.time() - entry.stat(follow_symlinks=False).st_mtime


def _unlink(paths: Iterable[Path]) -> None:
    for path in paths:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)


def _move_aside(folder: Path, name: str) -> None:
    files.make_folder(folder / BAD)
    with contextlib.suppress(FileNotFoundError):
        os.replace(folder / name, folder / BAD / name)


def _refuse(folder: Path, name: str, stamp: Stamp, reason: str) -> None:
    """Moves a stamp to `bad/` with the reason in its file. A crash in between leaves both files; it is redone then."""
    files.make_folder(folder / BAD)
    record = msgspec.json.decode(encode(stamp)) | {"refused": reason}
    files.replace_file(folder / BAD / name, msgspec.json.encode(record) + b"\n")
    with contextlib.suppress(FileNotFoundError):
        os.unlink(folder / name)


class _Refused(msgspec.Struct):
    refused: str = ""


def _bad_files(folder: Path) -> tuple[int, list[str]]:
    """The number of files in `bad/`, and the reasons in the first of them."""
    try:
        names = sorted(os.listdir(folder))
    except (FileNotFoundError, NotADirectoryError):
        return 0, []
    reasons = []
    for name in names[:_REASONS_READ]:
        with contextlib.suppress(OSError, msgspec.MsgspecError, ValueError, RecursionError):
            left = _read_plain(folder / name)
            reasons.append(msgspec.json.decode(left.data, type=_Refused).refused)
    return len(names), list(dict.fromkeys(filter(None, reasons)))
