"""What one turn paid for: all that was in its context, in order, and what it said.

What was billed beside a response (a compaction within it, an advisor that it asked) is a request with a context of its
own and bears the same number: a turn is all requests that bear its number, so that turns add up to their session.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from burnd.attribution import CauseShare, anatomy, rate_of
from burnd.attribution.rail import Miss
from burnd.attribution.rail_entries import RailEntries
from burnd.attribution.rates import Rate
from burnd.queries.bills import Explaining
from burnd.queries.costing import Cost, Costing, total
from burnd.queries.quotes import Quotes
from burnd.queries.sessions import Known
from burnd.queries.view import Missing
from burnd.queries.wording import label
from burnd.records import Turn
from burnd.records.content import MAIN

_QUOTED: Final = 100


class TurnOf(NamedTuple):
    """Which turn of a session, and how many causes of it are told apart."""

    turn_index: int
    rail: str | None
    limit: int


class Request(NamedTuple):
    """A request of a turn: what its parts cost at its rate, and what it paid for again."""

    turn: Turn
    rate: Rate
    parts: Sequence[tuple[CauseShare, Cost]]
    miss: Miss | None

    @property
    def cost(self) -> Cost:
        return total([cost for _, cost in self.parts])


def why_turn(
    explaining: Explaining, quotes: Quotes, known: Known, rails: Sequence[RailEntries], question: TurnOf
) -> dict[str, Any]:
    """The answer of the method `why` for one turn. Raises Missing."""
    rail = _rail(known, rails, question.rail)
    costing = explaining.costing
    requests = [_opened(costing, rail, turn) for turn in _turns(rail, question.turn_index)]
    whole = total([request.cost for request in requests])
    first = requests[0].turn
    return {
        "sessionId": rail.session_id,
        "source": known.facts["source"],
        "project": known.facts["project"],
        "turn": {
            "turnIndex": first.turn_index,
            "railId": first.rail_id,
            "turns": len({turn.turn_index for turn in rail.turns}),
            "ts": first.ts,
            "activity": first.activity,
        },
        "requests": [_facts(costing, request) for request in requests],
        "totals": whole.answer(),
        "unpricedModels": costing.unpriced([request.rate for request in requests]),
        "harnessModels": costing.by_harness([request.rate for request in requests]),
        "causes": _Rows(quotes, known.facts["project"], rail, whole.units).of(requests, question.limit),
    }


def _rail(known: Known, rails: Sequence[RailEntries], name: str | None) -> RailEntries:
    """The rail of this name or beginning so, the session's own before those of its children. Raises Missing."""
    own = [rail for rail in rails if rail.session == known.row]
    if name is None:
        if not own:
            raise Missing("this session has no turns", "burnctl why SESSION shows what its child sessions cost")
        return next((rail for rail in own if rail.rail_id == MAIN), own[0])
    for rail in (*own, *rails):
        if name in (rail.rail_id, rail.session_id):
            return rail
    children = [rail for rail in rails if rail.session != known.row and rail.rail_id == MAIN]
    alike = [rail for rail in own if name and rail.rail_id.startswith(name)]
    alike += [rail for rail in children if name and rail.session_id.startswith(name)]
    if len(alike) == 1:
        return alike[0]
    if alike:
        which = ", ".join(rail.rail_id if rail.session == known.row else rail.session_id for rail in alike[:8])
        raise Missing(f"several subagents of this session begin with {name[:80]!r}", f"say more of it: {which}")
    names = ", ".join(rail.rail_id for rail in own[:8])
    raise Missing(f"there is no subagent {name[:80]!r} in this session", f"its conversations are: {names}")


def _turns(rail: RailEntries, turn_index: int) -> list[Turn]:
    """All that bear this number, the response itself before what was billed beside it. Raises Missing."""
    turns = rail.turns
    alike = [turn for turn in turns if turn.turn_index == turn_index]
    if alike:
        beside = {turn.message_id for turn in alike}
        return sorted(alike, key=lambda turn: turn.parent in beside)
    first, last = turns[0].turn_index, turns[-1].turn_index
    raise Missing(f"there is no turn {turn_index} in this conversation", f"its own turns are from {first} to {last}")


def _opened(costing: Costing, rail: RailEntries, turn: Turn) -> Request:
    opened = anatomy(rail.entries, turn.message_id)
    rate = rate_of(turn, costing.thresholds([(turn.model, turn.provider)]))
    parts = [(part, costing.of({rate: part.spent})) for part in (opened.parts if opened else ())]
    return Request(turn, rate, parts, opened.miss if opened is not None else None)


def _facts(costing: Costing, request: Request) -> dict[str, Any]:
    turn, miss = request.turn, request.miss
    return {
        "messageId": turn.message_id,
        "model": turn.model,
        "context": turn.usage.context,
        "quality": turn.quality,
        **request.cost.answer(),
        "miss": {"reason": miss.reason, **costing.of({request.rate: miss.spent}).answer()} if miss else None,
    }


class _Rows:
    """The parts of a turn as rows: the dearest, in the order in which they stand in the context; then all others."""

    def __init__(self, quotes: Quotes, project: str | None, rail: RailEntries, whole: int) -> None:
        self._quotes, self._project, self._rail, self._whole = quotes, project, rail, whole

    def of(self, requests: Sequence[Request], limit: int) -> list[dict[str, Any]]:
        numbers = [n for n, request in enumerate(requests) for _ in request.parts]
        costs = [one for request in requests for one in request.parts]
        dearest = sorted(range(len(costs)), key=lambda n: (-costs[n][1].units, -sum(costs[n][1].tokens), n))
        kept, rest = sorted(dearest[:limit]), dearest[limit:]
        rows = [self._row(*costs[n], quoted=at < _QUOTED) | {"request": numbers[n]} for at, n in enumerate(kept)]
        if rest:
            tokens = sum(costs[n][0].tokens for n in rest)
            named = "1 smaller cause" if len(rest) == 1 else f"{len(rest):,} smaller causes"
            row: dict[str, Any] = {"kind": "smaller", "label": named, "count": len(rest), "railId": self._rail.rail_id}
            rows.append(row | {"tokens": tokens} | self._paid(total([costs[n][1] for n in rest])))
        return rows

    def _row(self, part: CauseShare, cost: Cost, *, quoted: bool) -> dict[str, Any]:
        origin = part.cause
        row: dict[str, Any] = {"kind": origin.kind, "label": label(origin, self._project), "railId": self._rail.rail_id}
        if origin.kind == "call":
            row |= {"tool": origin.tool, "target": origin.target}
        if origin.message_id:
            row |= {"turnIndex": origin.turn_index, "messageId": origin.message_id}
        row |= {"tokens": part.tokens, **self._paid(cost)}
        if quoted and (quote := self._quotes.of(self._rail, origin)) is not None:
            row["quote"] = quote
        return row

    def _paid(self, cost: Cost) -> dict[str, Any]:
        return {**cost.answer(), "share": cost.share(self._whole)}
