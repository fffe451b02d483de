"""Agents as a tree: each below the agent that started it, as a stamp `parentAgentId` or its harness records it."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from burnd.queries.dimensions import AgentKey, agent_keys, tag_keys
from burnd.queries.selection import PARENT_AGENT, Chosen
from burnd.queries.sums import By, Reader
from burnd.queries.tally import Tally
from burnd.queries.view import View

Parents = Mapping[AgentKey, AgentKey]
_BY = ("agent",)


class Branch(NamedTuple):
    """An agent in its place in the tree; `whole` is the sum of itself and all below it."""

    key: AgentKey
    parent: AgentKey | None
    depth: int
    own: Tally
    whole: Tally

    def answer(self) -> dict[str, Any]:
        name = None if self.parent is None else self.parent.name
        return {"parent": name, "depth": self.depth, "subtree": self.whole.answer()}


def parents(view: View, chosen: Chosen, reader: Reader) -> dict[AgentKey, AgentKey]:
    """The parent of each agent that has one: by the stamps of most of its turns, else by its harness.

    A harness records two kinds: a subagent within a session is below the session's main conversation, and a session
    with a parent session is below the main conversation of that. The agent with most turns of a main conversation
    stands for it. Turns without a parent count, too.
    """
    groups = chosen.selection.groups
    labels, keys = groups.labels if groups else (), tag_keys(_BY)
    key_of, parent_at = agent_keys(view, labels, keys), keys.index(PARENT_AGENT)
    subagents: dict[int, tuple[str, int | None]] = {id_: (agent, type_) for id_, agent, type_ in view.rows(_SUBAGENTS)}
    subagents[0] = ("", None)
    unlogged = {kind.id for kind in chosen.kinds if kind.is_unlogged}
    stamped: defaultdict[AgentKey, Counter[AgentKey | None]] = defaultdict(Counter)
    turns: Counter[tuple[int, str, AgentKey]] = Counter()
    for (group, session, number), kind, _, (n, *_) in reader.read(By(("group", "session", "subagent"))):
        if kind in unlogged:
            continue
        agent_id, type_ = subagents[number]
        key, parent = key_of(group, type_), labels[group][parent_at]
        turns[session, agent_id, key] += n
        if key.stamped is not None and parent is not None and parent != key.stamped:
            stamped[key][AgentKey(parent, None)] += n
    recorded = _recorded(view, turns)
    return {key: parent for votes in (recorded, stamped) for key in votes if (parent := _most(votes[key])) is not None}


def _recorded(
    view: View, turns: Mapping[tuple[int, str, AgentKey], int]
) -> defaultdict[AgentKey, Counter[AgentKey | None]]:
    """The parents of agents by their harnesses, each with the number of turns; None for no parent."""
    rows = view.keyed(_SESSIONS, [(session,) for session in {session for session, _, _ in turns}])
    sessions: dict[int, tuple[str, int | None]] = {row: (session_id, parent) for row, session_id, parent in rows}
    counts: defaultdict[int, Counter[AgentKey | None]] = defaultdict(Counter)
    for (session, agent_id, key), n in turns.items():
        if agent_id in ("", sessions[session][0]):
            counts[session][key] += n
    mains = {session: _most(counter) for session, counter in counts.items()}
    votes: defaultdict[AgentKey, Counter[AgentKey | None]] = defaultdict(Counter)
    for (session, agent_id, key), n in turns.items():
        session_id, parent_session = sessions[session]
        above = mains.get(parent_session or 0) if agent_id in ("", session_id) else mains.get(session)
        if above != key:
            votes[key][above] += n
    return votes


def _most(votes: Counter[AgentKey | None]) -> AgentKey | None:
    """The one with most votes; of equals the first by name."""
    return min(votes, key=lambda key: (-votes[key], key is not None, str(key and key.name)))


def tree(tallies: Mapping[Any, Tally], parent_of: Parents) -> list[Branch]:
    """All agents, each after its parent, the most expensive with all below them first.

    A parent is listed even if it has no turn.
    """
    missing = {parent for key in tallies if (parent := parent_of.get(key)) is not None} - tallies.keys()
    own: dict[AgentKey, Tally] = {**tallies, **{parent: Tally() for parent in missing}}
    above = {key: _above(key, parent_of) for key in own}
    depths = {key: _depth(key, above) for key in own}
    wholes = {key: Tally.over([tally]) for key, tally in own.items()}
    for key in sorted(own, key=lambda key: -depths[key]):
        if (parent := above[key]) is not None:
            wholes[parent].merge(wholes[key])
    below: defaultdict[AgentKey | None, list[AgentKey]] = defaultdict(list)
    for key in sorted(own, key=lambda key: (-wholes[key].units, -wholes[key].turns, str(key.name)), reverse=True):
        below[above[key]].append(key)
    return [Branch(key, parent_of.get(key), depths[key], own[key], wholes[key]) for key in _walked(below)]


def _above(key: AgentKey, parent_of: Parents) -> AgentKey | None:
    """The parent, unless the agent is above it: stamps may form a ring."""
    parent = parent_of.get(key)
    seen = set()
    other = parent
    while other is not None and other not in seen:
        if other == key:
            return None
        seen.add(other)
        other = parent_of.get(other)
    return parent


def _depth(key: AgentKey, above: Mapping[AgentKey, AgentKey | None]) -> int:
    depth = 0
    parent = above[key]
    while parent is not None:
        depth, parent = depth + 1, above[parent]
    return depth


def _walked(below: Mapping[AgentKey | None, list[AgentKey]]) -> Iterator[AgentKey]:
    """From the top down, each followed by those below it; they are listed from the last to the first."""
    waiting = list(below.get(None, ()))
    while waiting:
        key = waiting.pop()
        yield key
        waiting += below.get(key, ())


_SUBAGENTS = "SELECT id, agent_id, type FROM subagents"
_SESSIONS = """
SELECT s.id, s.session_id, p.id FROM sessions s LEFT JOIN sessions p ON p.session_id = s.parent_session_id
WHERE s.id IN ({keys})
"""
