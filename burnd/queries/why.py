"""Why: divides the cost of a session among its causes, the most expensive first; they add up to its total."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from operator import sub
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from burnd import protocol
from burnd.attribution.causes import CauseShare, Selected, TurnMiss, anatomy
from burnd.attribution.misses import CacheBills, Miss, MissGroup, advice_on
from burnd.attribution.rail_entries import RailEntries
from burnd.attribution.rates import Rate, rate_of
from burnd.attribution.rates import add_up as add_spent
from burnd.attribution.row import CauseKind
from burnd.content.recall import Recall
from burnd.contract.reports import MOST_CAUSES, Filters, WhyParams
from burnd.pricing import usd
from burnd.queries import dimensions, names, sessions
from burnd.queries.bills import SUBAGENTS, Bill, BillReader, Item, group_of, label, part_of
from burnd.queries.money import Cost, Pricer, SumRow, total, unlogged_of
from burnd.queries.quotes import Quotes, add_titles
from burnd.queries.selection import Scope, choose
from burnd.queries.sessions import SessionEntry
from burnd.queries.summary import ReportSums, add_up
from burnd.queries.sums import Reader
from burnd.queries.view import Missing, Refusal, View
from burnd.records import Turn
from burnd.records.content import MAIN
from burnd.records.times import index_ms

_MOST_QUOTES: Final = 100
_MOST_DEPTH: Final = 24
_MOST_MISSES: Final = 5
# Parts of a bill, apart from searches, which have no tokens.
_PARTS: Final = {
    "fresh": ("input",),
    "write": ("cacheCreate5m", "cacheCreate1h"),
    "read": ("cacheRead",),
    "output": ("output", "reasoning"),
}
_SEARCHES: Final = "searches"
_TOKEN_TYPES: Final = (*protocol.USAGE_FIELDS, _SEARCHES)


def why(view: View, ledger: Path, recall: Recall | None, params: WhyParams) -> dict[str, Any]:
    if params.turn is not None and (params.tree or params.since is not None or params.until is not None):
        raise Refusal("turn cannot be combined with tree, since or until", "leave these out")
    session = sessions.find(view, params.session)
    facts = session.facts
    if recall is not None:
        add_titles(view, recall, [facts])  # as in lists
    short_id = names.short_ids(view, [session.session_id])[session.session_id]
    return _answer(view, ledger, recall, params, session) | {"title": facts["title"], "shortId": short_id}


def _answer(
    view: View, ledger: Path, recall: Recall | None, params: WhyParams, session: SessionEntry
) -> dict[str, Any]:
    reader = BillReader(view, ledger)
    family = names.below(view, [session.row])
    quotes = Quotes(view, recall)
    if params.turn is not None:
        rails = reader.rails(family, session.row)
        return why_turn(reader, quotes, session, rails, TurnQuestion(params.turn, params.rail, params.limit))
    if params.rail is not None:
        raise Refusal("rail needs turn", "give turn as well, or use tree")
    scope = choose(view, Filters(session=session.session_id, since=params.since, until=params.until, tz=params.tz))
    bills = reader.bills(reader.rails(family, session.row), _selected(scope))
    totals = _totals(view, scope)
    rows = _CauseRows(quotes, session.facts["project"], bills, totals.sums.total.units, params)
    return {
        "sessionId": session.session_id,
        "source": session.facts["source"],
        "project": session.facts["project"],
        "filters": {name: value for name, value in scope.filters.items() if name != "session"},
        "totals": totals.sums.total.answer(),
        "parts": totals.parts,
        "models": sorted(str(model) for model in totals.sums.by_key),
        "unpricedModels": totals.sums.unpriced,
        "harnessModels": totals.sums.by_harness,
        "unlogged": totals.unlogged,
        "agents": sum(1 for root in bills for _ in root.every()) - 1 if bills else 0,
        "groups": _groups(bills, totals.sums.total.units),
        "misses": misses_of(bills, reader.pricer, totals.sums.total.units),
        "cacheTtl": ttl_answer(
            CacheBills.total(bill.explained.caching for root in bills for bill in root.every()), reader.pricer
        ),
        "causes": rows.of_session(),
    }


def _selected(scope: Scope) -> Selected | None:
    begin, end = scope.selection.begin, scope.selection.end
    if begin is None and end is None:
        return None

    def within(turn: Turn) -> bool:
        at = index_ms(turn.ts)
        return (begin is None or begin <= at) and (end is None or at < end)

    return within


class SessionTotals(NamedTuple):
    sums: ReportSums
    unlogged: dict[str, Any] | None
    parts: dict[str, dict[str, Any]]


def _totals(view: View, scope: Scope) -> SessionTotals:
    dimension = dimensions.dimension(view, ["model"], scope.selection)
    rows = Reader(view, scope.selection, scope.classes).read(dimension.by)
    return SessionTotals(add_up(rows, scope, dimension), unlogged_of(rows, scope.classes), _parts(rows, scope))


def _parts(rows: Iterable[SumRow], scope: Scope) -> dict[str, dict[str, Any]]:
    tokens, units = dict.fromkeys(_TOKEN_TYPES, 0), dict.fromkeys(_TOKEN_TYPES, 0)
    is_priced = False
    for _, number, tier, (_, *counts) in rows:
        turn_class = scope.classes[number]
        if turn_class.is_unlogged:
            continue
        rates = turn_class.rates(tier)
        is_priced = is_priced or rates is not None
        for name, count, rate in zip(
            _TOKEN_TYPES, counts, (*(rates or [0] * 6), turn_class.search_units), strict=False
        ):
            tokens[name] += count
            units[name] += count * rate if rates is not None else 0

    def cost_of(*names: str) -> float | None:
        return float(usd(sum(units[one] for one in names))) if is_priced else None

    parts: dict[str, dict[str, Any]] = {
        name: {"tokens": sum(tokens[one] for one in names), "costUsd": cost_of(*names)}
        for name, names in _PARTS.items()
    }
    if tokens[_SEARCHES]:
        parts["search"] = {"tokens": 0, "searches": tokens[_SEARCHES], "costUsd": cost_of(_SEARCHES)}
    return parts


def _groups(bills: Sequence[Bill], whole: int) -> list[dict[str, Any]]:
    """The bill by group, the most expensive first; subagents and child sessions are one, with the calls that started
    them.
    """
    if not bills:
        return []
    main, *others = bills
    parts: dict[str, list[tuple[tuple[str, str], int, Cost]]] = {}
    for (group, *part), (count, cost) in main.grouped(_group_and_part).items():
        parts.setdefault(group, []).append(((part[0], part[1]), count, cost))
    for bill in (*main.below, *others):
        agent = bill.explained.agent
        name = agent.type if agent is not None and agent.type else "subagent"
        parts.setdefault(SUBAGENTS, []).append((("subagent", name), sum(1 for _ in bill.every()), bill.whole))
    groups = [_group(key, some, whole) for key, some in parts.items()]
    return sorted(groups, key=lambda one: (-(one["costUsd"] or 0), -sum(one["usage"].values())))


def _group_and_part(kind: CauseKind, tool: str | None, target: str | None) -> tuple[str, str, str]:
    return group_of(kind, tool, target), kind, part_of(kind, tool, target)


def _group(key: str, parts: Sequence[tuple[tuple[str, str], int, Cost]], whole: int) -> dict[str, Any]:
    by_name: dict[tuple[str, str], list[tuple[int, Cost]]] = {}
    for name, count, cost in parts:
        by_name.setdefault(name, []).append((count, cost))
    merged = [(name, sum(n for n, _ in some), total([cost for _, cost in some])) for name, some in by_name.items()]
    merged.sort(key=lambda part: (-part[2].units, -sum(part[2].tokens), part[0]))
    cost = total([cost for _, _, cost in merged])
    return {
        "key": key,
        "count": sum(count for _, count, _ in merged),
        **cost.answer(),
        "share": cost.share(whole),
        "parts": [
            {"key": name, "kind": kind, "count": count, **cost.answer(), "share": cost.share(whole)}
            for (kind, name), count, cost in merged
        ],
    }


def misses_of(bills: Sequence[Bill], pricer: Pricer, whole: int) -> list[dict[str, Any]]:
    """By reason and proof, the most expensive first; causes have the same tokens."""
    groups: dict[MissGroup, list[tuple[Bill, TurnMiss]]] = {}
    for root in bills:
        for bill in root.every():
            for one in bill.explained.misses:
                groups.setdefault(one.miss.group, []).append((bill, one))
    rows = []
    for group, misses in groups.items():
        cost = pricer.of(add_spent([{one.rate: one.miss.spent} for _, one in misses]))
        changes = dict.fromkeys(change for _, one in misses for change in one.miss.changes)
        row: dict[str, Any] = {"reason": group.reason, "proof": group.proof, "count": len(misses), **cost.answer()}
        row |= {
            "share": cost.share(whole),
            "requests": [
                {"sessionId": bill.rail.session_id, "railId": bill.rail.rail_id, "turnIndex": one.turn_index}
                | _miss_details(one.miss)
                for bill, one in misses[:_MOST_MISSES]
            ],
            "changes": [msgspec.to_builtins(change) for change in changes][:_MOST_MISSES],
            "advice": advice_on(group),
        }
        rows.append(row)
    return sorted(rows, key=lambda row: (-(row["costUsd"] or 0), -sum(row["usage"].values()), row["reason"]))


def _miss_details(miss: Miss) -> dict[str, Any]:
    """The message that changed, and the efforts before and after, if known."""
    details: dict[str, Any] = {"position": miss.position} if miss.position is not None else {}
    if miss.settings is not None:
        details["effort"] = {"before": miss.settings[0], "after": miss.settings[1]}
    return details


def ttl_answer(bills: CacheBills, pricer: Pricer) -> dict[str, Any] | None:
    """The cost of all contexts, and with the other lifetime of cache writes; None without cache writes or a price."""
    costs = [pricer.of(bill) for bill in bills]
    now, five, hour = (cost.usd for cost in costs)
    if not bills.is_written or now is None:
        return None
    written = [name for name, at in (("5m", 4), ("1h", 5)) if costs[0].tokens[at]]
    return {"written": written, "costUsd": now, "if5mUsd": five, "if1hUsd": hour}


# The cost with all that the cause started, the cause if there is one, and the bills it started.
_CostRow = tuple[Cost, Item | None, Sequence[Bill]]


class _CauseRows:
    """Makes rows of bills: a limited number of each, then one for all smaller causes, so that rows add up."""

    def __init__(
        self, quotes: Quotes, project: str | None, bills: Sequence[Bill], whole: int, params: WhyParams
    ) -> None:
        self._quotes = quotes
        self._project = project
        self._bills = bills
        self._whole = whole
        self._limit = params.limit
        self._opened = params.tree
        self._left, self._to_quote = MOST_CAUSES, _MOST_QUOTES

    def of_session(self) -> list[dict[str, Any]]:
        """With rails whose starting call is unknown."""
        if not self._bills:
            return []
        main, *others = self._bills
        return self._of_rail(main, others, 0)

    def _of_rail(self, bill: Bill, others: Sequence[Bill], depth: int) -> list[dict[str, Any]]:
        """The causes of a rail, each call with the rails it started."""
        started = bill.started()
        rows: list[_CostRow] = []
        for n, agents in started.items():
            item = bill.item(n)
            rows.append((total([item.cost, *(agent.whole for agent in agents)]), item, agents))
        rows += [(agent.whole, None, [agent]) for agent in others]
        priced = bill.count_priced(started.keys()) + sum(cost.is_priced for cost, *_ in rows)
        whole = total([bill.whole, *(agent.whole for agent in others)])
        count = len(bill.explained.causes) + len(others)
        shown_count = min(count, max(1, min(self._limit, self._left)))
        self._left -= shown_count
        rows += [(item.cost, item, ()) for item in bill.most_expensive(shown_count, but=started.keys())]
        if len(rows) > shown_count or others or started:
            rows.sort(key=lambda row: (-row[0].units, -sum(row[0].tokens)))
        costs = [row[0] for row in rows[:shown_count]]
        shown = total(costs)
        tokens = tuple(map(sub, whole.tokens, shown.tokens))
        is_priced = priced > sum(cost.is_priced for cost in costs)
        smaller = Cost(tokens, whole.units - shown.units, is_priced)
        return [
            *(self._row(bill, *row, depth) for row in rows[:shown_count]),
            *self._smaller(bill, count - shown_count, smaller),
        ]

    def _row(self, bill: Bill, cost: Cost, item: Item | None, agents: Sequence[Bill], depth: int) -> dict[str, Any]:
        row = self._of_agent(agents[0], cost) if item is None else self._of_cause(bill, item, cost)
        if agents:
            own = item.cost if item is not None else Cost()
            row["own"] = own.answer()
            row["agents"] = [self._agent(agent, depth) for agent in sorted(agents, key=lambda one: -one.whole.units)]
        return row

    def _of_cause(self, bill: Bill, item: Item, cost: Cost) -> dict[str, Any]:
        cause, rail = item.cause, bill.rail
        row: dict[str, Any] = {"kind": cause.kind, "label": label(cause, self._project)}
        if cause.kind == "call":
            row["tool"], row["target"], row["isError"] = cause.tool, cause.target, cause.is_error
        if cause.message_id:
            row["turnIndex"], row["messageId"] = cause.turn_index, cause.message_id
        row |= {
            "sessionId": rail.session_id,
            "railId": rail.rail_id,
            "entered": cause.entered,
            "size": cause.size,
            "rides": cause.rides,
            "reentries": cause.reentries,
            **self._paid(cost),
        }
        if self._to_quote > 0 and (quote := self._quotes.of(rail, cause)) is not None:
            self._to_quote -= 1
            row["quote"] = quote
        return row

    def _of_agent(self, agent: Bill, cost: Cost) -> dict[str, Any]:
        is_child = agent.rail.session_id != self._bills[0].rail.session_id
        text = f"child session {agent.rail.session_id}" if is_child else f"subagent {agent.rail.rail_id}"
        row: dict[str, Any] = {"kind": "subagent", "label": text, "entered": 0, "size": 0, "rides": 0, "reentries": 0}
        row |= {"sessionId": agent.rail.session_id, "railId": agent.rail.rail_id}
        return row | self._paid(cost)

    def _agent(self, agent: Bill, depth: int) -> dict[str, Any]:
        facts = agent.explained.agent
        row: dict[str, Any] = {
            "sessionId": agent.rail.session_id,
            "railId": agent.rail.rail_id,
            "type": facts.type if facts is not None else None,
            "turns": agent.explained.turns,
            **self._paid(agent.whole),
        }
        if self._opened and self._left > 0 and depth < _MOST_DEPTH:
            row["causes"] = self._of_rail(agent, [], depth + 1)
        return row

    def _smaller(self, bill: Bill, count: int, cost: Cost) -> list[dict[str, Any]]:
        if not count:
            return []
        text = "1 smaller cause" if count == 1 else f"{count:,} smaller causes"
        row: dict[str, Any] = {"kind": "smaller", "label": text, "count": count}
        row |= {"sessionId": bill.rail.session_id, "railId": bill.rail.rail_id}
        return [row | {"entered": 0, "size": 0, "rides": 0, "reentries": 0} | self._paid(cost)]

    def _paid(self, cost: Cost) -> dict[str, Any]:
        return {**cost.answer(), "share": cost.share(self._whole)}


_QUOTED_PARTS: Final = 100


class TurnQuestion(NamedTuple):
    turn_index: int
    rail: str | None
    limit: int


class TurnRequest(NamedTuple):
    turn: Turn
    rate: Rate
    parts: Sequence[tuple[CauseShare, Cost]]
    miss: Miss | None

    @property
    def cost(self) -> Cost:
        return total([cost for _, cost in self.parts])


def why_turn(
    reader: BillReader, quotes: Quotes, session: SessionEntry, rails: Sequence[RailEntries], question: TurnQuestion
) -> dict[str, Any]:
    """Raises Missing."""
    rail = _rail(session, rails, question.rail)
    pricer = reader.pricer
    requests = [_request(pricer, rail, turn) for turn in _turns(rail, question.turn_index)]
    whole = total([request.cost for request in requests])
    first = requests[0].turn
    return {
        "sessionId": rail.session_id,
        "source": session.facts["source"],
        "project": session.facts["project"],
        "turn": {
            "turnIndex": first.turn_index,
            "railId": first.rail_id,
            "turns": len({turn.turn_index for turn in rail.turns}),
            "ts": first.ts,
            "activity": first.activity,
        },
        "requests": [_facts(pricer, request) for request in requests],
        "totals": whole.answer(),
        "unpricedModels": pricer.unpriced([request.rate for request in requests]),
        "harnessModels": pricer.by_harness([request.rate for request in requests]),
        "causes": _PartRows(quotes, session.facts["project"], rail, whole.units).of(requests, question.limit),
    }


def _rail(session: SessionEntry, rails: Sequence[RailEntries], name: str | None) -> RailEntries:
    """By name or unique prefix, the session's own before those of child sessions. Raises Missing."""
    own = [rail for rail in rails if rail.session == session.row]
    if name is None:
        if not own:
            raise Missing("this session has no requests", "burnctl why SESSION shows what its child sessions cost")
        return next((rail for rail in own if rail.rail_id == MAIN), own[0])
    for rail in (*own, *rails):
        if name in (rail.rail_id, rail.session_id):
            return rail
    children = [rail for rail in rails if rail.session != session.row and rail.rail_id == MAIN]
    matches = [rail for rail in own if name and rail.rail_id.startswith(name)]
    matches += [rail for rail in children if name and rail.session_id.startswith(name)]
    if len(matches) == 1:
        return matches[0]
    if matches:
        which = ", ".join(rail.rail_id if rail.session == session.row else rail.session_id for rail in matches[:8])
        raise Missing(f"several subagents of this session begin with {name[:80]!r}", f"give a longer prefix: {which}")
    names = ", ".join(rail.rail_id for rail in own[:8])
    raise Missing(f"there is no subagent {name[:80]!r} in this session", f"its conversations are: {names}")


def _turns(rail: RailEntries, turn_index: int) -> list[Turn]:
    """The turns with this number: the response, then those billed with it. Raises Missing."""
    turns = rail.turns
    matches = [turn for turn in turns if turn.turn_index == turn_index]
    if matches:
        beside = {turn.message_id for turn in matches}
        return sorted(matches, key=lambda turn: turn.parent in beside)
    first, last = turns[0].turn_index, turns[-1].turn_index
    numbers = f"requests {first} to {last}" if first != last else f"request {first} only"
    raise Missing(f"there is no request {turn_index} in this conversation", f"it has {numbers}")


def _request(pricer: Pricer, rail: RailEntries, turn: Turn) -> TurnRequest:
    parts_of = anatomy(rail.entries, turn.message_id)
    rate = rate_of(turn, pricer.thresholds([(turn.model, turn.provider)]))
    parts = [(part, pricer.of({rate: part.spent})) for part in (parts_of.parts if parts_of else ())]
    return TurnRequest(turn, rate, parts, parts_of.miss if parts_of is not None else None)


def _facts(pricer: Pricer, request: TurnRequest) -> dict[str, Any]:
    turn, miss = request.turn, request.miss
    return {
        "messageId": turn.message_id,
        "model": turn.model,
        "context": turn.usage.context,
        "quality": turn.quality,
        **request.cost.answer(),
        "miss": _miss(pricer, request.rate, miss) if miss else None,
    }


def _miss(pricer: Pricer, rate: Rate, miss: Miss) -> dict[str, Any]:
    return {
        "reason": miss.reason,
        "proof": miss.proof,
        **_miss_details(miss),
        "changes": [msgspec.to_builtins(change) for change in miss.changes],
        **pricer.of({rate: miss.spent}).answer(),
        "advice": advice_on(miss.group),
    }


class _PartRows:
    """Makes rows of the parts of a turn: the most expensive in the order of the context, then one for the rest."""

    def __init__(self, quotes: Quotes, project: str | None, rail: RailEntries, whole: int) -> None:
        self._quotes, self._project, self._rail, self._whole = quotes, project, rail, whole

    def of(self, requests: Sequence[TurnRequest], limit: int) -> list[dict[str, Any]]:
        numbers = [n for n, request in enumerate(requests) for _ in request.parts]
        costs = [one for request in requests for one in request.parts]
        expensive = sorted(range(len(costs)), key=lambda n: (-costs[n][1].units, -sum(costs[n][1].tokens), n))
        first, rest = sorted(expensive[:limit]), expensive[limit:]
        rows = [self._row(*costs[n], quoted=at < _QUOTED_PARTS) | {"request": numbers[n]} for at, n in enumerate(first)]
        if rest:
            tokens = sum(costs[n][0].tokens for n in rest)
            text = "1 smaller cause" if len(rest) == 1 else f"{len(rest):,} smaller causes"
            row: dict[str, Any] = {"kind": "smaller", "label": text, "count": len(rest), "railId": self._rail.rail_id}
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
