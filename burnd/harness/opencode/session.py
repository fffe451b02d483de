"""Walks through a session of opencode's, message by message: each assistant row becomes a step with its place.

The walk only looks back, and all it remembers is a small value: so it can be taken up again before any message that
turns out different, and ends where one walk over the whole session ends.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import msgspec
from msgspec.structs import replace

from burnd.classify.activity import Walk, step
from burnd.harness.opencode.rows import SessionRow, iso
from burnd.harness.opencode.said import Answered, Asked, Said
from burnd.harness.opencode.usage import total
from burnd.recording.candidate import FORKED, as_calls, relabelled
from burnd.records import Basis, Block, Compaction, Event, Session, Subagent, Turn, Usage
from burnd.records.content import MAIN
from burnd.records.turn import Quality

SOURCE: Final = "opencode"
_KEPT_PROMPTS: Final = 8
_KEPT_ROWS: Final = 32
_EVENTS: Final = {
    "MessageAbortedError": "interrupt",
    "ContentFilterError": "refusal",
    "MessageOutputLengthError": "output_length",
    "StructuredOutputError": "structured_output",
}


class Place(msgspec.Struct, frozen=True):
    """What a session's row says that its turns repeat."""

    session: SessionRow
    project_key: str | None = None


class Prompt(msgspec.Struct, frozen=True, gc=False):
    """What a person asked, by its word classes, and how far the retry walk over its steps has come."""

    id: str
    words: tuple[str, ...] = ()
    text_hash: str | None = None
    walk: Walk = Walk()


class Walked(msgspec.Struct, frozen=True):
    """All that the walk carries on from one message to the next.

    `asked` says which prompt each of the last user rows works on: its own, or for a row that opencode wrote the one
    before it. `compacting` is the newest row that asked for a compaction, with what triggered it.
    """

    next_index: int = 0
    last_turn: str | None = None
    entering: tuple[Block, ...] = ()
    prompts: tuple[Prompt, ...] = ()
    asked: tuple[tuple[str, str | None], ...] = ()
    compacting: tuple[str, str] | None = None
    after_summary: bool = False
    context: int = 0


class Step(NamedTuple):
    """An assistant row in its place. `beside` are events and compactions that are to be told along with it."""

    turn: Turn
    beside: tuple[Event | Compaction, ...] = ()


def session_record(place: Place, agent: str | None) -> Session:
    """What the ledger keeps of a session; its title is content."""
    row = place.session
    return Session(
        session_id=row.id,
        source=SOURCE,
        parent_session_id=row.parent,
        project=row.directory,
        project_key=place.project_key,
        agent=row.agent or agent,
        created_at=iso(row.created),
    )


def walk(place: Place, walked: Walked, said: Said) -> tuple[Walked, Step | None]:
    """Goes one message further; an assistant row comes out as a step."""
    if said.asked is not None:
        return _hear(place, walked, said, said.asked), None
    if said.answered is not None:
        return _answer(place, walked, said, said.answered)
    return walked, None


def is_older(place: Place, said: Said) -> bool:
    """Whether a message was there before its session: a fork's, whose past was copied into it under new ids."""
    return said.created < place.session.created


def _hear(place: Place, walked: Walked, said: Said, asked: Asked) -> Walked:
    """A user row. In a child session the parent's agent is the one who asks, and its text is the prompt."""
    prompts = walked.prompts
    current = prompts[-1].id if prompts else None
    is_prompt = asked.human if place.session.parent is None else asked.text_hash is not None or asked.human
    if is_prompt:
        again = _said_before(walked, asked)
        if again is None:
            prompts = (*prompts, Prompt(said.id, asked.words, asked.text_hash))[-_KEPT_PROMPTS:]
        current = said.id if again is None else again.id
    return replace(
        walked,
        entering=walked.entering + asked.blocks,
        prompts=prompts,
        asked=(*walked.asked, (said.id, current))[-_KEPT_ROWS:],
        compacting=(said.id, asked.trigger) if asked.trigger is not None else walked.compacting,
        after_summary=False,
    )


def _said_before(walked: Walked, asked: Asked) -> Prompt | None:
    """The prompt that a row repeats: when a context overflowed, opencode asks again after the compaction."""
    if not walked.after_summary or asked.text_hash is None:
        return None
    return next((one for one in reversed(walked.prompts) if one.text_hash == asked.text_hash), None)


def _answer(place: Place, walked: Walked, said: Said, answered: Answered) -> tuple[Walked, Step]:
    prompt = _prompt_of(walked, answered)
    if prompt is not None and answered.calls:
        prompt = replace(prompt, walk=step(prompt.walk, as_calls(answered.calls)))
    turn = Turn(
        source=SOURCE,
        session_id=place.session.id,
        rail_id=MAIN,
        message_id=said.id,
        turn_index=walked.next_index,
        parent=walked.last_turn,
        ts=iso(said.created),
        model=answered.model,
        provider=answered.provider,
        project=place.session.directory,
        project_key=place.project_key,
        usage=answered.usage,
        stated_usd=answered.cost_usd,
        tool_calls=answered.calls,
        entered=walked.entering,
        made=answered.made,
        files_touched=answered.files,
        subagent=_subagent(place, said),
        stop_reason=answered.finish or answered.error,
        prompt_words=prompt.words if prompt is not None else (),
        prompt_id=prompt.id if prompt is not None else None,
        prompt_retries=prompt.walk.retries if prompt is not None else 0,
        quality=_quality(answered),
        basis=Basis(rank=FORKED, ts=iso(place.session.created)) if is_older(place, said) else None,
    )
    compaction = _compaction(place, walked, said, answered)
    onward = replace(
        walked,
        next_index=walked.next_index + 1,
        last_turn=said.id,
        entering=_carried(answered, compacted=compaction is not None),
        prompts=tuple(prompt if prompt is not None and one.id == prompt.id else one for one in walked.prompts),
        after_summary=_trigger(walked, answered) == "auto",
        context=total(answered.usage) or walked.context,
    )
    return onward, Step(relabelled(turn), _beside(place, said, answered, compaction))


def _beside(
    place: Place, said: Said, answered: Answered, compaction: Compaction | None
) -> tuple[Event | Compaction, ...]:
    """What happened beside a copied message happened, and was told, where it was copied from."""
    if is_older(place, said):
        return ()
    return (*_events(place, said, answered), *([compaction] if compaction is not None else []))


def _prompt_of(walked: Walked, answered: Answered) -> Prompt | None:
    """What a step works on: the prompt of the row that it answers, or the newest where that row is gone."""
    newest = walked.prompts[-1].id if walked.prompts else None
    wanted = next((prompt for row, prompt in reversed(walked.asked) if row == answered.parent), newest)
    return next((one for one in walked.prompts if one.id == wanted), None)


def _quality(answered: Answered) -> Quality:
    """`partial` where a step reached the model and its usage was not recorded: it never ended, or was aborted, failed
    or finished after the model had begun to answer. `empty` where the request failed or was aborted before that, and
    for rows that are no request (`!shell`), which have neither a finish nor an error.
    """
    if answered.completed is None:
        return "partial"
    if answered.usage != Usage():
        return "final"
    is_answer = answered.has_output and (answered.finish or answered.error) is not None
    return "partial" if is_answer else "empty"


def _subagent(place: Place, said: Said) -> Subagent | None:
    if place.session.parent is None:
        return None
    return Subagent(agent_id=place.session.id, type=place.session.agent or said.agent)


def _carried(answered: Answered, *, compacted: bool) -> tuple[Block, ...]:
    """What the next step is given of this one; after a compaction that is the summary alone."""
    if compacted:
        return (Block(kind="summary", bytes=answered.said_bytes),)
    return answered.came_back


def _compaction(place: Place, walked: Walked, said: Said, answered: Answered) -> Compaction | None:
    """A context was replaced by a summary, once that has been written to its end."""
    if not answered.is_summary or answered.completed is None or answered.error is not None:
        return None
    row = answered.parent or said.id
    return Compaction(
        source=SOURCE,
        session_id=place.session.id,
        rail_id=MAIN,
        id=row,
        ts=iso(max(answered.completed, said.created)),
        trigger=_trigger(walked, answered),
        before_tokens=walked.context or None,
    )


def _trigger(walked: Walked, answered: Answered) -> str | None:
    """What asked for the summary that this is, where the asking row is the newest of its kind."""
    row, trigger = walked.compacting or (None, None)
    return trigger if answered.is_summary and row == answered.parent else None


def _events(place: Place, said: Said, answered: Answered) -> list[Event]:
    found = [(part, when or said.created, "retry", status) for part, when, status in answered.retries]
    if answered.error is not None:
        found.append((said.id, said.created, _EVENTS.get(answered.error, "api_error"), answered.status))
    return [
        Event(
            source=SOURCE,
            session_id=place.session.id,
            rail_id=MAIN,
            id=name,
            ts=iso(when),
            name=what,
            message_id=said.id,
            status=status,
        )
        for name, when, what, status in found
    ]
