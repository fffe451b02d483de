"""Builds turns and copies from the candidates of a batch and what ledger and index have of their messages."""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from burnd.index.change import AgentRow, IndexedRecord, OpenTurn
from burnd.index.keys import copy_holder, copy_spans, selecting_copies
from burnd.index.store import keyed, known_turns
from burnd.ledger.journal import Journal
from burnd.recording.candidate import Batch, Candidate, SessionOrigin, Submission, turn_of
from burnd.recording.ownership import (
    Decision,
    Partings,
    SharedMessage,
    break_tie,
    copied_rows,
    copy_of,
    decide,
    holder,
    is_contested,
    number_on_rail,
    shared_message,
    withdrawal,
)
from burnd.recording.projects import ProjectKeys
from burnd.records import Copy, Session, Turn
from burnd.records.codec import Entry, decode
from burnd.records.content import MAIN
from burnd.records.times import index_ms


@dataclass
class Outcome:
    """Records for the ledger, turns that stay open, and where copied rows came from.

    `copiers` are the sessions with copies that another session owns under the same id. `recorded` has all messages that
    were looked up in the index.
    """

    entries: list[Entry] = field(default_factory=list)
    open: list[OpenTurn] = field(default_factory=list)
    origins: list[SessionOrigin] = field(default_factory=list)
    copiers: set[str] = field(default_factory=set)
    recorded: dict[Key, IndexedRecord | None] = field(default_factory=dict)


class MessageState(msgspec.Struct):
    """A message while a batch is decided. `open_in` is the log or database in which its owner may still change it."""

    decision: Decision | None = None
    open_in: str | None = None
    is_known: bool = False
    is_row: bool = False
    is_touched: bool = False
    is_dropped: bool = False
    beside: tuple[Entry, ...] = ()

    def add(self, candidate: Candidate, path: str) -> None:
        """Adds a candidate. One that may still grow counts only where it owns the message."""
        before = self.decision
        if before is None and not candidate.dropped:  # most of a backlog
            self.decision, self.is_row, self.is_touched = Decision(turn_of(candidate)), candidate.is_row, True
            self.open_in = None if candidate.settled else path
            return
        self.is_dropped = candidate.dropped and before is not None and holder(before.turn) == candidate.holder
        if candidate.dropped:
            return
        self.is_row = candidate.is_row
        after = decide(before, candidate, by_name=candidate.rail_id != MAIN)
        owns = holder(after.turn) == candidate.holder
        if not owns and not candidate.settled:
            return
        if not candidate.settled and self.open_in is None and before is not None and after.turn == before.turn:
            return  # a log that is read again has not reached its end: the ledger's turn stays settled
        self.decision, self.is_touched = after, True
        if owns:
            self.open_in = None if candidate.settled else path

    def settle(self, shown: Turn) -> None:
        """Settles an open turn whose row is gone, in its last state."""
        self.decision = self.decision or Decision(shown)
        self.open_in, self.is_row, self.is_touched = None, True, True

    def set_project(self, news: Mapping[str, Project]) -> None:
        turn = self.decision.turn if self.decision is not None else None
        project = news.get(turn.session_id) if turn is not None else None
        if self.decision is None or turn is None or project is None:
            return
        if _takes_project(turn) and turn.project != project.folder:
            turn = replace(turn, project=project.folder, project_key=project.key)
            self.decision, self.is_touched = self.decision._replace(turn=turn), True

    def break_tie(self, partings: Partings, candidates: Mapping[tuple[str, Rail], Candidate]) -> None:
        """Gives a contested message to the session that was there first. One that still grows waits."""
        before = self.decision
        if before is not None and self.open_in is None and is_contested(before):
            self.decision = break_tie(before, partings, candidates)
            self.is_touched = self.is_touched or self.decision is not before


class TurnBuilder:
    """Used only by the one writer, so what it reads from the index stays true until the batch is written."""

    def __init__(self, db: sqlite3.Connection, journal: Journal, projects: ProjectKeys) -> None:
        self._db = db
        self._journal = journal
        self._projects = projects
        self._recorded: dict[Key, IndexedRecord | None] = {}

    def build(self, batch: Batch, sessions: Sequence[Session]) -> Outcome:
        """Decides on all messages that have candidates, or that agents and `sessions` change."""
        submissions = [one for one in batch.candidates if not one.candidate.is_row]
        if len(submissions) < len(batch.candidates):
            submissions += numbered(self._db, [one for one in batch.candidates if one.candidate.is_row])
        news = {one.session_id: Project(one.project, one.project_key) for one in sessions if one.project}
        changed = {(turn.source, turn.message_id) for turn in batch.orphans}
        if rails := {(agent.session_id, agent.agent_id) for agent in batch.agents}:
            changed |= turns_on(self._db, rails | group_members(self._db, rails))
        if news:
            changed |= turns_without_project(self._db, news)
        # In reading order, so that turns that are queried together are together in the ledger.
        own = [(one.candidate.source, one.candidate.message_id) for one in submissions]
        rows = {key for key, one in zip(own, submissions, strict=True) if one.candidate.is_row}
        messages = self._load(dict.fromkeys(own) | dict.fromkeys(sorted(changed)), rows)
        for message in messages.values() if news else ():
            message.set_project(news)
        inheriting = {one.session_id for one, *_ in submissions if one.rail_id != MAIN or one.project is None}
        if inheriting:
            projects = projects_of(self._db, inheriting) | news
            submissions = [_in_project(one, projects) for one in submissions]
        for key, one in zip(own, submissions, strict=True):
            message = messages[key]
            message.add(one.candidate, one.path)
            message.beside += one.beside
        for turn in batch.orphans:
            messages[turn.source, turn.message_id].settle(turn)
        self._break_ties(messages, submissions)
        outcome = Outcome(recorded=self._recorded)
        if any(message.is_row for message in messages.values()):
            self._part_copied_rows(messages, outcome)
        self._finish(messages.values(), batch.agents, outcome)
        return outcome

    def _load(self, keys: Iterable[Key], rows: AbstractSet[Key] = frozenset()) -> dict[Key, MessageState]:
        """Loads messages as they are shown: open, or from the ledger. Of `rows`, which are rewritten in place, as the
        ledger has them.
        """
        messages = {key: MessageState() for key in keys}
        recorded = known_turns(self._db, sorted(messages))
        self._recorded |= dict.fromkeys(messages) | recorded
        opened = open_turns(self._db, [row.id for row in recorded.values() if row.open])
        copies: defaultdict[Key, dict[Rail, Copy]] = defaultdict(dict)
        for position, length in keyed(self._db, _COPY_LINES, copy_spans(recorded)):
            copy = self._journal.entry_at(position, length)
            if isinstance(copy, Copy):
                copies[copy.source, copy.message_id][holder(copy)] = copy
        for key, row in recorded.items():
            message, open_turn = messages[key], opened.get(row.id)
            message.is_known = True
            message.open_in = open_turn.path if open_turn is not None else None
            entry = open_turn.turn if open_turn is not None and key not in rows else row.entry_in(self._journal)
            if isinstance(entry, Turn):
                others = [copy for rail, copy in copies[key].items() if rail != holder(entry)]
                message.decision = Decision(entry, tuple(others))
        return messages

    def _break_ties(self, messages: dict[Key, MessageState], submissions: Sequence[Submission]) -> None:
        """Finds the owner where several have the same claim, also of older messages that the batch is evidence for."""
        of_logs = {key: one.decision for key, one in messages.items() if one.decision is not None and not one.is_row}
        contested: set[str] = set()
        own: dict[str, Turn] = {}
        with_copies: list[SharedMessage] = []
        for key, decision in of_logs.items():
            if decision.copies:
                with_copies.append(shared_message(decision))
                if messages[key].is_touched and is_contested(decision):
                    contested |= with_copies[-1].sessions
            elif decision.turn.rail_id == MAIN and messages[key].is_touched:
                turn = decision.turn
                first = own.setdefault(turn.session_id, turn)
                if turn.turn_index < first.turn_index:
                    own[turn.session_id] = turn
        sessions = frozenset(contested | parting_sessions(self._db, own, with_copies))
        if not sessions:
            return
        current = {key: shared_message(one) for key, one in of_logs.items()}
        shared = shared_messages(self._db, sessions, current)
        keys = [key for key, one in shared.items() if len(one.sessions) > 1 and one.sessions & sessions]
        messages |= self._load(key for key in keys if key not in messages)
        candidates = {(one.candidate.message_id, one.candidate.holder): one.candidate for one in submissions}
        partings = Partings(shared.values())
        for key in keys:
            messages[key].break_tie(partings, candidates)

    def _part_copied_rows(self, messages: dict[Key, MessageState], outcome: Outcome) -> None:
        """Records the rows that a fork copied as copies, and takes back what was billed for them."""
        rows = {key: one.decision.turn for key, one in messages.items() if one.is_row and one.decision is not None}
        alike = possible_copies(self._db, rows.values()) - rows.keys()
        messages |= self._load(sorted(alike - messages.keys()))
        others = [one.decision.turn for key in alike if (one := messages[key]).decision is not None]
        for turn, original in copied_rows([*others, *rows.values()]):
            message = messages[turn.source, turn.message_id]
            outcome.origins.append(SessionOrigin(turn.session_id, original.session_id, index_ms(turn.ts)))
            outcome.entries += [withdrawal(turn, original.message_id)] if message.is_known else []
            outcome.entries += [copy_of(turn)] if message.open_in is None or not message.is_row else []
            message.decision = None

    def _finish(self, messages: Collection[MessageState], agents: Sequence[AgentRow], outcome: Outcome) -> None:
        turns = [message.decision.turn for message in messages if message.decision is not None]
        links: Mapping[Rail, Sequence[AgentRow]] = {}
        if any(turn.subagent is not None for turn in turns):
            links = agent_links(self._db, turns, agents)
        keys = self._projects.keys
        folders = {turn.project for turn in turns if turn.project and turn.project_key is None}
        if not folders <= keys.keys():
            self._projects.learn(folders)
        for message in messages:
            if message.decision is None:
                continue
            before, others = message.decision
            if message.is_dropped:
                outcome.entries.append(withdrawal(before, before.parent or ""))
                continue
            turn = _linked(before, links.get(holder(before), ())) if before.subagent is not None else before
            if turn.project_key is None and turn.project is not None and (key := keys.get(turn.project)):
                turn = replace(turn, project_key=key)
            if not message.is_touched and turn == before:
                continue
            outcome.entries += others
            outcome.copiers.update(copy.session_id for copy in others)
            if message.open_in is None:
                outcome.entries += [turn, *message.beside]
            else:
                outcome.open.append(OpenTurn(turn, turn.source, message.open_in))


def _takes_project(item: Turn | Candidate) -> bool:
    """Whether it takes its session's project: an agent begins in the folder that its session has gone to."""
    return item.rail_id != MAIN or item.project is None


def _in_project(one: Submission, projects: Mapping[str, Project]) -> Submission:
    project = projects.get(one.candidate.session_id)
    if project is None or not _takes_project(one.candidate) or one.candidate.project == project.folder:
        return one
    return one._replace(candidate=replace(one.candidate, project=project.folder, project_key=project.key))


def _linked(turn: Turn, links: Sequence[AgentRow]) -> Turn:
    """The turn with the call that started its agent, by the best link."""
    if turn.subagent is None or not links:
        return turn
    call = next((row.tool_use_id for row in links if row.tool_use_id), turn.subagent.parent_tool_use_id)
    kind = next((row.type for row in links if row.type), turn.subagent.type)
    return replace(turn, subagent=replace(turn.subagent, parent_tool_use_id=call, type=kind))


Key = tuple[str, str]  # source and message id
Rail = tuple[str, str]  # session and rail


class Project(NamedTuple):
    """A folder, and the key of its remote if it is known."""

    folder: str
    key: str | None = None


def open_turns(db: sqlite3.Connection, rows: Sequence[int]) -> dict[int, OpenTurn]:
    opened = keyed(db, _OPEN, [(row,) for row in rows])
    decoded = ((row, decode(record), source, path) for row, record, source, path in opened)
    return {row: OpenTurn(entry, source, path) for row, entry, source, path in decoded if isinstance(entry, Turn)}


def projects_of(db: sqlite3.Connection, sessions: Iterable[str]) -> dict[str, Project]:
    """The projects that records of these sessions state."""
    rows = keyed(db, _PROJECTS, [(session,) for session in sorted(sessions)])
    return {session: Project(folder, key) for session, folder, key in rows}


def turns_without_project(db: sqlite3.Connection, sessions: Iterable[str]) -> set[Key]:
    return _pairs(keyed(db, _WITHOUT_PROJECT, [(session,) for session in sorted(sessions)]))


def turns_on(db: sqlite3.Connection, rails: Iterable[Rail]) -> set[Key]:
    return _pairs(keyed(db, _ON_RAILS, sorted(rails)))


def group_members(db: sqlite3.Connection, groups: Iterable[Rail]) -> set[Rail]:
    return _pairs(keyed(db, _MEMBERS, sorted(groups)))


def agent_links(db: sqlite3.Connection, turns: Iterable[Turn], new: Sequence[AgentRow]) -> dict[Rail, list[AgentRow]]:
    """The links of the agents of these turns, by rail: the best first, those of the agent's group last."""
    rails = {holder(turn) for turn in turns if turn.subagent is not None}
    links: defaultdict[Rail, list[AgentRow]] = defaultdict(list)
    for row in (*(AgentRow(*row) for row in keyed(db, _AGENTS, sorted(rails))), *new):
        links[row.session_id, row.agent_id].append(row)
    groups = {(row.session_id, row.group_id) for rows in links.values() for row in rows if row.group_id is not None}
    for row in (AgentRow(*row) for row in keyed(db, _AGENTS, sorted(groups - rails))):
        links[row.session_id, row.agent_id].append(row)
    # Of equally good links the earliest first, in any order of reading.
    ordered = {
        rail: sorted(rows, key=lambda row: (row.evidence, row.ts, row.tool_use_id, row.type or ""))
        for rail, rows in links.items()
    }
    return {rail: [*rows, *_links_of_groups(rows, ordered)] for rail, rows in ordered.items()}


def _links_of_groups(rows: Sequence[AgentRow], ordered: Mapping[Rail, Sequence[AgentRow]]) -> Iterator[AgentRow]:
    for session_id, group_id in {(row.session_id, row.group_id): None for row in rows if row.group_id is not None}:
        yield from ordered.get((session_id, group_id or ""), ())


def shared_messages(
    db: sqlite3.Connection, sessions: frozenset[str], current: Mapping[Key, SharedMessage]
) -> dict[Key, SharedMessage]:
    """All messages of these sessions and of those they share any with; `current` is newer than the index."""
    messages = _messages_of(db, sessions, current)
    others = frozenset(session for message in messages.values() for session in message.sessions) - sessions
    return messages | _messages_of(db, others, current)


def parting_sessions(db: sqlite3.Connection, own: Mapping[str, Turn], shared: Iterable[SharedMessage]) -> set[str]:
    """The sessions of `own` that may diverge from others with these turns, which each has alone.

    `shared` are the messages of the batch that several sessions may have. A further turn costs one lookup, of the turn
    before it; all messages of a session are looked up only where it diverges from another or repeats it.
    """
    places = [(session, turn.turn_index - 1) for session, turn in own.items() if turn.turn_index]
    before = {row[0]: row[1:] for row in keyed(db, _BEFORE, places)}
    copied = _copies_of(db, [(source, message) for source, message, _ in before.values()])
    in_others = (one.sessions for one in shared if len(one.sessions) > 1)
    parting = {session for sessions in in_others for session in sessions if session in own}
    for session, (source, message, ts) in before.items():
        if (source, message) in copied or ts > index_ms(own[session].ts):
            parting.add(session)
    # The turn before is not its own: it may be a copy.
    others = [(session,) for session, _ in places if session not in before]
    return parting.union(*keyed(db, _REPEATING, others))


def _messages_of(
    db: sqlite3.Connection, sessions: frozenset[str], current: Mapping[Key, SharedMessage]
) -> dict[Key, SharedMessage]:
    keys_of_sessions = [(session,) for session in sorted(sessions)]
    own = _pairs(keyed(db, _OWN, keys_of_sessions))
    copied = {copy_holder(key)[0] for (key,) in keyed(db, _COPIED, keys_of_sessions)}
    keys = sorted((own | copied) - current.keys())
    others = _copies_of(db, keys)
    messages = {
        (source, message): SharedMessage(ts, frozenset({session, *others.get((source, message), ())}))
        for source, message, ts, session in keyed(db, _OWNERS, keys)
    }
    return messages | {key: message for key, message in current.items() if message.sessions & sessions}


def _copies_of(db: sqlite3.Connection, keys: Iterable[Key]) -> dict[Key, set[str]]:
    sessions: defaultdict[Key, set[str]] = defaultdict(set)
    for (key,) in keyed(db, _COPIES, copy_spans(keys)):
        message, session = copy_holder(key)
        sessions[message].add(session)
    return sessions


def possible_copies(db: sqlite3.Connection, turns: Iterable[Turn]) -> set[Key]:
    """The messages with the time and model of one of these turns: a fork copies rows under new ids."""
    keys = {(index_ms(turn.ts), turn.source, turn.model) for turn in turns}
    return _pairs(keyed(db, _ALIKE, sorted(keys)))


def numbered(db: sqlite3.Connection, rows: Sequence[Submission]) -> list[Submission]:
    """Numbers rows on their rails by their place among the rows that the source has now.

    Whole rails are looked up only after rows were deleted.
    """
    highest = {(row[0], row[1]): row[2] for row in keyed(db, _HIGHEST, sorted({_rail(row) for row in rows}))}
    doubtful = [row for row in rows if (highest.get(_rail(row)) or 0) >= row.candidate.turn_index]
    numbers: dict[Rail, dict[str, int]] = {_rail(row): {} for row in doubtful}

    def look_up(sql: str, keys: Iterable[tuple[str, str]]) -> None:
        for session_id, rail, message_id, number in keyed(db, sql, sorted(keys)):
            if (session_id, rail) in numbers:
                numbers[session_id, rail][message_id] = number

    look_up(_NUMBERS_OF, {(row.candidate.source, row.candidate.message_id) for row in doubtful})
    look_up(_NUMBERS_ON, {_rail(row) for row in doubtful if row.candidate.message_id not in numbers[_rail(row)]})
    return [_numbered(row, numbers[_rail(row)]) if _rail(row) in numbers else row for row in rows]


def _numbered(row: Submission, numbers: dict[str, int]) -> Submission:
    candidate = row.candidate
    is_any_gone = row.session_messages is not None and not numbers.keys() <= row.session_messages
    free = 1 + max(numbers.values()) if is_any_gone else 0
    number = number_on_rail(candidate.turn_index, numbers.get(candidate.message_id), free)
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
_COPIES = f"{selecting_copies('f.key')} WHERE f.rail = '{MAIN}'"
_COPY_LINES = selecting_copies("f.position, f.length")
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
