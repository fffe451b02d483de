"""Brings what files say of messages together with what the ledger knows: who owns them, who started their agent."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from burnd.index import copies
from burnd.index.apply import fact_key
from burnd.index.change import AgentRow, OpenTurn
from burnd.index.store import IndexStore
from burnd.ledger.fold import Key as Identity
from burnd.ledger.fold import identity
from burnd.ledger.journal import Journal
from burnd.recording.batch import Held
from burnd.recording.candidate import Candidate
from burnd.recording.known import (
    Outcome,
    Project,
    Rail,
    agents_of,
    kept_agent,
    known_projects,
    linked,
    members_of,
    open_turns,
    taken_back,
)
from burnd.recording.ownership import Decision, Partings, SharedMessage, decide, hand_over, holder, tied
from burnd.recording.projects import ProjectKeys
from burnd.recording.sharing import held_by, parting, shared_as
from burnd.records import Copy, Overhead, Session, Turn
from burnd.records.content import MAIN

Key = tuple[str, str]


class _Message(msgspec.Struct):
    """A message while a batch is joined: what stands of it, and whether its owner may still change it."""

    turn: Turn | None = None
    copies: dict[Rail, Copy] = {}
    open_in: tuple[str, str] | None = None
    touched: bool = False
    dropped: bool = False

    @property
    def held(self) -> SharedMessage:
        assert self.turn is not None  # noqa: S101 - asked only of messages that are known
        return shared_as(self.turn, [holder(self.turn), *self.copies])

    @property
    def is_own(self) -> bool:
        """Whether one session alone holds it, in its own conversation."""
        return self.turn is not None and not self.copies and self.turn.rail_id == MAIN

    @property
    def is_tied(self) -> bool:
        """Whether several sessions have the same right to it, each by its own conversation."""
        equal = tied(Decision(self.turn, (*self.copies.values(),))) if self.turn is not None and self.copies else []
        return len(equal) > 1 and all(rail == MAIN for _, rail in equal)


class Joiner:
    """Joins candidates in any order to the same turns. Asked only by the one writer, so what it read stays true."""

    def __init__(self, index: IndexStore, journal: Journal, projects: ProjectKeys) -> None:
        self._index = index
        self._journal = journal
        self._projects = projects

    async def join(
        self,
        held: Sequence[Held],
        agents: Sequence[AgentRow],
        sessions: Sequence[Session],
        told: Iterable[Key] = (),
    ) -> Outcome:
        """Takes candidates, and news of agents and sessions, into the turns they are about.

        But for those `told` of otherwise.
        """
        # In the order in which they were read: what is asked for together later stands together in the ledger.
        keys = dict.fromkeys((item.candidate.source, item.candidate.message_id) for item in held)
        rails = {(agent.session_id, agent.agent_id) for agent in agents}
        rails |= await members_of(self._index, rails)
        news = {said.session_id: Project(said.project, said.project_key) for said in sessions if said.project}
        changed = await self._turns_of(rails) | await self._strays_of(news)
        keys |= dict.fromkeys(sorted(changed - set(told)))
        messages = await self._load(keys)
        strays = {item.candidate.session_id for item in held if _strays(item.candidate)}
        projects = await known_projects(self._index, strays) | news
        for message in messages.values():
            _settle_project(message, news)
        held = [_in_its_project(item, projects) for item in held]
        for item in held:
            _take(messages[item.candidate.source, item.candidate.message_id], item)
        await self._settle_ties(messages, held)
        known = await agents_of(self._index, [m.turn for m in messages.values() if m.turn is not None], agents)
        folders = {m.turn.project for m in messages.values() if m.turn is not None and m.turn.project_key is None}
        await self._projects.learn(folder for folder in folders if folder is not None)
        outcome = Outcome()
        for message in messages.values():
            self._finish(message, known, outcome)
        return outcome

    async def _settle_ties(self, messages: dict[Key, _Message], held: Sequence[Held]) -> None:
        """Finds the owner where several have the same right: for what was told now, and all that it sheds light on."""
        in_several = [m for m in messages.values() if m.turn is not None and m.copies]
        tied = {session for m in in_several if m.touched and m.is_tied for session in m.held.sessions}
        own: dict[str, Turn] = {}
        for turn in (m.turn for m in messages.values() if m.turn is not None and m.touched and m.is_own):
            if turn.turn_index < own.setdefault(turn.session_id, turn).turn_index:
                own[turn.session_id] = turn
        sessions = frozenset(tied | await parting(self._index, own, [m.held for m in in_several]))
        if not sessions:
            return
        known = {key: m.held for key, m in messages.items() if m.turn is not None}
        shared = await held_by(self._index, sessions, known)
        contested = [key for key, one in shared.items() if len(one.sessions) > 1 and one.sessions & sessions]
        messages |= await self._load(key for key in contested if key not in messages)
        told = {(item.candidate.message_id, item.candidate.holder): item.candidate for item in held}
        partings = Partings(shared.values())
        for key in contested:
            _find_owner(messages[key], partings, told)

    async def greatest(self, overheads: Sequence[Overhead]) -> list[Overhead]:
        """The largest of the running totals with the same time: a client writes two when it ends."""
        kept: dict[Identity, Overhead] = {}
        for overhead in overheads:
            key = identity(overhead)
            before = kept.get(key) or await self._said_overhead(key)
            if before is None or _total(before) < _total(overhead):
                kept[key] = overhead
        return list(kept.values())

    async def _said_overhead(self, key: Identity) -> Overhead | None:
        fact = (key[0], fact_key(key))
        known = (await self._index.known_facts([fact])).get(fact)
        entry = known.entry_in(self._journal) if known else None
        return entry if isinstance(entry, Overhead) else None

    def _finish(self, message: _Message, agents: dict[Rail, list[AgentRow]], outcome: Outcome) -> None:
        if message.turn is None:
            return
        if message.dropped:
            outcome.entries.append(taken_back(message.turn, message.turn.parent or ""))
            return
        turn = linked(message.turn, agents.get(holder(message.turn), []))
        if turn.project_key is None and turn.project is not None and (key := self._projects.key(turn.project)):
            turn = msgspec.structs.replace(turn, project_key=key)
        if not message.touched and turn == message.turn:
            return
        outcome.entries += message.copies.values()
        if message.open_in is None:
            outcome.entries.append(turn)
        else:
            outcome.open.append(OpenTurn(turn, *message.open_in))

    async def _load(self, keys: Iterable[Key]) -> dict[Key, _Message]:
        messages = {key: _Message() for key in keys}
        known = await self._index.known_turns(sorted(messages))
        opened = await open_turns(self._index, [k.id for k in known.values() if k.open])
        for key, row in known.items():
            message = messages[key]
            if row.id in opened:
                message.turn, source, path = opened[row.id]
                message.open_in = (source, path)
            else:
                entry = row.entry_in(self._journal)
                message.turn = entry if isinstance(entry, Turn) else None
        for copy in await self._copies(list(known)):
            owner = messages[copy.source, copy.message_id].turn
            if owner is None or holder(owner) != holder(copy):
                messages[copy.source, copy.message_id].copies[holder(copy)] = copy
        return messages

    async def _copies(self, keys: list[Key]) -> list[Copy]:
        """Who else is known to hold these messages."""
        sql = copies.selecting("f.position, f.length")
        found = await self._index.keyed(sql, copies.spans(keys))
        entries = (self._journal.entry_at(position, length) for position, length in found)
        return [entry for entry in entries if isinstance(entry, Copy)]

    async def _turns_of(self, rails: set[Rail]) -> set[Key]:
        sql = (
            "WITH wanted(session_id, rail) AS ({keys}) SELECT n.name, t.message_id FROM wanted w "
            "CROSS JOIN sessions s ON s.session_id = w.session_id "
            "CROSS JOIN turns t ON t.session = s.id AND t.rail = w.rail JOIN names n ON n.id = t.source"
        )
        return {(row[0], row[1]) for row in await self._index.keyed(sql, sorted(rails))}

    async def _strays_of(self, sessions: Iterable[str]) -> set[Key]:
        """The turns of these sessions that do not know the session's project by themselves."""
        sql = (
            "SELECT n.name, t.message_id FROM sessions s CROSS JOIN turns t ON t.session = s.id "
            "JOIN names n ON n.id = t.source WHERE s.session_id IN ({keys}) "
            f"AND (t.rail <> '{MAIN}' OR t.project IS NULL)"
        )
        found = await self._index.keyed(sql, [(session,) for session in sorted(sessions)])
        return {(row[0], row[1]) for row in found}


def _strays(said: Turn | Candidate) -> bool:
    """Whether this may be said in another folder than its session's: an agent begins where its session has gone to."""
    return said.rail_id != MAIN or said.project is None


def _in_its_project(item: Held, projects: Mapping[str, Project]) -> Held:
    """The candidate with the project of its session, where that is known."""
    project = projects.get(item.candidate.session_id)
    if project is None or not _strays(item.candidate) or item.candidate.project == project.folder:
        return item
    folder, key = project
    return item._replace(candidate=msgspec.structs.replace(item.candidate, project=folder, project_key=key))


def _settle_project(message: _Message, news: Mapping[str, Project]) -> None:
    """A turn that is known already gets the project that its session is now known to have."""
    turn = message.turn
    project = news.get(turn.session_id) if turn is not None else None
    if turn is not None and project is not None and _strays(turn) and turn.project != project.folder:
        message.turn = msgspec.structs.replace(turn, project=project.folder, project_key=project.key)
        message.touched = True


def _find_owner(message: _Message, partings: Partings, told: Mapping[tuple[str, Rail], Candidate]) -> None:
    """Gives a message to whom it belongs of those with an equal right to it. One that still grows waits."""
    turn = message.turn
    if turn is None or message.open_in is not None or not message.is_tied:
        return
    equal = frozenset(session for session, _ in tied(Decision(turn, (*message.copies.values(),))))
    owner = (partings.owner(equal), MAIN)
    if owner != holder(turn):
        joined = hand_over(Decision(turn, (*message.copies.values(),)), owner, told.get((turn.message_id, owner)))
        message.turn, message.copies = joined.turn, {holder(copy): copy for copy in joined.copies}
        message.touched = True


def _take(message: _Message, item: Held) -> None:
    """One candidate into its message. One that may still grow counts only where it owns the message."""
    candidate = item.candidate
    before = message.turn
    message.dropped = candidate.dropped and before is not None and holder(before) == candidate.holder
    if candidate.dropped:
        return
    known = Decision(before, (*message.copies.values(),)) if before is not None else None
    joined = decide(known, candidate, by_name=candidate.rail_id != MAIN)
    owns = holder(joined.turn) == candidate.holder
    if not owns and not candidate.settled:
        return
    turn = joined.turn
    if turn.subagent is not None and before is not None and holder(before) == holder(turn):
        turn = msgspec.structs.replace(turn, subagent=kept_agent(turn.subagent, before.subagent))
    if not candidate.settled and message.open_in is None and turn == before:
        return  # a log read again has not come to its end yet: what the ledger says of it stays settled
    message.turn = turn
    message.copies = {holder(copy): copy for copy in joined.copies}
    message.touched = True
    if owns:
        message.open_in = None if candidate.settled else (item.source, item.path)


def _total(overhead: Overhead) -> int:
    return sum(sum(getattr(usage, name) for name in usage.__struct_fields__) for usage in overhead.models.values())
