"""Decides who owns a message that several logs or rows have, and what is billed for it. Pure; any order gives the same.

Forks, resumed sessions and agents repeat messages. Each holder, a rail of a session, has a candidate. The holder with
the best claim owns the turn (`owner_of`); the others become copies, which cost nothing. Copies in logs have the
message's id: `decide` merges them, with usage, model and price class of the best line and the earliest time. Copied
database rows have other ids: `copied_rows` finds them. `number_on_rail` numbers messages.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple, TypeVar

import msgspec

from burnd.recording.candidate import Candidate, OwnerClaim, relabelled, turn_of, with_label_of
from burnd.records import Basis, Copy, Subagent, ToolCall, Turn, Usage
from burnd.records.content import MAIN
from burnd.records.times import index_ms
from burnd.records.turn import FORKED, Quality

_QUALITIES: Final[dict[Quality, int]] = {"empty": 0, "partial": 1, "final": 2}
_NO_BASIS: Final = Basis(rank=15)
# A request id comes last: a turn of an older ledger has none, and is not revised for it.
_OF_THE_BEST_LINE: Final = ("usage", "model", "speed", "service_tier", "inference_geo", "server_tools", "request_id")
T = TypeVar("T")
_NEVER: Final = 1 << 62  # later than every time
_encode: Final = msgspec.json.Encoder(order="sorted").encode

Holder = tuple[str, str]  # session and rail


class Decision(NamedTuple):
    """The turn of a message with its owner, and a copy for every other holder, ordered by holder."""

    turn: Turn
    copies: tuple[Copy, ...] = ()


def decide(before: Decision | None, candidate: Candidate, *, by_name: bool = True) -> Decision:
    """Adds a candidate for a message to an earlier decision, which may come from the ledger.

    Any order and repetition of candidates gives the same decision, except its revision. A holder's structure is that of
    its fullest candidate; usage, time, quality and claim only get better. Of equal claims the smaller holder name owns;
    without `by_name` the owner stays, for the caller to `hand_over`.
    """
    new = turn_of(candidate)
    if before is None:
        return Decision(new)
    current = before.turn
    if candidate.is_row:
        return before._replace(turn=update_row(new, current))
    if candidate.response_activity is None:
        new = with_label_of(new, current)
    if new.project == current.project:
        recorded = {"rev": current.rev, "project_key": current.project_key, "provider": current.provider}
        if msgspec.structs.replace(new, **recorded) == current:
            return before  # an open turn settles: nothing is new
    others = {holder(copy): copy for copy in before.copies}
    if holder(current) == holder(new):
        owner, claim = _merge(new, current), _better_claim(claim_of(current), candidate.claim)
    else:
        owner, claim = _contest(current, new, candidate.claim, others, by_name=by_name)
    line = max(current, new, key=_line_order)
    return Decision(_compose(owner, claim, current, new, line), tuple(others[key] for key in sorted(others)))


def tied(decision: Decision) -> dict[Holder, OwnerClaim]:
    """All holders with the owner's claim, with their claims."""
    best = claim_of(decision.turn)
    equal = {holder(copy): best for copy in decision.copies if claim_of(copy) == best}
    return {holder(decision.turn): best} | equal


def is_contested(decision: Decision) -> bool:
    """Whether several main conversations have the best claim, so that `Partings` decides."""
    equal = tied(decision) if decision.copies else {}
    return len(equal) > 1 and all(rail == MAIN for _, rail in equal)


def break_tie(decision: Decision, partings: Partings, candidates: Mapping[tuple[str, Holder], Candidate]) -> Decision:
    """Gives a contested message to the session that was there first; `candidates` are by message id and holder."""
    owner = owner_of(tied(decision), partings)
    if owner == holder(decision.turn):
        return decision
    return hand_over(decision, owner, candidates.get((decision.turn.message_id, owner)))


def shared_message(decision: Decision) -> SharedMessage:
    """The time of a message, and the sessions with it in their main conversation."""
    turn, copies = decision
    rails = [holder(turn), *map(holder, copies)]
    return SharedMessage(index_ms(turn.ts), frozenset(session for session, rail in rails if rail == MAIN))


def hand_over(before: Decision, to: Holder, candidate: Candidate | None = None) -> Decision:
    """Makes another holder the owner: as its candidate has the message, or by its copy and the owner's turn."""
    turn = before.turn
    others = {holder(copy): copy for copy in before.copies}
    copy = others.pop(to)
    others[holder(turn)] = copy_of(turn, claim_of(turn))
    if candidate is not None:
        owner = _with_results(with_label_of(turn_of(candidate), turn), turn)
    else:
        of_holder = ("session_id", "rail_id", "turn_index", "parent", "entered", "made")
        owner = msgspec.structs.replace(turn, **{name: getattr(copy, name) for name in of_holder})
    return Decision(_compose(owner, claim_of(copy), turn, turn, turn), tuple(others[key] for key in sorted(others)))


def holder(record: Turn | Copy) -> Holder:
    return (record.session_id, record.rail_id)


def claim_of(record: Turn | Copy) -> OwnerClaim:
    """Reads a claim from a ledger record. The older ledger has none: any candidate beats it."""
    basis = record.basis or _NO_BASIS
    return OwnerClaim(basis.rank, basis.ts or record.ts, basis.late_born, basis.strange)


def copy_of(turn: Turn, claim: OwnerClaim | None = None) -> Copy:
    """The copy that a holder has of a message it does not own; `claim` is its own."""
    basis = turn.basis
    if claim is not None:
        basis = Basis(rank=claim.rank, late_born=claim.late_born, strange=claim.strange)
    return Copy(
        source=turn.source,
        session_id=turn.session_id,
        rail_id=turn.rail_id,
        message_id=turn.message_id,
        turn_index=turn.turn_index,
        parent=turn.parent,
        ts=claim.ts if claim is not None else turn.ts,
        entered=turn.entered,
        made=turn.made,
        basis=basis,
    )


def withdrawal(turn: Turn, owner: str) -> Turn:
    """Takes back what was billed for a copy of the message `owner`. Has no usage, for readers without `copyOf`."""
    return Turn(
        source=turn.source,
        session_id=turn.session_id,
        rail_id=turn.rail_id,
        message_id=turn.message_id,
        turn_index=turn.turn_index,
        ts=turn.ts,
        model=turn.model,
        usage=Usage(),
        quality="empty",
        copy_of=owner,
    )


def update_row(new: Turn, recorded: Turn) -> Turn:
    """Replaces a row's record by a newer reading, unless a revert or a restored backup took something away."""
    was_undone = (
        (new.quality == "partial" and recorded.quality != "partial")
        or _tokens(new.usage) < _tokens(recorded.usage)
        or len(new.made) < len(recorded.made)
        or len(new.tool_calls) < len(recorded.tool_calls)
    )
    if was_undone:
        return recorded
    same_project = new.project_key is None and new.project == recorded.project
    return msgspec.structs.replace(
        with_label_of(new, recorded),
        rev=recorded.rev,
        project_key=recorded.project_key if same_project else new.project_key,
        subagent=_linked_agent(new.subagent, recorded.subagent),
    )


def number_on_rail(place: int, recorded: int | None, free: int) -> int:
    """The number of a message on its rail, in every harness.

    `place` is its place among the messages of its log or database now, `recorded` its number so far, `free` the first
    number after all recorded messages that are gone (0 if none). So a recorded number never decreases, and a new
    message comes after those that are gone.
    """
    return max(place, free if recorded is None else recorded)


def owner_of(claims: Mapping[Holder, OwnerClaim], partings: Partings | None = None) -> Holder:
    """The holder with the best claim.

    Of main conversations with equal claims, the session that was there first by `partings`; otherwise the smallest
    name.
    """
    best = min(claims.values())
    equal = [one for one, claim in claims.items() if claim == best]
    if partings is not None and len(equal) > 1 and all(rail == MAIN for _, rail in equal):
        return partings.owner(frozenset(session for session, _ in equal)), MAIN
    return min(equal)


def copied_rows(rows: Iterable[Turn]) -> list[tuple[Turn, Turn]]:
    """Pairs each copied row with its original.

    A fork copies rows with time, model and tokens. The session in which the row was made owns it, else the first fork.
    Two rows that no fork copied are two messages, however alike.
    """
    alike: defaultdict[tuple[str, str, str], list[Turn]] = defaultdict(list)
    for row in rows:
        alike[row.source, row.ts, row.model].append(row)
    pairs = []
    for group in alike.values():
        group.sort(key=_row_order)
        for n, row in enumerate(group):
            others = (one for one in group[:n] if one.message_id != row.message_id and _is_copied(row, one))
            original = next(others, None) if _is_forked(row) else None
            if original is not None:
                pairs.append((row, original))
    return pairs


def _row_order(row: Turn) -> tuple[bool, OwnerClaim, Holder, str]:
    return (_is_forked(row), claim_of(row), holder(row), row.message_id)


def _is_forked(row: Turn) -> bool:
    return row.basis is not None and bool(row.basis.rank & FORKED)


def _is_copied(row: Turn, other: Turn) -> bool:
    """Compares the tokens of two rows; a row copied before its step ended has none.

    An old row's output may include the reasoning; only its session's release shows that.
    """
    whole = msgspec.structs.replace(other.usage, output=other.usage.output + other.usage.reasoning)
    return row.usage in (other.usage, whole, Usage())


def _tokens(usage: Usage) -> int:
    return usage.context + usage.output + usage.reasoning


class SharedMessage(NamedTuple):
    """When a message was made, and the sessions that have it."""

    ts: int
    sessions: frozenset[str]


class Partings:
    """Distinguishes forks from originals with equal claims, by when each session diverged.

    A fork has all that its session had by then. A session that ended there never diverged. One that continues after its
    fork was made diverges later than the fork, which is written when first used. A session with its own message from
    before, a rewound attempt that was not copied, was there first. The result depends on which session has which
    message, not on the order of reading.
    """

    def __init__(self, messages: Iterable[SharedMessage]) -> None:
        self._messages: defaultdict[str, list[SharedMessage]] = defaultdict(list)
        for message in messages:
            for session in message.sessions:
                self._messages[session].append(message)
        self._owners: dict[frozenset[str], str] = {}

    def owner(self, group: frozenset[str]) -> str:
        """The session that owns what the group shares; the smallest name if nothing decides."""
        if group not in self._owners:
            best = self._best(group) if len(group) > 1 else group
            self._owners[group] = min(group) if best == group else self.owner(best)
        return self._owners[group]

    def _best(self, group: frozenset[str]) -> frozenset[str]:
        parted = {session: self._parted(session, group) for session in group}
        last = max(parted.values())
        return frozenset(session for session, when in parted.items() if when == last)

    def _parted(self, session: str, group: frozenset[str]) -> tuple[bool, int]:
        """(True, 0) if it has its own message from before the last shared one; else the time of the first."""
        messages = self._messages[session]
        parted = min((one.ts for one in messages if not group <= one.sessions), default=_NEVER)
        last = max((one.ts for one in messages if group <= one.sessions), default=0)
        return (True, 0) if parted < last else (False, parted)


def _contest(
    current: Turn, new: Turn, claim: OwnerClaim, others: dict[Holder, Copy], *, by_name: bool
) -> tuple[Turn, OwnerClaim]:
    """Decides between two holders; the other joins the copies."""
    copy = others.pop(holder(new), None)
    if copy is not None:
        claim = _better_claim(claim, claim_of(copy))
        new = msgspec.structs.replace(
            new,
            turn_index=max(new.turn_index, copy.turn_index),
            entered=_fuller(new.entered, copy.entered),
            made=_fuller(new.made, copy.made),
        )
    best = claim_of(current)
    is_tied = claim == best and not by_name
    if not is_tied and owner_of({holder(current): best, holder(new): claim}) == holder(new):
        others[holder(current)] = copy_of(current, best)
        return new, claim
    others[holder(new)] = copy_of(new, claim)
    return _with_results(current, new) if is_tied else current, best


def _better_claim(one: OwnerClaim, other: OwnerClaim) -> OwnerClaim:
    """Merges the evidence for one holder: what one candidate refutes stays refuted."""
    return OwnerClaim(one.rank & other.rank, *min(one[1:], other[1:]))


def _compose(owner: Turn, claim: OwnerClaim, current: Turn, new: Turn, line: Turn) -> Turn:
    """The owner's turn with the usage of the best line, the earliest time and the best end."""
    ts = min(current.ts, new.ts)
    stopped = max(current, new, key=_stop_order)
    stop = _stop_line(stopped)
    basis = Basis(
        rank=claim.rank,
        ts=claim.ts if claim.ts != ts else None,
        late_born=claim.late_born,
        strange=claim.strange,
        line=(line.basis or _NO_BASIS).line,
        stop=stop if stopped.stop_reason is not None and stop != _usage_line(line) else None,
    )
    fields: dict[str, Any] = {name: getattr(line, name) for name in _OF_THE_BEST_LINE}
    fields["stop_reason"] = stopped.stop_reason
    quality = max(current, new, key=_quality_order).quality
    turn = msgspec.structs.replace(owner, rev=current.rev, ts=ts, basis=basis, quality=quality, **fields)
    # Reasoning is part of the label, and may show only in the bill.
    return relabelled(turn) if bool(line.usage.reasoning) != bool(owner.usage.reasoning) else turn


def _merge(new: Turn, current: Turn) -> Turn:
    """Merges two candidates of one holder.

    A log may be cut, rewritten or copied to another folder: the fuller candidate counts, not the later one, and the
    number never falls.
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
        subagent=_linked_agent(base.subagent, other.subagent),
        request=_stated(base.request, other.request),
        cache_miss=_stated(base.cache_miss, other.cache_miss),
        prompt_changes=_fuller(base.prompt_changes, other.prompt_changes),
        pull_request=_stated(base.pull_request, other.pull_request),
    )
    return relabelled(merged) if calls != base.tool_calls else merged


def _linked_agent(agent: Subagent | None, other: Subagent | None) -> Subagent | None:
    """The agent with the call that started it, from either candidate."""
    if agent is None or other is None:
        return agent
    call = agent.parent_tool_use_id or other.parent_tool_use_id
    return msgspec.structs.replace(agent, parent_tool_use_id=call, type=agent.type or other.type)


def _with_results(turn: Turn, other: Turn) -> Turn:
    """Adds the results that an equal holder has for its calls, since either may own it."""
    calls = _merged_calls(turn.tool_calls, other.tool_calls)
    return turn if calls == turn.tool_calls else relabelled(msgspec.structs.replace(turn, tool_calls=calls))


def _merged_calls(new: tuple[ToolCall, ...], old: tuple[ToolCall, ...]) -> tuple[ToolCall, ...]:
    """The calls of both; an answered call stays answered."""
    before = {call.id: call for call in old}
    merged = [_fuller_call(call, before[call.id]) if call.id in before else call for call in new]
    names = {call.id for call in new}
    return (*merged, *(call for call in old if call.id not in names))


def _fuller_call(new: ToolCall, old: ToolCall) -> ToolCall:
    if new.is_error is None:
        return old
    return msgspec.structs.replace(new, searches=old.searches) if old.searches > new.searches else new


def _fuller(one: tuple[Any, ...], other: tuple[Any, ...]) -> tuple[Any, ...]:
    return max(one, other, key=lambda items: (len(items), _encode(items)))


def _stated(one: T | None, other: T | None) -> T | None:
    """A fact that only one of two candidates may have."""
    return max(one, other, key=lambda fact: (fact is not None, _encode(fact)))


def _fullness(turn: Turn) -> tuple[int, int, int, int, bytes]:
    """Orders candidates of one holder by how much they have."""
    facts = (turn.parent, turn.project, turn.git_branch, turn.harness_version, turn.prompt_id, turn.prompt_words)
    return (len(turn.made), len(turn.tool_calls), len(turn.entered), turn.turn_index, _encode(facts))


def _line_order(turn: Turn) -> tuple[tuple[int, str, str], bytes]:
    """Orders lines totally: by output, time and uuid, then by their values."""
    return (_usage_line(turn), _encode([getattr(turn, name) for name in _OF_THE_BEST_LINE]))


def _quality_order(turn: Turn) -> tuple[bool, int]:
    """Orders qualities: a line that states usage, even zero, beats one without."""
    return (turn.usage != Usage() or (turn.basis or _NO_BASIS).line is not None, _QUALITIES[turn.quality])


def _stop_order(turn: Turn) -> tuple[bool, tuple[int, str, str], str]:
    """Orders stop reasons by their lines, which may differ from those whose usage counts."""
    return (turn.stop_reason is not None, _stop_line(turn), turn.stop_reason or "")


def _usage_line(turn: Turn) -> tuple[int, str, str]:
    ts, uuid = (turn.basis or _NO_BASIS).line or ("", "")
    return (turn.usage.output + turn.usage.reasoning, ts, uuid)


def _stop_line(turn: Turn) -> tuple[int, str, str]:
    return (turn.basis or _NO_BASIS).stop or _usage_line(turn)
