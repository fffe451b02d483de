"""Lines a model wrote: they open a candidate, add blocks and calls to it, and may raise what it was billed."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final
from zlib import crc32

from msgspec.structs import replace

from burnd.classify.activity import Call, step
from burnd.classify.tools import kind
from burnd.harness.claude_code.chain import begin_generation, entered
from burnd.harness.claude_code.content import CALLS, keep_message, keep_user
from burnd.harness.claude_code.lines import SYNTHETIC, Line, Message, Piece, branch_of
from burnd.harness.claude_code.memory import Memory, Spot
from burnd.harness.claude_code.requests import answer_attempt, fail_run
from burnd.harness.claude_code.state import KEPT_DELEGATIONS, Delegation, Link
from burnd.harness.claude_code.tools import Arguments, Result, arguments_of, has_failed, result_of
from burnd.harness.claude_code.usage import is_final, stated_output
from burnd.harness.tool_calls import short_hash, size
from burnd.recording.candidate import (
    FORKED,
    LACKS_REQUEST,
    NO_REQUEST_ID,
    SIDECHAIN,
    SOURCE,
    WORST_RANK,
    Candidate,
    LineKey,
)
from burnd.records import Block, Event, Subagent, ToolCall
from burnd.records.content import MAIN

REFUSAL: Final = "refusal"
_BACKGROUND: Final = "bg"
# A relay may give all its answers one id. What could be unique has a digit, or is long, or is Anthropic's.
_WORD: Final = re.compile(r"(?!msg)[A-Za-z_-]{1,11}")
MOST_BLOCKS: Final = 2000


def read_assistant(memory: Memory, spot: Spot) -> None:
    message = spot.line.message
    if message is None or message.model == SYNTHETIC:
        memory.follow(spot)
        if message is not None:
            _note_synthetic(memory, spot)
            keep_user(memory, spot, message.content, "system", "text")
        return
    message_id = _id_of(memory, spot, message)
    answer_attempt(memory, spot.line.request_ref, message.usage)
    candidate = memory.candidate(message_id) or _begin(memory, spot, message_id)
    _weigh(memory, candidate, spot, message)
    if spot.name not in candidate.lines and len(candidate.lines) < MOST_BLOCKS:
        _add_line(memory, candidate, spot, message)
    memory.touch(candidate)
    memory.add_link(spot, turn=message_id, prompt=candidate.prompt_id, said=True)


def _id_of(memory: Memory, spot: Spot, message: Message) -> str:
    line, given = spot.line, message.id
    if given is None or given == "":
        return line.request_id or line.uuid or _id_by_place(memory, spot)
    return _id_by_what_it_answers(memory, spot, given) if line.request_id is None and _WORD.fullmatch(given) else given


def _id_by_what_it_answers(memory: Memory, spot: Spot, word: str) -> str:
    """An id for a response whose own is none: lines of one response follow one another, or the same line above."""
    above, line = spot.parent, spot.line
    if not line.parent_uuid:  # nothing to tell them apart by: within one session the id is taken at its word
        return f"{word}:{line.session_id or memory.session_id}"
    if above is None:
        return f"{word}:{line.uuid or _id_by_place(memory, spot)}"
    is_its_line = above.said and above.turn is not None and above.turn.startswith(f"{word}:")
    return above.turn or "" if is_its_line else f"{word}:{above.uuid}"


def _id_by_place(memory: Memory, spot: Spot) -> str:
    """An id for a response that has none whatever: lines at the same offset of two files are not the same.

    Nor are they where two files have the same name, unless they are of the same time. The place comes last: messages
    are looked up by how their ids end, and many times end alike.
    """
    return f"{memory.session_id}/{spot.rail.id}@{spot.ts}@{spot.offset}"


def _note_synthetic(memory: Memory, spot: Spot) -> None:
    """The client speaks in the model's place: a request failed, was refused or was never answered."""
    line = spot.line
    if line.refused_message_id is not None:
        refused = memory.candidate(line.refused_message_id)
        if refused is None or refused.stop_reason != REFUSAL:
            note(memory, spot, REFUSAL, name=line.refused_message_id, message_id=line.refused_message_id)
    else:
        note(memory, spot, "api_error" if line.is_api_error_message else "no_response", status=line.api_error_status)
        fail_run(memory, line.api_error_status if line.is_api_error_message else None)


def note(
    memory: Memory,
    spot: Spot,
    what: str,
    *,
    name: str | None = None,
    message_id: str | None = None,
    status: int | None = None,
) -> None:
    """Record that something happened beside the turns."""
    memory.out.events.append(
        Event(
            source=SOURCE,
            session_id=memory.session_id,
            rail_id=spot.rail.id,
            id=name or spot.name,
            ts=spot.ts,
            name=what,
            message_id=message_id,
            status=status if status is not None and 0 <= status < 1000 else None,
            copied=memory.repeats(spot),
        )
    )


def _begin(memory: Memory, spot: Spot, message_id: str) -> Candidate:
    """Open a candidate: what stands above its first line is what the model was given."""
    rail, parent, line = spot.rail, spot.parent, spot.line
    memory.settle(rail.open)
    rail.open = message_id
    blocks = entered(memory, rail, parent)
    prompt = memory.prompt(parent.prompt) if parent is not None else None
    return Candidate(
        message_id=message_id,
        session_id=memory.session_id,
        rail_id=rail.id,
        turn_index=begin_generation(memory, rail, message_id),
        ts=spot.ts,
        # That it is marked is told by its first line alone: a client wrote all of a branch twice, then without marks.
        rank=WORST_RANK if line.forked_from is not None else WORST_RANK & ~FORKED,
        is_strange=memory.is_strange(line) or line.session_kind == _BACKGROUND,
        parent=parent.turn if parent is not None else None,
        entered=blocks,
        subagent=_subagent(spot) if rail.id != MAIN else None,
        project=memory.state.facts.project,
        git_branch=branch_of(line),
        prompt_id=prompt.id if prompt is not None else None,
        prompt_words=prompt.words if prompt is not None else (),
        prompt_retries=prompt.walk.retries if prompt is not None else 0,
    )


def _subagent(spot: Spot) -> Subagent:
    rail = spot.rail
    return Subagent(
        agent_id=rail.id,
        type=rail.agent_type or spot.line.attribution_agent,
        parent_tool_use_id=rail.parent_tool_use_id,
    )


def _weigh(memory: Memory, candidate: Candidate, spot: Spot, message: Message) -> None:
    """Take the line's whole usage object if it is the best so far; add its evidence to the rank."""
    line, usage = spot.line, message.usage
    if spot.ts < candidate.ts:
        candidate.ts = spot.ts
    if not candidate.final:
        candidate.final = is_final(line, message)
    if candidate.rank:
        candidate.rank &= _rank(memory, line) | FORKED
        candidate.request_ref = candidate.request_ref or line.request_ref
    key = LineKey(stated_output(usage), spot.ts, spot.name)
    if message.stop_reason is not None and key > candidate.stopped:
        _stop(memory, candidate, spot, message.stop_reason)
        candidate.stopped = key
    if key <= candidate.best:
        return
    candidate.best = key
    candidate.model = message.model or ""
    bill = memory.bill(usage)
    candidate.usage, candidate.speed, candidate.server_tools, candidate.apart = bill[:4]
    candidate.service_tier, candidate.inference_geo = bill.service_tier, bill.inference_geo


def _stop(memory: Memory, candidate: Candidate, spot: Spot, reason: str) -> None:
    if reason == REFUSAL and candidate.stop_reason != REFUSAL:
        note(memory, spot, REFUSAL, name=candidate.message_id, message_id=candidate.message_id)
    candidate.stop_reason = reason


def _rank(memory: Memory, line: Line) -> int:
    rank = 0
    if line.request_ref is None or line.request_ref not in memory.state.requests:
        rank |= LACKS_REQUEST
    if line.is_sidechain:
        rank |= SIDECHAIN
    if line.request_id is None:
        rank |= NO_REQUEST_ID
    return rank


def _add_line(memory: Memory, candidate: Candidate, spot: Spot, message: Message) -> None:
    """Take in the blocks of a line but those that another line of its message has said."""
    content = message.content
    said: Sequence[Piece]
    said = [Piece(type="text", text=content)] if isinstance(content, str) else content or []
    prints = [_print(spot.line, piece) for piece in said]
    known = frozenset(candidate.prints)
    if not known.isdisjoint(prints):
        said = [piece for print_, piece in zip(prints, said, strict=True) if print_ not in known]
        prints = [print_ for print_ in prints if print_ not in known]
        if not said:
            return
    # No model makes so many blocks; a log that says so must not make every later line of it slower.
    room = max(0, MOST_BLOCKS - len(candidate.made))
    for piece in said[:room]:
        _add_block(memory, candidate, piece)
    candidate.prints += tuple(prints[:room])
    keep_message(memory, spot, candidate.message_id, len(candidate.lines), said)
    candidate.lines += (spot.name,)


def _print(line: Line, piece: Piece) -> int:
    """Tells a block from the others of its message: by its id, or by its place, where the client says it, and words."""
    if piece.id:
        return crc32(f"{piece.type} {piece.id}".encode())
    said = piece.tool_use_id or piece.text or f"{piece.thinking or ''} {piece.signature or piece.data or ''}"
    place = f"{piece.type} " if piece.tool_use_id else f"{piece.type} {line.api_block_index} "
    return crc32(piece.input, crc32(said.encode(), crc32(place.encode())))


def _add_block(memory: Memory, candidate: Candidate, piece: Piece) -> None:
    made = _made(piece)
    if made is not None:
        candidate.made += (made,)
    if piece.type in CALLS:
        _add_call(memory, candidate, piece)
    elif piece.is_error:
        candidate.calls = tuple([_failed(call) if call.id == piece.tool_use_id else call for call in candidate.calls])


def _made(piece: Piece) -> Block | None:
    """A block of output by its size. Thinking that is hidden is as long as its signature."""
    if piece.type in CALLS:
        return Block(kind="call", bytes=len(piece.input), call_id=piece.id)
    if piece.type in ("thinking", "redacted_thinking"):
        return Block(kind="thinking", bytes=size(piece.thinking or piece.signature or piece.data or ""))
    if piece.text is not None:
        return Block(kind="text", bytes=size(piece.text))
    if piece.tool_use_id is not None:
        return Block(kind="result", bytes=len(piece.content), call_id=piece.tool_use_id)
    return None


def _add_call(memory: Memory, candidate: Candidate, piece: Piece) -> None:
    given = arguments_of(piece)
    piece.input = given.input
    if _has_call(candidate, given.call.id):
        return
    # What runs at the provider is answered within the response, if at all.
    answered = piece.type != "tool_use"
    candidate.calls += (replace(given.call, is_error=False) if answered else given.call,)
    if given.file is not None and given.file not in candidate.files:
        candidate.files += (given.file,)
    if given.prompt is not None:
        _expect_agent(memory, given)
    if kind(given.call.name) in ("edit", "shell"):
        _walk(memory, candidate, given.call.name)


def _failed(call: ToolCall) -> ToolCall:
    return replace(call, is_error=True)


def _expect_agent(memory: Memory, given: Arguments) -> None:
    waiting, call = memory.state.delegations, given.call
    waiting[call.id] = Delegation(call.id, short_hash((given.prompt or "").encode()), call.target)
    if len(waiting) > KEPT_DELEGATIONS:
        del waiting[next(iter(waiting))]


def _walk(memory: Memory, candidate: Candidate, tool: str) -> None:
    """Go on with the retry walk over all calls of the prompt."""
    prompt = memory.prompt(candidate.prompt_id)
    if prompt is None:
        return
    walk = step(prompt.walk, (Call(tool),))
    candidate.prompt_retries = walk.retries
    if walk != prompt.walk:
        memory.keep_prompt(replace(prompt, walk=walk))


def answer(memory: Memory, spot: Spot, piece: Piece) -> tuple[tuple[Block, ...], str | None]:
    """Give a call its result: the result's blocks, and the message whose call it answers if that is known."""
    call_id = piece.tool_use_id or ""
    result = result_of(call_id, piece.content)
    memory.state.delegations.pop(call_id, None)
    candidate = _asker(memory, spot, call_id)
    if candidate is None:
        return result.blocks, None
    candidate.calls = tuple(
        [_answered(memory, call, piece, result) if call.id == call_id else call for call in candidate.calls]
    )
    memory.touch(candidate)
    return result.blocks, candidate.message_id


def _answered(memory: Memory, call: ToolCall, piece: Piece, result: Result) -> ToolCall:
    failed = has_failed(call.name, piece.is_error, result)
    return ToolCall(
        id=call.id,
        name=call.name,
        target=call.target,
        args_hash=call.args_hash,
        edit_hash=call.edit_hash,
        result_hash=result.hash if memory.keep_hashes else None,
        is_error=failed,
        is_refused=failed and result.is_refusal,
    )


def _asker(memory: Memory, spot: Spot, call_id: str) -> Candidate | None:
    """The candidate with this call: that of the turn above, of the line the result names, or a recent one."""
    above = _with_call(memory, spot.parent, call_id)
    if above is not None:
        return above
    source = spot.line.source_tool_assistant_uuid
    named = _with_call(memory, memory.link(source), call_id) if source is not None else None
    if named is not None:
        return named
    return next((one for one in memory.state.candidates.values() if _has_call(one, call_id)), None)


def _with_call(memory: Memory, link: Link | None, call_id: str) -> Candidate | None:
    candidate = memory.candidate(link.turn) if link is not None and link.turn is not None else None
    return candidate if candidate is not None and _has_call(candidate, call_id) else None


def _has_call(candidate: Candidate, call_id: str) -> bool:
    return call_id in [call.id for call in candidate.calls]
