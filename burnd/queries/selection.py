"""The filters that all reports share, as numbers of the index, and the groups that tags divide turns into."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping
from datetime import UTC, tzinfo
from itertools import chain, pairwise
from typing import Any, NamedTuple

from burnd.contract.reports import UNLABELLED, Filters
from burnd.index.sums import NO_ACTIVITY
from burnd.ledger.journal import lineage
from burnd.queries import names, session_ids
from burnd.queries.periods import moment, zone_of
from burnd.queries.session_ids import row_of
from burnd.queries.tally import Kinds, kinds_of
from burnd.queries.view import Mistaken, Row, View
from burnd.records.names import bounded, bounded_tags
from burnd.records.times import EARLIEST_MS, LATEST_MS, to_iso

Values = tuple[str | None, ...]  # of the keys that were asked for, in their order
_ALL_AT_ONCE = 2000  # more sessions than this are quicker read in one go than looked up
_ALWAYS = (EARLIEST_MS, LATEST_MS + 1)


class Part(NamedTuple):
    """The turns of a session from this millisecond on, up to but not including that one."""

    session: int
    begin: int
    end: int
    values: Values


class Stamped(NamedTuple):
    """The tags of all turns that have any, for the keys that were asked for.

    `whole` has sessions all of whose turns are tagged the same, `parts` all of the others' turns, by time, except for
    those in `single`: turns that have a stamp of their own, by their number, with their session.
    """

    keys: tuple[str, ...]
    whole: dict[int, Values]
    parts: list[Part]
    single: dict[int, tuple[int, Values]]


class _Word(NamedTuple):
    """What a stamp says of one key: its place in the order of stamps, the value (None: removed), and when it holds."""

    order: tuple[int, int]
    value: str | None
    key: int
    begin: int
    end: int


def stamped(view: View, keys: Iterable[str]) -> Stamped:
    """Folds the stamps that say any of these keys."""
    return _Fold(view, tuple(dict.fromkeys(keys))).result()


def is_said(view: View, key: str, value: str) -> bool:
    """Whether any stamp gives this key this value: where none does, nothing needs to be folded to find its turns."""
    return bool(view.rows(_SAID, (key, value, key, value)))


class _Fold:
    """Most sessions have no parent and no stamp on a part of them: what was said of those is read as it is."""

    def __init__(self, view: View, keys: tuple[str, ...]) -> None:
        self._view = view
        self._keys = keys
        self._on_range: defaultdict[str, list[_Word]] = defaultdict(list)
        self._by_message: defaultdict[str, list[_Word]] = defaultdict(list)
        for key in range(len(keys)):
            self._read_narrow(key)
        self._parents: dict[str, str] = dict(view.rows(_PARENTS))
        self._on_session: defaultdict[str, list[_Word]] = defaultdict(list)  # of those of which more is to be said

    def _read_narrow(self, key: int) -> None:
        for position, ts, session_id, message_id, begin, end, value in self._view.rows(_NARROW, (self._keys[key],)):
            if message_id is not None:
                self._by_message[message_id].append(_Word((ts, position), value, key, *_ALWAYS))
            else:
                self._on_range[session_id].append(_Word((ts, position), value, key, begin, end))

    def result(self) -> Stamped:
        turns = self._view.keyed(_MESSAGES, [(message_id,) for message_id in sorted(self._by_message)])
        special = self._parents.keys() | self._on_range.keys()
        lines = {name: lineage(name, self._parents) for name in (*special, *(row[-1] for row in turns))}
        self._read_words({elder for line in lines.values() for elder in line})
        stamped = self._on_session.keys() | self._on_range.keys()
        whole = self._own()
        parts: list[Part] = []
        for number, session_id in self._numbered({name for name in special if not stamped.isdisjoint(lines[name])}):
            line = lines[session_id]
            if self._on_range.keys().isdisjoint(line):
                whole[number] = self._fold(line, EARLIEST_MS)
            else:
                whole.pop(number, None)
                parts += self._parts(number, line)
        single = self._single(turns, lines, parts, whole)
        return Stamped(self._keys, whole, parts, single)

    def _own(self) -> dict[int, Values]:
        """What is said of sessions as a whole: the last for each key, since the others can never count."""
        said: list[dict[int, str | None]] = [dict(self._view.rows(_OWN, (key,))) for key in self._keys]
        numbers = dict.fromkeys(chain.from_iterable(said))
        return dict(zip(numbers, zip(*[map(own.get, numbers) for own in said], strict=True), strict=True))

    def _read_words(self, session_ids: set[str]) -> None:
        if len(session_ids) > _ALL_AT_ONCE:
            found = [row for key in self._keys for row in self._view.rows(_WHOLE, (key,)) if row[1] in session_ids]
        else:
            found = self._view.keyed(_WORDS, [(key, name) for key in self._keys for name in sorted(session_ids)])
        for key, session_id, ts, position, value in found:
            self._on_session[session_id].append(_Word((ts, position), value, self._keys.index(key), *_ALWAYS))

    def _words(self, session_id: str) -> list[_Word]:
        """All that is said of a session, whenever it holds."""
        return self._on_session.get(session_id, []) + self._on_range.get(session_id, [])

    def _numbered(self, session_ids: set[str]) -> list[tuple[int, str]]:
        if len(session_ids) > _ALL_AT_ONCE:
            return [row for row in self._view.rows("SELECT id, session_id FROM sessions") if row[1] in session_ids]
        sql = "SELECT id, session_id FROM sessions WHERE session_id IN ({keys})"
        return self._view.keyed(sql, [(session_id,) for session_id in sorted(session_ids)])

    def _parts(self, number: int, line: list[str]) -> list[Part]:
        cuts = set(_ALWAYS)
        for session_id in line:
            for word in self._words(session_id):
                cuts |= {word.begin, word.end}
        return [Part(number, begin, end, self._fold(line, begin)) for begin, end in pairwise(sorted(cuts))]

    def _single(
        self, turns: list[Row], lines: Mapping[str, list[str]], parts: list[Part], whole: dict[int, Values]
    ) -> dict[int, tuple[int, Values]]:
        """The turns with stamps of their own; their sessions' other turns become parts."""
        mixed = {part.session for part in parts}
        nothing: Values = (None,) * len(self._keys)
        single = {}
        for turn, ts, message_id, number, session_id in turns:
            single[turn] = (number, self._fold(lines[session_id], ts, self._by_message[message_id]))
            if number not in mixed:
                mixed.add(number)
                parts.append(Part(number, *_ALWAYS, whole.pop(number, nothing)))
        return single

    def _fold(self, line: list[str], ts: int, of_message: Iterable[_Word] = ()) -> Values:
        """The root's stamps first, then those of its child on the way down, so that a session's own keys win."""
        words: list[_Word] = []
        for session_id in line:
            said = [word for word in self._words(session_id) if word.begin <= ts < word.end]
            words += sorted([*said, *of_message] if session_id is line[-1] else said, key=lambda word: word.order)
        return self._values(words)

    def _values(self, words: list[_Word]) -> Values:
        values: list[str | None] = [None] * len(self._keys)
        for word in words:
            values[word.key] = word.value
        return tuple(values)


_PARENTS = "SELECT session_id, parent_session_id FROM sessions WHERE parent_session_id IS NOT NULL"
_SAID = """
SELECT 1 FROM session_tags WHERE key = ? AND value = ?
UNION ALL SELECT 1 FROM narrow_tags WHERE key = ? AND value = ? LIMIT 1
"""
_OWN = "SELECT s.id, t.value FROM session_tags t CROSS JOIN sessions s ON s.session_id = t.session_id WHERE t.key = ?"
_WHOLE = "SELECT key, session_id, ts, position, value FROM session_tags WHERE key = ?"
_WORDS = """
WITH w(key, session_id) AS ({keys}) SELECT t.key, t.session_id, t.ts, t.position, t.value
FROM w CROSS JOIN session_tags t ON t.key = w.key AND t.session_id = w.session_id
"""
_NARROW = "SELECT position, ts, session_id, message_id, from_ts, to_ts, value FROM narrow_tags WHERE key = ?"
_MESSAGES = """
WITH w(message_id) AS ({keys}), from_source(id) AS (SELECT DISTINCT source FROM classes)
SELECT t.id, t.ts, t.message_id, s.id, s.session_id FROM w CROSS JOIN from_source f
CROSS JOIN turns t ON t.source = f.id AND t.message_id = w.message_id JOIN sessions s ON s.id = t.session
"""


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
        places=names.places(view, filters.project) if filters.project is not None else None,
        activities=_activity(view, filters.activity) if filters.activity is not None else None,
        versions=names.version(view, filters.version) if filters.version is not None else None,
        branches=names.branch(view, filters.branch) if filters.branch is not None else None,
        sessions=_family(view, filters.session) if filters.session is not None else None,
    )
    return Chosen(_by_tags(view, filters, selection, tag_keys), kinds, _shown(filters, begin, end))


def _family(view: View, given: str) -> frozenset[int]:
    """The session with this id, or the only one whose id begins so, with all its child sessions."""
    return frozenset(session_ids.below(view, [row_of(view, given)]))


def _kinds(view: View, filters: Filters, kinds: Kinds) -> frozenset[int] | None:
    wanted = []
    if filters.source is not None:
        wanted.append(names.by_source(kinds, filters.source))
    if filters.model is not None:
        wanted.append(names.by_model(view, kinds, filters.model))
    if filters.provider is not None:
        wanted.append(names.by_provider(kinds, filters.provider))
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
        selection = selection._replace(agent_groups=frozenset(), subagents=names.subagents(view, filters.agent))
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
