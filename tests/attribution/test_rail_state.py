"""A rail's state is small, bounded, and refuses what it does not know."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from burnd.attribution.rail import REACH, Rail, restore, save
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
