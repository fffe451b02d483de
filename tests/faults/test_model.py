"""Random events in logs, databases, disk, index and daemon: answers equal those of a simple model."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RULE_MARKER,
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from tests.faults import shims
from tests.faults.machine import Machine

SESSIONS = st.sampled_from(["s0", "s1", "s2"])
OPENCODE = st.sampled_from(["ses_a", "ses_b"])
CODEX = st.integers(1, 2)
STORIES = 100


class Whatever(RuleBasedStateMachine):
    """Events one by one; steps that settle compare sums, `look` and the end compare texts as well."""

    def __init__(self) -> None:
        super().__init__()
        self.machine = Machine()

    @initialize()
    def begin(self) -> None:
        self.machine.start()

    # Claude Code

    @rule(session=SESSIONS, half=st.booleans())
    def converse(self, session: str, half: bool) -> None:
        (self.machine.claude.converse_half if half else self.machine.claude.converse)(session)

    @rule(session=SESSIONS)
    def cut(self, session: str) -> None:
        self.machine.claude.log(session)
        self.machine.settle()
        self.machine.claude.cut(session)

    @rule(session=SESSIONS, in_place=st.booleans())
    def replace(self, session: str, in_place: bool) -> None:
        (self.machine.claude.rewrite if in_place else self.machine.claude.replace)(session)

    @rule(session=SESSIONS)
    def rotate(self, session: str) -> None:
        self.machine.claude.log(session)
        self.machine.settle()
        self.machine.claude.rotate(session)

    @rule(session=SESSIONS)
    def delete(self, session: str) -> None:
        self.machine.claude.log(session)
        self.machine.settle()
        self.machine.claude.delete(session)

    @rule(session=SESSIONS, resumed=st.booleans())
    def branch(self, session: str, resumed: bool) -> None:
        if len(self.machine.claude.logs) < 8:
            (self.machine.claude.resume if resumed else self.machine.claude.fork)(session)

    # Codex

    @rule(number=CODEX, half=st.booleans())
    def converse_in_codex(self, number: int, half: bool) -> None:
        self.machine.codex.converse(number, half=half)

    @rule(number=CODEX)
    def replace_in_codex(self, number: int) -> None:
        self.machine.codex.replace(number)

    @rule(number=CODEX)
    def archive(self, number: int) -> None:
        self.machine.codex.archive(number)

    # opencode

    @rule(session=OPENCODE, done=st.booleans())
    def step(self, session: str, done: bool) -> None:
        self.machine.opencode.step(session, done=done)

    @rule()
    def finish_steps(self) -> None:
        self.machine.opencode.finish_steps()

    @rule(session=OPENCODE)
    def revert(self, session: str) -> None:
        self.machine.settle()
        self.machine.opencode.revert(session)

    @rule(session=OPENCODE)
    def drop(self, session: str) -> None:
        self.machine.settle()
        self.machine.opencode.drop(session)

    # People

    @rule(session=SESSIONS, value=st.sampled_from(["plan", "build", "review"]))
    def stamp(self, session: str, value: str) -> None:
        self.machine.stamp(session, value)

    @rule(session=st.sampled_from(["q0", "q1"]))
    def talk_quietly(self, session: str) -> None:
        self.machine.talk_quietly(session)

    @rule()
    def prune(self) -> None:
        self.machine.prune()

    @rule(session=SESSIONS)
    def forget(self, session: str) -> None:
        self.machine.forget(session)

    # The daemon and its disk

    @rule(kill=st.booleans(), again=st.booleans())
    def stop(self, kill: bool, again: bool) -> None:
        self.machine.stop(kill=kill)
        if again:
            self.machine.start()

    @rule()
    def lose_index(self) -> None:
        self.machine.lose_index()

    @rule()
    def compare_indexes(self) -> None:
        self.machine.compare_indexes()

    @rule(session=SESSIONS, cut=st.booleans())
    def stand_still(self, session: str, cut: bool) -> None:
        """Events during a stop of the daemon are noticed afterwards."""
        self.machine.claude.log(session)
        self.machine.settle()
        with self.machine.frozen():
            if cut:
                self.machine.claude.cut(session)
            self.machine.claude.converse(session)
            self.machine.codex.converse(1, half=False)
            self.machine.opencode.step("ses_a", done=True)

    @precondition(lambda _: shims.are_to_be_had)
    @rule(session=SESSIONS)
    def full_disk(self, session: str) -> None:
        """Lines written while the disk is full are recorded later."""
        if self.machine.daemon is not None:
            with self.machine.full_disk():
                self.machine.claude.converse(session)
                self.machine.opencode.step("ses_a", done=True)

    @rule()
    def look(self) -> None:
        self.machine.check()

    @invariant()
    def it_lives(self) -> None:
        daemon = self.machine.daemon
        assert daemon is None or daemon.process.poll() is None, daemon.why()

    def teardown(self) -> None:
        try:
            self.machine.check()
        finally:
            self.machine.end()


STORY: list[tuple[str, dict[str, Any]]] = [
    ("converse", {"session": "s0", "half": False}),
    ("converse", {"session": "s1", "half": True}),
    ("converse_in_codex", {"number": 1, "half": False}),
    ("step", {"session": "ses_a", "done": False}),
    ("stamp", {"session": "s0", "value": "plan"}),
    ("cut", {"session": "s0"}),
    ("replace", {"session": "s0", "in_place": True}),
    ("replace", {"session": "s1", "in_place": False}),
    ("stop", {"kill": True, "again": False}),
    ("talk_quietly", {"session": "q0"}),
    ("stamp", {"session": "s1", "value": "build"}),
    ("finish_steps", {}),
    ("look", {}),
    ("branch", {"session": "s0", "resumed": False}),
    ("branch", {"session": "s0", "resumed": True}),
    ("rotate", {"session": "s1"}),
    ("replace_in_codex", {"number": 1}),
    ("archive", {"number": 1}),
    ("full_disk", {"session": "s1"}),
    ("stand_still", {"session": "s0", "cut": True}),
    ("forget", {"session": "s0"}),
    ("delete", {"session": "s1"}),
    ("revert", {"session": "ses_a"}),
    ("drop", {"session": "ses_a"}),
    ("prune", {}),
    ("converse", {"session": "s2", "half": False}),
    ("lose_index", {}),
    ("compare_indexes", {}),
]


def test_one_story_with_everything() -> None:
    """Nothing lost, nothing twice: after each thing that can happen, always in the same order, totals and tags are what
    was written, and at the end so are the words."""
    assert {name for name, _ in STORY} == {name for name, what in vars(Whatever).items() if hasattr(what, RULE_MARKER)}
    story = Whatever()
    try:
        story.begin()
        for name, given in STORY:
            if name != "full_disk" or shims.are_to_be_had:
                getattr(story, name)(**given)
            if story.machine.daemon is not None:
                story.machine.settle()
    finally:
        story.teardown()


@pytest.mark.slow
def test_many_stories() -> None:
    """Nothing lost, nothing twice, for as long as patience lasts: whatever comes after what, the answers are right."""
    run_state_machine_as_test(
        Whatever,
        settings=settings(
            max_examples=STORIES,
            stateful_step_count=40,
            phases=[Phase.generate],  # a story is short enough to be read as it is; each takes seconds to live
            deadline=None,
            database=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
