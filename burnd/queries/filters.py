"""The filters that all reports share: from what a caller says to the numbers of the index."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from typing import Any, NamedTuple

from burnd.contract.reports import UNLABELLED, Filters
from burnd.index.grains import NO_ACTIVITY
from burnd.queries import families, naming, projects
from burnd.queries.kinds import Kinds, kinds_of
from burnd.queries.periods import moment, zone_of
from burnd.queries.selection import Selection, grouped
from burnd.queries.session_ids import row_of
from burnd.queries.tags import is_said, stamped
from burnd.queries.view import Mistaken, View
from burnd.records.names import bounded, bounded_tags
from burnd.records.times import to_iso

AGENT, PARENT_AGENT = "agentId", "parentAgentId"
WORKFLOWS = ("workflowId", "workflow")


class Chosen(NamedTuple):
    """A selection, the kinds of turns there are, and the filters as an answer repeats them."""

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
        raise Mistaken("the time ends before it begins", f"since is {to_iso(begin)}, and it is up to {to_iso(end)}")
    kinds = kinds_of(view)
    selection = Selection(
        begin=begin,
        end=end,
        zone=zone,
        kinds=_kinds(view, filters, kinds),
        places=projects.places(view, filters.project) if filters.project is not None else None,
        activities=_activity(view, filters.activity) if filters.activity is not None else None,
        branches=naming.branch(view, filters.branch) if filters.branch is not None else None,
        sessions=_family(view, filters.session) if filters.session is not None else None,
    )
    return Chosen(_by_tags(view, filters, selection, tag_keys), kinds, _said(filters, begin, end))


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
    """Divides turns by what their stamps say, where that matters; a label is the values of `tag_keys`."""
    tag_keys = tuple(map(bounded, tag_keys))
    keys = [*bounded_tags(filters.tags), *tag_keys]
    keys += WORKFLOWS if filters.workflow is not None else ()
    if filters.agent is not None:
        theirs, of_type = naming.subagents(view, filters.agent)
        selection = selection._replace(agent_groups=frozenset(), subagents=theirs, agent_type=of_type)
        keys += (AGENT,) if keys or is_said(view, AGENT, bounded(filters.agent)) else ()
    if not keys:
        return selection
    groups = grouped(stamped(view, keys), _label(filters, tag_keys))
    if filters.agent is None:
        return selection._replace(groups=groups)
    return selection._replace(
        groups=groups._replace(labels=tuple(values for values, _ in groups.labels)),
        agent_groups=frozenset(n for n, (_, is_theirs) in enumerate(groups.labels) if is_theirs),
    )


def _label(filters: Filters, tag_keys: tuple[str, ...]) -> Callable[[Mapping[str, str | None]], Hashable | None]:
    wanted = bounded_tags(filters.tags)
    workflow = None if filters.workflow is None else bounded(filters.workflow)
    agent = None if filters.agent is None else bounded(filters.agent)

    def label(tags: Mapping[str, str | None]) -> Hashable | None:
        if any(tags.get(key) != value for key, value in wanted.items()):
            return None
        if workflow is not None and workflow not in (tags.get(key) for key in WORKFLOWS):
            return None
        values = tuple(tags.get(key) for key in tag_keys)
        return values if agent is None else (values, tags.get(AGENT) == agent)

    return label


def _said(filters: Filters, begin: int | None, end: int | None) -> dict[str, Any]:
    """The filters as they were understood: times as times, what was not said left out."""
    said: dict[str, Any] = {
        "since": to_iso(begin) if begin is not None else None,
        "until": to_iso(end) if end is not None else None,
        "tz": filters.tz,
        "project": filters.project,
        "session": filters.session,
        "workflow": filters.workflow,
        "agent": filters.agent,
        "tags": filters.tags or None,
        "source": filters.source,
        "model": filters.model,
        "provider": filters.provider,
        "branch": filters.branch,
        "activity": filters.activity,
    }
    return {name: value for name, value in said.items() if value is not None}
