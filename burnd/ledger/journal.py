"""The ledger: an append-only file of whole lines, repaired at its end when opened; and the identity of its entries."""

from __future__ import annotations

import contextlib
import hashlib
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
    """What makes two lines be about the same thing, so that the later one counts.

    Every stamp and quota counts for itself; only the very same one said twice, as by a retry, counts once.
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
        # A fork repeats them with the same uuid; an id made from a place in a file means nothing elsewhere.
        where = (entry.session_id, entry.rail_id) if entry.id.startswith("@") else ()
        return (kind_of(entry), entry.source, entry.id, *where)
    return (kind_of(entry), str(digest(entry)))


def outranks(old: Entry, new: Entry) -> bool:
    """Whether what is known stays, though something else is said of the same thing.

    Several logs may hold the same event: it is that of one which does not repeat another's, told at the earliest time,
    and in the conversation itself rather than in an agent's log of it. A withdrawn request stays withdrawn when
    its log is read again; the earlier of two times counts.
    """
    if isinstance(old, Compaction | Event) and isinstance(new, Compaction | Event):
        return _claim(old) < _claim(new)
    if isinstance(old, Request) and isinstance(new, Request):
        return (not old.withdrawn, index_ms(old.ts)) < (not new.withdrawn, index_ms(new.ts))
    return False


def _claim(said: Compaction | Event) -> tuple[bool, int, str, bool, str]:
    return (said.copied, index_ms(said.ts), said.session_id, said.rail_id != MAIN, said.rail_id)


def lineage(session_id: str, parents: Mapping[str, str]) -> list[str]:
    """A session's ancestors from the root down to itself; a cycle, which only damage could make, ends it."""
    chain = [session_id]
    while (parent := parents.get(chain[-1])) is not None and parent not in chain:
        chain.append(parent)
    return chain[::-1]


TORN_KEPT = 1 << 20
_LONGEST_ANCHOR = 64 << 10


class Logged(NamedTuple):
    """An entry and the position of its line."""

    position: int
    length: int
    entry: Entry | Skipped


class Journal:
    """The one writer of a ledger. `torn` is the number of bytes of an unfinished line that were cut at opening."""

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
        if not lines:
            return []
        position = self._file.append(b"".join(lines))
        positions = []
        for line in lines:
            positions.append(position)
            position += len(line)
        return positions

    def take_back(self, position: int) -> None:
        """Cuts the lines from this position on, after a change that could not be completed."""
        self.check()
        self._file.cut(position)

    def read(self, start: int = 0, stop: int | None = None) -> Iterator[Logged]:
        """Every whole line that begins in [start, stop), decoded, the unusable ones with their reason."""
        for position, length, line in read_lines(self.path, start, stop):
            yield Logged(position, length, decode(line))

    def entry_at(self, position: int, length: int) -> Entry:
        entry = decode(self._file.read_at(position, length))
        if isinstance(entry, Skipped):
            raise StorageError(f"no record can be read at byte {position}", str(self.path))
        return entry

    def anchor(self, position: int) -> str:
        """A hash of the line that ends at `position`, by which the index recognises its ledger."""
        begin = max(0, position - _LONGEST_ANCHOR)
        before = self._file.read_at(begin, position - begin)
        return hashlib.blake2b(before[before.rfind(b"\n", 0, -1) + 1 :], digest_size=16).hexdigest()

    def is_known_by(self, position: int, anchor: str | None) -> bool:
        """Whether this ledger has that anchor at this position."""
        return position == 0 or (position <= self.end and self.anchor(position) == anchor)

    def rewrite(self, change: Callable[[Entry], Entry]) -> int:
        """Replaces the ledger atomically by one with every entry changed; returns the number of changes."""
        changed = self.write_beside(change)
        if changed:
            self.put_in_place()
        return changed

    def write_beside(self, change: Callable[[Entry], Entry], passed: Callable[[int], None] = lambda _: None) -> int:
        """Writes a ledger with every entry changed beside this one; unusable lines stay.

        Returns the number of changes; if there are none, nothing is left there. `passed` is called with the progress.
        """
        rewriting = _Rewriting(self._file, change)
        beside = files.AppendFile(files.clear_replacement(self.path))
        try:
            _write_in_batches(beside, (rewriting.line(*found) for found in read_lines(self.path)), passed)
        except BaseException:
            files.clear_replacement(self.path)
            raise
        finally:
            beside.close()
        if not rewriting.changed:
            files.clear_replacement(self.path)
        return rewriting.changed

    def put_in_place(self) -> None:
        """Swaps in the ledger that was written beside this one."""
        files.take_replacement(self.path)
        old, self._file = self._file, files.AppendFile(self.path)
        old.close()

    def close(self) -> None:
        self._file.close()

    def _cut_torn_tail(self, now_ms: int) -> int:
        whole = last_newline(self._file.fd, self._file.end)
        torn = self._file.end - whole
        if torn:
            kept = self._file.read_at(whole, min(torn, TORN_KEPT))
            # Keeping a copy is a courtesy; a disk too full for it must not keep the ledger from healing.
            with contextlib.suppress(StorageError):
                files.replace_file(self.path.with_name(f"ledger.torn-{now_ms}"), kept)
            self._file.cut(whole)
        return torn


class _Rewriting:
    """Changes lines one by one and counts those that came out different."""

    def __init__(self, file: files.AppendFile, change: Callable[[Entry], Entry]) -> None:
        self.changed = 0
        self._file = file
        self._change = change

    def line(self, position: int, length: int, line: bytes) -> bytes:
        entry = decode(line)
        if isinstance(entry, Skipped):
            return self._file.read_at(position, length)  # a line too long to be handed out is kept as well
        new = self._change(entry)
        if new is entry:
            return line
        self.changed += 1
        return encode_over(line, new)


def _write_in_batches(new: files.AppendFile, lines: Iterable[bytes], passed: Callable[[int], None]) -> None:
    batch: list[bytes] = []
    size = 0
    for line in lines:
        batch.append(line)
        size += len(line)
        if size >= 1 << 20:
            passed(new.extend(b"".join(batch)))
            batch, size = [], 0
    new.append(b"".join(batch))
