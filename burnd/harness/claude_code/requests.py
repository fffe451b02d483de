"""Matches the requests of a Claude Code transcript to their responses, and reports those without one.

Every HTTP attempt leaves an `api-request` line, and the lines of a response name its attempt. An attempt without a
response may have been billed (a killed client, a cut or failed stream), unless the API refused it. It was refused if

- a retry follows it that names an HTTP status, or a connection that was never made (`system/api_error`);
- the request then failed for good: with 429 or 5xx the last attempt, as each of the others has its retry line; with
  any other status all attempts since the prompt, which the client repeats without a line;
- the client then fell back to another model: the last attempt with the original one;
- it was repeated with other parameters than its output limit, as after a beta that the API does not know.

A lower bound of its tokens is the context of the earlier request that it extends, if the log names one.
"""

from __future__ import annotations

from typing import Final

import msgspec

from burnd.harness.anthropic import TokenCounts
from burnd.harness.claude_code import lines as claude_lines
from burnd.harness.claude_code.lines import SOURCE, BareLine
from burnd.harness.claude_code.memory import Memory, Spot, keep
from burnd.harness.claude_code.state import MAX_ANSWERED, MAX_ATTEMPTS, NO_RUN, UNREPORTED, Answered, Attempt
from burnd.harness.tool_calls import short_hash
from burnd.logfiles.log_reader import NEVER, iso
from burnd.records import Request, Usage
from burnd.records.content import MAIN
from burnd.records.names import bounded
from burnd.records.turn import token_count

_RATE_LIMIT: Final = 429
_NOT_CONNECTED: Final = frozenset(
    {"ConnectionRefused", "EAI_AGAIN", "ECONNREFUSED", "EHOSTUNREACH", "ENETUNREACH", "ENOTFOUND", "FailedToOpenSocket"}
)
_params: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_texts: Final = msgspec.json.Decoder(str)


def begin_attempt(memory: Memory, line: BareLine) -> None:
    """Adds the attempt of an `api-request` line."""
    state = memory.state
    if line.id is None or line.id in state.answered or line.id in state.attempts:
        return
    if any(candidate.request_ref == line.id for candidate in state.candidates.values()):
        return
    model, shape = _shape(line.params)
    state.attempts[line.id] = Attempt(
        id=line.id,
        ts=iso(line.timestamp) or state.stamp or NEVER,
        model=model,
        origin=line.query_source or "",
        base=line.base,
        adds=bool(line.tail),
        size=token_count(line.keep) + len(line.tail or ()),
        shape=shape,
        run=state.run,
        tokens=_tokens_of_base(memory, line),
    )
    if len(state.attempts) > MAX_ATTEMPTS:
        _report(memory, state.attempts.pop(next(iter(state.attempts))))


def _tokens_of_base(memory: Memory, line: BareLine) -> int:
    """A lower bound of an attempt's context: that of the request it extends as a whole."""
    if line.base is None:
        return 0
    base = memory.state.answered.get(line.base) or memory.state.attempts.get(line.base)
    return base.tokens if base is not None and token_count(line.keep) >= base.size else 0


def _shape(raw: msgspec.Raw) -> tuple[str, str]:
    """The model of a request, and a hash of its parameters without the output limit."""
    try:
        params = _params.decode(raw) if raw else {}
        model = bounded(_texts.decode(params["model"])) if "model" in params else ""
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return "", ""
    params.pop("max_tokens", None)
    return model, short_hash(b"".join([name.encode() + bytes(params[name]) for name in sorted(params)]))


def answer_attempt(memory: Memory, request_ref: str | None, usage: TokenCounts | None) -> None:
    """Handles a response's line: its attempt is answered, and earlier ones of the run never will be."""
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


def refuse_attempt(memory: Memory, spot: Spot) -> None:
    """Handles a retry (`system/api_error`): the attempt before was refused, unless its connection broke."""
    facts = _error_of(spot)
    if facts is None or (facts.status is None and facts.code not in _NOT_CONNECTED):
        return
    before = [attempt for attempt in _run(memory) if attempt.ts <= spot.ts]
    if before:
        _refuse(memory, before[-1])


def fail_run(memory: Memory, status: int | None) -> None:
    """Handles a client that gave up, perhaps with an HTTP status."""
    attempts = _run(memory)
    if status is not None:
        is_repeated = status == _RATE_LIMIT or status >= 500
        for attempt in attempts[-1:] if is_repeated else attempts:
            _refuse(memory, attempt)
    end_run(memory)


def fall_back(memory: Memory, model: str | None) -> None:
    """Handles a fallback to another model because of overload."""
    before = [attempt for attempt in _run(memory) if attempt.model == model]
    if before:
        _refuse(memory, before[-1])


def end_run(memory: Memory) -> None:
    """Handles a new prompt or resumed session: open attempts get no response any more."""
    for attempt in _run(memory):
        attempt.run = NO_RUN
        _report(memory, attempt)
    memory.state.run += 1


def report_attempts(memory: Memory) -> None:
    """Reports all attempts without a response; one that is answered later is withdrawn."""
    for attempt in memory.state.attempts.values():
        _report(memory, attempt)


def awaits_response(memory: Memory) -> bool:
    """Whether an attempt without a response is unreported."""
    return any(attempt.reported == UNREPORTED for attempt in memory.state.attempts.values())


def _run(memory: Memory) -> list[Attempt]:
    """The attempts since the last prompt that have no response."""
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


def _error_of(spot: Spot) -> claude_lines.ErrorFacts | None:
    """The error of the attempt before a retry."""
    return claude_lines.error_facts.value(spot.line.error) if spot.line.error else None


def status_of(spot: Spot) -> int | None:
    facts = _error_of(spot)
    return facts.status if facts is not None else None
