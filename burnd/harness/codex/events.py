"""Reads the input of the model and other events in Codex rollouts: prompts, results, rate limits, aborts, names."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

import msgspec
from msgspec.structs import replace

from burnd.classify.keywords import prompt_words
from burnd.harness.codex.lines import EventMessage, Item, LimitWindow, RateLimits, ThreadSettings, texts, totals_of
from burnd.harness.codex.responses import begin_task, count_tokens, end_response, end_task
from burnd.harness.codex.state import MAX_PROMPTS, SOURCE, LineRef, Prompt, RolloutLog
from burnd.harness.codex.tools import Result, image_block, result_of, started_agent
from burnd.harness.tool_calls import inline_bytes, size
from burnd.logfiles.log_reader import AgentLink
from burnd.records import Block, File, Quota, Request, ToolResult
from burnd.records.content import MAIN, Role, title_record
from burnd.records.session import Window
from burnd.records.times import LATEST_MS, to_iso, to_ms

TITLE_ID: Final = "title:ai"
_WINDOWS: Final[dict[int, Window]] = {300: "5h", 10080: "7d"}
_WINDOW_TOLERANCE_MIN: Final = 5  # some releases state a window's length a minute short
_SAME_RESET_MS: Final = 120_000
_PLAN: Final = "codex"
_FAST_TIERS: Final = ("priority", "fast")
_CHEAP_TIERS: Final = ("flex", "batch")
_ERRORS: Final = {"error": "api_error", "stream_error": "retry"}
_HEADING: Final = "# AGENTS.md instructions"
_TAG_NAME: Final = re.compile(r"</?([a-zA-Z][\w ]*)")
_HARNESS_TAGS: Final = frozenset({"skill", "image", "INSTRUCTIONS"})
_CWD_LINE: Final = "Current working directory: "


def read_event(log: RolloutLog, line: LineRef, event: EventMessage) -> bool:
    """Read an `event_msg`; returns whether its type is used. Most repeat items."""
    kind = event.type
    if kind == "token_count":
        if event.info is not None:
            log.state.model = event.info.model or log.state.model
            total, last = totals_of(event.info.total_token_usage), totals_of(event.info.last_token_usage)
            count_tokens(log, line, total, last)
        if event.rate_limits is not None and not log.repeats(line.ts):
            _read_limits(log, line, event.rate_limits)
    elif kind in ("task_started", "turn_started"):
        begin_task(log, event.turn_id)
    elif kind in ("task_complete", "turn_complete"):
        end_task(log)
    elif kind == "turn_aborted":
        _abort(log, line)
    elif kind == "thread_rolled_back":
        _roll_back(log, event.num_turns or 0)
    elif kind == "thread_name_updated":
        _set_name(log, line, event.thread_name)
    elif kind == "thread_settings_applied":
        _apply_settings(log, event.thread_settings or ThreadSettings())
    elif kind in _ERRORS:
        log.add_event(line, _ERRORS[kind])
    else:
        return False
    return True


def _apply_settings(log: RolloutLog, settings: ThreadSettings) -> None:
    state, tier = log.state, settings.service_tier
    state.model = settings.model or state.model
    if tier is not msgspec.UNSET:
        state.speed = "fast" if tier in _FAST_TIERS else None
        state.service_tier = tier if tier in _CHEAP_TIERS else None


def _read_limits(log: RolloutLog, line: LineRef, limits: RateLimits) -> None:
    """Output the used part of the plan's windows, where it changed. Other limits have windows of the same lengths."""
    if limits.limit_id not in (None, _PLAN):
        return
    for window in (limits.primary, limits.secondary):
        if window is None or window.window_minutes is None or window.used_percent is None:
            continue
        minutes = window.window_minutes
        name = next((n for length, n in _WINDOWS.items() if abs(length - minutes) <= _WINDOW_TOLERANCE_MIN), None)
        if name is None:
            continue
        percent, reset_ms = round(window.used_percent, 1), _reset_ms(window, line.ts)
        before = log.state.quotas.get(name)
        if before is not None and before[0] == percent and abs(before[1] - reset_ms) <= _SAME_RESET_MS:
            continue
        log.state.quotas[name] = (percent, reset_ms)
        resets_at = to_iso(reset_ms) if reset_ms else None
        log.out.quotas.append(Quota(ts=line.ts, source=SOURCE, window=name, used_percent=percent, resets_at=resets_at))


def _reset_ms(window: LimitWindow, ts: str) -> int:
    """The end of a window in milliseconds; 0 if unknown."""
    if window.resets_at is not None:
        reset = window.resets_at * 1000
    elif window.resets_in_seconds is not None:
        reset = to_ms(ts) + window.resets_in_seconds * 1000
    else:
        return 0
    return int(reset) if 0 < reset < LATEST_MS else 0


def _abort(log: RolloutLog, line: LineRef) -> None:
    """End an aborted task. Its billed responses stay; one that was cut off is marked."""
    current = log.current
    if current is not None and not current.final:
        current.stop_reason = "aborted"
        log.touch(current)
    log.add_event(line, "interrupt")
    end_task(log)


def _roll_back(log: RolloutLog, count: int) -> None:
    """Take the newest prompts and their responses out of the context; they stay billed."""
    state = log.state
    end_task(log)
    dropped = state.prompts[-count:] if count > 0 else []
    if dropped:
        state.last_turn = dropped[0].after
        state.prompts = state.prompts[: -len(dropped)]
        state.entering = []


def _set_name(log: RolloutLog, line: LineRef, name: str | None) -> None:
    if not name or log.repeats(line.ts):
        return
    if log.state.titles == 0 and log.state.prompt_count == 1:
        log.out.requests.append(title_request(log.session_id, line.ts))
    log.out.content.append(title_record(log.session_id, TITLE_ID, name, line.ts, n=log.state.titles))
    log.state.titles += 1


def title_request(session_id: str, ts: str) -> Request:
    """The request for a thread's first name, which Codex does not log; its model and usage are unknown.

    A name right after the first prompt was made by a model. One that the user chose that early counts too, since
    the log does not distinguish them.
    """
    return Request(source=SOURCE, session_id=session_id, rail_id=MAIN, id=f"title:{session_id}", ts=ts)


def read_message(log: RolloutLog, line: LineRef, item: Item) -> None:
    """Read a message to the model: a user's prompt, or text that the harness adds."""
    parts = texts(item.content)
    typed = _typed_texts(item, parts) if item.role == "user" else []
    session, message_id = log.state.session, item.id or line.id
    if typed:
        _begin_prompt(log, message_id, "\n".join(typed))
    for b, text in enumerate(parts):
        is_typed = text in typed
        log.enter(Block(kind="prompt" if is_typed else "reminder", bytes=size(text)))
        if session.project is None:
            session.project = folder_in(text)
        log.add_content(line, message_id, "user" if is_typed else "system", "text", text, b=b)
    pieces = item.content if isinstance(item.content, list) else ()
    images = [piece.image_url for piece in pieces if piece.image_url]
    log.enter(*(image_block(url) for url in images))
    _add_images(log, line, message_id, images, "user", len(parts))


def _typed_texts(item: Item, parts: Sequence[str]) -> list[str]:
    """The texts of a `user` message that the user typed, by their kinds or else their form."""
    kinds = item.metadata.content_item_kinds if item.metadata is not None else None
    if kinds is not None and len(kinds) == len(parts):
        return [text for text, kind in zip(parts, kinds, strict=True) if kind.startswith("user.") or kind == "user"]
    return [text for text in parts if not is_harness_text(text)]


def is_harness_text(text: str) -> bool:
    """Whether Codex wrote a text: it is one element like `<environment_context>`, or has a certain heading."""
    body = text.strip()
    if not body or body.startswith(_HEADING):
        return True
    tag = _TAG_NAME.match(body)
    end = body.find(">") + 1
    if tag is None or not end:
        return False
    name = tag[1].split()[0]
    is_harness_tag = "_" in name or " instructions" in body[:end] or name in _HARNESS_TAGS
    return is_harness_tag and (body.endswith((f"</{tag[1]}>", f"</{name}>")) or end == len(body))


def folder_in(text: str) -> str | None:
    """The folder in an `<environment_context>`, as an element or a line."""
    if not text.lstrip().startswith("<environment_context>"):
        return None
    for line in text.split("\n"):
        if line.startswith(_CWD_LINE):
            return line.removeprefix(_CWD_LINE) or None
        folder, closing, _ = line.partition("<cwd>")[2].partition("</cwd>")
        if closing:
            return folder or None
    return None


def _begin_prompt(log: RolloutLog, prompt_id: str, text: str) -> None:
    state = log.state
    if state.task is None:
        end_task(log)  # releases without tasks begin one with every prompt
    else:
        end_response(log)
    state.prompt_count += 1
    state.prompts = [*state.prompts, Prompt(prompt_id, prompt_words(text), state.last_turn)][-MAX_PROMPTS:]


def read_result(log: RolloutLog, line: LineRef, item: Item) -> None:
    """Read a call's result, and note its outcome in the response with the call."""
    result = result_of(item)
    call_id, message_id = item.call_id or "", item.id or line.id
    log.enter(*result.blocks)
    if log.state.task is None:
        end_response(log)  # without tasks, no count can follow for it
    for candidate in reversed(list(log.state.candidates.values())):
        if any(call.id == call_id for call in candidate.calls):
            outcome = {"is_error": result.failed, "result_hash": result.hash, "is_refused": result.is_refusal}
            calls = (replace(call, **outcome) if call.id == call_id else call for call in candidate.calls)
            candidate.calls = tuple(calls)
            log.touch(candidate)
            break
    _link_agent(log, line, call_id, result)
    content = msgspec.Raw(msgspec.json.encode(result.text))
    tool_result = ToolResult(tool_use_id=call_id, content=content, is_error=result.failed)
    log.add_content(line, message_id, "tool_result", "tool_result", tool_result=tool_result)
    _add_images(log, line, message_id, result.images, "tool_result", 1)


def _link_agent(log: RolloutLog, line: LineRef, call_id: str, result: Result) -> None:
    """Link the thread that a call started to that call."""
    agent_type = log.state.spawns.pop(call_id, None)
    thread = started_agent(result) if agent_type is not None else None
    if thread is not None:
        link = AgentLink(thread, MAIN, "result", tool_use_id=call_id, type=agent_type or None, ts=line.ts)
        log.out.agents.append(link)


def _add_images(log: RolloutLog, line: LineRef, message_id: str, urls: Sequence[str], role: Role, first: int) -> None:
    for b, url in enumerate(urls, first):
        if (data := inline_bytes(url)) is None:
            continue
        file = File(mime=url[5:].split(";")[0] or "image/png", data=data)
        log.add_content(line, message_id, role, "file", b=b, file=file)
