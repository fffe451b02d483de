"""Waste that a rail's calls show: unchanged files read again, calls that keep failing, edits that are taken back."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from burnd.attribution.causes import Cause, Explained
from burnd.attribution.finding import Evidence, Finding, FindingKind, Lineage, finding
from burnd.classify.tools import Kind as ToolKind
from burnd.classify.tools import kind as tool_kind
from burnd.classify.tools import writes_whole
from burnd.records import ToolCall, Turn

_RETRIES: Final = 3
_FAILURES_IN_A_ROW: Final = 5
_LONGEST_CHAIN: Final = 32
_LOOKING: Final[frozenset[ToolKind]] = frozenset(("read", "search", "web", "todo"))
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

    @property
    def failed(self) -> bool:
        """Whether the tool did; that a person said no is none of its failures."""
        return self.call.is_error is True and not self.call.is_refused

    @property
    def may_change(self) -> bool:
        """Whether anything may be other than before: of a command, or of a tool nobody knows, that cannot be told."""
        return not self.call.is_error and tool_kind(self.call.name) not in _LOOKING


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
        self._shrunk = [shrink.turn_index for shrink in explained.shrinks]
        self._sizes: Counter[str | None] = Counter()
        self._came: set[tuple[str | None, str]] = set()
        for turn in turns:
            for block in turn.entered:
                self._sizes[block.call_id] += block.bytes
                self._came.add((block.call_id, turn.message_id))

    def cause(self, made: Made) -> Cause | None:
        return self._causes.get((made.turn.message_id, made.call.id))

    def size(self, made: Made) -> int | None:
        """How many bytes came back."""
        return self._sizes.get(made.call.id)

    def stands(self, earlier: Made, later: Made) -> bool:
        """Whether what an earlier call brought was in the context of a later one, as far as can be known."""
        cause = self.cause(earlier)
        if cause is None or not self.lineage.is_above(earlier.turn.message_id, later.turn.message_id):
            return False
        begin = bisect_right(self._shrunk, earlier.turn.turn_index)
        end = bisect_right(self._shrunk, later.turn.turn_index)
        return not any(
            shrink.read < cause.end
            and (earlier.call.id, shrink.message_id) not in self._came
            and self.lineage.is_above(shrink.message_id, later.turn.message_id)
            for shrink in self.explained.shrinks[begin:end]
        )

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
            if not made.call.is_error:
                known[key] = made
        if again:
            yield _found(calls, "reread", again, again, files=(target,), reason=None if is_told else SAME_SIZE)


def _is_same(before: Made, made: Made, calls: Calls) -> bool:
    if made.call.args_hash is None or made.call.is_error or before.row != made.row:
        return False
    return _is_unchanged(before, made, calls) and calls.stands(before, made)


def _is_unchanged(before: Made, made: Made, calls: Calls) -> bool:
    """Without hashes, which not every mode keeps, as far as sizes tell: where these are not known, it is not."""
    one, other = before.call.result_hash, made.call.result_hash
    if one is not None and other is not None:
        return one == other
    return calls.size(made) is not None and calls.size(made) == calls.size(before)


def _retry_loops(made: Sequence[Made]) -> Iterator[list[Made]]:
    """The same call failing three times and more while nothing was done that could have made it work."""
    failing: dict[tuple[str, str | None], list[Made]] = {}
    asked = ""
    for one in made:
        is_asked = one.turn.message_id != asked and any(block.kind == "prompt" for block in one.turn.entered)
        asked = one.turn.message_id
        if is_asked or one.may_change:
            yield from _long_enough(failing.values())
            failing = {}
        key = (one.call.name, one.call.args_hash)
        if one.failed and one.call.args_hash is not None:
            failing.setdefault(key, []).append(one)
        elif not one.call.is_error:
            yield from _long_enough([failing.pop(key, [])])
    yield from _long_enough(failing.values())


def _long_enough(loops: Iterable[list[Made]]) -> Iterator[list[Made]]:
    return (loop for loop in loops if len(loop) >= _RETRIES)


def _failure_runs(calls: Calls, looping: set[str]) -> Iterator[Finding]:
    """Calls of any kind that failed one after the other; what is a retry loop already is not told twice."""
    run: list[Made] = []
    for made in (*calls.made, None):
        if made is not None and made.failed:
            run.append(made)
            continue
        others = [one for one in run if one.call.id not in looping]
        if len(run) >= _FAILURES_IN_A_ROW and others:
            yield _found(calls, "failure-run", run, others)
        run = []


def _edit_reverts(calls: Calls) -> Iterator[Finding]:
    """Edits that came to nothing: only where hashes prove it, as what was read of a file need not be all of it."""
    for target, events in calls.of_files().items():
        edits = [made for made in events if made.edits]
        undone = [edits[n] for n in sorted(_taken_back(edits, calls.lineage) | _written_over(edits, calls.lineage))]
        if undone:
            yield _found(calls, "edit-revert", undone, undone, files=(target,))


class Chain(NamedTuple):
    """Edits of which each replaced what the one before had put there, and the texts from the first to the last."""

    edits: tuple[int, ...]
    texts: tuple[str, ...]

    def with_(self, edit: int, text: str) -> Chain:
        return Chain((*self.edits, edit)[-_LONGEST_CHAIN:], (*self.texts, text)[-_LONGEST_CHAIN - 1 :])


def _taken_back(edits: Sequence[Made], lineage: Lineage) -> set[int]:
    """Edits after which a text was again what it had been: an edit and its reverse, or several that led back."""
    found: set[int] = set()
    standing: dict[str, list[Chain]] = {}  # by the text that they end with
    for n, made in enumerate(edits):
        change = made.call.edit_hash
        if change is None or made.call.is_error is None:
            standing.clear()  # what a file that was written anew has of the edits before is not known
            continue
        before, _, after = change.partition(">")
        ending = standing.setdefault(before, [])
        while ending and not found.isdisjoint(ending[-1].edits):
            ending.pop()
        if not ending or not _follows(edits[ending[-1].edits[-1]], made, lineage):
            standing.setdefault(after, []).append(Chain((n,), (before, after)))
            continue
        chain = ending[-1]
        if after in chain.texts:
            back_to = chain.texts.index(after)
            found |= {*chain.edits[back_to:], n}
            ending.pop()
        else:
            standing.setdefault(after, []).append(chain.with_(n, after))
    return found


def _written_over(edits: Sequence[Made], lineage: Lineage) -> set[int]:
    """What was done to a file between two times that the same was written as the whole of it."""
    found: set[int] = set()
    written: dict[str, int] = {}
    for n, made in enumerate(edits):
        whole = made.call.args_hash
        if whole is None or made.call.is_error is None or not writes_whole(made.call.name):
            continue
        first = written.get(whole)
        if first is not None and _follows(edits[first], made, lineage):
            found.update(range(first + 1, n))
        written[whole] = n
    return found


def _follows(earlier: Made, later: Made, lineage: Lineage) -> bool:
    return lineage.is_above(earlier.turn.message_id, later.turn.message_id)


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
    return finding(kind, (calls.explained.session_id,), evidence, [], advice, causes)
