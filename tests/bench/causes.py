"""Makes causes for hotspots over a long history. The turns are those of a busy year (`year`), the causes are invented:
the tokens of each turn are split into a prefix, prompts, answers, tools, files of the project and commands, so that
there are as many rows as in a real year."""

from __future__ import annotations

import random
import sqlite3
from collections import Counter
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

import msgspec

from burnd.attribution import segments
from burnd.attribution.cause_keys import PROMPTED, CauseKey, CauseNumber
from burnd.attribution.row import portions
from burnd.attribution.segments import ACTIVITIES, QUARTERS, ByCause, Explanation, GroupKey, Segment, _add
from burnd.contract.reports import CAUSES, HotspotsParams
from burnd.contract.validation import checked
from burnd.index.store import IndexStore
from burnd.index.sums import DAY
from burnd.queries.hotspots import hotspots
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
    for by in CAUSES:
        for filters in (*plain, *by_session):
            yield _hotspots(by=by, limit=30, **filters)
    yield _hotspots(by="tool,model")
    yield _hotspots(by="file,project", limit=30)
    for tz in ("UTC", "Europe/Berlin"):
        yield _hotspots(by="tool,day", tz=tz, since="31d")
    yield _hotspots(by="tool,hour", tz="Europe/Berlin", since="3d")


def _hotspots(**params: Any) -> Question:
    asked = checked(HotspotsParams, params)
    return Question("hotspots", str(params), lambda view: hotspots(view, Path("/dev/null"), asked))


async def fill(store: IndexStore) -> None:
    """Makes up what the turns of every session paid for."""
    rng = random.Random(11)
    sessions = [row[0] for row in await store.rows("SELECT DISTINCT session FROM turns ORDER BY 1")]
    numbers: dict[CauseKey, CauseNumber] = {}
    for begin in range(0, len(sessions), _SESSIONS_AT_ONCE):
        some = sessions[begin : begin + _SESSIONS_AT_ONCE]
        rows = await store.rows(_TURNS, (msgspec.json.encode(some).decode(),))
        made = [_session(rng, session, list(group)) for session, group in groupby(rows, key=lambda row: int(row[0]))]
        await store.transact(lambda db: segments.write(db, made, numbers))  # noqa: B023 - done at once
    await store.transact(_condense)


def _condense(db: sqlite3.Connection) -> None:
    while (block := segments.read_stale_block(db)) is not None:
        segments.write_block(db, block.rows)
        segments.finish_block(db, block)


def _session(rng: random.Random, session: int, rows: list[Any]) -> Explanation:
    """Shares the tokens of each quarter of an hour out among a dozen causes of the session."""
    place = rows[0][4]
    files = {int(rng.paretovariate(0.5)) % FILES_A_PROJECT for _ in range(12)}
    keys = [CauseKey(kind) for kind in _OTHERS]
    keys += [CauseKey("call", rng.choice(("Read", "Edit")), f"/home/me/code/p{place}/src/file_{n}.py") for n in files]
    keys += [CauseKey("call", "Bash", rng.choice(_COMMANDS)) for _ in range(4)]
    keys += [CauseKey("call", rng.choice(_TOOLS)), CauseKey("call", "Task", "Explore")]
    paid: dict[GroupKey, ByCause] = {}
    spans: dict[GroupKey, tuple[int, int]] = {}
    quarters = Counter((quarter // DAY, *key) for quarter, *key in {(row[1], *row[3:8]) for row in rows})
    for row in rows:
        quarter, activity, key, agent, prompt, turns, tokens = (
            row[1],
            row[2],
            row[3:8],
            row[8],
            row[9],
            row[10],
            row[11:],
        )
        groups = [GroupKey(ACTIVITIES, activity, quarter // DAY, *key)]
        if quarters[quarter // DAY, *key] > 1:
            groups.append(GroupKey(QUARTERS, 0, quarter, *key))
        some = rng.sample(keys, 12)
        parts = [portions(amount, [3] * 12) for amount in tokens]
        for group in groups:
            first, last = spans.get(group, (quarter, quarter))
            spans[group] = min(first, quarter), max(last, quarter)
            for n, cause in enumerate(some):
                counts = [*(part[n] for part in parts), 0, parts[0][n], int(cause.kind == "call"), 0]
                _add(paid, group, cause._replace(agent=agent or ""), counts)
            entered = tokens[0] + tokens[4] + tokens[5]
            _add(paid, group, CauseKey(PROMPTED, target=prompt or ""), [*tokens, 0, entered, turns, 0])
    return Explanation(session, "main", [Segment(0, "", None, paid, spans, 0)], 0, None, 0, 0)


_TURNS = """
SELECT t.session, (t.ts + 62135596800000) / 900000, coalesce(t.activity, -1), t.class, t.place,
       coalesce(t.branch, 0), coalesce(t.version, 0), t.subagent, a.name, t.prompt_id, count(*),
       sum(t.input), sum(t.output), sum(t.reasoning), sum(t.cache_read),
       sum(t.cache_create_5m), sum(t.cache_create_1h)
FROM json_each(?) w CROSS JOIN turns t ON t.session = w.value LEFT JOIN names a ON a.id = t.agent_type
GROUP BY 1, 2, 3, 4, 5, 6, 7, 8, t.prompt_id ORDER BY 1
"""
