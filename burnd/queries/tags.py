"""What stamps say of turns, for all turns at once: the same as folding the ledger, from a few rows of the index."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from itertools import chain, pairwise
from typing import NamedTuple

from burnd.ledger.journal import lineage
from burnd.queries.view import Row, View
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
