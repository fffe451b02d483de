"""Queries of the index for ownership: links of agents, projects, shared messages, copied rows, numbers of rows."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from burnd.index import copies
from burnd.index.change import AgentRow, OpenTurn
from burnd.index.store import IndexStore
from burnd.recording.batch import Submission
from burnd.recording.ownership import SharedMessage, holder, row_number
from burnd.records import Turn
from burnd.records.codec import decode
from burnd.records.content import MAIN
from burnd.records.times import index_ms

Key = tuple[str, str]  # source and message id
Rail = tuple[str, str]  # session and rail


class Project(NamedTuple):
    """A folder, and the key of its remote if it is known."""

    folder: str
    key: str | None = None


async def open_turns(index: IndexStore, rows: Sequence[int]) -> dict[int, OpenTurn]:
    """Reads those of these rows of turns that may still grow."""
    opened = await index.keyed(_OPEN, [(row,) for row in rows])
    decoded = ((row, decode(record), source, path) for row, record, source, path in opened)
    return {row: OpenTurn(entry, source, path) for row, entry, source, path in decoded if isinstance(entry, Turn)}


async def projects_of(index: IndexStore, sessions: Iterable[str]) -> dict[str, Project]:
    """Finds the projects of these sessions that a record of the session states."""
    rows = await index.keyed(_PROJECTS, [(session,) for session in sorted(sessions)])
    return {session: Project(folder, key) for session, folder, key in rows}


async def turns_without_project(index: IndexStore, sessions: Iterable[str]) -> set[Key]:
    """Finds the turns of these sessions that take the session's project."""
    return _pairs(await index.keyed(_WITHOUT_PROJECT, [(session,) for session in sorted(sessions)]))


async def turns_on(index: IndexStore, rails: Iterable[Rail]) -> set[Key]:
    """Finds the turns on these rails."""
    return _pairs(await index.keyed(_ON_RAILS, sorted(rails)))


async def group_members(index: IndexStore, groups: Iterable[Rail]) -> set[Rail]:
    """Finds the agents of these workflow runs and teams."""
    return _pairs(await index.keyed(_MEMBERS, sorted(groups)))


async def agent_links(index: IndexStore, turns: Iterable[Turn], new: Sequence[AgentRow]) -> dict[Rail, list[AgentRow]]:
    """Finds the links of the agents of these turns, by rail: the best first, those of the agent's group last."""
    rails = {holder(turn) for turn in turns if turn.subagent is not None}
    links: defaultdict[Rail, list[AgentRow]] = defaultdict(list)
    for row in (*(AgentRow(*row) for row in await index.keyed(_AGENTS, sorted(rails))), *new):
        links[row.session_id, row.agent_id].append(row)
    groups = {(row.session_id, row.group_id) for rows in links.values() for row in rows if row.group_id is not None}
    for row in (AgentRow(*row) for row in await index.keyed(_AGENTS, sorted(groups - rails))):
        links[row.session_id, row.agent_id].append(row)
    # Of equally good links the earliest comes first, in any order of reading.
    ordered = {
        rail: sorted(rows, key=lambda row: (row.evidence, row.ts, row.tool_use_id, row.type or ""))
        for rail, rows in links.items()
    }
    return {rail: [*rows, *_links_of_groups(rows, ordered)] for rail, rows in ordered.items()}


def _links_of_groups(rows: Sequence[AgentRow], ordered: Mapping[Rail, Sequence[AgentRow]]) -> Iterator[AgentRow]:
    for session_id, group_id in {(row.session_id, row.group_id): None for row in rows if row.group_id is not None}:
        yield from ordered.get((session_id, group_id or ""), ())


async def shared_messages(
    index: IndexStore, sessions: frozenset[str], current: Mapping[Key, SharedMessage]
) -> dict[Key, SharedMessage]:
    """Finds all messages of these sessions and of those they share any with; `current` is newer than the index."""
    messages = await _messages_of(index, sessions, current)
    others = frozenset(session for message in messages.values() for session in message.sessions) - sessions
    return messages | await _messages_of(index, others, current)


async def parting_sessions(index: IndexStore, own: Mapping[str, Turn], shared: Iterable[SharedMessage]) -> set[str]:
    """Finds those of the sessions of `own` that may part from others with these turns, which each has alone.

    `shared` are the messages of the batch that several sessions may have. One more turn costs a look at the one before
    it: only where a session parts from another, or repeats it, are all of its messages looked up.
    """
    places = [(session, turn.turn_index - 1) for session, turn in own.items() if turn.turn_index]
    before = {row[0]: row[1:] for row in await index.keyed(_BEFORE, places)}
    copied = await _copies_of(index, [(source, message) for source, message, _ in before.values()])
    in_others = (one.sessions for one in shared if len(one.sessions) > 1)
    parting = {session for sessions in in_others for session in sessions if session in own}
    for session, (source, message, ts) in before.items():
        if (source, message) in copied or ts > index_ms(own[session].ts):
            parting.add(session)
    # The one before is not its own: it may be a copy.
    others = [(session,) for session, _ in places if session not in before]
    return parting.union(*await index.keyed(_REPEATING, others))


async def _messages_of(
    index: IndexStore, sessions: frozenset[str], current: Mapping[Key, SharedMessage]
) -> dict[Key, SharedMessage]:
    wanted = [(session,) for session in sorted(sessions)]
    own = _pairs(await index.keyed(_OWN, wanted))
    copied = {copies.holder_of(key)[0] for (key,) in await index.keyed(_COPIED, wanted)}
    keys = sorted((own | copied) - current.keys())
    others = await _copies_of(index, keys)
    messages = {
        (source, message): SharedMessage(ts, frozenset({session, *others.get((source, message), ())}))
        for source, message, ts, session in await index.keyed(_OWNERS, keys)
    }
    return messages | {key: message for key, message in current.items() if message.sessions & sessions}


async def _copies_of(index: IndexStore, keys: Iterable[Key]) -> dict[Key, set[str]]:
    """Finds the sessions with copies of messages on their main rail."""
    sessions: defaultdict[Key, set[str]] = defaultdict(set)
    for (key,) in await index.keyed(_COPIES, copies.spans(keys)):
        message, session = copies.holder_of(key)
        sessions[message].add(session)
    return sessions


async def possible_copies(index: IndexStore, turns: Iterable[Turn]) -> set[Key]:
    """Finds the messages with the time and model of one of these turns: a fork copies rows under new ids."""
    keys = {(index_ms(turn.ts), turn.source, turn.model) for turn in turns}
    return _pairs(await index.keyed(_ALIKE, sorted(keys)))


async def numbered(index: IndexStore, rows: Sequence[Submission]) -> list[Submission]:
    """Gives rows their numbers on their rails. Only after rows were deleted are whole rails looked up."""
    highest = {(row[0], row[1]): row[2] for row in await index.keyed(_HIGHEST, sorted({_rail(row) for row in rows}))}
    doubtful = [row for row in rows if (highest.get(_rail(row)) or 0) >= row.candidate.turn_index]
    numbers: dict[Rail, dict[str, int]] = {_rail(row): {} for row in doubtful}

    async def look_up(sql: str, keys: Iterable[tuple[str, str]]) -> None:
        for session_id, rail, message_id, number in await index.keyed(sql, sorted(keys)):
            if (session_id, rail) in numbers:
                numbers[session_id, rail][message_id] = number

    await look_up(_NUMBERS_OF, {row.key for row in doubtful})
    await look_up(_NUMBERS_ON, {_rail(row) for row in doubtful if row.candidate.message_id not in numbers[_rail(row)]})
    return [_numbered(row, numbers[_rail(row)]) if _rail(row) in numbers else row for row in rows]


def _numbered(row: Submission, numbers: dict[str, int]) -> Submission:
    candidate = row.candidate
    number = row_number(candidate, numbers, row.session_messages)
    numbers.setdefault(candidate.message_id, number)
    if number == candidate.turn_index:
        return row
    return row._replace(candidate=replace(candidate, turn_index=number))


def _rail(row: Submission) -> Rail:
    return row.candidate.holder


def _pairs(rows: Iterable[tuple[str, ...]]) -> set[tuple[str, str]]:
    return {(row[0], row[1]) for row in rows}


_OPEN = (
    "SELECT o.turn, o.record, f.source, f.path FROM open_turns o JOIN files f ON f.id = o.file WHERE o.turn IN ({keys})"
)
_PROJECTS = (
    "SELECT s.session_id, n.name, k.name FROM sessions s JOIN names n ON n.id = s.project "
    "LEFT JOIN names k ON k.id = s.project_key WHERE s.session_id IN ({keys}) AND s.project_by = ''"
)
_WITHOUT_PROJECT = (
    "SELECT n.name, t.message_id FROM sessions s CROSS JOIN turns t ON t.session = s.id "
    f"JOIN names n ON n.id = t.source WHERE s.session_id IN ({{keys}}) AND (t.rail <> '{MAIN}' OR t.project IS NULL)"
)
_ON_RAILS = (
    "WITH wanted(session_id, rail) AS ({keys}) SELECT n.name, t.message_id FROM wanted w "
    "CROSS JOIN sessions s ON s.session_id = w.session_id "
    "CROSS JOIN turns t ON t.session = s.id AND t.rail = w.rail JOIN names n ON n.id = t.source"
)
_AGENTS = (
    "WITH wanted(session_id, agent_id) AS ({keys}) SELECT a.* FROM wanted w "
    "CROSS JOIN agents a ON a.session_id = w.session_id AND a.agent_id = w.agent_id"
)
_MEMBERS = (
    "WITH wanted(session_id, group_id) AS ({keys}) SELECT DISTINCT a.session_id, a.agent_id FROM wanted w "
    "CROSS JOIN agents a ON a.session_id = w.session_id AND a.group_id = w.group_id"
)
_OWN = (
    "SELECT n.name, t.message_id FROM sessions s CROSS JOIN turns t ON t.session = s.id "
    f"JOIN names n ON n.id = t.source WHERE s.session_id IN ({{keys}}) AND t.rail = '{MAIN}'"
)
_OF_COPIES = (
    "FROM sessions s CROSS JOIN facts f ON f.session = s.id AND f.kind = 'copy' "
    f"WHERE s.session_id IN ({{keys}}) AND f.rail = '{MAIN}'"
)
_COPIED = f"SELECT f.key {_OF_COPIES}"
_REPEATING = f"SELECT DISTINCT s.session_id {_OF_COPIES}"
_COPIES = f"{copies.selecting('f.key')} WHERE f.rail = '{MAIN}'"
_OWNERS = (
    "WITH wanted(source, message_id) AS ({keys}) SELECT n.name, t.message_id, t.ts, s.session_id FROM wanted w "
    "CROSS JOIN names n ON n.name = w.source CROSS JOIN turns t ON t.source = n.id AND t.message_id = w.message_id "
    f"JOIN sessions s ON s.id = t.session WHERE t.rail = '{MAIN}'"
)
_BEFORE = (
    "WITH wanted(session_id, turn_index) AS ({keys}) SELECT w.session_id, n.name, t.message_id, t.ts FROM wanted w "
    "CROSS JOIN sessions s ON s.session_id = w.session_id "
    f"CROSS JOIN turns t ON t.session = s.id AND t.rail = '{MAIN}' AND t.turn_index = w.turn_index "
    "JOIN names n ON n.id = t.source"
)
_ALIKE = (
    "WITH wanted(ts, source, model) AS ({keys}) SELECT w.source, t.message_id FROM wanted w "
    "CROSS JOIN turns t ON t.ts = w.ts "
    "CROSS JOIN names s ON s.id = t.source AND s.name = w.source "
    "CROSS JOIN names m ON m.id = t.model AND m.name = w.model"
)
_HIGHEST = (
    "WITH wanted(session_id, rail) AS ({keys}) SELECT w.session_id, w.rail, (SELECT max(t.turn_index) FROM turns t "
    "WHERE t.session = s.id AND t.rail = w.rail) FROM wanted w CROSS JOIN sessions s ON s.session_id = w.session_id"
)
_NUMBERS_OF = (
    "WITH wanted(source, message_id) AS ({keys}) SELECT s.session_id, t.rail, t.message_id, t.turn_index FROM wanted w "
    "JOIN names n ON n.name = w.source CROSS JOIN turns t ON t.source = n.id AND t.message_id = w.message_id "
    "CROSS JOIN sessions s ON s.id = t.session"
)
_NUMBERS_ON = (
    "WITH wanted(session_id, rail) AS ({keys}) SELECT w.session_id, w.rail, t.message_id, t.turn_index FROM wanted w "
    "CROSS JOIN sessions s ON s.session_id = w.session_id CROSS JOIN turns t ON t.session = s.id AND t.rail = w.rail"
)
