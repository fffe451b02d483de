"""A list cut to a few rows equals the start of the full list."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from burnd.paths import Home
from burnd.queries import compare
from burnd.recording.candidate import Batch
from burnd.recording.pipeline import Pipeline
from burnd.records import Usage
from tests.conftest import Opened
from tests.folded import Folded
from tests.make import examples, stamp, turn
from tests.queries import worlds
from tests.queries.asking import PRICES, ask_compare, ask_summary
from tests.queries.filters import filters, is_answerable
from tests.queries.naive import Naive

MANY = ("session", "agent", "tag:persona", "tag:workflow")
some_filters = st.lists(st.sampled_from(sorted(filters)), max_size=2, unique=True).flatmap(
    lambda names: st.fixed_dictionaries({name: filters[name] for name in names})
)


@settings(max_examples=examples(15), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(worlds.deeds, st.lists(some_filters, min_size=3, max_size=3))
async def test_few_of_many_are_the_first_of_all(
    tmp_path_factory: pytest.TempPathFactory, history: list[Any], asked: list[dict[str, Any]]
) -> None:
    """A limit on rows or names changes neither the rows shown, nor totals, nor verdicts."""
    opener = Opened(Home(tmp_path_factory.mktemp("home") / "home"))
    pipeline = await opener()
    naive = Naive(Folded(), await worlds.live(pipeline, history), PRICES)
    naive = Naive(Folded(pipeline.journal.read()), [naive.turns[key] for key in naive.open], PRICES)
    try:
        for by in MANY:
            for chosen in ({}, *asked):
                if is_answerable(naive, chosen):
                    await _summaries_agree(pipeline, by, chosen)
                    if by.startswith("tag:"):
                        await _comparisons_agree(pipeline, by, chosen)
    finally:
        await opener.close()


async def _summaries_agree(pipeline: Pipeline, by: str, chosen: dict[str, Any]) -> None:
    whole = await ask_summary(pipeline.index, by=by, quality=True, **chosen)
    for limit in (1, 2):
        few = await ask_summary(pipeline.index, by=by, quality=True, limit=limit, **chosen)
        rows = whole["rows"][:limit]
        assert few == whole | {"rows": rows, "moreRows": len(whole["rows"]) - len(rows)}, (by, chosen)


async def _comparisons_agree(pipeline: Pipeline, by: str, chosen: dict[str, Any]) -> None:
    asked = {"by": by, "whatIf": "gpt-5", **chosen}
    whole = await ask_compare(pipeline.index, **asked)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compare, "MOST_COMPARED", 1)
        few = await ask_compare(pipeline.index, **asked)
    assert few["models"] == whole["models"][:1]
    assert few["moreModels"] == len(whole["models"]) - len(few["models"])
    assert (few["coverage"], few["whatIf"]) == (whole["coverage"][:1], whole["whatIf"])
    for cell in few["cells"]:
        assert cell in whole["cells"], (by, chosen)


async def test_what_a_tag_leaves_out_is_not_judged(opened: Opened) -> None:
    """Few rows are shown of those with the tag: the judgement of all is that of the tagged, however it is read."""
    pipeline = await opened()
    made: list[Any] = [
        turn(f"m{n}", session_id=f"s{n}", prompt_id=f"p{n}", prompt_retries=0, has_edits=True, retries=0)
        for n in range(6)
    ]
    await pipeline.commit(Batch(entries=[*made, *(stamp(1, session=f"s{n}", k="v") for n in range(4))]))
    for by in ("session", "agent", "tag:persona"):
        answer = await ask_summary(pipeline.index, by=by, quality=True, limit=1, tags={"k": "v"})
        assert (answer["quality"]["editPrompts"], sum(answer["quality"]["sessions"].values())) == (4, 4)


async def test_sessions_of_equal_cost_are_in_the_order_of_their_turns(
    opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Exactly equal costs are ordered by turns, even where floats would differ."""
    pipeline = await opened()
    made: list[Any] = [
        turn(f"s{n}-{i}", session_id=f"s{n}", turn_index=i, usage=Usage(output=30 // n))
        for n in (1, 2, 3, 5)
        for i in range(n)
    ]
    await pipeline.commit(Batch(entries=made))
    answer = await ask_summary(pipeline.index, by="session", limit=2)
    assert [(row["key"], row["turns"]) for row in answer["rows"]] == [("s5", 5), ("s3", 3)]
    assert (answer["totals"]["turns"], answer["moreRows"]) == (11, 2)
