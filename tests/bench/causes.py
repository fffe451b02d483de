"""What is asked of hotspots over a long history, and the causes it is asked about.

Turns are a busy year's (`year`), their causes made up: every turn's tokens are shared out among a prefix, prompts,
answers, tools, files of its project and commands, so that there are as many rows as a real year has.
"""

from __future__ import annotations

import random
import sqlite3
from collections import Counter
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Any, get_args

import msgspec

from burnd.attribution.blocks import portions
from burnd.attribution.sums import CALL, ENTERED, pack
from burnd.causes import prompts
from burnd.causes.cause import CauseKey, Dims, Numbered
from burnd.causes.counting import A_DAY, LENGTH
from burnd.causes.packs import Counted, packed
from burnd.causes.rolling import rolled
from burnd.causes.writing import Piece, Written, number, write
from burnd.contract.checking import checked
from burnd.contract.reports import HotspotsParams
from burnd.index.store import IndexStore
from burnd.queries.hotspots import By, hotspots
from tests.bench.queries import ODD, Question
from tests.bench.year import session_id

FILES_A_PROJECT = 600
_SESSIONS_AT_ONCE = 500
_OTHERS = ("prefix", "prompt", "answer", "thinking", "reminder", "unexplained")
_TOOLS = ("Grep", "Glob", "TodoWrite", "WebFetch", "mcp__git__log", "mcp__db__query")
_COMMANDS = tuple(f"{verb} {what}" for verb in ("npm", "git", "cargo", "make", "uv") for what in range(12))


def questions() -> Iterator[Question]:
    plain: tuple[dict[str, Any], ...] = (
        {},
        {"since": "7d"},
        ODD,
        {"model": "claude-sonnet-4-5"},
        {"project": "github.com/me/p1"},
        {"source": "opencode"},
        {"activity": "exploration"},
    )
    by_session: tuple[dict[str, Any], ...] = (
        {"tags": {"persona": "p3"}},
        {"tags": {"persona": "p3"}, "since": "90d"},
        {"workflow": "wf-100"},
        {"agent": "Explore"},
        {"branch": "topic-3"},
        {"session": session_id(40)},
    )
    for by in get_args(By):
        for filters in plain:
            yield _hotspots(100, by=by, limit=30, **filters)
        for filters in by_session:
            yield _hotspots(500, by=by, limit=30, **filters)


def _hotspots(within: float, **params: Any) -> Question:
    asked = checked(HotspotsParams, params)
    return Question("hotspots", within, str(params), lambda view: hotspots(view, Path("/dev/null"), asked))


async def fill(store: IndexStore) -> None:
    """Makes up what the turns of every session paid for."""
    rng = random.Random(11)
    sessions = [row[0] for row in await store.rows("SELECT DISTINCT session FROM turns ORDER BY 1")]
    numbers: dict[CauseKey, Numbered] = {}
    for begin in range(0, len(sessions), _SESSIONS_AT_ONCE):
        some = sessions[begin : begin + _SESSIONS_AT_ONCE]
        rows = await store.rows(_TURNS, (msgspec.json.encode(some).decode(),))
        made = [_session(rng, session, list(group)) for session, group in groupby(rows, key=lambda row: int(row[0]))]
        missing = {key for _, shares, _ in made for _, key, _ in shares} - numbers.keys()
        numbers |= await store.transact(lambda db: number(db, missing))  # noqa: B023 - done at once
        await store.transact(lambda db: write(db, _written(made, numbers)))  # noqa: B023 - done at once
    await store.transact(_fill_prompts)


def _fill_prompts(db: sqlite3.Connection) -> None:
    pieces = db.execute(f"SELECT DISTINCT session, rail, turn_index / {LENGTH} FROM turns").fetchall()
    prompts.count_again(db, pieces)


Share = tuple[Dims, CauseKey, int]
Made = tuple[int, list[Share], dict[Dims, int]]


def _session(rng: random.Random, session: int, rows: list[Any]) -> Made:
    """Shares the tokens of each quarter of an hour out among a dozen causes of the session."""
    place = rows[0][3]
    files = {int(rng.paretovariate(0.5)) % FILES_A_PROJECT for _ in range(12)}
    keys = [CauseKey(kind) for kind in _OTHERS]
    keys += [CauseKey("call", rng.choice(("Read", "Edit")), f"/home/me/code/p{place}/src/file_{n}.py") for n in files]
    keys += [CauseKey("call", "Bash", rng.choice(_COMMANDS)) for _ in range(4)]
    keys += [CauseKey("call", rng.choice(_TOOLS)), CauseKey("call", "Task", "Explore")]
    shares: list[Share] = []
    for row in rows:
        dims, agent, tokens = row[1:7], row[7], row[9:]
        some = rng.sample(keys, 12)
        parts = [portions(amount, [3] * 12) for amount in tokens]
        for n, key in enumerate(some):
            paid = [part[n] for part in parts]
            sums = pack(paid) + paid[0] * ENTERED + CALL * (key.kind == "call")
            name = key._replace(agent=agent or "")
            shares += [(Dims(*dims[:-1]), name, sums), (Dims(dims[0] // A_DAY, *dims[1:]), name, sums)]
    turns: Counter[Dims] = Counter()
    for row in rows:
        turns[Dims(*row[1:6])] += row[8]
    return session, shares, turns


def _written(made: list[Made], numbers: dict[CauseKey, Numbered]) -> Written:
    pieces: list[Piece] = []
    changes: list[tuple[int, Counted, Counted]] = []
    for session, shares, turns in made:
        counted: Counted = {}
        for dims, key, sums in shares:
            cells, cause = counted.setdefault(dims, {}), numbers[key].id
            cells[cause] = cells.get(cause, 0) + sums
        changes.append((session, {}, counted))
        pieces.append(Piece(session, "main", 0, "", None, packed(counted, turns)))
    return Written(pieces, [], rolled(changes, {cause.id: cause for cause in numbers.values()}), [])


_TURNS = """
SELECT t.session, (t.ts + 62135596800000) / 900000, t.class, t.place, coalesce(t.branch, 0), t.subagent,
       coalesce(t.activity, -1), a.name, count(*), sum(t.input), sum(t.output), sum(t.reasoning), sum(t.cache_read),
       sum(t.cache_create_5m), sum(t.cache_create_1h)
FROM json_each(?) w CROSS JOIN turns t ON t.session = w.value LEFT JOIN names a ON a.id = t.agent_type
GROUP BY 1, 2, 3, 4, 5, 6, 7 ORDER BY 1
"""
