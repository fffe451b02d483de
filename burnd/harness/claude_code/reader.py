"""Reads a Claude Code transcript line by line into candidates, content and facts about its session."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

import msgspec
from msgspec.structs import replace

from burnd.harness.anthropic import CacheCreation, OutputDetails, TokenCounts, usage_of
from burnd.harness.claude_code import lines as claude_lines
from burnd.harness.claude_code.content import add_context, is_shown, limit_context
from burnd.harness.claude_code.lines import (
    BARE,
    IGNORED,
    SOURCE,
    SYNTHETIC,
    SYSTEM_SUBTYPES,
    TIMED,
    TITLES,
    TYPE_FIRST,
    BareLine,
    ClaudeLine,
    LogPath,
    ModelUsage,
    leading_type,
)
from burnd.harness.claude_code.memory import Memory, Spot
from burnd.harness.claude_code.messages import add_event, read_assistant
from burnd.harness.claude_code.prompts import read_attachment, read_user
from burnd.harness.claude_code.requests import (
    error_of,
    fall_back,
    read_pull_link,
    read_request,
    refuse_attempt,
    report_attempts,
)
from burnd.harness.claude_code.state import (
    UNREPORTED,
    ClaudeReading,
    ClaudeState,
    History,
    LeafTitle,
    LineRows,
    dump_state,
)
from burnd.harness.product import RESTORED
from burnd.harness.tool_calls import short_hash
from burnd.logfiles.log_reader import NEVER, decode_line, iso, tally
from burnd.recording.candidate import Candidate
from burnd.records import Compaction, Content, Overhead, Usage
from burnd.records.content import Kind, title_record
from burnd.records.foreign_json import FAILURES, MOST_VALUES
from burnd.records.names import bounded_path
from burnd.records.times import LATEST_MS, to_iso, to_ms
from burnd.records.turn import token_count

_TIMESTAMP: Final = re.compile(rb'"timestamp":"([^"\\]{1,40})"')
_TITLE_NAMES: Final[dict[str, tuple[str, Kind]]] = {
    "custom-title": ("custom", "title"),
    "ai-title": ("ai", "title"),
    "summary": ("summary", "summary"),
}
_MOST_USD: Final = 1e9
_decode: Final = msgspec.json.Decoder(ClaudeLine).decode


class ClaudeReader:
    """Reads the whole lines of one transcript, in file order.

    The output is the same however the lines are cut into readings, and whether or not the state was stored and loaded.
    """

    def __init__(self, path: LogPath, state: ClaudeState | None = None, history: History | None = None) -> None:
        self._memory = Memory(path, state or ClaudeState(), history, self._read_again)
        self._memory.send_meta()

    def _read_again(self) -> LineRows:
        memory = self._memory
        reader = ClaudeReader(memory.path, ClaudeState(counted=dict(memory.state.counted)), memory.history)
        for offset, line in memory.history.lines() if memory.history is not None else ():
            reader.feed(line, offset)
            reader._memory.out = ClaudeReading()  # recorded already
        return reader._memory.rows()

    def feed(self, line: bytes, offset: int) -> str | None:
        memory = self._memory
        counts = memory.out.counts
        counts.lines += 1
        if line.startswith(TYPE_FIRST):
            kind = leading_type(line)
            if kind in IGNORED:
                tally(counts.skipped, kind or "")
                match = _TIMESTAMP.search(line) if memory.state.birth is None and kind in TIMED else None
                if match is not None:
                    memory.state.birth = iso(match[1].decode("ascii", "replace"))
                return None
            if kind in BARE:
                return self._read_bare(line, offset)
        reason: str | None = None
        try:
            decoded = _decode(line) if len(line) <= MOST_VALUES and line.isascii() else None  # as most lines are
        except FAILURES:
            decoded = None
        if decoded is None:
            decoded, reason = decode_line(claude_lines.lines, line, offset, counts)
            if decoded is None:
                return reason
        if decoded.type in BARE:
            return self._read_bare(line, offset) or reason
        if line.endswith(RESTORED):
            memory.without_output(lambda: self._read(decoded, line, offset))
        else:
            self._read(decoded, line, offset)
        return reason

    def flush(self, *, answered_only: bool = False) -> None:
        for candidate in self.open_candidates():
            if candidate.answered or not answered_only:
                self._memory.settle(candidate.message_id)
        if not answered_only:
            report_attempts(self._memory)

    def waiting_sessions(self) -> set[str]:
        state = self._memory.state
        newest = [self._memory.candidate(rail.open) for rail in state.rails.values() if rail.open is not None]
        sessions = {candidate.session_id for candidate in newest if candidate is not None and not candidate.settled}
        if any(attempt.reported == UNREPORTED for attempt in state.attempts.values()):
            sessions.add(self._memory.session_id)
        return sessions

    def open_candidates(self) -> list[Candidate]:
        newest = (self._memory.candidate(rail.open) for rail in self._memory.state.rails.values())
        return [candidate for candidate in newest if candidate is not None and not candidate.settled]

    def take(self) -> ClaudeReading:
        return self._memory.take()

    def again(self) -> bytes:
        """The initial state for another reading: only the number of messages of each rail."""
        state = self._memory.state
        now = {rail.id: rail.next_index + rail.ahead for rail in state.rails.values()}
        most = {rail: max(now.get(rail, 0), state.counted.get(rail, 0)) for rail in now | state.counted}
        return dump_state(ClaudeState(counted=most))

    def _read_bare(self, data: bytes, offset: int) -> str | None:
        if data.endswith(RESTORED):
            return self._memory.without_output(lambda: self._decode_bare(data, offset))
        return self._decode_bare(data, offset)

    def _decode_bare(self, data: bytes, offset: int) -> str | None:
        memory = self._memory
        line, reason = decode_line(claude_lines.bare_lines, data, offset, memory.out.counts)
        if line is None:
            return reason
        if memory.state.session_id is None and line.session_id:
            memory.state.session_id = memory.path.word or line.session_id
        if line.type in TITLES:
            _read_title(memory, line, offset)
        elif line.type == "api-request":
            read_request(memory, line)
        elif line.type == "pr-link":
            read_pull_link(memory, line.pr_url or "")
        elif line.model_usage:
            _read_totals(memory, line)
        return None

    def _read(self, line: ClaudeLine, data: bytes, offset: int) -> None:
        memory, state, out = self._memory, self._memory.state, self._memory.out
        if state.session_id is None and line.session_id:
            state.session_id = memory.path.word or line.session_id
        if state.project is None:
            state.project = bounded_path(line.cwd)
        if line.forked_from is not None:
            self._add_origin(line, line.forked_from.session_id, out.origins)
        # `session_id` is the process's first session, even after /clear or /branch.
        if line.process_session is not None and line.process_session != state.session_id:
            self._add_origin(line, line.process_session, out.process_origins)
        read = _READ.get(line.type)
        # Other tools write responses without a type.
        if read is None and not line.type and line.message is not None and line.message.usage is not None:
            read = read_assistant
        if read is None:
            tally(out.counts.skipped if line.type in IGNORED else out.counts.unknown, line.type or "(none)")
            if line.uuid is None:
                memory.time_of(line.timestamp)
                return
            read = Memory.follow  # it may still be the parent of others
        spot, first = memory.locate(line, offset), len(out.content)
        message = line.message
        is_response = message is not None and message.model != SYNTHETIC
        is_whole = not is_response and is_shown(line)
        if is_whole:
            add_context(memory, spot, data, is_whole=True)
        read(memory, spot)
        if len(out.content) == first:
            if not is_whole:
                add_context(memory, spot, data, is_whole=False)
            limit_context(memory)

    def _add_origin(self, line: ClaudeLine, origin: str | None, origins: dict[str, int]) -> None:
        if origin and origin != self._memory.state.session_id and (ts := iso(line.timestamp)) is not None:
            origins[origin] = max(origins.get(origin, 0), to_ms(ts))


def _read_title(memory: Memory, line: BareLine, offset: int) -> None:
    """Records a changed title; clients repeat the same one all the time."""
    text = _title_text(line)
    if not text:
        return
    name, kind = _TITLE_NAMES[line.type]
    titles, text_hash = memory.state.titles, short_hash(f"{line.leaf_uuid or ''} {text}".encode())
    changes, last = titles.get(name, (0, ""))
    if last == text_hash:
        return
    titles[name] = (changes + 1, text_hash)
    content = title_record(memory.session_id, f"title:{name}", text, memory.state.stamp or NEVER, n=changes, kind=kind)
    if line.type == "summary" and line.leaf_uuid is not None:
        memory.out.titles.append(LeafTitle(line.leaf_uuid, offset, content))
    else:
        memory.out.content.append(content)


def parse_summary(data: bytes, leaf_uuid: str, ts: str) -> Content | None:
    """The summary of a leaf in a line that was read at `ts`, without a session; None if it is gone."""
    line = claude_lines.bare_lines.value(data)
    if line is None or line.type != "summary" or line.leaf_uuid != leaf_uuid or not _title_text(line):
        return None
    name, kind = _TITLE_NAMES["summary"]
    return title_record("", f"title:{name}", _title_text(line), ts, kind=kind)


def _title_text(line: BareLine) -> str:
    return (line.custom_title or line.ai_title or line.summary or "").strip()


def _read_totals(memory: Memory, line: BareLine) -> None:
    models = {name: usage for name, usage in (line.model_usage or {}).items() if usage is not None}
    costs = {name: usage.cost_usd or 0.0 for name, usage in models.items()}
    searches = {name: token_count(usage.web_search_requests) for name, usage in models.items()}
    memory.out.overheads.append(
        Overhead(
            source=SOURCE,
            session_id=memory.session_id,
            ts=memory.state.stamp or NEVER,
            models={name: _total(usage) for name, usage in models.items()},
            since=to_iso(int(line.start_time)) if line.start_time and 0 < line.start_time < LATEST_MS else None,
            costs={name: usd for name, usd in costs.items() if 0 < usd < _MOST_USD},
            searches={name: number for name, number in searches.items() if number},
        )
    )


def _total(model: ModelUsage) -> Usage:
    return usage_of(
        TokenCounts(
            input_tokens=model.input_tokens,
            output_tokens=model.output_tokens,
            cache_creation_input_tokens=model.cache_creation_input_tokens,
            cache_read_input_tokens=model.cache_read_input_tokens,
            cache_creation=CacheCreation(model.five_minutes, model.one_hour),
            output_tokens_details=OutputDetails(model.thinking_tokens),
        )
    )


def read_system(memory: Memory, spot: Spot) -> None:
    line = spot.line
    if line.subtype == "compact_boundary":
        read_compaction(memory, spot)
        return
    memory.follow(spot)
    if line.subtype == "api_error":
        error = error_of(spot)
        add_event(memory, spot, "retry", status=error.status if error is not None else None)
        refuse_attempt(memory, spot.ts, error)
    elif line.subtype == "model_fallback":
        fall_back(memory, line.original_model)
    elif line.subtype not in SYSTEM_SUBTYPES:
        tally(memory.out.counts.unknown, f"system/{line.subtype}")


def read_compaction(memory: Memory, spot: Spot) -> None:
    """Begins a new context: no turn is above it, but the prompt continues."""
    line, rail = spot.line, spot.rail
    before = memory.link(line.logical_parent_uuid) or memory.link(rail.last)
    memory.add_link(replace(spot, parent=None), turn=None, prompt=before.prompt if before is not None else None)
    metadata = line.compact_metadata or claude_lines.CompactMetadata()
    before_tokens, after_tokens = metadata.pre_tokens, metadata.post_tokens
    memory.out.compactions.append(
        Compaction(
            source=SOURCE,
            session_id=memory.session_id,
            rail_id=rail.id,
            id=spot.name,
            ts=spot.ts,
            trigger=metadata.trigger,
            before_tokens=token_count(before_tokens) if before_tokens is not None else None,
            after_tokens=token_count(after_tokens) if after_tokens is not None else None,
            copied=memory.repeats(spot),
        )
    )


_READ: Final[dict[str, Callable[[Memory, Spot], None]]] = {
    "assistant": read_assistant,
    "user": read_user,
    "attachment": read_attachment,
    "system": read_system,
}
