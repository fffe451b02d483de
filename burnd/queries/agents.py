"""Agents as a tree: each stamped agent below the one that its `parentAgentId` names."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from burnd.queries.dimensions import AgentKey
from burnd.queries.selection import Selection
from burnd.queries.sums import By, Reader
from burnd.queries.tally import Tally


class Branch(NamedTuple):
    """An agent in its place in the tree; `whole` is the sum of itself and all below it."""

    key: AgentKey
    parent: str | None
    depth: int
    own: Tally
    whole: Tally

    def answer(self) -> dict[str, Any]:
        return {"parent": self.parent, "depth": self.depth, "subtree": self.whole.answer()}


def parents(selection: Selection, reader: Reader) -> dict[str, str]:
    """Whose agent each agent is: as most of its turns say, where stamps differ."""
    votes: defaultdict[str, Counter[str]] = defaultdict(Counter)
    labels = selection.groups.labels if selection.groups else ()
    for (group,), _, _, (n, *_) in reader.read(By(("group",))):
        agent, parent = labels[group]
        if agent is not None and parent is not None and parent != agent:
            votes[agent][parent] += n
    return {agent: min(said, key=lambda parent: (-said[parent], parent)) for agent, said in votes.items()}


def tree(tallies: Mapping[Any, Tally], parent_of: Mapping[str, str]) -> list[Branch]:
    """All agents, each after the one it belongs to, the dearest with all below them first.

    A parent has its place also when no turn is its own.
    """
    named = {parent_of.get(key.stamped or "") for key in tallies} - {None} - {key.stamped for key in tallies}
    own: dict[AgentKey, Tally] = {**tallies, **{AgentKey(parent, None): Tally() for parent in named}}
    above = {key: _above(key, parent_of) for key in own}
    depths = {key: _depth(key, above) for key in own}
    wholes = {key: Tally.over([tally]) for key, tally in own.items()}
    for key in sorted(own, key=lambda key: -depths[key]):
        if (parent := above[key]) is not None:
            wholes[parent].merge(wholes[key])
    below: defaultdict[AgentKey | None, list[AgentKey]] = defaultdict(list)
    for key in sorted(own, key=lambda key: (-wholes[key].units, -wholes[key].turns, str(key.name)), reverse=True):
        below[above[key]].append(key)
    return [Branch(key, parent_of.get(key.stamped or ""), depths[key], own[key], wholes[key]) for key in _walked(below)]


def _above(key: AgentKey, parent_of: Mapping[str, str]) -> AgentKey | None:
    parent = parent_of.get(key.stamped or "")
    return None if parent is None or _is_above(key.stamped, parent, parent_of) else AgentKey(parent, None)


def _depth(key: AgentKey, above: Mapping[AgentKey, AgentKey | None]) -> int:
    depth = 0
    found = above[key]
    while found is not None:
        depth, found = depth + 1, above[found]
    return depth


def _walked(below: Mapping[AgentKey | None, list[AgentKey]]) -> Iterator[AgentKey]:
    """From the top down, each followed by those below it; they are listed from the last to the first."""
    waiting = list(below.get(None, ()))
    while waiting:
        key = waiting.pop()
        yield key
        waiting += below.get(key, ())


def _is_above(agent: str | None, other: str | None, parent_of: Mapping[str, str]) -> bool:
    """Whether an agent is found on the way up from another: stamps could form a ring."""
    seen = set()
    while other is not None and other not in seen:
        if other == agent:
            return True
        seen.add(other)
        other = parent_of.get(other)
    return False
