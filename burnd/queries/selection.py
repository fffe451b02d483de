"""The filters that all reports share, as numbers of the index, and the groups that tags divide turns into."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Mapping
from datetime import UTC, tzinfo
from typing import Any, NamedTuple

from burnd.contract.reports import UNLABELLED, Filters
from burnd.index.grains import NO_ACTIVITY
from burnd.queries import families, naming, projects
from burnd.queries.kinds import Kinds, kinds_of
from burnd.queries.periods import moment, zone_of
from burnd.queries.session_ids import row_of
from burnd.queries.tags import Stamped, Values, is_said, stamped
from burnd.queries.view import Mistaken, View
from burnd.records.names import bounded, bounded_tags
from burnd.records.times import to_iso

AGENTS = ("agentId", "agent")  # the first that a turn has is its agent
PARENT_AGENT = "parentAgentId"
WORKFLOWS = ("workflowId", "workflow")
OUT = -1  # the group of turns that are not selected


class Groups:
    """Turns divided by their tags; `labels` has the values that each number stands for.

    Sessions without a stamp are in group `rest`. `mixed` are the sessions whose turns are in several groups: by time in
    `parts`, except for the turns in `single`.
    """

    def __init__(self, stamped: Stamped, label: Callable[[Mapping[str, str | None]], Hashable | None]) -> None:
        numbers: dict[Hashable, int] = {}
        known: dict[Values, int] = {}

        def number(values: Values) -> int:
            if values not in known:
                text = label(dict(zip(stamped.keys, values, strict=True)))
                known[values] = OUT if text is None else numbers.setdefault(text, len(numbers))
            return known[values]

        self.rest = number((None,) * len(stamped.keys))
        self.whole = {session: number(values) for session, values in stamped.whole.items()}
        self.single = {turn: number(values) for turn, (_, values) in stamped.single.items()}
        self.parts: defaultdict[int, list[tuple[int, int, int]]] = defaultdict(list)
        for session, begin, end, values in stamped.parts:
            self.parts[session].append((begin, end, number(values)))
        self.mixed = frozenset(self.parts)
        self.labels: tuple[Any, ...] = tuple(numbers)

    def of(self, session: int) -> int:
        """The group of all turns of a session that is not mixed."""
        return self.whole.get(session, self.rest)

    def at(self, session: int, ts: int, turn: int) -> int:
        """The group of one turn."""
        if turn in self.single:
            return self.single[turn]
        if session in self.parts:
            return next((group for begin, end, group in self.parts[session] if begin <= ts < end), OUT)
        return self.of(session)


class Selection(NamedTuple):
    """The filters of a report in the numbers of the index. None is no filter; an empty set selects nothing."""

    begin: int | None = None
    end: int | None = None
    zone: tzinfo = UTC
    kinds: frozenset[int] | None = None
    places: frozenset[int] | None = None
    activities: frozenset[int] | None = None
    versions: frozenset[int] | None = None
    branches: frozenset[int] | None = None
    sessions: frozenset[int] | None = None
    groups: Groups | None = None
    agent_groups: frozenset[int] | None = None  # turns of these groups ...
    subagents: frozenset[int] = frozenset()  # ... or of these subagents, if either is asked for

    def takes(self, group: int, subagent: int) -> bool:
        """Whether turns of this group and subagent are selected."""
        is_theirs = self.agent_groups is None or group in self.agent_groups or subagent in self.subagents
        return group != OUT and is_theirs

    @property
    def is_of_all_sessions(self) -> bool:
        """Whether sums over all sessions can answer."""
        return (self.branches, self.sessions, self.groups, self.agent_groups) == (None, None, None, None)


class Chosen(NamedTuple):
    """A selection, the classes of turns there are, and the filters as an answer repeats them."""

    selection: Selection
    kinds: Kinds
    said: dict[str, Any]

    def in_view(self, view: View) -> Chosen:
        """The same selection in a later view of the index, which may have new classes of turns."""
        return self._replace(kinds=kinds_of(view))


def choose(view: View, filters: Filters, tag_keys: tuple[str, ...] = ()) -> Chosen:
    """What the filters select. With `tag_keys` turns are also divided by the values of those tags."""
    zone = zone_of(filters.tz)
    begin = moment(filters.since, view.now, zone) if filters.since is not None else None
    end = moment(filters.until, view.now, zone, is_end=True) if filters.until is not None else None
    if begin is not None and end is not None and begin >= end:
        raise Mistaken("until is before since", f"since is {to_iso(begin)}, until is {to_iso(end)}")
    kinds = kinds_of(view)
    selection = Selection(
        begin=begin,
        end=end,
        zone=zone,
        kinds=_kinds(view, filters, kinds),
        places=projects.places(view, filters.project) if filters.project is not None else None,
        activities=_activity(view, filters.activity) if filters.activity is not None else None,
        versions=naming.version(view, filters.version) if filters.version is not None else None,
        branches=naming.branch(view, filters.branch) if filters.branch is not None else None,
        sessions=_family(view, filters.session) if filters.session is not None else None,
    )
    return Chosen(_by_tags(view, filters, selection, tag_keys), kinds, _shown(filters, begin, end))


def _family(view: View, given: str) -> frozenset[int]:
    """The session with this id, or the only one whose id begins so, with all its child sessions."""
    return frozenset(families.below(view, [row_of(view, given)]))


def _kinds(view: View, filters: Filters, kinds: Kinds) -> frozenset[int] | None:
    wanted = []
    if filters.source is not None:
        wanted.append(naming.by_source(kinds, filters.source))
    if filters.model is not None:
        wanted.append(naming.by_model(view, kinds, filters.model))
    if filters.provider is not None:
        wanted.append(naming.by_provider(kinds, filters.provider))
    return frozenset.intersection(*wanted) if wanted else None


def _activity(view: View, label: str) -> frozenset[int]:
    if label == UNLABELLED:
        return frozenset((NO_ACTIVITY,))
    return frozenset(row[0] for row in view.rows("SELECT id FROM names WHERE name = ?", (label,)))


def _by_tags(view: View, filters: Filters, selection: Selection, tag_keys: tuple[str, ...]) -> Selection:
    """Divides turns by their stamps, if any filter or group-by needs it; a label is the values of `tag_keys`."""
    tag_keys = tuple(map(bounded, tag_keys))
    wanted = bounded_tags(filters.tags)
    keys = [*wanted, *tag_keys, *(WORKFLOWS if filters.workflow is not None else ())]
    agent = None if filters.agent is None else bounded(filters.agent)
    if filters.agent is not None and agent is not None:
        selection = selection._replace(agent_groups=frozenset(), subagents=naming.subagents(view, filters.agent))
        keys += AGENTS if keys or any(is_said(view, key, agent) for key in AGENTS) else ()
    if not keys:
        return selection
    workflow = None if filters.workflow is None else bounded(filters.workflow)

    def label(tags: Mapping[str, str | None]) -> Hashable | None:
        if any(tags.get(key) != value for key, value in wanted.items()):
            return None
        if workflow is not None and workflow not in (tags.get(key) for key in WORKFLOWS):
            return None
        is_theirs = agent is not None and agent in (tags.get(key) for key in AGENTS)
        return tuple(tags.get(key) for key in tag_keys), is_theirs

    groups = Groups(stamped(view, keys), label)
    in_groups = frozenset(number for number, (_, is_theirs) in enumerate(groups.labels) if is_theirs)
    groups.labels = tuple(values for values, _ in groups.labels)
    return selection._replace(groups=groups, agent_groups=None if agent is None else in_groups)


def _shown(filters: Filters, begin: int | None, end: int | None) -> dict[str, Any]:
    """The filters that were given, times as times."""
    shown = {name: getattr(filters, name) for name in Filters.params}
    shown |= {name: to_iso(at) if at is not None else None for name, at in (("since", begin), ("until", end))}
    return {name: value for name, value in shown.items() if value not in (None, {})}
