"""Whatever happens to logs, database, disk, index and daemon, in any order: the answers are those of a simple model."""

from __future__ import annotations

import shutil
import sys

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from tests.faults.machine import Machine

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or shutil.which("gcc") is None, reason="needs Linux and gcc: a library makes the disk full"
)
SESSIONS = st.sampled_from(["s0", "s1", "s2"])


class Whatever(RuleBasedStateMachine):
    """One thing after the other; `look` compares, and so does the end."""

    def __init__(self) -> None:
        super().__init__()
        self.machine = Machine()

    @initialize()
    def begin(self) -> None:
        self.machine.start()

    @rule(session=SESSIONS, half=st.booleans())
    def converse(self, session: str, half: bool) -> None:
        (self.machine.converse_half if half else self.machine.converse)(session)

    @rule(session=SESSIONS)
    def cut(self, session: str) -> None:
        self.machine.cut(session)

    @rule(session=SESSIONS)
    def replace(self, session: str) -> None:
        self.machine.replace(session)

    @rule(session=SESSIONS)
    def delete(self, session: str) -> None:
        self.machine.delete(session)

    @rule(session=SESSIONS)
    def branch(self, session: str) -> None:
        if len(self.machine.logs) < 8:
            self.machine.branch(session)

    @rule(done=st.booleans())
    def step(self, done: bool) -> None:
        self.machine.step(done=done)

    @rule()
    def finish_steps(self) -> None:
        self.machine.finish_steps()

    @rule()
    def revert(self) -> None:
        self.machine.revert()

    @rule()
    def drop_session(self) -> None:
        self.machine.drop_session()

    @rule(session=SESSIONS, value=st.sampled_from(["plan", "build", "review"]))
    def stamp(self, session: str, value: str) -> None:
        self.machine.stamp(session, value)

    @rule()
    def prune(self) -> None:
        self.machine.prune()

    @rule(kill=st.booleans(), again=st.booleans())
    def stop(self, kill: bool, again: bool) -> None:
        self.machine.stop(kill=kill)
        if again:
            self.machine.start()

    @rule()
    def lose_index(self) -> None:
        self.machine.lose_index()

    @rule(session=SESSIONS)
    def full_disk(self, session: str) -> None:
        """What is said while there is no room is recorded when there is."""
        if self.machine.daemon is not None:
            self.machine.fill_disk()
            self.machine.converse(session)
            self.machine.step(done=True)
            self.machine.free_disk()

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


def _run(examples: int, steps: int, *, derandomize: bool) -> None:
    run_state_machine_as_test(
        Whatever,
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            derandomize=derandomize,
            deadline=None,
            database=None,
            suppress_health_check=list(HealthCheck),
        ),
    )


def test_a_few_stories() -> None:
    """Nothing lost, nothing twice: after every settle the totals, tags and words are what was written."""
    _run(3, 12, derandomize=True)


@pytest.mark.slow
def test_many_stories() -> None:
    """The same, for as long as patience lasts."""
    _run(100, 40, derandomize=False)
