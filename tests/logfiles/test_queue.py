"""Order in which logs are read."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from burnd.logfiles.queue import MANY_FILES, Queue

STEPS = ["add", "backfill", "take", "old", "defer", "done", "more", "failed", "wait"]


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def queue(clock: Clock) -> Queue:
    return Queue(clock)


def test_an_empty_queue_has_nothing(queue: Queue) -> None:
    assert (queue.take(), queue.take_old(), len(queue), queue.due(), queue.lag()) == (None, None, 0, None, 0.0)


def test_old_files_are_behind_until_they_are_read(queue: Queue) -> None:
    """Also one that grows meanwhile, and so is read with the live ones; not one that cannot be read."""
    queue.add("grows")
    assert not queue.is_behind
    queue.backfill([("grows", 3.0), ("old", 2.0), ("broken", 1.0)])
    assert queue.take() == "grows"
    queue.done("grows", more=False)
    assert queue.take_old() == "old"
    queue.done("old", more=True)
    assert queue.take_old() == "old"
    queue.done("old", more=False)
    assert queue.is_behind
    assert queue.take_old() == "broken"
    assert queue.is_behind
    queue.failed("broken", "no")
    assert not queue.is_behind


def test_what_live_agents_write_is_not_behind(queue: Queue) -> None:
    """A few files with one read's worth or less; a large one is, and so are more files than agents write at once."""
    for n in range(20):
        queue.add(f"live{n}")
    assert not queue.is_behind
    assert queue.take() == "live0"
    queue.done("live0", more=True)
    assert queue.is_behind
    queue.forget("live0")
    assert not queue.is_behind
    for n in range(MANY_FILES):
        queue.add(f"dropped{n}")
    assert queue.is_behind


def test_a_large_file_is_in_no_other_files_way(queue: Queue) -> None:
    """F19: a file that always has more is read by the other task, and live ones by theirs."""
    queue.add("hot")
    assert queue.take() == "hot"
    for number in range(50):
        queue.add(f"quiet{number}")
    queue.done("hot", more=True)
    queue.add("hot")
    assert [queue.take() for _ in range(51)] == [f"quiet{number}" for number in range(50)] + [None]
    assert queue.take_old() == "hot"


def test_large_files_take_turns_before_old_ones(queue: Queue) -> None:
    """F19: those that have more go to the back."""
    queue.backfill([("old", 1.0)])
    for name in "abc":
        queue.add(name)
    for name in "abc":
        assert queue.take() == name
        queue.done(name, more=name != "b")
    order = []
    for _ in range(4):
        path = queue.take_old()
        assert path is not None
        order.append(path)
        queue.done(path, more=True)
    assert order == ["a", "c", "a", "c"]


def test_a_suspect_is_left_to_the_other_task(queue: Queue) -> None:
    queue.add("suspect")
    assert queue.take() == "suspect"
    queue.defer("suspect")
    assert (queue.take(), queue.take_old()) == (None, "suspect")


def test_a_file_is_settled_only_while_no_task_reads_it(queue: Queue) -> None:
    """A change meanwhile is remembered, and what failed still waits for its retry."""
    queue.backfill([("old", 1.0)])
    assert not queue.take_quiet("old")
    assert queue.take_old() == "old"
    assert not queue.take_quiet("old")
    queue.failed("old", "no")
    assert queue.take_quiet("old")
    queue.add("old")
    queue.release("old")
    assert (queue.take(), len(queue.failures)) == (None, 1)
    assert queue.take_quiet("other")
    queue.add("other")
    assert queue.take() is None
    queue.release("other")
    assert queue.take() == "other"


def test_an_old_file_that_grows_is_old_no_more(queue: Queue) -> None:
    """Its lines are live ones, which search is not waited for."""
    queue.backfill([("a", 1.0)])
    assert queue.take_old() == "a"
    assert queue.is_old("a")
    queue.add("a")
    assert not queue.is_old("a")
    queue.done("a", more=True)
    assert queue.take_old() == "a"
    assert not queue.is_old("a")


def test_a_dirty_file_waits_once(queue: Queue) -> None:
    for _ in range(5):
        queue.add("a")
    assert len(queue) == 1
    assert queue.take() == "a"
    queue.done("a", more=False)
    assert queue.take() is None


def test_a_change_during_a_turn_is_remembered(queue: Queue) -> None:
    """P1: a line written while its file is being read gets another turn, and only after this one."""
    queue.add("a")
    assert queue.take() == "a"
    queue.add("a")
    assert queue.take() is None
    queue.done("a", more=False)
    assert queue.take() == "a"


def test_a_file_that_a_scan_finds_changed_while_it_is_read_is_read_again(queue: Queue) -> None:
    """P1: without events the scan alone shows it, and only once."""
    queue.add("a")
    assert queue.take() == "a"
    queue.backfill([("a", 1.0)])
    queue.done("a", more=False)
    assert queue.take() == "a"


def test_a_backlog_is_read_newest_first(queue: Queue) -> None:
    """F18: and each file to its end, so that the newest sessions are complete first."""
    queue.backfill([("old", 1.0), ("new", 3.0), ("middle", 2.0)])
    order = []
    for more in (True, True, False, False, False):
        path = queue.take_old()
        assert path is not None
        order.append(path)
        queue.done(path, more=more)
    assert order == ["new", "new", "new", "middle", "old"]


def test_a_later_backlog_is_merged(queue: Queue) -> None:
    queue.backfill([("a", 1.0), ("c", 3.0)])
    queue.add("live")
    queue.backfill([("b", 2.0), ("a", 9.0), ("live", 10.0)])
    assert len(queue) == 4
    assert queue.take() == "live"
    assert [queue.take_old() for _ in range(3)] == ["a", "c", "b"]


def test_a_file_of_the_backlog_that_is_written_becomes_live(queue: Queue) -> None:
    queue.backfill([("a", 1.0), ("b", 2.0), ("c", 3.0)])
    queue.add("a")
    assert queue.take() == "a"
    queue.done("a", more=False)
    assert queue.take_old() == "c"
    queue.add("c")
    queue.done("c", more=False)
    assert [queue.take(), queue.take(), queue.take_old(), queue.take_old()] == ["c", None, "b", None]


def test_a_failing_file_is_tried_ever_more_seldom(queue: Queue, clock: Clock) -> None:
    """F17: after 1, 2, 4 ... s, at most 5 minutes; events do not shorten the wait, others go on."""
    queue.add("bad")
    waits = []
    for _ in range(12):
        assert queue.take() == "bad"
        queue.failed("bad", "Permission denied")
        queue.add("bad")
        queue.add("good")
        assert queue.take() == "good"
        queue.done("good", more=False)
        assert queue.take() is None
        due = queue.due()
        assert due is not None
        waits.append(due - clock.now)
        clock.now = due - 0.001
        assert queue.take() is None
        clock.now = due
    assert waits == [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300, 300]
    failure = queue.failures["bad"]
    assert (failure.reason, failure.attempts, failure.since) == ("Permission denied", 12, 1000.0)


def test_a_file_that_recovers_starts_over(queue: Queue, clock: Clock) -> None:
    """F17: one good turn clears its record."""
    queue.add("bad")
    queue.take()
    queue.failed("bad", "Input/output error")
    clock.now += 1
    assert queue.take() == "bad"
    queue.done("bad", more=False)
    assert (dict(queue.failures), queue.due(), len(queue)) == ({}, None, 0)
    queue.add("bad")
    queue.take()
    queue.failed("bad", "Input/output error")
    assert queue.due() == clock.now + 1


def test_a_forgotten_file_is_nowhere(queue: Queue, clock: Clock) -> None:
    """F08: a file that vanished is not waited for, even if it had failed."""
    queue.add("failed")
    queue.take()
    queue.failed("failed", "gone bad")
    queue.add("live")
    queue.backfill([("old", 1.0)])
    for path in ("failed", "live", "old", "unknown"):
        queue.forget(path)
    clock.now += 1000
    assert (queue.take(), len(queue), queue.due(), dict(queue.failures)) == (None, 0, None, {})


def test_lag_is_how_long_the_next_one_waits(queue: Queue, clock: Clock) -> None:
    queue.add("a")
    clock.now += 3
    queue.add("b")
    assert queue.lag() == 3
    queue.take()
    assert queue.lag() == 0


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    steps=st.lists(
        st.tuples(
            st.sampled_from(["add", "backfill", "take", "old", "defer", "done", "more", "failed", "wait"]),
            st.integers(0, 4),
        ),
        max_size=80,
    )
)
def test_nothing_is_forgotten(steps: list[tuple[str, int]]) -> None:
    """P1: after any history, every file that was named gets a turn after it was last named."""
    clock = Clock()
    queue = Queue(clock)
    owed: set[str] = set()
    out: list[str] = []
    for step, number in steps:
        name = str(number)
        if step == "add":
            queue.add(name)
            owed.add(name)
        elif step == "backfill":
            queue.backfill([(name, float(number))])
            owed |= {name} - set(out)
        elif step == "wait":
            clock.now += number
        elif step in ("take", "old") and (path := queue.take() if step == "take" else queue.take_old()) is not None:
            assert path not in out
            out.append(path)
            owed.discard(path)
        elif step == "defer" and out:
            owed.add(out[0])
            queue.defer(out.pop(0))
        elif step in ("done", "more") and out:
            path = out.pop(0)
            queue.done(path, more=step == "more")
            owed |= {path} if step == "more" else set()
        elif step == "failed" and out:
            owed.add(out[0])
            queue.failed(out.pop(0), "bad")
    for path in out:
        queue.done(path, more=False)
    clock.now += 1000
    while (path_ := queue.take() or queue.take_old()) is not None:
        queue.done(path_, more=False)
        owed.discard(path_)
    assert owed == set()
    assert (len(queue), queue.due()) == (0, None)


def test_a_flush_retries_failed_files_at_once(queue: Queue, clock: Clock) -> None:
    """A flush reads all that can be read now, whatever it could not read a moment ago."""
    queue.add("a")
    queue.take()
    queue.failed("a", "no")
    assert queue.take() is None
    queue.retry_failed()
    assert queue.take() == "a"
    queue.done("a", more=False)
    clock.now += 1000.0
    assert queue.take() is None
    assert not queue.failures


def test_a_flush_waits_for_what_is_there_when_it_begins(queue: Queue) -> None:
    """A log that is being read and changed since is read once more; what comes later is not waited for."""
    queue.add("read")
    assert queue.take() == "read"
    queue.add("read")
    queue.backfill([("old", 1.0), ("broken", 0.0), ("gone", 0.5)])
    queue.begin_flush()
    queue.add("later")
    queue.done("read", more=False)
    assert queue.take_old() == "old"
    queue.add("old")
    queue.done("old", more=True)
    queue.forget("gone")
    assert queue.take_old() == "old"
    queue.done("old", more=False)
    assert queue.take_old() == "broken"
    queue.failed("broken", "no")
    assert [queue.take(), queue.take()] == ["later", "read"]
    assert queue.is_flushing
    queue.add("read")
    queue.done("read", more=False)
    assert not queue.is_flushing
