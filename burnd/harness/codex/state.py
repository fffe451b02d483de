"""The state of a Codex reader, bounded however long a session grows, and its output."""

from __future__ import annotations

import copy
from typing import Any, Final

import msgspec

from burnd.classify.activity import Walk
from burnd.harness.codex.lines import TokenSum, Unmetered
from burnd.harness.product import uuid7_ms
from burnd.logfiles import log_reader
from burnd.logfiles.log_reader import NEVER, LogReading, iso
from burnd.recording.candidate import Candidate
from burnd.records import Block, Content, Event, Subagent
from burnd.records.content import MAIN, Kind, Role
from burnd.records.times import to_iso, to_ms

SOURCE: Final = "codex"
VERSION: Final = 5
MAX_CANDIDATES: Final = 8
MAX_SUMS: Final = 8
MAX_PROMPTS: Final = 64
MAX_BLOCKS: Final = 256
MAX_SPAWNS: Final = 64
MAX_TASKS: Final = 8
_UUID_PARTS: Final = [8, 4, 4, 4, 12]
_LARGEST_SECONDS: Final = 10_000_000_000


class RolloutName(msgspec.Struct, frozen=True):
    """The session that a rollout's path names; its lines may name another."""

    session_id: str


class CodexPrompt(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A prompt's word classes, the retry walk over its turns, and the turn before it."""

    id: str
    words: tuple[str, ...] = ()
    after: str | None = None
    walk: Walk = Walk()


class SessionFacts(msgspec.Struct, omit_defaults=True):
    """Facts about the session; `root` is the first session whose history the rollout repeats."""

    session_id: str | None = None
    root: str | None = None
    created_ms: int | None = None
    project: str | None = None
    project_key: str | None = None
    git_branch: str | None = None
    subagent: Subagent | None = None
    release: str | None = None


class CodexState(msgspec.Struct, omit_defaults=True):
    """All that a reader needs to continue at the next line.

    `sums` are the latest sums of `token_count` lines, `threads` those of usage records, `unmetered` the responses with
    a usage record and no `token_count` yet. `is_begun`: there was more than metadata. The next items may belong to
    `current`, unless it is `closed` and only waits for results. `entering` are blocks of the next response's input. A
    task is one request of the user and all that follows; `tasks` counts the billed responses of the latest ones.
    """

    version: int = VERSION
    ts: str | None = None
    session: SessionFacts = msgspec.field(default_factory=SessionFacts)
    model: str = ""
    speed: str | None = None
    service_tier: str | None = None
    task: str | None = None
    tasks: dict[str, int] = {}
    sums: list[TokenSum] = []
    threads: list[TokenSum] = []
    unmetered: list[Unmetered] = []
    is_begun: bool = False
    candidates: dict[str, Candidate] = {}
    current: str | None = None
    closed: bool = False
    next_index: int = 0
    last_turn: str | None = None
    entering: list[Block] = []
    prompts: list[CodexPrompt] = []
    prompt_count: int = 0  # including prompts that were rolled back
    spawns: dict[str, str] = {}
    quotas: dict[str, tuple[float, int]] = {}
    titles: int = 0


_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(CodexState).decode


def load_state(data: bytes | None) -> CodexState | None:
    return log_reader.load_state(_decode, VERSION, data)


class LineRef(msgspec.Struct, frozen=True, gc=False):
    """A line's time, and an id that is unique in its rollout."""

    ts: str
    id: str


class RolloutLog:
    """A rollout being read: its state, and the output since the last `take`."""

    def __init__(self, place: RolloutName, state: CodexState) -> None:
        self.place = place
        self.state = state
        self.out = LogReading()
        self.touched: dict[str, Candidate] = {}

    @property
    def session_id(self) -> str:
        """The session that the first line names, else the path."""
        session = self.state.session
        if session.session_id is None:
            session.session_id = self.place.session_id
        return session.session_id

    @property
    def current(self) -> Candidate | None:
        return self.state.candidates.get(self.state.current or "")

    @property
    def prompt(self) -> CodexPrompt | None:
        return self.state.prompts[-1] if self.state.prompts else None

    def time_of(self, timestamp: str | float | None) -> str:
        """A line's time in canonical form, or that of the line before."""
        if timestamp is None or isinstance(timestamp, str):
            ts = iso(timestamp)
        else:  # seconds, or milliseconds if that many seconds are far away
            ts = to_iso(int(timestamp if abs(timestamp) > _LARGEST_SECONDS else timestamp * 1000))
        if ts is None:
            return self.state.ts or NEVER
        self.state.ts = ts
        return ts

    def repeats(self, ts: str) -> bool:
        """Whether the line is copied from another session: it is older than this one.

        A fork repeats lines with the time of copying, but a task's id has the time of its start.
        """
        created = self.state.session.created_ms
        if created is None:
            return False
        started = uuid7_ms(self.state.task)
        return (to_ms(ts) if started is None else started) < created

    def repeats_parent(self, ts: str) -> bool:
        """Whether an agent's rollout copied the line from the session that started it.

        A session may start hundreds of agents, each with a copy of its history, which counts as their input.
        """
        return self.state.session.subagent is not None and self.repeats(ts)

    def touch(self, candidate: Candidate) -> None:
        """Stores a new or changed candidate for the next `take`."""
        self.touched[candidate.message_id] = candidate
        candidates = self.state.candidates
        candidates.pop(candidate.message_id, None)
        candidates[candidate.message_id] = candidate
        if len(candidates) > MAX_CANDIDATES:
            del candidates[next(name for name in candidates if name != self.state.current)]

    def settle(self, candidate: Candidate | None) -> None:
        if candidate is not None and not candidate.settled:
            candidate.settled = True
            self.touch(candidate)

    def enter(self, *blocks: Block) -> None:
        """Adds to the input of the next response; beyond a limit, the oldest blocks become one."""
        entering = self.state.entering
        entering += blocks
        if len(entering) > MAX_BLOCKS:
            oldest = entering[: len(entering) - MAX_BLOCKS + 1]
            entering[: len(oldest)] = [Block(kind="reminder", bytes=sum(block.bytes for block in oldest))]

    def add_content(
        self,
        line: LineRef,
        message_id: str,
        role: Role,
        kind: Kind,
        text: str | None = None,
        *,
        n: int = 0,
        b: int = 0,
        **part: Any,
    ) -> None:
        """Outputs content, except what an agent repeats of its parent; `part` is a call, result or file."""
        if self.repeats_parent(line.ts):
            return
        if self.repeats(line.ts):
            self.out.copied.append(message_id)
        self.out.content.append(
            Content(
                session_id=self.session_id,
                rail_id=MAIN,
                message_id=message_id,
                n=n,
                b=b,
                ts=line.ts,
                role=role,
                kind=kind,
                text=text,
                **part,
            )
        )

    def add_event(self, line: LineRef, name: str) -> None:
        """Outputs an event, unless it is copied."""
        if self.repeats(line.ts):
            return
        self.out.events.append(
            Event(
                source=SOURCE,
                session_id=self.session_id,
                rail_id=MAIN,
                id=line.id,
                ts=line.ts,
                name=name,
                message_id=self.state.current,
            )
        )

    def take(self) -> LogReading:
        out = self.out
        out.candidates = [copy.copy(candidate) for candidate in self.touched.values()]
        out.session_id = self.state.session.session_id
        out.state = _encode(self.state)
        self.out, self.touched = LogReading(), {}
        return out


def is_uuid(text: str | None) -> bool:
    """Whether an id is globally unique; some releases and clients only number their tasks."""
    return text is not None and [len(part) for part in text.split("-")] == _UUID_PARTS
