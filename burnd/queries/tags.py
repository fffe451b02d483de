"""What stamps say of turns, for all turns at once: the same as folding the ledger, from a few rows of the index."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from itertools import pairwise
from typing import NamedTuple

from burnd.ledger.fold import lineage
from burnd.queries.view import View
from burnd.records.times import EARLIEST_MS, LATEST_MS

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
    """What a stamp says of one key: its place in the order of stamps, the value, and when it holds."""

    order: tuple[int, int]
    value: str
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
    def __init__(self, view: View, keys: tuple[str, ...]) -> None:
        self._view = view
        self._keys = keys
        # Of the stamps on whole sessions the last for each key: the others can never count.
        self._on_session = [{row[0]: row for row in view.rows(_WHOLE, (key,))} for key in keys]
        self._on_range: defaultdict[str, list[_Word]] = defaultdict(list)
        self._by_message: defaultdict[str, list[_Word]] = defaultdict(list)
        for key in range(len(keys)):
            self._read_narrow(key)
        self._stamped = set().union(self._on_range, *self._on_session)
        self._parents: dict[str, str] = dict(view.rows(_PARENTS)) if self._stamped else {}

    def _read_narrow(self, key: int) -> None:
        for position, ts, session_id, message_id, begin, end, value in self._view.rows(_NARROW, (self._keys[key],)):
            if message_id is not None:
                self._by_message[message_id].append(_Word((ts, position), value, key, *_ALWAYS))
            else:
                self._on_range[session_id].append(_Word((ts, position), value, key, begin, end))

    def result(self) -> Stamped:
        whole: dict[int, Values] = {}
        parts: list[Part] = []
        on_session, special = self._on_session, self._parents.keys() | self._on_range.keys()
        for number, session_id in self._sessions():
            if session_id not in special:
                whole[number] = tuple([said[session_id][3] if session_id in said else None for said in on_session])
                continue
            line = lineage(session_id, self._parents)
            if self._on_range.keys().isdisjoint(line):
                whole[number] = self._fold(line, EARLIEST_MS)
            else:
                parts += self._parts(number, line)
        single = self._single(parts, whole)
        return Stamped(self._keys, whole, parts, single)

    def _words(self, session_id: str) -> list[_Word]:
        """All that is said of a session, whenever it holds."""
        rows = [(key, said[session_id]) for key, said in enumerate(self._on_session) if session_id in said]
        words = [_Word((ts, position), value, key, *_ALWAYS) for key, (_, ts, position, value) in rows]
        return words + self._on_range.get(session_id, [])

    def _sessions(self) -> list[tuple[int, str]]:
        """The sessions that are stamped, and those below them."""
        wanted = set(self._stamped)
        children: defaultdict[str, list[str]] = defaultdict(list)
        for child, parent in self._parents.items():
            children[parent].append(child)
        below = [child for session_id in wanted for child in children[session_id]] if children else []
        while below:
            new = set(below) - wanted
            wanted |= new
            below = [child for session_id in new for child in children[session_id]]
        if len(wanted) > _ALL_AT_ONCE:
            return [row for row in self._view.rows("SELECT id, session_id FROM sessions") if row[1] in wanted]
        sql = "SELECT id, session_id FROM sessions WHERE session_id IN ({keys})"
        return self._view.keyed(sql, [(session_id,) for session_id in sorted(wanted)])

    def _parts(self, number: int, line: list[str]) -> list[Part]:
        cuts = set(_ALWAYS)
        for session_id in line:
            for word in self._words(session_id):
                cuts |= {word.begin, word.end}
        return [Part(number, begin, end, self._fold(line, begin)) for begin, end in pairwise(sorted(cuts))]

    def _single(self, parts: list[Part], whole: dict[int, Values]) -> dict[int, tuple[int, Values]]:
        """The turns with stamps of their own; their sessions' other turns become parts."""
        found = self._view.keyed(_MESSAGES, [(message_id,) for message_id in sorted(self._by_message)])
        mixed = {part.session for part in parts}
        nothing: Values = (None,) * len(self._keys)
        single = {}
        for turn, ts, message_id, number, session_id in found:
            line = lineage(session_id, self._parents)
            single[turn] = (number, self._fold(line, ts, self._by_message[message_id]))
            if number not in mixed:
                mixed.add(number)
                parts.append(Part(number, *_ALWAYS, whole.pop(number, nothing)))
        return single

    def _fold(self, line: list[str], ts: int, of_message: Iterable[_Word] = ()) -> Values:
        """The root's stamps first, then those of its child on the way down, so that a session's own keys win."""
        words: list[_Word] = []
        for session_id in line:
            said = [word for word in self._words(session_id) if word.begin <= ts < word.end]
            words += sorted([*said, *of_message] if session_id is line[-1] else said)
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
_WHOLE = "SELECT session_id, ts, position, value FROM session_tags WHERE key = ?"
_NARROW = "SELECT position, ts, session_id, message_id, from_ts, to_ts, value FROM narrow_tags WHERE key = ?"
_MESSAGES = """
WITH w(message_id) AS ({keys}), from_source(id) AS (SELECT DISTINCT source FROM classes)
SELECT t.id, t.ts, t.message_id, s.id, s.session_id FROM w CROSS JOIN from_source f
CROSS JOIN turns t ON t.source = f.id AND t.message_id = w.message_id JOIN sessions s ON s.id = t.session
"""
