"""What a report may be divided by: where each key comes from, and what it is called."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from difflib import get_close_matches
from functools import partial
from typing import Any, NamedTuple

from burnd.contract.reports import DIMENSIONS
from burnd.queries.filters import AGENT, PARENT_AGENT
from burnd.queries.kinds import Kind
from burnd.queries.periods import day_name, hour_name, month_name, week_name
from burnd.queries.scanning import By
from burnd.queries.selection import Selection
from burnd.queries.view import Mistaken, View
from burnd.records.times import to_iso

TAG = "tag:"
_OF_DAYS = {"week": week_name, "month": month_name}


class Dimension(NamedTuple):
    """One way of dividing turns. `keys` are read with each sum; `label` makes a row's key of them and the kind.

    `named` gives the rows that are shown their names, and what else is worth saying of them. `narrowed` is for what
    may have very many rows: a selection with all turns of some of them, and few others.
    """

    by: By
    label: Callable[[Sequence[Any], Kind], Hashable]
    named: Callable[[Sequence[Any]], Sequence[Mapping[str, Any]]]
    is_time: bool = False
    narrowed: Callable[[Selection, frozenset[Any]], Selection] | None = None


class AgentKey(NamedTuple):
    """An agent by the stamp `agentId`, or a subagent by its type; neither is the main conversation."""

    stamped: str | None
    type: str | None

    @property
    def name(self) -> str | None:
        return self.stamped if self.stamped is not None else self.type


def tag_keys(by: str) -> tuple[str, ...]:
    """The tags whose values are needed to divide turns so."""
    if by == "agent":
        return AGENT, PARENT_AGENT
    return (by.removeprefix(TAG),) if by.startswith(TAG) else ()


def check(by: str, names: Sequence[str] = DIMENSIONS) -> None:
    if by not in names and not (by.startswith(TAG) and by != TAG):
        close = get_close_matches(by[:40], names, 1)
        hint = f"did you mean: {close[0]}" if close else f"one of: {', '.join(names)}, tag:KEY"
        raise Mistaken(f"nothing can be divided by {by[:40]!r}", hint)


def dimension(view: View, by: str, selection: Selection) -> Dimension:
    """The dimension of that name."""
    if by in ("model", "provider", "source"):
        return Dimension(By(), lambda _, kind: getattr(kind, by), _plain)
    if by == "day":
        return Dimension(By(("time",), "day"), _first, lambda keys: _plain(map(day_name, keys)), is_time=True)
    if by in _OF_DAYS:
        name_of = _OF_DAYS[by]
        return Dimension(By(("time",), "day"), lambda keys, _: name_of(keys[0]), _plain, is_time=True)
    if by == "hour":
        return Dimension(By(("time",), "hour"), _first, _hours, is_time=True)
    if by == "project":
        projects: dict[int, str | None] = dict(view.rows(_PROJECTS))
        return Dimension(By(("place",)), lambda keys, _: projects.get(keys[0]), _plain)
    if by in ("branch", "activity"):
        column = by
        return Dimension(By((column,)), _first, partial(_texts, view))  # type: ignore[arg-type]
    if by == "session":
        return Dimension(By(("session",)), _first, partial(_sessions, view), narrowed=_of_sessions)
    labels = selection.groups.labels if selection.groups else ()
    if by == "agent":
        return _by_agent(view, labels)
    return Dimension(By(("group",)), lambda keys, _: labels[keys[0]][0], _plain, narrowed=_of_values)


def _by_agent(view: View, labels: Sequence[Any]) -> Dimension:
    types: dict[int | None, str | None] = {None: None, 0: "subagent", **dict(view.rows(_TYPES))}

    def label(keys: Sequence[Any], _: Kind) -> AgentKey:
        stamped = labels[keys[0]][0]
        return AgentKey(stamped, None if stamped is not None else types[keys[1]])

    return Dimension(By(("group", "agent_type")), label, _agents, narrowed=_of_agents)


def _first(keys: Sequence[Any], _: Kind) -> Hashable:
    return keys[0]  # type: ignore[no-any-return]


def _plain(keys: Any) -> list[dict[str, Any]]:
    return [{"key": key} for key in keys]


def _hours(keys: Sequence[tuple[int, int]]) -> list[dict[str, Any]]:
    return _plain(hour_name(*key) for key in keys)


def _agents(keys: Sequence[AgentKey]) -> list[dict[str, Any]]:
    return [{"key": key.name, "stamped": key.stamped is not None} for key in keys]


def _of_sessions(selection: Selection, sessions: frozenset[int]) -> Selection:
    return selection._replace(sessions=sessions if selection.sessions is None else sessions & selection.sessions)


def _of_values(selection: Selection, values: frozenset[str | None]) -> Selection:
    """Turns whose first tag has one of these values."""
    groups = selection.groups
    return selection._replace(groups=groups.only(lambda label: label[0] in values) if groups is not None else None)


def _of_agents(selection: Selection, keys: frozenset[AgentKey]) -> Selection:
    return _of_values(selection, frozenset(key.stamped for key in keys))


def _texts(view: View, keys: Sequence[int]) -> list[dict[str, Any]]:
    names: dict[int, str] = dict(
        view.keyed("SELECT id, name FROM names WHERE id IN ({keys})", [(key,) for key in keys])
    )
    return _plain(names.get(key) for key in keys)


def _sessions(view: View, keys: Sequence[int]) -> list[dict[str, Any]]:
    found = {row[0]: row[1:] for row in view.keyed(_SESSIONS, [(key,) for key in keys])}
    rows = []
    for key in keys:
        session_id, parent, project, created, title = found[key]
        begun = to_iso(created) if created is not None else None
        about = {"parentSessionId": parent, "project": project, "createdAt": begun, "title": title}
        rows.append({"key": session_id, **about})
    return rows


_PROJECTS = (
    "SELECT p.id, coalesce(k.name, f.name) FROM places p LEFT JOIN names f ON f.id = p.project "
    "LEFT JOIN names k ON k.id = p.project_key"
)
_TYPES = "SELECT id, name FROM names WHERE id IN (SELECT type FROM subagents)"
_SESSIONS = (
    "SELECT s.id, s.session_id, s.parent_session_id, coalesce(k.name, f.name), s.created_at, "
    "coalesce(nullif(s.title, ''), s.harness_title) FROM sessions s "
    "LEFT JOIN names f ON f.id = s.project LEFT JOIN names k ON k.id = s.project_key WHERE s.id IN ({keys})"
)
