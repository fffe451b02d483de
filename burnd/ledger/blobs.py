"""Stores large content once per hash, in compressed packs in a SQLite file."""

from __future__ import annotations

import contextlib
import hashlib
import os
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from itertools import accumulate
from pathlib import Path
from typing import NamedTuple

import msgspec
import zstandard

from burnd.errors import BlobsDamaged, StorageError, SyncFailed
from burnd.ledger import files
from burnd.ledger.sqlite_files import CHECKPOINT, as_not_now, batches, empty_log, insert, name_of, no_space
from burnd.records.content import Loss

PACK_BYTES = 1 << 20  # reading a blob unpacks all before it: 1.2 ms at most
# Level 3 takes a sixth less time and 2 % more space; level 5 takes 2 % less space and 40 % more time.
_LEVEL = 4
_MOST_HASHES = 100_000  # of blobs that were packed before

_SCHEMA = """
-- The id of a pack is that of its first blob; `last` is the id of its last one.
CREATE TABLE IF NOT EXISTS pack(id INTEGER PRIMARY KEY, last INTEGER NOT NULL, data BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS blob(
  id INTEGER PRIMARY KEY, sha BLOB NOT NULL, start INTEGER NOT NULL, length INTEGER NOT NULL);
-- By the first bytes only: the whole hash would be stored twice.
CREATE INDEX IF NOT EXISTS blob_by_sha ON blob(substr(sha, 1, 8));
CREATE TABLE IF NOT EXISTS holder(id INTEGER PRIMARY KEY, session_id TEXT NOT NULL UNIQUE);
CREATE TABLE IF NOT EXISTS ref(holder INTEGER NOT NULL, blob INTEGER NOT NULL, PRIMARY KEY(holder, blob)) WITHOUT ROWID;
"""

PACK_OF_BLOB = (
    "(SELECT CASE WHEN near.last >= blob.id THEN near.id END FROM "
    "(SELECT p.id, p.last FROM pack p WHERE p.id <= blob.id ORDER BY p.id DESC LIMIT 1) near)"
)
IN_PACK = "blob.id BETWEEN ?1 AND (SELECT last FROM pack WHERE id = ?1)"
_NEXT_NUMBER = "SELECT max((SELECT coalesce(max(id), 0) FROM blob), (SELECT coalesce(max(id), 0) FROM pack)) + 1"
_BY_HASH = "SELECT sha, id FROM blob WHERE substr(sha, 1, 8) IN ({heads})"
_FILE_SUFFIXES = ("", "-wal", "-shm")
_UNREADABLE = {"SQLITE_IOERR_READ", "SQLITE_IOERR_SHORT_READ", "SQLITE_IOERR_DATA", "SQLITE_IOERR_CORRUPTFS"}


def sha_of(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


class Pack(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """Blobs compressed together: their hashes and lengths, in order."""

    lengths: dict[str, int]
    data: bytes


class Packer:
    """Compresses blobs in the backfill process, before they reach the writer.

    Leaves out blobs that it packed before, which the store likely has, and groups below a quarter of a pack.
    """

    def __init__(self) -> None:
        self._hashes: set[int] = set()

    def pack(self, blobs: Iterable[dict[str, bytes]]) -> list[Pack]:
        """Moves new blobs to packs; their bytes in `blobs` become empty."""
        if len(self._hashes) > _MOST_HASHES:
            self._hashes.clear()
        new: dict[str, tuple[bytes, dict[str, bytes]]] = {}
        for some in blobs:
            for sha, data in some.items():
                number = int(sha[:15], 16)
                if number not in self._hashes:
                    self._hashes.add(number)
                    new[sha] = data, some
        packs: list[Pack] = []
        for group in _grouped({sha: data for sha, (data, _) in new.items()}):
            if sum(len(data) for _, data in group) >= PACK_BYTES // 4:
                packs.append(Pack({sha: len(data) for sha, data in group}, packed(data for _, data in group)))
                for sha, _ in group:
                    new[sha][1][sha] = b""
            else:
                self._hashes.difference_update(int(sha[:15], 16) for sha, _ in group)
        return packs


class Blob(NamedTuple):
    """The bytes of a blob, or why they are lost."""

    data: bytes
    lost: Loss | None = None


class BlobStore:
    """Packs of blobs, and the references of sessions to them. Not thread-safe."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._db = _open(path)
        self._small_packs: list[tuple[int, int]] = []  # id and unpacked size of the newest packs, if small

    def add(self, blobs: Mapping[str, bytes], refs: Mapping[str, AbstractSet[str]], packs: Iterable[Pack] = ()) -> None:
        """Stores new blobs and the references of each session in one transaction.

        `packs` have the bytes of some blobs; a pack with only new blobs is stored unchanged.
        """
        with self._transaction():
            numbers = self._numbers(blobs)
            unpacked: dict[str, bytes] = {}
            for pack in packs:
                new = [sha for sha in pack.lengths if sha in blobs and sha not in numbers]
                if len(new) == len(pack.lengths):
                    numbers |= self._store_pack(pack)
                elif new:
                    unpacked |= _unpacked(pack, new)
            fresh = {sha: unpacked.get(sha, data) for sha, data in blobs.items() if sha not in numbers}
            for group in _grouped(fresh):
                numbers |= self._store_pack(
                    Pack({sha: len(data) for sha, data in group}, packed(data for _, data in group))
                )
            if sum(size for _, size in self._small_packs) >= PACK_BYTES:
                self._merge_small_packs()
            for session_id, shas in refs.items():
                self._add_refs(session_id, sorted([numbers[sha] for sha in shas]))

    def holders(self) -> list[str]:
        with self._storage_errors():
            return [row[0] for row in self._db.execute("SELECT session_id FROM holder")]

    def release(self, session_ids: Iterable[str]) -> int:
        """Deletes the references of these sessions and unreferenced blobs. Returns bytes freed."""

        def drop() -> None:
            for session_id in session_ids:
                self._drop_refs(session_id)

        return self._wiped(drop)

    def retain(self, session_id: str, shas: AbstractSet[str]) -> int:
        """Like `release` for one session, except these blobs."""

        def drop_others() -> None:
            retained = self._numbers(shas).values()
            self._drop_refs(session_id)
            if retained:
                self._add_refs(session_id, sorted(retained))

        return self._wiped(drop_others)

    def _wiped(self, drop: Callable[[], object]) -> int:
        with self._transaction():
            before = self._stored_bytes()
            self._db.execute("CREATE TEMP TABLE IF NOT EXISTS gone(blob INTEGER PRIMARY KEY)")
            self._db.execute("DELETE FROM gone")
            drop()
            # Scans all references, some 10 million per second: an index by blob would be as large as they are.
            self._db.execute("DELETE FROM gone WHERE blob IN (SELECT blob FROM ref WHERE blob IN gone)")
            packs = [r[0] for r in self._db.execute(f"SELECT DISTINCT {PACK_OF_BLOB} FROM blob WHERE id IN gone")]
            self._db.execute("DELETE FROM blob WHERE id IN gone")
            for pack in filter(None, packs):  # None if the pack is lost
                self._rewrite_pack(pack)
            self._small_packs.clear()
            freed = before - self._stored_bytes()
        self._shrink()
        return freed

    def empty_log(self) -> None:
        """Checkpoints the write-ahead log, unless it is being read."""
        with self._storage_errors():
            empty_log(self._db)

    def close(self) -> None:
        self._db.close()

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[None]:
        with self._storage_errors():
            try:
                self._db.execute("BEGIN IMMEDIATE")
                yield
                self._db.execute("COMMIT")
            except BaseException:
                self._small_packs.clear()
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")
                raise

    @contextlib.contextmanager
    def _storage_errors(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise _as_storage_error(error, self.path) from error

    def _numbers(self, shas: Iterable[str]) -> dict[str, int]:
        names = {key_of(sha): sha for sha in shas}
        heads = [key[:8] for key in names]
        numbers: dict[str, int] = {}
        for some in batches(heads):
            rows = self._db.execute(_BY_HASH.format(heads=",".join("?" * len(some))), some)
            numbers |= {names[key]: number for key, number in rows if key in names}
        return numbers

    def _store_pack(self, pack: Pack) -> dict[str, int]:
        (first,) = self._db.execute(_NEXT_NUMBER).fetchone()
        numbers = {sha: first + n for n, sha in enumerate(pack.lengths)}
        *starts, size = accumulate(pack.lengths.values(), initial=0)
        rows = [
            (numbers[sha], key_of(sha), start, length)
            for (sha, length), start in zip(pack.lengths.items(), starts, strict=True)
        ]
        self._db.execute("INSERT INTO pack VALUES(?,?,?)", (first, first + len(rows) - 1, pack.data))
        insert(self._db, "INSERT INTO blob {keys}", rows)
        self._small_packs = [*self._small_packs, (first, size)] if size < PACK_BYTES // 4 else []
        return numbers

    def _merge_small_packs(self) -> None:
        """Merges the small packs of live logs into one, which takes a fifth less space."""
        packs = [pack for pack, _ in self._small_packs]
        self._small_packs = []
        try:
            raws = [self._unpack(pack) for pack in packs]
        except zstandard.ZstdError:
            return  # damaged: `get` reports it
        starts = accumulate(map(len, raws), initial=0)
        for pack, start in zip(packs, starts, strict=False):
            self._db.execute(f"UPDATE blob SET start = start + ?2 WHERE {IN_PACK}", (pack, start))
        (last,) = self._db.execute("SELECT last FROM pack WHERE id = ?", (packs[-1],)).fetchone()
        self._db.executemany("DELETE FROM pack WHERE id = ?", [(pack,) for pack in packs])
        self._db.execute("INSERT INTO pack VALUES(?,?,?)", (packs[0], last, packed(raws)))

    def _add_refs(self, session_id: str, blobs: Iterable[int]) -> None:
        self._db.execute("INSERT OR IGNORE INTO holder(session_id) VALUES(?)", (session_id,))
        (holder,) = self._db.execute("SELECT id FROM holder WHERE session_id = ?", (session_id,)).fetchone()
        insert(self._db, "INSERT OR IGNORE INTO ref {keys}", [(holder, blob) for blob in blobs])

    def _drop_refs(self, session_id: str) -> None:
        holder = "(SELECT id FROM holder WHERE session_id = ?)"
        self._db.execute(f"INSERT OR IGNORE INTO gone SELECT blob FROM ref WHERE holder = {holder}", (session_id,))
        self._db.execute(f"DELETE FROM ref WHERE holder = {holder}", (session_id,))
        self._db.execute("DELETE FROM holder WHERE session_id = ?", (session_id,))

    def _rewrite_pack(self, pack: int) -> None:
        """Rewrites a pack without its deleted blobs."""
        blobs = self._db.execute(f"SELECT id, start, length FROM blob WHERE {IN_PACK}", (pack,)).fetchall()
        if not blobs:
            self._db.execute("DELETE FROM pack WHERE id = ?", (pack,))
            return
        try:
            raw = self._unpack(pack)
        except zstandard.ZstdError:
            return  # damaged: `get` reports it
        start = 0
        for blob, _, length in blobs:
            self._db.execute("UPDATE blob SET start = ? WHERE id = ?", (start, blob))
            start += length
        data = repacked(raw, [(old_start, length) for _, old_start, length in blobs])
        self._db.execute("UPDATE pack SET data = ? WHERE id = ?", (data, pack))

    def _unpack(self, pack: int) -> bytes:
        row = self._db.execute("SELECT data FROM pack WHERE id = ?", (pack,)).fetchone()
        if row is None:
            raise zstandard.ZstdError("pack is missing")
        return zstandard.decompress(row[0])

    def _stored_bytes(self) -> int:
        return int(self._db.execute("SELECT coalesce(sum(length(data)), 0) FROM pack").fetchone()[0])

    def _shrink(self) -> None:
        """Returns free pages to the file system and truncates the write-ahead log, which has the deleted bytes."""
        with self._storage_errors():
            # As a script: `execute` steps the statement once, which frees a single page.
            self._db.executescript("PRAGMA incremental_vacuum")
            self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()


def packed(blobs: Iterable[bytes]) -> bytes:
    return zstandard.ZstdCompressor(level=_LEVEL).compress(b"".join(blobs))


def _unpacked(pack: Pack, shas: Iterable[str]) -> dict[str, bytes]:
    raw = zstandard.decompress(pack.data)
    starts = dict(zip(pack.lengths, accumulate(pack.lengths.values(), initial=0), strict=False))
    return {sha: raw[starts[sha] : starts[sha] + pack.lengths[sha]] for sha in shas}


def repacked(raw: bytes, spans: Iterable[tuple[int, int]]) -> bytes:
    return packed(raw[start : start + length] for start, length in spans)


def _open(path: Path) -> sqlite3.Connection:
    files.make_folder(path.parent)
    files.touch(path)
    try:
        db = sqlite3.connect(path, isolation_level=None, check_same_thread=False, cached_statements=64)
    except sqlite3.Error as error:
        raise _as_storage_error(error, path) from error
    try:
        for pragma in (
            "auto_vacuum=INCREMENTAL",
            "journal_mode=WAL",
            "synchronous=FULL",
            "secure_delete=ON",
            CHECKPOINT,
        ):
            db.execute(f"PRAGMA {pragma}").fetchall()
        db.executescript(_SCHEMA)
    except sqlite3.Error as error:
        db.close()
        raise _as_storage_error(error, path) from error
    return db


def _grouped(blobs: Mapping[str, bytes]) -> Iterator[list[tuple[str, bytes]]]:
    group: list[tuple[str, bytes]] = []
    size = 0
    for sha, data in blobs.items():
        if group and size + len(data) > PACK_BYTES:
            yield group
            group, size = [], 0
        group.append((sha, data))
        size += len(data)
    if group:
        yield group


def key_of(sha: str) -> bytes:
    """The hash as bytes; empty if it is malformed."""
    try:
        return bytes.fromhex(sha)
    except ValueError:
        return b""


def set_aside(path: Path) -> Path:
    """Renames a damaged database; its blobs are missing from now on."""
    aside = path.with_name(path.name + ".damaged")
    for suffix in _FILE_SUFFIXES:
        with contextlib.suppress(FileNotFoundError):
            os.replace(f"{path}{suffix}", f"{aside}{suffix}")
    return aside


def remove_aside(path: Path) -> int:
    """Deletes a renamed damaged database. Returns bytes freed."""
    freed = 0
    for suffix in _FILE_SUFFIXES:
        aside = f"{path}.damaged{suffix}"
        with contextlib.suppress(FileNotFoundError):
            size = os.stat(aside).st_size
            os.unlink(aside)
            freed += size
    return freed


def _as_storage_error(error: sqlite3.Error, path: Path) -> StorageError:
    name = name_of(error)
    if (later := as_not_now(error, path)) is not None:
        return later
    if name in ("SQLITE_IOERR_FSYNC", "SQLITE_IOERR_DIR_FSYNC"):
        return SyncFailed(str(error), str(path))
    if name.startswith(("SQLITE_CORRUPT", "SQLITE_NOTADB")) or name in _UNREADABLE:
        return BlobsDamaged(str(error), str(path))
    if name.startswith("SQLITE_IOERR"):
        return no_space(error, path)
    return StorageError(f"{name}: {error}", str(path))
