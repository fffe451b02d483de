"""Finds waste in the tool calls of a rail: unchanged files read again, repeated failures, reverted edits."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from burnd.attribution.causes import Cause, Explained
from burnd.attribution.findings import Evidence, Finding, FindingKind, Lineage, finding
from burnd.classify.tools import Kind as ToolKind
from burnd.classify.tools import kind as tool_kind
from burnd.classify.tools import writes_whole
from burnd.records import ToolCall, Turn

_RETRIES: Final = 3
_FAILURES_IN_A_ROW: Final = 5
_LONGEST_CHAIN: Final = 32
_READ_ONLY: Final[frozenset[ToolKind]] = frozenset(("read", "search", "web", "todo"))
SAME_SIZE: Final = "same-size"
_SAME_SIZE_ADVICE: Final = (
    "The result was as large as before, and the first one was still in the context: ask for what is new, or for "
    "the lines needed."
)


class CallEvent(NamedTuple):
    """A call, its turn, and the number of rows that had begun by then."""

    call: ToolCall
    turn: Turn
    row: int

    @property
    def reads(self) -> bool:
        return self.call.target is not None and tool_kind(self.call.name) == "read"

    @property
    def edits(self) -> bool:
        return self.call.target is not None and tool_kind(self.call.name) == "edit" and not self.call.is_error

    @property
    def failed(self) -> bool:
        """Whether the tool failed; a refusal by the user is not a failure."""
        return self.call.is_error is True and not self.call.is_refused

    @property
    def may_change(self) -> bool:
        """Whether the call may have changed files; commands and unknown tools may."""
        return not self.call.is_error and tool_kind(self.call.name) not in _READ_ONLY


class Calls:
    """The calls of a rail in order, and their causes."""

    def __init__(self, explained: Explained, turns: Sequence[Turn]) -> None:
        self.explained = explained
        self._causes = {(cause.message_id, cause.call_id): cause for cause in explained.causes}
        self.events = [
            CallEvent(call, turn, bisect_right(explained.begins, turn.turn_index))
            for turn in turns
            for call in turn.tool_calls
        ]
        self.lineage = Lineage(turns)
        self._shrunk = [shrink.turn_index for shrink in explained.shrinks]
        self._sizes: Counter[str | None] = Counter()
        self._entered: set[tuple[str | None, str]] = set()
        for turn in turns:
            for block in turn.entered:
                self._sizes[block.call_id] += block.bytes
                self._entered.add((block.call_id, turn.message_id))

    def cause(self, event: CallEvent) -> Cause | None:
        return self._causes.get((event.turn.message_id, event.call.id))

    def size(self, event: CallEvent) -> int | None:
        """The bytes of the results."""
        return self._sizes.get(event.call.id)

    def is_in_context(self, earlier: CallEvent, later: CallEvent) -> bool:
        """Whether the result of an earlier call was certainly in the context of a later one."""
        cause = self.cause(earlier)
        if cause is None or not self.lineage.is_above(earlier.turn.message_id, later.turn.message_id):
            return False
        begin = bisect_right(self._shrunk, earlier.turn.turn_index)
        end = bisect_right(self._shrunk, later.turn.turn_index)
        return not any(
            shrink.read < cause.end
            and (earlier.call.id, shrink.message_id) not in self._entered
            and self.lineage.is_above(shrink.message_id, later.turn.message_id)
            for shrink in self.explained.shrinks[begin:end]
        )

    def by_file(self) -> dict[str, list[CallEvent]]:
        """Reads and edits by file, in order."""
        files: dict[str, list[CallEvent]] = {}
        for event in self.events:
            if event.reads or event.edits:
                files.setdefault(event.call.target or "", []).append(event)
        return files


def wasted_calls(calls: Calls) -> Iterator[Finding]:
    yield from rereads(calls)
    loops = list(_retry_loops(calls.events))
    yield from (_finding(calls, "retry-loop", loop, loop[1:]) for loop in loops)
    yield from _failure_runs(calls, {event.call.id for loop in loops for event in loop})
    yield from _edit_reverts(calls)


def rereads(calls: Calls) -> Iterator[Finding]:
    """Reads of a file with the arguments and result of an earlier read that was still in the context."""
    for target, events in calls.by_file().items():
        rereads: list[CallEvent] = []
        has_hashes = True
        reads: dict[tuple[str, str | None], CallEvent] = {}
        for event in events:
            if event.edits:
                reads.clear()
                continue
            key = (event.call.name, event.call.args_hash)
            before = reads.get(key)
            if before is not None and _is_same(before, event, calls):
                rereads.append(event)
                has_hashes = has_hashes and event.call.result_hash is not None
            if not event.call.is_error:
                reads[key] = event
        if rereads:
            yield _finding(calls, "reread", rereads, rereads, files=(target,), reason=None if has_hashes else SAME_SIZE)


def _is_same(before: CallEvent, event: CallEvent, calls: Calls) -> bool:
    if event.call.args_hash is None or event.call.is_error or before.row != event.row:
        return False
    return _is_unchanged(before, event, calls) and calls.is_in_context(before, event)


def _is_unchanged(before: CallEvent, event: CallEvent, calls: Calls) -> bool:
    """Compares results by hash, else by size; False if neither is recorded."""
    one, other = before.call.result_hash, event.call.result_hash
    if one is not None and other is not None:
        return one == other
    return calls.size(event) is not None and calls.size(event) == calls.size(before)


def _retry_loops(events: Sequence[CallEvent]) -> Iterator[list[CallEvent]]:
    """Calls that failed three times or more with the same arguments, without a prompt or a change in between."""
    failures: dict[tuple[str, str | None], list[CallEvent]] = {}
    message_id = ""
    for event in events:
        is_prompted = event.turn.message_id != message_id and any(
            block.kind == "prompt" for block in event.turn.entered
        )
        message_id = event.turn.message_id
        if is_prompted or event.may_change:
            yield from _long_enough(failures.values())
            failures = {}
        key = (event.call.name, event.call.args_hash)
        if event.failed and event.call.args_hash is not None:
            failures.setdefault(key, []).append(event)
        elif not event.call.is_error:
            yield from _long_enough([failures.pop(key, [])])
    yield from _long_enough(failures.values())


def _long_enough(loops: Iterable[list[CallEvent]]) -> Iterator[list[CallEvent]]:
    return (loop for loop in loops if len(loop) >= _RETRIES)


def _failure_runs(calls: Calls, in_loops: set[str]) -> Iterator[Finding]:
    """Consecutive failures of any calls, except those in retry loops."""
    run: list[CallEvent] = []
    for event in (*calls.events, None):
        if event is not None and event.failed:
            run.append(event)
            continue
        others = [one for one in run if one.call.id not in in_loops]
        if len(run) >= _FAILURES_IN_A_ROW and others:
            yield _finding(calls, "failure-run", run, others)
        run = []


def _edit_reverts(calls: Calls) -> Iterator[Finding]:
    """Edits that were undone. Only hashes prove that: a read may return a part of a file."""
    for target, events in calls.by_file().items():
        edits = [event for event in events if event.edits]
        undone = [edits[n] for n in sorted(_reverted(edits, calls.lineage) | _overwritten(edits, calls.lineage))]
        if undone:
            yield _finding(calls, "edit-revert", undone, undone, files=(target,))


class Chain(NamedTuple):
    """Consecutive edits of the same passage, and its texts from the first to the last."""

    edits: tuple[int, ...]
    texts: tuple[str, ...]

    def with_(self, edit: int, text: str) -> Chain:
        return Chain((*self.edits, edit)[-_LONGEST_CHAIN:], (*self.texts, text)[-_LONGEST_CHAIN - 1 :])


def _reverted(edits: Sequence[CallEvent], lineage: Lineage) -> set[int]:
    """Edits that led back to an earlier text, directly or in several steps."""
    reverted: set[int] = set()
    chains: dict[str, list[Chain]] = {}  # by the text that they end with
    for n, event in enumerate(edits):
        change = event.call.edit_hash
        if change is None or event.call.is_error is None:
            chains.clear()  # after a whole write the earlier edits may be gone
            continue
        before, _, after = change.partition(">")
        candidates = chains.setdefault(before, [])
        while candidates and not reverted.isdisjoint(candidates[-1].edits):
            candidates.pop()
        if not candidates or not _follows(edits[candidates[-1].edits[-1]], event, lineage):
            chains.setdefault(after, []).append(Chain((n,), (before, after)))
            continue
        chain = candidates[-1]
        if after in chain.texts:
            back_to = chain.texts.index(after)
            reverted |= {*chain.edits[back_to:], n}
            candidates.pop()
        else:
            chains.setdefault(after, []).append(chain.with_(n, after))
    return reverted


def _overwritten(edits: Sequence[CallEvent], lineage: Lineage) -> set[int]:
    """Edits between two identical writes of the whole file."""
    overwritten: set[int] = set()
    writes: dict[str, int] = {}
    for n, event in enumerate(edits):
        whole = event.call.args_hash
        if whole is None or event.call.is_error is None or not writes_whole(event.call.name):
            continue
        first = writes.get(whole)
        if first is not None and _follows(edits[first], event, lineage):
            overwritten.update(range(first + 1, n))
        writes[whole] = n
    return overwritten


def _follows(earlier: CallEvent, later: CallEvent, lineage: Lineage) -> bool:
    return lineage.is_above(earlier.turn.message_id, later.turn.message_id)


def _finding(
    calls: Calls,
    kind: FindingKind,
    events: Sequence[CallEvent],
    wasted: Iterable[CallEvent],
    files: tuple[str, ...] = (),
    reason: str | None = None,
) -> Finding:
    """A finding about some calls, of which some were wasted."""
    causes = [cause for event in wasted if (cause := calls.cause(event)) is not None]
    tools = {event.call.name for event in events}
    targets = {event.call.target for event in events}
    evidence = Evidence(
        rail_id=calls.explained.rail_id,
        turns=tuple(sorted({event.turn.turn_index for event in events})),
        calls=tuple(event.call.id for event in events),
        files=files,
        tool=events[0].call.name if len(tools) == 1 else None,
        target=events[0].call.target if len(targets) == 1 else None,
        reason=reason,
        count=len(events),
        entered=sum(cause.entered for cause in causes),
    )
    advice = _SAME_SIZE_ADVICE if reason == SAME_SIZE else None
    return finding(kind, (calls.explained.session_id,), evidence, [], advice, causes)
