"""What a rail remembers and tells, message by message: where it stood, whose tokens are, what a turn was billed."""

from __future__ import annotations

from typing import Final

import msgspec

from burnd.attribution.blocks import Claim, Group, Kind, Output
from burnd.attribution.context import ROOT, Bounds, Piece, Run
from burnd.attribution.misses import Miss

FIRST_CREDIT: Final = 4096


class Origin(msgspec.Struct, frozen=True, gc=False):
    """What a cause is and where on the rail it began."""

    kind: Kind
    tool: str | None = None
    target: str | None = None
    call_id: str | None = None
    turn_index: int = 0
    message_id: str = ""

    @property
    def group(self) -> Group:
        return Group(self.kind, self.tool, self.target)


class Node(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """Where the rail stood after a message: enough to go on from it, whatever was fed since.

    `tip` ends the row that was billed last, `model`, `ts` and `for_an_hour` are that turn's, and `pending` are the
    blocks that stand behind it with no size yet. `prefix` is how large the rail's prefix was found to be, `linked`
    whether its turns tell their parents, `compacted` for how many more turns a compaction that was told of may show,
    `credit` how many slots may be written anew. `slots` and `owners` count those there were.
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
    slots: int = 1
    owners: int = 3


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


class Step(msgspec.Struct, frozen=True, gc=False):
    """What one turn was billed for.

    `runs` and `pieces` are its context along the row, in whole slots and in parts (see `Row.lay`); `outputs` is what
    it said. `entered` are the slots whose block is new, `calls` the owners of its calls, and whether each failed.
    `is_shrunk` says that of what stood on the row something went, and only what was read is sure to be there still.
    """

    bounds: Bounds
    runs: list[Run]
    pieces: list[Piece]
    outputs: list[Output]
    entered: list[int]
    calls: list[tuple[int, bool]]
    miss: Miss | None
    began: bool
    is_shrunk: bool = False
