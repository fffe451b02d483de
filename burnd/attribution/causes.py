"""The bill of a rail as a list of causes: every token that was billed has exactly one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import msgspec

from burnd.attribution.account import Account
from burnd.attribution.cause import NONE, Cause, Causes
from burnd.attribution.following import Trace, follow
from burnd.attribution.misses import Miss
from burnd.attribution.rail import Entry, Rail
from burnd.attribution.rates import CLASSES, Rate, Rates, Spent, add_up
from burnd.attribution.steps import Origin, Step, TurnStep
from burnd.records import Subagent, Turn

Selected = Callable[[Turn | TurnStep], bool]


class TurnMiss(msgspec.Struct, frozen=True):
    """A turn that paid in full again for what had been in the context before."""

    turn_index: int
    message_id: str
    rate: Rate
    miss: Miss


class Shrink(msgspec.Struct, frozen=True):
    """A turn before which something went from the context: only its first `read` tokens are sure to be as before."""

    turn_index: int
    message_id: str
    read: int


class Explained(msgspec.Struct, frozen=True, kw_only=True):
    """A rail's bill and what it was for.

    `turns` is how many of the selected turns had any usage. `begins` are the turns at which a row began, the first one
    included; `prefix` is how large its prefix was found.
    """

    session_id: str = ""
    rail_id: str = ""
    agent: Subagent | None = None
    turns: int = 0
    causes: Causes = NONE
    misses: tuple[TurnMiss, ...] = ()
    begins: tuple[int, ...] = ()
    shrinks: tuple[Shrink, ...] = ()
    prefix: int = 0

    @property
    def started_by(self) -> str | None:
        """The call that started this rail, where it is a subagent's and that is known."""
        return self.agent.parent_tool_use_id if self.agent is not None else None

    @property
    def spent(self) -> dict[Rate, Spent]:
        """All that was billed in the selected turns."""
        return spent_on(self.causes)


class Part(msgspec.Struct, frozen=True):
    """What one cause had in one turn: its tokens in the context, and what it paid there."""

    cause: Origin
    tokens: int
    spent: Spent


class Anatomy(msgspec.Struct, frozen=True):
    """A turn's bill: what was in its context, in order, and what it said, each with what it paid; and a cache miss."""

    parts: tuple[Part, ...]
    miss: Miss | None = None


def explain(entries: Iterable[Entry], thresholds: Sequence[int], selected: Selected | None = None) -> Explained:
    """The causes of a rail's entries, which are fed in order."""
    return explained(follow(entries), thresholds, selected)


def explained(trace: Trace, thresholds: Sequence[int], selected: Selected | None = None) -> Explained:
    """The causes of a whole rail that was followed; only what they paid in the selected turns counts."""
    account = Account(trace.rail)
    rates = Rates(thresholds)
    misses: list[TurnMiss] = []
    begins: list[int] = []
    shrinks: list[Shrink] = []
    turns = 0
    for turn in trace.steps:
        step = turn.step
        if step.began:
            begins.append(turn.turn_index)
        if step.is_shrunk:
            shrinks.append(Shrink(turn.turn_index, turn.message_id, step.bounds.read))
        if selected is not None and not selected(turn):
            account.skip(step)
            continue
        turns += turn.counts
        rate = rates.of(turn, step.bounds.end)
        account.add(rate, step)
        if step.miss is not None:
            misses.append(TurnMiss(turn.turn_index, turn.message_id, rate, step.miss))
    return Explained(
        session_id=trace.session_id,
        rail_id=trace.rail_id,
        agent=trace.agent,
        turns=turns,
        causes=account.causes(),
        misses=tuple(misses),
        begins=tuple(begins),
        shrinks=tuple(shrinks),
        prefix=trace.rail.last.prefix,
    )


def anatomy(entries: Iterable[Entry], message_id: str) -> Anatomy | None:
    """One turn opened; None where there is no such turn."""
    rail = Rail()
    for entry in entries:
        step = rail.feed(entry)
        if step is not None and isinstance(entry, Turn) and entry.message_id == message_id:
            return Anatomy(parts(rail, step), step.miss)
    return None


def parts(rail: Rail, step: Step) -> tuple[Part, ...]:
    """The parts of the turn that the rail was fed with last, by cause in order of appearance on its row."""
    row = rail.row
    tokens: dict[int, int] = {}
    paid: dict[int, list[int]] = {}
    path = row.path[1:] if step.bounds.end else ()
    for slot in path:
        owner, start, end = row.owners[slot], row.ends[row.parents[slot]], row.ends[slot]
        tokens[owner] = tokens.get(owner, 0) + end - start
        own = paid.setdefault(owner, [0] * CLASSES)
        for rate_class, share in step.bounds.of(start, end):
            own[rate_class] += share
    for rate_class, owner, share in step.outputs:
        paid.setdefault(owner, [0] * CLASSES)[rate_class] += share
    return tuple(Part(rail.origins[owner], tokens.get(owner, 0), Spent(*own)) for owner, own in paid.items())


def spent_on(causes: Iterable[Cause]) -> dict[Rate, Spent]:
    return add_up([cause.spent for cause in causes])
