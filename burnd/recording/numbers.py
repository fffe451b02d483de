"""Which number a step has on its rail: the one it was first given, though rows before it may be deleted later."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from burnd.index.store import IndexStore
from burnd.recording.batch import Told
from burnd.recording.known import Rail

_RAIL = "t.session = s.id AND t.rail = w.rail"
_HIGHEST = (
    f"WITH wanted(session_id, rail) AS ({{keys}}) SELECT w.session_id, w.rail, (SELECT max(t.turn_index) FROM turns t "
    f"WHERE {_RAIL}) FROM wanted w CROSS JOIN sessions s ON s.session_id = w.session_id"
)
_OWN = (
    "WITH wanted(source, message_id) AS ({keys}) SELECT s.session_id, t.rail, t.message_id, t.turn_index FROM wanted w "
    "JOIN names n ON n.name = w.source CROSS JOIN turns t ON t.source = n.id AND t.message_id = w.message_id "
    "CROSS JOIN sessions s ON s.id = t.session"
)
_GIVEN = (
    "WITH wanted(session_id, rail) AS ({keys}) SELECT w.session_id, w.rail, t.message_id, t.turn_index FROM wanted w "
    f"CROSS JOIN sessions s ON s.session_id = w.session_id CROSS JOIN turns t ON {_RAIL}"
)


async def numbered(index: IndexStore, told: Sequence[Told]) -> list[Told]:
    """The steps with the numbers that stay theirs.

    A step is told by its place among the rows that are there. Where rows are gone, what was told before keeps the
    number it has, and what is new comes after them all. Only that needs a look at the whole rail.
    """
    rails = sorted({_rail(one) for one in told})
    highest = {(row[0], row[1]): row[2] for row in await index.keyed(_HIGHEST, rails)}
    passed = [one for one in told if (highest.get(_rail(one)) or 0) >= one.turn.turn_index]
    given: dict[Rail, dict[str, int]] = {_rail(one): {} for one in passed}
    await _add(given, index, _OWN, {(one.turn.source, one.turn.message_id) for one in passed})
    new = {_rail(one) for one in passed if one.turn.message_id not in given[_rail(one)]}
    await _add(given, index, _GIVEN, new)
    return [_numbered(one, given[_rail(one)]) if _rail(one) in given else one for one in told]


async def _add(given: dict[Rail, dict[str, int]], index: IndexStore, sql: str, keys: Iterable[tuple[str, str]]) -> None:
    for session_id, rail, message_id, number in await index.keyed(sql, sorted(keys)):
        if (session_id, rail) in given:
            given[session_id, rail][message_id] = number


def _numbered(one: Told, given: dict[str, int]) -> Told:
    number = place = one.turn.turn_index
    name = one.turn.message_id
    if name in given:
        number = max(place, given[name])
    elif one.there is not None and not given.keys() <= one.there:
        number = given[name] = max(place, 1 + max(given.values()))
    return one if number == place else one._replace(turn=replace(one.turn, turn_index=number))


def _rail(one: Told) -> Rail:
    return (one.turn.session_id, one.turn.rail_id)
