"""Lines a model wrote: they open a holding, add blocks and calls to it, and may raise what it was billed."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final
from zlib import crc32

from msgspec.structs import replace

from burnd.classify.activity import Call, step
from burnd.classify.tools import kind
from burnd.readers.claude_chain import begin_generation, entered
from burnd.readers.claude_content import CALLS, keep_message, keep_user
from burnd.readers.claude_lines import SYNTHETIC, Line, Message, Piece, branch_of
from burnd.readers.claude_memory import Memory, Spot
from burnd.readers.claude_requests import answer_attempt, fail_run
from burnd.readers.claude_state import KEPT_DELEGATIONS, Delegation, Link
from burnd.readers.claude_tools import Arguments, Result, arguments_of, has_failed, result_of
from burnd.readers.claude_usage import is_final, stated_output
from burnd.readers.holding import (
    FORKED,
    LACKS_REQUEST,
    NO_REQUEST_ID,
    SIDECHAIN,
    SOURCE,
    WORST_RANK,
    Holding,
    LineKey,
)
from burnd.readers.weights import short_hash, size
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
    holding = memory.holding(message_id) or _begin(memory, spot, message_id)
    _weigh(memory, holding, spot, message)
    if spot.name not in holding.lines and len(holding.lines) < MOST_BLOCKS:
        _add_line(memory, holding, spot, message)
    memory.touch(holding)
    memory.add_link(spot, turn=message_id, prompt=holding.prompt_id, said=True)


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
        refused = memory.holding(line.refused_message_id)
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


def _begin(memory: Memory, spot: Spot, message_id: str) -> Holding:
    """Open a holding: what stands above its first line is what the model was given."""
    rail, parent, line = spot.rail, spot.parent, spot.line
    memory.settle(rail.open)
    rail.open = message_id
    blocks = entered(memory, rail, parent)
    prompt = memory.prompt(parent.prompt) if parent is not None else None
    return Holding(
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


def _weigh(memory: Memory, holding: Holding, spot: Spot, message: Message) -> None:
    """Take the line's whole usage object if it is the best so far; add its evidence to the rank."""
    line, usage = spot.line, message.usage
    if spot.ts < holding.ts:
        holding.ts = spot.ts
    if not holding.final:
        holding.final = is_final(line, message)
    if holding.rank:
        holding.rank &= _rank(memory, line) | FORKED
        holding.request_ref = holding.request_ref or line.request_ref
    key = LineKey(stated_output(usage), spot.ts, spot.name)
    if message.stop_reason is not None and key > holding.stopped:
        _stop(memory, holding, spot, message.stop_reason)
        holding.stopped = key
    if key <= holding.best:
        return
    holding.best = key
    holding.model = message.model or ""
    bill = memory.bill(usage)
    holding.usage, holding.speed, holding.server_tools, holding.apart = bill[:4]
    holding.service_tier, holding.inference_geo = bill.service_tier, bill.inference_geo


def _stop(memory: Memory, holding: Holding, spot: Spot, reason: str) -> None:
    if reason == REFUSAL and holding.stop_reason != REFUSAL:
        note(memory, spot, REFUSAL, name=holding.message_id, message_id=holding.message_id)
    holding.stop_reason = reason


def _rank(memory: Memory, line: Line) -> int:
    rank = 0
    if line.request_ref is None or line.request_ref not in memory.state.requests:
        rank |= LACKS_REQUEST
    if line.is_sidechain:
        rank |= SIDECHAIN
    if line.request_id is None:
        rank |= NO_REQUEST_ID
    return rank


def _add_line(memory: Memory, holding: Holding, spot: Spot, message: Message) -> None:
    """Take in the blocks of a line but those that another line of its message has said."""
    content = message.content
    said: Sequence[Piece]
    said = [Piece(type="text", text=content)] if isinstance(content, str) else content or []
    prints = [_print(spot.line, piece) for piece in said]
    known = frozenset(holding.prints)
    if not known.isdisjoint(prints):
        said = [piece for print_, piece in zip(prints, said, strict=True) if print_ not in known]
        prints = [print_ for print_ in prints if print_ not in known]
        if not said:
            return
    # No model makes so many blocks; a log that says so must not make every later line of it slower.
    room = max(0, MOST_BLOCKS - len(holding.made))
    for piece in said[:room]:
        _add_block(memory, holding, piece)
    holding.prints += tuple(prints[:room])
    keep_message(memory, spot, holding.message_id, len(holding.lines), said)
    holding.lines += (spot.name,)


def _print(line: Line, piece: Piece) -> int:
    """Tells a block from the others of its message: by its id, or by its place, where the client says it, and words."""
    if piece.id:
        return crc32(f"{piece.type} {piece.id}".encode())
    said = piece.tool_use_id or piece.text or f"{piece.thinking or ''} {piece.signature or piece.data or ''}"
    place = f"{piece.type} " if piece.tool_use_id else f"{piece.type} {line.api_block_index} "
    return crc32(piece.input, crc32(said.encode(), crc32(place.encode())))


def _add_block(memory: Memory, holding: Holding, piece: Piece) -> None:
    made = _made(piece)
    if made is not None:
        holding.made += (made,)
    if piece.type in CALLS:
        _add_call(memory, holding, piece)
    elif piece.is_error:
        holding.calls = tuple([_failed(call) if call.id == piece.tool_use_id else call for call in holding.calls])


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


def _add_call(memory: Memory, holding: Holding, piece: Piece) -> None:
    given = arguments_of(piece)
    piece.input = given.input
    if _has_call(holding, given.call.id):
        return
    # What runs at the provider is answered within the response, if at all.
    answered = piece.type != "tool_use"
    holding.calls += (replace(given.call, is_error=False) if answered else given.call,)
    if given.file is not None and given.file not in holding.files:
        holding.files += (given.file,)
    if given.prompt is not None:
        _expect_agent(memory, given)
    if kind(given.call.name) in ("edit", "shell"):
        _walk(memory, holding, given.call.name)


def _failed(call: ToolCall) -> ToolCall:
    return replace(call, is_error=True)


def _expect_agent(memory: Memory, given: Arguments) -> None:
    waiting, call = memory.state.delegations, given.call
    waiting[call.id] = Delegation(call.id, short_hash((given.prompt or "").encode()), call.target)
    if len(waiting) > KEPT_DELEGATIONS:
        del waiting[next(iter(waiting))]


def _walk(memory: Memory, holding: Holding, tool: str) -> None:
    """Go on with the retry walk over all calls of the prompt."""
    prompt = memory.prompt(holding.prompt_id)
    if prompt is None:
        return
    walk = step(prompt.walk, (Call(tool),))
    holding.prompt_retries = walk.retries
    if walk != prompt.walk:
        memory.keep_prompt(replace(prompt, walk=walk))


def answer(memory: Memory, spot: Spot, piece: Piece) -> tuple[tuple[Block, ...], str | None]:
    """Give a call its result: the result's blocks, and the message whose call it answers if that is known."""
    call_id = piece.tool_use_id or ""
    result = result_of(call_id, piece.content)
    memory.state.delegations.pop(call_id, None)
    holding = _asker(memory, spot, call_id)
    if holding is None:
        return result.blocks, None
    holding.calls = tuple(
        [_answered(memory, call, piece, result) if call.id == call_id else call for call in holding.calls]
    )
    memory.touch(holding)
    return result.blocks, holding.message_id


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


def _asker(memory: Memory, spot: Spot, call_id: str) -> Holding | None:
    """The holding with this call: that of the turn above, of the line the result names, or a recent one."""
    above = _with_call(memory, spot.parent, call_id)
    if above is not None:
        return above
    source = spot.line.source_tool_assistant_uuid
    named = _with_call(memory, memory.link(source), call_id) if source is not None else None
    if named is not None:
        return named
    return next((one for one in memory.state.holdings.values() if _has_call(one, call_id)), None)


def _with_call(memory: Memory, link: Link | None, call_id: str) -> Holding | None:
    holding = memory.holding(link.turn) if link is not None and link.turn is not None else None
    return holding if holding is not None and _has_call(holding, call_id) else None


def _has_call(holding: Holding, call_id: str) -> bool:
    return call_id in [call.id for call in holding.calls]
