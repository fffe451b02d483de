"""Parquet segments in a folder or a bucket as a push target. Uses pyarrow.

    TARGET/turns/MACHINE-ID/FIRST-LAST-HASH.parquet     rows of one batch, or of several that were merged
    TARGET/push_state/MACHINE-ID.json                   the cursor, written after the segments of its batch

FIRST and LAST are the lowest and the highest `seq` of its rows. A batch that is sent again after a crash gets the same
name or a higher number, and a reader takes the newest row of each key, so nothing counts twice. Small segments are
merged as they come, like in a log-structured merge tree: a row is rewritten a few times, and there are few files.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import re
import shutil
import struct
import tempfile
from datetime import datetime
from decimal import Decimal
from itertools import takewhile

from burnctl.commands.export import beside_of, remove_parts
from burnctl.errors import BurnctlError
from burnctl.push.schema import KEYS, SCHEMA_VERSION, SETS, TABLES, TOKENS
from burnctl.push.target import Refused, Totals, Unreachable
from burnd.errors import PARQUET, to_install

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from typing import Any

    from burnctl.push.schema import Row
    from burnctl.push.target import Batch, DayModel

try:
    import pyarrow as arrow
    import pyarrow.compute as compute
    import pyarrow.parquet as parquet
    from pyarrow import fs

    from burnctl.parquet import TYPES, sync
except ImportError:
    raise BurnctlError(
        "pushing to a folder or bucket needs pyarrow, which is not installed", f"install it with: {to_install(PARQUET)}"
    ) from None

SCHEMAS = {
    table: arrow.schema([(column.name, TYPES[column.kind]) for column in columns]).with_metadata(
        {"burnd.schema": str(SCHEMA_VERSION), "burnd.table": table}
    )
    for table, columns in TABLES.items()
}
_MOST_SEGMENTS = 16  # of a table and machine, before the newest are merged
# Merging takes some 90 bytes of memory for each row, so it is limited. Larger segments are merged by `compact` only.
_LARGE_BYTES, _LARGE_ROWS = 1 << 20, 50_000
_ROWS_AT_ONCE = 5_000
_GROUP_ROWS = 20_000  # of a row group, which is in memory until it is written
_HASHES_AT_ONCE = 100_000  # in memory, some 12 MB
_ENTRY = struct.Struct("16s16sqq")  # hashes of key and session, `seq`, number of the row
_PART_BYTES = 8 << 20  # of an object, uploaded at once
_NAME = re.compile(r"\d{18}-\d{18}-[0-9a-f]{12}\.parquet")
_REFUSED_WORDS = ("ACCESS_DENIED", "INVALID_ACCESS_KEY", "SIGNATURE", "NO_SUCH_BUCKET", "HTTP response code 403")


class Segment:
    __slots__ = ("first", "last", "path", "size")

    def __init__(self, path: str, size: int) -> None:
        self.path, self.size = path, size
        first, last, _ = os.path.basename(path).split("-")
        self.first, self.last = int(first), int(last)


class SegmentTarget:
    """A folder or bucket. A machine touches only its own segments, so any number of them may push to one place."""

    def __init__(self, url: str) -> None:
        self._row_counts: dict[str, int] = {}  # by path, of segments that were candidates for a merge
        self._store: Folder | Bucket = Bucket(url) if url.startswith("s3://") else Folder(url.removeprefix("file://"))

    def open(self, machine_id: str) -> str | None:
        with _as_push_errors(self._store.name):
            for table in TABLES:
                self._store.clean(f"{table}/{machine_id}")
            self._store.clean("push_state", machine_id)
            stored = self._store.get(f"push_state/{machine_id}.json")
        try:
            state = json.loads(stored or b"null")
        except ValueError:
            return None  # damaged: everything is sent again
        if not isinstance(state, dict) or not isinstance(version := state.get("schema", 0), int):
            return None
        if version > SCHEMA_VERSION:
            raise Refused(
                f"{self._store.name} has segments of a newer burnctl: schema {version}, not {SCHEMA_VERSION}",
                "update burnd on this machine",
            )
        cursor = state.get("cursor")
        return cursor if isinstance(cursor, str) else None

    def send(self, batch: Batch) -> None:
        with _as_push_errors(self._store.name):
            for table, rows in batch.tables.items():
                if rows:
                    seqs = [row["seq"] for row in rows]
                    # By its rows, not by the cursor: the last batch of a reset repeats the cursor before it.
                    keys = repr([[row[name] for name in (*KEYS[table], "seq")] for row in rows])
                    path = _path(table, batch.machine_id, min(seqs), max(seqs), keys)
                    self._write(path, table, [_as_table(table, rows)])
            for table in batch.tables:
                self._merge_newest(table, batch.machine_id)
            state = {"cursor": batch.cursor, "seq": batch.seq, "schema": SCHEMA_VERSION}
            self._store.put(f"push_state/{batch.machine_id}.json", json.dumps(state).encode())

    def finish_reset(self, machine_id: str, first_seq: int) -> None:
        with _as_push_errors(self._store.name):
            for table in TABLES:
                for segment in self._segments(table, machine_id):
                    if segment.first >= first_seq:
                        continue
                    if segment.last >= first_seq:
                        path = _path(table, machine_id, first_seq, segment.last, os.path.basename(segment.path))
                        newer = (
                            rows.filter(compute.greater_equal(rows["seq"], first_seq))
                            for rows in self._read(table, segment)
                        )
                        self._write(path, table, newer)
                    self._store.delete(segment.path)

    def erase(self, machine_id: str, session_ids: list[str], before: int) -> None:
        def remaining(rows: Any) -> Any:
            is_of_them = compute.is_in(rows["session_id"], arrow.array(session_ids, arrow.string()))
            return rows.filter(compute.invert(compute.and_(is_of_them, compute.less(rows["seq"], before))))

        with _as_push_errors(self._store.name):
            for segment in self._segments("content", machine_id):
                if segment.first < before and any(
                    remaining(rows).num_rows < rows.num_rows
                    for rows in self._read("content", segment, ["session_id", "seq"])
                ):
                    path = _path("content", machine_id, segment.first, segment.last, f"{segment.path} {before}")
                    self._write(path, "content", map(remaining, self._read("content", segment)))
                    self._store.delete(segment.path)

    def compact(self, machine_id: str) -> tuple[int, int]:
        """Merges all segments of each table into one, without deleted rows. Returns the number before and after."""
        before = after = 0
        with _as_push_errors(self._store.name):
            for table in TABLES:
                segments = self._segments(table, machine_id)
                before += len(segments)
                if len(segments) > 1:
                    self._merge(table, machine_id, segments, is_all=True)
                after += min(len(segments), 1)
        return before, after

    def totals(self, machine_id: str) -> dict[DayModel, Totals]:
        totals: dict[DayModel, Totals] = {}
        names = ("ts", "model", "cost_usd", "deleted", *TOKENS)
        with _as_push_errors(self._store.name):
            for rows in self._newest("turns", self._segments("turns", machine_id), names):
                for ts, model, cost, deleted, *tokens in zip(*(rows[name].to_pylist() for name in names), strict=True):
                    if deleted:
                        continue
                    one = totals.setdefault((ts.strftime("%Y-%m-%d"), model), Totals())
                    one.turns += 1
                    one.tokens = tuple(a + (b or 0) for a, b in zip(one.tokens, tokens, strict=True))
                    one.cost = one.cost if cost is None else (one.cost or Decimal(0)) + cost
        return totals

    def close(self) -> None:
        """There is nothing to close."""

    def _segments(self, table: str, machine_id: str) -> list[Segment]:
        """The segments of a table, the newest first, and of those with the same numbers the smallest.

        A segment begins where the one before ended, or later. So the first ones may be merged without the others: only
        the number between them can be in both, and rows with the same key and number are equal.
        """
        files = self._store.list(f"{table}/{machine_id}")
        segments = [Segment(path, size) for path, size in files if _NAME.fullmatch(os.path.basename(path))]
        return sorted(segments, key=lambda segment: (-segment.last, -segment.first, segment.size, segment.path))

    def _merge_newest(self, table: str, machine_id: str) -> None:
        """Merges the newest segments once there are too many, up to the first that is much larger."""
        every = self._segments(table, machine_id)
        if len(list(takewhile(lambda segment: segment.size < _LARGE_BYTES, every))) <= _MOST_SEGMENTS:
            return
        count = rows = size = 0
        for segment in every:
            is_similar = count < _MOST_SEGMENTS // 2 or segment.size <= 2 * size
            rows += self._row_count(segment)
            if segment.size >= _LARGE_BYTES or rows > _LARGE_ROWS or not is_similar:
                break
            size += segment.size
            count += 1
        if count > 1:
            self._merge(table, machine_id, every[:count], is_all=count == len(every))

    def _row_count(self, segment: Segment) -> int:
        if segment.path not in self._row_counts:
            with self._store.reader(segment.path) as file:
                self._row_counts[segment.path] = parquet.read_metadata(file).num_rows
        return self._row_counts[segment.path]

    def _merge(self, table: str, machine_id: str, segments: list[Segment], *, is_all: bool) -> None:
        """Replaces segments by one with the newest row of each key. After a crash in between rows are there twice."""
        first, last = min(one.first for one in segments), max(one.last for one in segments)
        salt = " ".join(sorted(os.path.basename(one.path) for one in segments))
        path = _path(table, machine_id, first, last, salt)
        newest = self._newest(table, segments)
        # Tombstones are needed as long as an older segment may have the row.
        kept = (rows.filter(compute.invert(rows["deleted"])) for rows in newest) if is_all else newest
        self._write(path, table, kept)
        for segment in segments:
            if segment.path != path:
                self._store.delete(segment.path)

    def _newest(self, table: str, segments: Sequence[Segment], names: Iterable[str] = ()) -> Iterator[Any]:
        """Yields tables with the newest row of each key, from segments sorted the newest first.

        Of rows that come by session, all of its newest ones are taken.
        """
        wanted = list(dict.fromkeys((*names, *KEYS[table][1:], "seq"))) if names else None
        newest = arrow.py_buffer(self._newest_bits(table, segments))
        number = 0
        for segment in segments:
            for rows in self._read(table, segment, wanted):
                yield rows.filter(arrow.Array.from_buffers(arrow.bool_(), rows.num_rows, [None, newest], offset=number))
                number += rows.num_rows

    def _newest_bits(self, table: str, segments: Sequence[Segment]) -> bytearray:
        """Returns a bit for each row: whether it is the newest of its key.

        Hashes of keys are divided among temporary files, and compared file by file, so that memory is bounded.
        """
        count = sum(map(self._row_count, segments))
        bits = bytearray(count // 8 + 1)
        columns, is_set = (*KEYS[table][1:], "seq"), table in SETS
        with contextlib.ExitStack() as stack:
            files = [
                stack.enter_context(tempfile.TemporaryFile()) for _ in range(min(256, 1 + count // _HASHES_AT_ONCE))
            ]
            number = 0
            for segment in segments:
                for rows in self._read(table, segment, list(columns)):
                    for *key, seq in zip(*(rows[name].to_pylist() for name in columns), strict=True):
                        name = _hash(key)
                        session = _hash(key[0]) if is_set else name
                        files[session[0] % len(files)].write(_ENTRY.pack(name, session, seq, number))
                        number += 1
            for file in files:
                seen: set[bytes] = set()
                sets: dict[bytes, int] = {}
                file.seek(0)
                while some := file.read(_ENTRY.size * _ROWS_AT_ONCE):
                    for name, session, seq, number in _ENTRY.iter_unpack(some):
                        if name not in seen and (not is_set or sets.setdefault(session, seq) == seq):
                            seen.add(name)
                            bits[number >> 3] |= 1 << (number & 7)
        return bits

    def _read(self, table: str, segment: Segment, names: list[str] | None = None) -> Iterator[Any]:
        with self._store.reader(segment.path) as file:
            reader = parquet.ParquetFile(file)
            there = set(reader.schema_arrow.names)
            columns = names and [one for one in names if one in there]
            # Threads would each keep memory of their own.
            for batch in reader.iter_batches(_ROWS_AT_ONCE, columns=columns, use_threads=False):
                rows = arrow.Table.from_batches([batch])
                yield rows if names else _in_schema(rows, table)

    def _write(self, path: str, table: str, parts: Iterable[Any]) -> None:
        with self._store.writer(path) as file, parquet.ParquetWriter(file, SCHEMAS[table], compression="zstd") as out:
            group: list[Any] = []
            for part in parts:
                group.append(part)
                if sum(one.num_rows for one in group) >= _GROUP_ROWS:
                    out.write_table(arrow.concat_tables(group))
                    group.clear()
            if any(one.num_rows for one in group):
                out.write_table(arrow.concat_tables(group))


def _hash(key: object) -> bytes:
    return hashlib.blake2b(repr(key).encode(), digest_size=16).digest()


def _path(table: str, machine_id: str, first: int, last: int, salt: str) -> str:
    digest = hashlib.sha256(salt.encode()).hexdigest()[:12]
    return f"{table}/{machine_id}/{first:018d}-{last:018d}-{digest}.parquet"


def _as_table(table: str, rows: list[Row]) -> Any:
    columns = []
    for column in TABLES[table]:
        values = [row[column.name] for row in rows]
        if column.kind == "time":
            values = [None if value is None else datetime.fromisoformat(value) for value in values]
        elif column.kind == "map":
            values = [sorted((value or {}).items()) for value in values]
        columns.append(arrow.array(values, TYPES[column.kind]))
    return arrow.Table.from_arrays(columns, schema=SCHEMAS[table])


def _in_schema(rows: Any, table: str) -> Any:
    """Converts rows of another schema version."""
    schema = SCHEMAS[table]
    if rows.schema.equals(schema):
        return rows.replace_schema_metadata(schema.metadata)
    columns = [
        rows[field.name].cast(field.type) if field.name in rows.schema.names else arrow.nulls(rows.num_rows, field.type)
        for field in schema
    ]
    return arrow.Table.from_arrays(columns, schema=schema)


class _Store:
    def reader(self, path: str) -> Any:
        raise NotImplementedError

    def writer(self, path: str) -> contextlib.AbstractContextManager[Any]:
        raise NotImplementedError

    def get(self, path: str) -> bytes | None:
        try:
            with self.reader(path) as file:
                return bytes(file.read())
        except FileNotFoundError:
            return None

    def put(self, path: str, data: bytes) -> None:
        with self.writer(path) as file:
            file.write(data)


class Folder(_Store):
    """Files below a folder. A file is complete or not there, also after a power failure."""

    def __init__(self, folder: str) -> None:
        self.name = folder
        self._folder = os.path.abspath(os.path.expanduser(folder))

    def list(self, folder: str) -> list[tuple[str, int]]:
        try:
            with os.scandir(self._path(folder)) as entries:
                return [
                    (f"{folder}/{entry.name}", entry.stat().st_size)
                    for entry in entries
                    if entry.is_file() and not entry.name.startswith(".")
                ]
        except FileNotFoundError:
            return []

    def clean(self, folder: str, prefix: str = "") -> None:
        """Removes what a killed push left of files with this prefix."""
        with contextlib.suppress(FileNotFoundError):
            for name in os.listdir(self._path(folder)):
                if name.startswith(f".{prefix}") and name.endswith(".part"):
                    remove_parts(os.path.join(self._path(folder), name[1:].removesuffix(".part").rpartition(".")[0]))

    def delete(self, path: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._path(path))

    def reader(self, path: str) -> Any:
        return open(self._path(path), "rb")

    @contextlib.contextmanager
    def writer(self, path: str) -> Iterator[Any]:
        whole = self._path(path)
        os.makedirs(os.path.dirname(whole), exist_ok=True)
        beside = beside_of(whole)
        try:
            with open(beside, "wb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            os.replace(beside, whole)
            sync(os.path.dirname(whole))
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(beside)
            raise

    def _path(self, path: str) -> str:
        return os.path.join(self._folder, path)


class Bucket(_Store):
    """Objects of an S3 bucket below a prefix. Credentials and region come from where the AWS tools look for them."""

    def __init__(self, url: str) -> None:
        self.name = url
        self._root = url.removeprefix("s3://").rstrip("/")
        options: dict[str, Any] = {}
        if endpoint := os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL"):
            scheme, _, host = endpoint.partition("://")
            options = {"endpoint_override": host.rstrip("/"), "scheme": scheme}
        if region := os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION"):
            options["region"] = region
        with _as_push_errors(url):
            self._fs = fs.S3FileSystem(**options)

    def list(self, folder: str) -> list[tuple[str, int]]:
        selector = fs.FileSelector(f"{self._root}/{folder}", allow_not_found=True)
        found = [info for info in self._fs.get_file_info(selector) if info.type == fs.FileType.File]
        return [(f"{folder}/{info.base_name}", info.size) for info in found]

    def clean(self, folder: str, prefix: str = "") -> None:
        """An object that was not written completely is not there."""

    def datasets(self) -> dict[str, Any]:
        """The segments of all machines by table, for an engine that reads Arrow."""
        from pyarrow import dataset

        found = {}
        with _as_push_errors(self.name):
            for table, schema in SCHEMAS.items():
                selector = fs.FileSelector(f"{self._root}/{table}", allow_not_found=True, recursive=True)
                files = [one.path for one in self._fs.get_file_info(selector) if one.path.endswith(".parquet")]
                if files:
                    found[table] = dataset.dataset(files, filesystem=self._fs, schema=schema)
        return found

    def delete(self, path: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            self._fs.delete_file(f"{self._root}/{path}")

    def reader(self, path: str) -> Any:
        return self._fs.open_input_file(f"{self._root}/{path}")

    @contextlib.contextmanager
    def writer(self, path: str) -> Iterator[Any]:
        # Closing a stream would complete the object, so all of it is in a temporary file before one is opened.
        with tempfile.TemporaryFile() as data:
            yield data
            data.seek(0)
            with self._fs.open_output_stream(f"{self._root}/{path}") as file:
                shutil.copyfileobj(data, file, _PART_BYTES)


@contextlib.contextmanager
def _as_push_errors(name: str) -> Iterator[None]:
    try:
        yield
    except (PermissionError, NotADirectoryError, IsADirectoryError) as error:
        raise Refused(f"{name}: {error.strerror or error}", "check the path and its permissions") from None
    except OSError as error:
        text = " ".join(str(error.strerror or error).split())[:300]
        if error.errno == errno.EROFS:
            raise Refused(f"{name}: {text}", "check the path and its permissions") from None
        if any(word in str(error) for word in _REFUSED_WORDS):
            raise Refused(f"{name}: {text}", "check the bucket, its region and the credentials") from None
        is_full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        raise Unreachable(f"{name}: {text}", "free some space there" if is_full else "is it reachable?") from None
    except (arrow.ArrowException, ValueError) as error:
        text = " ".join(str(error).split())[:300]
        raise Refused(
            f"{name}: a file in it cannot be read: {text}", "delete that file and push_state, then push again"
        ) from None
