"""Reads a Codex rollout line by line into candidates, content and facts about the session."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from burnd.harness.codex import lines as shapes
from burnd.harness.codex.events import read_event, read_message, read_result
from burnd.harness.codex.lines import ITEMS, OUTPUTS, RESULTS, Compacted, Meta, plain, summary_in, totals_of
from burnd.harness.codex.responses import add_output, begin_task, end_task, record_usage
from burnd.harness.codex.state import SOURCE, LineRef, Place, RolloutLog, State, is_uuid
from burnd.harness.product import uuid7_ms
from burnd.harness.tool_calls import size
from burnd.logfiles.log_reader import Reading, decode_line, iso, rejected, tally
from burnd.recording.candidate import Candidate
from burnd.records import Block, Compaction, Session, Subagent
from burnd.records.content import MAIN
from burnd.records.foreign_json import Reason
from burnd.records.names import bounded_path, canonical_remote
from burnd.records.times import to_ms

COMPRESSED: Final = ".jsonl.zst"  # Codex may compress rollouts that no longer grow
_CONVERSATION: Final = frozenset({"response_item", "turn_context", "compacted"})
_SKIPPED: Final = frozenset({"world_state", "inter_agent_communication", "ghost_snapshot", "state"})


class CodexReader:
    """Reads the whole lines of one rollout, in file order; a `state` of None begins at the file's start."""

    def __init__(self, place: Place, state: State | None = None) -> None:
        self._log: RolloutLog = RolloutLog(place, state or State())
        self._readers: Final[dict[str, Callable[[LineRef, bytes], Reason | None]]] = {
            "session_meta": self._read_meta,
            "response_item": self._read_item,
            "event_msg": self._read_event,
            "turn_context": self._read_context,
            "token_usage_record": self._read_usage,
            "compacted": self._read_compacted,
        }

    def feed(self, line: bytes, offset: int) -> str | None:
        """Read one line that begins at `offset` in its file; returns the reason if any of it could not be used."""
        log = self._log
        counts, state = log.out.counts, log.state
        counts.lines += 1
        envelope, reason = decode_line(shapes.lines, line, offset, counts)
        if envelope is None:
            return reason
        kind, payload = envelope.unwrap(line)
        state.is_begun = state.is_begun or kind in _CONVERSATION
        if (read := self._readers.get(kind)) is not None:
            return read(LineRef(log.time_of(envelope.timestamp), f"{log.session_id}:{offset}"), payload) or reason
        tally(counts.skipped if kind in _SKIPPED else counts.unknown, kind or "(none)")
        return None

    def flush(self, *, answered_only: bool = False) -> None:
        """Settle what is open: nothing more is expected, though it may still come."""
        for candidate in self.open_candidates():
            if candidate.answered or not answered_only:
                self._log.settle(candidate)

    def open_candidates(self) -> list[Candidate]:
        """The newest response while it is not settled."""
        current = self._log.current
        return [current] if current is not None and not current.settled else []

    def waiting_sessions(self) -> set[str]:
        """The session, while its newest response may still grow."""
        return {candidate.session_id for candidate in self.open_candidates()}

    def take(self) -> Reading:
        """The output since the last take, and the state to continue from."""
        return self._log.take()

    def again(self) -> bytes:
        """No state is carried over when a rollout is read again: Codex never truncates one."""
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


def _begin_session(log: RolloutLog, line: LineRef, meta: Meta) -> None:
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


def _read_agent(log: RolloutLog, meta: Meta) -> str | None:
    """Note that the session is an agent's, if it is; returns its parent session."""
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


def place_of(relative: str) -> Place | None:
    """The place of a rollout at `2026/11/16/rollout-<time>-<id>.jsonl`; None if the path is not a rollout."""
    name = relative.rsplit("/", 1)[-1].removesuffix(COMPRESSED.removeprefix(".jsonl"))
    if not name.endswith(".jsonl") or name.startswith("."):
        return None
    stem = name.removesuffix(".jsonl")
    thread = stem[-36:]
    return Place(thread if is_uuid(thread) else stem) if stem else None
