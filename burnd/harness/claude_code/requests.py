"""Requests of a transcript: hashes of `api-request` lines, requests without a response, changes of the prompt and pull
requests.

An `api-request` line has a hash of each message: those that it shares with its `base` are only counted (`keep`). The
line of a request may come before or after the lines of its response. Requests are compared with the last answered one
of the same origin, since only a response proves that the provider has read a prompt.

Every HTTP attempt leaves such a line, and the lines of a response name its attempt. An attempt without a response may
have been billed (a killed client, a cut or failed stream), unless the API refused it. It was refused if

- a retry follows it that names an HTTP status, or a connection that was never made (`system/api_error`);
- the request then failed for good: with 429 or 5xx the last attempt, as each of the others has its retry line; with any
  other status all attempts since the prompt, which the client repeats without a line;
- the client then fell back to another model: the last attempt with the original one;
- it was repeated with other parameters than its output limit, as after a beta that the API does not know.

A lower bound of its tokens is the context of the earlier request that it extends, if the log names one.
"""

from __future__ import annotations

from typing import Final

import msgspec

from burnd.classify.tools import mcp_server
from burnd.harness.anthropic import TokenCounts
from burnd.harness.claude_code import lines as claude_lines
from burnd.harness.claude_code.lines import SOURCE, Attachment, BareLine, ClaudeMessage
from burnd.harness.claude_code.memory import Memory, Spot, keep
from burnd.harness.claude_code.state import (
    MAX_ANSWERED,
    MAX_ATTEMPTS,
    MAX_CHANGES,
    MAX_MEMORY_FILES,
    MAX_PARTS,
    MAX_PULLS,
    MAX_REQUESTS,
    MAX_SENT,
    NO_RUN,
    Answered,
    Attempt,
    Sent,
)
from burnd.harness.tool_calls import pull_request_in, short_hash
from burnd.logfiles.log_reader import NEVER, iso
from burnd.recording.candidate import LACKS_REQUEST, Candidate
from burnd.records import MissStatement, PromptChange, Request, RequestFacts, ToolCall, Usage
from burnd.records.content import MAIN
from burnd.records.names import bounded
from burnd.records.turn import token_count

_PART: Final = 8  # digits of a message's hash
_MEMORY_FILES: Final = frozenset({"claude.md", "claude.local.md", "agents.md", "memory.md"})
_RATE_LIMIT: Final = 429
_NOT_CONNECTED: Final = frozenset(
    {"ConnectionRefused", "EAI_AGAIN", "ECONNREFUSED", "EHOSTUNREACH", "ENETUNREACH", "ENOTFOUND", "FailedToOpenSocket"}
)
_objects: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_texts: Final = msgspec.json.Decoder(str)
_NOT_COMPARED: Final = ("model", "max_tokens", "output_config", "metadata", "stream")


class _Parameters(msgspec.Struct, frozen=True):
    """Model and effort, hashes of all parameters but the output limit, and of the settings alone."""

    model: str = ""
    effort: str | None = None
    shape: str = ""
    settings: str | None = None


def _parameters(raw: msgspec.Raw) -> _Parameters:
    try:
        params = _objects.decode(raw) if raw else {}
        model = bounded(_texts.decode(params["model"])) if "model" in params else ""
        config = _objects.decode(params["output_config"]) if "output_config" in params else {}
        effort = bounded(_texts.decode(config["effort"])) if "effort" in config else None
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return _Parameters()
    texts = {name: name.encode() + bytes(params[name]) for name in sorted(params) if name != "max_tokens"}
    settings = b"".join([text for name, text in texts.items() if name not in _NOT_COMPARED])
    return _Parameters(model, effort, short_hash(b"".join(texts.values())), short_hash(settings) if settings else None)


def read_request(memory: Memory, line: BareLine) -> None:
    """Reads an `api-request` line of this session; copies of its response in other files lack it."""
    state = memory.state
    if state.birth is None:
        state.birth = iso(line.timestamp)
    if line.id is None:
        return
    answers = [candidate for candidate in state.candidates.values() if candidate.request_ref == line.id]
    parameters = _parameters(line.params)
    if not answers and line.id not in state.answered and line.id not in state.attempts:
        _begin_attempt(memory, line, line.id, parameters)
    keep(state.requests, line.id, None, MAX_REQUESTS)
    is_new = line.id not in state.sent
    if is_new:
        keep(state.sent, line.id, _sent(memory, line, line.id, parameters), MAX_SENT)
    for candidate in answers:
        if is_new:
            _answer(memory, candidate, state.sent[line.id])
        if is_new or candidate.rank & LACKS_REQUEST:
            candidate.rank &= ~LACKS_REQUEST
            memory.touch(candidate)


def _begin_attempt(memory: Memory, line: BareLine, request_id: str, parameters: _Parameters) -> None:
    state = memory.state
    base = state.answered.get(line.base or "") or state.attempts.get(line.base or "")
    state.attempts[request_id] = Attempt(
        id=request_id,
        ts=iso(line.timestamp) or state.stamp or NEVER,
        model=parameters.model,
        origin=line.query_source or "",
        base=line.base,
        adds=bool(line.tail),
        size=token_count(line.keep) + len(line.tail or ()),
        shape=parameters.shape,
        run=state.run,
        tokens=base.tokens if base is not None and token_count(line.keep) >= base.size else 0,
    )
    if len(state.attempts) > MAX_ATTEMPTS:
        _report(memory, state.attempts.pop(next(iter(state.attempts))))


def _sent(memory: Memory, line: BareLine, request_id: str, parameters: _Parameters) -> Sent:
    origin = line.query_source or ""
    before, parts = memory.state.latest.get(origin), _parts(memory, line)
    same = _same(line, parts, before)
    facts = RequestFacts(
        shape=short_hash(line.shape_hash.encode()) if line.shape_hash else None,
        params=parameters.settings,
        effort=parameters.effort,
        messages=token_count(line.keep) + len(line.tail or ()),
        same=same,
        before=before.facts.messages if before is not None and same is not None else None,
        breakpoints=len(line.cache_control or ()),
    )
    return Sent(id=request_id, origin=origin, facts=facts, parts=parts)


def add_facts(memory: Memory, candidate: Candidate, message: ClaudeMessage) -> None:
    reason = message.diagnostics.cache_miss_reason if message.diagnostics is not None else None
    if reason is not None and reason.type and candidate.cache_miss is None:
        candidate.cache_miss = MissStatement(type=reason.type, tokens=token_count(reason.cache_missed_input_tokens))
    if candidate.request is None and candidate.request_ref is not None:
        sent = memory.state.sent.get(candidate.request_ref)
        if sent is not None:
            _answer(memory, candidate, sent)


def _answer(memory: Memory, candidate: Candidate, sent: Sent) -> None:
    candidate.request = sent.facts
    keep(memory.state.latest, sent.origin, sent, MAX_SENT)


def _parts(memory: Memory, line: BareLine) -> str | None:
    """The first digits of each message's hash; None if the line continues a request that is not in memory."""
    most = _PART * MAX_PARTS
    own = "".join([short_hash(bytes(part))[:_PART] for part in (line.tail or ())[:MAX_PARTS]])
    number = token_count(line.keep)
    if not number:
        return own
    base = memory.state.sent.get(line.base or "")
    if base is None:
        base = next((one for one in memory.state.latest.values() if one.id == line.base), None)
    if base is None or base.parts is None or len(base.parts) < min(_PART * number, most):
        return None
    return (base.parts[: _PART * number] + own)[:most]


def _same(line: BareLine, parts: str | None, before: Sent | None) -> int | None:
    if before is None:
        return None
    if line.base == before.id:
        return min(token_count(line.keep), before.facts.messages)
    if parts is None or before.parts is None:
        return None
    most = min(len(parts), len(before.parts))
    shared = next((n for n in range(most) if parts[n] != before.parts[n]), most) // _PART
    # Messages beyond those in memory may differ.
    return shared if shared < MAX_PARTS or before.facts.messages == MAX_PARTS else None


def read_prompt_changes(memory: Memory, attachment: Attachment, *, is_begun: bool) -> None:
    """Notes tools and MCP servers that came or went, and memory files with another text."""
    if attachment.type in ("deferred_tools_delta", "mcp_instructions_delta") and is_begun:
        is_server = attachment.type == "mcp_instructions_delta"
        for names, removed in ((attachment.added_names, False), (attachment.removed_names, True)):
            for name in names or ():
                server = name if is_server else mcp_server(name)
                change = PromptChange(kind="mcp" if server else "tool", name=server or name, removed=removed)
                _add_change(memory, change)
    for file in attachment.files or ():
        if not file.path or file.content is None:
            continue
        text_hash, files = short_hash(file.content.encode()), memory.state.memory_files
        if files.get(file.path, text_hash) != text_hash:
            _add_change(memory, PromptChange(kind="memory", name=file.path))
        keep(files, file.path, text_hash, MAX_MEMORY_FILES)


def read_memory_edit(memory: Memory, call: ToolCall) -> None:
    if call.target and call.target.rpartition("/")[2].lower() in _MEMORY_FILES:
        _add_change(memory, PromptChange(kind="memory", name=call.target))


def _add_change(memory: Memory, change: PromptChange) -> None:
    changes = memory.state.changes
    if change not in changes and len(changes) < MAX_CHANGES:
        changes.append(change)


def read_pull_link(memory: Memory, address: str) -> None:
    """Reads a `pr-link` line, which clients repeat when a session continues: the first one of an address counts."""
    pull, state = pull_request_in(address), memory.state
    if pull is None or pull in state.pulls:
        return
    keep(state.pulls, pull, None, MAX_PULLS)
    main = state.rails.get(memory.path.rail_id or MAIN)
    candidate = memory.candidate(main.open) if main is not None else None
    if candidate is None:
        state.pull = pull
    elif candidate.pull_request is None:
        candidate.pull_request = pull
        memory.touch(candidate)


def read_pull_result(memory: Memory, candidate: Candidate, call_id: str, content: msgspec.Raw) -> None:
    del memory.state.pull_calls[call_id]
    pull = pull_request_in(bytes(content).decode("utf-8", "replace"))
    if pull is not None:
        candidate.pull_request = pull
        keep(memory.state.pulls, pull, None, MAX_PULLS)


def answer_attempt(memory: Memory, request_ref: str | None, usage: TokenCounts | None) -> None:
    """The attempt of a response's line is answered; earlier ones of the run never will be."""
    state = memory.state
    attempt = state.attempts.pop(request_ref, None) if request_ref is not None else None
    if attempt is None:
        return
    _withdraw(memory, attempt)
    context = 0
    if usage is not None:
        read, written = usage.cache_read_input_tokens, usage.cache_creation_input_tokens
        context = token_count(usage.input_tokens) + token_count(read) + token_count(written)
    keep(state.answered, attempt.id, Answered(context, attempt.size), MAX_ANSWERED)
    for earlier in _run(memory):
        if earlier.origin != attempt.origin or earlier.ts > attempt.ts:
            continue
        if earlier.model == attempt.model and earlier.shape != attempt.shape:
            _refuse(memory, earlier)
            continue
        earlier.run = NO_RUN
        if attempt.base == earlier.id and not attempt.adds:
            earlier.tokens = context
        _report(memory, earlier)


def refuse_attempt(memory: Memory, ts: str, error: claude_lines.ErrorFacts | None) -> None:
    """Before a retry (`system/api_error`) the attempt was refused, unless its connection broke."""
    if error is None or (error.status is None and error.code not in _NOT_CONNECTED):
        return
    before = [attempt for attempt in _run(memory) if attempt.ts <= ts]
    if before:
        _refuse(memory, before[-1])


def fail_run(memory: Memory, status: int | None) -> None:
    attempts = _run(memory)
    if status is not None:
        is_repeated = status == _RATE_LIMIT or status >= 500
        for attempt in attempts[-1:] if is_repeated else attempts:
            _refuse(memory, attempt)
    end_run(memory)


def fall_back(memory: Memory, model: str | None) -> None:
    before = [attempt for attempt in _run(memory) if attempt.model == model]
    if before:
        _refuse(memory, before[-1])


def end_run(memory: Memory) -> None:
    """After a new prompt, open attempts get no response any more."""
    for attempt in _run(memory):
        attempt.run = NO_RUN
        _report(memory, attempt)
    memory.state.run += 1


def report_attempts(memory: Memory) -> None:
    for attempt in memory.state.attempts.values():
        _report(memory, attempt)


def _run(memory: Memory) -> list[Attempt]:
    state = memory.state
    return [attempt for attempt in state.attempts.values() if attempt.run == state.run]


def _refuse(memory: Memory, attempt: Attempt) -> None:
    del memory.state.attempts[attempt.id]
    _withdraw(memory, attempt)


def _report(memory: Memory, attempt: Attempt) -> None:
    if attempt.reported != attempt.tokens:
        attempt.reported = attempt.tokens
        memory.out.requests.append(_record(memory, attempt))


def _withdraw(memory: Memory, attempt: Attempt) -> None:
    """Withdraws even an unreported attempt: an earlier reading may have reported it."""
    memory.out.requests.append(msgspec.structs.replace(_record(memory, attempt), usage=Usage(), withdrawn=True))


def _record(memory: Memory, attempt: Attempt) -> Request:
    """The attempt as a record. Tokens count as cache reads, the cheapest kind, for a lower bound."""
    return Request(
        source=SOURCE,
        session_id=memory.session_id,
        rail_id=memory.path.rail_id or MAIN,
        id=attempt.id,
        ts=attempt.ts,
        model=attempt.model,
        usage=Usage(cache_read=attempt.tokens),
    )


def error_of(spot: Spot) -> claude_lines.ErrorFacts | None:
    return claude_lines.error_facts.value(spot.line.error) if spot.line.error else None
