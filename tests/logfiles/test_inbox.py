"""Promises about the set of changed paths."""

from __future__ import annotations

import threading

from burnd.logfiles.watcher import Inbox


class Bell:
    def __init__(self) -> None:
        self.rung = 0

    def __call__(self) -> None:
        self.rung += 1


def test_many_hints_wake_once() -> None:
    """Nobody is woken a second time before the first hints were fetched."""
    bell = Bell()
    inbox = Inbox(bell)
    for _ in range(100):
        inbox.put("a")
        inbox.put(folder="folder")
    assert bell.rung == 1
    drained = inbox.drain()
    assert (drained.paths, drained.folders, drained.cause) == ({"a"}, {"folder"}, None)
    inbox.put("b")
    assert bell.rung == 2
    assert inbox.drain().paths == {"b"}


def test_the_set_is_bounded() -> None:
    """D9: beyond its limit paths are dropped, and a scan is asked for."""
    inbox = Inbox(Bell(), limit=10)
    for number in range(10):
        inbox.put(str(number))
    inbox.put("3")
    assert inbox.drain().cause is None
    for number in range(11):
        inbox.put(str(number))
    drained = inbox.drain()
    assert len(drained.paths) == 10
    assert drained.cause == "too many changed files"
    assert inbox.drain().cause is None


def test_new_folders_are_bounded_too() -> None:
    inbox = Inbox(Bell(), limit=2)
    for number in range(3):
        inbox.put(folder=str(number))
    drained = inbox.drain()
    assert (len(drained.folders), drained.cause) == (2, "too many new folders")


def test_a_burst_asks_for_a_scan() -> None:
    """F21: very many events since the last drain mean that the kernel may have dropped others."""
    bell = Bell()
    inbox = Inbox(bell, burst=100)
    for _ in range(100):
        inbox.put()
    assert bell.rung == 0
    inbox.put()
    assert bell.rung == 1
    assert inbox.drain().cause == "burst of events"


def test_the_first_cause_is_kept() -> None:
    bell = Bell()
    inbox = Inbox(bell)
    inbox.put(cause="first")
    inbox.put(cause="second")
    assert (bell.rung, inbox.drain().cause) == (1, "first")


def test_no_hint_is_lost_between_threads() -> None:
    """F23: paths that threads add during drains come out exactly once."""
    inbox = Inbox(Bell(), burst=10**9)

    def bring(name: int) -> None:
        for number in range(2000):
            inbox.put(f"{name}-{number}")

    threads = [threading.Thread(target=bring, args=(name,)) for name in range(4)]
    for thread in threads:
        thread.start()
    came: list[str] = []
    while any(thread.is_alive() for thread in threads):
        came += inbox.drain().paths
    came += inbox.drain().paths
    assert sorted(came) == sorted(f"{n}-{i}" for n in range(4) for i in range(2000))
