"""Follows a rail turn by turn: which row a turn continues, which blocks entered, and which tokens they were billed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from operator import attrgetter
from typing import Final

import msgspec

from burnd.attribution.blocks import (
    ESTIMATED,
    Group,
    Kind,
    Output,
    SizeClaim,
    entered_claims,
    inherited_tokens,
    made_claims,
    search_outputs,
)
from burnd.attribution.misses import LEAST_TOKENS, Circumstances, Miss, PromptPrint, miss_of, prompt_print
from burnd.attribution.row import (
    OTHER,
    PREFIX,
    RESULT,
    ROOT,
    THINKING,
    UNEXPLAINED,
    Bounds,
    Front,
    Piece,
    Placement,
    Row,
    Run,
    TurnBill,
    begin,
    bounds_of,
    extend,
)
from burnd.records import Block, Compaction, Copy, ToolCall, Turn

FIRST_CREDIT: Final = 4096


class CauseOrigin(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """Kind and target of a cause, and the turn in which it began."""

    kind: Kind
    tool: str | None = None
    target: str | None = None
    call_id: str | None = None
    turn_index: int = 0
    message_id: str = ""
    is_error: bool | None = None  # of a call, if known

    @property
    def group(self) -> Group:
        return Group(self.kind, self.tool, self.target)


class Node(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """The state of the rail after a message, from which any later message can continue.

    `tip` is the last slot of the row that was billed last; `model`, `ts` and `for_an_hour` are of that turn. `pending`
    are the blocks after it, without a size yet. `prefix` is the size of the rail's prefix, `linked` is set if its turns
    have parents, `compacted` is the number of turns in which a recorded compaction may still take effect, and `credit`
    the number of slots that may be rewritten. `prompt` has the hashes of the last request.
    """

    n: int = 0
    tip: int = ROOT
    pending: tuple[SizeClaim, ...] = ()
    turn_index: int = -1
    ts: str = ""
    model: str = ""
    for_an_hour: bool = False
    cached: bool = False
    prefix: int = 0
    linked: bool = False
    compacted: int = 0
    credit: int = FIRST_CREDIT
    prompt: PromptPrint | None = None


class CallOwner(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """The cause of a call, and the number of its message. A repeated id is another call."""

    owner: int
    n: int


class Base(msgspec.Struct, frozen=True, gc=False):
    """The state that a message continues: its parent, the end of its row (`ROOT` for a new row), and pending blocks."""

    node: Node
    tip: int
    pending: tuple[SizeClaim, ...]
    compacted: bool = False


class Step(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """The bill of one turn.

    `runs` and `pieces` are its context along the row (see `Row.lay`), `tip` is the last slot of the row, `outputs` is
    its output. `entered` are the slots of new blocks, `calls` the owners of its calls, and whether each failed.
    `is_shrunk` is set if blocks left the row; then only the tokens that were read are certainly unchanged.
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


RailEntry = Turn | Copy | Compaction

# The most messages that a rewind can go back, or a result be behind its call. Beyond, a turn follows the one before it.
REACH: Final = 256
_MOST_NODES: Final = 4 * REACH
_CREDIT_A_TURN: Final = 64
_MOST_PENDING: Final = 256
# A compaction may be logged before the turn that writes its summary; then the turn after that begins a new row.
_COMPACTION_TURNS: Final = 2

PREFIX_OWNER: Final = 0
INHERITED_OWNER: Final = 1
UNEXPLAINED_OWNER: Final = 2
_PERMANENT: Final[tuple[Kind, ...]] = ("prefix", "inherited", "unexplained")

_RANKS: Final[dict[Kind, int]] = {
    "prefix": PREFIX,
    "prompt": OTHER,
    "answer": OTHER,
    "thinking": THINKING,
    "call": RESULT,
    "reminder": OTHER,
    "attachment": RESULT,
    "summary": OTHER,
    "inherited": RESULT,
    "unexplained": UNEXPLAINED,
}


class Rail:
    """The state of one rail, updated by its turns, copies and compactions in order (`in_order`).

    A turn costs a few bisections and its own blocks, however long its row is. Rewriting a row from which blocks left
    uses up credit, which every turn adds to; without credit the row is cut at its end instead.
    """

    def __init__(self) -> None:
        self.row = Row()
        self.origins = [CauseOrigin(kind) for kind in _PERMANENT]
        self.order: list[tuple[str, Node]] = []
        self.nodes: dict[str, Node] = {}
        self.calls: dict[str, CallOwner] = {}
        self.last = Node()
        self._turn_index, self._message_id = 0, ""
        self._own: dict[Kind, int] = {}

    def feed(self, entry: RailEntry) -> Step | None:
        """Adds the next entry. Only turns have a bill; copies and compactions change the state."""
        if isinstance(entry, Turn):
            return self._feed_turn(entry)
        if isinstance(entry, Copy):
            self._feed_copy(entry)
        elif self.order:
            message_id, node = self.order.pop()
            self._add_node(message_id, msgspec.structs.replace(node, compacted=_COMPACTION_TURNS))
        return None

    def _feed_turn(self, turn: Turn) -> Step:
        self._turn_index, self._message_id, self._own = turn.turn_index, turn.message_id, {}
        base = self._base(turn)
        begins = base.tip == ROOT
        claims = [*base.pending, *entered_claims(turn.entered, self, begins=begins)]
        calls = [(self._begin_call(call.id, call), call.is_error is True) for call in turn.tool_calls]
        outputs, made = made_claims(turn, self, UNEXPLAINED_OWNER)
        outputs += search_outputs(turn, self)
        bounds = bounds_of(turn.usage)
        if not bounds.end:
            self._add_node(turn.message_id, self._unbilled(turn, base, _limited([*claims, *made])))
            return Step(bounds, ROOT, [], [], outputs, [], calls, None, False)
        placement = self._begin_row(turn, claims, bounds) if begins else self._extend_row(turn, base, claims, bounds)
        runs, pieces = self.row.lay(bounds)
        missed = placement.before - bounds.read >= LEAST_TOKENS and self.last.cached
        miss = self._miss(turn, base, placement, bounds) if missed else None
        entered = self.row.path[placement.first_new :]
        self._add_node(turn.message_id, self._billed(turn, base, tuple(made), placement.rewritten))
        return Step(bounds, self.row.path[-1], runs, pieces, outputs, entered, calls, miss, begins, placement.is_shrunk)

    def _feed_copy(self, copy: Copy) -> None:
        """Adds a message of the session that this one was forked from; all such messages are one cause."""
        self._turn_index, self._message_id, self._own = copy.turn_index, copy.message_id, {}
        base = self._base(copy)
        weight = inherited_tokens(copy)
        pending = base.pending
        if pending and pending[-1].owner == INHERITED_OWNER:
            weight += pending[-1].expected
            pending = pending[:-1]
        claim = SizeClaim(INHERITED_OWNER, weight, ESTIMATED)
        self._add_node(copy.message_id, self._unbilled(copy, base, (*pending, claim)))

    def _base(self, entry: Turn | Copy) -> Base:
        """Finds the state that a message continues: its parent, the message before it, or a new row."""
        last, parent = self.last, entry.parent
        node = last if parent is None else self.nodes.get(parent, last)
        if node.n <= last.n - REACH:
            node = last
        if _has_summary(entry.entered):
            return Base(node, ROOT, (), compacted=True)
        if parent is None and last.linked and not self._continues(entry):
            return Base(node, ROOT, (), compacted=last.compacted > 0)
        if last.compacted and isinstance(entry, Turn) and 0 < entry.usage.context < self.row.ends[node.tip]:
            return Base(node, ROOT, self._summary(node), compacted=True)
        return Base(node, node.tip, node.pending)

    def _continues(self, entry: Turn | Copy) -> bool:
        """Whether more was read from the cache than a new row could have there."""
        return isinstance(entry, Turn) and entry.usage.cache_read >= self.last.prefix + LEAST_TOKENS

    def _summary(self, node: Node) -> tuple[SizeClaim, ...]:
        """Without a summary block, the summary is the answer before the compaction."""
        answers = [claim for claim in node.pending if self.origins[claim.owner].kind == "answer"]
        return tuple(SizeClaim(self.owner("summary"), claim.expected, claim.precision) for claim in answers)

    def _extend_row(self, turn: Turn, base: Base, claims: Sequence[SizeClaim], bounds: Bounds) -> Placement:
        row = self.row
        if row.path[-1] != base.tip:
            row.go(base.tip)
        bill = TurnBill(bounds.end, bounds.read, self._switched(turn, base.node), self.last.credit)
        return extend(row, claims, bill, self._ranks, UNEXPLAINED_OWNER)

    def _begin_row(self, turn: Turn, claims: Sequence[SizeClaim], bounds: Bounds) -> Placement:
        row = self.row
        first_slot = row.path[1:2]
        row.go(ROOT)
        if not self.order and turn.turn_index > 0:
            front = Front(INHERITED_OWNER)  # messages before this log are not distinguishable from the prefix
        elif first_slot and row.owners[first_slot[0]] == PREFIX_OWNER:
            front = Front(PREFIX_OWNER, first_slot[0])
        else:
            front = Front(PREFIX_OWNER)
        return begin(row, claims, bounds.end, self.last.prefix, front, UNEXPLAINED_OWNER)

    def _miss(self, turn: Turn, base: Base, placement: Placement, bounds: Bounds) -> Miss | None:
        node, last = base.node, self.last
        if turn.turn_index == node.turn_index:
            return None
        return miss_of(
            placement.before,
            bounds,
            Circumstances(
                compacted=base.compacted,
                switched=self._switched(turn, node),
                rewound=base.tip == ROOT or last.turn_index > node.turn_index,
                rewritten=placement.rewritten > 0,
                for_an_hour=node.for_an_hour,
                earlier=node.ts,
                later=turn.ts,
                prefix=last.prefix,
                waited=_waited(turn.entered),
                prompt=node.prompt,
                blocks=len(turn.entered) + len(base.pending),
            ),
            turn,
        )

    @staticmethod
    def _switched(turn: Turn, node: Node) -> bool:
        return node.model != "" and node.model != turn.model

    def _billed(self, turn: Turn, base: Base, pending: tuple[SizeClaim, ...], rewritten: int) -> Node:
        """The state after a turn with a billed context."""
        last, row, usage = self.last, self.row, turn.usage
        written = usage.cache_create_5m + usage.cache_create_1h
        prefix, compacted = last.prefix, last.compacted
        if base.tip == ROOT and row.owners[row.path[1]] == PREFIX_OWNER:
            prefix = row.path_ends[1]
        return Node(
            last.n + 1,
            row.path[-1],
            pending,
            turn.turn_index,
            turn.ts,
            turn.model,
            not usage.cache_create_5m if written else base.node.for_an_hour,
            last.cached or written > 0 or usage.cache_read > 0,
            prefix,
            last.linked or turn.parent is not None,
            compacted - 1 if compacted and not base.compacted else 0,
            last.credit - rewritten + _CREDIT_A_TURN,
            prompt_print(turn),
        )

    def _unbilled(self, entry: Turn | Copy, base: Base, pending: tuple[SizeClaim, ...]) -> Node:
        """The state after any other message: as before, with more pending blocks."""
        last = self.last
        return msgspec.structs.replace(
            base.node,
            n=last.n + 1,
            tip=base.tip,
            pending=pending,
            turn_index=entry.turn_index,
            cached=last.cached,
            prefix=last.prefix,
            linked=last.linked or entry.parent is not None,
            compacted=0 if base.compacted else last.compacted,
            credit=last.credit + _CREDIT_A_TURN,
        )

    def _add_node(self, message_id: str, node: Node) -> None:
        self.nodes[message_id] = node
        self.order.append((message_id, node))
        self.last = node
        if len(self.order) >= _MOST_NODES:
            self.drop_old()

    def drop_old(self) -> None:
        """Drops messages and calls that are out of reach."""
        del self.order[:-REACH]
        self.nodes = dict(self.order)
        oldest = self.last.n - REACH
        self.calls = {call_id: call for call_id, call in self.calls.items() if call.n > oldest}

    def _ranks(self, owners: Sequence[int]) -> list[int]:
        origins = self.origins
        return [_RANKS[origins[owner].kind] for owner in owners]

    def owner(self, kind: Kind) -> int:
        """The cause of a kind that the current message begins."""
        owner = self._own.get(kind)
        if owner is None:
            owner = self._own[kind] = self._begin(kind)
        return owner

    def call_owner(self, call_id: str) -> int:
        call = self.calls.get(call_id)
        return call.owner if call is not None and call.n > self.last.n - REACH else self._begin_call(call_id)

    def knows_call(self, call_id: str) -> bool:
        call = self.calls.get(call_id)
        return call is not None and call.n > self.last.n - REACH

    def _begin_call(self, call_id: str, call: ToolCall | None = None) -> int:
        if call is None:
            owner = self._begin("call", None, None, call_id)
        else:
            owner = self._begin("call", call.name, call.target, call_id, call.is_error)
        self.calls[call_id] = CallOwner(owner, self.last.n + 1)
        return owner

    def _begin(
        self,
        kind: Kind,
        tool: str | None = None,
        target: str | None = None,
        call_id: str | None = None,
        is_error: bool | None = None,
    ) -> int:
        owner = len(self.origins)
        self.origins.append(CauseOrigin(kind, tool, target, call_id, self._turn_index, self._message_id, is_error))
        return owner


def _limited(claims: list[SizeClaim]) -> tuple[SizeClaim, ...]:
    """The claims, with those beyond the limit as one unexplained claim."""
    if len(claims) > _MOST_PENDING:
        old = sum(claim.expected for claim in claims[:-_MOST_PENDING])
        claims = [SizeClaim(UNEXPLAINED_OWNER, old, ESTIMATED), *claims[-_MOST_PENDING:]]
    return tuple(claims)


def _waited(blocks: Sequence[Block]) -> bool:
    """Whether calls returned without a prompt: then the time passed in the calls, not at the user."""
    return any(block.call_id is not None for block in blocks) and all(
        block.kind != "prompt" and (block.kind != "image" or block.call_id is not None) for block in blocks
    )


def _has_summary(blocks: Sequence[Block]) -> bool:
    for block in blocks:  # noqa: SIM110 - runs for every turn, and any() takes three times as long
        if block.kind == "summary":
            return True
    return False


def in_order(
    turns: Iterable[Turn], copies: Iterable[Copy] = (), compactions: Iterable[Compaction] = ()
) -> list[RailEntry]:
    """The entries of a rail in order. Turns that turned out to be copies are left out."""
    messages: list[Turn | Copy] = [*(turn for turn in turns if turn.copy_of is None), *copies]
    messages.sort(key=attrgetter("turn_index", "ts", "message_id", "source"))
    waiting = sorted(compactions, key=lambda one: (one.ts, one.id), reverse=True)
    ordered: list[RailEntry] = []
    for message in messages:
        while waiting and waiting[-1].ts <= message.ts:
            ordered.append(waiting.pop())
        ordered.append(message)
    return ordered
