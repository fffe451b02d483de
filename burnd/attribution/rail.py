"""Follows one rail turn by turn: the row that each turn continues, what entered it, and how its bill lies along it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from operator import attrgetter
from typing import Final, Literal, NamedTuple

import msgspec

from burnd.attribution.blocks import (
    LOOSE,
    Claim,
    Group,
    Kind,
    Output,
    entered_claims,
    inherited_tokens,
    made_claims,
    search_outputs,
)
from burnd.attribution.rates import CLASSES, Spent
from burnd.attribution.row import (
    OTHER,
    PREFIX,
    RESULT,
    ROOT,
    THINKING,
    UNEXPLAINED,
    Bill,
    Bounds,
    Front,
    Piece,
    Row,
    Run,
    Seated,
    begin,
    bounds_of,
    extend,
)
from burnd.records import Block, Compaction, Copy, ToolCall, Turn
from burnd.records.times import HOUR_MS, index_ms

Reason = Literal["compaction", "model-switch", "pause", "slow-call", "rewind", "edited", "prefix", "unknown"]

# Less than providers cache at all. The last few tokens of a turn are seldom cached and always paid for again.
LEAST_TOKENS: Final = 1024
_FIVE_MINUTES_MS: Final = 300_000


class Miss(NamedTuple):
    """Tokens that were paid in full again, by what they were paid as, and the likely reason."""

    reason: Reason
    spent: Spent


class Circumstances(NamedTuple):
    """What is known of a turn and of the one before it that may explain a miss. `earlier` may be unknown, and empty.

    `waited` says that it was a call that came back in between, and that nobody said anything.
    """

    compacted: bool
    switched: bool
    rewound: bool
    rewritten: bool
    for_an_hour: bool
    earlier: str
    later: str
    prefix: int
    waited: bool


def miss_of(before: int, bounds: Bounds, found: Circumstances) -> Miss:
    """The miss of a turn whose row had `before` tokens that were in the turn before, too."""
    again = [0] * CLASSES
    for rate_class, tokens in bounds.of(bounds.read, before):
        again[rate_class] = tokens
    return Miss(_reason(bounds.read, found), Spent(*again))


def _reason(read: int, found: Circumstances) -> Reason:
    if found.compacted:
        return "compaction"
    if found.switched:
        return "model-switch"
    lives = HOUR_MS if found.for_an_hour else _FIVE_MINUTES_MS
    if found.earlier and index_ms(found.later) - index_ms(found.earlier) > lives:
        return "slow-call" if found.waited else "pause"
    if found.rewound:
        return "rewind"
    if read < found.prefix:
        return "prefix"
    return "edited" if found.rewritten else "unknown"


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


Entry = Turn | Copy | Compaction

# How many messages back a rewind may lead, or a result find its call. Beyond, a turn follows the one before it.
REACH: Final = 256
_FORGOTTEN_AT: Final = 4 * REACH
_CREDIT_A_TURN: Final = 64
_MOST_PENDING: Final = 256
# A compaction may be told of before the turn that writes its summary: then it is the turn after that begins anew.
_TOLD_FOR: Final = 2

PREFIX_OWNER: Final = 0
INHERITED_OWNER: Final = 1
UNEXPLAINED_OWNER: Final = 2
_STANDING: Final[tuple[Kind, ...]] = ("prefix", "inherited", "unexplained")

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
    """Feeds on the turns, copies and compactions of one rail, in order (`in_order`).

    A turn costs a few bisections and its own blocks, however long its row is. A row that must be written anew,
    because something in it went, is paid for from a credit that every turn adds to; when that is used up, what goes
    is cut from the end.
    """

    def __init__(self) -> None:
        self.row = Row()
        self.origins = [Origin(kind) for kind in _STANDING]
        self.order: list[tuple[str, Node]] = []
        self.nodes: dict[str, Node] = {}
        self.calls: dict[str, Made] = {}
        self.last = Node()
        self._turn_index, self._message_id = 0, ""
        self._own: dict[Kind, int] = {}

    def feed(self, entry: Entry) -> Step | None:
        """Take the next entry. Only turns are billed; copies and compactions change what they stand on."""
        if isinstance(entry, Turn):
            return self._feed_turn(entry)
        if isinstance(entry, Copy):
            self._feed_copy(entry)
        elif self.order:
            message_id, node = self.order.pop()
            self._remember(message_id, msgspec.structs.replace(node, compacted=_TOLD_FOR))
        return None

    def _feed_turn(self, turn: Turn) -> Step:
        self._turn_index, self._message_id, self._own = turn.turn_index, turn.message_id, {}
        ground = self._ground(turn)
        begins = ground.tip == ROOT
        claims = [*ground.pending, *entered_claims(turn.entered, self, begins=begins)]
        calls = [(self._begin_call(call.id, call), call.is_error is True) for call in turn.tool_calls]
        outputs, made = made_claims(turn, self, UNEXPLAINED_OWNER)
        outputs += search_outputs(turn, self)
        bounds = bounds_of(turn.usage)
        if not bounds.end:
            self._remember(turn.message_id, self._unbilled(turn, ground, _limited([*claims, *made])))
            return Step(bounds, ROOT, [], [], outputs, [], calls, None, False)
        seated = self._begin_row(turn, claims, bounds) if begins else self._go_on(turn, ground, claims, bounds)
        runs, pieces = self.row.lay(bounds)
        missed = seated.before - bounds.read >= LEAST_TOKENS and self.last.cached
        miss = self._miss(turn, ground, seated, bounds) if missed else None
        entered = self.row.path[seated.first_new :]
        self._remember(turn.message_id, self._billed(turn, ground, tuple(made), seated.rewritten))
        return Step(bounds, self.row.path[-1], runs, pieces, outputs, entered, calls, miss, begins, seated.is_shrunk)

    def _feed_copy(self, copy: Copy) -> None:
        """A message of a session that this one was forked from: all such history is one cause."""
        self._turn_index, self._message_id, self._own = copy.turn_index, copy.message_id, {}
        ground = self._ground(copy)
        weight = inherited_tokens(copy)
        pending = ground.pending
        if pending and pending[-1].owner == INHERITED_OWNER:
            weight += pending[-1].expected
            pending = pending[:-1]
        claim = Claim(INHERITED_OWNER, weight, LOOSE)
        self._remember(copy.message_id, self._unbilled(copy, ground, (*pending, claim)))

    def _ground(self, entry: Turn | Copy) -> Ground:
        """Find what a message stands on: its parent, the message before it, or a row that begins."""
        last, parent = self.last, entry.parent
        node = last if parent is None else self.nodes.get(parent, last)
        if node.n <= last.n - REACH:
            node = last
        if _has_summary(entry.entered):
            return Ground(node, ROOT, (), compacted=True)
        if parent is None and last.linked and not self._reads_on(entry):
            return Ground(node, ROOT, (), compacted=last.compacted > 0)
        if last.compacted and isinstance(entry, Turn) and 0 < entry.usage.context < self.row.ends[node.tip]:
            return Ground(node, ROOT, self._summary(node), compacted=True)
        return Ground(node, node.tip, node.pending)

    def _reads_on(self, entry: Turn | Copy) -> bool:
        """Whether more came from the cache than a row that begins could have there: then it goes on all the same."""
        return isinstance(entry, Turn) and entry.usage.cache_read >= self.last.prefix + LEAST_TOKENS

    def _summary(self, node: Node) -> tuple[Claim, ...]:
        """Where no block says so, the summary is what the message before the compaction said."""
        said = [claim for claim in node.pending if self.origins[claim.owner].kind == "answer"]
        return tuple(Claim(self.owner("summary"), claim.expected, claim.nature) for claim in said)

    def _go_on(self, turn: Turn, ground: Ground, claims: Sequence[Claim], bounds: Bounds) -> Seated:
        row = self.row
        if row.path[-1] != ground.tip:
            row.go(ground.tip)
        bill = Bill(bounds.end, bounds.read, self._switched(turn, ground.node), self.last.credit)
        return extend(row, claims, bill, self._ranks, UNEXPLAINED_OWNER)

    def _begin_row(self, turn: Turn, claims: Sequence[Claim], bounds: Bounds) -> Seated:
        row = self.row
        stood = row.path[1:2]
        row.go(ROOT)
        if not self.order and turn.turn_index > 0:
            front = Front(INHERITED_OWNER)  # what came before this log began cannot be told from the prefix
        elif stood and row.owners[stood[0]] == PREFIX_OWNER:
            front = Front(PREFIX_OWNER, stood[0])
        else:
            front = Front(PREFIX_OWNER)
        return begin(row, claims, bounds.end, self.last.prefix, front, UNEXPLAINED_OWNER)

    def _miss(self, turn: Turn, ground: Ground, seated: Seated, bounds: Bounds) -> Miss | None:
        node, last = ground.node, self.last
        if turn.turn_index == node.turn_index:
            return None
        return miss_of(
            seated.before,
            bounds,
            Circumstances(
                compacted=ground.compacted,
                switched=self._switched(turn, node),
                rewound=ground.tip == ROOT or last.turn_index > node.turn_index,
                rewritten=seated.rewritten > 0,
                for_an_hour=node.for_an_hour,
                earlier=node.ts,
                later=turn.ts,
                prefix=last.prefix,
                waited=_waited(turn.entered),
            ),
        )

    @staticmethod
    def _switched(turn: Turn, node: Node) -> bool:
        return node.model != "" and node.model != turn.model

    def _billed(self, turn: Turn, ground: Ground, pending: tuple[Claim, ...], rewritten: int) -> Node:
        """Where the rail stands after a turn that tells how large its context was."""
        last, row, usage = self.last, self.row, turn.usage
        written = usage.cache_create_5m + usage.cache_create_1h
        prefix, compacted = last.prefix, last.compacted
        if ground.tip == ROOT and row.owners[row.path[1]] == PREFIX_OWNER:
            prefix = row.path_ends[1]
        return Node(
            last.n + 1,
            row.path[-1],
            pending,
            turn.turn_index,
            turn.ts,
            turn.model,
            not usage.cache_create_5m if written else ground.node.for_an_hour,
            last.cached or written > 0 or usage.cache_read > 0,
            prefix,
            last.linked or turn.parent is not None,
            compacted - 1 if compacted and not ground.compacted else 0,
            last.credit - rewritten + _CREDIT_A_TURN,
        )

    def _unbilled(self, entry: Turn | Copy, ground: Ground, pending: tuple[Claim, ...]) -> Node:
        """Where it stands after any other message: as before it, with more that has no size yet."""
        last = self.last
        return msgspec.structs.replace(
            ground.node,
            n=last.n + 1,
            tip=ground.tip,
            pending=pending,
            turn_index=entry.turn_index,
            cached=last.cached,
            prefix=last.prefix,
            linked=last.linked or entry.parent is not None,
            compacted=0 if ground.compacted else last.compacted,
            credit=last.credit + _CREDIT_A_TURN,
        )

    def _remember(self, message_id: str, node: Node) -> None:
        self.nodes[message_id] = node
        self.order.append((message_id, node))
        self.last = node
        if len(self.order) >= _FORGOTTEN_AT:
            self.forget_old()

    def forget_old(self) -> None:
        """Forget messages and calls that are out of reach."""
        del self.order[:-REACH]
        self.nodes = dict(self.order)
        oldest = self.last.n - REACH
        self.calls = {call_id: made for call_id, made in self.calls.items() if made.n > oldest}

    def _ranks(self, owners: Sequence[int]) -> list[int]:
        origins = self.origins
        return [_RANKS[origins[owner].kind] for owner in owners]

    def owner(self, kind: Kind) -> int:
        """The cause of a kind that the message at hand begins."""
        owner = self._own.get(kind)
        if owner is None:
            owner = self._own[kind] = self._begin(kind)
        return owner

    def call_owner(self, call_id: str) -> int:
        return self.calls[call_id].owner if self.knows_call(call_id) else self._begin_call(call_id)

    def knows_call(self, call_id: str) -> bool:
        made = self.calls.get(call_id)
        return made is not None and made.n > self.last.n - REACH

    def _begin_call(self, call_id: str, call: ToolCall | None = None) -> int:
        if call is None:
            owner = self._begin("call", None, None, call_id)
        else:
            owner = self._begin("call", call.name, call.target, call_id, call.is_error)
        self.calls[call_id] = Made(owner, self.last.n + 1)
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
        self.origins.append(Origin(kind, tool, target, call_id, self._turn_index, self._message_id, is_error))
        return owner


def _limited(claims: list[Claim]) -> tuple[Claim, ...]:
    """So many blocks, none of which was ever billed, are not told apart: the oldest of them stay unexplained."""
    if len(claims) > _MOST_PENDING:
        old = sum(claim.expected for claim in claims[:-_MOST_PENDING])
        claims = [Claim(UNEXPLAINED_OWNER, old, LOOSE), *claims[-_MOST_PENDING:]]
    return tuple(claims)


def _waited(blocks: Sequence[Block]) -> bool:
    """Whether calls came back and nobody said anything: then it was no person who let the time pass."""
    return any(block.call_id is not None for block in blocks) and all(
        block.kind != "prompt" and (block.kind != "image" or block.call_id is not None) for block in blocks
    )


def _has_summary(blocks: Sequence[Block]) -> bool:
    for block in blocks:  # noqa: SIM110 - asked for every turn, and any() costs three times as much
        if block.kind == "summary":
            return True
    return False


def in_order(turns: Iterable[Turn], copies: Iterable[Copy] = (), compactions: Iterable[Compaction] = ()) -> list[Entry]:
    """The entries of one rail as a `Rail` is fed with them. What turned out to be a copy is there as one already."""
    messages: list[Turn | Copy] = [*(turn for turn in turns if turn.copy_of is None), *copies]
    messages.sort(key=attrgetter("turn_index", "ts", "message_id", "source"))
    waiting = sorted(compactions, key=lambda one: (one.ts, one.id), reverse=True)
    ordered: list[Entry] = []
    for message in messages:
        while waiting and waiting[-1].ts <= message.ts:
            ordered.append(waiting.pop())
        ordered.append(message)
    return ordered
