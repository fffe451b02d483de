"""Settles what a turn is when several transcripts hold its message, in whatever order they are read."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, NamedTuple

import msgspec

from burnd.recording.candidate import Candidate, relabelled, turn_of, with_label_of
from burnd.records import Basis, Copy, ToolCall, Turn, Usage
from burnd.records.turn import Quality

_BETTER: Final[dict[Quality, int]] = {"empty": 0, "partial": 1, "final": 2}
_UNKNOWN: Final = Basis(rank=15)
_SAID_BY_THE_LINE: Final = ("usage", "model", "speed", "service_tier", "inference_geo", "server_tools")
_encode: Final = msgspec.json.Encoder(order="sorted").encode

Holder = tuple[str, str]


class Standing(NamedTuple):
    """How good a claim a holder has on a message; the smallest owns it."""

    rank: int
    ts: str
    late_born: bool
    strange: bool


class Joined(NamedTuple):
    """The turn with its owner, and one copy for every other holder, ordered by holder."""

    turn: Turn
    copies: tuple[Copy, ...]


def join(current: Turn | None, copies: Iterable[Copy], candidate: Candidate, *, by_name: bool = True) -> Joined:
    """Take one more candidate of a message into what is known of it.

    Any order and any repetition of candidates ends in the same turn and copies, revision aside. A holder's newer
    candidate replaces what was known of its structure; usage, time, quality and claim only ever get better. Of equal
    claims the holder with the smaller name wins; not `by_name`, the owner stays, for the caller to `hand_over`.
    """
    new = turn_of(candidate)
    if current is None:
        return Joined(new, ())
    if candidate.lent_activity is None:
        new = with_label_of(new, current)
    others = {(copy.session_id, copy.rail_id): copy for copy in copies}
    if holder(current) == holder(new):
        owner, standing = _kept(new, current), _better_standing(_standing(current), _standing(new))
    else:
        owner, standing = _contest(current, new, others, by_name=by_name)
    line = max(current, new, key=_line_key)
    return Joined(_settled(owner, standing, current, new, line), tuple(others[key] for key in sorted(others)))


def equals(turn: Turn, copies: Iterable[Copy]) -> list[Holder]:
    """The owner of a message, and all others whose claim is as good."""
    ruling = _standing(turn)
    return [holder(turn), *(holder(copy) for copy in copies if _standing(copy) == ruling)]


def hand_over(turn: Turn, copies: Iterable[Copy], to: Holder, told: Candidate | None = None) -> Joined:
    """The same message owned by another of its holders, as that one told it if it did just now.

    Otherwise its copy says where it stands there; for the rest, the lines of a fork are those they were copied from.
    """
    others = {holder(copy): copy for copy in copies}
    copy = others.pop(to)
    others[holder(turn)] = _copy(turn, _standing(turn))
    owner = _answered(with_label_of(turn_of(told), turn), turn) if told is not None else _at_its_place(turn, copy)
    return Joined(_settled(owner, _standing(copy), turn, turn, turn), tuple(others[key] for key in sorted(others)))


def _at_its_place(turn: Turn, copy: Copy) -> Turn:
    names = ("session_id", "rail_id", "turn_index", "parent", "entered", "made")
    return msgspec.structs.replace(turn, **{name: getattr(copy, name) for name in names})


def _contest(current: Turn, new: Turn, others: dict[Holder, Copy], *, by_name: bool) -> tuple[Turn, Standing]:
    """Decide between two holders; the one that does not own the message is left among the others."""
    before = others.pop(holder(new), None)
    claim = _standing(new)
    if before is not None:
        claim = _better_standing(claim, _standing(before))
        new = msgspec.structs.replace(
            new,
            turn_index=max(new.turn_index, before.turn_index),
            entered=_fuller(new.entered, before.entered),
            made=_fuller(new.made, before.made),
        )
    ruling = _standing(current)
    if claim < ruling or (by_name and claim == ruling and holder(new) < holder(current)):
        others[holder(current)] = _copy(current, ruling)
        return new, claim
    others[holder(new)] = _copy(new, claim)
    return _answered(current, new) if claim == ruling and not by_name else current, ruling


def _settled(owner: Turn, standing: Standing, current: Turn, new: Turn, line: Turn) -> Turn:
    ts = min(current.ts, new.ts)
    stopped = max(current, new, key=_stop_key)
    stop = _stated_at(stopped)
    basis = Basis(
        rank=standing.rank,
        ts=standing.ts if standing.ts != ts else None,
        late_born=standing.late_born,
        strange=standing.strange,
        line=(line.basis or _UNKNOWN).line,
        stop=stop if stopped.stop_reason is not None and stop != _line_of(line) else None,
    )
    said: dict[str, Any] = {name: getattr(line, name) for name in _SAID_BY_THE_LINE}
    said["stop_reason"] = stopped.stop_reason
    quality = max(current, new, key=_quality_key).quality
    turn = msgspec.structs.replace(owner, rev=current.rev, ts=ts, basis=basis, quality=quality, **said)
    # Whether it reasoned is a part of the label, and may be known only by what it was billed.
    return relabelled(turn) if bool(line.usage.reasoning) != bool(owner.usage.reasoning) else turn


def _kept(new: Turn, current: Turn) -> Turn:
    """What one holder says, without losing what it said before.

    A log may be cut or rewritten, and a stale copy of it may stand in another folder: the fuller word counts,
    not the later one, and what was once known stays known. So does the number: a log that was cut counts fewer.
    """
    base, other = (new, current) if _fullness(new) >= _fullness(current) else (current, new)
    calls = _merged_calls(base.tool_calls, other.tool_calls)
    merged = msgspec.structs.replace(
        base,
        turn_index=max(base.turn_index, other.turn_index),
        project_key=current.project_key if base.project == current.project else None,
        provider=current.provider,
        tool_calls=calls,
        entered=_fuller(base.entered, other.entered),
        made=_fuller(base.made, other.made),
        files_touched=_fuller(base.files_touched, other.files_touched),
    )
    return relabelled(merged) if calls != base.tool_calls else merged


def _answered(turn: Turn, other: Turn) -> Turn:
    """The turn with what its equal knows of its calls: each may come to own it, and only one is kept whole."""
    calls = _merged_calls(turn.tool_calls, other.tool_calls)
    return turn if calls == turn.tool_calls else relabelled(msgspec.structs.replace(turn, tool_calls=calls))


def _fullness(turn: Turn) -> tuple[int, int, int, int, bytes]:
    """How much a holder says of a message; a growing log only ever says more."""
    place = (turn.parent, turn.project, turn.git_branch, turn.prompt_id, turn.prompt_words)
    return (len(turn.made), len(turn.tool_calls), len(turn.entered), turn.turn_index, _encode(place))


def _merged_calls(new: tuple[ToolCall, ...], old: tuple[ToolCall, ...]) -> tuple[ToolCall, ...]:
    """The calls of both; one that was answered once is answered."""
    before = {call.id: call for call in old}
    merged = [_fuller_call(call, before[call.id]) if call.id in before else call for call in new]
    told = {call.id for call in new}
    return (*merged, *(call for call in old if call.id not in told))


def _fuller_call(new: ToolCall, old: ToolCall) -> ToolCall:
    if new.is_error is None:
        return old
    return msgspec.structs.replace(new, searches=old.searches) if old.searches > new.searches else new


def _fuller(one: tuple[Any, ...], other: tuple[Any, ...]) -> tuple[Any, ...]:
    return max(one, other, key=lambda items: (len(items), _encode(items)))


def holder(record: Turn | Copy) -> Holder:
    return (record.session_id, record.rail_id)


def _standing(record: Turn | Copy) -> Standing:
    basis = record.basis or _UNKNOWN
    return Standing(basis.rank, basis.ts or record.ts, basis.late_born, basis.strange)


def _better_standing(one: Standing, other: Standing) -> Standing:
    """Evidence for a holder adds up: what spoke against it and is refuted once stays refuted."""
    return Standing(one.rank & other.rank, *min(one[1:], other[1:]))


def _copy(turn: Turn, standing: Standing) -> Copy:
    return Copy(
        source=turn.source,
        session_id=turn.session_id,
        rail_id=turn.rail_id,
        message_id=turn.message_id,
        turn_index=turn.turn_index,
        parent=turn.parent,
        ts=standing.ts,
        entered=turn.entered,
        made=turn.made,
        basis=Basis(rank=standing.rank, late_born=standing.late_born, strange=standing.strange),
    )


def _line_key(turn: Turn) -> tuple[tuple[int, str, str], bytes]:
    """Order lines totally: by output, time and uuid, then by what they say."""
    return (_line_of(turn), _encode([getattr(turn, name) for name in _SAID_BY_THE_LINE]))


def _quality_key(turn: Turn) -> tuple[bool, int]:
    """Order qualities: a line that states usage, even zero, beats one without."""
    return (turn.usage != Usage() or (turn.basis or _UNKNOWN).line is not None, _BETTER[turn.quality])


def _line_of(turn: Turn) -> tuple[int, str, str]:
    ts, uuid = (turn.basis or _UNKNOWN).line or ("", "")
    return (turn.usage.output + turn.usage.reasoning, ts, uuid)


def _stop_key(turn: Turn) -> tuple[bool, tuple[int, str, str], str]:
    """Order the reasons to stop as their lines are ordered, which need not be those whose usage counts."""
    return (turn.stop_reason is not None, _stated_at(turn), turn.stop_reason or "")


def _stated_at(turn: Turn) -> tuple[int, str, str]:
    """Where the reason to stop was said."""
    return (turn.basis or _UNKNOWN).stop or _line_of(turn)
