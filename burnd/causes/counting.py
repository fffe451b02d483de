"""Counts the causes of one rail piece by piece, each from the rail's state at the end of the piece before.

A piece is a fixed stretch of message numbers, so one more turn counts one piece again and never the whole rail, and it
does not matter in which order the turns came to be known.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

import structlog
import zstandard

from burnd.attribution.blocks import Group
from burnd.attribution.rail import Entry, Rail
from burnd.attribution.rates import spent_by
from burnd.attribution.saving import restore, save
from burnd.attribution.sums import pack
from burnd.attribution.tally import Counts, Tally
from burnd.causes.cause import Dims
from burnd.causes.rails import Span, load_span
from burnd.index.grains import DAY, GRAINS, NO_ACTIVITY, bucket_of
from burnd.index.keys import decompressed
from burnd.records import Compaction, Turn

LENGTH: Final = 256
A_DAY: Final = GRAINS[DAY]
_UNEXPLAINED: Final = Group("unexplained")
_A_LITTLE: Final = 16  # messages, some two milliseconds
log = structlog.get_logger()

MessageKey = tuple[str, str]
Care = Callable[[int, str, int], AbstractContextManager[None]]  # around counting a piece of a rail, by its number
GiveWay = Callable[[], None]  # called after every few messages: it may wait a moment for others who are in a hurry
Paid = dict[Dims, Counts]  # misses are in no sum with the others


def at_once() -> None:
    """Gives way to nobody."""


def carefree(_session: int, _rail: str, _n: int) -> AbstractContextManager[None]:
    """Fears nothing."""
    return nullcontext()


class Segment(NamedTuple):
    """A piece of a rail that was counted; `newest` is when its newest message was, or one of an earlier piece."""

    n: int
    newest: str
    state: bytes | None  # of the rail at its end, where another piece follows
    sums: Paid
    turns: dict[Dims, int]  # how many are counted where, among all activities
    messages: int


class Before(NamedTuple):
    """What a piece stands on."""

    state: bytes | None = None
    newest: str = ""

    def rail(self) -> Rail:
        if self.state is None:
            return Rail()
        return restore(_opened(self.state))


def _opened(data: bytes) -> bytes:
    """Raises ZstdError for what was not closed here, or has changed since."""
    return decompressed(data)


def _closed(data: bytes) -> bytes:
    """With a checksum: a bit that turned over in a number would else be believed."""
    return zstandard.ZstdCompressor(level=3, write_checksum=True).compress(data)


def segments(
    db: sqlite3.Connection,
    ledger: Path,
    session: int,
    rail: str,
    first: int,
    give_way: GiveWay = at_once,
    care: Care = carefree,
) -> Iterator[Segment]:
    """Counts a rail from the piece that holds message `first` on, or from an earlier one where no state is kept."""
    begin, before = _standing(db, session, rail, first // LENGTH)
    n = _next(db, session, rail, begin * LENGTH)
    while n is not None:
        after = _next(db, session, rail, (n + 1) * LENGTH)
        entries = load_span(db, ledger, session, rail, Span(n * LENGTH, (n + 1) * LENGTH, before.newest))
        with_care = partial(care, session, rail, n)
        made = _counted(db, session, rail, n, before, entries, give_way, with_care, goes_on=after is not None)
        yield made
        before, n = Before(made.state, made.newest), after


def begin_of(db: sqlite3.Connection, session: int, rail: str, first: int) -> int:
    """The piece from which a change at message `first` is counted."""
    return _standing(db, session, rail, first // LENGTH)[0]


def before(db: sqlite3.Connection, session: int, rail: str, n: int) -> Before | None:
    """What a piece that was counted stands on; None where the piece before it could not be explained."""
    found = db.execute(_STATES, (session, rail, n)).fetchone()
    if found is None:
        return Before()
    _, newest, state = found
    return Before(bytes(state), newest) if state is not None else None


def dims_of(db: sqlite3.Connection, session: int, rail: str, n: int) -> dict[MessageKey, tuple[int, Dims, Dims]]:
    """The numbers of a piece's turns, and where each is counted: among all activities, and by its own."""
    rows = db.execute(_DIMS, (session, rail, n * LENGTH, (n + 1) * LENGTH))
    found = {}
    for source, name, number, ts, kind, place, branch, subagent, activity in rows:
        bucket, where = bucket_of(ts), (kind, place, branch, subagent)
        found[source, name] = number, Dims(bucket, *where), Dims(bucket // A_DAY, *where, activity)
    return found


def _counted(
    db: sqlite3.Connection,
    session: int,
    name: str,
    n: int,
    before: Before,
    entries: Sequence[Entry],
    give_way: GiveWay,
    with_care: Callable[[], AbstractContextManager[None]],
    *,
    goes_on: bool,
) -> Segment:
    places = {key: dims for key, (_, *dims) in dims_of(db, session, name, n).items()}
    newest = max((entry.ts for entry in entries if not isinstance(entry, Compaction)), default="")
    care = with_care()  # asks the index, whose damage is no fault of the rail's
    try:
        with care:
            rail = before.rail()
            sums = add_up(rail, entries, places, give_way)
            state = _closed(save(rail)) if goes_on else None
    except Exception as error:  # noqa: BLE001 - one rail that cannot be explained must not keep all others from it
        log.error("causes.failed", session=session, error=type(error).__name__)
        sums, state = _unexplained(entries, places), None
    turns = Counter(by_time for by_time, _ in places.values())
    return Segment(n, max(newest, before.newest), state, sums, turns, len(entries))


def add_up(
    rail: Rail,
    entries: Sequence[Entry],
    places: Mapping[MessageKey, Sequence[Dims]],
    give_way: GiveWay = at_once,
) -> Paid:
    """What the turns that have places paid, by cause, and what cache misses made them pay again."""
    tally: Tally[Dims] = Tally(rail)
    for number, entry in enumerate(entries):
        if number % _A_LITTLE == 0:
            give_way()
        step = rail.feed(entry)
        if step is not None and isinstance(entry, Turn):
            tally.add(step, *places.get((entry.source, entry.message_id), ()))
    taken = tally.take()
    for dims, misses in taken.misses.items():
        taken.sums[dims].update(misses)
    return taken.sums


def _unexplained(entries: Sequence[Entry], places: Mapping[MessageKey, Sequence[Dims]]) -> Paid:
    """The whole bill as one cause, for a rail that no rule fits."""
    found: Paid = {}
    for entry in entries:
        if isinstance(entry, Turn):
            for dims in places.get((entry.source, entry.message_id), ()):
                groups = found.setdefault(dims, {})
                groups[_UNEXPLAINED] = groups.get(_UNEXPLAINED, 0) + pack(spent_by(entry))
    return found


def _standing(db: sqlite3.Connection, session: int, rail: str, n: int) -> tuple[int, Before]:
    """The last piece up to the n-th that can be counted without those before it, and what it stands on.

    That is the one behind the last that was counted: what is between that one and the n-th never was.
    """
    for number, newest, state in db.execute(_STATES, (session, rail, n)):
        if state is not None:
            return number + 1, Before(bytes(state), newest)
    return 0, Before()


def _next(db: sqlite3.Connection, session: int, rail: str, begin: int) -> int | None:
    """The first piece from this message on that has any."""
    ((index,),) = db.execute(_NEXT, (session, rail, begin)).fetchall()
    return None if index is None else index // LENGTH


_DIMS = f"""
SELECT s.name, t.message_id, t.id, t.ts, t.class, t.place, coalesce(t.branch, 0), t.subagent,
       coalesce(t.activity, {NO_ACTIVITY})
FROM turns t JOIN names s ON s.id = t.source
WHERE t.session = ? AND t.rail = ? AND t.turn_index >= ? AND t.turn_index < ?
"""
_STATES = "SELECT n, newest, state FROM segments WHERE session = ? AND rail = ? AND n < ? ORDER BY n DESC"
_NEXT = """
SELECT min(first) FROM (
  SELECT min(turn_index) AS first FROM turns WHERE session = ?1 AND rail = ?2 AND turn_index >= ?3
  UNION ALL SELECT min(turn_index) FROM facts WHERE session = ?1 AND kind = 'copy' AND rail = ?2 AND turn_index >= ?3)
"""
