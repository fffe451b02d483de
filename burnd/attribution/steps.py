"""What a rail remembers and tells, message by message: where it stood, whose tokens are, what a turn was billed."""

from __future__ import annotations

from typing import Final

import msgspec

from burnd.attribution.blocks import Claim, Group, Kind, Output
from burnd.attribution.context import ROOT, Bounds, Piece, Run
from burnd.attribution.misses import Miss
from burnd.records import Turn

FIRST_CREDIT: Final = 4096


class Origin(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """What a cause is and where on the rail it began."""

    kind: Kind
    tool: str | None = None
    target: str | None = None
    call_id: str | None = None
    turn_index: int = 0
    message_id: str = ""
    is_error: bool | None = None  # of a call, where that is known

    @property
    def group(self) -> Group:
        return Group(self.kind, self.tool, self.target)


class Node(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """Where the rail stood after a message: enough to go on from it, whatever was fed since.

    `tip` ends the row that was billed last, `model`, `ts` and `for_an_hour` are that turn's, and `pending` are the
    blocks that stand behind it with no size yet. `prefix` is how large the rail's prefix was found to be, `linked`
    whether its turns tell their parents, `compacted` for how many more turns a compaction that was told of may show,
    `credit` how many slots may be written anew.
    """

    n: int = 0
    tip: int = ROOT
    pending: tuple[Claim, ...] = ()
    turn_index: int = -1
    ts: str = ""
    model: str = ""
    for_an_hour: bool = False
    cached: bool = False
    prefix: int = 0
    linked: bool = False
    compacted: int = 0
    credit: int = FIRST_CREDIT


class Made(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """Who owns a call, and which message of the rail made it. An id that is used again is another call."""

    owner: int
    n: int


class Ground(msgspec.Struct, frozen=True, gc=False):
    """What a message stands on: the message above it, the row it goes on from (`ROOT`: none), what has no size yet."""

    node: Node
    tip: int
    pending: tuple[Claim, ...]
    compacted: bool = False


class Step(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """What one turn was billed for.

    `runs` and `pieces` are its context along the row, in whole slots and in parts (see `Row.lay`), and `tip` is the
    row's last slot; `outputs` is what it said. `entered` are the slots whose block is new, `calls` the owners of its
    calls, and whether each failed. `is_shrunk` says that of what stood on the row something went, and only what was
    read is sure to be there still.
    """

    bounds: Bounds
    tip: int
    runs: list[Run]
    pieces: list[Piece]
    outputs: list[Output]
    entered: list[int]
    calls: list[tuple[int, bool]]
    miss: Miss | None
    began: bool
    is_shrunk: bool = False


class TurnStep(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """Which turn a step is of, when it was, and what decides its price; `counts` is whether it had any usage."""

    step: Step
    source: str
    message_id: str
    turn_index: int
    ts: str
    model: str
    provider: str | None
    speed: str | None
    counts: bool


def turn_step(turn: Turn, step: Step) -> TurnStep:
    return TurnStep(
        step,
        turn.source,
        turn.message_id,
        turn.turn_index,
        turn.ts,
        turn.model,
        turn.provider,
        turn.speed,
        turn.quality != "empty",
    )
