"""Cache misses: tokens that a turn paid in full again, and the reason."""

from __future__ import annotations

from typing import Any

import pytest

from burnd.attribution.causes import TurnMiss
from burnd.attribution.rates import Spent
from burnd.records import Block, MissStatement, PromptChange, RequestFacts, Usage
from tests.attribution.scenes import Scene, prompt, result, said


def last_miss(*turns: dict[str, Any]) -> TurnMiss | None:
    """The miss of the last turn after a cached one of 20,000 tokens, all of which were written for five minutes."""
    scene = Scene()
    scene.turn(0, usage=Usage(cache_create_5m=20_000, output=100), entered=(prompt(),), made=(said(),))
    usual: dict[str, Any] = {"context": 20_150, "entered": (prompt(168),)}
    for turn in turns:
        scene.turn(**usual | turn)
    missed = [one for one in scene.explained().misses if one.turn_index == len(turns)]
    return missed[0] if missed else None


@pytest.mark.parametrize(
    ("turn", "reason"),
    [
        ({"read": 0, "pause": 301}, "pause"),
        ({"read": 0, "pause": 301, "model": "claude-opus-4-5"}, "model-switch"),
        ({"read": 0, "pause": 301, "entered": (result(168),)}, "slow-call"),
        ({"read": 0, "pause": 301, "entered": (result(100), Block(kind="image", bytes=9, call_id="c1"))}, "slow-call"),
        ({"read": 0, "pause": 301, "entered": (result(100), prompt(68))}, "pause"),
        ({"read": 0, "pause": 301, "entered": (Block(kind="reminder", bytes=168),)}, "pause"),
        ({"read": 0, "entered": (result(168),)}, "prefix"),
        ({"read": 0}, "prefix"),
        ({"read": 5_000}, "prefix"),
        ({"read": 0, "context": 18_000, "entered": (Block(kind="summary", bytes=900),), "parent": None}, "compaction"),
    ],
)
def test_reasons_of_misses(turn: dict[str, Any], reason: str) -> None:
    """Waiting for a tool call is not a pause of the user."""
    found = last_miss(turn)
    assert found is not None
    assert found.miss.reason == reason


def test_what_is_read_is_no_miss() -> None:
    assert last_miss({"read": 20_000, "pause": 9_000}) is None


def test_the_last_few_tokens_are_no_miss() -> None:
    """The end of a context is seldom cached: it is paid for again as a matter of course."""
    assert last_miss({"read": 19_500}) is None


def test_only_what_was_there_before_is_paid_again() -> None:
    """New blocks enter at full price; that is not the miss's doing."""
    found = last_miss({"context": 60_000, "entered": (prompt(160_000),), "read": 0, "pause": 400})
    assert found is not None
    assert found.miss.spent == Spent(input=20_000)


def test_an_hour_lasts_longer_than_five_minutes() -> None:
    hour = {"usage": Usage(cache_read=20_000, cache_create_1h=150)}
    kept = last_miss(hour, {"context": 20_200, "read": 10_000, "pause": 600})
    assert kept is not None
    assert kept.miss.reason == "prefix"
    expired = last_miss(hour, {"context": 20_200, "read": 0, "pause": 3_700})
    assert expired is not None
    assert expired.miss.reason == "pause"


def test_a_request_that_failed_on_another_model_is_no_switch() -> None:
    """Nothing was billed for it, so it did nothing to the cache."""
    failed = {"usage": Usage(), "model": "claude-opus-4-5", "entered": (), "quality": "empty"}
    found = last_miss(failed, {"read": 0, "pause": 400})
    assert found is not None
    assert found.miss.reason == "pause"


def test_going_back_is_a_reason() -> None:
    later = {"context": 40_000, "entered": (prompt(80_000),), "made": (said(),)}
    back = {"context": 20_150, "parent": "main-0", "read": 15_000}
    found = last_miss(later, back)
    assert found is not None
    assert found.miss.reason == "rewind"


def test_a_rail_that_never_used_a_cache_misses_none() -> None:
    scene = Scene()
    for n in range(3):
        scene.turn(20_000 + 100 * n, read=0, entered=(prompt(300),))
    assert scene.explained().misses == ()


def test_something_taken_out_of_the_middle_is_a_reason() -> None:
    """The prefix and more were read, and what follows was shorter than before."""
    scene = Scene()
    scene.turn(0, usage=Usage(cache_create_5m=20_000), entered=(prompt(40_000 - 32),))
    scene.turn(40_000, entered=(Block(kind="result", bytes=80_000, call_id="c1"),))
    scene.turn(60_000, entered=(Block(kind="result", bytes=80_000, call_id="c2"),))
    scene.turn(40_100, entered=(prompt(368),), read=20_000)
    assert [one.miss.reason for one in scene.explained().misses] == ["edited"]


FACTS: dict[str, Any] = {"shape": "s1", "params": "p1", "effort": "high", "breakpoints": 3}


def proved_miss(pause: int = 5, entered: tuple[Block, ...] = (prompt(168),), **facts: Any) -> TurnMiss:
    """The miss of a request with these facts, after one with complete hashes."""
    scene = Scene()
    first = RequestFacts(**FACTS, messages=2)
    scene.turn(0, usage=Usage(cache_create_5m=20_000, output=100), entered=(prompt(),), made=(said(),), request=first)
    turn = {name: facts.pop(name) for name in ("cache_miss", "model", "parent", "prompt_changes") if name in facts}
    request = RequestFacts(**{**FACTS, "messages": 4, "same": 2, "before": 2, **facts})
    scene.turn(20_150, read=0, pause=pause, entered=entered, request=request, **turn)
    (one,) = scene.explained().misses
    return one


@pytest.mark.parametrize(
    ("facts", "reason"),
    [
        ({"shape": "s2"}, "prefix"),
        ({"shape": "s2", "pause": 400}, "prefix"),
        ({"effort": "low"}, "settings"),
        ({"params": "p2"}, "settings"),
        ({"effort": None}, "settings"),
        ({"same": 1}, "edited"),
        ({"same": 1, "pause": 400}, "edited"),
        ({"breakpoints": 0}, "not-requested"),
        ({"pause": 400}, "pause"),
        ({"pause": 400, "entered": (result(168),)}, "slow-call"),
        ({}, "dropped"),
        ({"model": "claude-opus-4-5", "shape": "s2"}, "model-switch"),
        ({"cache_miss": MissStatement(type="tools_changed"), "shape": "s2"}, "tools"),
        ({"cache_miss": MissStatement(type="system_changed"), "pause": 400}, "system"),
        ({"cache_miss": MissStatement(type="model_changed")}, "model-switch"),
        ({"cache_miss": MissStatement(type="messages_changed"), "same": None, "before": None}, "edited"),
    ],
)
def test_hashes_and_the_provider_prove_a_reason(facts: dict[str, Any], reason: str) -> None:
    miss = proved_miss(**facts).miss
    assert (miss.reason, miss.proof) == (reason, "proved")


@pytest.mark.parametrize(
    ("facts", "reason"),
    [
        ({"shape": None}, "prefix"),
        ({"effort": None, "params": None, "same": None, "before": None}, "prefix"),
        ({"same": None, "before": None, "pause": 400}, "pause"),
        ({"entered": tuple(prompt(8) for _ in range(21))}, "prefix"),
        ({"cache_miss": MissStatement(type="unavailable"), "same": None, "before": None}, "prefix"),
        ({"cache_miss": MissStatement(type="previous_message_not_found"), "shape": None}, "prefix"),
    ],
)
def test_evidence_that_leaves_several_reasons_proves_none(facts: dict[str, Any], reason: str) -> None:
    """A missing hash, more new blocks than a provider looks back over, or a provider that does not know."""
    miss = proved_miss(**facts).miss
    assert (miss.reason, miss.proof) == (reason, "inferred")


def test_details_of_a_proved_reason() -> None:
    change = PromptChange(kind="mcp", name="github")
    assert proved_miss(same=1).miss.position == 1
    assert proved_miss(effort="low").miss.settings == ("high", "low")
    assert proved_miss(shape="s2", prompt_changes=(change,)).miss.changes == (change,)
    assert proved_miss(pause=400, prompt_changes=(change,)).miss.changes == ()


def test_a_request_is_compared_with_the_last_billed_one() -> None:
    """A failed request in between has no hashes and changes nothing."""
    scene = Scene()
    facts = RequestFacts(**FACTS, messages=2)
    scene.turn(0, usage=Usage(cache_create_5m=20_000), entered=(prompt(),), made=(said(),), request=facts)
    scene.turn(0, usage=Usage(), entered=(), quality="empty")
    scene.turn(20_150, read=0, entered=(prompt(168),), request=RequestFacts(**FACTS, messages=4, same=2, before=2))
    assert [one.miss.group for one in scene.explained().misses] == [("dropped", "proved")]


def test_what_the_other_lifetime_of_cache_writes_would_cost() -> None:
    """After ten minutes an hour's cache is read, and a five minutes' one is written again."""
    scene = Scene()
    scene.turn(0, usage=Usage(cache_create_5m=20_000, output=9), entered=(prompt(),))
    scene.turn(0, usage=Usage(cache_create_5m=20_100), entered=(prompt(400),), pause=600)
    ((now,), (five,), (hour,)) = (tuple(bill.values()) for bill in scene.explained().caching)
    assert now == five == Spent(cache_create_5m=40_100)
    assert hour == Spent(cache_read=20_000, cache_create_1h=20_100)
    scene = Scene()
    scene.turn(0, usage=Usage(cache_create_1h=20_000, output=9), entered=(prompt(),))
    scene.turn(0, usage=Usage(cache_read=20_000, cache_create_1h=100), entered=(prompt(400),), pause=600)
    ((now,), (five,), (hour,)) = (tuple(bill.values()) for bill in scene.explained().caching)
    assert now == hour == Spent(cache_read=20_000, cache_create_1h=20_100)
    assert five == Spent(cache_create_5m=40_100)
