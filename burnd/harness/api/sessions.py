"""Sessions that programs push: creates them, appends messages, sets titles and summaries."""

from __future__ import annotations

import os
import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

import msgspec

from burnd.classify.keywords import prompt_words
from burnd.content.recall import Recall
from burnd.contract.sessions import AppendParams, NewParams, SetParams
from burnd.contract.validation import parsed
from burnd.harness.anthropic import Bill, result_of
from burnd.harness.api.messages import (
    API_SOURCES,
    ApiSource,
    InvalidContent,
    InvalidUsage,
    ParsedMessage,
    PushedMessage,
    TurnContext,
    bill,
    parse,
    source_of,
    turns_of,
    with_outcomes,
)
from burnd.harness.tool_calls import size
from burnd.index.apply import fact_key
from burnd.index.schema import MESSAGES_BY_ID, is_message
from burnd.index.store import known_turns
from burnd.ledger.journal import identity
from burnd.logfiles.log_reader import NEVER
from burnd.queries.sessions import SessionEntry, exactly
from burnd.queries.view import Folder, NoSession, Refusal, View
from burnd.recording.candidate import Batch
from burnd.recording.ownership import number_on_rail
from burnd.recording.pipeline import Pipeline
from burnd.records import Block, Content, Event, Session, Turn
from burnd.records.codec import Entry
from burnd.records.content import TITLE
from burnd.records.names import is_bounded
from burnd.records.session import MESSAGE
from burnd.records.times import canonical, to_iso

Query = Callable[[Callable[[View], Any]], Awaitable[Any]]
FolderLookup = Callable[[str], Awaitable[Folder]]
LONGEST_ID: Final = 200
LONGEST_TITLE, LONGEST_SUMMARY = 500, 10_000
_RECENT_TURNS: Final = 50
_RECENT_RECORDS: Final = 200  # searched for the input of a rail's next turn
_NOTHING_DONE: Final = "nothing was appended"


async def new(pipeline: Pipeline, query: Query, look_up: FolderLookup, params: NewParams) -> str:
    for name, value in (("agent", params.agent), ("sender", params.sender)):
        if not value.strip() or len(value) > LONGEST_ID:
            raise Refusal(f"{name} is a name of 1 to {LONGEST_ID} characters")
    project = params.project
    if project is not None and not (os.path.isabs(project) and "\0" not in project and is_bounded(project)):
        raise Refusal(f"project {project[:80]!r} is not a whole path", "give the folder from / on")
    _check_lengths(params.title, None)
    if params.parent is not None:
        await _existing(query, params.parent)
    folder = await look_up(project) if project else None
    now = to_iso(pipeline.now())
    session = Session(
        session_id=str(uuid.uuid4()),
        source=params.source or "",
        parent_session_id=params.parent,
        project=project,
        project_key=next(iter(folder.keys), None) if folder else None,
        agent=params.agent,
        created_by=params.sender,
        created_at=now,
        updated_at=now,
        title=_stripped(params.title),
    )
    await pipeline.commit(Batch(entries=[session]))
    return session.session_id


async def set_texts(pipeline: Pipeline, query: Query, params: SetParams) -> str:
    if params.title is None and params.summary is None:
        raise Refusal("title and summary are both missing", "give one of them or both")
    _check_lengths(params.title, params.summary)
    source = (await _existing(query, params.id)).facts["source"] or ""
    title, summary = _stripped(params.title), _stripped(params.summary)
    await pipeline.commit(Batch(entries=[Session(session_id=params.id, source=source, title=title, summary=summary)]))
    return params.id


async def _existing(query: Query, session_id: str) -> SessionEntry:
    session: SessionEntry | None = await query(lambda view: exactly(view, session_id))
    if session is None:
        raise NoSession(f"there is no session {session_id[:80]!r}", "burnctl sessions lists them")
    return session


def _check_lengths(title: str | None, summary: str | None) -> None:
    for name, value, longest in (("title", title, LONGEST_TITLE), ("summary", summary, LONGEST_SUMMARY)):
        if value is not None and len(value) > longest:
            raise Refusal(f"a {name} has at most {longest:,} characters")


def _stripped(text: str | None) -> str | None:
    return text.strip() if text is not None else None


async def append(pipeline: Pipeline, query: Query, recall: Recall, params: AppendParams) -> dict[str, Any]:
    """Adds messages, each once: of an existing one, only the bill may change."""
    turns = _given(params, "turns")
    messages = [*_given(params, "messages"), *turns]
    _check_messages(messages)
    if (invalid := next((one for one in turns if not one.is_turn), None)) is not None:
        raise Refusal(f"turn {invalid.id!r}: a turn is an answer and has a model", _NOTHING_DONE)
    existing: ExistingSession = await query(lambda view: existing_session(view, recall, params.id, messages))
    now = to_iso(pipeline.now())
    parsed = [_parse(one, existing, now) for one in existing.messages]
    source = _source(params, existing)
    recorded = await _recorded_turns(pipeline, existing, parsed, source) if source is not None else {}
    entries: list[Entry] = [
        message_event(params.id, one.message, one.ts)
        for one in parsed
        if not one.message.is_turn and one.message.id not in existing.events
    ]
    if source is not None:
        entries += _turns(existing, recorded, parsed, source)
    ids = {one.id for one in existing.messages}
    added = ids - existing.times.keys()
    if added:
        count = existing.session.facts["messageCount"] + len(added)
        entries.append(Session(session_id=params.id, source=source or "", updated_at=now, message_count=count))
    await pipeline.commit(Batch(content=_new_content(existing, recorded, parsed), entries=entries))
    return {"sessionId": params.id, "appended": len(added), "known": len(ids) - len(added)}


def _given(params: AppendParams, name: str) -> list[PushedMessage]:
    raw = getattr(params, name)
    messages: list[PushedMessage] = [] if raw is None else parsed(raw, list[PushedMessage], {}, name)
    return messages


def _check_messages(messages: Sequence[PushedMessage]) -> None:
    """Raises Refusal. Ids and names are bounded, since reports show them in full."""
    if not messages:
        raise Refusal("there is nothing to append", "give messages, turns or both")
    for number, one in enumerate(messages):
        names = {
            "id": one.id,
            "rail": one.rail,
            "model": "-" if one.model is None else one.model,
            "provider": one.provider or "-",
            "stopReason": one.stop_reason or "-",
        }
        for name, value in names.items():
            if not value.strip() or len(value) > LONGEST_ID:
                raise Refusal(f"message {number}: {name} has 1 to {LONGEST_ID} characters", _NOTHING_DONE)
        if one.id.startswith(TITLE):
            raise Refusal(f"message {number}: ids that begin with {TITLE} are a harness's titles")
        if one.usage is not None and not one.is_turn:
            raise Refusal(f"message {one.id!r}: usage goes with an answer and its model", _NOTHING_DONE)


def _parse(message: PushedMessage, existing: ExistingSession, now: str) -> ParsedMessage:
    ts = _time(message, now)
    try:
        parsed = parse(existing.session.session_id, message, existing.times.get(message.id) or ts)
    except InvalidContent as error:
        raise Refusal(f"message {message.id!r}: {error}", _NOTHING_DONE) from None
    if any(len(call.name) > LONGEST_ID or len(call.id) > LONGEST_ID for call in parsed.calls):
        raise Refusal(f"message {message.id!r}: a tool's name and a call's id have at most {LONGEST_ID} characters")
    return parsed


def _time(message: PushedMessage, now: str) -> str:
    """The message's time, at most now: a clock that is ahead must not make its session the newest for years."""
    if message.ts is None:
        return now
    try:
        ts = canonical(message.ts)
    except (ValueError, OverflowError):
        raise Refusal(f"message {message.id!r}: ts is not an ISO 8601 time", _NOTHING_DONE) from None
    if ts <= NEVER:
        raise Refusal(f"message {message.id!r}: ts is not after 1970-01-01", _NOTHING_DONE)
    return min(ts, now)


def _source(params: AppendParams, existing: ExistingSession) -> ApiSource | None:
    """The session's source: as recorded, as given, or by the usage objects."""
    recorded = existing.session.facts["source"]
    before = next((source for source in API_SOURCES if source == recorded), None)
    if before is None and recorded:
        raise Refusal(
            f"the session is recorded from the logs of {recorded}", "sessions.new creates one for your program"
        )
    if params.source is not None and before not in (None, params.source):
        raise Refusal(
            f"the session has the source {before}", "a session has one source; sessions.new creates another session"
        )
    by_usage = (source_of(one.usage) for one in existing.messages if one.usage is not None)
    explicit = next((source for source in API_SOURCES if source == params.source), None)
    source = explicit or before or next(filter(None, by_usage), None)
    if source is None and any(one.is_turn for one in existing.messages):
        raise Refusal(
            "the session has no source, and its usage does not show one",
            f"give source: one of {', '.join(API_SOURCES)}",
        )
    return source


def _new_content(
    existing: ExistingSession, recorded: Mapping[str, Turn], parsed: Sequence[ParsedMessage]
) -> list[Content]:
    """The content of messages that have none yet: the first of each id stays, so that quotes never change."""
    has_content = existing.events | {message_id for message_id, turn in recorded.items() if turn.made}
    first: dict[str, ParsedMessage] = {}
    for one in parsed:
        message_id = one.message.id
        if message_id not in has_content and (one.blocks or message_id not in existing.times):
            first.setdefault(message_id, one)
    return [record for one in first.values() for record in one.content]


def _turns(
    existing: ExistingSession, recorded: dict[str, Turn], parsed: Sequence[ParsedMessage], source: ApiSource
) -> list[Turn]:
    """The turns among the messages, and earlier ones whose calls have results now."""
    outcomes = [outcome for one in parsed for outcome in one.outcomes]
    turns = dict(recorded)
    for one in parsed:
        message, before = one.message, turns.get(one.message.id)
        rail_input = existing.inputs[message.rail]
        if message.is_turn:
            if before is not None and before.made:  # only the bill may change
                one = one._replace(blocks=before.made, calls=before.tool_calls, files=before.files_touched)
            context = _new_context(existing, message.rail, source) if before is None else _context_of(before)
            turns |= {turn.message_id: turn for turn in turns_of(one, _bill(source, message), context)}
            existing.inputs[message.rail] = rail_input._replace(entered=())
        elif message.id not in existing.times and message.role != "assistant":
            if message.role == "user":
                rail_input = rail_input._replace(prompt_id=message.id, words=one.words)
            existing.inputs[message.rail] = rail_input._replace(entered=(*rail_input.entered, *one.blocks))
    return [with_outcomes(turn, outcomes) for turn in turns.values()]


def _new_context(existing: ExistingSession, rail: str, source: str) -> TurnContext:
    index = number_on_rail(place=0, recorded=None, free=existing.next_index[rail])
    existing.next_index[rail] = index + 1
    facts = existing.session.facts
    session_id, rail_input = existing.session.session_id, existing.inputs[rail]
    return TurnContext(session_id, source, index, facts["project"], facts["projectKey"], facts["agent"], *rail_input)


def _context_of(turn: Turn) -> TurnContext:
    return TurnContext(
        session_id=turn.session_id,
        source=turn.source,
        turn_index=turn.turn_index,
        project=turn.project,
        project_key=turn.project_key,
        agent=turn.agent,
        entered=turn.entered,
        prompt_id=turn.prompt_id,
        words=turn.prompt_words,
    )


def _bill(source: ApiSource, message: PushedMessage) -> Bill:
    if message.usage is None:
        return Bill()
    try:
        return bill(source, message.usage)
    except InvalidUsage as error:
        raise Refusal(f"message {message.id!r}: {error}", _NOTHING_DONE) from None


async def _recorded_turns(
    pipeline: Pipeline, existing: ExistingSession, parsed: Sequence[ParsedMessage], source: ApiSource
) -> dict[str, Turn]:
    index, row = pipeline.index, existing.session.row
    rails = {outcome.call_id: one.message.rail for one in parsed for outcome in one.outcomes}
    keys = [(call_id, rail, existing.next_index[rail] - _RECENT_TURNS) for call_id, rail in rails.items()]
    recent = await index.keyed(_RECENT_CALLERS.format(row=row, keys="{keys}"), keys)
    others = [(call_id,) for call_id in rails.keys() - {call_id for call_id, _, _ in recent}]
    older = await index.keyed(_CALLERS.format(row=row, keys="{keys}"), others)
    turn_keys = {(name, message_id) for _, name, message_id in [*recent, *older]}
    turn_keys |= {(source, one.message.id) for one in parsed if one.message.is_turn}
    rows = await index.in_writer(partial(known_turns, keys=sorted(turn_keys)))
    entries = (one.entry_in(pipeline.journal) for one in rows.values())
    return {entry.message_id: entry for entry in entries if isinstance(entry, Turn)}


class RailInput(NamedTuple):
    """The input of a rail's next turn: blocks since the last one, and the prompt with its word classes."""

    entered: tuple[Block, ...] = ()
    prompt_id: str | None = None
    words: tuple[str, ...] = ()


class ExistingSession(NamedTuple):
    session: SessionEntry
    messages: list[PushedMessage]  # the messages under their recorded ids
    times: dict[str, str]  # of those messages that are recorded already
    events: set[str]  # the ids of those that are no turns
    next_index: dict[str, int]  # by rail
    inputs: dict[str, RailInput]  # by rail


def existing_session(view: View, recall: Recall, session_id: str, messages: Sequence[PushedMessage]) -> ExistingSession:
    session = exactly(view, session_id)
    if session is None:
        raise NoSession(f"there is no session {session_id[:80]!r}", "sessions.new creates one")
    # The ledger identifies a turn by its id alone: an id that another session has gets this session's id appended.
    turn_ids = [(one.id,) for one in messages if one.is_turn]
    used_ids = {id_ for (id_,) in view.keyed(_TAKEN.format(row=session.row, keys="{keys}"), turn_ids)}
    messages = [
        msgspec.structs.replace(one, id=f"{one.id}@{session_id}") if one.id in used_ids else one for one in messages
    ]
    ids = [(one.id,) for one in messages]
    contents = view.keyed(_CONTENTS.format(row=session.row, keys="{keys}"), ids)
    turns = view.keyed(_TURNS.format(row=session.row, keys="{keys}"), ids)
    events = view.keyed(_EVENTS, [(one.id, fact_key(identity(message_event(session_id, one, "")))) for one in messages])
    next_index, inputs = {}, {}
    for rail in {one.rail for one in messages}:
        ((last,),) = view.rows("SELECT max(turn_index) FROM turns WHERE session = ? AND rail = ?", (session.row, rail))
        next_index[rail] = 0 if last is None else last + 1
        inputs[rail] = _rail_input(view, recall, session, rail)
    return ExistingSession(
        session,
        messages,
        times={id_: to_iso(ts) for id_, ts in [*contents, *turns, *events]},
        events={id_ for id_, _ in events},
        next_index=next_index,
        inputs=inputs,
    )


def message_event(session_id: str, message: PushedMessage, ts: str) -> Event:
    """Records that a message exists, also where its content is not stored."""
    return Event(source="", session_id=session_id, rail_id=message.rail, id=f"@{message.id}", ts=ts, name=MESSAGE)


def _rail_input(view: View, recall: Recall, session: SessionEntry, rail: str) -> RailInput:
    since: list[tuple[Any, ...]] = []
    is_answered, prompt = False, None
    for row in view.db.execute(_LATEST, (session.row, rail, _RECENT_RECORDS)):
        is_answered = is_answered or row[1] == "assistant"
        if not is_answered:
            since.append(row)
        if row[1] == "user":
            prompt = prompt or row
        if is_answered and prompt is not None:
            break
    with recall.opened(session.session_id) as reading:
        records = [reading.record(*row[2:]) for row in reversed(since)]
        prompt_record = reading.record(*prompt[2:]) if prompt is not None else None
    blocks = [block for record in records if record is not None and (block := _block(record)) is not None]
    text = prompt_record.text if prompt_record is not None else None
    words = prompt_words(text) if isinstance(text, str) else ()
    return RailInput(tuple(blocks), prompt[0] if prompt is not None else None, words)


def _block(record: Content) -> Block | None:
    if record.tool_result is not None:
        return result_of(record.tool_result.tool_use_id, record.tool_result.content).blocks[0]
    if isinstance(record.text, str) and record.text:
        kind = {"user": "prompt", "tool_result": "result"}.get(record.role, "reminder")
        return Block(kind=kind, bytes=size(record.text))
    return None


# Sessions may grow for months: the time of these queries does not grow with them.
_CONTENTS = f"""
WITH wanted(id) AS ({{keys}}) SELECT w.id, min(m.ts) FROM wanted w
CROSS JOIN {MESSAGES_BY_ID} ON m.session = {{row}} AND {is_message("w.id")} GROUP BY 1
"""
_EVENTS = """
WITH wanted(id, key) AS ({keys}) SELECT w.id, f.ts FROM wanted w
CROSS JOIN facts f ON f.kind = 'event' AND f.key = w.key
"""
_API_TURNS = f"""
FROM wanted w CROSS JOIN names n ON n.name IN ({", ".join(map(repr, API_SOURCES))})
CROSS JOIN turns t ON t.source = n.id AND t.message_id = w.id
"""
_TURNS = f"WITH wanted(id) AS ({{keys}}) SELECT w.id, t.ts {_API_TURNS} WHERE +t.session = {{row}}"
_TAKEN = f"WITH wanted(id) AS ({{keys}}) SELECT w.id {_API_TURNS} WHERE +t.session <> {{row}}"
_LATEST = """
SELECT message_id, role, position, length FROM messages
WHERE session = ? AND rail = ? ORDER BY msg_idx DESC, n DESC, b DESC LIMIT ?
"""
_RECENT_CALLERS = """
WITH wanted(call_id, rail, since) AS ({keys}) SELECT DISTINCT w.call_id, n.name, t.message_id FROM wanted w
CROSS JOIN turns t ON t.session = {row} AND t.rail = w.rail AND t.turn_index >= w.since
CROSS JOIN tool_calls c ON c.turn = t.id AND c.call_id = w.call_id JOIN names n ON n.id = t.source
"""
_CALLERS = (
    "SELECT DISTINCT c.call_id, n.name, t.message_id FROM turns t JOIN tool_calls c ON c.turn = t.id "
    "JOIN names n ON n.id = t.source WHERE t.session = {row} AND c.call_id IN ({keys})"
)
