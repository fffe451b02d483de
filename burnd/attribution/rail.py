"""Follows a rail turn by turn: the row that a turn continues, new blocks, and the tokens billed for each block."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from operator import attrgetter
from typing import Final

import msgspec

from burnd.attribution.misses import LEAST_TOKENS, Circumstances, Miss, PromptPrint, miss_of, prompt_print
from burnd.attribution.rates import OUTPUT, REASONING, SEARCHES
from burnd.attribution.row import (
    ENTERED_KINDS,
    ESTIMATED,
    EXACT,
    INSTRUCTIONS,
    OTHER,
    PREFIX,
    RESULT,
    ROOT,
    THINKING,
    THOUGHT,
    UNEXPLAINED,
    Bounds,
    CauseGroup,
    CauseKind,
    Output,
    Piece,
    Placement,
    Row,
    Run,
    SizeClaim,
    TurnBill,
    begin,
    expected_tokens,
    extend,
    inherited_tokens,
    is_search,
    output_shares,
    portions,
)
from burnd.records import Block, Compaction, Copy, Turn

FIRST_CREDIT: Final = 4096


class CauseOrigin(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """Kind and target of a cause, and the turn in which it began."""

    kind: CauseKind
    tool: str | None = None
    target: str | None = None
    call_id: str | None = None
    turn_index: int = 0
    message_id: str = ""
    is_error: bool | None = None  # if known

    @property
    def group(self) -> CauseGroup:
        return CauseGroup(self.kind, self.tool, self.target)


class Node(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """The state of the rail after a message, from which any later message can continue.

    `tip` is the last slot of the row that was billed last; `model`, `ts` and `for_an_hour` are of that turn. `pending`
    are later blocks without a size. `linked`: turns have parents. `compacted` counts the turns in which a recorded
    compaction may still take effect, `credit` the slots that may be rewritten.
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


class Base(msgspec.Struct, frozen=True, gc=False):
    """What a message continues. `tip` is `ROOT` for a new row."""

    node: Node
    tip: int
    pending: tuple[SizeClaim, ...]
    compacted: bool = False


class Step(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """The bill of one turn.

    `runs` and `pieces` are its context (see `Row.lay`), `entered` the slots of new blocks, `calls` the owners of its
    calls and whether each failed. `is_shrunk`: blocks left the row.
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

# in messages: how far a rewind can go back, and a result be behind its call
REACH: Final = 256
_MOST_NODES: Final = 4 * REACH
_CREDIT_A_TURN: Final = 64
_MOST_PENDING: Final = 256
# A compaction may be logged before the turn that writes its summary.
_COMPACTION_TURNS: Final = 2

_PREFIX_OWNER: Final = 0
_INHERITED_OWNER: Final = 1
_UNEXPLAINED_OWNER: Final = 2
_PERMANENT: Final[tuple[CauseKind, ...]] = ("prefix", "inherited", "unexplained")

_RANKS: Final[dict[CauseKind, int]] = {
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
    """The state of one rail, updated by its entries in order (`in_order`).

    A turn costs a few bisections and its own blocks, however long its row is. Rewriting a row uses up credit, which
    every turn adds to; without credit the row is cut at its end instead.
    """

    def __init__(self) -> None:
        self.row = Row()
        self.origins = [CauseOrigin(kind) for kind in _PERMANENT]
        self.order: list[tuple[str, Node]] = []
        self.nodes: dict[str, Node] = {}
        # by id: the cause, and the number of the message
        self.calls: dict[str, tuple[int, int]] = {}
        self.last = Node()
        self._turn_index, self._message_id = 0, ""
        self._own: dict[CauseKind, int] = {}

    def feed(self, entry: RailEntry) -> Step | None:
        """Only turns have a bill; other entries change the state."""
        if isinstance(entry, Turn):
            return self._feed_turn(entry)
        if isinstance(entry, Copy):
            # all messages of the session that this one was forked from are one cause
            base, weight = self._base(entry), inherited_tokens(entry)
            pending = base.pending
            if pending and pending[-1][0] == _INHERITED_OWNER:
                weight += pending[-1][1]
                pending = pending[:-1]
            pending = (*pending, (_INHERITED_OWNER, weight, ESTIMATED))
            self._add_node(entry.message_id, self._unbilled(entry, base, pending))
        elif self.order:
            message_id, node = self.order.pop()
            self._add_node(message_id, msgspec.structs.replace(node, compacted=_COMPACTION_TURNS))
        return None

    def _feed_turn(self, turn: Turn) -> Step:
        self._turn_index, self._message_id, self._own = turn.turn_index, turn.message_id, {}
        base, row, last = self._base(turn), self.row, self.last
        begins = base.tip == ROOT
        claims = [*base.pending, *self._claim_entered(turn.entered, begins=begins)]
        calls = [
            (self._begin("call", call.name, call.target, call.id, call.is_error), call.is_error is True)
            for call in turn.tool_calls
        ]
        outputs, output_claims = self._claim_output(turn)
        bounds = Bounds.of(turn.usage)
        if not bounds.end:
            pending = [*claims, *output_claims]
            if len(pending) > _MOST_PENDING:
                old = sum(expected for _, expected, _ in pending[:-_MOST_PENDING])
                pending = [(_UNEXPLAINED_OWNER, old, ESTIMATED), *pending[-_MOST_PENDING:]]
            self._add_node(turn.message_id, self._unbilled(turn, base, tuple(pending)))
            return Step(bounds, ROOT, [], [], outputs, [], calls, None, False)
        switched = base.node.model not in ("", turn.model)
        if begins:
            first_slot = row.path[1:2]
            row.go(ROOT)
            owner, slot = _PREFIX_OWNER, None
            if not self.order and turn.turn_index > 0:
                owner = _INHERITED_OWNER  # messages before this log look like a prefix
            elif first_slot and row.owners[first_slot[0]] == _PREFIX_OWNER:
                slot = first_slot[0]
            placement = begin(row, claims, bounds.end, last.prefix, owner, slot, _UNEXPLAINED_OWNER)
        else:
            row.go(base.tip)
            bill = TurnBill(bounds.end, bounds.read, switched, last.credit)
            placement = extend(row, claims, bill, self._ranks, _UNEXPLAINED_OWNER)
        runs, pieces = row.lay(bounds)
        miss = None
        if placement.before - bounds.read >= LEAST_TOKENS and last.cached and turn.turn_index != base.node.turn_index:
            miss = self._miss(turn, base, placement, bounds, switched=switched)
        entered = row.path[placement.first_new :]
        self._add_node(turn.message_id, self._billed(turn, base, tuple(output_claims), placement.rewritten))
        return Step(bounds, row.path[-1], runs, pieces, outputs, entered, calls, miss, begins, placement.is_shrunk)

    def _base(self, entry: Turn | Copy) -> Base:
        last, parent = self.last, entry.parent
        node = last if parent is None else self.nodes.get(parent, last)
        if node.n <= last.n - REACH:
            node = last
        for block in entry.entered:
            if block.kind == "summary":
                return Base(node, ROOT, (), compacted=True)
        usage = entry.usage if isinstance(entry, Turn) else None
        # A turn without a parent begins a row, unless it read more from the cache than a new row could have there.
        if parent is None and last.linked and (usage is None or usage.cache_read < last.prefix + LEAST_TOKENS):
            return Base(node, ROOT, (), compacted=last.compacted > 0)
        if last.compacted and usage is not None and 0 < usage.context < self.row.ends[node.tip]:
            # Without a summary block, the summary is the answer before the compaction.
            answers = [claim for claim in node.pending if self.origins[claim[0]].kind == "answer"]
            summary = tuple((self._owner("summary"), expected, precision) for _, expected, precision in answers)
            return Base(node, ROOT, summary, compacted=True)
        return Base(node, node.tip, node.pending)

    def _claim_entered(self, blocks: Sequence[Block], *, begins: bool) -> list[SizeClaim]:
        """A block of a call out of reach is a reminder. Instruction files that begin a row are in its prefix."""
        claims = []
        for block in blocks:
            kind, call_id = block.kind, block.call_id
            if begins and kind == INSTRUCTIONS:
                continue
            if call_id is not None and (kind != "reminder" or self._reached(call_id) is not None):
                owner = self._call_owner(call_id)
            else:
                owner = self._owner(ENTERED_KINDS.get(kind, "reminder"))
            claims.append((owner, expected_tokens(block), ESTIMATED))
        return claims

    def _claim_output(self, turn: Turn) -> tuple[list[Output], list[SizeClaim]]:
        """The owners of a turn's output and searches, and the claims of its blocks in later contexts."""
        usage, final = turn.usage, turn.quality == "final"
        made: Sequence[Block] = turn.made or [Block(kind="call", bytes=0, call_id=call.id) for call in turn.tool_calls]
        results: Sequence[Block] = ()
        blocks = made
        for block in made:
            if block.kind == "result":
                results = [block for block in made if block.kind == "result"]
                blocks = [block for block in made if block.kind != "result"]
                break
        outputs: list[Output] = []
        claims: list[SizeClaim] = []
        if blocks:
            for block, share in zip(blocks, output_shares(blocks, usage), strict=True):
                precision = EXACT if final else ESTIMATED
                if block.kind == "call":
                    owner = self._call_owner(block.call_id or "")
                elif block.kind == "thinking":
                    owner, precision = self._owner("thinking"), THOUGHT
                else:
                    owner = self._owner("answer")
                if share:
                    outputs.append((OUTPUT, owner, share))
                claims.append((owner, share if final else max(share, expected_tokens(block)), precision))
        elif usage.output:
            outputs.append((OUTPUT, _UNEXPLAINED_OWNER, usage.output))
            claims.append((_UNEXPLAINED_OWNER, usage.output, EXACT))
        if usage.reasoning:  # billed separately, so its size is exact
            thinking = self._owner("thinking")
            outputs.append((REASONING, thinking, usage.reasoning))
            others = [claim for claim in claims if claim[0] != thinking]
            claims = [(thinking, usage.reasoning, THOUGHT), *others]
        claims += [(self._call_owner(block.call_id or ""), expected_tokens(block), ESTIMATED) for block in results]
        if searches := turn.searches:
            searching = [self._call_owner(call.id) for call in turn.tool_calls if is_search(call.name)]
            searching = searching or [self._owner("answer")]
            shares = portions(searches, [1] * len(searching))
            outputs += [(SEARCHES, owner, share) for owner, share in zip(searching, shares, strict=True) if share]
        return outputs, claims

    def _miss(self, turn: Turn, base: Base, placement: Placement, bounds: Bounds, *, switched: bool) -> Miss:
        node, last, entered = base.node, self.last, turn.entered
        returned = any(block.call_id is not None for block in entered)
        prompted = any(block.kind == "prompt" or (block.kind == "image" and block.call_id is None) for block in entered)
        return miss_of(
            placement.before,
            bounds,
            Circumstances(
                compacted=base.compacted,
                switched=switched,
                rewound=base.tip == ROOT or last.turn_index > node.turn_index,
                rewritten=placement.rewritten > 0,
                for_an_hour=node.for_an_hour,
                earlier=node.ts,
                later=turn.ts,
                prefix=last.prefix,
                waited=returned and not prompted,
                prompt=node.prompt,
                blocks=len(entered) + len(base.pending),
            ),
            turn,
        )

    def _billed(self, turn: Turn, base: Base, pending: tuple[SizeClaim, ...], rewritten: int) -> Node:
        last, row, usage = self.last, self.row, turn.usage
        written = usage.cache_create_5m + usage.cache_create_1h
        prefix, compacted = last.prefix, last.compacted
        if base.tip == ROOT and row.owners[row.path[1]] == _PREFIX_OWNER:
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
        del self.order[:-REACH]
        self.nodes = dict(self.order)
        oldest = self.last.n - REACH
        self.calls = {call_id: call for call_id, call in self.calls.items() if call[1] > oldest}

    def _ranks(self, owners: Sequence[int]) -> list[int]:
        origins = self.origins
        return [_RANKS[origins[owner].kind] for owner in owners]

    def _owner(self, kind: CauseKind) -> int:
        owner = self._own.get(kind)
        if owner is None:
            owner = self._own[kind] = self._begin(kind)
        return owner

    def _reached(self, call_id: str) -> int | None:
        """None if the call is unknown or out of reach."""
        call = self.calls.get(call_id)
        return None if call is None or call[1] <= self.last.n - REACH else call[0]

    def _call_owner(self, call_id: str) -> int:
        owner = self._reached(call_id)
        return self._begin("call", call_id=call_id) if owner is None else owner

    def _begin(
        self,
        kind: CauseKind,
        tool: str | None = None,
        target: str | None = None,
        call_id: str | None = None,
        is_error: bool | None = None,
    ) -> int:
        owner = len(self.origins)
        self.origins.append(CauseOrigin(kind, tool, target, call_id, self._turn_index, self._message_id, is_error))
        if call_id is not None:
            self.calls[call_id] = owner, self.last.n + 1
        return owner


def in_order(
    turns: Iterable[Turn], copies: Iterable[Copy] = (), compactions: Iterable[Compaction] = ()
) -> list[RailEntry]:
    messages: list[Turn | Copy] = [*(turn for turn in turns if turn.copy_of is None), *copies]
    messages.sort(key=attrgetter("turn_index", "ts", "message_id", "source"))
    waiting = sorted(compactions, key=lambda one: (one.ts, one.id), reverse=True)
    ordered: list[RailEntry] = []
    for message in messages:
        while waiting and waiting[-1].ts <= message.ts:
            ordered.append(waiting.pop())
        ordered.append(message)
    return ordered


_STATE_VERSION: Final = 5


class _RailState(msgspec.Struct, array_like=True):
    """`distances` are from each slot to its parent, `causes` are numbers of `groups`."""

    version: int
    groups: list[CauseGroup]
    causes: list[int]
    distances: list[int]
    sizes: list[int]
    owners: list[int]
    tip: int
    order: list[tuple[str, Node]]
    calls: dict[str, tuple[int, int]]


_encode: Final = msgspec.msgpack.Encoder().encode
_decoder: Final = msgspec.msgpack.Decoder(_RailState)


def save(rail: Rail) -> bytes:
    """Some 8 bytes per block and 100 per message within reach."""
    rail.drop_old()
    row, order = rail.row, rail.order
    reachable = {ROOT}
    for slot in (row.tip, *(node.tip for _, node in order)):
        while slot not in reachable:
            reachable.add(slot)
            slot = row.parents[slot]
    slots = sorted(reachable)
    needed = {*range(len(_PERMANENT)), *(row.owners[slot] for slot in slots[1:])}
    needed.update(owner for _, node in order for owner, *_ in node.pending)
    needed.update(owner for owner, _ in rail.calls.values())
    causes = sorted(needed)
    groups: dict[CauseGroup, int] = {}
    slot_at = {slot: n for n, slot in enumerate(slots)}
    cause_at = {cause: n for n, cause in enumerate(causes)}
    state = _RailState(
        version=_STATE_VERSION,
        causes=[groups.setdefault(rail.origins[cause].group, len(groups)) for cause in causes],
        groups=list(groups),
        distances=[slot_at[slot] - slot_at[row.parents[slot]] for slot in slots[1:]],
        sizes=[row.size(slot) for slot in slots[1:]],
        owners=[cause_at[row.owners[slot]] for slot in slots[1:]],
        tip=slot_at[row.tip],
        order=[
            (
                message_id,
                msgspec.structs.replace(
                    node,
                    tip=slot_at[node.tip],
                    pending=tuple((cause_at[owner], *size) for owner, *size in node.pending),
                ),
            )
            for message_id, node in order
        ],
        calls={call_id: (cause_at[owner], n) for call_id, (owner, n) in rail.calls.items()},
    )
    return _encode(state)


def restore(data: bytes) -> Rail:
    """Raises ValueError."""
    state = _decoder.decode(data)
    if state.version != _STATE_VERSION:
        raise ValueError(f"rail state has version {state.version}, not {_STATE_VERSION}")
    rail = Rail()
    origins = [CauseOrigin(*group) for group in state.groups]
    rail.origins = [origins[group] for group in state.causes]
    row = rail.row
    for slot, (distance, size, owner) in enumerate(zip(state.distances, state.sizes, state.owners, strict=True), 1):
        row.parents.append(slot - distance)
        row.ends.append(row.ends[slot - distance] + size)
        row.owners.append(owner)
    rail.order = state.order
    rail.nodes = dict(state.order)
    rail.calls = state.calls
    rail.last = state.order[-1][1] if state.order else Node()
    row.go(state.tip)
    return rail
