"""The rules give one label to a turn, in their order, from its calls and the words of its prompt."""

from __future__ import annotations

import re
from itertools import combinations
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from burnd.classify.activity import LABELS, Call, Walk, has_edits, is_document, label, retries, step
from burnd.classify.keywords import CLASSES
from burnd.classify.shell import verb
from tests.classify.families import EACH, FAMILIES

EDIT = Call("Edit", path="src/a.py")
EDIT_DOC = Call("Write", path="README.md")
RUN = Call("Bash", command="ls")
TEST = Call("Bash", command="npm test")
READ = Call("Read", path="a.py")
TASK = Call("Task")
LEAVE_PLAN = Call("ExitPlanMode")


def fail(call: Call) -> Call:
    return call._replace(failed=True)


def test_there_are_eighteen_labels() -> None:
    assert len(LABELS) == len(set(LABELS)) == 18


def test_every_label_is_explained_in_the_docs() -> None:
    text = (Path(__file__).parents[2] / "docs" / "activity.md").read_text(encoding="utf-8")
    assert set(LABELS) <= set(re.findall(r"`([a-z-]+)`", text))


@pytest.mark.parametrize("call", [TASK, Call("Agent"), Call("task"), Call("spawn_agent"), Call("wait_agent")])
def test_delegation_wins_over_everything(call: Call) -> None:
    assert label([LEAVE_PLAN, fail(EDIT), TEST, call], CLASSES, reasoned=True) == "delegation"


@pytest.mark.parametrize("call", [LEAVE_PLAN, Call("update_plan")])
def test_leaving_plan_mode_wins_over_edits(call: Call) -> None:
    assert label([fail(EDIT), call, TEST], CLASSES, reasoned=True) == "planning"


@pytest.mark.parametrize(
    ("calls", "words", "expected"),
    [
        ([EDIT], (), "coding"),
        ([EDIT, TEST], (), "coding"),
        ([TEST, EDIT], (), "coding"),
        ([READ, EDIT], ("review", "brainstorming", "planning"), "coding"),
        ([fail(EDIT)], (), "debugging"),
        ([EDIT, fail(READ)], ("feature",), "debugging"),
        ([EDIT, fail(TEST)], (), "debugging"),
        ([EDIT, RUN, EDIT], (), "coding"),
        ([EDIT, RUN, EDIT, RUN, EDIT], ("feature",), "debugging"),
        ([EDIT_DOC], ("debugging", "feature"), "docs"),
        ([EDIT_DOC, TEST], (), "docs"),
        ([fail(EDIT_DOC)], (), "debugging"),
        ([EDIT_DOC, RUN, EDIT_DOC, RUN, EDIT_DOC], (), "debugging"),
        ([EDIT_DOC, EDIT], (), "coding"),
        ([Call("Edit")], (), "coding"),
        ([EDIT_DOC, Call("Edit")], (), "coding"),
        ([Call("patch", paths=("a.md", "docs/b.py"))], (), "docs"),
        ([Call("apply_patch", paths=("a.md", "b.py"))], (), "coding"),
        ([EDIT], ("debugging", "refactoring", "feature"), "debugging"),
        ([EDIT], ("refactoring", "feature"), "refactoring"),
        ([EDIT], ("feature",), "feature"),
    ],
)
def test_a_turn_that_edits(calls: list[Call], words: tuple[str, ...], expected: str) -> None:
    assert label(calls, words, reasoned=False) == expected


@pytest.mark.parametrize("words", [(), CLASSES])
@pytest.mark.parametrize("failed", [False, True])
def test_a_shell_command_gives_its_family_whatever_the_prompt_states(words: tuple[str, ...], failed: bool) -> None:
    said = {command: label([Call("Bash", command=command, failed=failed)], words, reasoned=True) for _, command in EACH}
    assert said == {command: name for name, command in EACH}


@pytest.mark.parametrize(
    ("calls", "words", "expected"),
    [
        ([RUN, TEST], (), "testing"),
        ([Call("bash", command="git status"), TEST], (), "review"),
        ([TEST, Call("bash", command="git status")], (), "testing"),
        ([READ, Call("exec_command", command="npm ci")], (), "deps"),
        ([fail(RUN), TEST], (), "testing"),
        ([fail(RUN)], (), "exploration"),
        ([fail(READ)], ("feature",), "feature"),
        ([Call("Bash")], (), "exploration"),
        ([Call("Bash", command="")], (), "exploration"),
        ([Call("BashOutput", command="npm test")], (), "exploration"),
        ([RUN], (), "exploration"),
        ([READ], (), "exploration"),
        ([Call("mcp__x__y")], (), "exploration"),
        ([Call("TodoWrite")], (), "exploration"),
        ([Call("unheard of")], (), "exploration"),
        ([READ], ("brainstorming", "planning"), "exploration"),
        ([READ], CLASSES, "debugging"),
        ([READ], CLASSES[1:], "review"),
        ([RUN], CLASSES[2:], "refactoring"),
        ([RUN], CLASSES[3:], "feature"),
    ],
)
def test_a_turn_that_only_runs_and_reads(calls: list[Call], words: tuple[str, ...], expected: str) -> None:
    assert label(calls, words, reasoned=True) == expected


def test_without_tools_the_words_decide_in_their_order() -> None:
    for size in range(1, len(CLASSES) + 1):
        for words in combinations(CLASSES, size):
            assert label([], words, reasoned=True) == words[0]


def test_without_tools_or_words_thinking_decides() -> None:
    assert label([], (), reasoned=True) == "reasoning"
    assert label([], (), reasoned=False) == "conversation"


def test_words_that_name_no_class_are_ignored() -> None:
    assert label([], ("nonsense",), reasoned=False) == "conversation"


@pytest.mark.parametrize(
    ("walked", "expected"),
    [
        *(("", 0), ("E", 0), ("S", 0), ("EE", 0), ("ES", 0), ("SE", 0), ("SEE", 0), ("ESE", 1), ("ESEE", 1)),
        *(("ESESE", 2), ("ESSE", 1), ("EESE", 1), ("SESE", 1), ("ERSRE", 1), ("ERE", 0), ("ESESESE", 3)),
        ("ESEESE", 2),
    ],
)
def test_retries_count_edits_after_an_edit_and_a_run(walked: str, expected: int) -> None:
    assert retries([{"E": EDIT, "S": RUN, "R": READ}[each] for each in walked]) == expected


def test_every_harness_counts_in_the_walk() -> None:
    assert retries([Call("patch"), Call("bash"), Call("edit")]) == 1
    assert retries([Call("apply_patch"), Call("exec_command"), Call("write_file")]) == 1


def test_the_walk_continues_from_turn_to_turn() -> None:
    walk = Walk()
    for turn in ([EDIT], [RUN], [READ], [EDIT, RUN], [], [EDIT]):
        walk = step(walk, turn)
    assert walk.retries == 2


@pytest.mark.parametrize("name", ["Edit", "Write", "MultiEdit", "NotebookEdit", "patch", "apply_patch", "edit"])
def test_any_edit_tool_makes_a_turn_one_with_edits(name: str) -> None:
    assert has_edits([READ, Call(name)])


def test_reading_and_running_are_no_edits() -> None:
    assert not has_edits([READ, RUN, TASK])
    assert not has_edits([])


@pytest.mark.parametrize(
    "path",
    [
        *("a.md", "/x/a.mdx", "a.rst", "b/a.adoc", "notes.txt", "A.MD", "README", "README.rst", "README-zh"),
        *("README_DEV", "pkg/README", "CHANGELOG", "CHANGELOG.html", "CHANGELOG-2024", "readme.html", "changelog"),
        *("docs/a.py", "/repo/docs/x/y.ts", "a/docs/b"),
    ],
)
def test_documents(path: str) -> None:
    assert is_document(path)


@pytest.mark.parametrize(
    "path",
    [
        *("", "a.py", "a.md.py", "md", "docs", "mydocs/a.py", "docs.py", "src/doc/a.py", "Docs2/a.ts"),
        *("readme_parser.py", "src/changelog_view.tsx", "MY_README.py", "README/a.py"),
    ],
)
def test_other_files_are_no_documents(path: str) -> None:
    assert not is_document(path)


calls = st.builds(
    Call,
    name=st.sampled_from(["Edit", "Bash", "Read", "Task", "ExitPlanMode", "bash", "apply_patch", "mcp__a__b", "x"]),
    command=st.one_of(st.none(), st.sampled_from([command for _, command in EACH]), st.text(max_size=20)),
    path=st.one_of(st.none(), st.sampled_from(["a.py", "README.md", "docs/x"])),
    failed=st.booleans(),
)
words = st.lists(st.sampled_from(CLASSES), unique=True)


@given(st.lists(calls, max_size=5), words, st.booleans())
def test_every_turn_has_one_known_label(turn: list[Call], classes: list[str], reasoned: bool) -> None:
    found = label(turn, classes, reasoned=reasoned)
    assert found in LABELS
    assert found == label(turn, list(reversed(classes)), reasoned=reasoned)


@given(st.lists(calls, max_size=5), words, st.booleans())
def test_verbs_from_the_ledger_give_the_same_label_as_the_commands(
    turn: list[Call], classes: list[str], reasoned: bool
) -> None:
    kept = [call._replace(command=None if call.command is None else verb(call.command)) for call in turn]
    assert label(kept, classes, reasoned=reasoned) == label(turn, classes, reasoned=reasoned)


@given(st.lists(st.lists(calls, max_size=4), max_size=8))
def test_stepping_turn_by_turn_equals_one_walk_over_all_calls(turns: list[list[Call]]) -> None:
    walk = Walk()
    for turn in turns:
        walk = step(walk, turn)
    assert walk == step(Walk(), [call for turn in turns for call in turn])
    assert walk.retries >= sum(map(retries, turns))


def test_families_are_labels() -> None:
    assert set(FAMILIES) <= set(LABELS)
