"""Every summary is the sum of its turns, to the token and to the last digit of its cost."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from burnd.contract.reports import DIMENSIONS
from burnd.paths import Home
from burnd.recording.candidate import Batch
from tests.conftest import Opened
from tests.folded import Folded
from tests.make import examples, turn
from tests.queries import worlds
from tests.queries.asking import PRICES, ask_summary
from tests.queries.filters import filters, is_answerable
from tests.queries.naive import Naive

WAYS = DIMENSIONS
FIELDS = {"turns", "openTurns", "partialTurns", "unpricedTurns", "emptyTurns", "usage", "costUsd", "cacheHitRate"}
FIELDS |= {"harnessTurns", "harnessCostUsd"}


@st.composite
def questions(draw: st.DrawFn) -> list[tuple[str, dict[str, Any]]]:
    """Every way of dividing, each under a few filters: under many, little would be left to add up."""
    asked = []
    ways = (*WAYS, "tag:persona", "tag:workflow")
    pairs = draw(st.lists(st.lists(st.sampled_from(ways), min_size=2, max_size=2, unique=True), min_size=4, max_size=4))
    for by in (*ways, *map(",".join, pairs)):
        names = draw(st.lists(st.sampled_from(sorted(filters)), max_size=2, unique=True))
        chosen = {name: draw(filters[name]) for name in names}
        zone = draw(st.sampled_from(worlds.ZONES))
        asked.append((by, chosen | ({} if zone is None else {"tz": zone})))
    return asked


@settings(max_examples=examples(15), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(worlds.deeds, questions())
async def test_every_summary_is_the_sum_of_its_turns(
    tmp_path_factory: pytest.TempPathFactory, history: list[Any], asked: list[Any]
) -> None:
    """Any way of dividing, under any filters, after any history, equals adding up the folded ledger turn by turn."""
    opener = Opened(Home(tmp_path_factory.mktemp("home") / "home"))
    pipeline = await opener()
    naive = Naive(Folded(), await worlds.live(pipeline, history), PRICES)
    naive = Naive(Folded(pipeline.journal.read()), [naive.turns[key] for key in naive.open], PRICES)
    try:
        for by, filters in asked:
            if not is_answerable(naive, filters):
                continue
            answer = await ask_summary(pipeline.index, by=by, **filters)
            expected = naive.summary(by, **filters)
            assert answer["totals"] == expected["totals"], (by, filters)
            assert {_key(row): _fields(row) for row in answer["rows"]} == expected["rows"], (by, filters)
            assert len(answer["rows"]) == len(expected["rows"])
            assert answer["unpricedModels"] == expected["unpricedModels"]
            if by == "agent":
                tree = await ask_summary(pipeline.index, by=by, tree=True, **filters)
                _check_tree(tree["rows"], naive.agent_parents(**filters))
        everything = await ask_summary(pipeline.index)
        said = everything["unlogged"]["usage"] if everything["unlogged"] else dict.fromkeys(naive.unlogged(), 0)
        assert said == naive.unlogged()
        assert (everything["unlogged"] or {"requests": 0})["requests"] == len(naive.requests())
    finally:
        await opener.close()


def _check_tree(rows: list[dict[str, Any]], parents: dict[Any, Any]) -> None:
    """Every row has the parent of the specification, comes after it unless it is in a ring, and sums up its branch."""
    names = [(row["stamped"], row["key"]) for row in rows]
    path: list[Any] = []
    for row, name in zip(rows, names, strict=True):
        parent = parents.get(name)
        assert row["parent"] == (parent[1] if parent else None), name
        del path[row["depth"] :]
        assert path[-1:] == [parent] if row["depth"] else parent is None or _is_in_a_ring(name, parents), name
        path.append(name)
    for at, row in enumerate(rows):
        depths = [one["depth"] for one in rows[at + 1 :]]
        below = next((n for n, depth in enumerate(depths) if depth <= row["depth"]), len(depths))
        assert row["subtree"]["turns"] == sum(one["turns"] for one in rows[at : at + 1 + below])


def _is_in_a_ring(name: Any, parents: dict[Any, Any]) -> bool:
    one = parents.get(name)
    for _ in parents:
        if one == name:
            return True
        one = parents.get(one)
    return False


def _key(row: dict[str, Any]) -> Any:
    return tuple(row["keys"].values()) if "keys" in row else row["key"]


def _fields(row: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name in FIELDS}


@pytest.mark.parametrize("names", [("s1", "s2", "s3"), ("s3", "s1", "s2"), ("s2", "s3", "s1")])
async def test_rows_that_weigh_the_same_are_in_the_order_of_their_names(opened: Opened, names: tuple[str, ...]) -> None:
    """Independent of the order of recording, so that a rebuild does not reorder them."""
    entries = [
        turn(f"m-{name}", session_id=name, model="unheard-of", git_branch=f"b-{name}", activity=activity)
        for name, activity in zip(names, ("coding", "review", "docs"), strict=True)
    ]
    pipeline = await opened()
    for entry in entries:
        await pipeline.commit(Batch(entries=[entry]))
    for by in ("session", "branch", "activity"):
        keys = [row["key"] for row in (await ask_summary(pipeline.index, by=by))["rows"]]
        assert keys == sorted(keys)
        few = (await ask_summary(pipeline.index, by=by, limit=2))["rows"]
        assert [row["key"] for row in few] == keys[:2]
