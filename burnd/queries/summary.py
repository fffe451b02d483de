"""Summary: totals and rows by any dimension, agents as a tree, and the quality of work."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from functools import cache, partial
from itertools import groupby
from math import sqrt
from typing import Any, Final, NamedTuple

from burnd.contract.reports import SummaryParams
from burnd.index.sums import MEASURES
from burnd.queries import dimensions
from burnd.queries.dimensions import AgentKey, Dimension, agent_keys, tag_keys
from burnd.queries.money import SumRow, Tally, unlogged_of
from burnd.queries.selection import PARENT_AGENT, Scope, choose
from burnd.queries.sums import BILLED, By, Reader
from burnd.queries.view import Mistaken, View
from burnd.records.times import to_iso

Parents = Mapping[AgentKey, AgentKey]
Votes = dict[AgentKey | None, int]  # turns by agent; plain dictionaries, since a Counter takes twice as long
_BY = ("agent",)


class AgentBranch(NamedTuple):
    """An agent in the tree; `whole` is the sum of it and its descendants."""

    key: AgentKey
    parent: AgentKey | None
    depth: int
    own: Tally
    whole: Tally

    def answer(self) -> dict[str, Any]:
        name = None if self.parent is None else self.parent.name
        return {"parent": name, "depth": self.depth, "subtree": self.whole.answer()}


def parents(view: View, scope: Scope, rows: Iterable[SumRow]) -> dict[AgentKey, AgentKey]:
    """The parent of each agent that has one: by the stamps of most of its turns, else by its harness.

    A subagent is below the subagent or else the main conversation of its session that called it, a child session below
    that of its parent session. A conversation is represented by the agent with most of its turns. `rows` are the sums
    by agent.
    """
    selection, classes = scope.selection, scope.classes
    labels, keys = selection.groups.labels if selection.groups else (), tag_keys(_BY)
    key_of, parent_at = agent_keys(view, labels, keys), keys.index(PARENT_AGENT)
    alone: defaultdict[AgentKey, int] = defaultdict(int)  # turns of sessions without subagents, parent and child
    stamped: defaultdict[AgentKey, Votes] = defaultdict(dict)
    for (group, type_), number, _, (n, *_) in rows:
        if not classes[number].is_unlogged:
            key, parent = key_of(group, type_), labels[group][parent_at]
            alone[key] += n
            if key.stamped is not None and parent is not None and parent != key.stamped:
                above = AgentKey(parent, None)
                stamped[key][above] = stamped[key].get(above, 0) + n
    parent_sessions: dict[int, int] = dict(view.rows(_PARENTS))
    linked = frozenset((*parent_sessions, *parent_sessions.values(), *(row[0] for row in view.rows(_WITH_SUBAGENTS))))
    if selection.sessions is not None:
        linked &= selection.sessions
    subagents: dict[int, tuple[str, int | None]] = {id_: (agent, type_) for id_, agent, type_ in view.rows(_SUBAGENTS)}
    subagents[0] = ("", None)
    turns: list[tuple[int, str, AgentKey, int]] = []
    reader = Reader(view, selection._replace(sessions=linked), scope.classes, measures=1)
    for (group, session, subagent), number, _, (n,) in reader.read(By(("group", "session", "subagent"))):
        if not classes[number].is_unlogged:
            agent_id, type_ = subagents[subagent]
            key = key_of(group, type_)
            turns.append((session, agent_id, key, n))
            alone[key] -= n
    recorded = _recorded(view, turns, parent_sessions)
    for key, n in alone.items():
        recorded[key][None] = recorded[key].get(None, 0) + n
    return {key: parent for votes in (recorded, stamped) for key in votes if (parent := _most(votes[key])) is not None}


def _recorded(
    view: View, turns: Sequence[tuple[int, str, AgentKey, int]], parent_sessions: Mapping[int, int]
) -> defaultdict[AgentKey, Votes]:
    """The parents of agents by their harnesses, each with the number of turns; None for no parent."""
    session_ids: dict[int, str] = dict(view.numbered(_SESSION_IDS, {session for session, *_ in turns}))
    counts: defaultdict[tuple[int, str], Votes] = defaultdict(dict)
    for session, agent_id, key, n in turns:
        own = counts[session, "" if agent_id == session_ids[session] else agent_id]
        own[key] = own.get(key, 0) + n
    conversations = {place: _most(own) for place, own in counts.items()}
    callers: dict[tuple[int, str], str] = {
        (session, agent_id): caller for session, agent_id, caller in view.rows(_NESTED)
    }
    votes: defaultdict[AgentKey, Votes] = defaultdict(dict)
    for session, agent_id, key, n in turns:
        if agent_id in ("", session_ids[session]):
            above = conversations.get((parent_sessions.get(session, 0), ""))
        else:
            caller = (session, callers.get((session, agent_id), ""))
            above = conversations.get(caller) or conversations.get((session, ""))
        if above != key:
            votes[key][above] = votes[key].get(above, 0) + n
    return votes


def _most(votes: Votes) -> AgentKey | None:
    """Of equals the first by name."""
    if len(votes) == 1:  # as of nearly all sessions
        return next(iter(votes))
    return min(votes, key=lambda key: (-votes[key], key is not None, str(key and key.name)))


def tree(tallies: Mapping[Any, Tally], parent_of: Parents) -> list[AgentBranch]:
    """All agents, each after its parent, the most expensive subtrees first. Includes parents without turns."""
    missing = {parent for key in tallies if (parent := parent_of.get(key)) is not None} - tallies.keys()
    own: dict[AgentKey, Tally] = {**tallies, **{parent: Tally() for parent in missing}}
    above = {key: _above(key, parent_of) for key in own}
    depths: dict[AgentKey, int] = {}
    for key in own:
        line = [key]
        while (parent := above[line[-1]]) is not None:
            line.append(parent)
        depths[key] = len(line) - 1
    wholes = {key: Tally.over([tally]) for key, tally in own.items()}
    for key in sorted(own, key=lambda key: -depths[key]):
        if (parent := above[key]) is not None:
            wholes[parent].merge(wholes[key])
    below: defaultdict[AgentKey | None, list[AgentKey]] = defaultdict(list)  # the most expensive last
    for key in sorted(own, key=lambda key: (-wholes[key].units, -wholes[key].turns, str(key.name)), reverse=True):
        below[above[key]].append(key)
    branches = []
    stack = below[None]
    while stack:
        key = stack.pop()
        branches.append(AgentBranch(key, parent_of.get(key), depths[key], own[key], wholes[key]))
        stack += below[key]
    return branches


def _above(key: AgentKey, parent_of: Parents) -> AgentKey | None:
    """The parent, unless it is a descendant of the agent: stamps may form a cycle."""
    visited = set()
    other = parent_of.get(key)
    while other is not None and other not in visited:
        if other == key:
            return None
        visited.add(other)
        other = parent_of.get(other)
    return parent_of.get(key)


# Subagents that another subagent of their session called.
_NESTED = """
WITH starts AS MATERIALIZED (
  SELECT DISTINCT session, agent_id, parent_call FROM turns
  WHERE subagent <> 0 AND agent_id IS NOT NULL AND parent_call IS NOT NULL),
calls AS MATERIALIZED (
  SELECT DISTINCT t.session, t.agent_id, c.call_id FROM turns t CROSS JOIN tool_calls c ON c.turn = t.id
  WHERE t.subagent <> 0 AND t.agent_id IS NOT NULL AND c.call_id IN (SELECT parent_call FROM starts))
SELECT s.session, s.agent_id, min(c.agent_id) FROM starts s
JOIN calls c ON c.session = s.session AND c.call_id = s.parent_call AND c.agent_id <> s.agent_id GROUP BY 1, 2
"""
_WITH_SUBAGENTS = "SELECT DISTINCT session FROM turns INDEXED BY turns_of_subagents WHERE subagent <> 0"
_SUBAGENTS = "SELECT id, agent_id, type FROM subagents"
_SESSION_IDS = "SELECT id, session_id FROM sessions WHERE id IN ({numbers})"
_PARENTS = """
SELECT s.id, p.id FROM sessions s JOIN sessions p ON p.session_id = s.parent_session_id
WHERE s.parent_session_id IS NOT NULL
"""


_MOST_SORTED = 2000
_EMPTIES = MEASURES.index("empties")


class ReportSums(NamedTuple):
    total: Tally
    by_key: dict[Hashable, Tally]
    unpriced: list[str]
    by_harness: list[str]  # models whose cost is the harness's figure


def summary(view: View, params: SummaryParams) -> dict[str, Any]:
    by = dimensions.split(params.by)
    if params.tree and params.by != "agent":
        raise Mistaken("only agents form a tree", "use by agent with tree")
    scope = choose(view, params, dimensions.tag_keys(by))
    dimension = dimensions.dimension(view, by, scope.selection)
    reader = Reader(view, scope.selection, scope.classes, measures=len(MEASURES) if params.quality else BILLED)
    rows = reader.read(dimension.by)
    added = add_up(rows, scope, dimension)
    branches = tree(added.by_key, parents(view, scope, rows)) if params.tree else []
    if params.tree:
        added = added._replace(by_key={branch.key: branch.own for branch in branches})
    order = [branch.key for branch in branches[: params.limit]] or _ordered(added, dimension, params.limit)
    ended = outcomes(view, reader, scope, dimension) if params.quality else None
    ((newest,),) = view.rows("SELECT max(ts) FROM turns")
    answer: dict[str, Any] = {
        "filters": scope.filters,
        "totals": added.total.answer(),
        "unpricedModels": added.unpriced,
        "harnessModels": added.by_harness,
        "unlogged": unlogged_of(rows, scope.classes),
        "by": params.by,
        "rows": _rows(added, dimension, ended, order),
        "moreRows": len(added.by_key) - len(order),
        "newest": to_iso(newest) if newest is not None else None,  # regardless of filters
    }
    if ended is not None:
        answer["quality"] = quality(added.total, in_all(ended.values()))
    if params.tree:
        answer["rows"] = [row | branch.answer() for row, branch in zip(answer["rows"], branches, strict=False)]
    if params.series:
        answer["series"] = _series(view, reader, scope)
    return answer


def add_up(rows: Iterable[SumRow], scope: Scope, dimension: Dimension) -> ReportSums:
    """Sums rows by label, without unlogged usage."""
    by_key: defaultdict[Hashable, Tally] = defaultdict(Tally)
    unpriced: set[str] = set()
    by_harness: set[str] = set()
    classes, label = scope.classes, dimension.label
    for keys, number, tier, counts in rows:
        turn_class = classes[number]
        if turn_class.is_unlogged:
            continue
        by_key[label(keys, turn_class)].add(turn_class, tier, counts)
        if turn_class.price is None and counts[0] > counts[_EMPTIES]:
            (by_harness if turn_class.is_stated else unpriced).add(turn_class.model)
    # Revisions may leave a row empty.
    non_empty = {key: tally for key, tally in by_key.items() if not tally.is_nothing}
    total = Tally.over(non_empty.values())
    return ReportSums(total, non_empty, sorted(unpriced), sorted(by_harness))


def _ordered(added: ReportSums, dimension: Dimension, limit: int) -> list[Any]:
    """The newest in order of time, or the most expensive; equal ones by name, if not very many."""
    ranks: dict[Any, Any] = {key: (-one.units, -one.turns, -one.empty) for key, one in added.by_key.items()}
    if dimension.is_time:
        ranks = {key: (dimension.time_of(key), rank) for key, rank in ranks.items()}
    keys = sorted(ranks, key=ranks.__getitem__)
    if len(set(ranks.values())) < len(keys):
        keys = []
        for _, group in groupby(sorted(ranks, key=ranks.__getitem__), key=ranks.__getitem__):
            equals = [*group]
            if 1 < len(equals) <= _MOST_SORTED:
                facts = zip(equals, dimension.describe(equals), strict=True)
                names = {key: (fact["key"] is None, str(fact)) for key, fact in facts}
                equals.sort(key=names.__getitem__)
            keys += equals
    return keys[-limit:] if dimension.is_time else keys[:limit]


def _rows(
    added: ReportSums, dimension: Dimension, ended: dict[Hashable, Outcomes] | None, keys: list[Any]
) -> list[dict[str, Any]]:
    whole = added.total.units
    rows = []
    for key, facts in zip(keys, dimension.describe(keys), strict=True):
        tally = added.by_key[key]
        row = {**facts, **tally.answer()}
        row["share"] = tally.units / whole if whole and row["costUsd"] is not None else None
        if ended is not None:
            row["quality"] = quality(tally, ended.get(key))
        rows.append(row)
    return rows


def _series(view: View, reader: Reader, scope: Scope) -> list[dict[str, Any]]:
    days = dimensions.dimension(view, ["day"], scope.selection)
    by_day: dict[Any, Tally] = add_up(reader.read(days.by), scope, days).by_key
    order = sorted(by_day)
    return [
        {**facts, "turns": by_day[key].turns, "costUsd": by_day[key].cost_usd}
        for key, facts in zip(order, days.describe(order), strict=True)
    ]


OUTCOMES: Final = ("completed", "abandoned", "errored", "unknown")
QUIET_MS: Final = 600_000  # a session with a turn this recent may continue
Outcomes = dict[str, int]  # sessions by outcome
_DONE = frozenset(("end_turn", "stop", "stop_sequence"))
_WAITING = frozenset(("tool_use", "tool-calls"))
_REFUSED = frozenset(("refusal", "content-filter", "content_filter", "error"))
_Z = 1.959963984540054  # 95 % of a normal distribution lies within this many deviations


def quality(turns: Tally, outcomes: Outcomes | None) -> dict[str, Any]:
    return {
        "editTurns": turns.edits,
        "oneShotTurns": turns.one_shots,
        "oneShotRate": rate(turns.one_shots, turns.edits),
        "editPrompts": turns.prompts,
        "oneShotPrompts": turns.one_shot_prompts,
        "oneShotPromptRate": rate(turns.one_shot_prompts, turns.prompts),
        "oneShotInterval": wilson(turns.one_shot_prompts, turns.prompts),
        "sessions": outcomes or dict.fromkeys(OUTCOMES, 0),
    }


def outcomes(view: View, reader: Reader, scope: Scope, dimension: Dimension) -> dict[Hashable, Outcomes]:
    """Of the sessions whose last turn is selected, by row."""
    by_row: defaultdict[Hashable, Outcomes] = defaultdict(lambda: dict.fromkeys(OUTCOMES, 0))
    ended = cache(partial(_ended, view))  # many sessions have few distinct endings
    for keys, number, facts, (count,) in reader.endings(dimension.by, _FACTS.format(view.now - QUIET_MS)):
        turn_class = scope.classes[number]
        by_row[dimension.label(keys, turn_class)][ended(facts, turn_class.is_open)] += count
    return by_row


def in_all(outcomes: Collection[Outcomes]) -> Outcomes:
    return {name: sum(one[name] for one in outcomes) for name in OUTCOMES}


def _ended(view: View, facts: int, is_open: bool) -> str:
    """By the number made by `_FACTS`."""
    rest, quality = divmod(facts, len(_QUALITIES))
    reasons, is_recent = divmod(rest, 2)
    names: dict[int, str] = dict(view.keyed(_NAMED, [(number,) for number in divmod(reasons, _NAMES)]))
    stop, event = map(names.get, divmod(reasons, _NAMES))
    return outcome(stop, event, quality=_QUALITIES[quality], may_go_on=is_open or bool(is_recent))


def outcome(stop: str | None, event: str | None, *, quality: str, may_go_on: bool) -> str:
    """docs/reports.md has the rules."""
    if event in ("api_error", "refusal") or stop in _REFUSED:
        return "errored"
    if event is not None:
        return "abandoned"
    if may_go_on and stop not in _DONE:
        return "unknown"
    if quality == "empty":
        return "errored"
    if stop in _WAITING:
        return "abandoned"
    return "completed" if stop in _DONE and quality == "final" else "unknown"


def rate(part: int, whole: int) -> float | None:
    return part / whole if whole else None


def wilson(part: int, whole: int) -> list[float] | None:
    """The 95 % Wilson score interval, valid for small samples and rates near 0 and 1."""
    if not whole:
        return None
    share, square = part / whole, _Z * _Z
    middle = share + square / (2 * whole)
    spread = _Z * sqrt(share * (1 - share) / whole + square / (4 * whole * whole))
    scale = 1 + square / whole
    return [max(0.0, (middle - spread) / scale), min(1.0, (middle + spread) / scale)]


# Stop reason, later event, recency and quality in one number: grouping by it is much faster than by four columns.
_QUALITIES = ("final", "partial", "empty")
_NAMES = 1 << 31  # above every name id
_NAMED = "SELECT id, name FROM names WHERE id IN ({keys})"
_FACTS = (
    f"((coalesce(x.stop_reason, 0) * {_NAMES} + coalesce(e.event, 0)) * 2 + (x.ts >= {{}})) * {len(_QUALITIES)}"
    f" + CASE x.quality WHEN 'final' THEN 0 WHEN 'partial' THEN 1 ELSE 2 END"
)
