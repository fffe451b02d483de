"""What readers gave away and ask for again: rows of a file by their names, on a connection of a worker thread."""

from __future__ import annotations

import sqlite3
from array import array
from bisect import bisect_left
from pathlib import Path
from typing import TypeVar

import msgspec
import zstandard

from burnd.harness.claude_code.state import Link, Prompt, Rail, Reading
from burnd.index import copies, packs
from burnd.recording.candidate import Candidate

T = TypeVar("T")

LINK, PROMPT, RAIL, CANDIDATE = range(4)
_PACKS_OPEN = 4
_KNOWN = (
    "SELECT 1 FROM turns WHERE session = (SELECT id FROM sessions WHERE session_id = ?) AND rail = ? UNION ALL "
    "SELECT 1 FROM facts WHERE session = (SELECT id FROM sessions WHERE session_id = ?) AND kind = 'copy' AND rail = ?"
)
_NUMBER = (
    "SELECT t.turn_index FROM turns t JOIN names n ON n.id = t.source JOIN sessions s ON s.id = t.session "
    "WHERE n.name = ? AND t.message_id = ? AND s.session_id = ? AND t.rail = ? "
    "UNION ALL SELECT turn_index FROM facts WHERE kind = 'copy' AND key = ?"
)
_links = msgspec.msgpack.Decoder(Link)
_prompts = msgspec.msgpack.Decoder(Prompt)
_rails = msgspec.msgpack.Decoder(Rail)
_candidates = msgspec.msgpack.Decoder(Candidate)


def pack_of(reading: Reading) -> bytes:
    """The rows a reading gives away, as they are stored: of each kind, in the order of the numbers above."""
    own = {candidate.message_id: candidate for candidate in reading.candidates if not candidate.lent_activity}
    return packs.pack((reading.links, reading.prompts, reading.rails, own))


def link_of(row: bytes) -> Link:
    """A link as a pack holds it."""
    return _links.decode(row)


class RowsLost(Exception):
    """Raised when rows cannot be read any more; its cause says why."""


class RowSource:
    """A connection that reads rows of files. Readers run in a worker thread and cannot wait for the event loop."""

    def __init__(self, index_path: Path) -> None:
        self._db = sqlite3.connect(read_only(index_path), uri=True, check_same_thread=False)

    def of(self, source: str, path: str) -> FileRows:
        return FileRows(self._db, source, path)

    def close(self) -> None:
        self._db.close()


class FileRows:
    """The rows that earlier readings of one file gave away; none while it is `blank`, read anew from its start.

    Most of what is asked for is new and was never given away. So that this does not cost more the longer a file is,
    the names in every pack are remembered, eight bytes each, and a pack is opened only for what is in it. A pack never
    changes but for the newest. One that is open takes up to forty times the room of one that is stored: it is for the
    reading in hand alone.
    """

    def __init__(self, db: sqlite3.Connection, source: str, path: str) -> None:
        self._db = db
        self._where = (source, path)
        self._file: int | None = None
        self._names: dict[int, array[int]] = {}
        self._opened: dict[int, list[packs.Rows]] = {}
        self.blank = False

    def close(self) -> None:
        """A reading is over: until it is durable many others may be in hand, and so would be what each has opened."""
        self._opened.clear()

    def committed(self) -> None:
        """What was given away since is durable: it can be asked for from now on."""
        self.blank = False
        self.close()
        if self._names:
            del self._names[max(self._names)]

    def link(self, uuid: str) -> Link | None:
        return self._find(LINK, uuid, _links)

    def prompt(self, prompt_id: str) -> Prompt | None:
        return self._find(PROMPT, prompt_id, _prompts)

    def rail(self, rail_id: str) -> Rail | None:
        return self._find(RAIL, rail_id, _rails)

    def candidate(self, message_id: str) -> Candidate | None:
        return self._find(CANDIDATE, message_id, _candidates)

    def is_known(self, session_id: str, rail_id: str) -> bool:
        """Also while it is blank: this, and the numbers, are asked of the turns and copies themselves."""
        return self._db.execute(_KNOWN, (session_id, rail_id) * 2).fetchone() is not None

    def number(self, session_id: str, rail_id: str, message_id: str) -> int | None:
        source, _ = self._where
        key = copies.key_of(source, message_id, session_id, rail_id)
        found = self._db.execute(_NUMBER, (source, message_id, session_id, rail_id, key)).fetchone()
        return found[0] if found else None

    def _find(self, kind: int, name: str, decoder: msgspec.msgpack.Decoder[T]) -> T | None:
        """Raises RowsLost."""
        try:
            return self._found(kind, name, decoder)
        except (sqlite3.Error, zstandard.ZstdError, msgspec.DecodeError) as error:
            raise RowsLost from error

    def _found(self, kind: int, name: str, decoder: msgspec.msgpack.Decoder[T]) -> T | None:
        if self.blank or (file := self._number()) is None:
            return None
        number = _number_of(kind, name)
        for (pack,) in self._db.execute(
            "SELECT id FROM reader_packs WHERE file = ? ORDER BY id DESC", (file,)
        ).fetchall():
            names = self._names_in(pack)
            at = bisect_left(names, number)
            if at < len(names) and names[at] == number and (value := self._rows_of(pack)[kind].get(name)) is not None:
                return decoder.decode(value)
        return None

    def _names_in(self, pack: int) -> array[int]:
        if pack not in self._names:
            rows = self._rows_of(pack)
            self._names[pack] = array(
                "q", sorted(_number_of(kind, name) for kind in range(len(rows)) for name in rows[kind])
            )
        return self._names[pack]

    def _rows_of(self, pack: int) -> list[packs.Rows]:
        if pack not in self._opened:
            while len(self._opened) >= _PACKS_OPEN:
                del self._opened[next(iter(self._opened))]
            (data,) = self._db.execute("SELECT rows FROM reader_packs WHERE id = ?", (pack,)).fetchone()
            self._opened[pack] = packs.unpack(data)
        return self._opened[pack]

    def _number(self) -> int | None:
        if self._file is None:
            sql = "SELECT id FROM files WHERE source = ? AND path = ?"
            found = self._db.execute(sql, self._where).fetchone()
            self._file = found[0] if found else None
        return self._file


def _number_of(kind: int, name: str) -> int:
    """A row's kind and name in eight bytes. Should two ever be the same, a pack is opened for nothing."""
    return hash(name) & ~3 | kind


def read_only(path: Path) -> str:
    """The address of a database for a connection that may not write, whatever characters its path has."""
    quoted = str(path).replace("%", "%25").replace("?", "%3f").replace("#", "%23")
    return f"file:{quoted}?mode=ro"
