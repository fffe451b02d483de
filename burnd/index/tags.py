"""Resolves stamps to tags of turns from the index, with the same result as from the ledger."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import msgspec

from burnd.ledger.journal import lineage
from burnd.records.names import bounded_tags

TurnKey = tuple[str, str]
Keyed = Callable[[str, Iterable[tuple[Any, ...]]], list[tuple[Any, ...]]]


class _StampRow(NamedTuple):
    order: tuple[int, int]
    from_ts: int | None
    to_ts: int | None
    keys: dict[str, str | None]

    def covers(self, ts: int) -> bool:
        return self.from_ts is None or self.to_ts is None or self.from_ts <= ts < self.to_ts


def tags_of(keyed: Keyed, keys: Sequence[TurnKey]) -> dict[TurnKey, dict[str, str]]:
    """The tags of the turns with these (source, messageId); the last stamp wins per key.

    `keyed` runs SQL with `{keys}` replaced by the keys.
    """
    turns = keyed(_TURNS, keys)
    parents = _parents(keyed, {session_id for *_, session_id in turns})
    lines = {session_id: lineage(session_id, parents) for *_, session_id in turns}
    ancestors = {ancestor for line in lines.values() for ancestor in line}
    by_session = _grouped(keyed(_BY_SESSION, [(s,) for s in sorted(ancestors)]))
    by_message = _grouped(keyed(_BY_MESSAGE, sorted({(key[1],) for key in keys})))
    return {
        (source, message_id): _fold(lines[session_id], ts, by_session, by_message.get(message_id, []))
        for source, message_id, ts, session_id in turns
    }


def _fold(
    line: list[str], ts: int, by_session: dict[str, list[_StampRow]], of_message: list[_StampRow]
) -> dict[str, str]:
    folded: dict[str, str | None] = {}
    for session_id in line:
        own = of_message if session_id == line[-1] else []
        matching = [s for s in by_session.get(session_id, []) if s.covers(ts)] + own
        for stamp in sorted(matching, key=lambda s: s.order):
            folded.update(stamp.keys)
    return {key: value for key, value in folded.items() if value is not None}


def _parents(keyed: Keyed, session_ids: set[str]) -> dict[str, str]:
    """The parents of these sessions, up to their roots."""
    parents: dict[str, str] = {}
    pending = set(session_ids)
    while pending:
        rows = keyed(_PARENTS, [(session_id,) for session_id in sorted(pending)])
        parents.update(rows)
        pending = {parent for _, parent in rows} - parents.keys()
    return parents


def _grouped(rows: Sequence[tuple[Any, ...]]) -> dict[str, list[_StampRow]]:
    grouped: defaultdict[str, list[_StampRow]] = defaultdict(list)
    for selected, ts, position, from_ts, to_ts, enrichment in rows:
        tags = bounded_tags(msgspec.json.decode(enrichment))
        grouped[selected].append(_StampRow((ts, position), from_ts, to_ts, tags))
    return dict(grouped)


_TURNS = (
    "WITH wanted(source, message_id) AS ({keys}) SELECT n.name, t.message_id, t.ts, s.session_id FROM wanted w "
    "CROSS JOIN names n ON n.name = w.source "
    "CROSS JOIN turns t ON t.source = n.id AND t.message_id = w.message_id "
    "JOIN sessions s ON s.id = t.session"
)
_PARENTS = (
    "SELECT session_id, parent_session_id FROM sessions WHERE session_id IN ({keys}) AND parent_session_id IS NOT NULL"
)
_STAMP = "ts, position, from_ts, to_ts, enrichment FROM stamps"
_BY_SESSION = f"SELECT session_id, {_STAMP} WHERE session_id IN ({{keys}})"
_BY_MESSAGE = f"SELECT message_id, {_STAMP} WHERE message_id IN ({{keys}})"
