"""The quick pass over Claude Code's transcripts: messages with their usage, without their content.

Equal totals need these lines:

- `assistant`: id, model, usage (with cache lifetimes, web searches, tiers, geography and billed iterations), stop,
  request, fork marks;
- any line: the first and the last time, the session, the first folder;
- `api-request`: the session made the request itself, and may have got no response;
- `user`, `system/api_error`, `system/model_fallback` and synthetic answers, while a request waits for its response;
- `toolUseResult` with a `searchCount`: web searches that no usage has;
- `cost-state`: the running total, and `system/compact_boundary`: both show usage that is in no log.

A log in which a message can only be identified by the tree of its lines, or with agents in the main file, as in the
first releases, is read by the full reader.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import BinaryIO, Final

import msgspec

from burnd.harness.anthropic import UsageObject, bill_of
from burnd.harness.claude_code import lines as claude_lines
from burnd.harness.claude_code.lines import (
    BARE,
    ENDING,
    IGNORED,
    NO_BRANCH,
    SOURCE,
    SYNTHETIC,
    TYPE_FIRST,
    LineHead,
    LogPath,
    MessageHead,
    leading_type,
    parse_path,
)
from burnd.harness.claude_code.memory import Spot
from burnd.harness.claude_code.messages import BACKGROUND, WORD, is_final, rank_of, stated_output
from burnd.harness.claude_code.product import PRODUCT
from burnd.harness.claude_code.prompts import WEB_SEARCH, is_prompt_line
from burnd.harness.claude_code.reader import ClaudeReader, read_compaction
from burnd.harness.claude_code.requests import answer_attempt, end_run, error_of, fail_run, fall_back, refuse_attempt
from burnd.harness.claude_code.state import ClaudeRail
from burnd.harness.product import RESTORED
from burnd.harness.quick_pass import LogSettings, LogTask, LogTotals, lines_in, totals_of
from burnd.index.keys import path_key
from burnd.logfiles.log_reader import decode_line
from burnd.logfiles.scanner import below
from burnd.recording.candidate import (
    LACKS_REQUEST,
    NO_REQUEST_ID,
    SIDECHAIN,
    WORST_RANK,
    Candidate,
    LineKey,
    with_iterations,
)
from burnd.records import ToolCall
from burnd.records.content import MAIN
from burnd.records.foreign_json import SafeDecoder
from burnd.records.names import bounded_path
from burnd.records.turn import FORKED, token_count

_LONGEST_WORD: Final = 11
_SEARCH_COUNT: Final = b'"searchCount"'
_LINES_AT_ONCE: Final = 1000
_TYPE, _USER, _MESSAGE, _HEAD = b'"type":"', b'"type":"user"', b'"message":', 1024
_TO_SKIP: Final = BARE | IGNORED
_RESTORED: Final = (RESTORED, RESTORED + b"\n")


class _Line(LineHead):
    message: MessageHead | None = None


_decode: Final = msgspec.json.Decoder(_Line).decode
_repairing: Final = SafeDecoder(_Line)
_FAILURES: Final = (msgspec.MsgspecError, ValueError, RecursionError)


class _NeedsTree(Exception):
    """Raised when a message can only be identified by the lines above it."""


def find_logs(log_settings: LogSettings) -> list[LogTask]:
    return log_settings.files(PRODUCT, __name__, (ENDING,), parse_path)


def read_logs(task: LogTask) -> list[LogTotals]:
    path = parse_path(path_key(below(task.path, task.root)))
    if path is None:
        return []
    with task.open() as file:
        reader = _TotalsReader(path)
        try:
            reader.read(lines_in(file))
            return [reader.totals(file)]
        except _NeedsTree:
            file.seek(0)
            return [_read_fully(path, lines_in(file))]


def _read_fully(path: LogPath, lines: Iterable[tuple[int, bytes]]) -> LogTotals:
    reader = _FullReader(path)
    for n, (offset, line) in enumerate(lines):
        reader.feed(line, offset)
        if n % _LINES_AT_ONCE == 0:
            reader.drop_content()
    reader.flush()
    return totals_of(SOURCE, reader.take(), reader.folder, needs_keys=True)


class _Response:
    """A message while its lines are read, and its best line: model, usage and key."""

    __slots__ = ("best", "candidate", "model", "usage")

    def __init__(self, candidate: Candidate) -> None:
        self.candidate = candidate
        self.best: tuple[int, str, str] = LineKey()
        self.model = ""
        self.usage: UsageObject | None = None

    def update(self, line: _Line, message: MessageHead, ts: str, name: str, rank: int) -> None:
        """Takes the line's usage if it is the best so far, as the reader does; `rank` is the line's."""
        candidate = self.candidate
        if ts < candidate.ts:
            candidate.ts = ts
        if not candidate.final and is_final(line, message):
            candidate.final = True
        if candidate.rank:
            candidate.rank &= rank | FORKED
            candidate.request_ref = candidate.request_ref or line.request_ref
        key = (stated_output(message.usage), ts, name)
        if key > self.best:
            self.best, self.model, self.usage = key, message.model or "", message.usage

    def candidates(self, birth: str | None) -> Iterable[Candidate]:
        candidate = self.candidate
        candidate.best, candidate.model = LineKey(*self.best), self.model
        bill = bill_of(self.usage)
        candidate.usage, candidate.speed, candidate.server_tools, candidate.billed_calls = bill[:4]
        candidate.service_tier, candidate.inference_geo = bill.service_tier, bill.inference_geo
        candidate.late_born = birth is not None and birth > candidate.ts
        return with_iterations(candidate) if candidate.billed_calls else (candidate,)


class _FullReader(ClaudeReader):
    def drop_content(self) -> None:
        self._memory.out.content.clear()

    @property
    def folder(self) -> str | None:
        return self._memory.state.project


class _TotalsReader(ClaudeReader):
    """Remembers a small part of what its base does."""

    def __init__(self, path: LogPath) -> None:
        super().__init__(path)
        self._rail = ClaudeRail(path.rail_id or MAIN)
        self._responses: dict[str, _Response] = {}
        self._searches: dict[str, int] = {}  # by call
        self._may_skip = False
        self._last_skipped: bytes | None = None

    def read(self, lines: Iterable[tuple[int, bytes]]) -> None:
        """Most lines are results and further lines of a response: these take few steps each."""
        responses, time_of, is_main = self._responses, self._memory.time_of, self._rail.id == MAIN
        for offset, line in lines:
            if line.endswith(_RESTORED):
                continue
            if not self._may_skip or (line.startswith(TYPE_FIRST) and leading_type(line) in _TO_SKIP):
                self.feed(line, offset)
                continue
            at = line.find(_TYPE, 0, _HEAD)
            if line.startswith(_USER, at) and line.find(_MESSAGE, 0, at) < 0 and _SEARCH_COUNT not in line:
                self._last_skipped = line  # a prompt or a result without searches
                continue
            try:
                head = _decode(line)
            except _FAILURES:
                self.feed(line, offset)
                continue
            message = head.message
            response = responses.get(message.id or "") if message is not None else None
            if (
                message is None
                or response is None
                or head.type != "assistant"
                or head.request_ref is not None
                or head.timestamp is None
                or head.uuid is None
                or message.model == SYNTHETIC
                or len(response.candidate.message_id) <= _LONGEST_WORD
                or (head.is_sidechain and is_main)
            ):
                self._read_head(head, line, offset)
                continue
            self._last_skipped = None
            rank = LACKS_REQUEST | SIDECHAIN if head.is_sidechain else LACKS_REQUEST
            if head.request_id is None:
                rank |= NO_REQUEST_ID
            response.update(head, message, time_of(head.timestamp), head.uuid, rank)

    def feed(self, line: bytes, offset: int) -> str | None:
        kind = leading_type(line)
        if kind is not None and kind in _TO_SKIP:
            self._note_time()
            reason = super().feed(line, offset)
            self._update_skip()
            return reason
        try:
            decoded: _Line | None = _decode(line)
        except _FAILURES:
            decoded, _ = decode_line(_repairing, line, offset, self._memory.out.counts)
        if decoded is not None:
            self._read_head(decoded, line, offset)
        return None

    def _update_skip(self) -> None:
        """User lines are skipped once the session, its folder and its beginning are known and no request waits."""
        state, rail = self._memory.state, self._rail
        is_known = None not in (state.session_id, state.project, state.birth)
        self._may_skip = is_known and not state.attempts and (rail.id == MAIN or rail.has_prompt)

    def _note_time(self) -> None:
        """Takes the time of the last line that was skipped: another line may need it."""
        data, self._last_skipped = self._last_skipped, None
        line = _repairing.value(data) if data is not None else None
        if line is not None:
            self._memory.time_of(line.timestamp)

    def totals(self, file: BinaryIO) -> LogTotals:
        """All that the transcript adds, after its last line; `file` is read again if there are web searches."""
        self.flush()
        if self._searches:
            file.seek(0)
            self._add_searches(lines_in(file))
        state, out = self._memory.state, self._memory.out
        return LogTotals(
            SOURCE,
            state.session_id,
            state.project if self._memory.path.rail_id is None else None,
            [one for response in self._responses.values() for one in response.candidates(state.birth)],
            overheads=out.overheads,
            requests=out.requests,
            compactions=out.compactions,
            folder=state.project,
            needs_keys=True,
        )

    def _read_head(self, line: _Line, data: bytes, offset: int) -> None:
        kind, memory = line.type, self._memory
        if kind in BARE or line.timestamp is None:
            self._note_time()
        self._last_skipped = None
        if kind in BARE:
            self._read_bare(data, offset)
            self._update_skip()
            return
        state = memory.state
        if state.session_id is None and line.session_id:
            state.session_id = memory.path.word or line.session_id
        if state.project is None:
            state.project = bounded_path(line.cwd)
        ts = memory.time_of(line.timestamp)
        if kind == "assistant" or (not kind and line.message is not None and line.message.usage is not None):
            self._read_response(line, ts, data, offset)
        elif kind == "user":
            is_awaited = state.attempts or (self._rail.id != MAIN and not self._rail.has_prompt)
            spot = self._spot(data, ts, offset) if is_awaited else None
            if spot is not None and is_prompt_line(spot):
                self._rail.has_prompt = True
                end_run(memory)
            if _SEARCH_COUNT in data:
                self._note_searches(data, offset)
        elif kind == "system":
            self._read_system(line, ts, data, offset)
        if not self._may_skip:
            self._update_skip()

    def _read_response(self, line: _Line, ts: str, data: bytes, offset: int) -> None:
        message, memory = line.message, self._memory
        if message is None or message.model == SYNTHETIC:
            spot = self._spot(data, ts, offset) if message is not None and memory.state.attempts else None
            if spot is not None and spot.line.refused_message_id is None:
                fail_run(memory, spot.line.api_error_status if spot.line.is_api_error_message else None)
            return
        message_id = message.id
        is_word = message_id is None or (len(message_id) <= _LONGEST_WORD and WORD.fullmatch(message_id) is not None)
        if not message_id or (is_word and line.request_id is None) or (line.is_sidechain and self._rail.id == MAIN):
            raise _NeedsTree
        if line.request_ref is not None:
            answer_attempt(memory, line.request_ref, message.usage)
        response = self._responses.get(message_id)
        if response is None:
            response = self._responses[message_id] = _Response(self._begin(line, message_id, ts))
        response.update(line, message, ts, line.uuid or self._name(offset), rank_of(memory, line))
        if line.request_ref is not None:
            memory.touch(response.candidate)

    def _begin(self, line: _Line, message_id: str, ts: str) -> Candidate:
        memory, rail = self._memory, self._rail
        rail.next_index += 1
        return Candidate(
            source=SOURCE,
            message_id=message_id,
            session_id=memory.session_id,
            rail_id=rail.id,
            turn_index=rail.next_index - 1,
            ts=ts,
            settled=True,
            rank=WORST_RANK if line.forked_from is not None else WORST_RANK & ~FORKED,
            is_strange=memory.is_strange(line) or line.session_kind == BACKGROUND,
            project=memory.state.project,
            git_branch=None if line.git_branch in NO_BRANCH else line.git_branch,
            harness_version=line.version,
        )

    def _read_system(self, line: _Line, ts: str, data: bytes, offset: int) -> None:
        memory = self._memory
        is_compaction = line.subtype == "compact_boundary"
        if not is_compaction and not memory.state.attempts:
            return
        spot = self._spot(data, ts, offset)
        if spot is None:
            return
        if is_compaction:
            read_compaction(memory, spot)
        elif line.subtype == "api_error":
            refuse_attempt(memory, ts, error_of(spot))
        elif line.subtype == "model_fallback":
            fall_back(memory, spot.line.original_model)

    def _spot(self, data: bytes, ts: str, offset: int) -> Spot | None:
        line, _ = decode_line(claude_lines.lines, data, offset, self._memory.out.counts)
        if line is None:
            return None
        return Spot(line, self._rail, None, ts, offset, line.uuid or self._name(offset))

    def _name(self, offset: int) -> str:
        return f"@{offset}" if self._rail.id == MAIN else f"{self._rail.id}@{offset}"

    def _note_searches(self, data: bytes, offset: int) -> None:
        line, _ = decode_line(claude_lines.lines, data, offset, self._memory.out.counts)
        outcome = line.tool_use_result if line is not None else None
        content = line.message.content if line is not None and line.message is not None else None
        if not isinstance(outcome, claude_lines.Outcome) or not outcome.search_count or not isinstance(content, list):
            return
        call_id = next((block.tool_use_id for block in content if block.type == "tool_result"), None)
        if call_id:
            self._searches[call_id] = token_count(outcome.search_count)

    def _add_searches(self, lines: Iterable[tuple[int, bytes]]) -> None:
        call_ids = [call_id.encode() for call_id in self._searches]
        for offset, data in lines:
            if WEB_SEARCH.encode() not in data or not any(call_id in data for call_id in call_ids):
                continue
            line, _ = decode_line(claude_lines.lines, data, offset, self._memory.out.counts)
            message = line.message if line is not None and line.type == "assistant" else None
            response = self._responses.get(message.id or "") if message is not None else None
            if message is None or response is None or not isinstance(message.content, list):
                continue
            candidate = response.candidate
            for block in message.content:
                searches = self._searches.get(block.id or "", 0) if block.name == WEB_SEARCH else 0
                if searches and all(call.id != block.id for call in candidate.calls):
                    call = ToolCall(id=block.id or "", name=WEB_SEARCH, is_error=False, searches=searches)
                    candidate.calls += (call,)
