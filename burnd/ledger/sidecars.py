"""Sidecars: a file of content lines per session. A batch is appended to many of them, or to none."""

from __future__ import annotations

import contextlib
import os
import stat
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from burnd.errors import FileReplaced, NotAllowed, NotNow
from burnd.ledger import files
from burnd.ledger.lines import last_newline, read_lines
from burnd.records.codec import Skipped, decode_content
from burnd.records.names import file_stem
from burnd.records.times import index_ms

SUFFIX = ".jsonl"
_ASIDE = ".aside"
_MOST_OPEN = 64
_SYNC_THREADS = 8


class Sidecar(NamedTuple):
    path: Path
    size: int
    mtime_ms: int  # of its newest record, or of its writing if that is earlier
    changed_ms: int  # when the file itself was last changed


class _Growth(NamedTuple):
    """The range appended to a sidecar, and its mtime before, for undo."""

    start: int
    end: int
    mtime_ms: int


class Sidecars:
    """The folder of sidecars, and the open files of those written last."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.unreadable: dict[Path, str] = {}  # path -> reason
        self._open: OrderedDict[str, files.AppendFile] = OrderedDict()
        self._has_new_names = False

    def path(self, session_id: str) -> Path:
        """The sidecar of a session: a file directly in the folder, whatever the id contains."""
        return self.folder / (file_stem(session_id) + SUFFIX)

    def ends(self, session_ids: Iterable[str]) -> dict[str, int]:
        """The position at which the next line of each session will be."""
        ends = {}
        files.make_folder(self.folder)
        for session_id in session_ids:
            try:
                self._file(session_id).check_untouched()
            except FileReplaced:  # by another program: it is opened again
                self._forget_open(session_id)
            ends[session_id] = self._file(session_id).end
        return ends

    def append(
        self, batch: Mapping[str, Sequence[bytes]], newest_ms: Mapping[str, int], starts: Mapping[str, int]
    ) -> None:
        """Appends lines durably to all sessions, or to none. Raises FileReplaced if a length differs from `starts`."""
        growth: dict[str, _Growth] = {}
        waiting = iter(batch.items())
        try:
            while some := list(islice(waiting, _MOST_OPEN)):
                self._append_some(some, newest_ms, starts, growth)
            if self._has_new_names:  # synced once for a batch: a first start creates thousands
                files.sync_folder(self.folder)
                self._has_new_names = False
        except BaseException:
            self._undo(growth)
            raise

    def _append_some(
        self,
        some: list[tuple[str, Sequence[bytes]]],
        newest_ms: Mapping[str, int],
        starts: Mapping[str, int],
        growth: dict[str, _Growth],
    ) -> None:
        """Appends to a few sessions; adds each to `growth` before it is written."""
        opened: list[tuple[files.AppendFile, _Growth]] = []
        for session_id, lines in some:
            file, data = self._file(session_id), b"".join(lines)
            if file.end != starts[session_id]:
                fault = f"is {file.end} bytes long, not {starts[session_id]}"
                raise FileReplaced(fault, str(file.path), "stop the program that writes to it; burnd reads it again")
            mtime_ms = os.fstat(file.fd).st_mtime_ns // 1_000_000 if file.end else 0
            change = growth[session_id] = _Growth(file.end, file.end + len(data), mtime_ms)
            opened.append((file, change))
            file.extend(data)
        if len(opened) <= _SYNC_THREADS:
            for file, change in opened:
                file.sync(change.start)
        else:  # the disk syncs several as quickly as one
            with ThreadPoolExecutor(_SYNC_THREADS) as pool:
                list(pool.map(lambda one: one[0].sync(one[1].start), opened))
        for (file, change), (session_id, _) in zip(opened, some, strict=True):
            _set_mtime(file, max(change.mtime_ms, newest_ms[session_id]))

    def scan(self) -> Iterator[Sidecar]:
        """Yields all sidecars, without links and foreign files."""
        with contextlib.suppress(FileNotFoundError), os.scandir(self.folder) as entries:
            for entry in entries:
                if entry.name.endswith(SUFFIX) and entry.is_file(follow_symlinks=False):
                    status = entry.stat(follow_symlinks=False)
                    _restore_mode(entry.path, status)
                    times = status.st_mtime_ns // 1_000_000, status.st_ctime_ns // 1_000_000
                    yield Sidecar(Path(entry.path), status.st_size, *times)

    def session_of(self, path: Path) -> str | None:
        """The session of a sidecar; None for a stray file. If its name is a hash, its lines name the session."""
        stem = path.name.removesuffix(SUFFIX)
        if file_stem(stem) == stem:
            return stem
        with self.skip_damage(path):
            for _, _, line in read_lines(path):
                record = decode_content(line)
                if not isinstance(record, Skipped):
                    return record.session_id if self.path(record.session_id) == path else None
        return None

    @contextlib.contextmanager
    def skip_damage(self, path: Path) -> Iterator[None]:
        """Suppresses read errors, as of a bad sector, and adds them to `unreadable`. Raises NotNow if a retry helps."""
        try:
            yield
        except FileNotFoundError:
            return
        except OSError as error:
            failure = files.as_storage_error(error, path)
            if isinstance(failure, NotNow) and not isinstance(failure, NotAllowed):
                raise failure from error
            self.unreadable[path] = failure.what

    def has(self, session_id: str) -> bool:
        """Whether a session has a sidecar that is a regular file."""
        return _is_file(self.path(session_id))

    def size(self, session_id: str) -> int:
        try:
            return os.lstat(self.path(session_id)).st_size
        except FileNotFoundError:
            return 0

    def mtime_ms(self, session_id: str) -> int:
        """The time of a session's newest record, 0 when it has none."""
        try:
            status = os.lstat(self.path(session_id))
        except FileNotFoundError:
            return 0
        return status.st_mtime_ns // 1_000_000 if status.st_size else 0

    def set_mtime(self, session_id: str, ms: int) -> None:
        os.utime(self.path(session_id), ns=(ms * 1_000_000, ms * 1_000_000), follow_symlinks=False)

    def remove(self, session_id: str) -> int:
        self._forget_open(session_id)
        size = self.size(session_id)
        own = self.path(session_id)
        for path in (own, _aside(own), files.replacement_path(own)):
            with contextlib.suppress(FileNotFoundError, IsADirectoryError):
                os.unlink(path)
            self.unreadable.pop(path, None)
        return size

    def replace(self, session_id: str, lines: Sequence[bytes], newest_ms: int) -> None:
        """Atomically replaces a session's sidecar by one with only these lines."""
        self._forget_open(session_id)
        path = self.path(session_id)
        with files.replacement(path) as new:
            new.append(b"".join(lines))
            _set_mtime(new, newest_ms)

    def remove_asides(self, before_ms: int) -> None:
        """Deletes renamed unreadable sidecars whose newest record is older."""
        with contextlib.suppress(FileNotFoundError), os.scandir(self.folder) as entries:
            asides = [entry for entry in entries if entry.name.endswith(SUFFIX + _ASIDE)]
            for entry in asides:
                if entry.stat(follow_symlinks=False).st_mtime_ns < before_ms * 1_000_000 and not entry.is_dir():
                    os.unlink(entry.path)
                    self.unreadable.pop(Path(entry.path), None)

    def close(self) -> None:
        for file in self._open.values():
            file.close()
        self._open.clear()

    def _file(self, session_id: str) -> files.AppendFile:
        file = self._open.get(session_id)
        if file is None:
            file = self._opened(self.path(session_id))
            self._has_new_names |= file.is_new
            self._open[session_id] = file
            while len(self._open) > _MOST_OPEN:
                self._open.popitem(last=False)[1].close()
        self._open.move_to_end(session_id)
        return file

    def _opened(self, path: Path) -> files.AppendFile:
        """Opens a sidecar for writing and removes an unfinished line, which is read again from its log.

        Renames a link or folder at its path, since one session must not stop all others. Renames an unreadable one and
        raises NotNow: the retry writes a new sidecar, after the rows of the old one were deleted from the index.
        """
        files.make_folder(self.folder)
        with contextlib.suppress(FileNotFoundError):
            status = os.lstat(path)
            if stat.S_ISREG(status.st_mode):
                _restore_mode(path, status)
            else:
                os.replace(path, _aside(path))
        file = files.AppendFile(path, name_later=True)
        try:
            whole = last_newline(file.fd, file.end)
            if whole < file.end:
                file.cut(whole)
                records = (decode_content(line) for _, _, line in read_lines(path))
                times = [index_ms(record.ts) for record in records if not isinstance(record, Skipped)]
                _set_mtime(file, max(times, default=0))
        except OSError as error:
            file.close()
            failure = files.as_storage_error(error, path)
            if isinstance(failure, NotNow):
                raise failure from error
            os.replace(path, _aside(path))
            self.unreadable.pop(path, None)
            self.unreadable[_aside(path)] = failure.what
            raise NotNow(f"{failure.what}; renamed", str(path), "nothing to do: a new one is created") from error
        return file

    def _forget_open(self, session_id: str) -> None:
        if (file := self._open.pop(session_id, None)) is not None:
            file.close()

    def _undo(self, growth: Mapping[str, _Growth]) -> None:
        """Undoes an append: truncates and restores mtimes. Leaves a file that another program extended."""
        for session_id, change in growth.items():
            self._forget_open(session_id)  # it may have been replaced
            file = self._file(session_id)
            if change.start < file.end <= change.end:
                file.cut(change.start)
                _set_mtime(file, change.mtime_ms)


def _is_file(path: Path) -> bool:
    try:
        return stat.S_ISREG(os.lstat(path).st_mode)
    except FileNotFoundError:
        return False


def _aside(path: Path) -> Path:
    return path.with_name(path.name + _ASIDE)


def _restore_mode(path: Path | str, status: os.stat_result) -> None:
    """Makes an own file readable and writable again."""
    if status.st_uid == os.geteuid() and status.st_mode & files.FILE_MODE != files.FILE_MODE:
        with contextlib.suppress(OSError):  # the next read or write fails then
            os.chmod(path, files.FILE_MODE)


def _set_mtime(file: files.AppendFile, ms: int) -> None:
    os.utime(file.fd, ns=(ms * 1_000_000, ms * 1_000_000))
