"""Reports on generated corpora equal the generators' totals, to the token and cent."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from burnd.attribution.explainer import Explainer
from burnd.contract.reports import CAUSES
from burnd.protocol import NOT_COUNTED
from burnd.queries.money import shown_model
from burnd.recording.pipeline import Pipeline
from tests.capture.opencode_rig import OpenCodeRig
from tests.capture.rig import Rig
from tests.harness.collect import case_root, cases
from tests.queries.asking import PRICES, ask_compare, ask_hotspots, ask_summary, by_key
from tests.queries.corpora import CLAUDE_OPTIONS, Corpora, needs_claude_corpus, needs_opencode_corpus


def served_cases() -> list[Path]:
    """Logs of real clients with the responses they received."""
    root = case_root()
    return sorted(path.parent for path in root.glob("claude*/*/served.json")) if root is not None else []


def tokens(row: dict[str, Any]) -> dict[str, int]:
    usage = row["usage"]
    return {
        "turns": row["turns"],
        "input": usage["input"],
        "output": usage["output"] + usage["reasoning"],
        "cache_write_5m": usage["cacheCreate5m"],
        "cache_write_1h": usage["cacheCreate1h"],
        "cache_read": usage["cacheRead"],
    }


def agrees(row: dict[str, Any], known: dict[str, Any]) -> None:
    said = tokens(row)
    assert said == {name: known[name] for name in said}
    assert row["costUsd"] == pytest.approx(known["cost_usd"], abs=1e-6)


async def causes_add_up(pipeline: Pipeline) -> None:
    """Every way of rolling causes up comes to the summary: of all, and of a time that begins and ends anywhere."""
    await Explainer(pipeline).catch_up()
    ((first, last),) = await pipeline.index.rows("SELECT min(ts), max(ts) FROM turns")
    third = (last - first) // 3
    for filters in ({}, {"since": first + third, "until": last - third}):
        total = (await ask_summary(pipeline.index, **filters))["totals"]
        for by in CAUSES:
            answer = await ask_hotspots(pipeline, by=by, **filters)
            assert answer["totals"] == total
            assert all(row["key"] != NOT_COUNTED for row in answer["rows"]), (by, filters)
            for name, tokens in total["usage"].items():
                assert sum(row["usage"][name] for row in answer["rows"]) == tokens
            told = sum(row["costUsd"] or 0 for row in answer["rows"])
            assert told == pytest.approx(total["costUsd"] or 0, rel=1e-12)


@needs_claude_corpus
@pytest.mark.parametrize("options", CLAUDE_OPTIONS)
async def test_a_corpus_of_claude_logs(tmp_path: Path, corpora: Corpora, options: list[str]) -> None:
    """Totals, models, days and subagents are the generator's, whatever traps it laid; rows add up to the totals."""
    tree, truth = corpora.claude(options)
    rig = Rig(tmp_path / "home", tree / "projects")
    await rig.open()
    await rig.read(*rig.files(), pieces_at_once=8)
    await rig.flush()
    index = rig.pipeline.index
    answer = await ask_summary(index, by="model")
    agrees(answer["totals"], truth["tokens"] | {"turns": truth["turns"], "cost_usd": truth["cost_usd"]})
    models = {shown_model(PRICES, model): known for model, known in truth["per_model"].items()}
    assert by_key(answer).keys() == models.keys()
    for model, row in by_key(answer).items():
        agrees(row, models[model])
    days = by_key(await ask_summary(index, by="day"))
    assert days.keys() == truth["per_day_utc"].keys()
    for day, row in days.items():
        agrees(row, truth["per_day_utc"][day])
        agrees((await ask_summary(index, since=day, until=day))["totals"], truth["per_day_utc"][day])
    by_agent = (await ask_summary(index, by="agent"))["rows"]
    assert sum(row["turns"] for row in by_agent if row["key"] is not None) == truth["sidechain"]["turns"]
    cells = (await ask_compare(index))["cells"]
    assert sum(cell["turns"] for cell in cells) == truth["turns"]
    assert sum(cell["costUsd"] or 0 for cell in cells) == pytest.approx(truth["cost_usd"], abs=1e-6)
    await causes_add_up(rig.pipeline)
    await rig.close()


@needs_opencode_corpus
async def test_a_corpus_of_an_opencode_database(tmp_path: Path, corpora: Corpora) -> None:
    """Forks cost nothing twice, child sessions count, and the cost of all is the generator's to the cent."""
    truth = corpora.opencode(tmp_path / "data" / "opencode.db")
    rig = OpenCodeRig(tmp_path / "home", tmp_path / "data")
    await rig.open()
    await rig.settle()
    totals = (await ask_summary(rig.pipeline.index))["totals"]
    days = by_key(await ask_summary(rig.pipeline.index, by="day"))
    for row, known in ((totals, truth["totals"]), *((days[day], truth["per_day_utc"][day]) for day in days)):
        usage = row["usage"]
        assert row["turns"] == known["turns"]
        assert [usage[name] for name in ("input", "output", "reasoning", "cacheRead")] == [
            known[name] for name in ("input", "output", "reasoning", "cache_read")
        ]
        assert usage["cacheCreate5m"] + usage["cacheCreate1h"] == known["cache_write"]
        assert row["costUsd"] == pytest.approx(known["cost_usd"], abs=1e-6)
    await causes_add_up(rig.pipeline)
    await rig.close()


# What the client's own total leaves out or prices otherwise: a total that began again after a kill, what was cut off,
# a compaction within a response, the discount of a batch.
_NOT_IN_THE_TOTAL = {"kill", "killtool", "itercomp", "batch"}


@pytest.mark.parametrize("case", cases(served_cases()), ids=lambda path: path.name)
async def test_a_session_costs_what_its_client_says(tmp_path: Path, case: Path) -> None:
    """Turns and what was not logged come to the client's own total: searches, fast and US-only requests included."""
    served = json.loads((case / "served.json").read_text())
    odd = {one["session"]: one["kind"] for one in served["requests"] if one["kind"] in _NOT_IN_THE_TOTAL}
    rig = Rig(tmp_path / "home", case / "p" / "projects")
    await rig.open()
    await rig.read(*rig.files(), pieces_at_once=8)
    await rig.flush()
    for session, stated in served["client_cost_state"].items():
        answer = await ask_summary(rig.pipeline.index, session=session)
        found = answer["totals"]["costUsd"] + ((answer["unlogged"] or {}).get("costUsd") or 0)
        if session not in odd:
            assert found == pytest.approx(stated["totalCostUSD"], abs=1e-9), session
        elif odd[session] == "batch":
            assert found == pytest.approx(stated["totalCostUSD"] / 2, abs=1e-9)
    await rig.close()
