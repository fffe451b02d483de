"""Waste is found where it is, with its evidence and the tokens it cost, and not where it is not."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given

from burnd.attribution import waste as findings
from burnd.attribution.causes import explain
from burnd.attribution.findings import MOST_EVIDENCE, MOST_OF_A_KIND, Finding
from burnd.attribution.rail import RailEntry
from burnd.attribution.rates import add_up
from burnd.attribution.waste import SessionPrefix
from burnd.records import Block, Subagent, ToolCall, Turn, Usage
from tests.attribution.scenes import MODEL, Scene, call, only, prompt, result, said
from tests.attribution.strategies import ON_MANY_RAILS, THRESHOLDS, rails


class Calls(Scene):
    """A rail of one call a turn, each of which brings in some tokens."""

    def __init__(self, **ids: Any) -> None:
        super().__init__(**ids)
        self._context = 10_000
        self._waiting: tuple[Block, ...] = (prompt(),)

    def call(self, name: str, target: str | None, args: str = "a", tokens: int = 500, **facts: Any) -> ToolCall:
        facts.setdefault("is_error", False)
        made = call(name, target, call_id=f"c{len(self.entries)}", args_hash=args, **facts)
        self.step(tool_calls=(made,), made=(said("call", 80, made.id),))
        self._waiting = (result(4 * tokens - 32, made.id),)
        self._context += 20 + tokens
        return made

    def lose(self, tokens: int) -> None:
        """Removes tokens from the context before the next turn without a record of it."""
        self._context -= tokens

    def asks(self) -> None:
        """Adds a prompt before the next turn."""
        self._waiting = (*self._waiting, prompt())
        self._context += 108

    def step(self, **facts: Any) -> Turn:
        turn = self.turn(self._context, 20, entered=self._waiting, **facts)
        self._waiting = ()
        return turn

    def found(self, kind: str) -> list[Finding]:
        self.step(made=(said(),))
        return [one for one in findings.in_session([(self.explained(), self.turns)])[0] if one.kind == kind]


def test_an_unchanged_file_that_is_read_again() -> None:
    """The second and third reads are waste, with all that they cost."""
    scene = Calls()
    for _ in range(3):
        scene.call("Read", "/p/a.py", result_hash="same")
    (found,) = scene.found("reread")
    assert (found.evidence.files, found.evidence.turns, found.evidence.count) == (("/p/a.py",), (1, 2), 2)
    assert found.sessions == ("s1",)
    wasted = [cause for cause in scene.explained().causes if cause.kind == "call" and cause.turn_index > 0]
    assert sum(map(sum, found.tokens.values())) == sum(sum(s) for cause in wasted for s in cause.spent.values())


def test_a_file_that_was_edited_may_be_read_again() -> None:
    scene = Calls()
    scene.call("Read", "/p/a.py", result_hash="one")
    scene.call("Edit", "/p/a.py", "x")
    scene.call("Read", "/p/a.py", result_hash="two")
    assert scene.found("reread") == []


def test_other_lines_and_other_results_are_no_repetition() -> None:
    scene = Calls()
    scene.call("Read", "/p/a.py", "lines 1-50", result_hash="one")
    scene.call("Read", "/p/a.py", "lines 50-99", result_hash="two")
    scene.call("Read", "/p/a.py", "lines 1-50", result_hash="changed from outside")
    assert scene.found("reread") == []


def test_without_result_hashes_sizes_tell_what_is_unchanged() -> None:
    """Without hashes a file that grew has changed, and a file of equal size is not judged."""
    scene = Calls()
    scene.call("Read", "/p/a.py")
    scene.call("Read", "/p/a.py")
    (found,) = scene.found("reread")
    assert (found.evidence.reason, found.evidence.turns) == ("same-size", (1,))
    assert "not changed" not in found.advice
    grown = Calls()
    grown.call("Read", "/p/a.py", tokens=500)
    grown.call("Read", "/p/a.py", tokens=700)
    assert grown.found("reread") == []


def test_a_result_that_never_came_back_is_not_the_same() -> None:
    scene = Calls()
    scene.call("Read", "/p/a.py")
    scene.call("Read", "/p/a.py")
    assert [one for one in findings.in_rail(scene.explained(), scene.turns) if one.kind == "reread"] == []


def test_a_file_that_a_compaction_took_away_may_be_read_again() -> None:
    scene = Calls()
    scene.call("Read", "/p/a.py", result_hash="same")
    scene.turn(9_000, entered=(Block(kind="summary", bytes=800),), parent=None, read=0)
    scene.call("Read", "/p/a.py", result_hash="same")
    assert scene.found("reread") == []


def test_a_file_that_went_from_a_shrunken_context_may_be_read_again() -> None:
    """Only what was still read from the cache when a context shrank is sure to be there; what came later is, too."""
    scene = Calls()
    scene.call("Read", "/p/a.py", tokens=8_000, result_hash="same")
    scene.call("Bash", "ls", "ls")
    scene.lose(7_900)
    scene.call("Bash", "ls", "ls again")
    scene.call("Read", "/p/a.py", tokens=8_000, result_hash="same")
    assert scene.found("reread") == []
    scene.call("Read", "/p/a.py", tokens=8_000, result_hash="same")
    (found,) = scene.found("reread")
    assert found.evidence.turns == (5,)


def test_blocks_before_the_first_lost_one_remain() -> None:
    """A shrink takes nothing of what was read from the cache."""
    scene = Calls()
    scene.call("Read", "/p/a.py", result_hash="same")
    scene.call("Bash", "cat", "cat", tokens=8_000)
    scene.call("Bash", "ls", "ls")
    scene.lose(7_900)
    scene.step(read=11_000, made=(said(),))
    scene.call("Read", "/p/a.py", result_hash="same")
    (found,) = scene.found("reread")
    assert found.evidence.turns == (4,)


def test_what_was_lost_while_more_came_in_may_be_read_again() -> None:
    """A context may grow though something went: then what came in seems far too small."""
    scene = Calls()
    scene.call("Read", "/p/a.py", tokens=8_000, result_hash="same")
    scene.call("Bash", "cat", "cat", tokens=9_000)
    scene.lose(7_900)
    scene.step(read=10_000, made=(said(),))
    scene.call("Read", "/p/a.py", tokens=8_000, result_hash="same")
    assert scene.found("reread") == []


def test_what_another_branch_read_is_not_known_here() -> None:
    scene = Calls()
    first = scene.step(made=(said(),))
    scene.call("Read", "/p/a.py", result_hash="same")
    scene.step(parent=first.message_id)
    scene.call("Read", "/p/a.py", result_hash="same")
    assert scene.found("reread") == []


def test_a_large_result_that_rode_far() -> None:
    scene = Calls()
    scene.call("Bash", "npm test", tokens=8_000)
    for _ in range(20):
        scene.step(made=(said(),))
    (found,) = scene.found("rode-far")
    assert (found.evidence.tool, found.evidence.target) == ("Bash", "npm test")
    assert (found.evidence.entered, found.evidence.rides) == (8_020, 20)
    assert found.tokens == only(scene.explained(), "call").spent


@pytest.mark.parametrize(
    ("tool", "words"), [("Bash", "Let a subagent"), ("Write", "small edits"), ("Task", "the agent")]
)
def test_what_to_do_about_a_large_call_fits_its_tool(tool: str, words: str) -> None:
    """Reading what was written here, or what another agent answered, cannot be delegated to a subagent."""
    scene = Calls()
    scene.call(tool, "it", tokens=8_000)
    for _ in range(20):
        scene.step(made=(said(),))
    (found,) = scene.found("rode-far")
    assert words in found.advice


def test_an_oversized_result() -> None:
    scene = Calls()
    scene.call("Read", "/p/huge.json", tokens=30_000)
    (found,) = scene.found("oversized")
    assert found.evidence.entered == 30_020


def test_what_is_rewound_is_as_large_as_it_was_once() -> None:
    """A result repeated on each branch is not oversized, and is not counted as carried several times."""
    scene = Calls()
    scene.call("Read", "/p/a.py", tokens=6_000)
    asked = scene.turns[-1].message_id
    context = scene.step(made=(said(),)).usage.context
    for _ in range(2):
        came = (result(4 * 6_000 - 32, "c0"), prompt(0))
        scene.turn(context + 8, entered=came, parent=asked, read=10_000, made=(said(),))
    assert only(scene.explained(), "call").entered > 15_000
    assert [one.kind for one in findings.in_rail(scene.explained(), scene.turns) if one.kind == "oversized"] == []


def test_the_same_call_failing_three_times() -> None:
    scene = Calls()
    for _ in range(4):
        scene.call("Bash", "make", "make test", is_error=True)
        scene.call("Read", "/p/log", f"{len(scene.entries)}")
    (found,) = scene.found("retry-loop")
    assert (found.evidence.count, found.evidence.turns) == (4, (0, 2, 4, 6))


@pytest.mark.parametrize(
    "between", [("Edit", "/p/a.py"), ("Write", "/p/b.py"), ("Bash", "npm install"), ("mcp__db__start", None)]
)
def test_a_call_that_fails_after_a_change_is_work(between: tuple[str, str | None]) -> None:
    """A test that fails, is followed by edits and fails again is no loop: whatever may have made it work ends one."""
    scene = Calls()
    for n in range(4):
        scene.call("Bash", "pytest", "pytest -x", is_error=True)
        scene.call(*between, f"{n}")
    assert scene.found("retry-loop") == []


def test_a_change_that_did_not_happen_does_not_end_a_loop() -> None:
    scene = Calls()
    for n in range(4):
        scene.call("Bash", "pytest", "pytest -x", is_error=True)
        scene.call("Edit", "/p/a.py", f"{n}", is_error=True)
    (found,) = scene.found("retry-loop")
    assert found.evidence.turns == (0, 2, 4, 6)


def test_who_is_asked_to_try_again_is_in_no_loop() -> None:
    """A prompt between two attempts may have fixed the cause."""
    scene = Calls()
    for _ in range(4):
        scene.call("Bash", "make", "make deploy", is_error=True)
        scene.asks()
    assert scene.found("retry-loop") == []


def test_what_a_person_refuses_has_not_failed() -> None:
    scene = Calls()
    for _ in range(6):
        scene.call("Bash", "rm", "rm -r build", is_error=True, is_refused=True)
    assert scene.found("retry-loop") == []
    assert scene.found("failure-run") == []


def test_a_success_ends_a_loop() -> None:
    scene = Calls()
    for failed in (True, True, False, True, True):
        scene.call("Bash", "make", "make test", is_error=failed)
    assert scene.found("retry-loop") == []


def test_a_run_of_failures() -> None:
    scene = Calls()
    for n in range(6):
        scene.call("Bash", "cat", f"cat {n}", is_error=True)
    (found,) = scene.found("failure-run")
    assert found.evidence.count == 6
    assert scene.found("retry-loop") == []


def test_edits_that_go_back_and_forth() -> None:
    scene = Calls()
    for args, change in (("a to b", "a>b"), ("b to a", "b>a"), ("a to b", "a>b"), ("b to a", "b>a")):
        scene.call("Edit", "/p/a.py", args, edit_hash=change)
    (found,) = scene.found("edit-revert")
    assert (found.evidence.files, found.evidence.turns) == (("/p/a.py",), (0, 1, 2, 3))


def test_a_part_of_a_file_that_reads_as_before_says_nothing_of_its_edits() -> None:
    """The edit may be in a part of the file that was not read."""
    scene = Calls()
    scene.call("Read", "/p/a.py", "lines 1-20", result_hash="one")
    scene.call("Edit", "/p/a.py", "x", edit_hash="a>b")
    scene.call("Read", "/p/a.py", "lines 1-20", result_hash="one")
    assert scene.found("edit-revert") == []


def test_an_edit_that_is_made_twice_says_nothing_of_another() -> None:
    """Only where the whole of a file is written again is it what it was."""
    scene = Calls()
    scene.call("Edit", "/p/a.py", "one import less", edit_hash="a>b")
    scene.call("Edit", "/p/a.py", "z to y", edit_hash="c>d")
    scene.call("Edit", "/p/a.py", "one import less", edit_hash="a>b")
    assert scene.found("edit-revert") == []


def test_a_file_that_is_written_whole_as_before() -> None:
    """The edits in between cancel out; writing the same content twice in a row undoes nothing."""
    scene = Calls()
    scene.call("Write", "/p/a.py", "all of it")
    scene.call("Write", "/p/a.py", "all of it")
    scene.call("Write", "/p/a.py", "other")
    scene.call("Edit", "/p/a.py", "x", edit_hash="a>b")
    scene.call("Write", "/p/a.py", "all of it")
    (found,) = scene.found("edit-revert")
    assert found.evidence.turns == (2, 3)


def test_what_another_branch_did_is_not_taken_back_here() -> None:
    """A rewind may also have restored the files of that time."""
    scene = Calls()
    first = scene.step(made=(said(),))
    scene.call("Edit", "/p/a.py", "a to b", edit_hash="a>b")
    scene.step(parent=first.message_id)
    scene.call("Edit", "/p/a.py", "b to a", edit_hash="b>a")
    assert scene.found("edit-revert") == []


def test_an_edit_of_which_nothing_came_back_may_not_have_been() -> None:
    scene = Calls()
    scene.call("Edit", "/p/a.py", "a to b", edit_hash="a>b", is_error=None)
    scene.call("Edit", "/p/a.py", "b to a", edit_hash="b>a")
    assert scene.found("edit-revert") == []


def test_an_edit_and_the_one_that_takes_it_back() -> None:
    """Both edits cancel out, whatever happened in between; each edit is reverted once."""
    scene = Calls()
    scene.call("Edit", "/p/a.py", "a to b", edit_hash="a>b")
    scene.call("Edit", "/p/a.py", "c to d", edit_hash="c>d")
    scene.call("Bash", "make", "make")
    scene.call("Edit", "/p/a.py", "b to a", edit_hash="b>a")
    scene.call("Edit", "/p/a.py", "b to a, all", edit_hash="b>a")
    (found,) = scene.found("edit-revert")
    assert (found.evidence.turns, found.evidence.count) == ((0, 3), 2)


@pytest.mark.parametrize(
    ("changes", "turns"),
    [
        (["a>b", "b>c", "c>a"], (0, 1, 2)),
        (["a>b", "x>y", "b>c", "c>d", "d>a"], (0, 2, 3, 4)),
        (["a>b", "b>c", "c>d", "d>b"], (1, 2, 3)),
        (["a>b", "b>c", "c>b", "b>a"], (0, 1, 2, 3)),
        (["a>b", "b>c", "c>a", "a>b", "b>c"], (0, 1, 2)),
        (["a>b", "b>c", "c>a", "b>a", "c>a"], (0, 1, 2)),
    ],
)
def test_edits_that_lead_back_by_a_detour(changes: list[str], turns: tuple[int, ...]) -> None:
    """A sequence of replacements that ends with the original content."""
    scene = Calls()
    for change in changes:
        scene.call("Edit", "/p/a.py", change, edit_hash=change)
    (found,) = scene.found("edit-revert")
    assert found.evidence.turns == turns


@pytest.mark.parametrize(
    "changes", [["a>b", "b>c", "c>d"], ["a>b", "c>a"], ["b>c", "c>a", "a>d"], ["a>b", "c>d", "d>b"]]
)
def test_edits_that_meet_and_do_not_lead_back(changes: list[str]) -> None:
    scene = Calls()
    for change in changes:
        scene.call("Edit", "/p/a.py", change, edit_hash=change)
    assert scene.found("edit-revert") == []


def test_what_did_not_happen_or_was_written_over_is_not_taken_back() -> None:
    scene = Calls()
    scene.call("Edit", "/p/a.py", "a to b", edit_hash="a>b")
    scene.call("Edit", "/p/a.py", "b to a", edit_hash="b>a", is_error=True)
    scene.call("Write", "/p/a.py", "all of it")
    scene.call("Edit", "/p/a.py", "b to a once more", edit_hash="b>a")
    scene.call("Edit", "/p/b.py", "a to b", edit_hash="a>b")
    assert scene.found("edit-revert") == []


def test_edits_that_lead_somewhere() -> None:
    scene = Calls()
    for args in ("a to b", "b to c", "c to d"):
        scene.call("Edit", "/p/a.py", args)
    assert scene.found("edit-revert") == []


def test_cache_misses_by_reason_with_what_was_paid_again() -> None:
    scene = Calls()
    scene.turn(0, usage=Usage(cache_create_5m=20_000))
    scene.turn(20_000, read=0, pause=600)
    scene.turn(20_000, read=0, pause=900)
    scene.turn(20_000, read=0, pause=10)
    found = {one.evidence.reason: one for one in findings.in_rail(scene.explained(), scene.turns)}
    assert set(found) == {"pause", "prefix"}
    assert found["pause"].evidence.turns == (1, 2)
    assert [spent.input for spent in found["pause"].tokens.values()] == [40_000]
    assert "expired" in found["pause"].advice


def test_compactions_one_after_the_other() -> None:
    scene = Scene()
    scene.turn(50_000, 10, entered=(prompt(),), made=(said("call", 80, "c0"),), tool_calls=(call(call_id="c0"),))
    for n in range(1, 4):
        summary = Block(kind="summary", bytes=4_000)
        made, calls = (said("call", 80, f"c{n}"),), (call(call_id=f"c{n}"),)
        scene.turn(51_000, 10, entered=(summary,), parent=None, read=0, made=made, tool_calls=calls)
        scene.turn(53_010, 10, entered=(result(8_000, f"c{n}"),))
    (found,) = [one for one in findings.in_rail(scene.explained(), scene.turns) if one.kind == "compaction-churn"]
    assert (found.evidence.count, found.evidence.files) == (3, ("/p/a.py",))


def test_a_session_that_begins_with_more_than_the_others() -> None:
    def session(name: str, prefix: int) -> SessionPrefix:
        scene = Scene(session_id=name)
        scene.turn(prefix + 108, entered=(prompt(),))
        scene.turn(prefix + 108)
        explained = scene.explained()
        return SessionPrefix(name, explained.prefix, only(explained, "prefix").spent)

    usual = [session(f"s{n}", 20_000) for n in range(4)]
    bloated = session("bloated", 50_000)
    (found,) = findings.in_project([*usual, bloated])
    assert (found.kind, found.sessions) == ("prefix-bloat", ("bloated",))
    assert (found.evidence.entered, found.evidence.usual) == (50_000, 20_000)
    assert [(s.input, s.cache_read) for s in found.tokens.values()] == [(30_000, 30_000)]
    assert findings.in_project([*usual[:2], bloated]) == ()


def test_an_agent_that_cost_more_than_doing_it_directly() -> None:
    """An agent with a large prefix for one small read costs more than the read. An agent that reads a lot, or uses
    another model, is not reported."""

    def session(prefix: int, work: int, looks: int, model: str = MODEL) -> list[Finding]:
        parent = Scene()
        asks = call("Agent", "explore", call_id="t1")
        parent.turn(30_000, 50, entered=(prompt(),), made=(said("call", 200, "t1"),), tool_calls=(asks,))
        parent.turn(30_550, entered=(result(2_000, "t1"),))
        agent = Scene(rail_id="a1")
        about: dict[str, Any] = {"subagent": Subagent(agent_id="a1", parent_tool_use_id="t1"), "model": model}
        context = prefix
        for n in range(looks):
            entered = (prompt(168),) if n == 0 else (result(4 * work, f"a{n - 1}"),)
            made, calls = (said("call", 80, f"a{n}"),), (call(call_id=f"a{n}"),)
            agent.turn(context, 20, entered=entered, made=made, tool_calls=calls, **about)
            context += 20 + work
        rails = [(scene.explained(), scene.turns) for scene in (parent, agent)]
        return [one for one in findings.in_session(rails)[0] if one.kind == "delegation"]

    (found,) = session(prefix=25_000, work=300, looks=2)
    assert "larger pieces" in found.advice
    assert (found.evidence.rail_id, found.evidence.calls, found.evidence.target) == ("a1", ("t1",), "explore")
    assert session(prefix=5_000, work=12_000, looks=8) == []
    assert session(prefix=25_000, work=300, looks=2, model="claude-haiku-4-5") == []


@pytest.mark.parametrize("refused", [False, True])
def test_an_agent_that_failed(refused: bool) -> None:
    """A failed agent is reported with advice; one that the user stopped has not failed."""
    parent = Scene()
    asks = call("Agent", "explore", call_id="t1", is_error=True, is_refused=refused)
    parent.turn(30_000, 50, entered=(prompt(),), made=(said("call", 200, "t1"),), tool_calls=(asks,))
    parent.turn(30_100, entered=(result(40, "t1"),))
    agent = Scene(rail_id="a1")
    agent.turn(5_000, 20, entered=(prompt(),), subagent=Subagent(agent_id="a1", parent_tool_use_id="t1"))
    rails = [(scene.explained(), scene.turns) for scene in (parent, agent)]
    found = [one for one in findings.in_session(rails)[0] if one.kind == "delegation"]
    assert [one.evidence.reason for one in found] == ([] if refused else ["failed"])
    assert all("failed" in one.advice and "larger pieces" not in one.advice for one in found)


def test_findings_are_bounded() -> None:
    """A session of nothing but waste has the heaviest findings of each kind, and all the others as one; and no endless
    evidence."""
    scene = Calls()
    for n in range(MOST_OF_A_KIND + 40):
        for _ in range(3):
            scene.call("Bash", "make", f"make {n}", is_error=True, tokens=100 + n)
    *found, left = scene.found("retry-loop")
    assert len(found) == MOST_OF_A_KIND
    assert (left.evidence.others, left.evidence.count) == (40, 120)
    again = [cause.spent for cause in scene.explained().causes if cause.kind == "call" and cause.turn_index % 3]
    assert add_up([one.tokens for one in (*found, left)]) == add_up(again)
    assert [one.weight for one in found] == sorted((one.weight for one in found), reverse=True)
    reading = Calls()
    for _ in range(50):
        reading.call("Read", "/p/a.py", result_hash="same")
    (reread,) = reading.found("reread")
    assert (reread.evidence.count, len(reread.evidence.turns)) == (49, MOST_EVIDENCE)


@ON_MANY_RAILS
@given(rails())
def test_findings_hold_for_any_rail(entries: list[RailEntry]) -> None:
    """Any rail: no failure, the same findings each time, and never more tokens than were billed."""
    turns = [entry for entry in entries if isinstance(entry, Turn)]
    explained = explain(entries, THRESHOLDS)
    found, avoidable = findings.in_session([(explained, turns)])
    assert (found, avoidable) == findings.in_session([(explain(entries, THRESHOLDS), turns)])
    for tokens in (avoidable, *(one.tokens for one in found)):
        for rate, spent in tokens.items():
            assert all(0 <= part <= whole for part, whole in zip(spent, explained.spent[rate], strict=True))
    assert bool(avoidable) == any(one.tokens for one in found)


def test_a_call_in_several_findings_is_avoidable_once() -> None:
    """A result that is too large, is carried far and comes of a read of an unchanged file is one call to avoid."""
    scene = Calls()
    for _ in range(2):
        scene.call("Read", "/p/a.py", result_hash="same", tokens=12_000)
    for n in range(12):
        scene.call("Read", f"/p/{n}.py", tokens=10)
    explained = scene.explained()
    found, avoidable = findings.in_session([(explained, scene.turns)])
    assert {one.kind for one in found} == {"reread", "rode-far", "oversized"}
    assert avoidable == add_up([cause.spent for cause in explained.causes if cause.target == "/p/a.py"])


def test_a_wasted_agent_is_avoidable_as_a_whole() -> None:
    """Other findings on its rail are part of it."""
    parent = Scene()
    asks = call("Agent", "explore", call_id="t1", is_error=True)
    parent.turn(30_000, 50, entered=(prompt(),), made=(said("call", 200, "t1"),), tool_calls=(asks,))
    parent.turn(30_100, entered=(result(40, "t1"),))
    agent = Calls(rail_id="a1", subagent=Subagent(agent_id="a1", parent_tool_use_id="t1"))
    for _ in range(3):
        agent.call("Bash", "make", "make it", is_error=True)
    rails = [(scene.explained(), scene.turns) for scene in (parent, agent)]
    found, avoidable = findings.in_session(rails)
    assert {one.kind for one in found} == {"delegation", "retry-loop"}
    assert avoidable == rails[1][0].spent
