"""Order in which a rail is fed, and its saved state: small, bounded, refused when unknown."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from burnd.attribution.rail import REACH, Rail, in_order, restore, save
from burnd.records import Compaction, Copy, Usage
from tests.attribution.scenes import Scene, call, prompt, result, said
from tests.make import at, turn


def fed(turns: int, compacted_every: int | None = None) -> tuple[Rail, Scene]:
    scene = Scene()
    for n in range(turns):
        begins = compacted_every is not None and n % compacted_every == 0
        parent: dict[str, Any] = {"parent": None} if begins else {}
        entered = (prompt(),) if begins or n == 0 else (result(2_000, f"c{n - 1}"),)
        made, calls = (said("call", 80, f"c{n}"),), (call(call_id=f"c{n}", target=f"/p/{n % 50}.py"),)
        since = n % compacted_every if compacted_every else n
        scene.turn(10_000 + 550 * since, 50, entered=entered, made=made, tool_calls=calls, read=0, **parent)
    rail = Rail()
    for entry in scene.entries:
        rail.feed(entry)
    return rail, scene


def test_a_state_grows_with_what_is_alive_and_not_with_the_session() -> None:
    """A session of many compactions has a state no larger than a few of its rows."""
    short, _ = fed(700, compacted_every=100)
    long, _ = fed(2_800, compacted_every=100)
    assert len(save(long)) < len(save(short)) * 1.1
    assert len(save(long)) < 100_000


def test_a_state_is_a_few_bytes_a_block() -> None:
    rail, _ = fed(4_000)
    assert len(save(rail)) < 8_000 * 11 + REACH * 150


def test_saving_again_says_the_same() -> None:
    rail, _ = fed(300)
    assert save(restore(save(rail))) == save(rail)


def test_a_new_rail_can_be_saved() -> None:
    assert restore(save(Rail())).feed(fed(1)[1].turns[0]) is not None


OF_ANOTHER_VERSION = msgspec.msgpack.encode([99, [], [], [], [], [], 0, [], {}])


@pytest.mark.parametrize("data", [b"", b"nonsense", OF_ANOTHER_VERSION])
def test_a_state_that_is_not_known_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        restore(data)


def test_messages_come_by_their_place_on_the_rail() -> None:
    """A copy may have the time of the session it was copied into, so its index decides."""
    copy = Copy(source="claude-code", session_id="s1", rail_id="main", message_id="a", turn_index=0, ts=at(90))
    later, first = turn("c", turn_index=2, ts=at(20)), turn("b", turn_index=1, ts=at(10))
    assert in_order([later, first], [copy]) == [copy, first, later]


def test_a_call_billed_beside_a_turn_comes_after_it() -> None:
    main, beside = turn("m", turn_index=3), turn("m:iter:0", turn_index=3)
    assert in_order([beside, main]) == [main, beside]


def test_a_compaction_comes_before_the_first_message_after_it() -> None:
    ids: dict[str, Any] = {"source": "claude-code", "session_id": "s1", "rail_id": "main"}
    late, early = Compaction(**ids, id="k2", ts=at(25)), Compaction(**ids, id="k1", ts=at(15))
    turns = [turn(f"m{n}", turn_index=n, ts=at(10 * n)) for n in range(1, 4)]
    assert in_order(turns, (), [late, early]) == [turns[0], early, turns[1], late, turns[2]]


def test_what_was_taken_back_is_left_out() -> None:
    """A turn that turned out to be a copy is in the ledger twice: as a copy, and as a turn that takes itself back."""
    taken_back = msgspec.structs.replace(turn("m1"), usage=Usage(), copy_of="m0")
    assert in_order([taken_back]) == []
