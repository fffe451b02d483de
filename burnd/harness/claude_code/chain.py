"""Where a line stands in the conversation's tree, and what entered the context above a new message."""

from __future__ import annotations

from typing import Final

import msgspec

from burnd.harness.claude_code.lines import Line
from burnd.harness.claude_code.memory import Memory, Spot
from burnd.harness.claude_code.state import KEPT_ENTRIES, KEPT_GENERATIONS, Entry, Link, Rail
from burnd.records import Block
from burnd.records.content import MAIN

_LONGEST_CHAIN: Final = 1024


def spot_of(memory: Memory, line: Line, ts: str, offset: int) -> Spot:
    """Find a line's rail and the link above it.

    A parent that is not in this file is normal: the line then follows its rail's last line, and so does every
    other line that names the same missing parent. So does one that does not say what it follows: Claude Code always
    does, but there are tools that write less.
    """
    above = None if line.parent_uuid is msgspec.UNSET else line.parent_uuid
    parent = memory.link(above) if above is not None else None
    rail = memory.rail(_rail_id(memory, line, parent))
    if line.parent_uuid is msgspec.UNSET or (parent is not None and parent.rail != rail.id):
        parent = memory.link(rail.last) if rail.last is not None else None
    elif parent is None and above is not None:
        parent = memory.assume(above, rail, offset)
    return Spot(line, rail, parent, ts, offset, line.uuid or name_by_place(rail.id, offset))


def name_by_place(rail_id: str, offset: int) -> str:
    """A name for a line without a uuid, which no other line of its session has: its agents have files of their own."""
    return f"@{offset}" if rail_id == MAIN else f"{rail_id}@{offset}"


def _rail_id(memory: Memory, line: Line, parent: Link | None) -> str:
    if memory.place.rail_id is not None:
        return memory.place.rail_id
    if not line.is_sidechain:
        return MAIN
    if parent is not None and parent.rail != MAIN:
        return parent.rail
    if parent is None and line.parent_uuid is not None:
        return _newest_sidechain(memory) or line.uuid or MAIN
    return line.uuid or MAIN


def _newest_sidechain(memory: Memory) -> str | None:
    return next((rail for rail in reversed(memory.state.rails) if rail != MAIN), None)


def original_of(memory: Memory, spot: Spot, blocks: tuple[Block, ...], said: str | None) -> Link | None:
    """The line that this one says again under another uuid: the same result of a call, or the same text at its time."""
    for entry in spot.rail.recent:
        is_same = entry.blocks == blocks if said is None else entry.said == said
        if is_same and entry.uuid != spot.name:
            return memory.link(entry.uuid)
    return None


def add_entry(
    spot: Spot,
    blocks: tuple[Block, ...],
    answers: tuple[str, ...] = (),
    *,
    hangs: bool = False,
    said: str | None = None,
) -> None:
    """Remember what may enter the context of the rail's next message."""
    if not blocks:
        return
    rail, parent = spot.rail, spot.parent.uuid if spot.parent is not None else None
    rail.recent.append(Entry(spot.name, parent, spot.offset, rail.next_index, blocks, answers, hangs, said))
    if len(rail.recent) > KEPT_ENTRIES:
        del rail.recent[0]


def entered(memory: Memory, rail: Rail, parent: Link | None) -> tuple[Block, ...]:
    """The blocks between a new message and the message above it, in file order.

    These are the entries on the chain itself, the results that answer the same message off the chain (parallel
    calls fork it), and attachments below any of them. An abandoned branch is on no such path.
    """
    chain = _chain(memory, parent)
    found = [(link.offset, link.blocks) for link in chain.values() if link.blocks]
    included = set(chain)
    turn = parent.turn if parent is not None else None
    for entry in rail.recent:
        if entry.uuid in included:
            continue
        if turn in entry.answers or (entry.hangs and entry.parent in included):
            included.add(entry.uuid)
            found.append((entry.offset, entry.blocks))
    found.sort(key=_offset)
    return tuple([block for _, blocks in found for block in blocks])


def _chain(memory: Memory, link: Link | None) -> dict[str, Link]:
    chain: dict[str, Link] = {}
    while link is not None and not link.said and link.uuid not in chain and len(chain) < _LONGEST_CHAIN:
        chain[link.uuid] = link
        link = memory.link(link.parent) if link.parent is not None else None
    return chain


def _offset(found: tuple[int, tuple[Block, ...]]) -> int:
    return found[0]


def begin_generation(memory: Memory, rail: Rail, message_id: str) -> int:
    """Count a new message on the rail and forget the entries that no later one can reach; gives its number."""
    place = rail.next_index
    rail.next_index += 1
    oldest = place - KEPT_GENERATIONS
    if rail.recent and rail.recent[0].generation < oldest:
        rail.recent = [entry for entry in rail.recent if entry.generation >= oldest]
    return _numbered(memory, rail, message_id, place)


def _numbered(memory: Memory, rail: Rail, message_id: str, place: int) -> int:
    """A message's number: its place in the file, unless some were read that the file does not hold any more.

    Then what was read before keeps its number, and what is new comes after all that ever stood there.
    """
    if not rail.known:
        return place
    given = memory.lookups.number(memory.session_id, rail.id, message_id)
    counted = memory.state.counted.get(rail.id, 0) if given is None else given
    rail.ahead = max(rail.ahead, counted - place)
    return place + rail.ahead if given is None else given
