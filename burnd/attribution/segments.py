"""Explains rails segment by segment and writes the sums of their causes.

A segment is a fixed range of 256 message numbers. It starts from the saved state of the one before, so a new turn
explains one segment again, however long the session is. Its rows, its state and its row in `changed` change in one
transaction.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from operator import add
from pathlib import Path
from typing import Final, Generic, NamedTuple, TypeVar

import structlog
import zstandard

from burnd.attribution.cause_keys import (
    COMMAND,
    FILE,
    LEVELS,
    MISS,
    NAMED,
    PAID_LEVELS,
    PROMPTED,
    TOOL,
    CauseKey,
    CauseNumber,
    key_of,
    number_causes,
)
from burnd.attribution.causes import GroupTally
from burnd.attribution.misses import MissGroup
from burnd.attribution.rail import Rail, RailEntry, restore, save
from burnd.attribution.rail_entries import Span, load_span
from burnd.attribution.rates import Sums, spent_by
from burnd.attribution.row import CauseGroup
from burnd.index import changes
from burnd.index.keys import decompressed
from burnd.protocol import UNKNOWN_AGENT
from burnd.records import Compaction, Turn
from burnd.records.times import DAY_MS

LENGTH: Final = 256
BLOCK_DAYS: Final = 32
ALL_ACTIVITIES: Final = 0  # adds up all of them
ALL_VERSIONS: Final = -1  # adds up all of them
NO_ACTIVITY: Final = -1
SHIFT_MS: Final = 62_135_596_800_000  # counts days from the year 1, so that none is negative
_UNEXPLAINED: Final = CauseGroup("unexplained")
_MESSAGES_BETWEEN_YIELDS: Final = 16  # some two milliseconds
_NO_END: Final = 1 << 62
_MARKS_AT_ONCE: Final = 500
log = structlog.get_logger()

Guard = Callable[[int, str, int], AbstractContextManager[None]]  # around segment n of a session's rail
Yield = Callable[[], None]  # after every few messages


def no_yield() -> None:
    pass


def no_guard(_session: int, _rail: str, _n: int) -> AbstractContextManager[None]:
    return nullcontext()


class SumKey(NamedTuple):
    day: int
    kind: int
    place: int
    branch: int
    version: int
    subagent: int
    activity: int


Bucket = TypeVar("Bucket", bound=Hashable)
MessageKey = tuple[str, str]  # source and message id
ByCause = dict[CauseKey, list[int]]  # in the order of `Sums`


class TurnBucket(NamedTuple, Generic[Bucket]):
    bucket: Bucket
    prompt_id: str | None
    agent: str


class Segment(NamedTuple):
    """`newest` is the time of the newest message up to its end, `state` is set if another segment follows."""

    n: int
    newest: str
    state: bytes | None
    by_bucket: dict[SumKey, ByCause]
    messages: int


class Start(NamedTuple):
    """The rail's state before a segment."""

    state: bytes | None = None
    newest: str = ""

    def rail(self) -> Rail:
        return Rail() if self.state is None else restore(decompressed(self.state))


class Explanation(NamedTuple):
    """Segments that replace those from `begin` to `end`. `mark` and `times` are of the row in `changed`."""

    session: int
    rail: str
    segments: list[Segment]
    begin: int
    end: int | None
    mark: int
    times: int


def explain_due(
    db: sqlite3.Connection, ledger: Path, most: int, pause: Yield = no_yield, guard: Guard = no_guard
) -> list[Explanation]:
    """Explains about `most` messages of the rails that changed last."""
    due: list[Explanation] = []
    remaining = most
    for mark in db.execute(_MARKS).fetchall():
        due.append(_explain_rail(db, ledger, mark, remaining, pause, guard))
        remaining -= sum(segment.messages for segment in due[-1].segments)
        if remaining <= 0:
            break
    return due


def _explain_rail(
    db: sqlite3.Connection, ledger: Path, mark: tuple[int, int, str, int, int], most: int, pause: Yield, guard: Guard
) -> Explanation:
    number, session, rail, turn_index, times = mark
    if not db.execute("SELECT 1 FROM turns WHERE session = ? AND rail = ? LIMIT 1", (session, rail)).fetchall():
        return Explanation(session, rail, [], 0, None, number, times)
    begin, start = 0, Start()
    for n, newest, state in db.execute(_STATES, (session, rail, turn_index // LENGTH)):
        if state is not None:
            begin, start = n + 1, Start(bytes(state), newest)
            break
    segments: list[Segment] = []
    remaining, end = most, None
    for segment in _explain_segments(db, ledger, session, rail, begin, start, pause, guard):
        segments.append(segment)
        remaining -= segment.messages
        if remaining <= 0 and segment.state is not None:
            end = segment.n + 1
            break
    return Explanation(session, rail, segments, begin, end, number, times)


def _explain_segments(
    db: sqlite3.Connection, ledger: Path, session: int, rail: str, begin: int, start: Start, pause: Yield, guard: Guard
) -> Iterator[Segment]:
    n = _next_segment(db, session, rail, begin)
    while n is not None:
        after = _next_segment(db, session, rail, n + 1)
        entries = load_span(db, ledger, session, rail, Span(n * LENGTH, (n + 1) * LENGTH, start.newest))
        newest = max((entry.ts for entry in entries if not isinstance(entry, Compaction)), default="")
        turns = {message: one for message, _, one in _turn_buckets(db, session, rail, n)}
        guarded = guard(session, rail, n)  # outside the try: the index may be damaged
        state: bytes | None = None
        try:
            with guarded:
                followed = start.rail()
                by_bucket = add_up(followed, entries, turns, pause)
                if after is not None:
                    state = zstandard.ZstdCompressor(level=3, write_checksum=True).compress(save(followed))
        except Exception as error:  # noqa: BLE001 - one rail must not stop all others
            log.error("causes.failed", session=session, error=type(error).__name__)
            by_bucket, state = _unexplained(entries, turns), None
        newest = max(newest, start.newest)
        yield Segment(n, newest, state, by_bucket, len(entries))
        start, n = Start(state, newest), after


def start_of(db: sqlite3.Connection, session: int, rail: str, n: int) -> Start | None:
    """None if the segment before could not be explained."""
    row = db.execute(_STATES, (session, rail, n)).fetchone()
    if row is None:
        return Start()
    _, newest, state = row
    return Start(bytes(state), newest) if state is not None else None


def explain_turns(
    db: sqlite3.Connection, ledger: Path, session: int, rail: str, n: int, buckets: Mapping[int, Bucket]
) -> dict[Bucket, ByCause]:
    """By bucket and cause. Empty if the segment is not explained yet."""
    start = start_of(db, session, rail, n)
    if start is None or not db.execute(_IS_EXPLAINED, (session, rail, n)).fetchall():
        return {}
    entries = load_span(db, ledger, session, rail, Span(n * LENGTH, (n + 1) * LENGTH, start.newest))
    turns = {
        message: TurnBucket(buckets[turn], one.prompt_id, one.agent)
        for message, turn, one in _turn_buckets(db, session, rail, n)
        if turn in buckets
    }
    return add_up(start.rail(), entries, turns)


def add_up(
    rail: Rail, entries: Sequence[RailEntry], turns: Mapping[MessageKey, TurnBucket[Bucket]], pause: Yield = no_yield
) -> dict[Bucket, ByCause]:
    tally: GroupTally[tuple[str, Bucket]] = GroupTally(rail)
    by_bucket: dict[Bucket, ByCause] = {}
    for number, entry in enumerate(entries):
        if number % _MESSAGES_BETWEEN_YIELDS == 0:
            pause()
        step = rail.feed(entry)
        if step is None or not isinstance(entry, Turn):
            continue
        one = turns.get((entry.source, entry.message_id))
        if one is not None:
            tally.add(step, (one.agent, one.bucket))
            _add_prompt(by_bucket, one, entry)
    keys: dict[tuple[CauseGroup | MissGroup, str], CauseKey] = {}
    for (agent, bucket), sums in tally.take().items():
        for group, counts in sums.items():
            key = keys.get((group, agent))
            if key is None:
                key = keys[group, agent] = key_of(group, agent)
            _add(by_bucket, bucket, key, counts)
    return by_bucket


def _unexplained(entries: Sequence[RailEntry], turns: Mapping[MessageKey, TurnBucket[Bucket]]) -> dict[Bucket, ByCause]:
    """One cause, for a rail that cannot be explained."""
    by_bucket: dict[Bucket, ByCause] = {}
    for entry in entries:
        if isinstance(entry, Turn) and (one := turns.get((entry.source, entry.message_id))) is not None:
            _add(by_bucket, one.bucket, key_of(_UNEXPLAINED, one.agent), (*spent_by(entry), 0, 0, 0))
            _add_prompt(by_bucket, one, entry)
    return by_bucket


def _add_prompt(by_bucket: dict[Bucket, ByCause], one: TurnBucket[Bucket], turn: Turn) -> None:
    usage = turn.usage
    entered = usage.input + usage.cache_create_5m + usage.cache_create_1h
    _add(by_bucket, one.bucket, CauseKey(PROMPTED, target=one.prompt_id or ""), (*spent_by(turn), entered, 1, 0))


def _add(by_bucket: dict[Bucket, ByCause], bucket: Bucket, key: CauseKey, counts: Sequence[int]) -> None:
    causes = by_bucket.setdefault(bucket, {})
    before = causes.get(key)
    causes[key] = list(counts) if before is None else [a + b for a, b in zip(before, counts, strict=True)]


def _turn_buckets(
    db: sqlite3.Connection, session: int, rail: str, n: int
) -> Iterator[tuple[MessageKey, int, TurnBucket[SumKey]]]:
    rows = db.execute(_TURN_BUCKETS, (session, rail, n * LENGTH, (n + 1) * LENGTH))
    for source, message_id, turn, prompt_id, agent, *key in rows:
        yield (source, message_id), turn, TurnBucket(SumKey(*key), prompt_id, agent)


def _next_segment(db: sqlite3.Connection, session: int, rail: str, n: int) -> int | None:
    """The first segment from the n-th on with messages."""
    ((index,),) = db.execute(_NEXT, (session, rail, n * LENGTH)).fetchall()
    return None if index is None else index // LENGTH


def write(db: sqlite3.Connection, explanations: Sequence[Explanation], numbers: dict[CauseKey, CauseNumber]) -> int:
    """Replaces the rows of explained segments; returns their number. Adds new causes to `numbers`."""
    keys = {
        key
        for one in explanations
        for segment in one.segments
        for causes in segment.by_bucket.values()
        for key in causes
    }
    numbers.update(number_causes(db, keys - numbers.keys()))
    days: set[int] = set()
    for one in explanations:
        days |= _replace(db, one, numbers)
        if one.end is None:
            db.execute("DELETE FROM changed WHERE id = ? AND times = ?", (one.mark, one.times))
        else:
            sql = "UPDATE changed SET turn_index = ?, times = times + 1 WHERE id = ? AND times = ?"
            db.execute(sql, (one.end * LENGTH, one.mark, one.times))
    changes.mark_sessions(db, changes.next_seq(db), sorted({one.session for one in explanations}))
    blocks = sorted({(day // BLOCK_DAYS,) for day in days})
    db.executemany("INSERT INTO stale_blocks VALUES(?, 1) ON CONFLICT DO UPDATE SET times = times + 1", blocks)
    return sum(len(one.segments) for one in explanations)


def _replace(db: sqlite3.Connection, one: Explanation, numbers: Mapping[CauseKey, CauseNumber]) -> set[int]:
    """Returns the days with changed rows."""
    where = (one.session, one.rail, one.begin, _NO_END if one.end is None else one.end)
    now = {segment.n for segment in one.segments}
    days: set[int] = set()
    for number, n in db.execute(_SEGMENTS, where).fetchall():
        for level in LEVELS:
            rows = (level, one.session, number)
            if level in PAID_LEVELS:
                days.update(day for (day,) in db.execute(_DAYS, rows).fetchall())
            db.execute(_DELETE, rows)
        if n not in now:
            db.execute("DELETE FROM segments WHERE id = ?", (number,))
    for segment in one.segments:
        values = (one.session, one.rail, segment.n, segment.newest, segment.state)
        ((number,),) = db.execute(_UPSERT, values).fetchall()
        db.executemany(_INSERT, _rows(one.session, number, segment.by_bucket, numbers))
        days.update(key.day for key in segment.by_bucket)
    return days


def _rows(
    session: int, segment: int, by_bucket: dict[SumKey, ByCause], numbers: Mapping[CauseKey, CauseNumber]
) -> list[tuple[int, ...]]:
    """By activity, and for all activities together."""
    sums: dict[tuple[int, ...], list[int]] = {}
    for sum_key, causes in by_bucket.items():
        day, *rest, own = sum_key
        for key, counts in causes.items():
            number = numbers[key]
            for activity in (ALL_ACTIVITIES, own):
                row = (number.level, session, activity, segment, day, number.id, *rest)
                before = sums.get(row)
                sums[row] = counts if before is None else [a + b for a, b in zip(before, counts, strict=True)]
    return sorted((*row, *counts) for row, counts in sums.items())


class StaleBlock(NamedTuple):
    """The new rows of a block of `cause_blocks`, and how often it had changed."""

    block: int
    times: int
    rows: list[tuple[int, ...]]


def read_stale_block(db: sqlite3.Connection) -> StaleBlock | None:
    stale = db.execute("SELECT block, times FROM stale_blocks ORDER BY block LIMIT 1").fetchall()
    if not stale:
        return None
    ((block, times),) = stale
    days = (block * BLOCK_DAYS, (block + 1) * BLOCK_DAYS)
    moments = tuple(day * DAY_MS - SHIFT_MS for day in days)
    rows = [row for sql in _CONDENSE for row in db.execute(sql, (block, *days, *moments))]
    return StaleBlock(block, times, rows + _over_versions(rows))


def _over_versions(rows: Sequence[tuple[int, ...]]) -> list[tuple[int, ...]]:
    """A third to a seventh as many rows, for reports that need no versions."""
    sums: dict[tuple[int, ...], Sequence[int]] = {}
    for block, level, activity, version, *rest in rows:
        if version != ALL_VERSIONS:
            (cause, turn_class, place), counts = rest[:3], rest[3:]
            row = (block, level, activity, ALL_VERSIONS, cause, turn_class, place)
            sums[row] = [*map(add, sums[row], counts)] if row in sums else counts
    return [(*row, *counts) for row, counts in sums.items()]


def begin_block(db: sqlite3.Connection, block: int) -> None:
    """No report reads the rows of a stale block. This and the next two must run in a transaction."""
    db.execute("DELETE FROM cause_blocks WHERE block = ?", (block,))


def write_block(db: sqlite3.Connection, rows: Sequence[tuple[int, ...]]) -> None:
    db.executemany(_INSERT_BLOCK, rows)


def finish_block(db: sqlite3.Connection, block: StaleBlock) -> None:
    """The block stays stale if it changed since it was read."""
    db.execute("DELETE FROM stale_blocks WHERE block = ? AND times = ?", (block.block, block.times))


_MARKS = f"SELECT id, session, rail, turn_index, times FROM changed ORDER BY id DESC LIMIT {_MARKS_AT_ONCE}"
_TURN_BUCKETS = f"""
SELECT s.name, t.message_id, t.id, t.prompt_id,
       CASE WHEN coalesce(u.agent_id, '') = '' THEN '' ELSE coalesce(a.name, '{UNKNOWN_AGENT}') END,
       (t.ts + {SHIFT_MS}) / {DAY_MS}, t.class, t.place, coalesce(t.branch, 0), coalesce(t.version, 0), t.subagent,
       coalesce(t.activity, {NO_ACTIVITY})
FROM turns t JOIN names s ON s.id = t.source
LEFT JOIN subagents u ON u.id = t.subagent LEFT JOIN names a ON a.id = u.type
WHERE t.session = ? AND t.rail = ? AND t.turn_index >= ? AND t.turn_index < ?
"""
_STATES = "SELECT n, newest, state FROM segments WHERE session = ? AND rail = ? AND n < ? ORDER BY n DESC"
_IS_EXPLAINED = "SELECT 1 FROM segments WHERE session = ? AND rail = ? AND n = ?"
_NEXT = """
SELECT min(first) FROM (
  SELECT min(turn_index) AS first FROM turns WHERE session = ?1 AND rail = ?2 AND turn_index >= ?3
  UNION ALL SELECT min(turn_index) FROM facts WHERE session = ?1 AND kind = 'copy' AND rail = ?2 AND turn_index >= ?3)
"""
_SEGMENTS = "SELECT id, n FROM segments WHERE session = ? AND rail = ? AND n >= ? AND n < ?"
_DAYS = f"""
SELECT DISTINCT day FROM cause_sums WHERE level = ? AND session = ? AND activity = {ALL_ACTIVITIES} AND segment = ?
"""
# Steps from one activity of the session to the next, without reading the whole session.
_DELETE = """
DELETE FROM cause_sums WHERE level = ?1 AND session = ?2 AND segment = ?3 AND activity IN (
  WITH RECURSIVE a(id) AS (
    SELECT min(activity) FROM cause_sums WHERE level = ?1 AND session = ?2
    UNION ALL SELECT (SELECT min(activity) FROM cause_sums WHERE level = ?1 AND session = ?2 AND activity > a.id)
    FROM a WHERE a.id IS NOT NULL)
  SELECT id FROM a WHERE id IS NOT NULL)
"""
_UPSERT = (
    "INSERT INTO segments(session, rail, n, newest, state) VALUES(?,?,?,?,?) "
    "ON CONFLICT DO UPDATE SET newest = excluded.newest, state = excluded.state RETURNING id"
)
_INSERT = f"INSERT INTO cause_sums VALUES({','.join('?' * (11 + len(Sums._fields)))})"
_COUNTS = ", ".join(f"sum(x.{name})" for name in Sums._fields)
_OF_BLOCK = """
FROM (SELECT DISTINCT session FROM turns WHERE ts >= ?4 AND ts < ?5) s
CROSS JOIN cause_sums x ON x.session = s.session AND x.day >= ?2 AND x.day < ?3 AND x.level IN ({levels})
JOIN causes c ON c.id = x.cause GROUP BY 2, 3, 4, 5, 6, 7
"""
_VERSION = f"iif(x.activity = {ALL_ACTIVITIES}, x.version, {ALL_VERSIONS})"
_CONDENSE = (
    f"SELECT ?1, {TOOL}, x.activity, {_VERSION}, coalesce(nullif(c.whole, 0), c.id), x.class, x.place, {_COUNTS}"
    + _OF_BLOCK.format(levels=",".join(map(str, PAID_LEVELS))),
    f"SELECT ?1, x.level, x.activity, {_VERSION}, coalesce(nullif(c.subject, 0), c.id), x.class, x.place, {_COUNTS}"
    + _OF_BLOCK.format(levels=",".join(map(str, (FILE, COMMAND, NAMED, MISS)))),
)
_INSERT_BLOCK = f"INSERT INTO cause_blocks VALUES({','.join('?' * (7 + len(Sums._fields)))})"
