"""Prompts give the classes of their words: whole words with usual endings, in any case."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from burnd.classify import keywords
from burnd.classify.keywords import CLASSES, PROMPT_LIMIT, prompt_words

WORDS = {
    "debugging": [
        *("bug", "bugs", "error", "errors", "errored", "crash", "crashes", "crashed", "crashing"),
        *("traceback", "tracebacks", "stack trace", "stack traces", "stacktrace", "failure", "failures"),
        *("failing", "fail", "fails", "failed", "broken", "fix the", "fixing the", "fixed the", "fixes the"),
        *("not working", "throws"),
    ],
    "review": [
        *("review", "reviews", "reviewed", "reviewing", "audit", "audits", "audited", "auditing"),
        *("inspect", "inspects", "inspected", "inspecting", "look over", "looks over", "looking over"),
        *("code review", "pr review"),
    ],
    "refactoring": [
        *("refactor", "refactors", "refactored", "refactoring", "cleanup", "cleanups"),
        *("clean up", "cleans up", "cleaned up", "cleaning up", "rename", "renames", "renamed", "renaming"),
        *("extract", "extracts", "extracted", "extracting", "restructure", "restructured", "restructuring"),
        *("reorganize", "reorganizes", "reorganized", "reorganizing", "reorganise"),
        *("move this", "moves this", "moved this", "moving this"),
    ],
    "feature": [
        *("add", "adds", "added", "adding", "create", "creates", "created", "creating"),
        *("implement", "implements", "implemented", "implementing", "new"),
        *("introduce", "introduces", "introduced", "introducing"),
        *("build the", "builds the", "building the", "built the", "support for", "supports for"),
    ],
    "brainstorming": [
        *("brainstorm", "brainstorms", "brainstormed", "brainstorming", "what if"),
        *("think through", "thinking through", "thought through", "should we"),
        *("design", "designs", "designed", "designing", "approach", "approaches", "approached"),
        *("explore ideas", "exploring ideas"),
    ],
    "planning": [
        *("plan", "plans", "planned", "planning", "outline", "outlines", "outlined", "outlining"),
        *("roadmap", "roadmaps", "strategy", "strategies"),
    ],
}
EACH_WORD = [(name, word) for name, words in WORDS.items() for word in words]


def read_as(texts: Iterable[str]) -> dict[str, tuple[str, ...]]:
    return {text: prompt_words(text) for text in texts}


@pytest.mark.parametrize("form", ["{}", "so ({}), please"])
def test_each_word_matches_its_class_alone(form: str) -> None:
    assert read_as(form.format(word) for _, word in EACH_WORD) == {
        form.format(word): (name,) for name, word in EACH_WORD
    }


@pytest.mark.parametrize("spelled", [str.upper, str.title])
def test_case_does_not_matter(spelled: Callable[[str], str]) -> None:
    assert read_as(spelled(word) for _, word in EACH_WORD) == {spelled(word): (name,) for name, word in EACH_WORD}


@pytest.mark.parametrize("gap", ["  ", "\t", "\n", "\r\n    ", "\u00a0"])
def test_a_phrase_may_be_spread_over_any_white_space(gap: str) -> None:
    spread = {word.replace(" ", gap): name for name, word in EACH_WORD if " " in word}
    assert [text for text, name in spread.items() if name not in prompt_words(text)] == []


@pytest.mark.parametrize("form", ["x{}", "{}x", "_{}_"])
def test_a_word_within_a_longer_word_does_not_match(form: str) -> None:
    longer = [form.format(word) for _, word in EACH_WORD if not word.endswith(" review")]
    assert read_as(longer) == dict.fromkeys(longer, ())


@pytest.mark.parametrize(
    "text",
    [
        *("address", "addition", "ladder", "newsletter", "newer", "renew", "plane", "planet", "explain"),
        *("preview", "debugger", "terrors", "failover", "crashpad", "latest", "creative", "recreate"),
        *("designer", "reproach", "inspector", "extraction", "stra tegy", "fix them", "not networking"),
        *("throw", "support format", "rebuild the", "whatif", "clean cup", "", " ", "hello there"),
    ],
)
def test_words_that_only_look_alike_do_not_match(text: str) -> None:
    assert prompt_words(text) == ()


def test_classes_come_in_a_fixed_order_whatever_the_order_in_the_prompt() -> None:
    assert prompt_words("plan a design, add it, rename it, review it, fix the bug") == CLASSES
    assert prompt_words("new error") == prompt_words("error new") == ("debugging", "feature")


def test_only_the_head_of_a_huge_prompt_is_looked_at() -> None:
    padding = "x" * PROMPT_LIMIT
    assert prompt_words("bug " + padding) == ("debugging",)
    assert prompt_words(padding + " bug") == ()


@pytest.mark.parametrize("unit", ["clean" + " " * 997, "fix \n", "creat", "a ", "\t", "stack stack "])
def test_a_hostile_prompt_takes_no_time(unit: str) -> None:
    text = unit * (1_000_000 // len(unit))
    start = time.process_time()
    prompt_words(text)
    assert time.process_time() - start < 1


@given(st.text())
def test_any_text_gives_classes_in_order(text: str) -> None:
    found = prompt_words(text)
    assert found == tuple(name for name in CLASSES if name in found)
    assert found == prompt_words(text)


def one_by_one(text: str) -> tuple[str, ...]:
    """Searches every class separately, as the reference."""
    entries = {name: "|".join(words).replace(" ", r"\s+") for name, words in keywords._WORDS.items()}
    patterns = {name: re.compile(rf"\b(?:{entry})\b", re.IGNORECASE) for name, entry in entries.items()}
    return tuple(name for name in CLASSES if patterns[name].search(text[:PROMPT_LIMIT]))


pieces = st.sampled_from([part for words in WORDS.values() for word in words for part in (word, *word.split())])
glue = st.sampled_from([" ", "  ", "\n", "-", "_", ".", "", "x"])


@given(st.lists(st.tuples(pieces, glue), max_size=12).map(lambda parts: "".join(word + gap for word, gap in parts)))
def test_one_pass_finds_what_looking_for_each_class_finds(text: str) -> None:
    """Words of several classes, overlapping or adjacent, are all found."""
    assert prompt_words(text) == one_by_one(text)


def test_what_is_no_element_of_a_harness_is_a_persons_word() -> None:
    """An element that is never closed, or unknown to any harness, is the user's text, and costs no time."""
    assert prompt_words("why is <system-reminder> an error?") == ("debugging",)
    assert prompt_words("<div>bug</div>") == ("debugging",)
    assert prompt_words("<system-reminder>bug</system-reminder> <system-reminder>review") == ("review",)
    assert prompt_words("<system-reminder>" * 100_000 + "bug") == ()
