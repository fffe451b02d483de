"""A rail's state is small, bounded, and refuses what it does not know."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from burnd.attribution.rail import MOST_ROLLED_BACK, REACH, Rail
from burnd.attribution.saving import restore, save
from tests.attribution.scenes import Scene, call, prompt, result, said


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
    assert len(save(rail)) < 8_000 * 8 + (REACH + MOST_ROLLED_BACK) * 150


def test_saving_again_says_the_same() -> None:
    rail, _ = fed(300)
    assert save(restore(save(rail))) == save(rail)


def test_a_new_rail_can_be_saved() -> None:
    assert restore(save(Rail())).feed(fed(1)[1].turns[0]) is not None


def test_a_restored_rail_can_be_rolled_back_by_as_much_as_it_promises() -> None:
    rail, scene = fed(REACH + 2 * MOST_ROLLED_BACK)
    restored = restore(save(rail))
    assert restored.rollback(scene.turns[-MOST_ROLLED_BACK].message_id)
    assert not restored.rollback(scene.turns[0].message_id)
    assert not restored.rollback("never heard of")
    assert restored.last.n == len(scene.turns) - MOST_ROLLED_BACK


def test_a_rail_in_memory_can_be_rolled_back_to_its_start() -> None:
    rail, scene = fed(20)
    assert rail.rollback(scene.turns[0].message_id)
    assert save(rail) == save(Rail())


@pytest.mark.parametrize("data", [b"", b"nonsense", msgspec.msgpack.encode([99, [], [], [], [], [], {}])])
def test_a_state_that_is_not_known_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        restore(data)
