"""Models side by side: every cell is the sum of its turns and prompts, and marks small samples."""

from __future__ import annotations

import statistics
from collections import Counter
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from burnd.contract.validation import BadParams
from burnd.paths import Home
from burnd.queries.compare import MOST_COMPARED, Peak, _points, median
from burnd.queries.view import Missing, Refusal
from burnd.recording.candidate import Batch
from burnd.records import Quota, Usage
from tests.conftest import Opened
from tests.folded import Folded
from tests.make import at, examples, stamp, turn
from tests.queries import worlds
from tests.queries.asking import PRICES, ask_compare, ask_summary, by_cell
from tests.queries.filters import filters as summary_filters
from tests.queries.filters import is_answerable
from tests.queries.naive import COMPARED, Naive

SONNET = "claude-sonnet-4-5"
HOUR = 3_600_000
WAYS = ("model", "source", "version", "pr", "tag:persona", "model,source", "version,tag:persona", "pr,model")


async def compared(opened: Opened, *entries: Any, **params: Any) -> dict[str, Any]:
    pipeline = opened.pipeline or await opened()
    await pipeline.commit(Batch(entries=list(entries)))
    return await ask_compare(pipeline.index, **params)


@pytest.mark.parametrize("order", [("2.0.14", "2.1.4"), ("2.1.4", "2.0.14")])
async def test_equal_ones_are_in_the_order_of_their_names(opened: Opened, order: tuple[str, str]) -> None:
    """Independent of the order of recording, so that a rebuild does not reorder them."""
    for name in order:
        await compared(opened, turn(f"m-{name}", harness_version=name, activity="coding"))
    answer = await compared(opened, by="version")
    assert answer["models"] == ["2.0.14", "2.1.4"]


def some(n: int, prefix: str = "m", **facts: Any) -> list[Any]:
    return [turn(f"{prefix}{i}", **{"turn_index": i, "ts": at(i), "activity": "coding"} | facts) for i in range(n)]


async def test_one_model_through_two_harnesses_is_one(opened: Opened) -> None:
    """Names differ by harness and seller; by default the model counts, and by source the harnesses do."""
    theirs = some(3, "o", source="opencode", model="anthropic/claude-sonnet-4-5", provider="openrouter")
    entries = [*some(2, model="claude-sonnet-4-5-20250929"), *theirs]
    answer = await compared(opened, *entries)
    assert (answer["models"], answer["categories"]) == ([SONNET], ["coding"])
    assert answer["cells"][0]["turns"] == 5
    answer = await compared(opened, by="source")
    assert {cell["model"]: cell["turns"] for cell in answer["cells"]} == {"claude-code": 2, "opencode": 3}


async def test_no_data_differs_from_little_data(opened: Opened) -> None:
    """A cell without turns has nulls, never zeros; one below the sample is marked; the sample is the caller's."""
    entries = [*some(6), *some(2, "g", model="gpt-5", source="opencode", activity="docs")]
    cells = by_cell(await compared(opened, *entries))
    empty = cells["gpt-5", "coding"]
    assert (empty["noData"], empty["insufficientSample"], empty["turns"]) == (True, False, 0)
    nothing = (
        "costUsd",
        "costPerTurn",
        "oneShotRate",
        "oneShotPromptRate",
        "oneShotInterval",
        "cacheHitRate",
        "medianRetries",
        "quotaShare",
    )
    assert all(empty[name] is None for name in nothing)
    assert cells["gpt-5", "docs"]["insufficientSample"]
    assert not cells[SONNET, "coding"]["insufficientSample"]
    assert not by_cell(await compared(opened, minSample=2))["gpt-5", "docs"]["insufficientSample"]


async def test_one_shot_is_a_rate_by_turn_and_another_by_prompt(opened: Opened) -> None:
    """Two turns edit without a retry for one prompt that needed a second try: every turn is right, no prompt is."""
    facts: dict[str, Any] = {"has_edits": True, "retries": 0, "prompt_id": "p1"}
    first = some(1, prompt_retries=0, **facts)
    again = some(1, "again", prompt_retries=1, **facts)
    tried_twice = some(1, "twice", has_edits=True, retries=1, prompt_id="p2", prompt_retries=1)
    (cell,) = (await compared(opened, *first, *again, *tried_twice, *some(2, "look")))["cells"]
    assert (cell["editTurns"], cell["oneShotTurns"], cell["oneShotRate"]) == (3, 2, 2 / 3)
    assert (cell["editPrompts"], cell["oneShotPrompts"], cell["oneShotPromptRate"]) == (2, 0, 0.0)
    assert cell["oneShotInterval"] == pytest.approx([0.0, 0.6576], abs=1e-4)


async def test_a_category_with_one_model_has_a_note(opened: Opened) -> None:
    """Each category in which only one model has data is named, with that model."""
    entries = [
        *some(2),
        *some(1, "d", activity="docs"),
        *some(3, "g", model="gpt-5"),
        *some(1, "t", activity="testing"),
    ]
    answer = await compared(opened, *entries, *some(1, "r", model="gpt-5", activity="review"))
    assert [(note["category"], note["model"]) for note in answer["notes"]] == [
        (category, "gpt-5" if category == "review" else SONNET)
        for category in answer["categories"]
        if category != "coding"
    ]
    assert all(note["category"] in note["note"] and note["model"] in note["note"] for note in answer["notes"])
    assert [note["category"] for note in (await compared(opened, models="gpt-5"))["notes"]] == ["review", "coding"]


async def test_an_unpriced_model_has_turns_but_no_cost(opened: Opened) -> None:
    answer = await compared(opened, *some(5, model="house-model"))
    (cell,) = answer["cells"]
    assert (cell["turns"], cell["pricedTurns"], cell["costUsd"], cell["costPerTurn"]) == (5, 0, None, None)
    assert answer["coverage"] == [
        {
            "model": "house-model",
            "turns": 5,
            "pricedTurns": 0,
            "harnessTurns": 0,
            "partialTurns": 0,
            "openTurns": 0,
            "labelledTurns": 5,
            "editPrompts": 0,
            "categories": 1,
            "sufficientCategories": 1,
        }
    ]


async def test_turns_at_the_harness_s_own_figure_are_counted(opened: Opened) -> None:
    answer = await compared(opened, *some(5, model="house-model", stated_usd=0.5), *some(2, "l"))
    assert {one["model"]: one["harnessTurns"] for one in answer["coverage"]} == {"house-model": 5, SONNET: 0}


async def test_models_can_be_chosen(opened: Opened) -> None:
    """By name or family; an unused model of the price list has a column without data."""
    entries = [*some(2), *some(2, "g", model="gpt-5"), *some(1, "x", model="claude-opus-4-5")]
    assert (await compared(opened, *entries, models="sonnet, gpt-5"))["models"] == [SONNET, "gpt-5"]
    answer = await compared(opened, models=["gpt-5", "gemini-2.5-pro"])
    assert answer["models"] == ["gpt-5", "gemini-2.5-pro"]
    assert by_cell(answer)["gemini-2.5-pro", "coding"]["noData"]
    with pytest.raises(Missing, match="gpt-55"):
        await compared(opened, models="gpt-55")


async def test_any_stamp_can_be_compared(opened: Opened) -> None:
    """Personas, steps, tool choices: any tag of a spawner."""
    entries = [
        *some(2),
        *some(3, "b", session_id="s2"),
        stamp(1, persona="terse"),
        stamp(1, session="s2", persona="chatty"),
    ]
    answer = await compared(opened, *entries, *some(1, "c", session_id="s3"), by="tag:persona")
    assert {cell["model"]: cell["turns"] for cell in answer["cells"]} == {"terse": 2, "chatty": 3, None: 1}


@pytest.mark.parametrize(
    ("params", "why"),
    [
        ({"by": "day"}, "unknown dimension"),
        ({"by": "tag:"}, "unknown dimension"),
        ({"minSample": 0}, "from 1 to"),
        ({"whatIf": "no-such-model"}, "has no price"),
    ],
)
async def test_what_cannot_be_compared_is_refused(opened: Opened, params: dict[str, Any], why: str) -> None:
    with pytest.raises((Refusal, BadParams), match=why):
        await compared(opened, **params)


async def test_what_if_says_that_it_is_arithmetic(opened: Opened) -> None:
    """The same tokens at other rates, beside the actual cost, with a caveat."""
    answer = await compared(opened, *some(2, usage=Usage(input=1_000_000)), whatIf="claude-opus-4-5")
    (cell,) = answer["cells"]
    assert (cell["costUsd"], cell["whatIfCostUsd"], cell["whatIfCostPerTurn"]) == (6.0, 10.0, 5.0)
    assert (answer["whatIf"]["costUsd"], answer["whatIf"]["actualUsd"]) == (10.0, 6.0)
    assert "arithmetic" in answer["whatIf"]["note"]


async def test_what_if_sets_only_equal_things_side_by_side(opened: Opened) -> None:
    """Turns without a price are in neither sum; their hypothetical cost is listed apart."""
    mixed = [*some(2, usage=Usage(input=1_000_000)), *some(1, "u", model="house-model", usage=Usage(input=3_000_000))]
    answer = await compared(opened, *mixed, by="source", whatIf="claude-opus-4-5")
    (cell,) = answer["cells"]
    assert (cell["costUsd"], cell["whatIfCostUsd"], cell["whatIfCostPerTurn"]) == (6.0, 10.0, 5.0)
    told = answer["whatIf"]
    assert (told["costUsd"], told["actualUsd"], told["unpricedTurns"], told["unpricedCostUsd"]) == (10.0, 6.0, 1, 15.0)


async def test_what_if_takes_the_name_that_reports_show(opened: Opened) -> None:
    """`sonnet-4-5` is the only used model with these words; of several none is chosen."""
    used = some(2, model="claude-sonnet-4-5", usage=Usage(input=1_000_000))
    answer = await compared(opened, *used, whatIf="sonnet-4-5")
    assert answer["whatIf"]["model"] == "claude-sonnet-4-5"
    both = [*some(2, "u", model="claude-opus-4-5"), *some(2, "v", model="claude-sonnet-4-5")]
    with pytest.raises(Missing, match="may be one of several models") as refused:
        await compared(opened, *both, whatIf="claude")
    assert refused.value.hint == "did you mean: claude-opus-4-5, claude-sonnet-4-5"


async def test_what_if_over_nothing_with_a_price(opened: Opened) -> None:
    """Unpriced usage is not $0: there is no sum to compare with."""
    answer = await compared(
        opened, *some(2, model="house-model", usage=Usage(input=1_000_000)), whatIf="claude-opus-4-5"
    )
    (cell,) = answer["cells"]
    assert (cell["costUsd"], cell["whatIfCostUsd"], cell["whatIfCostPerTurn"]) == (None, 10.0, 5.0)
    told = answer["whatIf"]
    assert (told["costUsd"], told["actualUsd"], told["unpricedTurns"], told["unpricedCostUsd"]) == (None, None, 2, 10.0)


async def test_of_very_many_values_the_dearest_are_compared(opened: Opened) -> None:
    """A tag may have a value for each session: what is left out is counted, and in the sums over all."""
    made = [turn(f"m{n}", session_id=f"s{n}", usage=Usage(output=n + 1)) for n in range(MOST_COMPARED + 3)]
    stamps = [stamp(1, session=f"s{n}", workflowId=f"w{n}") for n in range(MOST_COMPARED + 3)]
    pipeline = await opened()
    await pipeline.commit(Batch(entries=[*made, *stamps]))
    answer = await ask_compare(pipeline.index, by="tag:workflowId", whatIf=SONNET)
    assert (len(answer["models"]), answer["moreModels"]) == (MOST_COMPARED, 3)
    assert answer["models"][-1] == "w3"
    assert len(answer["coverage"]) == MOST_COMPARED
    whole = await ask_summary(pipeline.index)
    assert answer["whatIf"]["actualUsd"] == whole["totals"]["costUsd"]


@pytest.mark.parametrize(
    ("told", "points"),
    [
        ([(HOUR, 1, 1, 10), (HOUR, 1, 2, 30)], 30),
        ([(HOUR, 0, 1, 10), (HOUR, 1, 2, 30)], 20),
        ([(HOUR, 1, 1, 10), (9 * HOUR, 1, 2, 50), (HOUR + 60_000, 1, 3, 20), (9 * HOUR, 1, 4, 60)], 80),
        ([(None, 0, 1, 10), (None, 1, 2, 20), (None, 1, 3, 5)], 15),
        ([(HOUR, 0, 1, 40)], 0),
    ],
    ids=["one window", "begun before", "two accounts in turns", "no reset told", "nothing new"],
)
def test_what_windows_filled_up(told: list[tuple[Any, ...]], points: float) -> None:
    """The rise of each window within the period, with readings of several windows in any order."""
    assert _points([Peak(*peak) for peak in told]) == points


def reads(seconds: float, used: float, resets: float) -> Quota:
    return Quota(ts=at(seconds), source="claude-code", window="5h", used_percent=used, resets_at=at(resets))


async def test_quota_is_shared_out_by_cost(opened: Opened) -> None:
    """The used percentage of a window is split by cost among the day's turns of its harness."""
    costly, cheap = Usage(input=3000), Usage(input=1000)
    entries = [
        *some(1, usage=costly),
        *some(1, "d", usage=cheap, activity="docs"),
        *some(1, "o", usage=costly, source="opencode", activity="testing"),
        reads(10, 10, 5000),
        reads(20, 30, 5000),
        reads(30, 30, 5000),
        reads(6000, 20, 24_000),
    ]
    cells = by_cell(await compared(opened, *entries))
    assert cells[SONNET, "coding"]["quotaShare"] == pytest.approx(0.75)
    assert cells[SONNET, "docs"]["quotaShare"] == pytest.approx(0.25)
    assert cells[SONNET, "testing"]["quotaShare"] is None
    narrowed = by_cell(await compared(opened, activity="docs"))
    assert narrowed[SONNET, "docs"]["quotaShare"] == pytest.approx(0.25)


@given(st.lists(st.integers(0, 6)))
def test_the_median_of_counts_is_the_median(values: list[int]) -> None:
    assert median(Counter(values)) == (statistics.median(values) if values else None)


narrowed = st.dictionaries(st.sampled_from(sorted(summary_filters)), st.none(), max_size=2).flatmap(
    lambda names: st.fixed_dictionaries({name: summary_filters[name] for name in names})
)


@settings(max_examples=examples(12), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(worlds.deeds, st.lists(st.tuples(st.sampled_from(WAYS), narrowed), min_size=3))
async def test_every_cell_is_the_sum_of_its_turns(
    tmp_path_factory: pytest.TempPathFactory, history: list[Any], asked: list[tuple[str, dict[str, Any]]]
) -> None:
    """After any history and under any filters, cells equal the sums over the folded ledger."""
    opener = Opened(Home(tmp_path_factory.mktemp("home") / "home"))
    pipeline = await opener()
    open_turns = await worlds.live(pipeline, history)
    naive = Naive(Folded(pipeline.journal.read()), open_turns, PRICES)
    try:
        for by, filters in asked:
            if not is_answerable(naive, filters):
                continue
            answer = await ask_compare(pipeline.index, by=by, **filters)
            found = {place: _judged(cell) for place, cell in by_cell(answer).items() if not cell["noData"]}
            expected = naive.compare(by, **filters)
            assert found == expected["cells"], (by, filters)
            lone = {category: _text(name) for category, name in expected["lone"].items()}
            assert {note["category"]: note["model"] for note in answer["notes"]} == lone, (by, filters)
    finally:
        await opener.close()


def _text(name: Any) -> Any:
    """A pair as one text, as notes and columns have it."""
    return ", ".join(str(one or "(none)") for one in name) if isinstance(name, tuple) else name


def _judged(cell: dict[str, Any]) -> dict[str, Any]:
    return {name: cell[name] for name in COMPARED}
