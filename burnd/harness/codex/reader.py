"""Reads a Codex rollout line by line into candidates, content and the facts beside them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from burnd.harness.codex import lines as codex_lines
from burnd.harness.codex.events import read_event
from burnd.harness.codex.inputs import read_answer, read_message
from burnd.harness.codex.lines import ANSWERS, ITEMS, MADE, NOTHING, Line, Meta, opened, plain, summary_in
from burnd.harness.codex.memory import Memory, Spot, born_at, is_uuid
from burnd.harness.codex.responses import add_made, begin_task, end_task, record
from burnd.harness.codex.state import SOURCE, Place, State
from burnd.harness.codex.usage import totals_of
from burnd.harness.tool_calls import size
from burnd.logfiles.log_reader import Reading, cut_reason, iso, rejected, tally
from burnd.recording.candidate import Candidate
from burnd.records import Block, Compaction, Session, Subagent, folders
from burnd.records.content import MAIN
from burnd.records.foreign_json import Reason, Repaired
from burnd.records.remotes import canonical_remote
from burnd.records.times import to_ms

COMPRESSED: Final = ".jsonl.zst"  # what Codex makes of logs that have grown cold, if it is told to
_BEGINNINGS: Final = frozenset({"response_item", "turn_context", "compacted"})
_PASSED_OVER: Final = frozenset({"world_state", "inter_agent_communication", "ghost_snapshot", "state"})


class CodexReader:
    """Feeds on the whole lines of one rollout, in file order; a `state` of None begins at the file's start."""

    def __init__(self, place: Place, state: State | None = None) -> None:
        self._memory = Memory(place, state or State())
        self._read: Final[dict[str | None, Callable[[Spot, bytes], Reason | None]]] = {
            "session_meta": self._read_meta,
            "response_item": self._read_item,
            "event_msg": self._read_event,
            "turn_context": self._read_context,
            "token_usage_record": self._read_metered,
            "compacted": self._read_compacted,
        }

    def feed(self, line: bytes, offset: int) -> str | None:
        """Read one line that begins at `offset` in its file; returns the reason if any of it could not be used."""
        counts = self._memory.out.counts
        counts.lines += 1
        found = codex_lines.lines.decode(line, offset)
        cut: str | None = None
        if isinstance(found, Repaired):
            for what in found.what:
                tally(counts.repaired, what)
            cut = cut_reason(found.what)
            found = found.value
        if not isinstance(found, Line):
            return rejected(counts, found.reason)
        kind, payload = _unwrapped(found, line)
        read = self._read.get(kind)
        state = self._memory.state
        state.begun = state.begun or kind in _BEGINNINGS
        if read is not None:
            spot = Spot(self._memory.stamp(found.timestamp), f"{self._memory.session_id}:{offset}")
            return read(spot, payload) or cut
        tally(counts.skipped if kind in _PASSED_OVER else counts.unknown, kind or "(none)")
        return None

    def flush(self, *, answered_only: bool = False) -> None:
        """Settle what is open: nothing more is expected, though it may still come."""
        for candidate in self.open_candidates():
            if candidate.answered or not answered_only:
                self._memory.settle(candidate)

    def open_candidates(self) -> list[Candidate]:
        """The newest response while it is not settled."""
        current = self._memory.current
        return [current] if current is not None and not current.settled else []

    def waiting_sessions(self) -> set[str]:
        """The session, while its newest response may still grow."""
        return {candidate.session_id for candidate in self.open_candidates()}

    def take(self) -> Reading:
        """All that came out since the last take, and the state to go on from."""
        return self._memory.take()

    def again(self) -> bytes:
        """Nothing is carried over when a rollout is read again: Codex cuts none."""
        return b""

    def _read_meta(self, spot: Spot, payload: bytes) -> None:
        meta = opened(codex_lines.metas, payload)
        about = self._memory.state.about
        if meta is None or (meta.id or meta.session_id) is None:
            return
        meta.id = meta.id or meta.session_id
        if about.created_ms is None:
            _begin_session(self._memory, spot, meta)
        elif meta.id != about.session_id and self._memory.state.next_index == 0:
            about.root = meta.id
        elif meta.id == about.session_id and meta.git is not None:
            about.git_branch = meta.git.branch

    def _read_item(self, spot: Spot, payload: bytes) -> Reason | None:
        item = opened(codex_lines.items, payload)
        if item is None:
            return rejected(self._memory.out.counts, "wrong-shape")
        kind = item.type
        if kind in MADE or (kind == "message" and item.role == "assistant"):
            add_made(self._memory, spot, item)
        elif kind in ANSWERS:
            read_answer(self._memory, spot, item)
        elif kind in ("message", "agent_message"):
            read_message(self._memory, spot, item)
        else:
            counts = self._memory.out.counts
            tally(counts.skipped if kind in ITEMS else counts.unknown, kind or "(none)")
        return None

    def _read_event(self, spot: Spot, payload: bytes) -> None:
        event = opened(codex_lines.happenings, payload)
        if event is None or not read_event(self._memory, spot, event):
            tally(self._memory.out.counts.skipped, (event.type if event is not None else None) or "(none)")

    def _read_context(self, spot: Spot, payload: bytes) -> None:  # noqa: ARG002
        context = opened(codex_lines.contexts, payload)
        if context is not None:
            begin_task(self._memory, context.turn_id)
            self._memory.state.model = context.model or self._memory.state.model

    def _read_metered(self, spot: Spot, payload: bytes) -> None:
        found = opened(codex_lines.metered, payload)
        if found is not None:
            begin_task(self._memory, found.turn_id)
            record(self._memory, spot, totals_of(found.thread_token_usage), totals_of(found.usage))

    def _read_compacted(self, spot: Spot, payload: bytes) -> None:
        memory = self._memory
        found = opened(codex_lines.compactions, payload)
        context = memory.current.usage.context if memory.current is not None else 0
        end_task(memory)
        memory.state.recorded = []  # the meter reads no compaction, or has done so by now
        text = found.message or "" if found is not None else ""
        history = len(found.replacement_history) if found is not None else 0
        memory.state.entering = [Block(kind="summary", bytes=size(text) or history)]
        if memory.repeats(spot.ts):
            return
        if summary := text or (summary_in(found.replacement_history) if found is not None else ""):
            memory.keep(spot, spot.name, "system", "summary", summary)
        memory.out.compactions.append(
            Compaction(
                source=SOURCE,
                session_id=memory.session_id,
                rail_id=MAIN,
                id=spot.name,
                ts=spot.ts,
                before_tokens=context or None,
            )
        )


def _unwrapped(line: Line, raw: bytes) -> tuple[str, bytes]:
    """A line's type and payload. Early releases wrote items, and first what is known of the session, as they are."""
    if line.payload != NOTHING:
        return line.type or "", bytes(line.payload)
    if line.type in ITEMS:
        return "response_item", raw
    if line.type is None and line.record_type is None:
        return "session_meta", raw
    return line.type or line.record_type or "", raw


def _begin_session(memory: Memory, spot: Spot, meta: Meta) -> None:
    about = memory.state.about
    about.session_id = meta.id
    created = iso(meta.timestamp) or spot.ts
    # A thread's id is made a moment before its first line, and an agent's first task may follow within that moment.
    born = born_at(meta.id)
    about.created_ms = to_ms(created) if born is None else min(born, to_ms(created))
    memory.state.stamp = memory.state.stamp or created
    memory.state.model = meta.model or ""
    about.project = folders.bounded(meta.cwd)
    if meta.git is not None:
        about.git_branch = meta.git.branch
        about.project_key = canonical_remote(meta.git.repository_url or "")
    parent = _learn_agent(memory, meta)
    about.root = meta.forked_from_id or parent
    if meta.forked_from_id:
        memory.out.origins[meta.forked_from_id] = to_ms(created)
    memory.out.sessions.append(
        Session(
            session_id=memory.session_id,
            source=SOURCE,
            parent_session_id=parent,
            project=about.project,
            project_key=about.project_key,
            agent=about.subagent.type if about.subagent is not None else None,
            created_at=created,
        )
    )
    _keep_instructions(memory, spot, meta)


def _learn_agent(memory: Memory, meta: Meta) -> str | None:
    """Whose agent this session is, if it is one's."""
    source = plain(meta.source)
    kind: Any = source.get("subagent") if isinstance(source, dict) else None
    if kind is None and meta.parent_thread_id is None:
        return None
    spawn = kind.get("thread_spawn") if isinstance(kind, dict) else None
    spawn = spawn if isinstance(spawn, dict) else {}
    role = meta.agent_role or spawn.get("agent_role") or (kind if isinstance(kind, str) else None)
    memory.state.about.subagent = Subagent(agent_id=memory.session_id, type=role if isinstance(role, str) else None)
    parent = meta.parent_thread_id or spawn.get("parent_thread_id")
    return parent if isinstance(parent, str) and parent != memory.session_id else None


def _keep_instructions(memory: Memory, spot: Spot, meta: Meta) -> None:
    base = plain(meta.base_instructions) if meta.base_instructions else None
    text = base.get("text") if isinstance(base, dict) else base
    for b, said in enumerate([text, meta.instructions]):
        if isinstance(said, str) and said:
            memory.keep(spot, f"{memory.session_id}:instructions", "system", "text", said, b=b)


def place_of(relative: str) -> Place | None:
    """What a rollout's path tells: `2026/11/16/rollout-<time>-<id>.jsonl`. None where it is no log."""
    name = relative.rsplit("/", 1)[-1].removesuffix(COMPRESSED.removeprefix(".jsonl"))
    if not name.endswith(".jsonl") or name.startswith("."):
        return None
    stem = name.removesuffix(".jsonl")
    thread = stem[-36:]
    return Place(thread if is_uuid(thread) else stem) if stem else None
