"""Waste that a rail's calls show: unchanged files read again, calls that keep failing, edits that are taken back."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from burnd.attribution.account import Cause
from burnd.attribution.causes import Explained
from burnd.attribution.finding import Evidence, Finding, FindingKind, finding
from burnd.attribution.lineage import Lineage
from burnd.classify.tools import kind as tool_kind
from burnd.records import ToolCall, Turn

_RETRIES: Final = 3
_FAILURES_IN_A_ROW: Final = 5
SAME_SIZE: Final = "same-size"
_SAME_SIZE_ADVICE: Final = (
    "What was read was as large as before, and the first of it was still in the context: ask for what is new, or for "
    "the lines needed."
)


class Made(NamedTuple):
    """A call, the turn that made it, and how many rows had begun by then."""

    call: ToolCall
    turn: Turn
    row: int

    @property
    def reads(self) -> bool:
        return self.call.target is not None and tool_kind(self.call.name) == "read"

    @property
    def edits(self) -> bool:
        return self.call.target is not None and tool_kind(self.call.name) == "edit" and not self.call.is_error


class Calls:
    """A rail's calls in order, with the causes they became."""

    def __init__(self, explained: Explained, turns: Sequence[Turn]) -> None:
        self.explained = explained
        self._causes = {(cause.message_id, cause.call_id): cause for cause in explained.causes}
        self.made = [
            Made(call, turn, bisect_right(explained.begins, turn.turn_index))
            for turn in turns
            for call in turn.tool_calls
        ]
        self.lineage = Lineage(turns)
        self._sizes: Counter[str | None] = Counter()
        for turn in turns:
            for block in turn.entered:
                self._sizes[block.call_id] += block.bytes

    def cause(self, made: Made) -> Cause | None:
        return self._causes.get((made.turn.message_id, made.call.id))

    def size(self, made: Made) -> int | None:
        """How many bytes came back."""
        return self._sizes.get(made.call.id)

    def of_files(self) -> dict[str, list[Made]]:
        """Reads and edits by the file they were about, in order."""
        files: dict[str, list[Made]] = {}
        for made in self.made:
            if made.reads or made.edits:
                files.setdefault(made.call.target or "", []).append(made)
        return files


def wasted_calls(calls: Calls) -> Iterator[Finding]:
    yield from rereads(calls)
    looping = list(_retry_loops(calls.made))
    yield from (_found(calls, "retry-loop", loop, loop[1:]) for loop in looping)
    yield from _failure_runs(calls, {made.call.id for loop in looping for made in loop})
    yield from _edit_reverts(calls)


def rereads(calls: Calls) -> Iterator[Finding]:
    """The same file, read in the same way with the same result, while the first one was still in the context."""
    for target, events in calls.of_files().items():
        again: list[Made] = []
        is_told = True
        known: dict[tuple[str, str | None], Made] = {}
        for made in events:
            if made.edits:
                known.clear()
                continue
            key = (made.call.name, made.call.args_hash)
            before = known.get(key)
            if before is not None and _is_same(before, made, calls):
                again.append(made)
                is_told = is_told and made.call.result_hash is not None
            elif not made.call.is_error:
                known[key] = made
        if again:
            yield _found(calls, "reread", again, again, files=(target,), reason=None if is_told else SAME_SIZE)


def _is_same(before: Made, made: Made, calls: Calls) -> bool:
    if made.call.args_hash is None or made.call.is_error or before.row != made.row:
        return False
    return _is_unchanged(before, made, calls) and calls.lineage.is_above(before.turn.message_id, made.turn.message_id)


def _is_unchanged(before: Made, made: Made, calls: Calls) -> bool:
    """Without hashes, which not every mode keeps, as far as sizes tell: where these are not known, it is not."""
    one, other = before.call.result_hash, made.call.result_hash
    if one is not None and other is not None:
        return one == other
    return calls.size(made) is not None and calls.size(made) == calls.size(before)


def _retry_loops(made: Sequence[Made]) -> Iterator[list[Made]]:
    """The same call failing three times and more, until it works or is given up."""
    failing: dict[tuple[str, str], list[Made]] = {}
    for one in made:
        call = one.call
        if call.args_hash is None:
            continue
        key = (call.name, call.args_hash)
        if call.is_error:
            failing.setdefault(key, []).append(one)
        else:
            yield from _long_enough(failing.pop(key, []))
    for loop in failing.values():
        yield from _long_enough(loop)


def _long_enough(loop: list[Made]) -> Iterator[list[Made]]:
    if len(loop) >= _RETRIES:
        yield loop


def _failure_runs(calls: Calls, looping: set[str]) -> Iterator[Finding]:
    """Calls of any kind that failed one after the other; what is a retry loop already is not told twice."""
    run: list[Made] = []
    for made in (*calls.made, None):
        if made is not None and made.call.is_error:
            run.append(made)
            continue
        others = [one for one in run if one.call.id not in looping]
        if len(run) >= _FAILURES_IN_A_ROW and others:
            yield _found(calls, "failure-run", run, others)
        run = []


def _edit_reverts(calls: Calls) -> Iterator[Finding]:
    """Edits that came to nothing, as far as hashes tell."""
    for target, events in calls.of_files().items():
        undone = [events[n] for n in sorted(_taken_back(events) | _between_equal_states(events))]
        if undone:
            yield _found(calls, "edit-revert", undone, undone, files=(target,))


def _taken_back(events: Sequence[Made]) -> set[int]:
    """Edits that a later one reverses, and these."""
    found: set[int] = set()
    standing: dict[str, list[int]] = {}
    for n, made in enumerate(events):
        change = made.call.edit_hash
        if not made.edits:
            continue
        if change is None:  # what a file that was written anew has of the edits before is not known
            standing.clear()
        elif reversed_ := standing.get(_reverse(change)):
            found |= {reversed_.pop(), n}
        else:
            standing.setdefault(change, []).append(n)
    return found


def _reverse(change: str) -> str:
    return ("-" if change[0] == "+" else "+") + change[1:]


def _between_equal_states(events: Sequence[Made]) -> set[int]:
    """An edit that is made again after another one, and a read that shows what an earlier one showed, both say that
    what was done in between is undone."""
    found: set[int] = set()
    seen: dict[tuple[bool, str | None, str | None], int] = {}
    settled = 0
    for n, made in enumerate(events):
        if not _tells_state(made):
            continue
        state = (made.edits, made.call.args_hash, None if made.edits else made.call.result_hash)
        first = seen.get(state, n)
        between = {at for at in range(max(first + 1, settled), n) if events[at].edits}
        if between:
            found |= between
            settled = n
        seen[state] = n
    return found


def _tells_state(made: Made) -> bool:
    return made.call.args_hash is not None and (made.edits or made.call.result_hash is not None)


def _found(
    calls: Calls,
    kind: FindingKind,
    shown: Sequence[Made],
    paid: Iterable[Made],
    files: tuple[str, ...] = (),
    reason: str | None = None,
) -> Finding:
    causes = [cause for made in paid if (cause := calls.cause(made)) is not None]
    same_tool = {made.call.name for made in shown}
    same_target = {made.call.target for made in shown}
    evidence = Evidence(
        rail_id=calls.explained.rail_id,
        turns=tuple(sorted({made.turn.turn_index for made in shown})),
        calls=tuple(made.call.id for made in shown),
        files=files,
        tool=shown[0].call.name if len(same_tool) == 1 else None,
        target=shown[0].call.target if len(same_target) == 1 else None,
        reason=reason,
        count=len(shown),
        entered=sum(cause.entered for cause in causes),
    )
    advice = _SAME_SIZE_ADVICE if reason == SAME_SIZE else None
    return finding(kind, (calls.explained.session_id,), evidence, [cause.spent for cause in causes], advice)
