"""Hotspots of small sessions with known causes."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from burnd.attribution import segments
from burnd.attribution.explainer import Explainer
from burnd.attribution.rail import RailEntry
from burnd.protocol import NOT_COUNTED
from burnd.queries.view import Mistaken
from burnd.recording.candidate import Batch
from burnd.recording.pipeline import Pipeline
from burnd.records import Subagent
from tests.attribution.scenes import Scene, call, prompt, result, said, worked_example
from tests.conftest import Opened
from tests.make import START_MS
from tests.queries.asking import ask_hotspots, ask_summary, moved_to


async def counted(opened: Opened, *entries: RailEntry) -> Pipeline:
    pipeline = await opened()
    await pipeline.commit(Batch(entries=list(entries)))
    await Explainer(pipeline).catch_up()
    return pipeline


def keyed(answer: dict[str, Any], kind: str | None = None) -> dict[str, dict[str, Any]]:
    return {row["key"]: row for row in answer["rows"] if kind in (None, row["kind"])}


async def test_the_worked_example(opened: Opened) -> None:
    """8,000 tokens at $3 that ride 20 turns at $0.30 cost their entry and 20 rides, by tool and by file, exactly."""
    pipeline = await counted(opened, *worked_example().entries)
    the_result = Decimal("0.024") + Decimal("0.048")
    arguments = (60 * 3 + 60 * 15 + 20 * 60 * Decimal("0.3")) / 1_000_000
    for by, key in (("tool", "Read"), ("file", "/p/a.py")):
        row = keyed(await ask_hotspots(pipeline, by=by))[key]
        assert (row["calls"], row["entered"], row["rideTokens"]) == (1, 8_060, 20 * 8_060)
        assert Decimal(str(row["costUsd"])) == the_result + arguments
        assert row["costPerCall"] == row["costUsd"]
    first = await ask_hotspots(pipeline, by="file", until=START_MS + 105_000)
    assert keyed(first)["/p/a.py"]["entered"] == 8_060
    assert 0 < keyed(first)["/p/a.py"]["rideTokens"] < 20 * 8_060


@pytest.mark.parametrize("zone", ["UTC", "+01:00", "-01:00", "+05:45", "America/Los_Angeles"])
async def test_days_and_hours_of_any_zone_are_stored(
    opened: Opened, monkeypatch: pytest.MonkeyPatch, zone: str
) -> None:
    """Nothing within the period is attributed again, also with an activity, a branch or an agent."""
    pipeline = await counted(opened, *busy())
    monkeypatch.setattr(segments, "explain_turns", None)
    for unit in ("day", "hour", "week"):
        every: tuple[dict[str, Any], ...] = ({}, {"agent": "Explore"}, {"session": "s1"})
        for filters in every:
            for by in ("tool", "file", "subagent", "cache-miss"):
                answer = await ask_hotspots(pipeline, by=f"{by},{unit}", tz=zone, **filters)
                assert NOT_COUNTED not in keyed(answer), (unit, filters, by)


def busy() -> list[RailEntry]:
    """A session that does a little of everything, and a subagent that it started."""
    main, agent = Scene(), Scene(rail_id="a1")
    calls = (
        call(),
        call("Bash", "npm test", "c2", is_error=True),
        call("mcp__git__log", None, "c3"),
        call("Skill", "tidy", "c4"),
        call("Task", "Explore", "c5"),
    )
    made = tuple(said("call", 100, one.id) for one in calls)
    main.turn(20_000, 500, entered=(prompt(),), made=made, tool_calls=calls, prompt_id="p1")
    came = tuple(result(4_000, one.id) for one in calls)
    main.turn(26_000, 100, entered=came, made=(said(),), prompt_id="p1")
    main.turn(26_300, 100, read=0, pause=4_000, entered=(prompt(),), made=(said(),), prompt_id="p2")
    who = Subagent(agent_id="a1", type="Explore", parent_tool_use_id="c5")
    reads = (call(call_id="d1", target="/p/b.py"),)
    agent.turn(9_000, 50, entered=(prompt(),), made=(said("call", 80, "d1"),), tool_calls=reads, subagent=who)
    agent.turn(10_000, 50, entered=(result(3_000, "d1"),), made=(said(),), subagent=who)
    return [*main.entries, *agent.entries]


@pytest.mark.parametrize(
    ("by", "keys"),
    [
        ("tool", {"Read": 2, "Bash": 1, "mcp__git__log": 1, "Skill": 1, "Task": 1}),
        ("file", {"/p/a.py": 1, "/p/b.py": 1}),
        ("command", {"npm test": 1}),
        ("mcp", {"git": 1}),
        ("skill", {"tidy": 1}),
        ("subagent", {"Explore": 1}),
        ("prompt", {"p1": 2, "p2": 1}),
        ("prefix", {"(no project)": 0}),
        ("cache-miss", {"pause": 1}),
    ],
)
async def test_every_way_of_rolling_up(opened: Opened, by: str, keys: dict[str, int]) -> None:
    """Each way has its own rows with their calls, and all else as `other`, up to the summary's total."""
    pipeline = await counted(opened, *busy())
    answer = await ask_hotspots(pipeline, by=by)
    assert {key: row["calls"] for key, row in keyed(answer, by).items()} == keys
    assert all(row["costUsd"] > 0 for row in answer["rows"])
    assert all(row["calls"] >= 0 and row["errors"] >= 0 and row["entered"] >= 0 for row in answer["rows"])
    assert NOT_COUNTED not in keyed(answer)
    total = (await ask_summary(pipeline.index))["totals"]
    assert answer["totals"] == total
    assert sum(row["costUsd"] for row in answer["rows"]) == pytest.approx(total["costUsd"], rel=1e-14)


async def test_a_subagent_is_its_rail_and_its_call(opened: Opened) -> None:
    """Its row is what its rail was billed and what the call that started it cost."""
    pipeline = await counted(opened, *busy())
    row = keyed(await ask_hotspots(pipeline, by="subagent"))["Explore"]
    rail = (await ask_summary(pipeline.index, agent="Explore"))["totals"]
    the_call = keyed(await ask_hotspots(pipeline, by="tool"))["Task"]
    assert row["costUsd"] == pytest.approx(rail["costUsd"] + the_call["costUsd"], rel=1e-14)
    for name, tokens in rail["usage"].items():
        assert row["usage"][name] == tokens + the_call["usage"][name]


async def test_what_is_beyond_the_limit_is_one_row(opened: Opened) -> None:
    """The heaviest by the asked rank are shown, the others are added up; the column is still the bill."""
    pipeline = await counted(opened, *busy())
    every = await ask_hotspots(pipeline)
    few = await ask_hotspots(pipeline, limit=2)
    assert [row["key"] for row in few["rows"]][:3] == [*(row["key"] for row in every["rows"][:2]), "3 more"]
    assert few["moreRows"] == 3
    assert sum(row["calls"] for row in few["rows"]) == sum(row["calls"] for row in every["rows"])
    rode = [row["rideTokens"] for row in (await ask_hotspots(pipeline, rank="rides"))["rows"] if row["kind"] == "tool"]
    assert rode == sorted(rode, reverse=True)


async def test_the_limit_holds_for_all_rows_by_two_dimensions(opened: Opened) -> None:
    """Rows outside the grouping, too, since there are some for each session; those beyond are added up by kind."""
    pipeline = await counted(
        opened, *(moved_to(entry, f"{n}-", session_id=f"s{n}") for n in range(4) for entry in busy())
    )
    every, few = [await ask_hotspots(pipeline, by="tool,session", limit=limit) for limit in (1000, 3)]
    assert len({row["keys"]["session"] for row in every["rows"]}) == 4
    kinds = [row["kind"] for row in every["rows"]]
    assert few["moreRows"] == kinds.count("tool") - 3
    divided = [row["kind"] for row in few["rows"] if "keys" in row]
    assert divided == ["tool"] * 3 + ["other"] * 3
    merged = [row["key"] for row in few["rows"] if "keys" not in row]
    assert len(set(merged)) == len(merged) < kinds.count("other") - 3
    assert few["totals"] == every["totals"]
    for name, tokens in every["totals"]["usage"].items():
        assert sum(row["usage"][name] for row in few["rows"]) == tokens


@pytest.mark.parametrize("by", ["file", "prompt"])
async def test_without_prices_the_largest_come_first(opened: Opened, by: str) -> None:
    """With a limit, too, whatever was recorded first."""
    main = Scene()
    for n, size in enumerate((500, 9_000, 9_000, 2_000)):
        (read,) = calls = (call(call_id=f"c{n}", target=f"/p/{3 - n}.py"),)
        facts: Any = {"prompt_id": f"p{n}", "model": "unheard-of", "read": 0}
        main.turn(1_000, 50, entered=(prompt(),), made=(said("call", 50, read.id),), tool_calls=calls, **facts)
        main.turn(1_000 + size, 50, entered=(result(size, read.id),), made=(said(),), **facts)
    pipeline = await counted(opened, *main.entries)
    rows = [keyed(await ask_hotspots(pipeline, by=by, limit=limit), by) for limit in (1, 2, 3, 9)]
    every = [*rows[-1]]
    assert [[*some] for some in rows] == [every[:1], every[:2], every[:3], every]
    weights = [sum(row["usage"].values()) for row in rows[-1].values()]
    assert weights == sorted(weights, reverse=True)
    assert weights[0] > weights[-1]


async def test_misses_beyond_the_limit_are_one_row(opened: Opened) -> None:
    """They are no part of what tools paid: what is added up is the other reasons alone."""
    switching = Scene(rail_id="a2")
    switching.turn(20_000, 100, entered=(prompt(),), made=(said(),))
    switching.turn(20_400, 100, entered=(prompt(),), made=(said(),))
    switching.turn(20_800, 100, read=0, entered=(prompt(),), made=(said(),), model="claude-opus-4-5-20251101")
    pipeline = await counted(opened, *busy(), *switching.entries)
    every = keyed(await ask_hotspots(pipeline, by="cache-miss"))
    assert every.keys() == {"pause", "model-switch", "everything else"}
    few = await ask_hotspots(pipeline, by="cache-miss", limit=1)
    shown, more, rest = few["rows"]
    (left_out,) = {"pause", "model-switch"} - {shown["key"]}
    assert more["key"] == "1 more"
    assert (more["calls"], more["usage"]) == (1, every[left_out]["usage"])
    assert rest == every["everything else"]


async def test_misses_of_agents_are_no_rows_of_their_own(opened: Opened) -> None:
    """The same reason on the main rail and on an agent's is one row, whatever the limit."""
    main, agent = Scene(), Scene(rail_id="a1")
    who = Subagent(agent_id="a1", type="Explore")
    for scene, whose in ((main, None), (agent, who)):
        scene.turn(20_000, 100, entered=(prompt(),), made=(said(),), subagent=whose)
        scene.turn(20_300, 100, entered=(prompt(),), made=(said(),), subagent=whose)
        scene.turn(20_600, 100, read=0, pause=4_000, entered=(prompt(),), made=(said(),), subagent=whose)
    pipeline = await counted(opened, *main.entries, *agent.entries)
    shown, rest = (await ask_hotspots(pipeline, by="cache-miss", limit=1))["rows"]
    assert (shown["key"], shown["calls"], rest["key"]) == ("pause", 2, "everything else")


async def test_a_prompt_says_where_it_is(opened: Opened) -> None:
    """Text is content, so the row has session, rail and turn: the earliest, if a subagent worked on it."""
    main, agent = Scene(), Scene(rail_id="a1")
    main.turn(20_000, 100, entered=(prompt(),), made=(said(),), prompt_id="p1")
    main.turn(20_300, 100, entered=(prompt(),), made=(said(),), prompt_id="p2")
    for name in ("p2", "p3"):
        agent.turn(9_000, 10, pause=300, made=(said(),), subagent=Subagent(agent_id="a1"), prompt_id=name)
    pipeline = await counted(opened, *main.entries, *agent.entries)
    rows = keyed(await ask_hotspots(pipeline, by="prompt"))
    places = {key: (row["sessionId"], row["railId"], row["turnIndex"]) for key, row in rows.items()}
    assert places == {"p1": ("s1", "main", 0), "p2": ("s1", "main", 1), "p3": ("s1", "a1", 1)}
    assert {row["shortId"] for row in rows.values()} == {"s"}


async def test_many_prompts_of_a_long_session_are_found_in_one_go(opened: Opened) -> None:
    """A session is not read again for every prompt of it that is shown."""
    scene = Scene()
    for n in range(120):
        scene.turn(10_000 + 100 * n, 20, entered=(prompt(),), made=(said(),), prompt_id=f"p{n}")
    pipeline = await counted(opened, *scene.entries)
    asked: list[str] = []
    await pipeline.index.ask(lambda db: db.set_trace_callback(asked.append))
    assert len((await ask_hotspots(pipeline, by="prompt", limit=500))["rows"]) == 120
    assert 0 < len([sql for sql in asked if "turns t" in sql]) < 5


async def test_what_has_no_price_comes_by_its_tokens(opened: Opened) -> None:
    """A session of a model without a price is sorted by tokens."""
    scene = Scene()
    calls = (call("Ask", None, "c1"), call("Zap", None, "c2"))
    made = (said("call", 20, "c1"), said("call", 20, "c2"))
    scene.turn(9_000, 40, entered=(prompt(),), made=made, tool_calls=calls, model="nobody-knows-1")
    came = (result(300, "c1"), result(3_000, "c2"))
    scene.turn(12_340, 10, entered=came, made=(said(),), model="nobody-knows-1")
    pipeline = await counted(opened, *scene.entries)
    rows = (await ask_hotspots(pipeline, by="tool"))["rows"]
    assert [row["key"] for row in rows if row["kind"] == "tool"] == ["Zap", "Ask"]


async def test_what_has_no_price_has_none_beyond_the_limit_either(opened: Opened) -> None:
    """Two files, one read by a model without a price: left out, its row still has tokens and no cost."""
    priced, unpriced = Scene(), Scene(rail_id="b1")
    for scene, model in ((priced, "claude-sonnet-4-5"), (unpriced, "nobody-knows-1")):
        reads = (call(target=f"/p/{model}.py"),)
        scene.turn(9_000, 50, entered=(prompt(),), made=(said("call", 80),), tool_calls=reads, model=model)
        scene.turn(10_000, 50, entered=(result(3_000),), made=(said(),), model=model)
    pipeline = await counted(opened, *priced.entries, *unpriced.entries)
    shown, more, *_ = (await ask_hotspots(pipeline, by="file", limit=1))["rows"]
    assert (shown["key"], more["key"]) == ("/p/claude-sonnet-4-5.py", "1 more")
    assert (more["costUsd"], more["share"]) == (None, None)
    assert sum(more["usage"].values()) > 0


async def test_two_dimensions(opened: Opened) -> None:
    """Rows by tool and model, or by file and session, add up to the bill and name both keys."""
    pipeline = await counted(opened, *busy())
    plain = keyed(await ask_hotspots(pipeline, by="tool"), "tool")
    for second in ("model", "session", "day", "project", "agent"):
        answer = await ask_hotspots(pipeline, by=f"tool,{second}")
        assert all(row["keys"].keys() == {"tool", second} for row in answer["rows"])
        assert sum(row["calls"] for row in answer["rows"] if row["key"] == "Read") == plain["Read"]["calls"]
        assert sum(row["costUsd"] for row in answer["rows"]) == pytest.approx(answer["totals"]["costUsd"], rel=1e-14)
    agents = {row["keys"]["agent"] for row in (await ask_hotspots(pipeline, by="file,agent"))["rows"]}
    assert agents == {None, "Explore"}


@pytest.mark.parametrize("by", ["tool,tool", "model", "prompt,model", "tool,model,day", "tools"])
async def test_dimensions_that_there_are_not(opened: Opened, by: str) -> None:
    pipeline = await counted(opened, *busy())
    with pytest.raises(Mistaken):
        await ask_hotspots(pipeline, by=by)


async def test_days_of_another_zone(opened: Opened) -> None:
    """A local day that is no day of UTC has what the turns of that day paid."""
    pipeline = await counted(opened, *busy())
    for tz in ("UTC", "Asia/Kolkata", "America/Los_Angeles"):
        answer = await ask_hotspots(pipeline, by="tool,day", tz=tz)
        days = {row["key"]: row["costUsd"] for row in (await ask_summary(pipeline.index, by="day", tz=tz))["rows"]}
        for day, cost in days.items():
            rows = [row["costUsd"] for row in answer["rows"] if row["keys"]["day"] == day]
            assert sum(rows) == pytest.approx(cost, rel=1e-13)


async def test_one_tool_of_two_harnesses(opened: Opened) -> None:
    """`Bash` and `bash` are one row."""
    scene = Scene()
    calls = (call("Bash", "npm test", "c1"), call("bash", "npm test", "c2"))
    made = tuple(said("call", 100, one.id) for one in calls)
    scene.turn(20_000, 500, entered=(prompt(),), made=made, tool_calls=calls)
    rows = keyed(await ask_hotspots(await counted(opened, *scene.entries)), "tool")
    assert {key: row["calls"] for key, row in rows.items()} == {"Bash": 2}
