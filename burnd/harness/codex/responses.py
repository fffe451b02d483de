"""Puts responses of a model together from the lines of a Codex rollout, which holds their parts but not themselves.

A response is what was made between two readings of the meter. Releases differ in the order: up to 0.6x the meter is
read before the items of a response are written, later after them, or after their results.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec.structs import replace

from burnd.classify.activity import Call as Step
from burnd.classify.activity import step
from burnd.classify.tools import kind
from burnd.harness.codex.lines import CALLS, Item, texts
from burnd.harness.codex.memory import Memory, Spot, is_uuid
from burnd.harness.codex.state import KEPT_SPAWNS, KEPT_SUMS, KEPT_TASKS, SOURCE
from burnd.harness.codex.tools import SPAWN, call_of, searches_of
from burnd.harness.codex.usage import NONE, Recorded, Totals, spent, usage_of
from burnd.harness.tool_calls import short_hash, size
from burnd.recording.candidate import FORKED, Candidate, LineKey
from burnd.records import Block, ServerTools, ToolUse
from burnd.records.content import MAIN

MOST_BLOCKS: Final = 2000


def begin_task(memory: Memory, task: str | None) -> None:
    """Go on with this task; what was done for another one is over."""
    state = memory.state
    if task is None or task == state.task:
        return
    end_task(memory)
    state.begun = True
    state.task = task
    state.tasks[task] = state.tasks.pop(task, 0)
    if len(state.tasks) > KEPT_TASKS:
        del state.tasks[next(iter(state.tasks))]


def end_task(memory: Memory) -> None:
    """Nothing more belongs to the current response, not even a reading of the meter."""
    memory.settle(memory.current)
    memory.state.current = None


def end_response(memory: Memory) -> None:
    """What is made next belongs to another response; where the current one was not metered yet, it may still be."""
    state, current = memory.state, memory.current
    if current is not None and (current.final or state.task is None):
        state.closed = True


def meter(memory: Memory, spot: Spot, total: Totals | None, last: Totals | None) -> None:
    """A reading of the meter: where it says something new, a response was paid for, unless that was recorded."""
    state = memory.state
    if _was_told(total, state.sums):
        return  # said again, as with every news of rate limits
    used = spent(state.sums, total, last)
    if total is not None:
        state.sums = [*state.sums, total][-KEPT_SUMS:]
    metered = next((n for n, one in enumerate(state.recorded, 1) if one.is_metered(total, last)), 0)
    if not metered and used != last:
        metered = len(state.recorded)
    for recorded in state.recorded[:metered]:  # what was interrupted is counted by a later reading, among others
        used = used.since(recorded.used)
    state.recorded = state.recorded[metered:]
    _pay(memory, spot, total, last, used)


def record(memory: Memory, spot: Spot, thread: Totals | None, used: Totals | None) -> None:
    """What one response used. Its sum counts compactions, too, which the meter leaves out: the two drift apart."""
    state = memory.state
    if _was_told(thread, [*state.sums, *state.threads]):
        return
    spends = spent(state.threads or state.sums, thread, None) if used is None else used
    if thread is not None:
        state.threads = [*state.threads, thread][-KEPT_SUMS:]
    state.recorded = [*state.recorded, Recorded(spends, thread)][-KEPT_SUMS:]
    _pay(memory, spot, thread, used, spends)


def _was_told(total: Totals | None, before: Sequence[Totals]) -> bool:
    return total is not None and total != NONE and total in before


def _pay(memory: Memory, spot: Spot, total: Totals | None, last: Totals | None, used: Totals) -> None:
    """Bill the response whose items were just read, or else one that is yet to be read."""
    state = memory.state
    is_inherited = not state.begun and state.about.root is not None and total == last
    state.begun = True
    if used.is_nothing or is_inherited or memory.repeats_parent(spot.ts):
        return  # an agent's log may begin with what its parent had used
    candidate = memory.current
    items_first = candidate is not None and not candidate.final and not state.closed
    if candidate is None or not items_first:
        is_summed = total is not None and total != NONE
        candidate = _begin(memory, spot, f"{total}" if is_summed else f"{state.next_index} {used}")
    state.closed = items_first
    _bill(memory, spot, candidate, used)


def _bill(memory: Memory, spot: Spot, candidate: Candidate, used: Totals) -> None:
    state = memory.state
    candidate.usage = usage_of(used)
    candidate.final = True
    candidate.model = state.model or candidate.model
    candidate.speed, candidate.service_tier = state.speed, state.service_tier
    # What a fork repeats is told by the original in all that the two may differ in.
    told_at = "" if candidate.rank & FORKED else spot.ts
    candidate.best = LineKey(used.output, told_at, "")
    if state.task is not None:
        state.tasks[state.task] = state.tasks.get(state.task, 0) + 1
    memory.touch(candidate)


def add_made(memory: Memory, spot: Spot, item: Item) -> None:
    """Something a model made: it belongs to the current response or begins the next."""
    state = memory.state
    if memory.repeats_parent(spot.ts):
        memory.enter(Block(kind="reminder", bytes=_weight(item)))
        return
    candidate = memory.current
    if candidate is None or state.closed:
        candidate = _begin(memory, spot, f"{state.next_index} {_mark_of(item)}")
    if len(candidate.lines) < MOST_BLOCKS:
        n = len(candidate.lines)
        candidate.lines += (spot.name,)
        if item.type in CALLS:
            _add_call(memory, spot, candidate, item, n)
        else:
            _add_words(memory, spot, candidate, item, n)
    memory.touch(candidate)


def _weight(item: Item) -> int:
    said = [*texts(item.summary), *texts(item.content)]
    return sum(map(size, said)) + len(item.arguments) + len(item.input) + len(item.action)


def _mark_of(item: Item) -> str:
    """What tells an item from others, however a release writes it down."""
    return item.call_id or item.encrypted_content or "".join(texts(item.content)) or item.type or ""


def _begin(memory: Memory, spot: Spot, began_with: str) -> Candidate:
    """Open a candidate: what came since the last one is what the model was given.

    Its name must be the same in the log of every fork that repeats it. A task's id is unique, and a response's place
    in it is how often the meter was read in it before; where there are no such ids, the session that all the forks
    come from and what the response began with have to do.
    """
    state, about, prompt = memory.state, memory.state.about, memory.prompt
    memory.settle(memory.current)
    if state.task is not None and is_uuid(state.task):
        message_id = f"{state.task}:{state.tasks.get(state.task, 0)}"
    else:
        message_id = f"{memory.root}:{short_hash(began_with.encode())}"
    candidate = Candidate(
        message_id=message_id,
        session_id=memory.session_id,
        rail_id=MAIN,
        turn_index=state.next_index,
        ts=spot.ts,
        source=SOURCE,
        parent=state.last_turn,
        rank=FORKED if memory.repeats(spot.ts) else 0,
        model=state.model,
        entered=tuple(state.entering),
        subagent=about.subagent,
        project=about.project,
        project_key=about.project_key,
        git_branch=about.git_branch,
        prompt_id=prompt.id if prompt is not None else None,
        prompt_words=prompt.words if prompt is not None else (),
        prompt_retries=prompt.walk.retries if prompt is not None else 0,
    )
    state.next_index += 1
    state.entering = []
    state.current = state.last_turn = message_id
    state.closed = False
    return candidate


def _add_words(memory: Memory, spot: Spot, candidate: Candidate, item: Item, n: int) -> None:
    """Thinking, of which only a summary may be readable, or words for the person."""
    if item.type == "reasoning":
        said = [*texts(item.summary), *texts(item.content)]
        sealed = len(item.encrypted_content or "") * 3 // 4
        candidate.made += (Block(kind="thinking", bytes=sealed or sum(map(size, said))),)
        if text := "\n\n".join(said):
            memory.keep(spot, candidate.message_id, "assistant", "thinking", text, n=n)
        return
    for b, text in enumerate(texts(item.content)):
        candidate.made += (Block(kind="text", bytes=size(text)),)
        memory.keep(spot, candidate.message_id, "assistant", "text", text, n=n, b=b)


def _add_call(memory: Memory, spot: Spot, candidate: Candidate, item: Item, n: int) -> None:
    found = call_of(item, spot.name)
    call = found.call
    candidate.calls += (call,)
    candidate.made += (Block(kind="call", bytes=found.size, call_id=call.id),)
    candidate.files += tuple(file for file in found.files if file not in candidate.files)
    if searches := searches_of(item):
        before = candidate.server_tools or ServerTools()
        candidate.server_tools = replace(before, search=before.search + searches)
    if call.name == SPAWN:
        memory.state.spawns[call.id] = call.target or ""
        if len(memory.state.spawns) > KEPT_SPAWNS:
            del memory.state.spawns[next(iter(memory.state.spawns))]
    if kind(call.name) in ("edit", "shell"):
        _walk(memory, candidate, call.name)
    use = ToolUse(id=call.id, name=item.name or call.name, input=found.input)
    memory.keep(spot, candidate.message_id, "assistant", "tool_use", n=n, tool_use=use)


def _walk(memory: Memory, candidate: Candidate, tool: str) -> None:
    """Go on with the retry walk over all calls of the prompt."""
    prompt = memory.prompt
    if prompt is None or prompt.id != candidate.prompt_id:
        return
    walk = step(prompt.walk, (Step(tool),))
    candidate.prompt_retries = walk.retries
    memory.state.prompts[-1] = replace(prompt, walk=walk)
