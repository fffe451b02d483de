"""A message in several logs gives the same turn in any order of reading."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from burnd.harness.claude_code.lines import LogPath
from burnd.recording.candidate import (
    LACKS_REQUEST,
    NO_REQUEST_ID,
    NO_USAGE,
    SIDECHAIN,
    Candidate,
    LineKey,
    OwnerClaim,
    turn_of,
)
from burnd.recording.ownership import (
    Decision,
    Partings,
    SharedMessage,
    decide,
    hand_over,
    number_on_rail,
    owner_of,
    tied,
)
from burnd.records import Block, Copy, ToolCall, Turn, Usage
from burnd.records.codec import decode, encode
from burnd.records.content import MAIN
from burnd.records.turn import FORKED
from tests.harness.claude_code.transcript import Transcript, call, text
from tests.harness.collect import Collected, fold, read
from tests.make import at, examples


def _time(second: int) -> str:
    return f"2026-11-16T00:00:{second:02d}.000Z"


def _candidate(
    session: str = "a",
    rail: str = "main",
    *,
    rank: int = 0,
    ts: int = 5,
    late: bool = False,
    output: int = 10,
    line: int | None = None,
    stop: str | None = "end_turn",
    stop_output: int | None = None,
    final: bool = True,
    index: int = 0,
    request: str | None = None,
) -> Candidate:
    """A candidate whose best line has so much output, or no usage at all where that is -1."""
    usage = Usage(input=output * 3, output=output) if output != NO_USAGE else Usage()
    best = LineKey(output, _time(line if line is not None else ts), f"uuid-{output}")
    stopped = best if stop_output is None else best._replace(output_tokens=min(output, stop_output))
    return Candidate(
        source="claude-code",
        message_id="m1",
        session_id=session,
        rail_id=rail,
        turn_index=index,
        ts=_time(ts),
        rank=rank,
        late_born=late,
        best=best,
        stopped=stopped if stop is not None else LineKey(),
        usage=usage,
        model=f"model-{output}",
        stop_reason=stop,
        final=final,
        made=(Block(kind="text", bytes=len(session)),),
        request_id=request if output != NO_USAGE else None,
    )


def _joined(candidates: Iterable[Candidate]) -> Decision:
    return fold(candidates)["m1"]


def test_a_message_in_one_file_is_a_turn_without_copies() -> None:
    candidate = _candidate()
    assert decide(None, candidate) == Decision(turn_of(candidate), ())


@pytest.mark.parametrize(
    ("better", "worse"),
    [
        (_candidate("z", rank=NO_REQUEST_ID | SIDECHAIN | FORKED), _candidate("a", rank=LACKS_REQUEST)),
        (_candidate("z", rank=NO_REQUEST_ID | SIDECHAIN), _candidate("a", rank=FORKED)),
        (_candidate("z", rank=NO_REQUEST_ID), _candidate("a", rank=SIDECHAIN)),
        (_candidate("z"), _candidate("a", rank=NO_REQUEST_ID)),
        (_candidate("z", ts=4), _candidate("a", ts=5)),
        (_candidate("z"), _candidate("a", late=True)),
        (_candidate("a"), _candidate("z")),
        (_candidate("a", "main"), _candidate("a", "sub")),
    ],
)
def test_the_owner_is_who_has_the_better_claim(better: Candidate, worse: Candidate) -> None:
    """The request, no fork, no sidechain, a request id, the earlier time, not born late, then the names."""
    for order in ([better, worse], [worse, better]):
        turn, copies = _joined(order)
        assert (turn.session_id, turn.rail_id) == better.holder
        (other,) = copies
        assert (other.session_id, other.rail_id, other.ts) == (*worse.holder, worse.ts)
        assert other.made == worse.made
        assert turn.made == better.made


def test_usage_comes_from_the_best_line_in_any_log() -> None:
    owner, copy_ = _candidate("a", output=1, stop=None, final=False), _candidate("b", rank=1, output=84)
    for order in ([owner, copy_], [copy_, owner]):
        turn, _ = _joined(order)
        assert (turn.session_id, turn.usage, turn.model) == ("a", copy_.usage, "model-84")
        assert (turn.stop_reason, turn.quality) == ("end_turn", "final")


def test_a_copy_without_usage_takes_no_part_in_the_bill_but_may_tell_why_it_stopped() -> None:
    """A file that a gateway's answer was logged in without usage, beside one that has it and no end."""
    billed = _candidate("a", output=0, stop=None, line=1, final=False)
    billed.usage = Usage(input=100, cache_read=5000)
    unbilled = _candidate("b", output=NO_USAGE, stop="tool_use", line=9)
    for order in ([billed, unbilled], [unbilled, billed], [unbilled, billed, unbilled, billed]):
        turn, _ = _joined(order)
        assert (turn.usage, turn.stop_reason) == (billed.usage, "tool_use")


def test_the_time_is_the_earliest_of_all_holders() -> None:
    """Also if another session owns the message and keeps its own time as well."""
    owner, copy_ = _candidate("a", ts=9), _candidate("b", rank=1, ts=2)
    for order in ([owner, copy_], [copy_, owner]):
        turn, (other,) = _joined(order)
        assert turn.ts == _time(2)
        assert turn.basis is not None
        assert turn.basis.ts == _time(9)
        assert other.ts == _time(2)


def test_the_fuller_holding_of_one_holder_gives_the_structure() -> None:
    """Neither the first nor the last to be read decides: more blocks do, and the number never falls."""
    one, other = _candidate(output=90, index=1), _candidate(output=5, index=2)
    for order in ([one, other], [other, one]):
        turn, copies = _joined(order)
        assert (turn.turn_index, turn.usage.output, copies) == (2, 90, ())
    fuller = copy.copy(other)
    fuller.turn_index = 0
    fuller.made = (Block(kind="text", bytes=3), Block(kind="text", bytes=4))
    for order in ([one, fuller], [fuller, one]):
        turn, copies = _joined(order)
        assert (turn.turn_index, turn.usage.output, turn.made, copies) == (1, 90, fuller.made, ())


def test_a_copy_that_proves_to_be_the_original_takes_over() -> None:
    first = _joined([_candidate("a", rank=8), _candidate("b", rank=9)])
    turn, copies = decide(first, _candidate("b", rank=0))
    assert (turn.session_id, [one.session_id for one in copies]) == ("b", ["a"])


def test_a_copy_read_again_with_less_evidence_keeps_its_claim() -> None:
    first = _joined([_candidate("a", ts=1), _candidate("b", rank=NO_REQUEST_ID, ts=2)])
    _, (other,) = decide(first, _candidate("b", rank=NO_REQUEST_ID | SIDECHAIN, ts=9))
    assert other.basis is not None
    assert (other.basis.rank, other.ts) == (NO_REQUEST_ID, _time(2))


def test_what_the_transcript_does_not_tell_is_kept() -> None:
    turn = msgspec.structs.replace(turn_of(_candidate()), project_key="host/x", rev=4)
    again = decide(Decision(turn), _candidate()).turn
    assert again == turn


def test_a_turn_recorded_without_its_request_id_is_not_revised_for_it() -> None:
    """Otherwise a release that records one more field would write every turn of the ledger again."""
    turn = turn_of(_candidate())
    assert decide(Decision(turn), _candidate(request="req_1")).turn == turn


_candidates = st.builds(
    _candidate,
    session=st.sampled_from("abc"),
    rail=st.sampled_from(["main", "agent"]),
    rank=st.integers(0, 15),
    ts=st.integers(0, 3),
    late=st.booleans(),
    output=st.integers(NO_USAGE, 3),
    line=st.integers(0, 3),
    stop=st.sampled_from([None, "end_turn", "tool_use"]),
    stop_output=st.none() | st.integers(NO_USAGE, 3),
    final=st.booleans(),
    request=st.sampled_from([None, "req_1", "req_2"]),
)


@given(st.lists(_candidates, min_size=1, max_size=8, unique_by=lambda one: one.holder), st.data())
@settings(max_examples=examples(150), deadline=None)
def test_any_order_and_any_repetition_gives_the_same(candidates: list[Candidate], data: st.DataObject) -> None:
    repeated = candidates + data.draw(st.lists(st.sampled_from(candidates), max_size=6))
    assert _joined(data.draw(st.permutations(repeated))) == _joined(candidates)


@given(st.lists(_candidates, min_size=1, max_size=6, unique_by=lambda one: one.holder), st.data())
@settings(max_examples=examples(120), deadline=None)
def test_growing_holdings_in_any_interleaving_give_the_same(candidates: list[Candidate], data: st.DataObject) -> None:
    """Each file's candidate arrives in several states; only the last of each matters."""
    states: list[list[Candidate]] = []
    for final in candidates:
        early = copy.copy(final)
        early.rank |= data.draw(st.integers(0, 15))
        early.ts = max(early.ts, _time(data.draw(st.integers(0, 5))))
        early.late_born = early.late_born and early.ts == final.ts
        early.usage, early.best = Usage(), LineKey()
        early.model, early.stop_reason, early.final, early.request_id = "", None, False, None
        early.stopped = LineKey()
        states.append([early, final])
    order = data.draw(st.permutations([n for n, growing in enumerate(states) for _ in growing]))
    feeds = [iter(growing) for growing in states]
    assert _joined(next(feeds[n]) for n in order) == _joined(candidates)


@given(st.lists(_candidates, min_size=1, max_size=6), st.data())
@settings(max_examples=examples(150), deadline=None)
def test_logs_that_say_other_things_of_one_message_give_the_same_in_any_order(
    candidates: list[Candidate], data: st.DataObject
) -> None:
    """An id used for several messages, in logs of several sessions: the result does not depend on the order."""
    for one in candidates:
        one.made = tuple(Block(kind="text", bytes=n) for n in data.draw(st.lists(st.integers(0, 3), max_size=2)))
        one.entered = tuple(Block(kind="prompt", bytes=n) for n in data.draw(st.lists(st.integers(0, 3), max_size=2)))
        one.turn_index = data.draw(st.integers(0, 3))
    assert _joined(data.draw(st.permutations(candidates))) == _joined(candidates)


@given(st.lists(_candidates, min_size=1, max_size=8))
@settings(max_examples=examples(80), deadline=None)
def test_the_ledgers_records_alone_are_enough_to_go_on(candidates: list[Candidate]) -> None:
    """Written and read again after every step, nothing is lost that a later join needs."""
    decision: Decision | None = None
    for candidate in candidates:
        turn, copies = decide(decision, candidate)
        stored = decode(encode(turn))
        assert isinstance(stored, Turn)
        decision = Decision(stored, tuple(one for one in map(decode, map(encode, copies)) if isinstance(one, Copy)))
    assert decision == _joined(candidates)


def test_of_equal_claims_the_owner_stays_where_names_do_not_count() -> None:
    """The owner is decided by later evidence; until then either may have it."""
    one, other = _candidate("b"), _candidate("a")
    both = decide(decide(None, one), other, by_name=False)
    assert list(tied(both)) == [one.holder, other.holder]
    assert list(tied(decide(both, _candidate("c", late=True), by_name=False))) == [one.holder, other.holder]


def test_a_message_handed_over_and_back_is_what_it_was() -> None:
    """The copy keeps its position, and facts on calls from either log are merged."""
    one, other = _candidate("b", index=4, output=3), _candidate("a", index=7)
    one.calls = (ToolCall(id="c1", name="Bash"),)
    other.calls = (ToolCall(id="c1", name="Bash", is_error=True),)
    before = decide(decide(None, one), other, by_name=False)
    for told in (other, None):
        over = hand_over(before, other.holder, told)
        assert (over.turn.session_id, over.turn.turn_index, over.turn.usage) == ("a", 7, before.turn.usage)
        assert hand_over(over, one.holder) == before
    assert before.turn.tool_calls == other.calls


def _original() -> Transcript:
    t = Transcript("2.1.90")
    t.prompt("go")
    t.calls("m1", call("c1", "Edit", file_path="/a"), done=False)
    t.result("c1")
    t.says("m2", text("done"), output=7, done=False)
    return t


def _read_as(lines: list[bytes], session: str, rail: str | None = None) -> Collected:
    return read(lines, LogPath(rail or session, session, rail))


def _both_ways(one: Collected, other: Collected) -> list[dict[str, Decision]]:
    parts = [list(one.candidates.values()), list(other.candidates.values())]
    return [fold(parts[0] + parts[1]), fold(parts[1] + parts[0])]


def _check(original: Collected, copied: Collected, own: set[str]) -> None:
    for joined in _both_ways(original, copied):
        owners = {name: one.turn.session_id for name, one in joined.items()}
        assert owners == {"m1": "zz-original", "m2": "zz-original", **dict.fromkeys(own, "copy")}
        assert [one.copies[0].session_id for one in joined.values() if one.copies] == ["copy", "copy"]
        assert sum(one.turn.usage.output for one in joined.values()) == 17 + 10 * len(own)


def test_a_fork_is_a_copy_by_its_later_birth() -> None:
    """Same ids, same times, no marker: only the start of the file shows it."""
    t = _original()
    fork = Transcript("2.1.90", prefix="f")
    fork.bare(type="queue-operation", timestamp="2026-11-17T00:00:00.000Z")
    fork.lines += t.lines
    fork.last = t.last
    fork.prompt("other", ts="2026-11-17T00:00:01.000Z")
    fork.says("m3", ts="2026-11-17T00:00:02.000Z", done=False)
    _check(_read_as(t.lines, "zz-original"), _read_as(fork.lines, "copy"), {"m3"})


def test_a_branch_is_a_copy_by_its_mark() -> None:
    t = _original()
    branch = [one.replace(b'"isSidechain"', b'"forkedFrom":{"sessionId":"x"},"isSidechain"') for one in t.lines]
    _check(_read_as(t.lines, "zz-original"), _read_as(branch, "copy"), set())


def test_a_resumed_session_is_a_copy_by_its_missing_request_ids_and_new_times() -> None:
    t = Transcript("1.0.100")
    resumed = Transcript("1.0.100")
    extras: list[dict[str, Any]] = [{}, {"requestId": None, "ts": "2026-11-17T00:00:00.000Z"}]
    for one, extra in zip((t, resumed), extras, strict=True):
        one.prompt("go")
        one.calls("m1", call("c1", "Edit", file_path="/a"), done=False, **extra)
        one.result("c1")
        one.says("m2", text("done"), output=7, done=False, **extra)
    original, copied = _read_as(t.lines, "zz-original"), _read_as(resumed.lines, "copy")
    _check(original, copied, set())
    for joined in _both_ways(original, copied):
        assert joined["m1"].turn.ts == t.time(1)


def test_a_compaction_agents_replay_is_a_copy_by_its_sidechain() -> None:
    t = _original()
    replay = [one.replace(b'"isSidechain":false', b'"isSidechain":true') for one in t.lines]
    original = _read_as(t.lines, "same")
    replayed = _read_as(replay, "same", "acompact-1")
    for joined in _both_ways(original, replayed):
        assert {one.turn.rail_id for one in joined.values()} == {"main"}
        assert {one.copies[0].rail_id for one in joined.values()} == {"acompact-1"}


def test_the_file_with_the_request_owns_the_message_whatever_else_speaks_against_it() -> None:
    t = _original()
    t.lines = [one.replace(b'"requestId"', b'"requestRef":"r1","requestId"') for one in t.lines]
    copied = _read_as(t.lines, "copy")
    t.bare(type="api-request", id="r1")
    _check(_read_as(t.lines, "zz-original"), copied, set())


def test_a_number_on_a_rail_never_decreases_and_new_ones_follow_those_that_are_gone() -> None:
    """I2: the one rule for logs, rows and programs."""
    assert number_on_rail(place=4, recorded=None, free=0) == 4
    assert number_on_rail(place=4, recorded=7, free=9) == 7
    assert number_on_rail(place=4, recorded=2, free=9) == 4
    assert number_on_rail(place=0, recorded=None, free=9) == 9


def test_the_best_claim_owns_then_the_session_that_was_there_first_then_the_smallest_name() -> None:
    first, second, agent = ("a", MAIN), ("b", MAIN), ("0", "agent")
    equal = OwnerClaim(0, at(1))
    assert owner_of({first: OwnerClaim(1, at(1)), second: equal}) == second
    assert owner_of({second: equal, first: equal}) == first
    partings = Partings([SharedMessage(1, frozenset("ab")), SharedMessage(2, frozenset("a"))])
    assert owner_of({first: equal, second: equal}, partings) == second
    assert owner_of({first: equal, second: equal, agent: equal}, partings) == agent
