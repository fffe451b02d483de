"""Reads assistant lines, which open candidates and add to them, and results of calls."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, Literal
from zlib import crc32

from msgspec.structs import replace

from burnd.classify import activity
from burnd.classify.tools import kind
from burnd.harness.anthropic import (
    CALLS,
    ContentBlock,
    UsageObject,
    bill_of,
    parse_call,
    result_of,
    tool_name,
    usage_of,
)
from burnd.harness.claude_code.content import NULL, record_result, record_user
from burnd.harness.claude_code.lines import (
    NO_BRANCH,
    SOURCE,
    SYNTHETIC,
    ClaudeLine,
    ClaudeMessage,
    LineHead,
    MessageHead,
)
from burnd.harness.claude_code.memory import Memory, Spot, keep
from burnd.harness.claude_code.product import PRODUCT
from burnd.harness.claude_code.requests import add_facts, answer_attempt, fail_run, read_memory_edit, read_pull_result
from burnd.harness.claude_code.state import MAX_DELEGATIONS, MAX_PULLS, Delegation
from burnd.harness.tool_calls import creates_pull_request, release, short_hash
from burnd.recording.candidate import (
    LACKS_REQUEST,
    NO_REQUEST_ID,
    NO_USAGE,
    SIDECHAIN,
    WORST_RANK,
    Candidate,
    LineKey,
)
from burnd.records import Block, Event, Quota, Subagent, ToolCall, ToolUse, Usage
from burnd.records.content import MAIN, Kind
from burnd.records.times import to_iso
from burnd.records.turn import FORKED, LARGEST_COUNT, token_count

REFUSAL: Final = "refusal"
_THOUGHTS: Final = ("thinking", "redacted_thinking")
BACKGROUND: Final = "bg"
# A relay may give all responses one id. A unique one has a digit, is long, or is Anthropic's.
WORD: Final = re.compile(r"(?!msg)[A-Za-z_-]{1,11}")
MOST_BLOCKS: Final = 2000
# The first release with `stop_details` on every completed line. Since then a stop reason alone proves nothing: a stream
# that died is logged with `end_turn` and a placeholder count.
_STOP_DETAILS_SINCE: Final = (2, 1, 150)
# As 1.0.100, 2.0.60 and 2.1.327 write it. Weekly limits of a model alone are other limits.
_LIMIT_REACHED: Final = re.compile(
    r"Claude(?: AI)? usage limit reached\|(?P<reset>\d{10})\b"
    r"|(?P<window>5-hour|weekly) limit (?:reached|resets)"
    r"|You've hit your (?P<other>session|5-hour|weekly) limit",
    re.IGNORECASE,
)
_FAILED_SHELL: Final = re.compile(PRODUCT.failed_shell)


def read_assistant(memory: Memory, spot: Spot) -> None:
    message = spot.line.message
    if message is None or message.model == SYNTHETIC:
        memory.follow(spot)
        if message is not None:
            _read_synthetic(memory, spot)
            record_user(memory, spot, message.content, "system")
        return
    line, message_id = spot.line, message.id
    if not message_id or (line.request_id is None and WORD.fullmatch(message_id)):
        message_id = _substitute_id(memory, spot, message_id)
    if line.request_ref is not None:
        answer_attempt(memory, line.request_ref, message.usage)
    candidate = memory.newest
    if candidate is None or candidate.message_id != message_id:
        candidate = memory.candidate(message_id, spot.rail) or _begin(memory, spot, message_id)
    _update_usage(memory, candidate, spot, message)
    if message.diagnostics is not None or candidate.request_ref is not None:
        add_facts(memory, candidate, message)
    if spot.name not in candidate.lines and len(candidate.lines) < MOST_BLOCKS:
        _add_line(memory, candidate, spot, message)
    if candidate is not memory.newest:
        memory.touch(candidate)
    memory.add_link(spot, turn=message_id, prompt=candidate.prompt_id, is_response=True)


def _substitute_id(memory: Memory, spot: Spot, word: str | None) -> str:
    """The id of a response that has none, or only a word that others have too.

    The lines of one response follow one another or the same line. An offset is last: ids are indexed by their ends.
    """
    line, above = spot.line, spot.parent
    offset_id = f"{memory.session_id}/{spot.rail.id}@{spot.ts}@{spot.offset}"
    if not word:
        return line.request_id or line.uuid or offset_id
    if not line.parent_uuid:  # not distinguishable within a session
        return f"{word}:{line.session_id or memory.session_id}"
    if above is None:
        return f"{word}:{line.uuid or offset_id}"
    if above.is_response and above.turn is not None and above.turn.startswith(f"{word}:"):
        return above.turn
    return f"{word}:{above.uuid}"


def _read_synthetic(memory: Memory, spot: Spot) -> None:
    line = spot.line
    if line.refused_message_id is not None:
        refused = memory.candidate(line.refused_message_id)
        if refused is None or refused.stop_reason != REFUSAL:
            add_event(memory, spot, REFUSAL, id=line.refused_message_id, message_id=line.refused_message_id)
        return
    add_event(memory, spot, "api_error" if line.is_api_error_message else "no_response", status=line.api_error_status)
    if line.is_api_error_message:
        _read_limit(memory, spot)
    fail_run(memory, line.api_error_status if line.is_api_error_message else None)


def _read_limit(memory: Memory, spot: Spot) -> None:
    """Records that a window of the plan is full, if the client says so in the place of a response."""
    content = spot.line.message.content if spot.line.message is not None else None
    texts = [block.text for block in content if block.text] if isinstance(content, list) else [content]
    match = _LIMIT_REACHED.match(texts[0]) if texts and texts[0] else None
    if match is None or memory.repeats(spot):
        return
    reset = int(match["reset"] or 0) * 1000
    window: Literal["5h", "7d"] = "7d" if (match["window"] or match["other"] or "").lower() == "weekly" else "5h"
    resets_at = to_iso(reset) if reset else None
    memory.out.quotas.append(Quota(ts=spot.ts, source=SOURCE, window=window, used_percent=100.0, resets_at=resets_at))


def add_event(
    memory: Memory,
    spot: Spot,
    name: str,
    *,
    id: str | None = None,  # noqa: A002
    message_id: str | None = None,
    status: int | None = None,
) -> None:
    memory.out.events.append(
        Event(
            source=SOURCE,
            session_id=memory.session_id,
            rail_id=spot.rail.id,
            id=id or spot.name,
            ts=spot.ts,
            name=name,
            message_id=message_id,
            status=status if status is not None and 0 <= status < 1000 else None,
            copied=memory.repeats(spot),
        )
    )


def _begin(memory: Memory, spot: Spot, message_id: str) -> Candidate:
    """The lines above the first line of a response are the model's new context."""
    rail, parent, line = spot.rail, spot.parent, spot.line
    entered = memory.new_context(rail, parent)
    turn_index = memory.begin(rail, message_id)
    prompt = memory.prompt(parent.prompt) if parent is not None else None
    state, subagent = memory.state, None
    changes, state.changes = tuple(state.changes), []
    pull_request, state.pull = state.pull, None
    if rail.id != MAIN:
        agent_type = rail.agent_type or line.attribution_agent
        subagent = Subagent(agent_id=rail.id, type=agent_type, parent_tool_use_id=rail.parent_tool_use_id)
    return Candidate(
        source=SOURCE,
        message_id=message_id,
        session_id=state.session_id or memory.session_id,
        rail_id=rail.id,
        turn_index=turn_index,
        ts=spot.ts,
        # Only the first line decides: a client rewrote a branch without marks.
        rank=WORST_RANK if line.forked_from is not None else WORST_RANK & ~FORKED,
        is_strange=spot.is_strange or line.session_kind == BACKGROUND,
        parent=parent.turn if parent is not None else None,
        entered=entered,
        subagent=subagent,
        project=state.project,
        git_branch=None if line.git_branch in NO_BRANCH else line.git_branch,
        harness_version=line.version,
        prompt_id=prompt.id if prompt is not None else None,
        prompt_words=prompt.words if prompt is not None else (),
        prompt_retries=prompt.walk.retries if prompt is not None else 0,
        prompt_changes=changes,
        pull_request=pull_request,
    )


def _update_usage(memory: Memory, candidate: Candidate, spot: Spot, message: ClaudeMessage) -> None:
    """Takes the line's usage if it is the best so far, and lowers the rank by the line's evidence."""
    line, usage, stop_reason = spot.line, message.usage, message.stop_reason
    if spot.ts < candidate.ts:
        candidate.ts = spot.ts
    if not candidate.final and (stop_reason is not None or message.stop_details):
        candidate.final = is_final(line, message)
    if line.request_ref is not None or candidate.rank & (SIDECHAIN | NO_REQUEST_ID):  # else nothing would change
        candidate.rank &= rank_of(memory, line) | FORKED
        candidate.request_ref = candidate.request_ref or line.request_ref
    output = usage.output_tokens if usage is not None else None
    if output is None or not 0 <= output < LARGEST_COUNT:
        output = stated_output(usage)
    key = LineKey(output, spot.ts, spot.name)
    if stop_reason is not None and key > candidate.stopped:
        if stop_reason == REFUSAL and candidate.stop_reason != REFUSAL:
            add_event(memory, spot, REFUSAL, id=candidate.message_id, message_id=candidate.message_id)
        candidate.stop_reason = stop_reason
        candidate.stopped = key
    if key <= candidate.best:
        return
    candidate.best = key
    candidate.model = message.model or ""
    candidate.request_id = line.request_id if key.output_tokens != NO_USAGE else None
    if usage != memory.bill[0]:
        memory.bill = (usage, bill_of(usage))
    bill = memory.bill[1]
    candidate.usage, candidate.speed, candidate.server_tools, candidate.billed_calls = bill[:4]
    candidate.service_tier, candidate.inference_geo = bill.service_tier, bill.inference_geo


def is_final(line: LineHead, message: MessageHead) -> bool:
    """Whether the response had ended when the line was written, so that its output count is final."""
    if message.stop_details:
        return True
    if message.stop_reason is None:
        return False
    version = release(line.version)
    return version is None or version < _STOP_DETAILS_SINCE


def stated_output(usage: UsageObject | None) -> int:
    """The output tokens that a line states; NO_USAGE if its usage is missing or empty."""
    if usage is None or (usage.output_tokens is None and usage_of(usage) == Usage()):
        return NO_USAGE
    return token_count(usage.output_tokens)


def rank_of(memory: Memory, line: LineHead) -> int:
    rank = 0
    if line.request_ref is None or line.request_ref not in memory.state.requests:
        rank |= LACKS_REQUEST
    if line.is_sidechain:
        rank |= SIDECHAIN
    if line.request_id is None:
        rank |= NO_REQUEST_ID
    return rank


def _add_line(memory: Memory, candidate: Candidate, spot: Spot, message: ClaudeMessage) -> None:
    """Adds the blocks of a line to its message, and records their content."""
    content = message.content
    blocks: Sequence[ContentBlock]
    blocks = [ContentBlock(type="text", text=content)] if isinstance(content, str) else content or []
    prints = [_print(spot.line, block) for block in blocks]
    if candidate.prints and not (earlier := frozenset(candidate.prints)).isdisjoint(prints):
        blocks = [block for print_, block in zip(prints, blocks, strict=True) if print_ not in earlier]
        prints = [print_ for print_ in prints if print_ not in earlier]
        if not blocks:
            return
    if spot.is_copied:
        memory.out.copied.append(candidate.message_id)
    # No model writes so many blocks; without a limit, each further line would take longer.
    room = max(0, MOST_BLOCKS - len(candidate.made))
    made: list[Block] = []
    n, b = len(candidate.lines), 0
    for number, block in enumerate(blocks):
        has_room = number < room
        if block.type in CALLS:
            if has_room:
                made.append(Block(kind="call", bytes=len(block.input), call_id=block.id))
                _add_call(memory, candidate, block)
            use = ToolUse(id=block.id or "", name=tool_name(block), input=block.input or NULL)
            memory.record(spot, candidate.message_id, b, "assistant", "tool_use", n=n, use=use)
            b += 1
            continue
        is_thought = block.type in _THOUGHTS
        text = (block.thinking or block.signature or block.data or "") if is_thought else block.text
        if has_room and text is not None:
            length = len(text) if text.isascii() else len(text.encode())
            made.append(Block(kind="thinking" if is_thought else "text", bytes=length))
        elif has_room and block.tool_use_id is not None:
            made.append(Block(kind="result", bytes=len(block.content), call_id=block.tool_use_id))
        if has_room and block.is_error:
            candidate.calls = tuple(
                [replace(one, is_error=True) if one.id == block.tool_use_id else one for one in candidate.calls]
            )
        if text := block.thinking or block.text:
            kind_of_text: Kind = "thinking" if block.thinking else "text"
            memory.record(spot, candidate.message_id, b, "assistant", kind_of_text, text, n=n)
            b += 1
        elif block.tool_use_id is not None:
            b = record_result(memory, spot, candidate.message_id, n, b, block)
    candidate.made += tuple(made)
    candidate.prints += tuple(prints[:room])
    candidate.lines += (spot.name,)


def _print(line: ClaudeLine, block: ContentBlock) -> int:
    """A fingerprint of a block within its message: of its id, or of its text and logged index."""
    kind = block.type
    if block.id:
        return crc32(f"{kind} {block.id}".encode())
    text = block.tool_use_id or block.text or f"{block.thinking or ''} {block.signature or block.data or ''}"
    place = f"{kind} " if block.tool_use_id else f"{kind} {line.api_block_index} "
    return crc32(block.input, crc32(text.encode(), crc32(place.encode())))


def _add_call(memory: Memory, candidate: Candidate, block: ContentBlock) -> None:
    parsed = parse_call(block)
    call, what = parsed.call, kind(parsed.call.name)
    block.input = parsed.input
    if _call_number(candidate, call.id) >= 0:
        return
    # The provider's tools are answered within the response, if at all.
    runs_here = block.type == "tool_use"
    candidate.calls += (call if runs_here else replace(call, is_error=False),)
    if what == "edit":
        read_memory_edit(memory, call)
    if parsed.command is not None and creates_pull_request(parsed.command):
        keep(memory.state.pull_calls, call.id, None, MAX_PULLS)
    if parsed.file is not None and parsed.file not in candidate.files:
        candidate.files += (parsed.file,)
    if parsed.prompt is not None:
        delegation = Delegation(call.id, short_hash(parsed.prompt.encode()), call.target)
        keep(memory.state.delegations, call.id, delegation, MAX_DELEGATIONS)
    if what in ("edit", "shell") and (prompt := memory.prompt(candidate.prompt_id)) is not None:
        walk = activity.step(prompt.walk, (activity.Call(call.name),))
        candidate.prompt_retries = walk.retries
        if walk != prompt.walk:
            memory.keep_prompt(replace(prompt, walk=walk))


def add_result(
    memory: Memory, spot: Spot, block: ContentBlock
) -> tuple[tuple[Block, ...], Candidate | None, ToolCall | None]:
    """Adds a result to its call; returns its blocks, the message with the call, and the call."""
    call_id, state = block.tool_use_id or "", memory.state
    result = result_of(call_id, block.content)
    if state.delegations:
        state.delegations.pop(call_id, None)
    candidate, number = _message_with(memory, spot, call_id)
    if candidate is None:
        return result.blocks, None, None
    call = candidate.calls[number]
    # It failed if it is marked so, or if the exit code is not zero.
    failed = bool(block.is_error) or (call.name == "Bash" and _FAILED_SHELL.match(result.head) is not None)
    refused = failed and result.is_refusal
    call = replace(call, result_hash=result.hash, is_error=failed, is_refused=refused)
    candidate.calls = (*candidate.calls[:number], call, *candidate.calls[number + 1 :])
    if call_id in state.pull_calls:
        read_pull_result(memory, candidate, call_id, block.content)
    if candidate is not memory.newest:
        memory.touch(candidate)
    return result.blocks, candidate, call


def _message_with(memory: Memory, spot: Spot, call_id: str) -> tuple[Candidate | None, int]:
    """The message with a call, and the call's number in it."""
    above = memory.candidate(spot.parent.turn) if spot.parent is not None else None
    if above is not None and (number := _call_number(above, call_id)) >= 0:
        return above, number
    source = memory.link(spot.line.source_tool_assistant_uuid)
    by_line = memory.candidate(source.turn) if source is not None else None
    for candidate in (by_line, *memory.state.candidates.values()):
        if candidate is not None and (number := _call_number(candidate, call_id)) >= 0:
            return candidate, number
    return None, -1


def _call_number(candidate: Candidate, call_id: str) -> int:
    for number, call in enumerate(candidate.calls):
        if call.id == call_id:
            return number
    return -1
