"""Lines that go into the model: prompts, results, attachments and what the harness adds to them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from msgspec.structs import replace

from burnd.classify.keywords import prompt_words
from burnd.harness.claude_code.chain import add_entry, original_of
from burnd.harness.claude_code.content import keep_attachment, keep_user
from burnd.harness.claude_code.lines import Outcome, Piece
from burnd.harness.claude_code.memory import Memory, Spot
from burnd.harness.claude_code.messages import answer, note
from burnd.harness.claude_code.prompts import (
    ATTACHMENT_TYPES,
    INTERRUPT,
    attached_blocks,
    attachment_of,
    blocks_of,
    is_harness_text,
    is_queued_prompt,
    named_agent,
    notified_agent,
    of_its_call,
    text_of,
)
from burnd.harness.claude_code.requests import end_run
from burnd.harness.claude_code.state import Prompt, SavedOutput
from burnd.harness.claude_code.tools import DELEGATES
from burnd.harness.claude_code.usage import count
from burnd.harness.tool_calls import short_hash
from burnd.logfiles.log_reader import AgentLink, tally
from burnd.recording.candidate import Candidate
from burnd.records import Block, ToolCall
from burnd.records.content import MAIN

_WEB_SEARCH: Final = "WebSearch"
_SNAPSHOT: Final = b'{"type":"prompt_snapshot"'


def read_user(memory: Memory, spot: Spot) -> None:
    """A prompt, the results of calls, or a text the harness put in the user's place."""
    content = spot.line.message.content if spot.line.message is not None else None
    if isinstance(content, list) and len(content) == 1 and content[0].type == "tool_result":
        _read_result(memory, spot, content)
        return
    text = text_of(content)
    results = [piece for piece in content if piece.type == "tool_result"] if isinstance(content, list) else []
    is_prompt = bool(content) and not results and _is_prompt(spot, text)
    kind = "summary" if spot.line.is_compact_summary else "prompt" if is_prompt else "reminder"
    blocks, answers = _answered(memory, spot, results) if results else ((), ())
    own = blocks_of(content, kind)
    blocks += of_its_call(own, text, spot.line.source_tool_use_id) if kind == "reminder" else own
    said = f"{spot.ts} {short_hash(text.encode())}" if text and not results and spot.line.timestamp else None
    if _says_again(memory, spot, blocks, said):
        return
    add_entry(spot, blocks, answers, said=said)
    if is_prompt:
        end_run(memory)
        _begin_prompt(memory, spot, text, blocks)
    else:
        memory.follow(spot, blocks)
        _heed_harness(memory, spot, text)
    keep_user(
        memory,
        spot,
        content,
        role="user" if is_prompt else "system",
        kind="summary" if kind == "summary" else "text",
    )


def _read_result(memory: Memory, spot: Spot, content: list[Piece]) -> None:
    """What most user lines are: the result of one call and nothing else."""
    blocks, answers = _answered(memory, spot, content)
    if _says_again(memory, spot, blocks, None):
        return
    add_entry(spot, blocks, answers)
    memory.follow(spot, blocks)
    keep_user(memory, spot, content, "system", "text")


def _says_again(memory: Memory, spot: Spot, blocks: tuple[Block, ...], said: str | None) -> bool:
    """Whether a line was written twice under two uuids, as old clients did: it then only stands for the first."""
    if said is None and not any(block.call_id for block in blocks):
        return False
    original = original_of(memory, spot, blocks, said)
    if original is not None:
        memory.follow(replace(spot, parent=original))
    return original is not None


def _is_prompt(spot: Spot, text: str) -> bool:
    """Whether a person asked this; on an agent's rail, whether it is the text that handed it its work."""
    line, rail = spot.line, spot.rail
    if line.is_compact_summary:
        return False
    if rail.id != MAIN:
        return not rail.prompted and not line.is_meta
    return not is_harness_text(line, text)


def _begin_prompt(memory: Memory, spot: Spot, text: str, blocks: tuple[Block, ...]) -> None:
    rail, parent = spot.rail, spot.parent
    rail.prompted = True
    if rail.id != MAIN and memory.place.rail_id is None:
        _claim_delegation(memory, spot, text)
    if memory.prompt(spot.name) is None:
        memory.keep_prompt(Prompt(spot.name, prompt_words(text)))
    memory.add_link(spot, turn=parent.turn if parent is not None else None, prompt=spot.name, blocks=blocks)


def _claim_delegation(memory: Memory, spot: Spot, text: str) -> None:
    """Tie a sidechain in the main file to the call that handed out this very text."""
    rail, wanted = spot.rail, short_hash(text.encode())
    waiting = memory.state.delegations
    found = next((one for one in waiting.values() if one.prompt_hash == wanted), None)
    if found is None:
        return
    del waiting[found.call_id]
    rail.agent_type, rail.parent_tool_use_id = found.type, found.call_id
    memory.out.agents.append(
        AgentLink(memory.session_id, rail.id, "prompt", tool_use_id=found.call_id, type=found.type, ts=spot.ts)
    )


def _heed_harness(memory: Memory, spot: Spot, text: str) -> None:
    if text.lstrip().startswith(INTERRUPT):
        turn = spot.parent.turn if spot.parent is not None else None
        note(memory, spot, "interrupt", message_id=spot.line.interrupted_message_id or turn)
        return
    notified = notified_agent(text)
    if notified is None:
        return
    agent_id, call_id = notified
    call = _recent_call(memory.state.candidates.values(), call_id)
    agent_type = call.target if call is not None else None
    if call is None or call.name in DELEGATES:
        memory.out.agents.append(
            AgentLink(memory.session_id, agent_id, "notification", tool_use_id=call_id, type=agent_type, ts=spot.ts)
        )


def _recent_call(candidates: Iterable[Candidate], call_id: str) -> ToolCall | None:
    calls = (call for candidate in candidates for call in candidate.calls)
    return next((call for call in calls if call.id == call_id), None)


def _answered(memory: Memory, spot: Spot, results: list[Piece]) -> tuple[tuple[Block, ...], tuple[str, ...]]:
    """The blocks of a line's results, and the messages whose calls they answer."""
    blocks: tuple[Block, ...] = ()
    answers: tuple[str, ...] = ()
    for piece in results:
        own, message_id = answer(memory, spot, piece)
        blocks += own
        if message_id is not None and message_id not in answers:
            answers += (message_id,)
    outcome = spot.line.tool_use_result
    asked = [candidate for name in answers if (candidate := memory.candidate(name)) is not None]
    if isinstance(outcome, Outcome):
        _note_outcome(memory, spot, outcome, results[0].tool_use_id or "", asked)
    if not isinstance(outcome, Outcome) or not outcome.agent_id:
        for piece in results:
            _note_named_agent(memory, spot, piece, asked)
    return blocks, answers


def _note_named_agent(memory: Memory, spot: Spot, piece: Piece, asked: list[Candidate]) -> None:
    """Where nothing beside a result says which agent was started, its last words to the model may."""
    call = _recent_call(asked, piece.tool_use_id or "")
    if call is None or call.name not in DELEGATES:
        return
    agent_id = named_agent(bytes(piece.content))
    if agent_id is not None:
        memory.out.agents.append(
            AgentLink(memory.session_id, agent_id, "notification", tool_use_id=call.id, type=call.target, ts=spot.ts)
        )


def _note_outcome(memory: Memory, spot: Spot, outcome: Outcome, call_id: str, asked: list[Candidate]) -> None:
    """The agents a call started: one, all of a workflow's run, or one of a team."""
    call = _recent_call(asked, call_id)
    agent_type = call.target if call is not None else None
    for agent_id in filter(None, (outcome.agent_id, outcome.run_id, outcome.teammate_id)):
        memory.out.agents.append(
            AgentLink(memory.session_id, agent_id, "result", tool_use_id=call_id, type=agent_type, ts=spot.ts)
        )
    if outcome.search_count:
        _charge_searches(memory, asked, call_id, count(outcome.search_count))
    name = _base_name(outcome.persisted_output_path) if outcome.persisted_output_path else None
    if name:
        memory.out.saved.append(SavedOutput(memory.session_id, spot.rail.id, spot.name, spot.ts, name, call_id))


def _charge_searches(memory: Memory, asked: list[Candidate], call_id: str, searches: int) -> None:
    """Charges a WebSearch call with the searches in its result, since their request is not in the log."""
    for candidate in asked:
        calls = [
            replace(call, searches=searches) if call.id == call_id and call.name == _WEB_SEARCH else call
            for call in candidate.calls
        ]
        if tuple(calls) != candidate.calls:
            candidate.calls = tuple(calls)
            memory.touch(candidate)


def _base_name(path: str) -> str | None:
    """A file's own name, whatever folder the log claims it is in."""
    name = path.replace("\\", "/").rsplit("/", 1)[-1]
    return name if name not in ("", ".", "..") and "\0" not in name else None


def read_attachment(memory: Memory, spot: Spot) -> None:
    """What a client put beside a prompt or a result; a queued prompt is one a person typed meanwhile."""
    if not memory.keep_content and bytes(memoryview(spot.line.attachment)[: len(_SNAPSHOT)]) == _SNAPSHOT:
        memory.follow(spot)
        return
    attachment = attachment_of(spot.line)
    if attachment is None:
        memory.follow(spot)
        return
    if attachment.type not in ATTACHMENT_TYPES:
        tally(memory.out.counts.unknown, f"attachment/{attachment.type}")
    text = text_of(attachment.prompt)
    is_prompt = is_queued_prompt(attachment, text)
    blocks = attached_blocks(spot.line, attachment, is_prompt=is_prompt)
    if not is_prompt:
        blocks = of_its_call(blocks, text)
    add_entry(spot, blocks, hangs=True)
    if is_prompt:
        _begin_prompt(memory, spot, text, blocks)
    else:
        memory.follow(spot, blocks)
        _heed_harness(memory, spot, text)
    keep_attachment(memory, spot, attachment, is_prompt=is_prompt)
