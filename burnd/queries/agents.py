"""Agents as a tree: each stamped agent below the one that its `parentAgentId` names."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from typing import Any, NamedTuple

from burnd.queries.dimensions import AgentKey
from burnd.queries.reading import Reader
from burnd.queries.scanning import By
from burnd.queries.selection import Selection
from burnd.queries.tally import Tally


class Branch(NamedTuple):
    """An agent in its place in the tree; `whole` is the sum of itself and all below it."""

    key: AgentKey
    parent: str | None
    depth: int
    whole: Tally

    def answer(self) -> dict[str, Any]:
        return {"parent": self.parent, "depth": self.depth, "subtree": self.whole.answer()}


def parents(selection: Selection, reader: Reader) -> dict[str, str]:
    """Whose agent each agent is: as most of its turns say, where stamps differ."""
    votes: defaultdict[str, Counter[str]] = defaultdict(Counter)
    labels = selection.groups.labels if selection.groups else ()
    for group, _, _, n, *_ in reader.read(By(("group",))):
        agent, parent = labels[group]
        if agent is not None and parent is not None and parent != agent:
            votes[agent][parent] += n
    return {agent: min(said, key=lambda parent: (-said[parent], parent)) for agent, said in votes.items()}


def tree(tallies: Mapping[Any, Tally], parent_of: Mapping[str, str]) -> list[Branch]:
    """All agents, each after the one it belongs to, the dearest first."""
    children: defaultdict[str | None, list[AgentKey]] = defaultdict(list)
    present = {key.stamped for key in tallies}
    for key in sorted(tallies, key=lambda key: (-tallies[key].units, str(key.name))):
        parent = parent_of.get(key.stamped or "")
        is_below = parent in present and not _is_above(key.stamped, parent, parent_of)
        children[parent if is_below else None].append(key)
    branches: list[Branch] = []
    for root in children[None]:
        _descend(root, 0, tallies, parent_of, children, branches)
    return branches


def _is_above(agent: str | None, other: str | None, parent_of: Mapping[str, str]) -> bool:
    """Whether an agent is found on the way up from another: stamps could form a ring."""
    seen = set()
    while other is not None and other not in seen:
        if other == agent:
            return True
        seen.add(other)
        other = parent_of.get(other)
    return False


def _descend(
    key: AgentKey,
    depth: int,
    tallies: Mapping[Any, Tally],
    parent_of: Mapping[str, str],
    children: Mapping[str | None, list[AgentKey]],
    branches: list[Branch],
) -> Tally:
    """Puts an agent and all below it in order; returns their sum."""
    whole = Tally()
    whole.merge(tallies[key])
    branches.append(Branch(key, parent_of.get(key.stamped or ""), depth, whole))
    for child in children.get(key.stamped, ()) if key.stamped is not None else ():
        whole.merge(_descend(child, depth + 1, tallies, parent_of, children, branches))
    return whole
