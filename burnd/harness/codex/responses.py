"""Assembles responses from the lines of a Codex rollout, which has their parts only.

A response is what the model made between two `token_count` lines. Up to release 0.6x the count comes before the items
of its response, later after them or after their results.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec.structs import replace

from burnd.classify.activity import Call as Step
from burnd.classify.activity import step
from burnd.classify.tools import kind
from burnd.harness.codex.lines import CALLS, ZERO, Item, TokenSum, Unmetered, texts, used_since
from burnd.harness.codex.state import MAX_SPAWNS, MAX_SUMS, MAX_TASKS, SOURCE, LineRef, RolloutLog, is_uuid
from burnd.harness.codex.tools import SPAWN, call_of, searches_of
from burnd.harness.tool_calls import short_hash, size
from burnd.recording.candidate import Candidate, LineKey
from burnd.records import Block, ServerTools, ToolUse
from burnd.records.content import MAIN
from burnd.records.turn import FORKED

MAX_ITEMS: Final = 2000


def begin_task(log: RolloutLog, task: str | None) -> None:
    state = log.state
    if task is None or task == state.task:
        return
    end_task(log)
    state.is_begun = True
    state.task = task
    state.tasks[task] = state.tasks.pop(task, 0)
    if len(state.tasks) > MAX_TASKS:
        del state.tasks[next(iter(state.tasks))]


def end_task(log: RolloutLog) -> None:
    """Settles the current response: no items or counts can follow for it."""
    log.settle(log.current)
    log.state.current = None


def end_response(log: RolloutLog) -> None:
    """Lets the next items begin a new response; one that is not billed yet may still be."""
    state, current = log.state, log.current
    if current is not None and (current.final or state.task is None):
        state.closed = True


def count_tokens(log: RolloutLog, line: LineRef, total: TokenSum | None, last: TokenSum | None) -> None:
    """Bills a response for a `token_count` with a new sum, unless a usage record billed it before."""
    state = log.state
    if _is_repeated(total, state.sums):
        return  # as at every update of rate limits
    used = used_since(state.sums, total, last)
    if total is not None:
        state.sums = [*state.sums, total][-MAX_SUMS:]
    counted = next((n for n, one in enumerate(state.unmetered, 1) if one.is_counted_by(total, last)), 0)
    if not counted and used != last:
        counted = len(state.unmetered)
    for record in state.unmetered[:counted]:  # an interrupted response is counted later, with others
        used = used.since(record.used)
    state.unmetered = state.unmetered[counted:]
    _bill(log, line, total, last, used)


def record_usage(log: RolloutLog, line: LineRef, thread: TokenSum | None, used: TokenSum | None) -> None:
    """Bills a response for a usage record. Its sum includes compactions, unlike that of `token_count`."""
    state = log.state
    if _is_repeated(thread, [*state.sums, *state.threads]):
        return
    billed = used_since(state.threads or state.sums, thread, None) if used is None else used
    if thread is not None:
        state.threads = [*state.threads, thread][-MAX_SUMS:]
    state.unmetered = [*state.unmetered, Unmetered(billed, thread)][-MAX_SUMS:]
    _bill(log, line, thread, used, billed)


def _is_repeated(total: TokenSum | None, sums: Sequence[TokenSum]) -> bool:
    return total is not None and total != ZERO and total in sums


def _bill(log: RolloutLog, line: LineRef, total: TokenSum | None, last: TokenSum | None, used: TokenSum) -> None:
    """Bills the response whose items were just read, or else begins one whose items follow."""
    state = log.state
    is_inherited = not state.is_begun and state.session.root is not None and total == last
    state.is_begun = True
    if used.is_zero or is_inherited or log.repeats_parent(line.ts):
        return  # an agent's rollout may begin with its parent's usage
    candidate = log.current
    items_first = candidate is not None and not candidate.final and not state.closed
    if candidate is None or not items_first:
        has_sum = total is not None and total != ZERO
        candidate = _begin_response(log, line, f"{total}" if has_sum else f"{state.next_index} {used}")
    state.closed = items_first
    candidate.usage = used.usage()
    candidate.final = True
    candidate.model = state.model or candidate.model
    candidate.speed, candidate.service_tier = state.speed, state.service_tier
    # Where a fork and the original differ, the original's line wins.
    candidate.best = LineKey(used.output, "" if candidate.rank & FORKED else line.ts, "")
    if state.task is not None:
        state.tasks[state.task] = state.tasks.get(state.task, 0) + 1
    log.touch(candidate)


def add_output(log: RolloutLog, line: LineRef, item: Item) -> None:
    """Adds the model's output to the current response, or begins the next with it."""
    state = log.state
    spoken = [*texts(item.summary), *texts(item.content)]
    if log.repeats_parent(line.ts):
        length = sum(map(size, spoken)) + len(item.arguments) + len(item.input) + len(item.action)
        log.enter(Block(kind="reminder", bytes=length))
        return
    candidate = log.current
    if candidate is None or state.closed:
        # Independent of how a release writes the item.
        mark = item.call_id or item.encrypted_content or "".join(texts(item.content)) or item.type or ""
        candidate = _begin_response(log, line, f"{state.next_index} {mark}")
    if (n := len(candidate.lines)) < MAX_ITEMS:
        candidate.lines += (line.id,)
        if item.type in CALLS:
            _add_call(log, line, candidate, item, n)
        elif item.type == "reasoning":
            encrypted = len(item.encrypted_content or "") * 3 // 4
            candidate.made += (Block(kind="thinking", bytes=encrypted or sum(map(size, spoken))),)
            if text := "\n\n".join(spoken):
                log.add_content(line, candidate.message_id, "assistant", "thinking", text, n=n)
        else:
            for b, text in enumerate(texts(item.content)):
                candidate.made += (Block(kind="text", bytes=size(text)),)
                log.add_content(line, candidate.message_id, "assistant", "text", text, n=n, b=b)
    log.touch(candidate)


def _begin_response(log: RolloutLog, line: LineRef, beginning: str) -> Candidate:
    """Opens a candidate; its input is what entered since the last one.

    Its id must be the same in every fork that repeats it: the task's unique id with the number of responses billed in
    it before, else the session that all forks come from with a hash of the response's beginning.
    """
    state, session, prompt = log.state, log.state.session, log.prompt
    log.settle(log.current)
    if state.task is not None and is_uuid(state.task):
        message_id = f"{state.task}:{state.tasks.get(state.task, 0)}"
    else:
        message_id = f"{session.root or log.session_id}:{short_hash(beginning.encode())}"
    candidate = Candidate(
        message_id=message_id,
        session_id=log.session_id,
        rail_id=MAIN,
        turn_index=state.next_index,
        ts=line.ts,
        source=SOURCE,
        parent=state.last_turn,
        rank=FORKED if log.repeats(line.ts) else 0,
        model=state.model,
        entered=tuple(state.entering),
        subagent=session.subagent,
        project=session.project,
        project_key=session.project_key,
        git_branch=session.git_branch,
        harness_version=session.release,
        prompt_id=prompt.id if prompt is not None else None,
        prompt_words=prompt.words if prompt is not None else (),
        prompt_retries=prompt.walk.retries if prompt is not None else 0,
    )
    state.next_index += 1
    state.entering = []
    state.current = state.last_turn = message_id
    state.closed = False
    return candidate


def _add_call(log: RolloutLog, line: LineRef, candidate: Candidate, item: Item, n: int) -> None:
    details = call_of(item, line.id)
    call = details.call
    candidate.calls += (call,)
    candidate.made += (Block(kind="call", bytes=details.size, call_id=call.id),)
    candidate.files += tuple(file for file in details.files if file not in candidate.files)
    if searches := searches_of(item):
        before = candidate.server_tools or ServerTools()
        candidate.server_tools = replace(before, search=before.search + searches)
    if call.name == SPAWN:
        spawns = log.state.spawns
        spawns[call.id] = call.target or ""
        if len(spawns) > MAX_SPAWNS:
            del spawns[next(iter(spawns))]
    prompt = log.prompt
    if kind(call.name) in ("edit", "shell") and prompt is not None and prompt.id == candidate.prompt_id:
        walk = step(prompt.walk, (Step(call.name),))
        candidate.prompt_retries = walk.retries
        log.state.prompts[-1] = replace(prompt, walk=walk)
    use = ToolUse(id=call.id, name=item.name or call.name, input=details.input)
    log.add_content(line, candidate.message_id, "assistant", "tool_use", n=n, tool_use=use)
