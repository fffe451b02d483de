"""Which turns of a rail lie on one line of the conversation: a rewound branch has not seen what another one did."""

from __future__ import annotations

from collections.abc import Sequence

from burnd.records import Turn


class Lineage:
    """Knows of any two turns whether one stands above the other."""

    def __init__(self, turns: Sequence[Turn]) -> None:
        known = {turn.message_id for turn in turns}
        below: dict[str | None, list[str]] = {}
        before: str | None = None
        for turn in turns:
            parent = turn.parent if turn.parent in known and turn.parent != turn.message_id else before
            below.setdefault(parent, []).append(turn.message_id)
            before = turn.message_id
        self._begun: dict[str, int] = {}
        self._ended: dict[str, int] = {}
        self._number(below)

    def _number(self, below: dict[str | None, list[str]]) -> None:
        """Number each turn before and after all that stand below it."""
        waiting: list[tuple[str, bool]] = [(name, False) for name in reversed(below.get(None, []))]
        count = 0
        while waiting:
            name, done = waiting.pop()
            count += 1
            if done:
                self._ended[name] = count
            elif name not in self._begun:
                self._begun[name] = count
                waiting.append((name, True))
                waiting += [(child, False) for child in reversed(below.get(name, []))]

    def is_above(self, one: str, other: str) -> bool:
        """Whether `one` was in the context of `other`, as far as parents tell."""
        if one not in self._begun or other not in self._begun:
            return False
        return self._begun[one] <= self._begun[other] and self._ended[other] <= self._ended[one]
