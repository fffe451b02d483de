"""The ledger: an append-only file of lines, repaired at its end when opened, and the identity of its entries."""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from burnd.errors import StorageError
from burnd.ledger import files
from burnd.ledger.lines import last_newline, read_lines
from burnd.records import Compaction, Copy, Event, Origin, Overhead, Prune, Request, Session, Turn
from burnd.records.codec import Entry, Skipped, decode, digest, encode_over, kind_of
from burnd.records.content import MAIN
from burnd.records.times import index_ms

Key = tuple[str, ...]


def identity(entry: Entry) -> Key:
    """The key of an entry: of two entries with the same key the later one counts.

    Stamps and quotas are identified by all of their fields, so that only exact repeats, as of a retry, are dropped.
    """
    if isinstance(entry, Turn):
        return ("turn", entry.source, entry.message_id)
    if isinstance(entry, Copy):
        return ("copy", entry.source, entry.message_id, entry.session_id, entry.rail_id)
    if isinstance(entry, Session | Prune):
        return (kind_of(entry), entry.session_id)
    if isinstance(entry, Origin):
        return ("origin", entry.session_id, entry.origin)
    if isinstance(entry, Overhead):
        return ("overhead", entry.source, entry.session_id, entry.ts)
    if isinstance(entry, Request):
        return ("request", entry.source, entry.id)
    if isinstance(entry, Compaction | Event):
        # Forks repeat them with the same uuid. Ids with @ are positions in a file, unique only in their rail.
        where = (entry.session_id, entry.rail_id) if entry.id.startswith("@") else ()
        return (kind_of(entry), entry.source, entry.id, *where)
    return (kind_of(entry), str(digest(entry)))


def outranks(old: Entry, new: Entry) -> bool:
    """Whether the recorded entry stays although a later one with the same identity differs.

    Of an event in several logs, the original wins over copies, then the earliest, then that of the main rail. A
    withdrawn request stays withdrawn when its log is read again; of two requests the earlier one stays.
    """
    if isinstance(old, Compaction | Event) and isinstance(new, Compaction | Event):
        return _priority(old) < _priority(new)
    if isinstance(old, Request) and isinstance(new, Request):
        return (not old.withdrawn, index_ms(old.ts)) < (not new.withdrawn, index_ms(new.ts))
    return False


def _priority(event: Compaction | Event) -> tuple[bool, int, str, bool, str]:
    return (event.copied, index_ms(event.ts), event.session_id, event.rail_id != MAIN, event.rail_id)


def lineage(session_id: str, parents: Mapping[str, str]) -> list[str]:
    """A session's ancestors from the root down to itself. Stops at a cycle."""
    chain = [session_id]
    while (parent := parents.get(chain[-1])) is not None and parent not in chain:
        chain.append(parent)
    return chain[::-1]


_MOST_TORN_BYTES = 1 << 20
_LONGEST_ANCHOR = 64 << 10


class Logged(NamedTuple):
    position: int
    length: int
    entry: Entry | Skipped


class Journal:
    """The only writer of a ledger. `torn` is the number of bytes of an unfinished line that were cut at opening."""

    def __init__(self, path: Path, now_ms: int) -> None:
        self.path = path
        files.clear_replacement(path)
        self._file = files.AppendFile(path)
        try:
            self.torn = self._cut_torn_tail(now_ms)
        except OSError as error:
            self.close()
            raise files.as_storage_error(error, path) from error

    @property
    def end(self) -> int:
        return self._file.end

    def check(self) -> None:
        """Raises FileReplaced if another program replaced or changed the ledger."""
        self._file.check_untouched()

    def append(self, lines: Sequence[bytes]) -> list[int]:
        """Makes the lines durable in one write and one sync; returns the position of each."""
        positions = self.positions(lines)
        if lines:
            self._file.append(b"".join(lines))
        return positions

    def positions(self, lines: Sequence[bytes]) -> list[int]:
        """Where these lines will be if they are the next."""
        position, positions = self.end, []
        for line in lines:
            positions.append(position)
            position += len(line)
        return positions

    def take_back(self, position: int) -> None:
        """Removes the lines from this position on, after a failed change."""
        self.check()
        self._file.cut(position)

    def read(self, start: int = 0, stop: int | None = None) -> Iterator[Logged]:
        """Decodes every whole line that begins in [start, stop); a malformed one becomes Skipped."""
        for position, length, line in read_lines(self.path, start, stop):
            yield Logged(position, length, decode(line))

    def entry_at(self, position: int, length: int) -> Entry:
        entry = decode(os.pread(self._file.fd, length, position))
        if isinstance(entry, Skipped):
            raise StorageError(f"no readable record at byte {position}", str(self.path))
        return entry

    def end_and_anchor(self) -> tuple[int, str]:
        end = self._file.end
        return end, self.anchor(end)

    def anchor(self, position: int) -> str:
        """A hash of the line that ends at `position`, by which the index recognises its ledger."""
        begin = max(0, position - _LONGEST_ANCHOR)
        before = os.pread(self._file.fd, position - begin, begin)
        return hashlib.blake2b(before[before.rfind(b"\n", 0, -1) + 1 :], digest_size=16).hexdigest()

    def has_anchor(self, position: int, anchor: str | None) -> bool:
        """Whether this ledger has that anchor at this position."""
        return position == 0 or (position <= self.end and self.anchor(position) == anchor)

    def rewrite(self, change: Callable[[Entry], Entry]) -> int:
        """Replaces the ledger atomically by one with every entry changed; returns the number of changes."""
        changed = self.write_replacement(change)
        if changed:
            self.commit_replacement()
        return changed

    def write_replacement(
        self, change: Callable[[Entry], Entry], on_progress: Callable[[int], None] = lambda _: None
    ) -> int:
        """Writes a replacement with every entry changed; malformed lines stay.

        Returns the number of changes; without any there is no replacement. `on_progress` gets byte positions.
        """
        rewriter = _Rewriter(self._file, change)
        new = files.AppendFile(files.clear_replacement(self.path))
        try:
            _write_in_batches(new, (rewriter.line(*line) for line in read_lines(self.path)), on_progress)
        except BaseException:
            files.clear_replacement(self.path)
            raise
        finally:
            new.close()
        if not rewriter.changed:
            files.clear_replacement(self.path)
        return rewriter.changed

    def commit_replacement(self) -> None:
        files.commit_replacement(self.path)
        old, self._file = self._file, files.AppendFile(self.path)
        old.close()

    def close(self) -> None:
        self._file.close()

    def _cut_torn_tail(self, now_ms: int) -> int:
        whole = last_newline(self._file.fd, self._file.end)
        torn = self._file.end - whole
        if torn:
            tail = os.pread(self._file.fd, min(torn, _MOST_TORN_BYTES), whole)
            # The copy is optional: the ledger must be repaired on a full disk too.
            with contextlib.suppress(StorageError):
                files.replace_file(self.path.with_name(f"ledger.torn-{now_ms}"), tail)
            self._file.cut(whole)
        return torn


class _Rewriter:
    def __init__(self, file: files.AppendFile, change: Callable[[Entry], Entry]) -> None:
        self.changed = 0
        self._file = file
        self._change = change

    def line(self, position: int, length: int, line: bytes) -> bytes:
        entry = decode(line)
        if isinstance(entry, Skipped):
            return os.pread(self._file.fd, length, position)  # `line` is empty if too long
        new = self._change(entry)
        if new is entry:
            return line
        self.changed += 1
        return encode_over(line, new)


def _write_in_batches(new: files.AppendFile, lines: Iterable[bytes], on_progress: Callable[[int], None]) -> None:
    batch: list[bytes] = []
    size = 0
    for line in lines:
        batch.append(line)
        size += len(line)
        if size >= 1 << 20:
            on_progress(new.extend(b"".join(batch)))
            batch, size = [], 0
    new.append(b"".join(batch))
