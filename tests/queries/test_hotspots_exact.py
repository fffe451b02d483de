"""Hotspots under any filters add up to the summary of the same filters, to the token and to the last digit."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from burnd.attribution import segments
from burnd.attribution.explainer import Explainer
from burnd.contract.reports import CAUSES
from burnd.index.change import FileChange
from burnd.paths import Home
from burnd.protocol import NOT_COUNTED
from burnd.recording.candidate import Batch
from burnd.recording.pipeline import Pipeline
from tests.attribution import histories as worlds
from tests.conftest import Opened
from tests.folded import Folded
from tests.make import examples
from tests.queries import worlds as turn_worlds
from tests.queries.asking import PRICES, USAGE, ask_hotspots, ask_summary
from tests.queries.filters import filters, is_answerable
from tests.queries.naive import Naive

RANKS = ("cost", "tokens", "rides")
SECONDS = ("", "", "", ",model", ",project", ",activity", ",session", ",branch", ",agent", ",pr", ",tag:team")
TIMES = (",day", ",hour", ",week")


@pytest.fixture(autouse=True)
def _short_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segments, "LENGTH", 3)
    monkeypatch.setattr(segments, "BLOCK_DAYS", 2)


@st.composite
def questions(draw: st.DrawFn) -> list[dict[str, Any]]:
    asked = []
    for by in CAUSES:
        names = draw(st.lists(st.sampled_from(sorted(filters)), max_size=3, unique=True))
        chosen = {name: draw(filters[name]) for name in names}
        second = draw(st.sampled_from((*SECONDS, *TIMES))) if by != "prompt" else ""
        rest = {"rank": draw(st.sampled_from(RANKS)), "limit": draw(st.integers(1, 5))}
        if second in TIMES:  # all rows, to compare each day and hour with the summary
            rest |= {"limit": 1000, "tz": draw(st.sampled_from(turn_worlds.ZONES))}
        asked.append(chosen | {"by": by + second} | rest)
    return asked


@settings(worlds.ON_DISK, max_examples=examples(8))
@given(worlds.deeds, worlds.deeds, st.booleans(), questions())
async def test_rows_add_up_to_the_summary(
    tmp_path_factory: pytest.TempPathFactory,
    history: list[Any],
    later: list[Any],
    counted: bool,
    asked: list[dict[str, Any]],
) -> None:
    """After any history, under any filters: also while a part of it is not counted yet, which then is a row."""
    opener = Opened(Home(tmp_path_factory.mktemp("home") / "home"))
    pipeline = await opener()
    try:
        await pipeline.commit(Batch(files=[FileChange("claude-code", "/log", b"here")]))
        await turn_worlds.live(pipeline, history)
        explainer = Explainer(pipeline)
        await explainer.catch_up()
        while await explainer.condense_block():
            pass
        await turn_worlds.live(pipeline, later)
        if counted:
            await Explainer(pipeline).catch_up()
        naive = Naive(Folded(pipeline.journal.read()), (), PRICES)
        for params in asked:
            wanted = {name: value for name, value in params.items() if name in filters}
            if is_answerable(naive, wanted) and await _has_version(pipeline, wanted):
                await _adds_up(pipeline, params, wanted, whole=counted)
                if params["by"] == "prompt" or "," in params["by"]:
                    await _the_heaviest_come_first(pipeline, params)
    finally:
        await opener.close()


async def _has_version(pipeline: Pipeline, wanted: dict[str, Any]) -> bool:
    """True if a turn has the version of the filters; an open turn may have replaced the ledger's."""
    sql = "SELECT DISTINCT n.name FROM turns t JOIN names n ON n.id = t.version"
    names = [f"{name}." for (name,) in await pipeline.index.rows(sql)]
    return "version" not in wanted or any(name.startswith(f"{wanted['version']}.") for name in names)


async def _the_heaviest_come_first(pipeline: Pipeline, params: dict[str, Any]) -> None:
    """With a limit the costliest rows are read, and the others counted."""
    some, every = [await ask_hotspots(pipeline, **params | {"limit": limit}) for limit in (params["limit"], 1000)]
    weights = [
        [_weight(row, params["rank"]) for row in answer["rows"] if row["kind"] != "other"] for answer in (some, every)
    ]
    assert weights[0] == weights[1][: params["limit"]], params
    assert some["moreRows"] == max(0, len(weights[1]) - params["limit"]), (params, some["rows"], every["rows"])


def _weight(row: dict[str, Any], rank: str) -> float:
    if rank == "cost":
        return float(row["costUsd"] or 0)
    return float(row["rideTokens"] if rank == "rides" else sum(row["usage"].values()))


async def _adds_up(pipeline: Pipeline, params: dict[str, Any], wanted: dict[str, Any], *, whole: bool) -> None:
    answer = await ask_hotspots(pipeline, **params)
    summary = await ask_summary(pipeline.index, **wanted)
    assert answer["totals"] == summary["totals"], params
    assert answer["unlogged"] == summary["unlogged"]
    for name, tokens in summary["totals"]["usage"].items():
        assert sum(row["usage"][name] for row in answer["rows"]) == tokens, (params, name)
    costs = [Fraction(str(row["costUsd"])) for row in answer["rows"] if row["costUsd"] is not None]
    digits = float(sum(map(abs, costs))) * 1e-15  # an answer's number has no more
    assert float(sum(costs)) == pytest.approx(summary["totals"]["costUsd"] or 0, rel=1e-15, abs=digits * len(costs))
    if whole and "tz" in params and params["by"].split(",")[0] not in ("cache-miss", "prompt"):
        unit = params["by"].split(",")[1]
        _adds_up_by_time(answer, await ask_summary(pipeline.index, **wanted, by=unit, tz=params["tz"]))
    missing = [row for row in answer["rows"] if row["key"] == NOT_COUNTED]
    if whole:
        assert not missing, (params, missing)
        assert all(row["rideTokens"] >= 0 and row["entered"] >= 0 for row in answer["rows"])


def _adds_up_by_time(answer: dict[str, Any], summary: dict[str, Any]) -> None:
    """The causes of each local day or hour are those of its turns."""
    by, unit = answer["by"].split(",")
    for name in USAGE:
        sums: Counter[str] = Counter()
        for row in answer["rows"]:
            sums[row["keys"][unit]] += row["usage"][name]
        assert +sums == {row["key"]: row["usage"][name] for row in summary["rows"] if row["usage"][name]}, (by, name)
