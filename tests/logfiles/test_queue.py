"""Promises about whose turn it is."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from burnd.logfiles.queue import MANY_FILES, Queue


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


def take(queue: Queue) -> str | None:
    slot = queue.take()
    return None if slot is None else slot.path


def test_an_empty_queue_has_no_turn(queue: Queue) -> None:
    assert (take(queue), len(queue), queue.due(), queue.lag()) == (None, 0, None, 0.0)


def test_old_files_are_behind_until_they_are_read(queue: Queue) -> None:
    """Also one that grows meanwhile, and so takes its turns with the live ones; not one that cannot be read."""
    queue.add("grows")
    assert not queue.is_behind
    queue.backfill([("grows", 3.0), ("old", 2.0), ("broken", 1.0)])
    assert take(queue) == "grows"
    queue.done("grows", more=False)
    assert take(queue) == "old"
    queue.done("old", more=True)
    assert take(queue) == "old"
    queue.done("old", more=False)
    assert queue.is_behind
    assert take(queue) == "broken"
    assert queue.is_behind
    queue.failed("broken", "no")
    assert not queue.is_behind


def test_what_live_agents_write_is_not_behind(queue: Queue) -> None:
    """A few files with a slot's worth or less; a long one is, and so are more files than agents write at once."""
    queue.backfill([("polled", 1.0)], is_old=False)
    for n in range(20):
        queue.add(f"live{n}")
    assert not queue.is_behind
    assert take(queue) == "live0"
    queue.done("live0", more=True)
    assert queue.is_behind
    queue.forget("live0")
    assert not queue.is_behind
    for n in range(MANY_FILES):
        queue.add(f"dropped{n}")
    assert queue.is_behind


def test_a_slot_is_bounded(queue: Queue) -> None:
    """F19: at most 4 MB at once."""
    queue.add("a")
    slot = queue.take()
    assert slot is not None
    assert slot.max_bytes == 4 << 20


def test_a_hot_file_starves_nobody(queue: Queue, clock: Clock) -> None:
    """F19: beside a file that always has more, 50 quiet files all get their turn within 2 s."""
    queue.add("hot")
    assert take(queue) == "hot"
    queue.add("hot")
    for number in range(50):
        queue.add(f"quiet{number}")
    queue.done("hot", more=True)
    started = clock.now
    seen: set[str] = set()
    while len(seen) < 50:
        path = take(queue)
        assert path is not None
        clock.now += 0.2 if path == "hot" else 0.001
        queue.add("hot")
        queue.done(path, more=path == "hot")
        seen |= {path} - {"hot"}
    assert clock.now - started < 2


def test_files_take_turns(queue: Queue) -> None:
    """F19: those that have more go to the back."""
    for name in "abc":
        queue.add(name)
    order = []
    for _ in range(7):
        path = take(queue)
        assert path is not None
        order.append(path)
        queue.done(path, more=path != "b")
    assert "".join(order) == "abcacac"


def test_a_dirty_file_waits_once(queue: Queue) -> None:
    for _ in range(5):
        queue.add("a")
    assert len(queue) == 1
    assert take(queue) == "a"
    queue.done("a", more=False)
    assert take(queue) is None


def test_a_change_during_a_turn_is_remembered(queue: Queue) -> None:
    """P1: a line written while its file is being read gets another turn, and only after this one."""
    queue.add("a")
    assert take(queue) == "a"
    queue.add("a")
    assert take(queue) is None
    queue.done("a", more=False)
    assert take(queue) == "a"


def test_a_backlog_is_read_newest_first(queue: Queue) -> None:
    """F18: and each file to its end, so that the newest sessions are complete first."""
    queue.backfill([("old", 1.0), ("new", 3.0), ("middle", 2.0)])
    order = []
    for more in (True, True, False, False, False):
        path = take(queue)
        assert path is not None
        order.append(path)
        queue.done(path, more=more)
    assert order == ["new", "new", "new", "middle", "old"]


def test_a_later_backlog_is_merged(queue: Queue) -> None:
    queue.backfill([("a", 1.0), ("c", 3.0)])
    queue.add("live")
    queue.backfill([("b", 2.0), ("a", 9.0), ("live", 10.0)])
    assert len(queue) == 4
    order = [take(queue) for _ in range(4)]
    assert order == ["live", "a", "c", "b"]


def test_live_files_go_before_the_backlog(queue: Queue, clock: Clock) -> None:
    """F18: a line written during a first read does not wait for the archive, nor the archive for ever."""
    queue.backfill((f"old{n}", float(n)) for n in range(100))
    served = {"live": 0, "old": 0}
    for _ in range(200):
        queue.add("live")
        path = take(queue)
        assert path is not None
        clock.now += 0.1
        queue.done(path, more=False)
        served[path[:4].rstrip("0123456789")] += 1
    assert served["old"] >= 10
    assert served["live"] >= 150


def test_a_file_of_the_backlog_that_is_written_becomes_live(queue: Queue) -> None:
    queue.backfill([("a", 1.0), ("b", 2.0), ("c", 3.0)])
    queue.add("a")
    assert take(queue) == "a"
    queue.done("a", more=False)
    assert take(queue) == "c"
    queue.add("c")
    queue.done("c", more=True)
    assert [take(queue), take(queue), take(queue)] == ["c", "b", None]


def test_a_failing_file_is_tried_ever_more_seldom(queue: Queue, clock: Clock) -> None:
    """F17: after 1, 2, 4 ... s, at most 5 minutes; events do not shorten the wait, others go on."""
    queue.add("bad")
    waits = []
    for _ in range(12):
        assert take(queue) == "bad"
        queue.failed("bad", "Permission denied")
        queue.add("bad")
        queue.add("good")
        assert take(queue) == "good"
        queue.done("good", more=False)
        assert take(queue) is None
        due = queue.due()
        assert due is not None
        waits.append(due - clock.now)
        clock.now = due - 0.001
        assert take(queue) is None
        clock.now = due
    assert waits == [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300, 300]
    failure = queue.failures["bad"]
    assert (failure.reason, failure.attempts, failure.since) == ("Permission denied", 12, 1000.0)


def test_a_file_that_recovers_starts_over(queue: Queue, clock: Clock) -> None:
    """F17: one good turn clears its record."""
    queue.add("bad")
    take(queue)
    queue.failed("bad", "Input/output error")
    clock.now += 1
    assert take(queue) == "bad"
    queue.done("bad", more=False)
    assert (dict(queue.failures), queue.due(), len(queue)) == ({}, None, 0)
    queue.add("bad")
    take(queue)
    queue.failed("bad", "Input/output error")
    assert queue.due() == clock.now + 1


def test_a_forgotten_file_is_nowhere(queue: Queue, clock: Clock) -> None:
    """F08: a file that vanished is not waited for, even if it had failed."""
    queue.add("failed")
    take(queue)
    queue.failed("failed", "gone bad")
    queue.add("live")
    queue.backfill([("old", 1.0)])
    for path in ("failed", "live", "old", "unknown"):
        queue.forget(path)
    clock.now += 1000
    assert (take(queue), len(queue), queue.due(), dict(queue.failures)) == (None, 0, None, {})


def test_lag_is_how_long_the_next_one_waits(queue: Queue, clock: Clock) -> None:
    queue.add("a")
    clock.now += 3
    queue.add("b")
    assert queue.lag() == 3
    take(queue)
    assert queue.lag() == 0


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    steps=st.lists(
        st.tuples(st.sampled_from(["add", "backfill", "take", "done", "more", "failed", "wait"]), st.integers(0, 4)),
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
        elif step == "take" and (path := take(queue)) is not None:
            assert path not in out
            out.append(path)
            owed.discard(path)
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
    while (path_ := take(queue)) is not None:
        queue.done(path_, more=False)
        owed.discard(path_)
    assert owed == set()
    assert (len(queue), queue.due()) == (0, None)


def test_what_failed_is_tried_at_once_when_somebody_asks(queue: Queue, clock: Clock) -> None:
    """A flush reads all that can be read now, whatever it could not read a moment ago."""
    queue.add("a")
    queue.take()
    queue.failed("a", "no")
    assert queue.take() is None
    queue.retry_failed()
    turn = queue.take()
    assert turn is not None
    assert turn.path == "a"
    queue.done("a", more=False)
    clock.now += 1000.0
    assert queue.take() is None
    assert not queue.failures
