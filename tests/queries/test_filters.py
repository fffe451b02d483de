"""Filters find what is named, and refuse unknown values with suggestions."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from burnd.contract.reports import SummaryParams
from burnd.contract.validation import BadParams, checked
from burnd.queries import summary
from burnd.queries.dimensions import AgentKey
from burnd.queries.money import Tally
from burnd.queries.view import Missing, Refusal
from burnd.recording.candidate import Batch
from burnd.records import Session, Subagent, ToolCall, Turn, Usage
from burnd.records.codec import Entry
from tests.conftest import Opened
from tests.make import at, stamp, turn
from tests.queries.asking import ask_summary, by_key


async def turns_of(opened: Opened, *entries: Any, **params: Any) -> int:
    pipeline = opened.pipeline or await opened()
    await pipeline.commit(Batch(entries=list(entries)))
    return int((await ask_summary(pipeline.index, **params))["totals"]["turns"])


async def test_a_session_is_found_by_the_front_of_its_id(opened: Opened) -> None:
    """An id or a unique prefix, with its subagents and all child sessions."""
    entries = [
        turn("m1", session_id="abc-1"),
        turn("m2", session_id="abc-1", rail_id="a1", subagent=Subagent(agent_id="a1")),
        turn("m3", session_id="kid"),
        turn("m4", session_id="grandkid"),
        turn("m5", session_id="abd-2"),
        Session(session_id="kid", source="opencode", parent_session_id="abc-1"),
        Session(session_id="grandkid", source="opencode", parent_session_id="kid"),
    ]
    assert await turns_of(opened, *entries, session="abc-1") == 4
    assert await turns_of(opened, session="abc") == 4
    assert await turns_of(opened, session="kid") == 2
    with pytest.raises(Refusal, match="more than one") as refused:
        await turns_of(opened, session="ab")
    assert "abc-1, abd-2" in refused.value.hint
    with pytest.raises(Missing, match="no session"):
        await turns_of(opened, session="zzz")
    with pytest.raises(Refusal):
        await turns_of(opened, session="")


async def test_an_exact_id_wins_over_longer_ones(opened: Opened) -> None:
    assert await turns_of(opened, turn("m1", session_id="ab"), turn("m2", session_id="abc"), session="ab") == 1


async def test_a_project_is_a_folder_with_its_clones(opened: Opened, tmp_path: Path) -> None:
    """A root means every clone and worktree of its repository, a folder below it what was done there, if anything."""
    here, clone, other = tmp_path / "it", tmp_path / "clone", tmp_path / "item"
    (here / "src").mkdir(parents=True)
    (here / ".git").mkdir()
    (here / ".git" / "config").write_text('[remote "origin"]\n\turl = git@host.example:me/it.git\n')
    entries = [
        turn("m1", project=str(here), project_key="host.example/me/it"),
        turn("m2", project=str(here / "src"), project_key="host.example/me/it"),
        turn("m3", project=str(clone), project_key="host.example/me/it"),
        turn("m4", project=str(other)),
        turn("m5", project=None),
    ]
    assert await turns_of(opened, *entries, project=str(here)) == 3
    assert await turns_of(opened, project=str(here / "src")) == 1
    assert await turns_of(opened, project=str(here / "docs")) == 3
    assert await turns_of(opened, project=str(here) + "/") == 3
    assert await turns_of(opened, project=str(tmp_path)) == 4
    assert await turns_of(opened, project="/") == 4
    assert await turns_of(opened, project=str(other)) == 1
    assert await turns_of(opened, project=str(tmp_path / "new")) == 0


async def test_a_project_can_be_a_remote_or_its_name(opened: Opened) -> None:
    """In any spelling of the remote, or by its last parts where these mean one project."""
    entries = [
        turn("m1", project="/x/it", project_key="host.example/me/it"),
        turn("m2", project="/y/it", project_key="host.example/you/it"),
        turn("m3", project="/z/lonely"),
    ]
    assert await turns_of(opened, *entries, project="host.example/me/it") == 1
    assert await turns_of(opened, project="git@host.example:me/it.git") == 1
    assert await turns_of(opened, project="https://host.example/you/it") == 1
    assert await turns_of(opened, project="you/it") == 1
    assert await turns_of(opened, project="lonely") == 1
    with pytest.raises(Refusal, match="matches several projects") as refused:
        await turns_of(opened, project="it")
    assert "host.example/me/it, host.example/you/it" in refused.value.hint
    with pytest.raises(Missing, match="lonly") as missing:
        await turns_of(opened, project="lonly")
    assert "lonely" in missing.value.hint


async def test_where_a_turn_was_before_it_was_revised_means_nothing(opened: Opened) -> None:
    """A folder is known by the turns that are in it now, as after a rebuild."""
    pipeline = await opened()
    moved = {"project_key": "host.example/me/a"}
    await pipeline.commit(
        Batch(entries=[turn("m1", project="/code/a", **moved), turn("m2", project="/work/a", **moved)])
    )
    await pipeline.commit(Batch(entries=[turn("m1", project=None, project_key=None)]))
    assert (await ask_summary(pipeline.index, project="/code/a"))["totals"]["turns"] == 0
    assert (await ask_summary(pipeline.index, project="/work/a"))["totals"]["turns"] == 1


async def test_a_folder_that_is_gone_is_known_by_what_was_recorded(opened: Opened) -> None:
    entries = [
        turn("m1", project="/gone/it", project_key="host.example/me/it"),
        turn("m2", project="/other/clone", project_key="host.example/me/it"),
    ]
    assert await turns_of(opened, *entries, project="/gone/it/sub") == 2


async def test_a_link_leads_to_its_folder(opened: Opened, tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    os.symlink(tmp_path / "real", tmp_path / "link")
    assert await turns_of(opened, turn("m1", project=str(tmp_path / "real")), project=str(tmp_path / "link")) == 1


async def test_a_model_is_found_by_any_of_its_names_or_its_family(opened: Opened) -> None:
    """As a log or a report has it; else every model with these words in its name; several at once."""
    entries = [
        turn("m1", model="claude-sonnet-4-5-20250929"),
        turn("m2", model="anthropic/claude-sonnet-4-5", provider="openrouter", source="opencode"),
        turn("m3", model="claude-opus-4-1"),
        turn("m4", model="claude-opus-4"),
        turn("m5", model="gpt-5", provider="openai"),
        turn("m6", model="house/model-x"),
    ]
    assert await turns_of(opened, *entries, model="claude-sonnet-4-5") == 2
    assert await turns_of(opened, model="claude-sonnet-4-5-20250929") == 2
    assert await turns_of(opened, model="Sonnet") == 2
    assert await turns_of(opened, model="claude-opus-4") == 1
    assert await turns_of(opened, model="opus-4") == 2
    assert await turns_of(opened, model="claude") == 4
    assert await turns_of(opened, model="gpt-5,sonnet") == 3
    assert await turns_of(opened, model=["gpt-5", "model-x"]) == 2
    assert await turns_of(opened, model="gemini-2.5-pro") == 0
    with pytest.raises(Missing, match="sonet") as missing:
        await turns_of(opened, model="sonet")
    assert "claude-sonnet-4-5" in missing.value.hint
    with pytest.raises(Refusal, match="must not be empty"):
        await turns_of(opened, model=" , ")


async def test_a_provider_is_who_served_it_or_who_makes_it(opened: Opened) -> None:
    """Claude Code names none: its turns are the maker's."""
    entries = [turn("m1"), turn("m2", provider="openrouter"), turn("m3", provider="Anthropic")]
    assert await turns_of(opened, *entries, provider="anthropic") == 2
    assert await turns_of(opened, provider="openrouter") == 1
    with pytest.raises(Missing, match="bedrock"):
        await turns_of(opened, provider="bedrock")


async def test_an_agent_is_a_stamp_a_subagent_or_the_name_in_its_log(opened: Opened) -> None:
    entries = [
        turn("m1", session_id="s1"),
        turn("m4", session_id="s3", agent="build"),
        turn("m5", session_id="s3", agent="plan"),
        turn("m6", session_id="s4"),
        stamp(1, session="s4", agent="reviewer"),
        turn("m2", session_id="s2", rail_id="a7", subagent=Subagent(agent_id="a7", type="Explore")),
        turn("m3", session_id="s2"),
        stamp(1, agentId="builder"),
    ]
    assert await turns_of(opened, *entries, agent="builder") == 1
    assert await turns_of(opened, agent="a7") == 1
    assert await turns_of(opened, agent="Explore") == 1
    assert await turns_of(opened, agent="plan") == 1
    assert await turns_of(opened, agent="reviewer") == 1
    assert await turns_of(opened, agent="nobody") == 0
    answer = await ask_summary((await opened()).index, by="agent")
    rows = {row["key"]: (row["turns"], row["stamped"]) for row in answer["rows"]}
    assert rows == {
        None: (1, False),
        "builder": (1, True),
        "reviewer": (1, True),
        "Explore": (1, False),
        "build": (1, False),
        "plan": (1, False),
    }


async def test_agents_nest_as_their_harness_records_them(opened: Opened) -> None:
    """A subagent below the conversation of its session, a child session below its parent's."""
    entries: list[Entry] = [
        turn("m1", session_id="s1"),
        turn("m2", session_id="s1", rail_id="a7", subagent=Subagent(agent_id="a7", type="Explore")),
        turn("m3", session_id="s2", agent="build"),
        turn("m4", session_id="s2", agent="build"),
        turn("m5", session_id="s2", agent="plan"),
        Session(session_id="s3", source="opencode", parent_session_id="s2"),
        turn("m6", session_id="s3", subagent=Subagent(agent_id="s3", type="general")),
        Session(session_id="s4", source="opencode", parent_session_id="s3"),
        turn("m7", session_id="s4", subagent=Subagent(agent_id="s4", type="scout")),
    ]
    pipeline = await opened()
    await pipeline.commit(Batch(entries=[*entries]))
    rows = (await ask_summary(pipeline.index, by="agent", tree=True))["rows"]
    assert {(row["key"], row["parent"], row["depth"], row["subtree"]["turns"]) for row in rows} == {
        (None, None, 0, 2),
        ("Explore", None, 1, 1),
        ("build", None, 0, 4),
        ("general", "build", 1, 2),
        ("scout", "general", 2, 1),
        ("plan", None, 0, 1),
    }
    assert [row["key"] for row in rows[:3]] == ["build", "general", "scout"]


async def test_a_workflow_is_either_stamp(opened: Opened) -> None:
    entries = [*(turn(f"m{n}", session_id=f"s{n}") for n in range(3)), stamp(1, session="s1", workflowId="wf")]
    assert await turns_of(opened, *entries, stamp(1, session="s2", workflow="wf"), workflow="wf") == 2


async def test_several_tags_must_all_fit(opened: Opened) -> None:
    entries = [turn("m1"), turn("m2", session_id="s2"), stamp(1, a="1", b="2"), stamp(1, session="s2", a="1")]
    assert await turns_of(opened, *entries, tags={"a": "1"}) == 2
    assert await turns_of(opened, tags={"a": "1", "b": "2"}) == 1


@pytest.mark.parametrize(
    ("params", "why", "hint"),
    [
        ({"since": "tomorrowish"}, "invalid time", "7d"),
        ({"since": at(5), "until": at(5)}, "until is before since", "since is"),
        ({"tz": "Nowhere/Land"}, "unknown time zone", "Europe/Berlin"),
        ({"source": "emacs"}, "unknown source", "claude-code"),
        ({"activity": "thinking"}, "activity cannot be", "reasoning"),
        ({"branch": "no-such"}, "branch", "--by branch"),
        ({"by": "weekday"}, "unknown dimension", "week"),
        ({"by": "pebble"}, "unknown dimension", "tag:KEY"),
        ({"by": "tag:"}, "unknown dimension", "tag:KEY"),
        ({"by": "day,model,project"}, "more than two dimensions", "day,model"),
        ({"tree": True}, "tree", "agent"),
        ({"limit": 0}, "limit", ""),
        ({"project": ""}, "project", ""),
    ],
)
async def test_what_makes_no_sense_is_refused_with_a_hint(
    opened: Opened, params: dict[str, Any], why: str, hint: str
) -> None:
    with pytest.raises((Refusal, BadParams), match=why) as refused:
        await turns_of(opened, turn(), **params)
    assert hint in str(vars(refused.value)["hint"])


def test_a_mistyped_parameter_is_refused() -> None:
    with pytest.raises(BadParams, match="sinse"):
        checked(SummaryParams, {"sinse": "7d"})


async def test_edges_are_exact_to_the_millisecond(opened: Opened) -> None:
    """From that millisecond on, up to but not including the other."""
    entries = [turn(f"m{n}", turn_index=n, ts=at(n / 1000)) for n in range(5)]
    assert await turns_of(opened, *entries, since=at(0.001), until=at(0.003)) == 2
    assert await turns_of(opened, since=at(0.001), until=at(0.003), session="s1") == 2
    assert await turns_of(opened, since=at(0.004)) == 1


async def test_an_empty_answer_says_when_the_newest_turn_was(opened: Opened) -> None:
    """Nothing in the last day is not nothing at all."""
    pipeline = await opened()
    answer = await ask_summary(pipeline.index)
    assert (answer["totals"]["turns"], answer["totals"]["costUsd"], answer["newest"]) == (0, None, None)
    await pipeline.commit(Batch(entries=[turn()]))
    answer = await ask_summary(pipeline.index, since="1m")
    assert (answer["totals"]["turns"], answer["rows"], answer["newest"]) == (0, [], at(0))


async def test_agents_form_a_tree(opened: Opened) -> None:
    """Each below the one that its stamp names as its parent, with the sum of all below it; a ring is cut."""
    entries = [turn(f"m{n}", session_id=f"s{n}") for n in range(6)]
    stamps = [
        stamp(1, session="s0", agentId="lead"),
        stamp(1, session="s1", agentId="builder", parentAgentId="lead"),
        stamp(1, session="s2", agentId="tester", parentAgentId="builder"),
        stamp(1, session="s3", agentId="ring-a", parentAgentId="ring-b"),
        stamp(1, session="s4", agentId="ring-b", parentAgentId="ring-a"),
    ]
    pipeline = await opened()
    await pipeline.commit(Batch(entries=[*entries, *stamps]))
    answer = await ask_summary(pipeline.index, by="agent", tree=True)
    shape = [(row["key"], row["parent"], row["depth"], row["subtree"]["turns"]) for row in answer["rows"]]
    assert shape.index(("lead", None, 0, 3)) + 1 == shape.index(("builder", "lead", 1, 2))
    assert shape.index(("builder", "lead", 1, 2)) + 1 == shape.index(("tester", "builder", 2, 1))
    assert {row["key"] for row in answer["rows"]} == {"lead", "builder", "tester", "ring-a", "ring-b", None}
    assert sum(row["turns"] for row in answer["rows"]) == 6
    assert by_key(answer)["lead"]["stamped"]
    assert not by_key(answer)[None]["stamped"]


async def test_a_subagent_is_below_the_one_that_called_it(opened: Opened) -> None:
    """At any depth; one whose call is not recorded is below the main conversation."""

    def called(agent: str, type_: str, by: str | None, *calls: str) -> Turn:
        own = Subagent(agent_id=agent, type=type_, parent_tool_use_id=by)
        tools = tuple(ToolCall(id=call, name="Agent") for call in calls)
        return turn(f"m-{agent}", rail_id=agent, subagent=own, tool_calls=tools)

    entries = [
        turn("m0", tool_calls=(ToolCall(id="c0", name="Agent"),)),
        called("a0", "Explore", "c0", "c1", "c2"),
        called("a1", "Review", "c1", "c3"),
        called("a2", "Test", "c3"),
        called("a3", "Lost", "c9"),
    ]
    pipeline = await opened()
    await pipeline.commit(Batch(entries=[*entries]))
    answer = await ask_summary(pipeline.index, by="agent", tree=True)
    shape = {(row["key"], row["parent"], row["depth"], row["subtree"]["turns"]) for row in answer["rows"]}
    assert shape == {
        (None, None, 0, 5), ("Explore", None, 1, 3), ("Review", "Explore", 2, 2), ("Test", "Review", 3, 1),
        ("Lost", None, 1, 1),
    }  # fmt: skip


async def test_the_costliest_branch_comes_first(opened: Opened) -> None:
    """By what it cost with all below it, not by its own; a limit keeps the first rows and counts the others."""
    costs = {"alone": 50, "lead": 1, "cheap": 2, "dear": 90}
    entries = [turn(f"m{name}", session_id=name, usage=Usage(output=n)) for name, n in costs.items()]
    stamps = [
        stamp(1, session="alone", agentId="alone"),
        stamp(1, session="lead", agentId="lead"),
        stamp(1, session="cheap", agentId="cheap", parentAgentId="lead"),
        stamp(1, session="dear", agentId="dear", parentAgentId="lead"),
    ]
    pipeline = await opened()
    await pipeline.commit(Batch(entries=[*entries, *stamps]))
    answer = await ask_summary(pipeline.index, by="agent", tree=True)
    assert [row["key"] for row in answer["rows"]] == ["lead", "dear", "cheap", "alone"]
    answer = await ask_summary(pipeline.index, by="agent", tree=True, limit=2)
    assert ([row["key"] for row in answer["rows"]], answer["moreRows"]) == (["lead", "dear"], 2)


async def test_agents_nest_below_a_parent_without_turns(opened: Opened) -> None:
    """A parent without turns, or without matching ones, has its place in the tree."""
    entries = [turn(f"m{n}", session_id=f"s{n}") for n in range(2)]
    stamps = [stamp(1, session=f"s{n}", agentId=f"helper{n}", parentAgentId="lead") for n in range(2)]
    pipeline = await opened()
    await pipeline.commit(Batch(entries=[*entries, *stamps]))
    answer = await ask_summary(pipeline.index, by="agent", tree=True)
    shape = [(row["key"], row["depth"], row["turns"], row["subtree"]["turns"]) for row in answer["rows"]]
    assert shape == [("lead", 0, 0, 2), ("helper0", 1, 1, 1), ("helper1", 1, 1, 1)]
    assert answer["rows"][0]["costUsd"] is None
    assert (answer["totals"]["turns"], answer["moreRows"]) == (2, 0)


def test_a_chain_of_agents_may_be_long() -> None:
    """Each below the one before it, deeper than any stack."""
    tallies = {AgentKey(f"a{n}", None): Tally() for n in range(1, 1200)}
    above = {AgentKey(f"a{n}", None): AgentKey(f"a{n - 1}", None) for n in range(1, 1200)}
    branches = summary.tree(tallies, above)
    assert [branch.depth for branch in branches] == list(range(1200))


async def test_rows_that_are_left_out_are_counted(opened: Opened) -> None:
    """A limit keeps the costliest rows, or the newest days, with a count of the others; totals are complete."""
    pipeline = await opened()
    entries = [turn(f"m{n}", session_id=f"s{n}", ts=at(n * 86_400)) for n in range(5)]
    await pipeline.commit(Batch(entries=list(entries)))
    answer = await ask_summary(pipeline.index, by="day", limit=2)
    assert ([row["key"] for row in answer["rows"]], answer["moreRows"]) == (
        [at(3 * 86_400)[:10], at(4 * 86_400)[:10]],
        3,
    )
    assert answer["totals"]["turns"] == 5
    assert (await ask_summary(pipeline.index, by="session", limit=5))["moreRows"] == 0
