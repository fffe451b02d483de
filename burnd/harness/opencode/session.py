"""Follows one session: walks through its messages in order, settles them, collects what is new. Pure.

The walk only looks back and its state is small, so it can resume before any changed message and ends as a walk over the
whole session does. The result depends on the rows only, not on when they were read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import msgspec
from msgspec.structs import replace

from burnd.classify.activity import Walk, step
from burnd.harness.opencode.messages import OpencodeMessage, Response, UserMessage, title_of
from burnd.harness.opencode.rows import MessageVersion, SessionRow, UnusableRow, digest_of, iso, total_tokens
from burnd.index.change import AgentRow, LinkEvidence
from burnd.ledger.content import INLINE_BYTES, EncodedRecord, encode_records
from burnd.recording.candidate import NO_USAGE, Candidate, LineKey, Submission, as_calls, turn_of
from burnd.records import Block, Compaction, Content, Event, Session, Subagent, Turn, Usage
from burnd.records.content import MAIN
from burnd.records.times import to_iso
from burnd.records.turn import FORKED, Quality

SOURCE: Final = "opencode"
QUIET_S: Final = 2.0  # until a complete message settles: parts and errors may still follow
IDLE_S: Final = 600.0  # until any other message settles
_MOST_PROMPTS: Final = 8
_MOST_USER_ROWS: Final = 32
_EVENT_NAMES: Final = {
    "MessageAbortedError": "interrupt",
    "ContentFilterError": "refusal",
    "MessageOutputLengthError": "output_length",
    "StructuredOutputError": "structured_output",
}


class OpencodePrompt(msgspec.Struct, frozen=True, gc=False):
    """A person's prompt: its word classes, and the retry walk over its steps."""

    id: str
    words: tuple[str, ...] = ()
    text_hash: str | None = None
    walk: Walk = Walk()


class WalkState(msgspec.Struct, frozen=True):
    """What the walk carries from one message to the next.

    `user_rows` maps the last user rows to prompts, `compaction` is the newest row that requested one, and its trigger.
    """

    next_index: int = 0
    last_turn: str | None = None
    entering: tuple[Block, ...] = ()
    prompts: tuple[OpencodePrompt, ...] = ()
    user_rows: tuple[tuple[str, str | None], ...] = ()
    compaction: tuple[str, str] | None = None
    after_summary: bool = False
    context: int = 0


class Step(NamedTuple):
    candidate: Candidate
    entries: tuple[Event | Compaction, ...] = ()

    @property
    def turn(self) -> Turn:
        return turn_of(self.candidate)


# The walk


def walk(session: SessionRow, state: WalkState, message: OpencodeMessage) -> tuple[WalkState, Step | None]:
    """Advances by one message; an assistant row becomes a step."""
    if message.user is not None:
        return _walk_user(session, state, message, message.user), None
    if message.response is not None:
        return _walk_response(session, state, message, message.response)
    return state, None


def is_copied(session: SessionRow, message: OpencodeMessage) -> bool:
    """Whether a message is older than its session: a fork copies its past under new ids."""
    return message.created < session.created


def _walk_user(session: SessionRow, state: WalkState, message: OpencodeMessage, user: UserMessage) -> WalkState:
    prompts = state.prompts
    current = prompts[-1].id if prompts else None
    # In a child session the parent's agent writes the prompt.
    if user.is_human or (session.parent is not None and user.text_hash is not None):
        repeated = None
        if state.after_summary and user.text_hash is not None:  # opencode repeats the prompt that overflowed
            repeated = next((one for one in reversed(prompts) if one.text_hash == user.text_hash), None)
        if repeated is None:
            prompts = (*prompts, OpencodePrompt(message.id, user.words, user.text_hash))[-_MOST_PROMPTS:]
        current = message.id if repeated is None else repeated.id
    return replace(
        state,
        entering=state.entering + user.blocks,
        prompts=prompts,
        user_rows=(*state.user_rows, (message.id, current))[-_MOST_USER_ROWS:],
        compaction=(message.id, user.trigger) if user.trigger is not None else state.compaction,
        after_summary=False,
    )


def _walk_response(
    session: SessionRow, state: WalkState, message: OpencodeMessage, response: Response
) -> tuple[WalkState, Step]:
    newest = state.prompts[-1].id if state.prompts else None
    prompt_id = next((prompt for row, prompt in reversed(state.user_rows) if row == response.parent), newest)
    prompt = next((one for one in state.prompts if one.id == prompt_id), None)
    if prompt is not None and response.calls:
        prompt = replace(prompt, walk=step(prompt.walk, as_calls(response.calls)))
    quality, copied = _quality(response), is_copied(session, message)
    is_child = session.parent is not None
    subagent = Subagent(agent_id=session.id, type=session.agent or message.agent) if is_child else None
    candidate = Candidate(
        source=SOURCE,
        is_row=True,
        rank=FORKED if copied else 0,
        claim_ts=iso(session.created) if copied else None,
        session_id=session.id,
        rail_id=MAIN,
        message_id=message.id,
        turn_index=state.next_index,
        parent=state.last_turn,
        ts=iso(message.created),
        model=response.model,
        provider=response.provider,
        project=session.directory,
        usage=response.usage,
        stated_usd=response.cost_usd,
        harness_version=session.version,
        best=LineKey(NO_USAGE if quality == "partial" else 0),
        final=quality == "final",
        calls=response.calls,
        pull_request=response.pull_request,
        entered=state.entering,
        made=response.output,
        files=response.files,
        subagent=subagent,
        agent=message.agent if session.parent is None else None,
        stop_reason=response.finish or response.error,
        prompt_words=prompt.words if prompt is not None else (),
        prompt_id=prompt.id if prompt is not None else None,
        prompt_retries=prompt.walk.retries if prompt is not None else 0,
    )
    row, trigger = state.compaction or (None, None)
    trigger = trigger if response.is_summary and row == response.parent else None
    compaction = None
    if response.is_summary and response.completed is not None and response.error is None:
        compaction = Compaction(
            source=SOURCE,
            session_id=session.id,
            rail_id=MAIN,
            id=response.parent or message.id,
            ts=iso(max(response.completed, message.created)),
            trigger=trigger,
            before_tokens=state.context or None,
        )
    next_state = replace(
        state,
        next_index=state.next_index + 1,
        last_turn=message.id,
        entering=response.results if compaction is None else (Block(kind="summary", bytes=response.text_bytes),),
        prompts=tuple(prompt if prompt is not None and one.id == prompt.id else one for one in state.prompts),
        after_summary=trigger == "auto",
        context=total_tokens(response.usage) or state.context,
    )
    entries: list[Event | Compaction] = []
    if not copied:  # the events of a copied message are recorded with the original
        entries = [*_events(session.id, message, response), *([compaction] if compaction is not None else [])]
    return next_state, Step(candidate, tuple(entries))


def _quality(response: Response) -> Quality:
    """`partial` if the model started to answer and the usage is unknown, since that was billed.

    `empty` if the request failed before that, and for rows without request (`!shell`), which have neither finish nor
    error.
    """
    if response.completed is None:
        return "partial"
    if response.usage != Usage():
        return "final"
    is_answer = response.has_output and (response.finish or response.error) is not None
    return "partial" if is_answer else "empty"


def _events(session_id: str, message: OpencodeMessage, response: Response) -> list[Event]:
    rows = [(part, at or message.created, "retry", status) for part, at, status in response.retries]
    if response.error is not None:
        name = _EVENT_NAMES.get(response.error, "api_error")
        rows.append((message.id, message.created, name, response.status))
    return [
        Event(
            source=SOURCE,
            session_id=session_id,
            rail_id=MAIN,
            id=event_id,
            ts=iso(at),
            name=name,
            message_id=message.id,
            status=status,
        )
        for event_id, at, name, status in rows
    ]


def session_record(session: SessionRow, agent: str | None) -> Session:
    return Session(
        session_id=session.id,
        source=SOURCE,
        parent_session_id=session.parent,
        project=session.directory,
        agent=session.agent or agent,
        created_at=iso(session.created),
    )


# The state of a session


class MessageReading(NamedTuple):
    """A message as it was last read, with a hash of its bytes."""

    version: MessageVersion
    message: OpencodeMessage
    content: list[EncodedRecord]
    unusable: tuple[UnusableRow, ...]
    digest: int
    quiet_since: float


class SessionChanges(msgspec.Struct):
    """Steps, content and facts to record; `message_times` and `copied` are by session and message.

    `orphans` are open turns whose rows are gone.
    """

    steps: list[Submission] = []
    orphans: list[Turn] = []
    content: list[EncodedRecord] = []
    sessions: list[Session] = []
    agents: list[AgentRow] = []
    message_times: dict[tuple[str, str], int] = {}
    copied: set[tuple[str, str]] = set()

    def add(self, other: SessionChanges) -> None:
        self.steps += other.steps
        self.orphans += other.orphans
        self.content += other.content
        self.sessions += other.sessions
        self.agents += other.agents
        self.message_times |= other.message_times
        self.copied |= other.copied


class _Entry:
    """A message: its last reading, the walk behind it, and how it was last recorded."""

    __slots__ = ("content", "reading", "recorded", "settled", "state", "step")

    def __init__(self, reading: MessageReading) -> None:
        self.reading = reading
        self.content: list[EncodedRecord] | None = reading.content  # None once it is recorded
        self.settled = False
        self.state = WalkState()
        self.step: Step | None = None
        self.recorded: tuple[Candidate, bool] | None = None

    @property
    def message(self) -> OpencodeMessage:
        return self.reading.message

    def update(self, reading: MessageReading, now: float) -> bool:
        if reading.digest == self.reading.digest:
            self.reading = self.reading._replace(version=reading.version)
            return False
        self.reading, self.content, self.settled = reading._replace(quiet_since=now), reading.content, False
        return True


class SessionState:
    """The messages of one session in order. Used by one thread at a time.

    `is_old`: its rows are from before the first read, so their own times show how long they have been quiet.
    `elsewhere` are the ids of messages in databases with precedence; None if none has the session.
    """

    def __init__(self, session: SessionRow, path: str, *, is_old: bool = False) -> None:
        self.row = session
        self.wrong_columns: tuple[str, ...] = ()  # of the session's row
        self.path = path
        self.is_old = is_old
        self.elsewhere: frozenset[str] | None = None
        self.row_digest, self.sequence = 0, -1
        self.partly_read = False
        self._entries: list[_Entry] = []
        self._by_id: dict[str, _Entry] = {}
        self._row_ids: frozenset[str] = frozenset()
        self._walk_from = 0
        self._record_from = 0
        self._title: Content | None = None
        self._session: Session | None = None
        self._children: dict[str, tuple[str, int]] = {}
        self._deleted_content: list[EncodedRecord] = []

    def __len__(self) -> int:
        return len(self._entries)

    def unchanged(self, message_id: str, digest: int) -> OpencodeMessage | None:
        entry = self._by_id.get(message_id)
        return entry.message if entry is not None and entry.reading.digest == digest else None

    @property
    def is_pending(self) -> bool:
        return any(not entry.settled for entry in self._entries[self._record_from :])

    @property
    def unfinished(self) -> tuple[tuple[str, int, int], ...]:
        """Id, update time and digest of responses that opencode never finished."""
        versions = [entry.reading.version for entry in self._entries if entry.message.is_unfinished]
        return tuple((version.id, version.updated, version.digest) for version in versions)

    @property
    def unusable(self) -> list[UnusableRow]:
        rows = [row for entry in self._entries for row in entry.reading.unusable]
        if self.wrong_columns:
            reason = f"unexpected types in {', '.join(self.wrong_columns)}"
            rows.insert(0, UnusableRow(f"session {self.row.id}", 0, reason))
        return rows

    @property
    def versions_digest(self) -> int:
        return digest_of(entry.reading.version.digest for entry in self._entries)

    def must_read(self, version: MessageVersion) -> bool:
        entry = self._by_id.get(version.id)
        if entry is None or not entry.settled:
            return True
        before = entry.reading.version
        return version.updated != before.updated or version.digest not in (0, before.digest)

    def update_row(self, session: SessionRow) -> None:
        if session != self.row:
            self.row = session
            self._walk_from = self._record_from = 0

    def update(self, order: Sequence[str], readings: Mapping[str, MessageReading], now: float) -> None:
        entries: list[_Entry] = []
        same = len(self._entries)  # unchanged entries at the start
        for message_id in order:
            entry, reading = self._by_id.get(message_id), readings.get(message_id)
            changed = entry is None or (reading is not None and entry.update(reading, now))
            if entry is None:
                if reading is None:
                    continue  # not read yet
                entry = _Entry(reading)
            n = len(entries)
            if n < same and (changed or self._entries[n] is not entry):
                same = n
            entries.append(entry)
        same = min(same, len(entries))
        self._walk_from, self._record_from = min(self._walk_from, same), min(self._record_from, same)
        by_id = {entry.message.id: entry for entry in entries}
        for message_id, entry in self._by_id.items():
            if message_id not in by_id and entry.content is not None and self._is_ours(message_id):
                self._deleted_content += entry.content
        self._entries, self._by_id, self._row_ids = entries, by_id, frozenset(order)

    def changes(self, now: float, *, flush: bool = False) -> tuple[SessionChanges, float | None]:
        """What is new, with quiet messages settled, and when the next one settles. Content is recorded in order."""
        state = self._entries[self._walk_from - 1].state if self._walk_from else WalkState()
        for entry in self._entries[self._walk_from :]:
            state, entry.step = walk(self.row, state, entry.message)
            entry.state = state
        self._walk_from = len(self._entries)
        changes = self._facts()
        changes.content += self._deleted_content
        self._deleted_content = []
        last, due, first_open = len(self._entries) - 1, float("inf"), len(self._entries)
        backwards = range(last, -1, -1)
        last_response = next((n for n in backwards if self._entries[n].message.response is not None), -1)
        for n in range(self._record_from, len(self._entries)):
            entry = self._entries[n]
            is_superseded = n < (last_response if entry.message.response is not None else last)
            is_over = entry.message.is_complete or is_superseded
            settles_at = entry.reading.quiet_since + (QUIET_S if is_over else IDLE_S)
            entry.settled = entry.settled or flush or now >= settles_at
            self._add_step(entry, changes)
            if not entry.settled:
                due, first_open = min(due, settles_at), min(first_open, n)
            elif first_open > n and entry.content is not None:
                self._add_content(entry, changes)
        self._record_from = first_open
        return changes, due if first_open <= last else None

    def orphans(self, open_turns: Mapping[str, Turn]) -> list[Turn]:
        own = self.row.id
        return [turn for name, turn in open_turns.items() if turn.session_id == own and name not in self._row_ids]

    def _add_step(self, entry: _Entry, changes: SessionChanges) -> None:
        if entry.step is None or not self._is_ours(entry.message.id):
            return
        candidate, before = entry.step.candidate, entry.recorded
        if before is not None and before[0] == candidate and (before[1] or not entry.settled):
            return
        entry.recorded = (candidate, entry.settled)
        row_ids = self._row_ids if self.elsewhere is None else None
        entries = entry.step.entries if entry.settled else ()
        candidate = replace(candidate, settled=entry.settled)
        changes.steps.append(Submission(candidate, self.path, entries, row_ids))

    def _add_content(self, entry: _Entry, changes: SessionChanges) -> None:
        if self._is_ours(entry.message.id):
            changes.content += entry.content or []
        name = (self.row.id, entry.message.id)
        changes.message_times[name] = entry.message.created
        if is_copied(self.row, entry.message):
            changes.copied.add(name)
        entry.content = None

    def _is_ours(self, message_id: str) -> bool:
        return self.elsewhere is None or message_id not in self.elsewhere

    def _facts(self) -> SessionChanges:
        changes = SessionChanges(agents=self._new_children())
        if self.elsewhere is not None or not self._entries:
            return changes  # a session without a message is not recorded yet
        agent = next((entry.message.agent for entry in self._entries if entry.message.agent), None)
        record, title = session_record(self.row, agent), title_of(self.row)
        if is_copied(self.row, self._entries[0].message) and not any(entry.step for entry in self._entries):
            title = None  # a fork repeats the original's title: wait for its first step, which shows the origin
        changes.sessions += [record] if record != self._session else []
        if title is not None and title != self._title:
            changes.content += encode_records([title], INLINE_BYTES)
        self._session, self._title = record, title
        return changes

    def _new_children(self) -> list[AgentRow]:
        """The sessions that calls of this one started, each with the first call that names it."""
        children: dict[str, tuple[str, int]] = {}
        for entry in self._entries:
            for call, child in entry.message.response.children if entry.message.response is not None else ():
                children.setdefault(child, (call, entry.message.created))
        new = [(child, *start) for child, start in children.items() if self._children.get(child) != start]
        self._children = children
        return [AgentRow(child, MAIN, LinkEvidence.RESULT, call, to_iso(ms), None, None) for child, call, ms in new]
