"""A rail that was followed from its first turn on, in one go or stretch by stretch: all that its causes are told from.

A stretch that was followed once is kept as a chapter, so that a long rail need not be followed again to be explained.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Final

import msgspec

from burnd.attribution.rail import Entry, Rail
from burnd.attribution.steps import Origin, Step, TurnStep, turn_step
from burnd.records import Subagent, Turn


class Who(msgspec.Struct, frozen=True, array_like=True):
    """Whose turns they are."""

    session_id: str = ""
    rail_id: str = ""
    agent: Subagent | None = None


class Chapter(msgspec.Struct, array_like=True):
    """What came up on a stretch of a rail, by the numbers that slots and causes have on the whole of it.

    The columns are as `Row` has them. `who` is as the last turn says it, None where there is none; `prefix` is how
    large the rail's prefix was found to be in the end.
    """

    parents: list[int]
    ends: list[int]
    owners: list[int]
    blocks: dict[int, int]
    origins: list[Origin]
    turns: list[TurnStep]
    who: Who | None
    prefix: int


def joined(chapters: Sequence[Chapter]) -> Chapter:
    """The chapters of a rail, which follow one upon the other from its beginning, as one."""
    if len(chapters) == 1:
        return chapters[0]
    whole = Chapter([], [], [], {}, [], [], None, 0)
    for chapter in chapters:
        whole.parents += chapter.parents
        whole.ends += chapter.ends
        whole.owners += chapter.owners
        whole.blocks |= chapter.blocks
        whole.origins += chapter.origins
        whole.turns += chapter.turns
        whole.who = chapter.who or whole.who
        whole.prefix = chapter.prefix
    return whole


def follow(rail: Rail, entries: Iterable[Entry]) -> Chapter:
    """Feed a rail with the next of its entries."""
    told: list[TurnStep] = []
    turn: Turn | None = None
    for entry in entries:
        step = rail.feed(entry)
        if step is not None and isinstance(entry, Turn):
            turn = entry
            told.append(turn_step(turn, step))
    return chapter(rail, told, turn)


def chapter(rail: Rail, told: list[TurnStep], last: Turn | None) -> Chapter:
    """What came up on a rail since it was made or restored: its turns since then, and the last of these."""
    row, prefix = rail.row, rail.last.prefix
    who = Who(last.session_id, last.rail_id, last.subagent) if last is not None else None
    first_slot, first_cause = len(row.numbers.kept), len(rail.numbers.kept)
    if not first_cause:
        return Chapter(row.parents, row.ends, row.owners, row.blocks, rail.origins, told, who, prefix)
    slots, causes = row.numbers.upto(len(row.ends)), rail.numbers.upto(len(rail.origins))
    return Chapter(
        [slots[parent] for parent in islice(row.parents, first_slot, None)],
        row.ends[first_slot:],
        [causes[owner] for owner in islice(row.owners, first_slot, None)],
        {slots[slot]: block for slot, block in row.blocks.items() if slot >= first_slot},
        rail.origins[first_cause:],
        [msgspec.structs.replace(one, step=_renumbered(one.step, slots, causes)) for one in told],
        who,
        prefix,
    )


def _renumbered(step: Step, slots: Sequence[int], causes: Sequence[int]) -> Step:
    return Step(
        step.bounds,
        slots[step.tip],
        [(rate_class, slots[last], slots[below]) for rate_class, last, below in step.runs],
        [(rate_class, slots[slot], tokens) for rate_class, slot, tokens in step.pieces],
        [(rate_class, causes[owner], tokens) for rate_class, owner, tokens in step.outputs],
        [slots[slot] for slot in step.entered],
        [(causes[owner], failed) for owner, failed in step.calls],
        step.miss,
        step.began,
        step.is_shrunk,
    )


encode: Final = msgspec.msgpack.Encoder().encode
decode: Final = msgspec.msgpack.Decoder(Chapter).decode
