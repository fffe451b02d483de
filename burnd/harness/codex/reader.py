"""Reads a Codex rollout line by line into candidates, content and facts about the session."""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from burnd.classify.keywords import prompt_words
from burnd.harness.codex import lines as shapes
from burnd.harness.codex.lines import (
    ITEMS,
    OUTPUTS,
    RESULTS,
    CodexMeta,
    Compacted,
    EventMessage,
    Item,
    RateLimits,
    ThreadSettings,
    plain,
    summary_in,
    texts,
    totals_of,
)
from burnd.harness.codex.rollout import (
    MAX_PROMPTS,
    SOURCE,
    CodexPrompt,
    CodexState,
    ContextLine,
    LineRef,
    RolloutLog,
    RolloutName,
    add_output,
    begin_task,
    count_tokens,
    end_response,
    end_task,
    is_uuid,
    record_usage,
)
from burnd.harness.codex.tools import image_block, result_of, started_agent
from burnd.harness.product import RESTORED, uuid7_ms
from burnd.harness.restore import cut_texts
from burnd.harness.tool_calls import inline_bytes, pull_request_in, size
from burnd.logfiles.log_reader import AgentLink, LogReading, decode_line, iso, rejected, tally
from burnd.recording.candidate import Candidate
from burnd.records import Block, Compaction, Content, File, Quota, Request, Session, Subagent, ToolResult
from burnd.records.content import MAIN, Role, title_record
from burnd.records.foreign_json import Reason
from burnd.records.names import bounded_path, canonical_remote
from burnd.records.session import Window
from burnd.records.times import LATEST_MS, to_iso, to_ms

COMPRESSED: Final = ".jsonl.zst"  # Codex may compress rollouts that no longer grow
_CONVERSATION: Final = frozenset({"response_item", "turn_context", "compacted"})
_SKIPPED: Final = frozenset({"world_state", "inter_agent_communication", "ghost_snapshot", "state"})
TITLE_ID: Final = "title:ai"
_KEPT: Final = frozenset({"session_meta", "turn_context", "compacted", "world_state"})
_KEPT_EVENT: Final = re.compile(
    rb'"type":\s*"(?:thread_rolled_back|thread_settings_applied|turn_aborted|(?:task|turn)_(?:started|complete))"'
)
_HEAD: Final = 200  # bytes in which a payload states its type
_LONGEST_LINE: Final = 512 << 10  # bytes of a line that is stored for `restore`
_MOST_LINES: Final = 64  # without a record between them
_MOST_WAITING: Final = 512 << 10  # bytes of these lines
_PLACE: Final = '[{"at":'  # the beginning of a context with lines that are yet to be read
_LONG_TEXT: Final = 256
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


class CodexReader:
    """Reads the whole lines of one rollout, in file order; without a `state`, from the file's start."""

    def __init__(self, place: RolloutName, state: CodexState | None = None) -> None:
        self._log: RolloutLog = RolloutLog(place, state or CodexState())
        self._readers: Final[dict[str, Callable[[LineRef, bytes], Reason | None]]] = {
            "session_meta": self._read_meta,
            "response_item": self._read_item,
            "event_msg": self._read_event,
            "turn_context": self._read_context,
            "token_usage_record": self._read_usage,
            "compacted": self._read_compacted,
        }

    def feed(self, line: bytes, offset: int) -> str | None:
        if line.endswith(RESTORED):
            return self._log.without_output(lambda: self._feed(line, offset))
        return self._feed(line, offset)

    def _feed(self, line: bytes, offset: int) -> str | None:
        log = self._log
        counts, state = log.out.counts, log.state
        counts.lines += 1
        envelope, reason = decode_line(shapes.lines, line, offset, counts)
        if envelope is None:
            return reason
        kind, payload = envelope.unwrap(line)
        state.is_begun = state.is_begun or kind in _CONVERSATION
        first = len(log.out.content)
        if (read := self._readers.get(kind)) is not None:
            ref = LineRef(log.time_of(envelope.timestamp), f"{log.session_id}:{offset}")
            failure = read(ref, payload)
            keep_line(log, ref, kind, payload, first, (offset, len(line)))
            return failure or reason
        if kind in _SKIPPED:
            ref = LineRef(log.time_of(envelope.timestamp), "")
            keep_line(log, ref, kind, payload, first, (offset, len(line)))
        tally(counts.skipped if kind in _SKIPPED else counts.unknown, kind or "(none)")
        return None

    def flush(self, *, answered_only: bool = False) -> None:
        for candidate in self.open_candidates():
            if candidate.answered or not answered_only:
                self._log.settle(candidate)

    def open_candidates(self) -> list[Candidate]:
        current = self._log.current
        return [current] if current is not None and not current.settled else []

    def waiting_sessions(self) -> set[str]:
        return {candidate.session_id for candidate in self.open_candidates()}

    def take(self) -> LogReading:
        return self._log.take()

    def again(self) -> bytes:
        """None: Codex never truncates a rollout."""
        return b""

    def _read_meta(self, line: LineRef, payload: bytes) -> None:
        meta = shapes.metas.value(payload)
        session = self._log.state.session
        if meta is None or (meta.id or meta.session_id) is None:
            return
        meta.id = meta.id or meta.session_id
        if session.created_ms is None:
            _begin_session(self._log, line, meta)
        elif meta.id != session.session_id and self._log.state.next_index == 0:
            session.root = meta.id
        elif meta.id == session.session_id:
            session.release = meta.cli_version or session.release
            if meta.git is not None:
                session.git_branch = meta.git.branch

    def _read_item(self, line: LineRef, payload: bytes) -> Reason | None:
        item = shapes.items.value(payload)
        counts = self._log.out.counts
        if item is None:
            return rejected(counts, "wrong-shape")
        kind = item.type
        if kind in OUTPUTS or (kind == "message" and item.role == "assistant"):
            add_output(self._log, line, item)
        elif kind in RESULTS:
            read_result(self._log, line, item)
        elif kind in ("message", "agent_message"):
            read_message(self._log, line, item)
        else:
            tally(counts.skipped if kind in ITEMS else counts.unknown, kind or "(none)")
        return None

    def _read_event(self, line: LineRef, payload: bytes) -> None:
        event = shapes.event_messages.value(payload)
        if event is None or not read_event(self._log, line, event):
            tally(self._log.out.counts.skipped, (event.type if event is not None else None) or "(none)")

    def _read_context(self, _line: LineRef, payload: bytes) -> None:
        context = shapes.task_contexts.value(payload)
        if context is not None:
            begin_task(self._log, context.turn_id)
            self._log.state.model = context.model or self._log.state.model

    def _read_usage(self, line: LineRef, payload: bytes) -> None:
        record = shapes.usage_records.value(payload)
        if record is not None:
            begin_task(self._log, record.turn_id)
            record_usage(self._log, line, totals_of(record.thread_token_usage), totals_of(record.usage))

    def _read_compacted(self, line: LineRef, payload: bytes) -> None:
        log = self._log
        compacted = shapes.compactions.value(payload) or Compacted()
        context = log.current.usage.context if log.current is not None else 0
        end_task(log)
        log.state.unmetered = []  # a compaction gets no `token_count`, or has had it by now
        text = compacted.message or ""
        log.state.entering = [Block(kind="summary", bytes=size(text) or len(compacted.replacement_history))]
        if log.repeats(line.ts):
            return
        if summary := text or summary_in(compacted.replacement_history):
            log.add_content(line, line.id, "system", "summary", summary)
        log.out.compactions.append(
            Compaction(
                source=SOURCE,
                session_id=log.session_id,
                rail_id=MAIN,
                id=line.id,
                ts=line.ts,
                before_tokens=context or None,
            )
        )


def keep_line(log: RolloutLog, line: LineRef, kind: str, payload: bytes, first: int, at: tuple[int, int]) -> None:
    """Adds to a line's first record, number `first`, the line without the texts that records have, for `restore`.

    A line without records, at offset and size `at`, is stored in the context of the next record, if Codex uses it to
    resume. Until then only its place is noted, since no text may be in a reader's state: `whole_contexts` reads it.
    """
    records, context = log.out.content, log.state.context
    is_own = len(records) > first and records[first].message_id != TITLE_ID
    if log.repeats_parent(line.ts) or len(payload) > _LONGEST_LINE:
        return
    if not is_own and kind not in _KEPT and not (kind == "event_msg" and _KEPT_EVENT.search(payload, 0, _HEAD)):
        return
    if is_own and records[first].kind == "thinking":
        return  # it cannot be replayed
    value = plain(msgspec.Raw(payload))
    if not isinstance(value, dict):
        return
    if is_own:
        texts_of = {_text_of(record): record.b for record in records[first:]}
        cut_texts(value, {text: b for text, b in texts_of.items() if len(text) >= _LONG_TEXT}, _LONG_TEXT)
        own = {"timestamp": line.ts, "type": kind, "payload": value}
        records[first] = replace(records[first], context=msgspec.json.encode([*context, own]).decode())
        context.clear()
        return
    context.append(ContextLine(at, line.ts, kind))
    while len(context) > _MOST_LINES or sum(one.at[1] for one in context) > _MOST_WAITING:
        del context[0]


def whole_contexts(content: Iterable[Content], line_at: Callable[[int, int], bytes]) -> Iterator[Content]:
    """The records, with the text of the lines in their contexts. `line_at` reads a line of the log, as far as it is."""
    for record in content:
        if not isinstance(record.context, str) or not record.context.startswith(_PLACE):
            yield record
            continue
        lines: list[Any] = []
        for one in msgspec.json.decode(record.context):
            if "at" not in one:
                lines.append(one)
                continue
            data = line_at(*one["at"])
            envelope = shapes.lines.value(data) if data else None
            kind, payload = envelope.unwrap(data) if envelope is not None else ("", b"")
            if kind == one["type"] and isinstance(value := plain(msgspec.Raw(payload)), dict):
                lines.append({"timestamp": one["timestamp"], "type": kind, "payload": value})
        yield replace(record, context=msgspec.json.encode(lines).decode())


def _text_of(record: Content) -> str:
    """The text of a record as its line has it: of a call, arguments that are one text; of an image, its address."""
    if record.file is not None and isinstance(record.file.data, bytes):
        return f"data:{record.file.mime};base64,{b64encode(record.file.data).decode()}"
    if record.tool_result is not None:
        return str(plain(record.tool_result.content))
    if record.tool_use is not None:
        arguments = plain(record.tool_use.input)
        return str(arguments["input"]) if isinstance(arguments, dict) and arguments.keys() == {"input"} else ""
    return record.text if isinstance(record.text, str) else ""


def _begin_session(log: RolloutLog, line: LineRef, meta: CodexMeta) -> None:
    session = log.state.session
    session.session_id = meta.id
    created = iso(meta.timestamp) or line.ts
    # A thread's id is made a moment before its first line, and an agent's first task may follow within that moment.
    id_ms = uuid7_ms(meta.id)
    session.created_ms = to_ms(created) if id_ms is None else min(id_ms, to_ms(created))
    log.state.ts = log.state.ts or created
    log.state.model = meta.model or ""
    session.project = bounded_path(meta.cwd)
    session.release = meta.cli_version
    if meta.git is not None:
        session.git_branch = meta.git.branch
        session.project_key = canonical_remote(meta.git.repository_url or "")
    parent = _read_agent(log, meta)
    session.root = meta.forked_from_id or parent
    if meta.forked_from_id:
        log.out.origins[meta.forked_from_id] = to_ms(created)
    log.out.sessions.append(
        Session(
            session_id=log.session_id,
            source=SOURCE,
            parent_session_id=parent,
            project=session.project,
            project_key=session.project_key,
            agent=session.subagent.type if session.subagent is not None else None,
            created_at=created,
        )
    )
    base = plain(meta.base_instructions)
    text = base.get("text") if isinstance(base, dict) else base
    for b, instructions in enumerate([text, meta.instructions]):
        if isinstance(instructions, str) and instructions:
            log.add_content(line, f"{log.session_id}:instructions", "system", "text", instructions, b=b)


def _read_agent(log: RolloutLog, meta: CodexMeta) -> str | None:
    source = plain(meta.source)
    kind: Any = source.get("subagent") if isinstance(source, dict) else None
    if kind is None and meta.parent_thread_id is None:
        return None
    spawn = kind.get("thread_spawn") if isinstance(kind, dict) else None
    spawn = spawn if isinstance(spawn, dict) else {}
    role = meta.agent_role or spawn.get("agent_role") or (kind if isinstance(kind, str) else None)
    log.state.session.subagent = Subagent(agent_id=log.session_id, type=role if isinstance(role, str) else None)
    parent = meta.parent_thread_id or spawn.get("parent_thread_id")
    return parent if isinstance(parent, str) and parent != log.session_id else None


def place_of(relative: str) -> RolloutName | None:
    """The session of a rollout at `2026/11/16/rollout-<time>-<id>.jsonl`; None if it is not a rollout."""
    name = relative.rsplit("/", 1)[-1].removesuffix(COMPRESSED.removeprefix(".jsonl"))
    if not name.endswith(".jsonl") or name.startswith("."):
        return None
    stem = name.removesuffix(".jsonl")
    thread = stem[-36:]
    return RolloutName(thread if is_uuid(thread) else stem) if stem else None


def read_event(log: RolloutLog, line: LineRef, event: EventMessage) -> bool:
    """Reads an `event_msg`; returns whether its type is used. Most repeat items."""
    kind = event.type
    if kind == "token_count":
        if event.info is not None:
            log.state.model = event.info.model or log.state.model
            total, last = totals_of(event.info.total_token_usage), totals_of(event.info.last_token_usage)
            count_tokens(log, line, total, last)
        _read_limits(log, line, event.rate_limits)
    elif kind in ("task_started", "turn_started"):
        begin_task(log, event.turn_id)
    elif kind in ("task_complete", "turn_complete"):
        end_task(log)
    elif kind == "turn_aborted":
        if log.current is not None and not log.current.final:
            log.current.stop_reason = "aborted"  # it was cut off, and stays billed
            log.touch(log.current)
        log.add_event(line, "interrupt")
        end_task(log)
    elif kind == "thread_rolled_back":
        _roll_back(log, event.num_turns or 0)
    elif kind == "thread_name_updated":
        _set_name(log, line, event.thread_name)
    elif kind == "thread_settings_applied":
        settings = event.thread_settings or ThreadSettings()
        log.state.model = settings.model or log.state.model
        if (tier := settings.service_tier) is not msgspec.UNSET:
            log.state.speed = "fast" if tier in _FAST_TIERS else None
            log.state.service_tier = tier if tier in _CHEAP_TIERS else None
    elif kind in _ERRORS:
        log.add_event(line, _ERRORS[kind])
    else:
        return False
    return True


def _read_limits(log: RolloutLog, line: LineRef, limits: RateLimits | None) -> None:
    """Outputs changed values of the plan's windows. Other limits have windows of the same lengths."""
    if limits is None or log.repeats(line.ts) or limits.limit_id not in (None, _PLAN):
        return
    for window in (limits.primary, limits.secondary):
        if window is None or window.window_minutes is None or window.used_percent is None:
            continue
        minutes = window.window_minutes
        name = next((n for length, n in _WINDOWS.items() if abs(length - minutes) <= _WINDOW_TOLERANCE_MIN), None)
        if name is None:
            continue
        reset = 0.0
        if window.resets_at is not None:
            reset = window.resets_at * 1000
        elif window.resets_in_seconds is not None:
            reset = to_ms(line.ts) + window.resets_in_seconds * 1000
        percent, reset_ms = round(window.used_percent, 1), int(reset) if 0 < reset < LATEST_MS else 0
        before = log.state.quotas.get(name)
        if before is not None and before[0] == percent and abs(before[1] - reset_ms) <= _SAME_RESET_MS:
            continue
        log.state.quotas[name] = (percent, reset_ms)
        resets_at = to_iso(reset_ms) if reset_ms else None
        log.out.quotas.append(Quota(ts=line.ts, source=SOURCE, window=name, used_percent=percent, resets_at=resets_at))


def _roll_back(log: RolloutLog, count: int) -> None:
    """Takes the newest prompts and their responses out of the context; they stay billed."""
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
    """The request for a thread's first name, which Codex does not log: model and usage are unknown."""
    return Request(source=SOURCE, session_id=session_id, rail_id=MAIN, id=f"title:{session_id}", ts=ts)


def read_message(log: RolloutLog, line: LineRef, item: Item) -> None:
    parts, typed = texts(item.content), []
    state, session, message_id = log.state, log.state.session, item.id or line.id
    if item.role == "user":
        kinds = item.metadata.content_item_kinds if item.metadata is not None else None
        if kinds is not None and len(kinds) == len(parts):
            typed = [text for text, kind in zip(parts, kinds, strict=True) if kind.partition(".")[0] == "user"]
        else:
            typed = [text for text in parts if not is_harness_text(text)]
    if typed:
        if state.task is None:
            end_task(log)  # without tasks, every prompt begins one
        else:
            end_response(log)
        state.prompt_count += 1
        prompt = CodexPrompt(message_id, prompt_words("\n".join(typed)), state.last_turn)
        state.prompts = [*state.prompts, prompt][-MAX_PROMPTS:]
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


def is_harness_text(text: str) -> bool:
    """Whether Codex wrote a text: one element like `<environment_context>`, or a certain heading."""
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
    if not text.lstrip().startswith("<environment_context>"):
        return None
    for line in text.split("\n"):
        if line.startswith(_CWD_LINE):
            return line.removeprefix(_CWD_LINE) or None
        folder, closing, _ = line.partition("<cwd>")[2].partition("</cwd>")
        if closing:
            return folder or None
    return None


def read_result(log: RolloutLog, line: LineRef, item: Item) -> None:
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
            if call_id in log.state.pull_calls:
                log.state.pull_calls = [one for one in log.state.pull_calls if one != call_id]
                candidate.pull_request = pull_request_in(result.text) or candidate.pull_request
            log.touch(candidate)
            break
    agent_type = log.state.spawns.pop(call_id, None)
    if agent_type is not None and (thread := started_agent(result)) is not None:
        link = AgentLink(thread, MAIN, "result", tool_use_id=call_id, type=agent_type or None, ts=line.ts)
        log.out.agents.append(link)
    content = msgspec.Raw(msgspec.json.encode(result.text))
    tool_result = ToolResult(tool_use_id=call_id, content=content, is_error=result.failed)
    log.add_content(line, message_id, "tool_result", "tool_result", tool_result=tool_result)
    _add_images(log, line, message_id, result.images, "tool_result", 1)


def _add_images(log: RolloutLog, line: LineRef, message_id: str, urls: Sequence[str], role: Role, first: int) -> None:
    for b, url in enumerate(urls, first):
        if (data := inline_bytes(url)) is None:
            continue
        file = File(mime=url[5:].split(";")[0] or "image/png", data=data)
        log.add_content(line, message_id, role, "file", b=b, file=file)
