"""Sidecars: one file of content lines for each session, grown by whole batches across many sessions."""

from __future__ import annotations

import contextlib
import os
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from burnd.errors import FileReplaced
from burnd.ledger import files
from burnd.ledger.lines import last_newline, read_lines
from burnd.records.codec import Skipped, decode_content
from burnd.records.ids import file_stem
from burnd.records.times import to_ms

SUFFIX = ".jsonl"
_OPEN_AT_MOST = 64


class Sidecar(NamedTuple):
    """A sidecar as a directory listing tells of it."""

    path: Path
    size: int
    mtime_ms: int


class Sidecars:
    """The folder of sidecars and the descriptors of those written last."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._open: OrderedDict[str, files.AppendFile] = OrderedDict()
        self._has_new_names = False

    def path(self, session_id: str) -> Path:
        """Where a session's content is; whatever the id, it is a file directly inside the folder."""
        return self.folder / (file_stem(session_id) + SUFFIX)

    def append(self, batch: Mapping[str, Sequence[bytes]], newest_ms: Mapping[str, int]) -> dict[str, int]:
        """Makes every session's lines durable, or none of them; returns where each session's begin."""
        try:
            return self._append(batch, newest_ms)
        except FileReplaced:
            return self._append(batch, newest_ms)  # somebody changed a sidecar; it is opened anew

    def _append(self, batch: Mapping[str, Sequence[bytes]], newest_ms: Mapping[str, int]) -> dict[str, int]:
        grown: dict[str, tuple[int, int]] = {}
        dates: dict[str, int] = {}
        try:
            for session_id, lines in batch.items():
                file, data = self._file(session_id), b"".join(lines)
                dates[session_id] = self.mtime_ms(session_id)
                grown[session_id] = (file.end, file.end + len(data))
                file.extend(data)
            for session_id, (start, _) in grown.items():
                self._file(session_id).sync(start)
            self._sync_names()
        except BaseException:
            self._take_back(grown, dates)
            raise
        for session_id, date in dates.items():
            self.set_mtime(session_id, max(date, newest_ms[session_id]))
        return {session_id: start for session_id, (start, _) in grown.items()}

    def list(self) -> Iterator[Sidecar]:
        """Every sidecar there is; foreign files and links are passed over."""
        with contextlib.suppress(FileNotFoundError), os.scandir(self.folder) as entries:
            for entry in entries:
                if entry.name.endswith(SUFFIX) and entry.is_file(follow_symlinks=False):
                    facts = entry.stat(follow_symlinks=False)
                    yield Sidecar(Path(entry.path), facts.st_size, facts.st_mtime_ns // 1_000_000)

    def session_of(self, path: Path) -> str | None:
        """Whose sidecar this is, or None for a stray file. A name made by hashing is told by its lines."""
        stem = path.name.removesuffix(SUFFIX)
        if file_stem(stem) == stem:
            return stem
        for _, _, line in read_lines(path):
            record = decode_content(line)
            if not isinstance(record, Skipped):
                return record.session_id if self.path(record.session_id) == path else None
        return None

    def size(self, session_id: str) -> int:
        try:
            return os.lstat(self.path(session_id)).st_size
        except FileNotFoundError:
            return 0

    def mtime_ms(self, session_id: str) -> int:
        """The time of a session's newest record, 0 when it has none."""
        try:
            facts = os.lstat(self.path(session_id))
        except FileNotFoundError:
            return 0
        return facts.st_mtime_ns // 1_000_000 if facts.st_size else 0

    def set_mtime(self, session_id: str, ms: int) -> None:
        os.utime(self.path(session_id), ns=(ms * 1_000_000, ms * 1_000_000), follow_symlinks=False)

    def remove(self, session_id: str) -> int:
        """Deletes a session's sidecar; returns how many bytes that freed."""
        self._forget_open(session_id)
        size = self.size(session_id)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.path(session_id))
        return size

    def close(self) -> None:
        for file in self._open.values():
            file.close()
        self._open.clear()

    def _file(self, session_id: str) -> files.AppendFile:
        file = self._open.get(session_id)
        if file is None:
            files.make_folder(self.folder)
            file = files.AppendFile(self.path(session_id), name_later=True)
            self._has_new_names |= file.is_new
            if _cut_torn_tail(file):
                self.set_mtime(session_id, _newest_in(file.path))
            self._open[session_id] = file
            self._close_oldest()
        self._open.move_to_end(session_id)
        return file

    def _sync_names(self) -> None:
        """Once for all sidecars of a batch that are new: a first start makes thousands."""
        if self._has_new_names:
            files.sync_folder(self.folder)
            self._has_new_names = False

    def _close_oldest(self) -> None:
        while len(self._open) > _OPEN_AT_MOST:
            self._open.popitem(last=False)[1].close()

    def _forget_open(self, session_id: str) -> None:
        if (file := self._open.pop(session_id, None)) is not None:
            file.close()

    def _take_back(self, grown: Mapping[str, tuple[int, int]], dates: Mapping[str, int]) -> None:
        """Makes every sidecar as long and as old as it was. Each is opened anew: it may have been replaced.

        One that is longer than we can have made it was written by somebody else, and is left alone.
        """
        for session_id, (start, end) in grown.items():
            self._forget_open(session_id)
            file = self._file(session_id)
            if start < file.end <= end:
                file.cut(start)
                self.set_mtime(session_id, dates[session_id])


def _cut_torn_tail(file: files.AppendFile) -> bool:
    """Content whose line was cut by a crash is read again from its source, so nothing needs keeping aside."""
    whole = last_newline(file.fd, file.end)
    if whole == file.end:
        return False
    file.cut(whole)
    return True


def _newest_in(path: Path) -> int:
    records = (decode_content(line) for _, _, line in read_lines(path))
    return max((to_ms(record.ts) for record in records if not isinstance(record, Skipped)), default=0)
