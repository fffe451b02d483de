"""Resolves the filters that all reports share to numbers of the index, and stamps to tags of turns."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from datetime import UTC, tzinfo
from itertools import chain, pairwise
from typing import Any, NamedTuple

import msgspec

from burnd.contract.reports import UNLABELLED, Filters
from burnd.index.sums import NO_ACTIVITY
from burnd.ledger.journal import lineage
from burnd.queries import names
from burnd.queries.money import TurnClasses, classes_of
from burnd.queries.names import row_of
from burnd.queries.periods import moment, zone_of
from burnd.queries.view import Mistaken, View
from burnd.records.names import bounded, bounded_tags
from burnd.records.times import EARLIEST_MS, LATEST_MS, to_iso

Values = tuple[str | None, ...]  # of the requested keys, in order
_ALL_AT_ONCE = 2000  # above this many sessions a full scan is faster than lookups
_ALWAYS = (EARLIEST_MS, LATEST_MS + 1)


class Part(NamedTuple):
    session: int
    begin: int
    end: int
    values: Values


class TurnTags(NamedTuple):
    """The tags of all turns for the requested keys.

    `whole` has sessions whose turns all have the same tags. `parts` has the turns of the others by time, except those
    in `single`, which have a stamp of their own: by turn number, with their session.
    """

    keys: tuple[str, ...]
    whole: dict[int, Values]
    parts: list[Part]
    single: dict[int, tuple[int, Values]]


class _TimedTags(NamedTuple):
    """The tags that a stamp sets (None: removes), its place in the order of stamps, and when it applies."""

    order: tuple[int, int]
    tags: Mapping[str, str | None]
    begin: int
    end: int


def resolve_tags(view: View, keys: Iterable[str]) -> TurnTags:
    return _Resolver(view, tuple(dict.fromkeys(keys))).result()


def has_value(view: View, key: str, value: str) -> bool:
    """If no stamp has this value, no turn can match and nothing has to be resolved."""
    return bool(view.rows(_HAS_VALUE, (key, value, key, value)))


class _Resolver:
    """Fast for most sessions, which have no parent and no stamp on a part of them."""

    def __init__(self, view: View, keys: tuple[str, ...]) -> None:
        self._view = view
        self._keys = keys
        self._on_range: defaultdict[str, list[_TimedTags]] = defaultdict(list)
        self._by_message: defaultdict[str, list[_TimedTags]] = defaultdict(list)
        for key in keys:
            for position, ts, session_id, message_id, begin, end, value in view.rows(_NARROW, (key,)):
                if message_id is not None:
                    self._by_message[message_id].append(_TimedTags((ts, position), {key: value}, *_ALWAYS))
                else:
                    self._on_range[session_id].append(_TimedTags((ts, position), {key: value}, begin, end))
        self._parents: dict[str, str] = dict(view.rows(_PARENTS))
        # Of sessions with parents or partial stamps.
        self._on_session: defaultdict[str, list[_TimedTags]] = defaultdict(list)

    def result(self) -> TurnTags:
        turns = self._view.keyed(_MESSAGES, [(message_id,) for message_id in sorted(self._by_message)])
        special = self._parents.keys() | self._on_range.keys()
        lines = {name: lineage(name, self._parents) for name in (*special, *(row[-1] for row in turns))}
        self._read_tags({elder for line in lines.values() for elder in line})
        stamped = self._on_session.keys() | self._on_range.keys()
        # Tags of sessions as a whole: the last value of each key.
        values: list[dict[int, str | None]] = [dict(self._view.rows(_OWN, (key,))) for key in self._keys]
        numbers = dict.fromkeys(chain.from_iterable(values))
        whole: dict[int, Values] = dict(
            zip(numbers, zip(*[map(own.get, numbers) for own in values], strict=True), strict=True)
        )
        parts: list[Part] = []
        for number, session_id in self._numbered({name for name in special if not stamped.isdisjoint(lines[name])}):
            line = lines[session_id]
            if self._on_range.keys().isdisjoint(line):
                whole[number] = self._fold(line, EARLIEST_MS)
                continue
            whole.pop(number, None)
            stamps = [stamp for name in line for stamp in self._stamps(name)]
            cuts = sorted({*_ALWAYS, *(stamp.begin for stamp in stamps), *(stamp.end for stamp in stamps)})
            parts += [Part(number, begin, end, self._fold(line, begin)) for begin, end in pairwise(cuts)]
        mixed = {part.session for part in parts}
        nothing: Values = (None,) * len(self._keys)
        single = {}
        for turn, ts, message_id, number, session_id in turns:
            single[turn] = (number, self._fold(lines[session_id], ts, self._by_message[message_id]))
            if number not in mixed:  # the other turns of the session become a part
                mixed.add(number)
                parts.append(Part(number, *_ALWAYS, whole.pop(number, nothing)))
        return TurnTags(self._keys, whole, parts, single)

    def _read_tags(self, session_ids: set[str]) -> None:
        if len(session_ids) > _ALL_AT_ONCE:
            rows = [row for key in self._keys for row in self._view.rows(_WHOLE, (key,)) if row[1] in session_ids]
        else:
            rows = self._view.keyed(_SESSION_TAGS, [(key, name) for key in self._keys for name in sorted(session_ids)])
        for key, session_id, ts, position, value in rows:
            self._on_session[session_id].append(_TimedTags((ts, position), {key: value}, *_ALWAYS))

    def _stamps(self, session_id: str) -> list[_TimedTags]:
        return self._on_session.get(session_id, []) + self._on_range.get(session_id, [])

    def _numbered(self, session_ids: set[str]) -> list[tuple[int, str]]:
        if len(session_ids) > _ALL_AT_ONCE:
            return [row for row in self._view.rows("SELECT id, session_id FROM sessions") if row[1] in session_ids]
        sql = "SELECT id, session_id FROM sessions WHERE session_id IN ({keys})"
        return self._view.keyed(sql, [(session_id,) for session_id in sorted(session_ids)])

    def _fold(self, line: Sequence[str], ts: int, of_message: Sequence[_TimedTags] = ()) -> Values:
        tags = _fold(line, self._stamps, of_message, ts)
        return tuple(tags.get(key) for key in self._keys)


def _fold(
    line: Sequence[str], stamps_of: Callable[[str], list[_TimedTags]], of_message: Sequence[_TimedTags], ts: int
) -> dict[str, str | None]:
    """Applies the stamps of a session's line from its root down, so that its own keys win; the last one wins per key.

    Those on a message apply with those on its session.
    """
    tags: dict[str, str | None] = {}
    for session_id in line:
        stamps = [stamp for stamp in stamps_of(session_id) if stamp.begin <= ts < stamp.end]
        stamps += of_message if session_id == line[-1] else ()
        for stamp in sorted(stamps, key=lambda stamp: stamp.order):
            tags.update(stamp.tags)
    return tags


_PARENTS = "SELECT session_id, parent_session_id FROM sessions WHERE parent_session_id IS NOT NULL"
_HAS_VALUE = """
SELECT 1 FROM session_tags WHERE key = ? AND value = ?
UNION ALL SELECT 1 FROM narrow_tags WHERE key = ? AND value = ? LIMIT 1
"""
_OWN = "SELECT s.id, t.value FROM session_tags t CROSS JOIN sessions s ON s.session_id = t.session_id WHERE t.key = ?"
_WHOLE = "SELECT key, session_id, ts, position, value FROM session_tags WHERE key = ?"
_SESSION_TAGS = """
WITH w(key, session_id) AS ({keys}) SELECT t.key, t.session_id, t.ts, t.position, t.value
FROM w CROSS JOIN session_tags t ON t.key = w.key AND t.session_id = w.session_id
"""
_NARROW = "SELECT position, ts, session_id, message_id, from_ts, to_ts, value FROM narrow_tags WHERE key = ?"
_MESSAGES = """
WITH w(message_id) AS ({keys}), from_source(id) AS (SELECT DISTINCT source FROM classes)
SELECT t.id, t.ts, t.message_id, s.id, s.session_id FROM w CROSS JOIN from_source f
CROSS JOIN turns t ON t.source = f.id AND t.message_id = w.message_id JOIN sessions s ON s.id = t.session
"""


AGENTS = ("agentId", "agent")  # the first one present is a turn's agent
PARENT_AGENT = "parentAgentId"
WORKFLOWS = ("workflowId", "workflow")
OUT = -1  # the group of turns that are not selected


class Groups:
    """Turns grouped by tags; `labels` has the tag values of each group.

    Sessions without stamps are in group `rest`. Sessions in `mixed` have turns in several groups: by time in `parts`,
    except turns in `single`.
    """

    def __init__(self, tags: TurnTags, label: Callable[[Mapping[str, str | None]], Hashable | None]) -> None:
        numbers: dict[Hashable, int] = {}
        group_of: dict[Values, int] = {}

        def number(values: Values) -> int:
            if values not in group_of:
                text = label(dict(zip(tags.keys, values, strict=True)))
                group_of[values] = OUT if text is None else numbers.setdefault(text, len(numbers))
            return group_of[values]

        self.rest = number((None,) * len(tags.keys))
        self.whole = {session: number(values) for session, values in tags.whole.items()}
        self.single = {turn: number(values) for turn, (_, values) in tags.single.items()}
        self.parts: defaultdict[int, list[tuple[int, int, int]]] = defaultdict(list)
        for session, begin, end, values in tags.parts:
            self.parts[session].append((begin, end, number(values)))
        self.mixed = frozenset(self.parts)
        self.labels: tuple[Any, ...] = tuple(numbers)

    def of(self, session: int) -> int:
        return self.whole.get(session, self.rest)

    def at(self, session: int, ts: int, turn: int) -> int:
        if turn in self.single:
            return self.single[turn]
        if session in self.parts:
            return next((group for begin, end, group in self.parts[session] if begin <= ts < end), OUT)
        return self.of(session)


class Selection(NamedTuple):
    """The filters of a report in numbers of the index. None means no filter; an empty set selects nothing."""

    begin: int | None = None
    end: int | None = None
    zone: tzinfo = UTC
    classes: frozenset[int] | None = None
    places: frozenset[int] | None = None
    activities: frozenset[int] | None = None
    versions: frozenset[int] | None = None
    branches: frozenset[int] | None = None
    sessions: frozenset[int] | None = None
    groups: Groups | None = None
    agent_groups: frozenset[int] | None = None  # turns of these groups ...
    subagents: frozenset[int] = frozenset()  # ... or of these subagents, with a filter on agents

    def takes(self, group: int, subagent: int) -> bool:
        is_agent = self.agent_groups is None or group in self.agent_groups or subagent in self.subagents
        return group != OUT and is_agent

    @property
    def is_of_all_sessions(self) -> bool:
        """Sums over all sessions can be used."""
        return (self.branches, self.sessions, self.groups, self.agent_groups) == (None, None, None, None)


class Scope(NamedTuple):
    """A selection, the classes of turns, and the filters as an answer repeats them."""

    selection: Selection
    classes: TurnClasses
    filters: dict[str, Any]

    def in_view(self, view: View) -> Scope:
        """The later view may have new classes of turns."""
        return self._replace(classes=classes_of(view))


def choose(view: View, filters: Filters, tag_keys: tuple[str, ...] = ()) -> Scope:
    """With `tag_keys`, turns are also grouped by the values of these tags."""
    zone = zone_of(filters.tz)
    begin = moment(filters.since, view.now, zone) if filters.since is not None else None
    end = moment(filters.until, view.now, zone, is_end=True) if filters.until is not None else None
    if begin is not None and end is not None and begin >= end:
        raise Mistaken("until is before since", f"since is {to_iso(begin)}, until is {to_iso(end)}")
    classes = classes_of(view)
    by_class = []
    if filters.source is not None:
        by_class.append(names.by_source(classes, filters.source))
    if filters.model is not None:
        by_class.append(names.by_model(view, classes, filters.model))
    if filters.provider is not None:
        by_class.append(names.by_provider(classes, filters.provider))
    values = {name: getattr(filters, name) for name in Filters.params}
    values |= {name: to_iso(at) if at is not None else None for name, at in (("since", begin), ("until", end))}
    selection = Selection(
        begin=begin,
        end=end,
        zone=zone,
        classes=frozenset.intersection(*by_class) if by_class else None,
        places=names.places(view, filters.project) if filters.project is not None else None,
        activities=_activity(view, filters.activity) if filters.activity is not None else None,
        versions=names.version(view, filters.version) if filters.version is not None else None,
        branches=names.branch(view, filters.branch) if filters.branch is not None else None,
        sessions=frozenset(names.below(view, [row_of(view, filters.session)])) if filters.session is not None else None,
    )
    as_given = {name: value for name, value in values.items() if value not in (None, {})}
    return Scope(_by_tags(view, filters, selection, tag_keys), classes, as_given)


def _activity(view: View, label: str) -> frozenset[int]:
    if label == UNLABELLED:
        return frozenset((NO_ACTIVITY,))
    return frozenset(row[0] for row in view.rows("SELECT id FROM names WHERE name = ?", (label,)))


def _by_tags(view: View, filters: Filters, selection: Selection, tag_keys: tuple[str, ...]) -> Selection:
    """Groups turns by tags, if a filter or the report needs it; labels are the values of `tag_keys`."""
    tag_keys = tuple(map(bounded, tag_keys))
    tags_required = bounded_tags(filters.tags)
    keys = [*tags_required, *tag_keys, *(WORKFLOWS if filters.workflow is not None else ())]
    agent = None if filters.agent is None else bounded(filters.agent)
    if filters.agent is not None and agent is not None:
        selection = selection._replace(agent_groups=frozenset(), subagents=names.subagents(view, filters.agent))
        keys += AGENTS if keys or any(has_value(view, key, agent) for key in AGENTS) else ()
    if not keys:
        return selection
    workflow = None if filters.workflow is None else bounded(filters.workflow)

    def label(tags: Mapping[str, str | None]) -> Hashable | None:
        if any(tags.get(key) != value for key, value in tags_required.items()):
            return None
        if workflow is not None and workflow not in (tags.get(key) for key in WORKFLOWS):
            return None
        is_agent = agent is not None and agent in (tags.get(key) for key in AGENTS)
        return tuple(tags.get(key) for key in tag_keys), is_agent

    groups = Groups(resolve_tags(view, keys), label)
    in_groups = frozenset(number for number, (_, is_agent) in enumerate(groups.labels) if is_agent)
    groups.labels = tuple(values for values, _ in groups.labels)
    return selection._replace(groups=groups, agent_groups=None if agent is None else in_groups)


TurnKey = tuple[str, str]
Keyed = Callable[[str, Iterable[tuple[Any, ...]]], list[tuple[Any, ...]]]


def tags_of(keyed: Keyed, keys: Sequence[TurnKey]) -> dict[TurnKey, dict[str, str]]:
    """All tags of some turns by (source, messageId).

    `keyed` runs SQL with `{keys}` replaced by the keys.
    """
    turns = keyed(_TURNS, keys)
    parents: dict[str, str] = {}
    pending = {session_id for *_, session_id in turns}
    while pending:
        rows = keyed(_PARENTS_OF, [(session_id,) for session_id in sorted(pending)])
        parents.update(rows)
        pending = {parent for _, parent in rows} - parents.keys()
    lines = {session_id: lineage(session_id, parents) for *_, session_id in turns}
    ancestors = {ancestor for line in lines.values() for ancestor in line}
    by_session = _grouped(keyed(_BY_SESSION, [(s,) for s in sorted(ancestors)]))
    by_message = _grouped(keyed(_BY_MESSAGE, sorted({(key[1],) for key in keys})))
    tags: dict[TurnKey, dict[str, str]] = {}
    for source, message_id, ts, session_id in turns:
        folded = _fold(lines[session_id], by_session.__getitem__, by_message[message_id], ts)
        tags[source, message_id] = {key: value for key, value in folded.items() if value is not None}
    return tags


def _grouped(rows: Sequence[tuple[Any, ...]]) -> defaultdict[str, list[_TimedTags]]:
    grouped: defaultdict[str, list[_TimedTags]] = defaultdict(list)
    for selected, ts, position, begin, end, enrichment in rows:
        during = _ALWAYS if begin is None or end is None else (begin, end)
        grouped[selected].append(_TimedTags((ts, position), bounded_tags(msgspec.json.decode(enrichment)), *during))
    return grouped


_TURNS = (
    "WITH wanted(source, message_id) AS ({keys}) SELECT n.name, t.message_id, t.ts, s.session_id FROM wanted w "
    "CROSS JOIN names n ON n.name = w.source "
    "CROSS JOIN turns t ON t.source = n.id AND t.message_id = w.message_id "
    "JOIN sessions s ON s.id = t.session"
)
_PARENTS_OF = (
    "SELECT session_id, parent_session_id FROM sessions WHERE session_id IN ({keys}) AND parent_session_id IS NOT NULL"
)
_STAMP = "ts, position, from_ts, to_ts, enrichment FROM stamps"
_BY_SESSION = f"SELECT session_id, {_STAMP} WHERE session_id IN ({{keys}})"
_BY_MESSAGE = f"SELECT message_id, {_STAMP} WHERE message_id IN ({{keys}})"
