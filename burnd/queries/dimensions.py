"""Dimensions that reports group by: the keys to read, and the names of the rows."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from difflib import get_close_matches
from functools import cache
from typing import Any, NamedTuple

from burnd.contract.reports import DIMENSIONS, FLEET_DIMENSIONS
from burnd.queries.money import TurnClass
from burnd.queries.names import short_ids
from burnd.queries.periods import HOUR_SLOTS, day_name, hour_name, month_name, week_name
from burnd.queries.selection import AGENTS, PARENT_AGENT, Selection
from burnd.queries.sums import By
from burnd.queries.view import Mistaken, View
from burnd.records.times import to_iso

TAG = "tag:"
MAIN_BRANCHES = frozenset(("main", "master", "trunk", "develop", "dev"))  # no pull request is made from these
_OF_CLASS = ("model", "provider", "source")
_TIMES: dict[str, Callable[[int], str]] = {"day": day_name, "week": week_name, "month": month_name}
RowFacts = Sequence[Mapping[str, Any]]


class Dimension(NamedTuple):
    """`label` makes a row's key of the keys that `by` reads and of a turn's class; `describe` names the shown rows."""

    by: By
    label: Callable[[Sequence[Any], TurnClass], Hashable]
    describe: Callable[[Sequence[Any]], RowFacts]
    is_time: bool = False
    time_of: Callable[[Any], Any] = lambda key: key  # sort key of rows of a time
    is_many: bool = False  # each value of the one key is a row, and there may be very many


class AgentKey(NamedTuple):
    """An agent by its stamp `agentId` or `agent`, else by its name in the log.

    That name is the type of a subagent, an opencode agent, or the agent of a session made over the API. Both are None
    for the main conversation.
    """

    stamped: str | None
    type: str | None

    @property
    def name(self) -> str | None:
        return self.stamped if self.stamped is not None else self.type


def split(by: str, names: Sequence[str] = DIMENSIONS) -> list[str]:
    """Parses one or two dimensions, like `day` or `day,model`. Raises Mistaken."""
    parts = by.split(",", 1) if not by.startswith(TAG) or _is_pair(by, names) else [by]
    if "," in parts[-1] and set(parts[-1].split(",")) <= set(names):
        raise Mistaken(f"by {by[:80]!r} has more than two dimensions", "use two, like day,model")
    for part in parts:
        if part in FLEET_DIMENSIONS and part not in names:
            raise Mistaken(f"{part} is a dimension of many machines", "give --fleet TARGET")
        if part not in names and not (part.startswith(TAG) and part != TAG):
            close = get_close_matches(part[:40], names, 1)
            hint = f"did you mean: {close[0]}" if close else f"one of: {', '.join(names)}, tag:KEY"
            raise Mistaken(f"unknown dimension {part[:40]!r}", f"{hint}; or two of them, like day,model")
    if len(set(parts)) < len(parts):
        raise Mistaken(f"{parts[0]} is given twice", "use two different dimensions, like day,model")
    return parts


def _is_pair(by: str, names: Sequence[str]) -> bool:
    """Tag keys may contain commas."""
    second = by.partition(",")[2]
    return second in names or second.startswith(TAG)


def tag_keys(by: Sequence[str]) -> tuple[str, ...]:
    keys: dict[str, None] = {}
    for name in by:
        if name == "agent":
            keys |= dict.fromkeys((*AGENTS, PARENT_AGENT))
        elif name.startswith(TAG):
            keys[name.removeprefix(TAG)] = None
    return tuple(keys)


def dimension(view: View, by: Sequence[str], selection: Selection) -> Dimension:
    if len(by) == 1:
        return _single(view, by[0], selection, tag_keys(by))
    first, second = (_single(view, name, selection, tag_keys(by)) for name in by)
    both = first.by.plus(second.by)
    first_label, second_label = _within(first, both), _within(second, both)

    def label(keys: Sequence[Any], turn_class: TurnClass) -> Hashable:
        return first_label(keys, turn_class), second_label(keys, turn_class)

    def describe(keys: Sequence[Any]) -> RowFacts:
        firsts, seconds = first.describe([key[0] for key in keys]), second.describe([key[1] for key in keys])
        return [{**b, **a, "keys": {by[0]: a["key"], by[1]: b["key"]}} for a, b in zip(firsts, seconds, strict=True)]

    timed = first if first.is_time else second
    at = int(timed is second)
    return Dimension(both, label, describe, timed.is_time, lambda key: timed.time_of(key[at]))


def _within(one: Dimension, both: By) -> Callable[[Sequence[Any], TurnClass], Hashable]:
    label, places = one.label, [both.keys.index(key) for key in one.by.keys]
    if one.by.unit == "day" and both.unit == "hour":
        return lambda keys, turn_class: label((keys[places[0]] // HOUR_SLOTS // 24,), turn_class)
    if len(places) == 1:
        at = places[0]
        return lambda keys, turn_class: label((keys[at],), turn_class)
    return lambda keys, turn_class: label([keys[at] for at in places], turn_class)


def _single(view: View, by: str, selection: Selection, keys: tuple[str, ...]) -> Dimension:
    if by in _OF_CLASS:
        return Dimension(By(), lambda _, turn_class: getattr(turn_class, by), _plain)
    if by in _TIMES:
        name = cache(_TIMES[by])
        return Dimension(By(("time",), "day"), lambda keys, _: name(keys[0]), _plain, is_time=True)
    if by == "hour":
        return Dimension(
            By(("time",), "hour"), _first, lambda keys: _plain(map(hour_name, keys)), is_time=True, is_many=True
        )
    if by == "project":
        projects: dict[int, str | None] = dict(view.rows(_PROJECTS))
        return Dimension(By(("place",)), lambda keys, _: projects.get(keys[0]), _plain)
    if by in ("branch", "activity", "version"):
        return Dimension(By((by,)), _first, lambda keys: _texts(view, keys))  # type: ignore[arg-type]
    if by == "session":
        return Dimension(By(("session",)), _first, lambda keys: _sessions(view, keys), is_many=True)
    if by == "pr":
        pull_of = _pull_requests(view)
        return Dimension(By(("session", "branch", "place")), lambda keys, _: pull_of(*keys[:3]), _plain)
    labels = selection.groups.labels if selection.groups else ()
    if by == "agent":
        key_of = agent_keys(view, labels, keys)
        return Dimension(By(("group", "agent_type")), lambda keys, _: key_of(keys[0], keys[1]), _agents)
    at = keys.index(by.removeprefix(TAG))
    return Dimension(By(("group",)), lambda keys, _: labels[keys[0]][at], _plain)


def _pull_requests(view: View) -> Callable[[int, int, int], str | None]:
    """A function from session, branch and place of a turn to the address of its pull request.

    It is the last one that was made from the branch in the project. Else, as on a main branch, it is the only one of
    the session, or of the session that started it.
    """
    projects: dict[int, str | None] = dict(view.rows(_PROJECTS))
    by_branch: dict[tuple[str, int], str] = {}
    by_session: dict[int, set[str]] = {}
    for session, branch, name, place, pull in view.rows(_PULLS):
        by_session.setdefault(session, set()).add(pull)
        project = projects.get(place)
        if project is not None and name is not None and name not in MAIN_BRANCHES:
            by_branch[project, branch] = pull
    parents: dict[int, int] = dict(view.rows(_PARENTS)) if by_session else {}

    @cache
    def of_session(session: int) -> str | None:
        climbed: set[int] = set()
        at: int | None = session
        while at is not None and at not in by_session and at not in climbed:
            climbed.add(at)
            at = parents.get(at)
        pulls = by_session.get(at, set()) if at is not None else set()
        return next(iter(pulls)) if len(pulls) == 1 else None

    def pull_of(session: int, branch: int, place: int) -> str | None:
        if not by_session:
            return None
        return by_branch.get((projects.get(place) or "", branch)) or of_session(session)

    return pull_of


def agent_keys(view: View, labels: Sequence[Any], keys: tuple[str, ...]) -> Callable[[int, int | None], AgentKey]:
    """A function from group and agent type to agent; `keys` are the tags of the labels."""
    types: dict[int | None, str | None] = {None: None, 0: "subagent", **dict(view.rows(_TYPES))}
    places = [keys.index(key) for key in AGENTS]

    @cache
    def key_of(group: int, agent_type: int | None) -> AgentKey:
        stamped = next((name for at in places if (name := labels[group][at]) is not None), None)
        return AgentKey(stamped, None if stamped is not None else types[agent_type])

    return key_of


def _first(keys: Sequence[Any], _: TurnClass) -> Hashable:
    return keys[0]  # type: ignore[no-any-return]


def _plain(keys: Any) -> list[dict[str, Any]]:
    return [{"key": key} for key in keys]


def _agents(keys: Sequence[AgentKey]) -> list[dict[str, Any]]:
    return [{"key": key.name, "stamped": key.stamped is not None} for key in keys]


def _texts(view: View, keys: Sequence[int]) -> list[dict[str, Any]]:
    names: dict[int, str] = dict(view.numbered("SELECT id, name FROM names WHERE id IN ({numbers})", set(keys)))
    return _plain(names.get(key) for key in keys)


def _sessions(view: View, keys: Sequence[int]) -> list[dict[str, Any]]:
    facts = {
        number: {
            "key": session_id,
            "parentSessionId": parent,
            "project": project,
            "createdAt": to_iso(created) if created is not None else None,
            "title": title,
        }
        for number, session_id, parent, project, created, title in view.numbered(_SESSIONS, set(keys))
    }
    enough = short_ids(view, [row["key"] for row in facts.values()])
    return [facts[key] | {"shortId": enough[facts[key]["key"]]} for key in keys]


_PROJECTS = (
    "SELECT p.id, coalesce(k.name, f.name) FROM places p LEFT JOIN names f ON f.id = p.project "
    "LEFT JOIN names k ON k.id = p.project_key"
)
_PULLS = """
SELECT t.session, coalesce(t.branch, 0), b.name, t.place, p.name FROM turns t INDEXED BY turns_by_pull
JOIN names p ON p.id = t.pull LEFT JOIN names b ON b.id = t.branch WHERE t.pull IS NOT NULL
ORDER BY t.ts, t.message_id
"""
_PARENTS = "SELECT s.id, p.id FROM sessions s JOIN sessions p ON p.session_id = s.parent_session_id"
_TYPES = "SELECT id, name FROM names WHERE id IN (SELECT type FROM subagents)"
_SESSIONS = (
    "SELECT s.id, s.session_id, s.parent_session_id, coalesce(k.name, f.name), s.created_at, "
    "coalesce(nullif(s.title, ''), s.harness_title) FROM sessions s "
    "LEFT JOIN names f ON f.id = s.project LEFT JOIN names k ON k.id = s.project_key WHERE s.id IN ({numbers})"
)
