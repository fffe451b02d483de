"""Real databases, recordings of their changes, and a generator, each with exact totals."""

from __future__ import annotations

import random
import shutil
import sqlite3
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from burnd.records import Turn, Usage
from tests.capture.opencode_rig import OpenCodeRig, clean_read
from tests.capture.opencode_traces import Trace, prepared, samples, traces, write_sessions
from tests.harness.collect import cases
from tests.harness.opencode.data import Writer
from tests.make import seeds
from tests.queries.corpora import OPENCODE_OPTIONS, Corpora, needs_opencode_corpus

# Based on the tables only: output without reasoning where the total says that it was counted within, or
# where a release that wrote no total yet counted it so; and no row that is older than its session if another session
# has one with the same time, model and tokens.
INDEPENDENT = """
WITH step AS (
  SELECT m.id, m.time_created AS made, s.time_created AS begun, json_extract(m.data, '$.modelID') AS model,
         json_extract(m.data, '$.tokens.input') AS input, json_extract(m.data, '$.tokens.output') AS output,
         json_extract(m.data, '$.tokens.reasoning') AS reasoning, json_extract(m.data, '$.tokens.cache.read') AS read,
         json_extract(m.data, '$.tokens.cache.write') AS written, json_extract(m.data, '$.tokens.total') AS total,
         s.version LIKE '1.1.%' AS early
  FROM message m JOIN session s ON s.id = m.session_id WHERE json_extract(m.data, '$.role') = 'assistant'),
billed AS (
  SELECT * FROM step AS one WHERE made >= begun OR NOT EXISTS (
    SELECT 1 FROM step AS other WHERE other.id <> one.id AND other.made = one.made AND other.model = one.model
    AND other.made >= other.begun AND (other.input, other.output, other.reasoning, other.read, other.written)
      = (one.input, one.output, one.reasoning, one.read, one.written)))
SELECT model, sum(input),
       sum(CASE WHEN coalesce(total = input + output + read + written, early) THEN output - reasoning ELSE output END),
       sum(reasoning), sum(read), sum(written), count(*)
FROM billed GROUP BY model ORDER BY model
"""


@pytest.mark.parametrize("sample", cases(samples()), ids=lambda path: path.parent.name)
async def test_the_totals_of_real_databases(tmp_path: Path, sample: Path) -> None:
    """Sums of the ledger by model equal those of a query of the tables."""
    shutil.copyfile(sample, copied(tmp_path) / "opencode.db")
    with sqlite3.connect(tmp_path / "data" / "opencode.db") as db:
        expected = db.execute(INDEPENDENT).fetchall()
    db.close()
    rig = OpenCodeRig(tmp_path / "home", tmp_path / "data")
    await rig.open()
    await rig.settle()
    assert totals(rig.turns().values()) == expected
    assert rig.source.status().state == "polling"
    await rig.close()


def copied(tmp_path: Path) -> Path:
    (tmp_path / "data").mkdir()
    return tmp_path / "data"


def totals(turns: Any) -> list[tuple[Any, ...]]:
    found: dict[str, Counter[str]] = {}
    for turn in turns:
        u = turn.usage
        counts = Counter(i=u.input, o=u.output, r=u.reasoning, cr=u.cache_read, cw=u.cache_create_5m, n=1)
        found.setdefault(turn.model, Counter()).update(counts)
    return [(model, *(found[model][name] for name in ("i", "o", "r", "cr", "cw", "n"))) for model in sorted(found)]


@pytest.mark.parametrize("lives", [1, pytest.param(5, marks=pytest.mark.slow)])
@pytest.mark.parametrize("path", cases(traces()), ids=lambda path: path.stem)
async def test_a_recording_looked_at_in_any_phase_ends_the_same(tmp_path: Path, path: Path, lives: int) -> None:
    """I2: rows as a real program changed them, looked at at random times, with restarts in between."""
    trace = Trace(path)
    final = prepared(tmp_path / "whole", trace)
    for _, (sql, values) in trace.steps:
        final.db.execute(sql, values)
    final.close()
    expected = await clean_read(tmp_path / "clean", tmp_path / "whole")
    assert any(key[0] == "turn" for key in expected["ledger"]["latest"])
    for seed in range(lives):
        found = await lived_through(tmp_path / f"home{seed}", tmp_path / f"live{seed}", trace, seed)
        for what, said in expected.items():
            assert found[what] == said


async def lived_through(home: Path, data: Path, trace: Trace, seed: int) -> dict[str, Any]:
    rng = random.Random(seed)
    writer = prepared(data, trace)
    rig = OpenCodeRig(home, data)
    now = 0.0
    rig.wall = lambda: trace.begun + int(now * 1000)
    await rig.open()
    for now, looks in moments(trace, rng):
        for _, (sql, values) in [step for step in trace.steps if step[0] == now]:
            writer.db.execute(sql, values)
        rig.passed = now
        if looks:
            await rig.attend(0.0)
        if rng.random() < 0.05:
            await rig.restart()
    await rig.settle()
    outcome = await rig.outcome()
    await rig.close()
    writer.close()
    return outcome


def moments(trace: Trace, rng: random.Random) -> Iterator[tuple[float, bool]]:
    """Times of row changes and of polls between them, at a constant pace."""
    pace, phase = rng.choice([0.1, 0.7, 2.3]), rng.random()
    end = trace.steps[-1][0] + 1
    looks = [phase + n * pace for n in range(int(end / pace) + 1)]
    yield from sorted([(t, False) for t in {step[0] for step in trace.steps}] + [(t, True) for t in looks])


@needs_opencode_corpus
@pytest.mark.parametrize(
    "options",
    [
        pytest.param(["--seed", "1"], marks=pytest.mark.slow),
        OPENCODE_OPTIONS,
    ],
)
async def test_a_generated_database_adds_up_to_its_truth(tmp_path: Path, corpora: Corpora, options: list[str]) -> None:
    """Turns and tokens by model are exact on a database full of forks, child sessions and aborted steps."""
    truth = corpora.opencode(tmp_path / "data" / "opencode.db", options)
    rig = OpenCodeRig(tmp_path / "home", tmp_path / "data")
    await rig.open()
    await rig.settle()
    turns = [turn for turn in rig.turns().values() if turn.usage != Usage()]
    found: dict[str, Counter[str]] = {}
    for turn in turns:
        found.setdefault(f"{turn.provider}/{turn.model}", Counter()).update(_counts(turn))
    for model, known in truth["per_model"].items():
        assert found.pop(model) == {name: known[name] for name in _COUNTED}
    assert found == {}
    assert Counter(call.name for turn in rig.turns().values() for call in turn.tool_calls) == truth["tool_calls"]
    children = sum((_counts(turn) for turn in turns if turn.subagent is not None), Counter())
    assert children == {name: truth["child_sessions"][name] for name in _COUNTED}
    await rig.close()


_COUNTED = ("turns", "input", "output", "reasoning", "cache_write", "cache_read")


def _counts(turn: Turn) -> Counter[str]:
    usage = turn.usage
    return Counter(
        turns=1,
        input=usage.input,
        output=usage.output,
        reasoning=usage.reasoning,
        cache_write=usage.cache_create_5m,
        cache_read=usage.cache_read,
    )


@seeds(1, 6)
async def test_random_sessions_add_up_to_what_they_used(tmp_path: Path, seed: int) -> None:
    """Exact to the token over forks, forks of forks, children, aborts, and releases that count reasoning twice."""
    writer = Writer(tmp_path / "data" / "opencode.db")
    spent = write_sessions(writer, random.Random(seed), 30)
    rig = OpenCodeRig(tmp_path / "home", tmp_path / "data")
    await rig.open()
    await rig.settle()
    found: Counter[str] = Counter()
    for turn in rig.turns().values():
        u = turn.usage
        found.update(input=u.input, output=u.output, reasoning=u.reasoning, read=u.cache_read, write=u.cache_create_5m)
    assert found == spent
    await rig.close()
    writer.close()
