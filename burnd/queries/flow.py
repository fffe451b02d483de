"""The flow of a session: its rails as lanes of turns with calls, subagents and cost, in bounded size."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, NamedTuple

from burnd.attribution.rates import Rate, RateFinder, Spent, spent_by
from burnd.contract.reports import FlowParams
from burnd.pricing import usd
from burnd.queries import names, sessions
from burnd.queries.bills import Bill, BillReader, about, billed
from burnd.queries.money import Pricer, total
from burnd.queries.view import View
from burnd.records import ToolCall, Turn
from burnd.records.times import index_ms

MOST_LANES: Final = 60
_MOST_CALLS: Final = 12


def flow(view: View, ledger: Path, params: FlowParams) -> dict[str, Any]:
    session = sessions.find(view, params.session)
    reader = BillReader(view, ledger)
    rails = reader.rails(names.below(view, [session.row]), session.row)
    turns = {rail.key: rail.turns for rail in rails}
    bills = reader.bills(rails)
    every = [bill for root in bills for bill in root.every()]
    lanes = _select_lanes(every)
    lanes_shown = [_Lane(bill, turns[bill.rail.key]) for bill in lanes]
    drawing = _Drawing(reader.pricer, session.facts["project"], lanes_shown, params.limit)
    left_out = [bill.own for bill in every if bill not in lanes]
    drawn = [drawing.lane(lane) for lane in lanes_shown]
    return {
        "sessionId": session.session_id,
        "shortId": names.short_ids(view, [session.session_id])[session.session_id],
        "source": session.facts["source"],
        "project": session.facts["project"],
        "title": session.facts["title"],
        "totals": {"turns": sum(bill.explained.turns for bill in every), **total([b.own for b in every]).answer()},
        "unpricedModels": reader.pricer.unpriced(drawing.rates),
        "harnessModels": reader.pricer.by_harness(drawing.rates),
        "lanes": drawn,
        "moreLanes": {"count": len(left_out), **total(left_out).answer()} if left_out else None,
    }


def _select_lanes(bills: Sequence[Bill]) -> list[Bill]:
    """The first rail, and the most expensive of the others with all rails above them."""
    if len(bills) <= MOST_LANES:
        return list(bills)
    expensive = sorted(bills[1:], key=lambda bill: -bill.whole.units)[: MOST_LANES - 1]
    ids = {id(bill) for bill in (bills[0], *expensive)}
    return [bill for bill in bills if id(bill) in ids]


class _Lane(NamedTuple):
    bill: Bill
    turns: list[Turn]


class _Marks:
    """Turns that were billed beside another, began a row, went back or missed the cache."""

    def __init__(self, lane: _Lane) -> None:
        self._first: dict[int, str] = {}
        self._back: dict[str, int] = {}
        places: dict[str, int] = {}
        last = -1
        for turn in lane.turns:
            self._first.setdefault(turn.turn_index, turn.message_id)
            if self.is_beside(turn):
                continue
            parent = places.get(turn.parent or "", last)
            if parent < last:
                self._back[turn.message_id] = parent
            places[turn.message_id] = last = turn.turn_index
        self._begins = set(lane.bill.explained.begins) - {0}
        self._misses = {one.message_id: one.miss.reason for one in lane.bill.explained.misses}

    def is_beside(self, turn: Turn) -> bool:
        return self._first[turn.turn_index] != turn.message_id

    def continues(self, turn: Turn) -> int | None:
        """The turn it continues, if that is not the one before it."""
        return self._back.get(turn.message_id)

    def began(self, turn: Turn) -> bool:
        return turn.turn_index in self._begins and not self.is_beside(turn)

    def missed(self, turn: Turn) -> str | None:
        return self._misses.get(turn.message_id)


def _cuts(turns: int, size: int, begins: Iterable[int]) -> list[int]:
    """First turns of steps of about this size; a step starts where a row began, if that is near."""
    cuts = list(range(0, turns, size))
    for at in begins:
        n = min(max((at + size // 2) // size, 1), len(cuts) - 1)
        if n > 0 and cuts[n] == n * size:  # not moved yet
            cuts[n] = at
    return sorted(set(cuts))


class _Drawing:
    """Long lanes are divided into steps of several turns."""

    def __init__(self, pricer: Pricer, project: str | None, lanes: Sequence[_Lane], limit: int) -> None:
        self._pricer = pricer
        self._project = project
        # Turns per step: the same in all lanes, so that steps are comparable.
        self._size = -(-sum(len(lane.turns) for lane in lanes) // limit)
        self._calls = {
            call.id: (n, turn.turn_index)
            for n, lane in enumerate(lanes)
            for turn in lane.turns
            for call in turn.tool_calls
        }
        turns = {(turn.model, turn.provider) for lane in lanes for turn in lane.turns}
        self._rates = RateFinder(pricer.thresholds(turns))
        self.rates: set[Rate] = set()  # of all turns drawn

    def lane(self, lane: _Lane) -> dict[str, Any]:
        bill, turns = lane
        agent = bill.explained.agent
        by = self._calls.get(bill.explained.started_by or "")
        marks = _Marks(lane)
        cuts = _cuts(len(turns), self._size, [n for n, turn in enumerate(turns) if marks.began(turn)])
        groups = [turns[begin:end] for begin, end in pairwise((*cuts, len(turns)))]
        return {
            "sessionId": bill.rail.session_id,
            "railId": bill.rail.rail_id,
            "type": agent.type if agent is not None else None,
            "startedBy": {"lane": by[0], "turnIndex": by[1]} if by is not None else None,
            "turns": billed(turns),
            **bill.own.answer(),
            "steps": [self._step(group, marks) for group in groups],
        }

    def _step(self, turns: Sequence[Turn], marks: _Marks) -> dict[str, Any]:
        rated = [(self._rates.of(turn, turn.usage.context), spent_by(turn)) for turn in turns]
        self.rates.update(rate for rate, _ in rated)
        cost = total([self._pricer.of({rate: tokens}) for rate, tokens in rated])
        return {
            "turnIndex": turns[0].turn_index,
            "lastTurnIndex": max(turn.turn_index for turn in turns),
            "turns": billed(turns),
            "ts": turns[0].ts,
            "at": index_ms(turns[0].ts),
            "model": turns[0].model,
            "context": max(turn.usage.context for turn in turns),
            **cost.answer(),
            "parts": self._parts(rated) if cost.is_priced else None,
            "asked": any(block.kind == "prompt" for turn in turns for block in turn.entered),
            "beside": all(marks.is_beside(turn) for turn in turns),
            "goesOnFrom": next((back for turn in turns if (back := marks.continues(turn)) is not None), None),
            "began": any(marks.began(turn) for turn in turns),
            "miss": next(filter(None, map(marks.missed, turns)), None),
            "calls": self._called([call for turn in turns for call in turn.tool_calls]),
        }

    def _parts(self, rated: Iterable[tuple[Rate, Spent]]) -> dict[str, float]:
        """Searches count as output; unpriced tokens are left out."""
        by_type = dict.fromkeys(("fresh", "write", "read", "output"), 0)
        for rate, tokens in rated:
            rates = self._pricer.units(rate)
            if rates is None:
                continue
            fresh, output, reasoning, read, five, hour, searches = map(int.__mul__, tokens, rates)
            by_type["fresh"] += fresh
            by_type["write"] += five + hour
            by_type["read"] += read
            by_type["output"] += output + reasoning + searches
        return {name: float(usd(units)) for name, units in by_type.items()}

    def _called(self, calls: Sequence[ToolCall]) -> list[dict[str, Any]]:
        alike = Counter((call.name, call.target) for call in calls)
        failed = {(call.name, call.target) for call in calls if call.is_error}
        return [
            {
                "tool": tool,
                "target": about(tool, target, self._project),
                "times": times,
                "isError": (tool, target) in failed,
            }
            for (tool, target), times in alike.most_common(_MOST_CALLS)
        ]
