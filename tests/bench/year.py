"""Makes an index of a busy year in bulk: sessions of many projects, models and branches, with stamps of every kind."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from burnd.classify.activity import LABELS
from burnd.index import rows
from burnd.index.apply import Applier
from burnd.index.build import no_progress
from burnd.index.store import IndexStore, open_index
from burnd.index.sums import SumWriter, condense
from burnd.records import Subagent, Turn, Usage
from burnd.records.times import to_iso
from tests.make import stamp

END_MS = 1_790_000_000_000
YEAR_MS = 365 * 86_400_000
PROJECTS, TURNS_A_SESSION = 50, 50
MODELS = (
    ("claude-code", "claude-opus-4-5-20251101", None, 30),
    ("claude-code", "claude-sonnet-4-5-20250929", None, 35),
    ("claude-code", "claude-haiku-4-5-20251001", None, 5),
    ("opencode", "claude-sonnet-4-5", "anthropic", 12),
    ("opencode", "gpt-5", "openai", 12),
    ("opencode", "gemini-2.5-pro", "google", 6),
)
_WEIGHTS = (2, 2, 8, 5, 6, 2, 1, 4, 3, 12, 4, 8, 3, 12, 20, 3, 2, 6)
_EDITS = frozenset(("coding", "feature", "docs", "refactoring"))
_BATCH = 20_000


async def make_year(path: Path, turns: int, seed: int = 7) -> IndexStore:
    """An index of so many turns in a year."""
    store = await open_index(path)
    await store.writer.run(lambda db: db.execute("PRAGMA synchronous=OFF").fetchall())
    applier = Applier(store)
    rng = random.Random(seed)
    made = 0
    batch: list[Turn] = []
    for number in range(max(1, turns // TURNS_A_SESSION)):
        batch += _session(rng, number)
        if len(batch) >= _BATCH:
            made = await _write(store, applier, batch, made)
            batch = []
    await _write(store, applier, batch, made)
    await _stamp(store, rng)
    await say_quotas(store)
    await store.transact(lambda db: SumWriter(None).rebuild(db, no_progress))
    while await store.transact(lambda db: condense(db, days=50)):
        pass
    return store


def session_id(number: int) -> str:
    return f"{random.Random(number).getrandbits(32):08x}-aaaa-4bbb-8ccc-{number:012x}"


def _session(rng: random.Random, number: int) -> Iterator[Turn]:
    """One sitting, which may be taken up again days later, with prompts, edits and now and then a subagent."""
    *_, weights = zip(*MODELS, strict=True)
    source, model, provider, _ = rng.choices(MODELS, weights)[0]
    project = min(PROJECTS - 1, int(rng.paretovariate(0.7)) - 1)
    begun = END_MS - YEAR_MS + rng.randrange(364) * 86_400_000
    ts = begun + int(min(23.9, max(0.0, rng.gauss(14, 4))) * 3_600_000)
    focus = rng.choices(LABELS, _WEIGHTS, k=4)
    prompt, left, retries, context, agent_left, agent = 0, 0, 0, 15_000, 0, ""
    for index in range(max(1, int(rng.lognormvariate(3.5, 0.85)))):
        if left == 0:
            prompt, left, retries = prompt + 1, max(1, int(rng.expovariate(1 / 12))), 0
        left -= 1
        ts += int(_pause(rng) * 1000)
        if agent_left == 0 and source == "claude-code" and rng.random() < 0.012:
            agent_left, agent = rng.randrange(3, 25), f"a{rng.getrandbits(64):016x}"
        agent_left = max(0, agent_left - 1)
        activity = rng.choice(focus) if rng.random() < 0.8 else rng.choices(LABELS, _WEIGHTS)[0]
        edits = activity in _EDITS
        retries += edits and rng.random() < 0.12
        context = 20_000 if rng.random() < 0.005 else min(230_000, context + int(rng.expovariate(1 / 1500)))
        by_agent = agent_left > 0
        yield Turn(
            source=source,
            session_id=session_id(number),
            rail_id=agent if by_agent else "main",
            message_id=f"msg_{rng.getrandbits(96):024x}",
            turn_index=index,
            ts=to_iso(ts),
            model="claude-haiku-4-5-20251001" if by_agent and rng.random() < 0.6 else model,
            provider=provider,
            project=f"/home/me/code/p{project}",
            project_key=f"github.com/me/p{project}" if project % 3 else None,
            git_branch=f"topic-{(number // 40) % 8}",
            usage=Usage(
                input=rng.randrange(3, 20),
                output=rng.randrange(20, 2000),
                cache_read=context * 93 // 100,
                cache_create_5m=context * 7 // 100,
            ),
            harness_version=f"2.{number // 500}.{number // 50 % 10}",
            subagent=Subagent(agent_id=agent, type=rng.choice(("Explore", "general-purpose"))) if by_agent else None,
            stop_reason="tool_use",
            activity=activity,
            has_edits=edits,
            retries=0,
            prompt_id=f"{number:08x}-1111-4222-8333-{prompt:012x}",
            prompt_retries=retries,
            quality="final" if rng.random() > 0.01 else "partial",
        )


def _pause(rng: random.Random) -> float:
    seconds = rng.expovariate(1 / 18)
    if rng.random() < 0.012:
        seconds += rng.expovariate(1 / 3600)
    if rng.random() < 0.002:
        seconds += 86_400 * 3 * rng.random()
    return seconds


async def _write(store: IndexStore, applier: Applier, turns: list[Turn], made: int) -> int:
    """Turns and sessions as `index/apply` writes them, without what it does turn by turn."""

    def write(db: sqlite3.Connection) -> None:
        names = applier._names
        texts = {text for turn in turns for text in rows.turn_names(turn) if text is not None} - names.keys()
        for text in sorted(texts):
            names[text] = len(names) + 1
        db.executemany("INSERT INTO names VALUES(?,?)", [(names[text], text) for text in sorted(texts)])
        numbers = applier._sessions
        for session in sorted({turn.session_id for turn in turns} - numbers.keys()):
            numbers[session] = len(numbers) + 1
        numbered = applier._sums.number(db, [(turn, False) for turn in turns], names)
        known = applier._name
        written = []
        for n, (turn, dimensions) in enumerate(zip(turns, numbered, strict=True), made + 1):
            row = rows.turn_row(turn, n, numbers[turn.session_id], known)
            written.append((*row, False, 1, n * 7919, n * 900, 900, *dimensions, 0))
        marks = ",".join("?" * len(rows.TURN_COLUMNS))
        db.executemany(f"INSERT INTO turns({','.join(rows.TURN_COLUMNS)}) VALUES({marks})", written)
        first = {turn.session_id: turn for turn in reversed(turns)}
        db.executemany(
            "INSERT OR IGNORE INTO sessions(id, session_id, source, project, project_key, created_at) "
            "VALUES(?,?,?,?,?,?)",
            [
                (numbers[s], s, names[t.source], known(t.project), known(t.project_key), 0)
                for s, t in sorted(first.items())
            ],
        )

    await store.transact(write)
    return made + len(turns)


async def _stamp(store: IndexStore, rng: random.Random) -> None:
    """Three stamps on nine sessions in ten; a range or a single message on one in fifty."""
    sessions = await store.rows("SELECT s.id, s.session_id FROM sessions s ORDER BY s.id")
    made: list[Any] = []
    for number, name in sessions:
        if rng.random() < 0.9:
            made.append(stamp(1, session=name, workflowId=f"wf-{number // 10}", persona=f"p{number % 12}"))
            made.append(stamp(2, session=name, agentId=f"agent-{number % 200}", parentAgentId=f"agent-{number % 20}"))
            made.append(stamp(3, session=name, persona=f"p{number % 7}", step=f"{number % 5}"))
        if rng.random() < 0.01:
            made.append(await _narrow(store, number, name))
        if rng.random() < 0.01:
            ((message,),) = await store.rows("SELECT message_id FROM turns WHERE session = ? LIMIT 1", (number,))
            made.append(stamp(5, message=message, persona="reviewer"))

    def write(db: sqlite3.Connection) -> None:
        db.executemany(
            "INSERT INTO stamps VALUES(?,?,?,?,?,?,?)", [rows.stamp_row(s, n) for n, s in enumerate(made, 1)]
        )
        db.executemany("INSERT OR REPLACE INTO session_tags VALUES(?,?,?,?,?)", _of(made, rows.session_tag_rows))
        db.executemany("INSERT INTO narrow_tags VALUES(?,?,?,?,?,?,?,?)", _of(made, rows.narrow_tag_rows))

    await store.transact(write)


async def say_quotas(store: IndexStore) -> None:
    """Usage readings of the account's windows: at every eighth turn of Claude Code a little more is used."""
    found = await store.rows(_ASKED)
    told: list[tuple[Any, ...]] = []
    for window, length, step in (("5h", 5 * 3_600_000, 0.7), ("7d", 7 * 86_400_000, 0.05)):
        end, used = 0, 0.0
        for ts, source in found:
            if ts >= end:
                end, used = ts - ts % 3_600_000 + length, 0.0
            if used < 100:
                used = min(100.0, round(used + step, 2))
                told.append((ts, source, window, used, end))
    await store.transact(
        lambda db: db.executemany("INSERT INTO quotas VALUES(?,?,?,?,?,?)", [(n, *row) for n, row in enumerate(told)])
    )


async def _narrow(store: IndexStore, number: int, name: str) -> Any:
    ((begin, end),) = await store.rows("SELECT min(ts), max(ts) FROM turns WHERE session = ?", (number,))
    made = stamp(4, session=name, persona="tester", step="late")
    span = {"fromTs": to_iso((begin + end) // 2), "toTs": to_iso(end + 1)}
    selector = msgspec.convert({"sessionId": name, "range": span}, type(made.selector))
    return msgspec.structs.replace(made, selector=selector)


def _of(stamps: Iterable[Any], rows_of: Any) -> list[Any]:
    return [row for n, made in enumerate(stamps, 1) for row in rows_of(made, n)]


_ASKED = (
    "SELECT t.ts, t.source FROM turns t JOIN names n ON n.id = t.source "
    "WHERE n.name = 'claude-code' AND t.id % 8 = 0 ORDER BY t.ts"
)
