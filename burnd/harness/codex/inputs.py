"""Items that go into the model: prompts, what the harness adds to them, and results of calls."""

from __future__ import annotations

import binascii
from collections.abc import Sequence
from typing import Final

import msgspec
from msgspec.structs import replace

from burnd.classify.keywords import prompt_words
from burnd.harness.codex.lines import Item, Piece, texts
from burnd.harness.codex.memory import Memory, Spot
from burnd.harness.codex.prompts import folder_in, human_texts
from burnd.harness.codex.responses import end_response, end_task
from burnd.harness.codex.state import KEPT_PROMPTS, Prompt
from burnd.harness.codex.tools import Result, image_block, result_of, started_by
from burnd.harness.refusals import is_refusal
from burnd.harness.tool_calls import inline_data, size
from burnd.logfiles.log_reader import AgentLink
from burnd.recording.candidate import Candidate
from burnd.records import Block, File, ToolResult
from burnd.records.content import MAIN, Role

_PLAIN_IMAGE: Final = "image/png"


def read_message(memory: Memory, spot: Spot, item: Item) -> None:
    """A message that is not the model's: a person's prompt, or what the harness tells the model."""
    human = human_texts(item) if item.role == "user" else []
    about, name = memory.state.about, item.id or spot.name
    if human:
        _begin_prompt(memory, name, "\n".join(human))
    for text in texts(item.content):
        memory.enter(Block(kind="prompt" if text in human else "reminder", bytes=size(text)))
        if about.project is None:
            about.project = folder_in(text)
    images = [piece.image_url for piece in _pieces(item) if piece.image_url]
    memory.enter(*(image_block(url) for url in images))
    for b, text in enumerate(texts(item.content)):
        memory.keep(spot, name, "user" if text in human else "system", "text", text, b=b)
    _keep_images(memory, spot, name, images, "user", len(texts(item.content)))


def _begin_prompt(memory: Memory, name: str, text: str) -> None:
    state = memory.state
    if state.task is None:
        end_task(memory)  # releases without tasks begin one with every prompt
    else:
        end_response(memory)
    state.prompt_count += 1
    state.prompts = [*state.prompts, Prompt(name, prompt_words(text), state.last_turn)][-KEPT_PROMPTS:]


def read_answer(memory: Memory, spot: Spot, item: Item) -> None:
    """The result of a call, given to the response that made it."""
    result = result_of(item)
    call_id = item.call_id or ""
    memory.enter(*result.blocks)
    if memory.state.task is None:
        end_response(memory)  # where there are no tasks, what is not metered by now never is
    candidate = _asker(memory, call_id)
    if candidate is not None:
        candidate.calls = tuple(
            replace(
                call,
                is_error=result.failed,
                result_hash=result.hash,
                is_refused=result.failed and is_refusal(result.text),
            )
            if call.id == call_id
            else call
            for call in candidate.calls
        )
        memory.touch(candidate)
    _link_agent(memory, spot, call_id, result)
    name = item.id or spot.name
    content = msgspec.Raw(msgspec.json.encode(result.text))
    told = ToolResult(tool_use_id=call_id, content=content, is_error=result.failed)
    memory.keep(spot, name, "tool_result", "tool_result", tool_result=told)
    _keep_images(memory, spot, name, result.images, "tool_result", 1)


def _asker(memory: Memory, call_id: str) -> Candidate | None:
    held = reversed(list(memory.state.candidates.values()))
    return next((one for one in held if any(call.id == call_id for call in one.calls)), None)


def _link_agent(memory: Memory, spot: Spot, call_id: str, result: Result) -> None:
    """Tie the thread that a call started to that call."""
    agent_type = memory.state.spawns.pop(call_id, None)
    thread = started_by(result) if agent_type is not None else None
    if thread is not None:
        link = AgentLink(thread, MAIN, "result", tool_use_id=call_id, type=agent_type or None, ts=spot.ts)
        memory.out.agents.append(link)


def _keep_images(memory: Memory, spot: Spot, name: str, urls: Sequence[str], role: Role, first: int) -> None:
    for b, url in enumerate(urls, first):
        data = inline_data(url)
        if data is None:
            continue
        try:
            file = File(mime=url[5:].split(";")[0] or _PLAIN_IMAGE, data=binascii.a2b_base64(data))
        except ValueError:
            continue
        memory.keep(spot, name, role, "file", b=b, file=file)


def _pieces(item: Item) -> Sequence[Piece]:
    return item.content if isinstance(item.content, list) else ()
