"""What the index knows that is joined with news of turns: those that are shown as open, and who started which agent."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from msgspec.structs import replace

from burnd.index.change import AgentRow, OpenTurn
from burnd.index.store import IndexStore
from burnd.recording.batch import CameFrom
from burnd.records import Subagent, Turn, Usage
from burnd.records.codec import Entry, decode

Rail = tuple[str, str]
_OPEN = (
    "SELECT o.turn, o.record, f.source, f.path FROM open_turns o JOIN files f ON f.id = o.file WHERE o.turn IN ({keys})"
)
_AGENTS = (
    "WITH wanted(session_id, agent_id) AS ({keys}) SELECT a.* FROM wanted w "
    "CROSS JOIN agents a ON a.session_id = w.session_id AND a.agent_id = w.agent_id"
)


_MEMBERS = (
    "WITH wanted(session_id, group_id) AS ({keys}) SELECT DISTINCT a.session_id, a.agent_id FROM wanted w "
    "CROSS JOIN agents a ON a.session_id = w.session_id AND a.group_id = w.group_id"
)
_PROJECTS = (
    "SELECT s.session_id, n.name, k.name FROM sessions s JOIN names n ON n.id = s.project "
    "LEFT JOIN names k ON k.id = s.project_key WHERE s.session_id IN ({keys}) AND s.project_by = ''"
)


class Project(NamedTuple):
    """A folder, and the key of its remote where that is known."""

    folder: str
    key: str | None = None


@dataclass
class Outcome:
    """What is to be said in the ledger, and what is only shown as open for now."""

    entries: list[Entry] = field(default_factory=list)
    open: list[OpenTurn] = field(default_factory=list)
    origins: list[CameFrom] = field(default_factory=list)


async def open_turns(index: IndexStore, rows: Sequence[int]) -> dict[int, OpenTurn]:
    """Of these rows of turns, those that may still grow, as they are shown."""
    found = await index.keyed(_OPEN, [(row,) for row in rows])
    decoded = ((row, decode(record), source, path) for row, record, source, path in found)
    return {row: OpenTurn(entry, source, path) for row, entry, source, path in decoded if isinstance(entry, Turn)}


async def known_projects(index: IndexStore, sessions: Iterable[str]) -> dict[str, Project]:
    """The projects of these sessions, where a record of the session tells it."""
    found = await index.keyed(_PROJECTS, [(session,) for session in sorted(sessions)])
    return {session: Project(folder, key) for session, folder, key in found}


async def agents_of(index: IndexStore, turns: Iterable[Turn], told: Sequence[AgentRow]) -> dict[Rail, list[AgentRow]]:
    """Links of the agents of these turns, by rail: the best first, those of the agent's group last."""
    rails = {(turn.session_id, turn.rail_id) for turn in turns if turn.subagent is not None}
    known: defaultdict[Rail, list[AgentRow]] = defaultdict(list)
    for row in (*(AgentRow(*row) for row in await index.keyed(_AGENTS, sorted(rails))), *told):
        known[row.session_id, row.agent_id].append(row)
    groups = {(row.session_id, row.group_id) for rows in known.values() for row in rows if row.group_id is not None}
    for row in (AgentRow(*row) for row in await index.keyed(_AGENTS, sorted(groups - rails))):
        known[row.session_id, row.agent_id].append(row)
    ordered = {rail: sorted(said, key=_goodness) for rail, said in known.items()}
    return {rail: [*said, *_of_groups(said, ordered)] for rail, said in ordered.items()}


def _of_groups(said: Sequence[AgentRow], ordered: Mapping[Rail, Sequence[AgentRow]]) -> Iterator[AgentRow]:
    for session_id, group_id in {(row.session_id, row.group_id): None for row in said if row.group_id is not None}:
        yield from ordered.get((session_id, group_id or ""), ())


async def members_of(index: IndexStore, groups: Iterable[Rail]) -> set[Rail]:
    """The known agents of these workflow runs and teams."""
    return {(row[0], row[1]) for row in await index.keyed(_MEMBERS, sorted(groups))}


def _goodness(row: AgentRow) -> tuple[int, str, str, str]:
    """Of equal words the one said first, whichever log was read first."""
    return (row.told_by, row.ts, row.tool_use_id, row.type or "")


def linked(turn: Turn, told: Sequence[AgentRow]) -> Turn:
    """The turn with the call that started its agent, by the best word on it."""
    if turn.subagent is None or not told:
        return turn
    call = next((row.tool_use_id for row in told if row.tool_use_id), turn.subagent.parent_tool_use_id)
    kind = next((row.type for row in told if row.type), turn.subagent.type)
    return replace(turn, subagent=replace(turn.subagent, parent_tool_use_id=call, type=kind))


def kept_agent(new: Subagent | None, old: Subagent | None) -> Subagent | None:
    """What is read again may know less of who started an agent than was known before."""
    if new is None or old is None:
        return new
    call = new.parent_tool_use_id or old.parent_tool_use_id
    return replace(new, parent_tool_use_id=call, type=new.type or old.type)


def taken_back(turn: Turn, owner: str) -> Turn:
    """What was billed beside its owner by mistake. Without any usage, for readers that know no better."""
    return Turn(
        source=turn.source,
        session_id=turn.session_id,
        rail_id=turn.rail_id,
        message_id=turn.message_id,
        turn_index=turn.turn_index,
        ts=turn.ts,
        model=turn.model,
        usage=Usage(),
        quality="empty",
        copy_of=owner,
    )
