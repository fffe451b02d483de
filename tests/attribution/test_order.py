"""In which order a rail is fed, and what of the ledger's entries it is fed with."""

from __future__ import annotations

from typing import Any

import msgspec

from burnd.attribution.rail import in_order
from burnd.records import Compaction, Copy, Usage
from tests.make import at, turn


def test_messages_come_by_their_place_on_the_rail() -> None:
    """A copy may carry the time of the session it was copied into: its place tells where it belongs."""
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
