"""Sessions of programs that call models themselves: made, added to and named over the socket."""

from __future__ import annotations

import os
import uuid
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

from burnd.clients.api_before import Before, Led, before, message
from burnd.clients.folders import Folders
from burnd.content.recall import Recall
from burnd.harness.api.messages import (
    Given,
    NotContent,
    Read,
    Setting,
    answered,
    as_first_said,
    read,
    turns,
)
from burnd.harness.api.usage import API_SOURCES, ApiSource, NotUsage, bill, source_of
from burnd.harness.claude_code.usage import Bill
from burnd.logfiles.log_reader import NEVER
from burnd.queries.sessions import Known, exactly
from burnd.queries.view import NoSession, Params, Refusal, View
from burnd.recording.batch import Batch
from burnd.recording.pipeline import Pipeline
from burnd.records import Content, Event, Session, Turn
from burnd.records.codec import Entry
from burnd.records.content import TITLE
from burnd.records.folders import is_bounded
from burnd.records.times import canonical, to_iso

Ask = Callable[[Callable[[View], Any]], Awaitable[Any]]
LONGEST_ID: Final = 200
LONGEST_TITLE, LONGEST_SUMMARY = 500, 10_000
_LAST_TURNS: Final = 50
_NOTHING_DONE: Final = "nothing was appended"


class NewParams(Params, frozen=True, kw_only=True):
    """Who the session is of and who asks for it; where it belongs, as far as that is known already."""

    agent: str
    sender: str
    source: ApiSource | None = None
    project: str | None = None
    parent: str | None = None
    title: str | None = None


class AppendParams(Params, frozen=True, kw_only=True):
    """Messages for a session, and turns of which only the usage is known. `source`: whose usage objects they have."""

    id: str
    messages: list[Given] = msgspec.field(default_factory=list)
    turns: list[Given] = msgspec.field(default_factory=list)
    source: ApiSource | None = None


class SetParams(Params, frozen=True, kw_only=True):
    """A session's own title or summary, which win over what its harness says; empty ones let the harness's stand."""

    id: str
    title: str | None = None
    summary: str | None = None


async def new(pipeline: Pipeline, ask: Ask, folders: Folders, params: NewParams) -> str:
    """Makes a session and returns its id. It is there at once and for ever, whether or not anything is said in it."""
    for name, value in (("agent", params.agent), ("sender", params.sender)):
        if not value.strip() or len(value) > LONGEST_ID:
            raise Refusal(f"{name} is a name of 1 to {LONGEST_ID} characters")
    if params.project is not None and not _is_whole_path(params.project):
        raise Refusal(f"project {params.project[:80]!r} is not a whole path", "give the folder from / on")
    _check_words(params.title, None)
    if params.parent is not None:
        await _known(ask, params.parent)
    folder = await folders.look(params.project) if params.project else None
    now = to_iso(pipeline.now())
    session = Session(
        session_id=str(uuid.uuid4()),
        source=params.source or "",
        parent_session_id=params.parent,
        project=params.project,
        project_key=next(iter(folder.keys), None) if folder else None,
        agent=params.agent,
        created_by=params.sender,
        created_at=now,
        updated_at=now,
        title=_stripped(params.title),
    )
    await pipeline.commit(Batch(entries=[session]))
    return session.session_id


def _is_whole_path(project: str) -> bool:
    return os.path.isabs(project) and "\0" not in project and is_bounded(project)


async def set_words(pipeline: Pipeline, ask: Ask, params: SetParams) -> str:
    """Says a session's title or summary; returns its id."""
    if params.title is None and params.summary is None:
        raise Refusal("say a title or a summary")
    _check_words(params.title, params.summary)
    source = (await _known(ask, params.id)).facts["source"] or ""
    title, summary = _stripped(params.title), _stripped(params.summary)
    await pipeline.commit(Batch(entries=[Session(session_id=params.id, source=source, title=title, summary=summary)]))
    return params.id


async def _known(ask: Ask, session_id: str) -> Known:
    known: Known | None = await ask(lambda view: exactly(view, session_id))
    if known is None:
        raise NoSession(f"there is no session {session_id[:80]!r}", "burnctl sessions lists them")
    return known


async def append(pipeline: Pipeline, ask: Ask, recall: Recall, params: AppendParams) -> dict[str, Any]:
    """Adds messages, each once: of one that is there already only the bill may change."""
    given = [*params.messages, *params.turns]
    _check(given)
    if (nameless := next((one for one in params.turns if not one.is_turn), None)) is not None:
        raise Refusal(f"turn {nameless.id!r}: a turn is an answer and has a model", _NOTHING_DONE)
    found: Before = await ask(lambda view: before(view, recall, params.id, given))
    now = to_iso(pipeline.now())
    reads = [_read(one, found, now) for one in found.given]
    source = _source(params, found)
    old = await _recorded(pipeline, found, reads, source) if source is not None else {}
    entries: list[Entry] = [*_messages(found, reads), *(_turns(found, old, reads, source) if source else ())]
    ids = {one.id for one in found.given}
    fresh = ids - found.times.keys()
    if fresh:
        count = found.known.facts["messageCount"] + len(fresh)
        entries.append(Session(session_id=params.id, source=source or "", updated_at=now, message_count=count))
    await pipeline.commit(Batch(content=_content(found, old, reads), entries=entries))
    return {"sessionId": params.id, "appended": len(fresh), "known": len(ids) - len(fresh)}


def _check(given: Sequence[Given]) -> None:
    if not given:
        raise Refusal("there is nothing to append", "give messages, turns or both")
    for number, one in enumerate(given):
        _check_names(number, one)
        if one.id.startswith(TITLE):
            raise Refusal(f"message {number}: ids that begin with {TITLE} are a harness's titles")
        if one.usage is not None and not one.is_turn:
            raise Refusal(f"message {one.id!r}: usage goes with an answer and its model", _NOTHING_DONE)


def _check_names(number: int, one: Given) -> None:
    """Every answer that has a name in it shows all of it, so none may be a text."""
    needed = [("id", one.id), ("rail", one.rail), ("model", "-" if one.model is None else one.model)]
    for name, value in (*needed, ("provider", one.provider or "-"), ("stopReason", one.stop_reason or "-")):
        if not value.strip() or len(value) > LONGEST_ID:
            raise Refusal(f"message {number}: {name} has 1 to {LONGEST_ID} characters", _NOTHING_DONE)


def _check_words(title: str | None, summary: str | None) -> None:
    for name, value, most in (("title", title, LONGEST_TITLE), ("summary", summary, LONGEST_SUMMARY)):
        if value is not None and len(value) > most:
            raise Refusal(f"a {name} has at most {most:,} characters")


def _stripped(words: str | None) -> str | None:
    return words.strip() if words is not None else None


def _read(given: Given, found: Before, now: str) -> Read:
    """A message with the time it has already, or else is said to have."""
    said = _time(given, now)
    try:
        made = read(found.known.session_id, given, found.times.get(given.id) or said)
    except NotContent as error:
        raise Refusal(f"message {given.id!r}: {error}", _NOTHING_DONE) from None
    if any(len(call.name) > LONGEST_ID or len(call.id) > LONGEST_ID for call in made.calls):
        raise Refusal(f"message {given.id!r}: a tool's name and a call's id have at most {LONGEST_ID} characters")
    return made


def _time(given: Given, now: str) -> str:
    """When it was said, now at the latest: a clock that is ahead must not make its session the newest for years."""
    if given.ts is None:
        return now
    try:
        ts = canonical(given.ts)
    except (ValueError, OverflowError):
        raise Refusal(f"message {given.id!r}: ts is not an ISO 8601 time", _NOTHING_DONE) from None
    if ts <= NEVER:
        raise Refusal(f"message {given.id!r}: ts is before any model answered", _NOTHING_DONE)
    return min(ts, now)


def _source(params: AppendParams, found: Before) -> ApiSource | None:
    """Whose API it is: as said now, as said before, or as the usage objects tell."""
    known = next((source for source in API_SOURCES if source == found.known.facts["source"]), None)
    if known is None and found.known.facts["source"]:
        whose = found.known.facts["source"]
        raise Refusal(f"this session is {whose}'s, which is recorded by itself", "sessions.new makes one of your own")
    if params.source is not None and known not in (None, params.source):
        raise Refusal(f"this session is of source {known}", "one session has one source")
    told = (source_of(one.usage) for one in found.given if one.usage is not None)
    source = params.source or known or next(filter(None, told), None)
    if source is None and any(one.is_turn for one in found.given):
        raise Refusal("it cannot be told whose usage this is", f"say source: one of {', '.join(API_SOURCES)}")
    return source


def _content(found: Before, old: Mapping[str, Turn], reads: Iterable[Read]) -> list[Content]:
    """What the messages say: the first of each id stays, so that nothing that was found can come to say otherwise."""
    said = found.told | {message_id for message_id, turn in old.items() if turn.made}
    first: dict[str, Read] = {}
    for one in reads:
        if one.given.id not in said and (one.blocks or one.given.id not in found.times):
            first.setdefault(one.given.id, one)
    return [record for one in first.values() for record in one.content]


def _messages(found: Before, reads: Iterable[Read]) -> list[Event]:
    """Those that are no turns, to be known again whether or not their content is kept."""
    others = (one for one in reads if not one.given.is_turn and one.given.id not in found.told)
    return [message(found.known.session_id, one.given, one.ts) for one in others]


def _turns(found: Before, old: dict[str, Turn], reads: Sequence[Read], source: ApiSource) -> list[Turn]:
    """The turns among the messages, and those of before whose calls are answered now."""
    came = [result for one in reads for result in one.came]
    made = dict(old)
    for one in reads:
        rail, before = one.given.rail, made.get(one.given.id)
        if one.given.is_turn:
            setting = _setting(found, one.given, source) if before is None else _as_before(before)
            again = as_first_said(one, before)
            made |= {own.message_id: own for own in turns(again, _bill(source, one.given), setting)}
            found.led[rail] = found.led[rail]._replace(entered=())
        elif one.given.id not in found.times:
            found.led[rail] = _after(found.led[rail], one)
    return [answered(one, came) for one in made.values()]


def _after(led: Led, one: Read) -> Led:
    """What leads to the next turn, with one more message."""
    if one.given.role == "user":
        led = led._replace(prompt_id=one.given.id, words=one.words)
    return led if one.given.role == "assistant" else led._replace(entered=(*led.entered, *one.blocks))


def _setting(found: Before, given: Given, source: str) -> Setting:
    index = found.next_index[given.rail]
    found.next_index[given.rail] += 1
    facts, led = found.known.facts, found.led[given.rail]
    return Setting(
        session_id=found.known.session_id,
        source=source,
        turn_index=index,
        project=facts["project"],
        project_key=facts["projectKey"],
        entered=led.entered,
        prompt_id=led.prompt_id,
        words=led.words,
    )


def _as_before(old: Turn) -> Setting:
    """A turn that is said again stands where it stood, after what led to it then."""
    return Setting(
        session_id=old.session_id,
        source=old.source,
        turn_index=old.turn_index,
        project=old.project,
        project_key=old.project_key,
        entered=old.entered,
        prompt_id=old.prompt_id,
        words=old.prompt_words,
    )


def _bill(source: ApiSource, given: Given) -> Bill:
    if given.usage is None:
        return Bill()
    try:
        return bill(source, given.usage)
    except NotUsage as error:
        raise Refusal(f"message {given.id!r}: {error}", _NOTHING_DONE) from None


async def _recorded(pipeline: Pipeline, found: Before, reads: Sequence[Read], source: ApiSource) -> dict[str, Turn]:
    """The turns with these ids, and those that made the calls that are answered, as they were recorded."""
    own = [(source, one.given.id) for one in reads if one.given.is_turn]
    known = await pipeline.index.known_turns(sorted({*await _callers(pipeline, found, reads), *own}))
    entries = (row.entry_in(pipeline.journal) for row in known.values())
    return {entry.message_id: entry for entry in entries if isinstance(entry, Turn)}


async def _callers(pipeline: Pipeline, found: Before, reads: Sequence[Read]) -> set[tuple[str, str]]:
    """The turns that made the calls that are answered: nearly always among the last, and so looked for there first."""
    rails = {result.call_id: one.given.rail for one in reads for result in one.came}
    keys = [(call_id, rail, found.next_index[rail] - _LAST_TURNS) for call_id, rail in rails.items()]
    lately = await pipeline.index.keyed(_LATE_CALLERS.format(row=found.known.row, keys="{keys}"), keys)
    others = [(call_id,) for call_id in rails.keys() - {row[0] for row in lately}]
    long_ago = await pipeline.index.keyed(_CALLERS.format(row=found.known.row, keys="{keys}"), others)
    return {(source, message_id) for _, source, message_id in [*lately, *long_ago]}


_LATE_CALLERS = """
WITH wanted(call_id, rail, since) AS ({keys}) SELECT DISTINCT w.call_id, n.name, t.message_id FROM wanted w
CROSS JOIN turns t ON t.session = {row} AND t.rail = w.rail AND t.turn_index >= w.since
CROSS JOIN tool_calls c ON c.turn = t.id AND c.call_id = w.call_id JOIN names n ON n.id = t.source
"""
_CALLERS = (
    "SELECT DISTINCT c.call_id, n.name, t.message_id FROM turns t JOIN tool_calls c ON c.turn = t.id "
    "JOIN names n ON n.id = t.source WHERE t.session = {row} AND c.call_id IN ({keys})"
)
