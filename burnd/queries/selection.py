"""Which turns a report is about, in the numbers of the index, and how tags divide them into groups."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from datetime import UTC, tzinfo
from typing import Any, NamedTuple

from burnd.queries.tags import Stamped, Values

OUT = -1  # the group of turns that are not wanted


class Groups(NamedTuple):
    """Turns divided by their tags: `labels` says what each number stands for.

    A session that is not in `whole` is in group `rest`, unless its turns are in `parts` or `single` (see `Stamped`).
    """

    labels: tuple[Any, ...]
    rest: int
    whole: dict[int, int]
    parts: list[tuple[int, int, int, int]]
    single: dict[int, tuple[int, int]]

    def of(self, session: int) -> int:
        """The group that all turns of a session are in, unless it is mixed."""
        return self.whole.get(session, self.rest)

    @property
    def mixed(self) -> set[int]:
        return {session for session, *_ in self.parts}

    @property
    def has_all(self) -> bool:
        """Whether no turn is out of them."""
        parts, single = (group for *_, group in self.parts), (group for _, group in self.single.values())
        return OUT not in {self.rest, *self.whole.values(), *parts, *single}

    def only(self, wanted: Callable[[Any], bool]) -> Groups:
        """Those of the wanted labels; all other turns are out."""
        kept = {number: number for number, label in enumerate(self.labels) if wanted(label)}
        return self._replace(
            rest=kept.get(self.rest, OUT),
            whole={session: kept.get(group, OUT) for session, group in self.whole.items()},
            parts=[(*part, kept.get(group, OUT)) for *part, group in self.parts],  # type: ignore[misc]
            single={turn: (session, kept.get(group, OUT)) for turn, (session, group) in self.single.items()},
        )


def grouped(stamped: Stamped, label: Callable[[Mapping[str, str | None]], Hashable | None]) -> Groups:
    """Groups by what `label` says of the tags; None leaves turns out."""
    numbers: dict[Hashable, int] = {}
    known: dict[Values, int] = {}

    def number(values: Values) -> int:
        if values not in known:
            said = label(dict(zip(stamped.keys, values, strict=True)))
            known[values] = OUT if said is None else numbers.setdefault(said, len(numbers))
        return known[values]

    rest = number((None,) * len(stamped.keys))
    numbered = {values: number(values) for values in dict.fromkeys(stamped.whole.values())}
    return Groups(
        rest=rest,
        whole=dict(zip(stamped.whole, map(numbered.__getitem__, stamped.whole.values()), strict=True)),
        parts=[(part.session, part.begin, part.end, number(part.values)) for part in stamped.parts],
        single={turn: (session, number(values)) for turn, (session, values) in stamped.single.items()},
        labels=tuple(numbers),
    )


class Selection(NamedTuple):
    """The filters of a report. None is no filter; an empty set lets nothing through."""

    begin: int | None = None
    end: int | None = None
    zone: tzinfo = UTC
    kinds: frozenset[int] | None = None
    places: frozenset[int] | None = None
    activities: frozenset[int] | None = None
    branches: frozenset[int] | None = None
    sessions: frozenset[int] | None = None
    groups: Groups | None = None
    agent_groups: frozenset[int] | None = None  # turns of these groups ...
    subagents: frozenset[int] = frozenset()  # ... or of these subagents, where either is asked for
    agent_type: int | None = None  # where these are all of one type and nothing else, its name

    def takes(self, group: int, subagent: int) -> bool:
        """Whether turns of this group and subagent are among the chosen."""
        is_theirs = self.agent_groups is None or group in self.agent_groups or subagent in self.subagents
        return group != OUT and is_theirs

    @property
    def undivided(self) -> Selection:
        """The same turns; not in groups, where these only divide them."""
        is_divided = self.groups is not None and self.agent_groups is None and self.groups.has_all
        return self._replace(groups=None) if is_divided else self

    @property
    def is_by_sums(self) -> bool:
        """Whether sums over all sessions can answer."""
        return self.agent_groups is None and self._is_of_all_sessions

    @property
    def is_by_type(self) -> bool:
        """Whether sums over all sessions can answer that tell types of agents apart."""
        return self.agent_type is not None and self._is_of_all_sessions

    @property
    def _is_of_all_sessions(self) -> bool:
        return (self.branches, self.sessions, self.groups) == (None, None, None)
