"""Any cuts between readings, and any storing of the state, give the same result."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.harness.claude_code.transcript import Transcript, call, text, thinking
from tests.harness.collect import client_versions, lines_of, path_for, read, transcripts
from tests.make import examples

_FILES = [path for version in client_versions() for path in transcripts(version)]


def _busy_session() -> list[bytes]:
    """One session with all that makes a reader look back: forks, rewinds, late lines, sidechains, compaction."""
    t = Transcript("1.0.100")
    first = t.prompt("please fix the bug in the parser")
    t.calls("m1", thinking("hm"), call("c1", "Read", file_path="/a.py"), stop=None)
    t.calls("m1", call("c2", "Edit", file_path="/a.py", old_string="a", new_string="b"))
    r1 = t.result("c1", parent="u1")
    t.result("c2", parent="u2")
    t.calls("m2", call("c3", "Bash", command="pytest -q"))
    t.result("c3", "Exit code 1\nE", is_error=True)
    t.calls("m3", call("c4", "Edit", file_path="/a.py", old_string="b", new_string="c"))
    t.calls("m3", call("c5", "Task", prompt="look around", subagent_type="Explore"))
    root = t.add("user", None, isSidechain=True, message={"role": "user", "content": "look around"})
    t.says("s1", text("I see"), isSidechain=True)
    t.result("c4", parent="u7")
    t.result("c5", parent="u8")
    t.says("m4", text("done"))
    t.prompt("no, try again", parent=first)
    t.says("m5", text("again"), output=2, stop=None, done=False)
    t.says("s2", text("late words of the agent"), parent=root, isSidechain=True)
    t.says("m1", text("a late line of the first message"), output=99, parent=r1)
    t.result("c3", "late", parent="u5")
    t.bare(type="custom-title", customTitle="Parser", sessionId="x")
    t.add("system", None, subtype="compact_boundary", logicalParentUuid="u15")
    t.prompt("In short: a parser", isCompactSummary=True)
    t.says("m6", text("going on"))
    t.prompt("lost", parent="not-in-this-file")
    t.says("m7", text("found"), parent="neither")
    for n in range(40):
        t.prompt(f"and {n}")
        t.says(f"n{n}", text("yes"), call(f"x{n}", "Bash", command="ls"))
        t.result(f"x{n}")
    t.result("x1", "very late", parent="u30")
    t.says("n2", text("older than the state"), output=50)
    t.says("m8", text("from far back"), parent="u3")
    # A line written again has another offset, and later lines must find the newer one.
    again = t.prompt("said twice", parent="gone for good")
    twin = t.lines[-1]
    t.prompt("in between")
    t.lines.append(twin)
    for n in range(20):
        t.says(f"y{n}", parent="u4")
    t.says("m9", parent=again)
    _through_a_relay(t)
    return t.lines


def _through_a_relay(t: Transcript) -> None:
    """Responses with a constant id, an agent identified by its text only, prompts without a user, in the background."""
    first = t.prompt("of a relay")
    begun = t.says("relay", text("a"), requestId=None, sessionKind="bg", stop=None)
    for n in range(20):
        t.prompt("it is over", origin={"kind": "task-notification"}, sessionKind="bg")
        t.says("relay", call(f"r{n}", "Task", prompt="look", subagent_type="Plan"), requestId=None, sessionKind="bg")
        t.result(f"r{n}", f"found\nagentId: a{n}")
    t.says("relay", text("b"), parent=begun, requestId=None)
    t.says("relay", text("c"), parent=first, requestId=None, output=40)
    t.says("relay", text("d"), parent="never seen", requestId=None)
    t.says("relay", text("e"), parent="never seen", requestId=None)
    t.says("relay", text("f"), parent=first, requestId=None, isSidechain=True)
    t.says("relay", text("g"), parent=None, requestId=None)
    t.result("r1", "found late\nagentId: a99")


def test_every_single_cut_gives_the_same_rows() -> None:
    """A restart before any line changes nothing; the default run tries every third."""
    lines = _busy_session()
    whole = read(lines).comparable()
    for cut in range(0, len(lines), 1 if os.environ.get("BURND_THOROUGH") else 3):
        assert read(lines, cuts={cut}).comparable() == whole


def test_a_cut_before_every_line_gives_the_same_rows() -> None:
    """A restart before every line changes nothing."""
    lines = _busy_session()
    assert read(lines, cuts=range(len(lines))).comparable() == read(lines).comparable()


@given(st.data())
@settings(max_examples=examples(25), deadline=None)
def test_cuts_and_flushes_anywhere_give_the_same_rows(data: st.DataObject) -> None:
    """Settling early because a rail was quiet changes nothing in the end."""
    lines = _busy_session()
    ordinals = st.sets(st.integers(0, len(lines)))
    cuts, flushes = data.draw(ordinals), data.draw(ordinals)
    assert read(lines, cuts=cuts, flushes=flushes).comparable() == read(lines).comparable()


@pytest.mark.parametrize("path", _FILES, ids=lambda path: "/".join(path.parts[-4:]))
def test_real_logs_read_the_same_in_any_pieces(path: Path) -> None:
    """The promise holds for the logs of real clients, cut before every line and at drawn places."""
    lines, place = lines_of(path), path_for(path)
    assert place is not None
    whole = read(lines, place).comparable()
    assert read(lines, place, cuts=range(len(lines))).comparable() == whole

    @given(st.sets(st.integers(0, len(lines))), st.sets(st.integers(0, len(lines))))
    @settings(max_examples=examples(3), deadline=None)
    def in_pieces(cuts: set[int], flushes: set[int]) -> None:
        assert read(lines, place, cuts=cuts, flushes=flushes).comparable() == whole

    in_pieces()


def test_the_state_does_not_grow_with_the_session() -> None:
    """Ten times the lines need no larger state."""

    def state_size(prompts: int) -> int:
        t = Transcript()
        for n in range(prompts):
            t.prompt(f"do {n:05}")
            t.calls(f"m{n:05}", call(f"c{n:05}", "Task", prompt=f"p{n:05}", subagent_type="Explore"))
            t.bare(type="api-request", id=f"r{n:05}")
            t.add("user", None, isSidechain=True, message={"role": "user", "content": f"p{n:05}"})
            t.result(f"c{n:05}", parent="gone")
        return read(t.lines, cuts={len(t.lines) // 2}).state_size

    assert state_size(2000) < state_size(200) * 1.2


def test_a_log_is_read_again_only_where_it_refers_far_back() -> None:
    """A session with a restart before each line needs its past for a rewind, not for new messages or lost parents."""
    t = Transcript()
    first = t.prompt("begin")
    for n in range(100):
        t.says(f"m{n}", call(f"c{n}", "Read", file_path="/a.py"))
        t.result(f"c{n}")
    t.prompt("lost", parent="gone-for-good")
    t.says("m100", text("done"))
    assert read(t.lines, cuts=range(len(t.lines))).times_read_again == 0
    t.prompt("rewound", parent=first)
    t.says("m101", text("done"))
    assert read(t.lines, cuts=range(len(t.lines))).times_read_again == 1
