"""A connection to opencode's database that leaves no trace: read-only, short, and given up as soon as it is quiet.

SQLite's readers of a database with a write-ahead log make the log's files where there are none, and leave them. So a
database whose log is not there, which nobody has open, is read as one that cannot change, and what was read counts
only if it did not change meanwhile. With a connection open nobody else could take the database for himself, so it is
kept only while rows keep coming.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from burnd.index.reading import read_only
from burnd.records.foreign_json import WHOLE_BYTES

_PATIENCE_S = 0.25
_HEADER = 20
_WAL_FORMAT = 2


class Disturbed(Exception):
    """Raised when what was just read counts for nothing, as a database changed or is locked meanwhile: read again."""


class Signature(NamedTuple):
    """What the file system tells of a database and its log; any change of the rows changes it."""

    dev: int
    ino: int
    size: int
    mtime_ns: int
    log: tuple[int, int, int] | None

    @property
    def identity(self) -> tuple[int, int]:
        return (self.dev, self.ino)


class Version(NamedTuple):
    """A state of the rows. SQLite counts the changes that others make for each connection anew."""

    connection: int
    state: object

    def was_written_since(self, earlier: Version) -> bool:
        """Whether it is sure to have changed; of two connections' counts nobody can tell."""
        return self.connection == earlier.connection and self.state != earlier.state


class Database:
    """One database file. Used by one thread at a time."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._openings = 0
        self._kept: sqlite3.Connection | None = None
        self._kept_identity: tuple[int, int] | None = None
        self.identity = (0, 0)  # of the file that was opened last

    @property
    def is_kept(self) -> bool:
        """Whether a connection is open."""
        return self._kept is not None

    def signature(self) -> Signature | None:
        """None where there is no database."""
        try:
            facts = os.stat(self.path)
        except OSError:
            return None
        return Signature(facts.st_dev, facts.st_ino, facts.st_size, facts.st_mtime_ns, _log_of(self.path))

    @contextlib.contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """A connection to read with. Raises FileNotFoundError, Disturbed or what SQLite raises."""
        before = self.signature()
        if before is None:
            self.rest()
            raise FileNotFoundError(self.path)
        self.identity = before.identity
        if before.log is None and not self._has_open(before) and self._is_unopened_log():
            with self._reading_unchanging(before) as db:
                yield db
        else:
            with self._reading_along(before) as db:
                yield db

    def version(self, db: sqlite3.Connection) -> Version:
        """Something that stays the same while nothing is written. `db` is the connection that is being read with."""
        if db is not self._kept:
            return Version(0, self.signature())
        return Version(self._openings, db.execute("PRAGMA data_version").fetchone()[0])

    def rest(self) -> None:
        """Lets go of the connection; the next reading opens another."""
        if self._kept is not None:
            self._kept.close()
            self._kept = None

    @contextlib.contextmanager
    def _reading_unchanging(self, before: Signature) -> Iterator[sqlite3.Connection]:
        with contextlib.closing(self._connect("&immutable=1")) as db:
            try:
                yield db
            except sqlite3.Error as error:
                if self.signature() != before:
                    raise Disturbed from error
                raise
        if self.signature() != before:
            raise Disturbed

    @contextlib.contextmanager
    def _reading_along(self, before: Signature) -> Iterator[sqlite3.Connection]:
        if not self._has_open(before):
            self.rest()
        try:
            if self._kept is None:
                self._kept = self._connect()
                self._kept_identity = before.identity
                self._take_hold(self._kept, before)
            yield self._kept
        except sqlite3.Error as error:
            self.rest()
            now = self.signature()
            if now is None or now.identity != before.identity:
                raise Disturbed from error
            raise
        except BaseException:
            self.rest()
            raise

    def _take_hold(self, db: sqlite3.Connection, before: Signature) -> None:
        """Reads at once, while the log is sure to be there: the last one to close the database may just remove it."""
        if before.log is not None and _log_of(self.path) is None:
            raise Disturbed
        db.execute("SELECT 1 FROM sqlite_schema LIMIT 1").fetchone()

    def _has_open(self, signature: Signature) -> bool:
        return self._kept is not None and self._kept_identity == signature.identity

    def _connect(self, how: str = "") -> sqlite3.Connection:
        self._openings += 1
        return _connect(read_only(Path(self.path)) + how)

    def _is_unopened_log(self) -> bool:
        """Whether this is a database with a write-ahead log, without its log: only then is reading it a risk.

        Looked up in the file itself. That closes a descriptor of it, and with it goes every lock this process has on
        the file: so there must not be any.
        """
        self.rest()  # of a file that was there before
        fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            header = os.pread(fd, _HEADER, 0)
        finally:
            os.close(fd)
        return len(header) < _HEADER or header[19] == _WAL_FORMAT


def _log_of(path: str) -> tuple[int, int, int] | None:
    """What the file system tells of the log. Where the path is a link, SQLite keeps it beside the file itself."""
    try:
        facts = os.stat((os.path.realpath(path) if os.path.islink(path) else path) + "-wal")
    except OSError:
        return None
    return (facts.st_ino, facts.st_size, facts.st_mtime_ns)


def _connect(address: str) -> sqlite3.Connection:
    db = sqlite3.connect(address, uri=True, timeout=_PATIENCE_S, isolation_level=None, check_same_thread=False)
    try:
        db.text_factory = bytes  # rows may hold anything, and their JSON is read as bytes
        db.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, WHOLE_BYTES)
        for pragma in ("query_only=ON", "temp_store=MEMORY", "cache_size=-4000"):
            db.execute(f"PRAGMA {pragma}")
    except BaseException:
        db.close()
        raise
    return db
