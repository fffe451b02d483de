"""A Codex rollout being read: the reader's state, bounded however long a session grows, and the responses so far.

A rollout has the parts of a response and no line for the whole: it is what the model made between two `token_count`
lines. Up to release 0.6x the count comes before the items of its response, later after them or after their results.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from burnd.classify.activity import Call as Step
from burnd.classify.activity import Walk, step
from burnd.classify.tools import kind
from burnd.harness.codex.lines import CALLS, ZERO, Item, TokenSum, Unmetered, texts, used_since
from burnd.harness.codex.tools import SPAWN, call_of, searches_of
from burnd.harness.product import uuid7_ms
from burnd.harness.tool_calls import creates_pull_request, short_hash, size
from burnd.logfiles import log_reader
from burnd.logfiles.log_reader import NEVER, LogReading, iso
from burnd.recording.candidate import Candidate, LineKey
from burnd.records import Block, Content, Event, ServerTools, Subagent, ToolUse
from burnd.records.content import MAIN, Kind, Role
from burnd.records.times import to_iso, to_ms
from burnd.records.turn import FORKED

SOURCE: Final = "codex"
VERSION: Final = 6
MAX_CANDIDATES: Final = 8
MAX_SUMS: Final = 8
MAX_PROMPTS: Final = 64
MAX_BLOCKS: Final = 256
MAX_SPAWNS: Final = 64
MAX_PULL_CALLS: Final = 16
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


class CodexSession(msgspec.Struct, omit_defaults=True):
    """Facts about the session; `root` is the first session whose history the rollout repeats."""

    session_id: str | None = None
    root: str | None = None
    created_ms: int | None = None
    project: str | None = None
    project_key: str | None = None
    git_branch: str | None = None
    subagent: Subagent | None = None
    release: str | None = None


class ContextLine(msgspec.Struct, frozen=True, gc=False):
    """A line for the next content record, by its offset and size: no text may be in a reader's state."""

    at: tuple[int, int]
    timestamp: str
    type: str


class CodexState(msgspec.Struct, omit_defaults=True):
    """All that a reader needs to continue at the next line.

    `sums` are the latest sums of `token_count` lines, `threads` those of usage records, `unmetered` the responses with
    a usage record and no `token_count` yet. `is_begun`: there was more than metadata. The next items may belong to
    `current`, unless it is `closed` and only waits for results. `entering` are blocks of the next response's input. A
    task is one request of the user and all that follows; `tasks` counts the billed responses of the latest ones.
    """

    version: int = VERSION
    ts: str | None = None
    session: CodexSession = msgspec.field(default_factory=CodexSession)
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
    pull_calls: list[str] = []  # calls that make pull requests, without their results
    quotas: dict[str, tuple[float, int]] = {}
    titles: int = 0
    context: list[ContextLine] = []  # lines for the next content record, see `reader.keep_line`


_begun_ms: Final = lru_cache(maxsize=64)(uuid7_ms)  # of tasks, for every line
_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(CodexState).decode


def load_state(data: bytes | None) -> CodexState | None:
    return log_reader.load_state(_decode, VERSION, data)


class LineRef(msgspec.Struct, frozen=True, gc=False):
    ts: str
    id: str


class RolloutLog:
    def __init__(self, place: RolloutName, state: CodexState) -> None:
        self.place = place
        self.state = state
        self.out = LogReading()
        self.touched: dict[str, Candidate] = {}

    @property
    def session_id(self) -> str:
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
        if timestamp is None or isinstance(timestamp, str):
            ts = iso(timestamp)
        else:  # seconds, or milliseconds if that many seconds are far away
            ts = to_iso(int(timestamp if abs(timestamp) > _LARGEST_SECONDS else timestamp * 1000))
        if ts is None:
            return self.state.ts or NEVER
        self.state.ts = ts
        return ts

    def repeats(self, ts: str) -> bool:
        """Whether the line is copied: it, or the task that its id names, is older than this session."""
        created = self.state.session.created_ms
        if created is None:
            return False
        started = _begun_ms(self.state.task)
        return (to_ms(ts) if started is None else started) < created

    def repeats_parent(self, ts: str) -> bool:
        """Whether an agent's rollout copied the line from its parent; the copy counts as input."""
        return self.state.session.subagent is not None and self.repeats(ts)

    def touch(self, candidate: Candidate) -> None:
        if not candidate.restored:
            self.touched[candidate.message_id] = candidate
        candidates = self.state.candidates
        candidates.pop(candidate.message_id, None)
        candidates[candidate.message_id] = candidate
        if len(candidates) > MAX_CANDIDATES:
            del candidates[next(name for name in candidates if name != self.state.current)]

    def without_output(self, read: Callable[[], str | None]) -> str | None:
        """Reads a restored line: it is remembered like any other, but all of it is recorded already."""
        out, touched = self.out, self.touched
        self.out, self.touched = LogReading(counts=out.counts), {}
        try:
            return read()
        finally:
            for candidate in self.touched.values():
                candidate.settled = candidate.restored = True
            self.out, self.touched = out, touched
            self.state.context.clear()

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


# Responses

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
    number = next((n for n, one in enumerate(state.unmetered, 1) if one.is_counted_by(total, last)), 0)
    if not number and used != last:
        number = len(state.unmetered)
    for record in state.unmetered[:number]:  # an interrupted response is counted later, with others
        used = used.since(record.used)
    state.unmetered = state.unmetered[number:]
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
    if creates_pull_request(details.command):
        log.state.pull_calls = [*log.state.pull_calls, call.id][-MAX_PULL_CALLS:]
    prompt = log.prompt
    if kind(call.name) in ("edit", "shell") and prompt is not None and prompt.id == candidate.prompt_id:
        walk = step(prompt.walk, (Step(call.name),))
        candidate.prompt_retries = walk.retries
        log.state.prompts[-1] = replace(prompt, walk=walk)
    use = ToolUse(id=call.id, name=item.name or call.name, input=details.input)
    log.add_content(line, candidate.message_id, "assistant", "tool_use", n=n, tool_use=use)
