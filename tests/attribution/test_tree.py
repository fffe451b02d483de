"""Subagents' rails hang under the calls that started them."""

from __future__ import annotations

from burnd.attribution.causes import Branch, Explained, nest
from burnd.records import Subagent
from tests.attribution.scenes import Scene, call, said


def rail(name: str, started_by: str | None, *starts: str) -> Explained:
    scene = Scene(rail_id=name)
    agent = Subagent(agent_id=name, parent_tool_use_id=started_by) if started_by else None
    made = tuple(said("call", 100, one) for one in starts) or (said(),)
    calls = tuple(call("Agent", "general-purpose", call_id=one) for one in starts)
    scene.turn(1_000, 100, made=made, tool_calls=calls, subagent=agent)
    return scene.explained()


def names(branches: tuple[Branch, ...]) -> list[object]:
    return [(branch.explained.rail_id, names(branch.below)) for branch in branches]


def test_rails_nest_as_their_calls_do() -> None:
    rails = [rail("main", None, "t1", "t2"), rail("a", "t1", "t3"), rail("b", "t2"), rail("c", "t3")]
    (root,) = nest(rails)
    assert names((root,)) == [("main", [("a", [("c", [])]), ("b", [])])]


def test_a_rail_whose_call_is_missing_is_a_root() -> None:
    rails = [rail("main", None, "t1"), rail("a", "t1"), rail("lost", "unknown call")]
    assert names(nest(rails)) == [("main", [("a", [])]), ("lost", [])]


def test_a_cycle_is_cut() -> None:
    """No log can make a rail its own ancestor."""
    rails = [rail("a", "t2", "t1"), rail("b", "t1", "t2"), rail("c", "t9", "t9"), rail("d", "t2")]
    branches = nest(rails)
    assert names(branches) == [("a", [("b", [("d", [])])]), ("c", [])]
