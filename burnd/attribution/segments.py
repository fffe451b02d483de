"""Explains rails segment by segment and writes the sums of their causes.

A segment is a fixed range of 256 message numbers. It starts from the saved state of the one before, so a new turn
explains one segment again, however long the session is. Its rows, its state and its row in `changed` change in one
transaction.

The turns of a segment are grouped by UTC day and every dimension except activity; each group again by quarter hour, and
again by activity. Each group has rows by cause, at each level that a report needs.
"""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from operator import add
from pathlib import Path
from typing import Any, Final, Generic, NamedTuple, TypeVar

import structlog
import zstandard

from burnd.attribution.cause_keys import (
    PAID_LEVELS,
    PROMPT,
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
from burnd.index.sums import BUCKET_MS, DAY, NO_ACTIVITY, SHIFT_MS
from burnd.protocol import UNKNOWN_AGENT
from burnd.records import Compaction, Turn

LENGTH: Final = 256
BLOCK_DAYS: Final = 32
DAYS, QUARTERS, ACTIVITIES = range(3)  # grains of groups
SUBJECT: Final = "iif(c.subject, c.subject, c.id)"  # of a cause `c` by target, for all tools
_UNEXPLAINED: Final = CauseGroup("unexplained")
_MESSAGES_BETWEEN_PAUSES: Final = 16  # some two milliseconds
_NO_END: Final = 1 << 62
_MARKS_AT_ONCE: Final = 500
log = structlog.get_logger()

SegmentGuard = Callable[[int, str, int], AbstractContextManager[None]]  # around segment n of a session's rail
Pause = Callable[[], None]  # after every few messages


def no_pause() -> None:
    pass


def no_guard(_session: int, _rail: str, _n: int) -> AbstractContextManager[None]:
    return nullcontext()


class GroupKey(NamedTuple):
    """Groups turns of one quarter of an hour, or of one UTC day and activity, by `grain`."""

    grain: int
    activity: int
    time: int  # the number of the quarter, or of the day
    price_class: int
    place: int
    branch: int
    version: int
    subagent: int


Bucket = TypeVar("Bucket", bound=Hashable)
MessageKey = tuple[str, str]  # source and message id
ByCause = dict[CauseKey, list[int]]  # in the order of `Sums`


class TurnBuckets(NamedTuple, Generic[Bucket]):
    buckets: tuple[Bucket, ...]
    prompt_id: str | None
    agent: str


class Segment(NamedTuple):
    """`newest` is the time of the newest message up to its end, `state` is set if another segment follows."""

    n: int
    newest: str
    state: bytes | None
    groups: dict[GroupKey, ByCause]
    spans: Mapping[GroupKey, tuple[int, int]]  # first and last quarter of an hour
    messages: int


class Start(NamedTuple):
    """The rail's state before a segment."""

    state: bytes | None = None
    newest: str = ""

    def restore_rail(self) -> Rail:
        return Rail() if self.state is None else restore(decompressed(self.state))


class Explanation(NamedTuple):
    """Segments that replace those from `begin` to `end`; `mark` and `times` are id and change count in `changed`."""

    session: int
    rail: str
    segments: list[Segment]
    begin: int
    end: int | None
    mark: int
    times: int


def explain_due(
    db: sqlite3.Connection, ledger: Path, most: int, pause: Pause = no_pause, guard: SegmentGuard = no_guard
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
    db: sqlite3.Connection,
    ledger: Path,
    mark: tuple[int, int, str, int, int],
    most: int,
    pause: Pause,
    guard: SegmentGuard,
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
    db: sqlite3.Connection,
    ledger: Path,
    session: int,
    rail: str,
    begin: int,
    start: Start,
    pause: Pause,
    guard: SegmentGuard,
) -> Iterator[Segment]:
    n = _next_segment(db, session, rail, begin)
    while n is not None:
        after = _next_segment(db, session, rail, n + 1)
        entries = load_span(db, ledger, session, rail, Span(n * LENGTH, (n + 1) * LENGTH, start.newest))
        newest = max((entry.ts for entry in entries if not isinstance(entry, Compaction)), default="")
        turns, spans = _groups(db, session, rail, n)
        guarded = guard(session, rail, n)  # outside the try: the index may be damaged
        state: bytes | None = None
        try:
            with guarded:
                followed = start.restore_rail()
                groups = sum_by_cause(followed, entries, turns, pause)
                if after is not None:
                    state = zstandard.ZstdCompressor(level=3, write_checksum=True).compress(save(followed))
        except Exception as error:  # noqa: BLE001 - one rail must not stop all others
            log.error("causes.failed", session=session, error=type(error).__name__)
            groups, state = _unexplained(entries, turns), None
        newest = max(newest, start.newest)
        yield Segment(n, newest, state, groups, spans, len(entries))
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
        (source, message_id): TurnBuckets((buckets[turn],), prompt_id, agent)
        for source, message_id, turn, prompt_id, agent, *_ in _turns_of(db, session, rail, n)
        if turn in buckets
    }
    return sum_by_cause(start.restore_rail(), entries, turns)


def sum_by_cause(
    rail: Rail, entries: Sequence[RailEntry], turns: Mapping[MessageKey, TurnBuckets[Bucket]], pause: Pause = no_pause
) -> dict[Bucket, ByCause]:
    tally: GroupTally[tuple[str, Bucket]] = GroupTally(rail)
    by_bucket: dict[Bucket, ByCause] = {}
    for number, entry in enumerate(entries):
        if number % _MESSAGES_BETWEEN_PAUSES == 0:
            pause()
        step = rail.feed(entry)
        if step is None or not isinstance(entry, Turn):
            continue
        one = turns.get((entry.source, entry.message_id))
        if one is not None:
            for bucket in one.buckets:
                tally.add(step, (one.agent, bucket))
            _add_prompt(by_bucket, one, entry)
    keys: dict[tuple[CauseGroup | MissGroup, str], CauseKey] = {}
    for (agent, bucket), sums in tally.take().items():
        for group, counts in sums.items():
            key = keys.get((group, agent))
            if key is None:
                key = keys[group, agent] = key_of(group, agent)
            _add(by_bucket, bucket, key, counts)
    return by_bucket


def _unexplained(
    entries: Sequence[RailEntry], turns: Mapping[MessageKey, TurnBuckets[Bucket]]
) -> dict[Bucket, ByCause]:
    """One cause, for a rail that cannot be explained."""
    by_bucket: dict[Bucket, ByCause] = {}
    for entry in entries:
        if isinstance(entry, Turn) and (one := turns.get((entry.source, entry.message_id))) is not None:
            for bucket in one.buckets:
                _add(by_bucket, bucket, key_of(_UNEXPLAINED, one.agent), [*spent_by(entry), 0, 0, 0])
            _add_prompt(by_bucket, one, entry)
    return by_bucket


def _add_prompt(by_bucket: dict[Bucket, ByCause], one: TurnBuckets[Bucket], turn: Turn) -> None:
    usage = turn.usage
    entered = usage.input + usage.cache_create_5m + usage.cache_create_1h
    for bucket in one.buckets:
        _add(by_bucket, bucket, CauseKey(PROMPTED, target=one.prompt_id or ""), [*spent_by(turn), entered, 1, 0])


def _add(by_bucket: dict[Bucket, ByCause], bucket: Bucket, key: CauseKey, counts: list[int]) -> None:
    _add_row(by_bucket.setdefault(bucket, {}), key, counts)


Key = TypeVar("Key", bound=Hashable)


def _add_row(sums: dict[Key, list[int]], key: Key, counts: list[int]) -> None:
    """Stores `counts` without copying if the key is new."""
    before = sums.get(key)
    sums[key] = counts if before is None else [*map(add, before, counts)]


def _turns_of(db: sqlite3.Connection, session: int, rail: str, n: int) -> list[tuple[Any, ...]]:
    return db.execute(_TURNS, (session, rail, n * LENGTH, (n + 1) * LENGTH)).fetchall()


def _groups(
    db: sqlite3.Connection, session: int, rail: str, n: int
) -> tuple[dict[MessageKey, TurnBuckets[GroupKey]], dict[GroupKey, tuple[int, int]]]:
    """The groups of each turn, and the first and last quarter of an hour of each group."""
    rows = _turns_of(db, session, rail, n)
    quarters: defaultdict[tuple[int, ...], set[int]] = defaultdict(set)
    for *_, quarter, _, price_class, place, branch, version, subagent in rows:
        quarters[quarter // DAY, price_class, place, branch, version, subagent].add(quarter)
    turns: dict[MessageKey, TurnBuckets[GroupKey]] = {}
    spans: dict[GroupKey, tuple[int, int]] = {}
    for source, message_id, _, prompt_id, agent, quarter, activity, *key in rows:
        groups = [GroupKey(ACTIVITIES, activity, quarter // DAY, *key)]
        if len(quarters[(quarter // DAY, *key)]) > 1:
            groups.append(GroupKey(QUARTERS, 0, quarter, *key))
        for group in groups:
            first, last = spans.get(group, (quarter, quarter))
            spans[group] = min(first, quarter), max(last, quarter)
        turns[source, message_id] = TurnBuckets(tuple(groups), prompt_id, agent)
    return turns, spans


def _next_segment(db: sqlite3.Connection, session: int, rail: str, n: int) -> int | None:
    """The first segment from the n-th on with messages."""
    ((index,),) = db.execute(_NEXT, (session, rail, n * LENGTH)).fetchall()
    return None if index is None else index // LENGTH


def write(db: sqlite3.Connection, explanations: Sequence[Explanation], numbers: dict[CauseKey, CauseNumber]) -> int:
    """Replaces the rows of explained segments; returns their number. Adds new causes to `numbers`."""
    keys = {
        key for one in explanations for segment in one.segments for causes in segment.groups.values() for key in causes
    }
    keys |= {key.whole for key in keys}
    numbers.update(number_causes(db, keys - numbers.keys()))
    blocks: set[int] = set()
    for one in explanations:
        blocks |= _replace(db, one, numbers)
        if one.end is None:
            db.execute("DELETE FROM changed WHERE id = ? AND times = ?", (one.mark, one.times))
        else:
            sql = "UPDATE changed SET turn_index = ?, times = times + 1 WHERE id = ? AND times = ?"
            db.execute(sql, (one.end * LENGTH, one.mark, one.times))
    changes.mark_sessions(db, changes.next_seq(db), sorted({one.session for one in explanations}))
    stale = [(block,) for block in sorted(blocks)]
    db.executemany("INSERT INTO stale_blocks VALUES(?, 1) ON CONFLICT DO UPDATE SET times = times + 1", stale)
    return sum(len(one.segments) for one in explanations)


def _replace(db: sqlite3.Connection, one: Explanation, numbers: Mapping[CauseKey, CauseNumber]) -> set[int]:
    """Returns the blocks with changed rows."""
    where = (one.session, one.rail, one.begin, _NO_END if one.end is None else one.end)
    now = {segment.n for segment in one.segments}
    blocks: set[int] = set()
    for number, n in db.execute(_SEGMENTS, where).fetchall():
        groups = db.execute(_GROUPS, (one.session, number)).fetchall()
        blocks.update(bucket // (BLOCK_DAYS * DAY) for _, bucket in groups)
        ids = [(group,) for group, _ in groups]
        db.executemany("DELETE FROM cause_sums WHERE turn_group = ?", ids)
        db.executemany("DELETE FROM turn_groups WHERE id = ?", ids)
        if n not in now:
            db.execute("DELETE FROM segments WHERE id = ?", (number,))
    ((last,),) = db.execute("SELECT coalesce(max(id), 0) FROM turn_groups").fetchall()
    for segment in one.segments:
        values = (one.session, one.rail, segment.n, segment.newest, segment.state)
        ((number,),) = db.execute(_UPSERT, values).fetchall()
        groups, rows = _rows(last, segment, numbers)
        db.executemany(_INSERT_GROUP, [(group, one.session, number, *rest) for group, *rest in groups])
        db.executemany(_INSERT, rows)
        last += len(groups)
        blocks.update(first // (BLOCK_DAYS * DAY) for first, _ in segment.spans.values())
    return blocks


Row = tuple[int, ...]


def _rows(last: int, segment: Segment, numbers: Mapping[CauseKey, CauseNumber]) -> tuple[list[Row], list[Row]]:
    """Groups with numbers after `last`, and their rows. Day groups are the sum of their activity groups."""
    days: dict[tuple[int, ...], list[GroupKey]] = {}
    for key in sorted(segment.groups):
        time = key.time // DAY if key.grain == QUARTERS else key.time
        days.setdefault((time, *key[3:]), []).append(key)
    groups: list[Row] = []
    rows: list[Row] = []
    for (_, *dimensions), keys in days.items():
        by_key = {key: _by_number(segment.groups[key], numbers) for key in keys}
        by_activity = [key for key in keys if key.grain == ACTIVITIES]
        of_day: dict[tuple[int, int], list[int]] = {}
        for key in by_activity:
            for row, counts in by_key[key].items():
                _add_row(of_day, row, counts)
        firsts, lasts = zip(*(segment.spans[key] for key in by_activity), strict=True)
        quarters = len(keys) - len(by_activity)
        of_all = (DAYS, 0, min(firsts), max(lasts) - min(firsts), quarters, of_day)
        finer = [
            (key.grain, key.activity, begin, end - begin, 0, by_key[key])
            for key in keys
            for begin, end in (segment.spans[key],)
        ]
        for *group, sums in (of_all, *finer):
            last += 1
            groups.append((last, *group, *dimensions))
            rows += [(last, *row, *counts) for row, counts in sorted(sums.items())]
    return groups, rows


def _by_number(causes: ByCause, numbers: Mapping[CauseKey, CauseNumber]) -> dict[tuple[int, int], list[int]]:
    """By level and cause, plus a total for each tool."""
    sums: dict[tuple[int, int], list[int]] = {}
    for key, counts in causes.items():
        number, level, whole = numbers[key]
        if level != TOOL:
            sums[level, number] = counts
        if level in PAID_LEVELS:
            _add_row(sums, (TOOL, whole), counts)
    return sums


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
    buckets = (block * BLOCK_DAYS * DAY, (block + 1) * BLOCK_DAYS * DAY)
    return StaleBlock(block, times, db.execute(_CONDENSE, (block, *buckets)).fetchall())


def begin_block(db: sqlite3.Connection, block: int) -> None:
    """Deletes the rows of a stale block, which no report reads. Needs a transaction, as the next two do."""
    db.execute("DELETE FROM cause_blocks WHERE block = ?", (block,))


def write_block(db: sqlite3.Connection, rows: Sequence[tuple[int, ...]]) -> None:
    db.executemany(_INSERT_BLOCK, rows)


def finish_block(db: sqlite3.Connection, block: StaleBlock) -> None:
    """The block stays stale if it changed since it was read."""
    db.execute("DELETE FROM stale_blocks WHERE block = ? AND times = ?", (block.block, block.times))


_MARKS = f"SELECT id, session, rail, turn_index, times FROM changed ORDER BY id DESC LIMIT {_MARKS_AT_ONCE}"
_TURNS = f"""
SELECT s.name, t.message_id, t.id, t.prompt_id,
       CASE WHEN coalesce(u.agent_id, '') = '' THEN '' ELSE coalesce(a.name, '{UNKNOWN_AGENT}') END,
       (t.ts + {SHIFT_MS}) / {BUCKET_MS}, coalesce(t.activity, {NO_ACTIVITY}),
       t.class, t.place, coalesce(t.branch, 0), coalesce(t.version, 0), t.subagent
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
_GROUPS = "SELECT id, bucket FROM turn_groups WHERE session = ? AND segment = ?"
_UPSERT = (
    "INSERT INTO segments(session, rail, n, newest, state) VALUES(?,?,?,?,?) "
    "ON CONFLICT DO UPDATE SET newest = excluded.newest, state = excluded.state RETURNING id"
)
_INSERT_GROUP = f"INSERT INTO turn_groups VALUES({','.join('?' * 13)})"
_INSERT = f"INSERT INTO cause_sums VALUES({','.join('?' * (3 + len(Sums._fields)))})"
_COUNTS = ", ".join(f"sum(x.{name})" for name in Sums._fields)
_CONDENSE = f"""
SELECT ?1, x.level, t.activity, iif(x.level = {TOOL}, c.id, {SUBJECT}), t.class, t.place, {_COUNTS}
FROM endings e CROSS JOIN turn_groups t ON t.session = e.session AND t.bucket >= ?2 AND t.bucket < ?3
CROSS JOIN cause_sums x ON x.turn_group = t.id AND x.level <> {PROMPT} CROSS JOIN causes c ON c.id = x.cause
WHERE e.last_bucket >= ?2 AND e.first_bucket < ?3 AND t.grain <> {QUARTERS} GROUP BY 2, 3, 4, 5, 6
"""
_INSERT_BLOCK = f"INSERT INTO cause_blocks VALUES({','.join('?' * (6 + len(Sums._fields)))})"
