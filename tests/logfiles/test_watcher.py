"""Noticing changes, with real folders and inotify."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from watchdog.events import FileSystemEvent, FileSystemEventHandler

from burnd.logfiles.scanner import Suffix
from burnd.logfiles.watcher import BURST, Inbox, Observation, Times, Unwatchable, Watched, Watcher, observe
from tests.logfiles.listening import DEADLINE, EVENTS_ONLY, QUICK, Listener, append, append_all
from tests.server.wire import noise


@pytest.fixture
def root(tmp_path: Path) -> Path:
    path = tmp_path / "projects"
    (path / "p").mkdir(parents=True)
    return path


class Observing:
    """Starts real watches and keeps them for the test to break."""

    def __init__(self) -> None:
        self.started: list[Watched] = []

    def __call__(self, roots: Sequence[str], inbox: Inbox, suffix: Suffix) -> Observation:
        watched = observe(roots, inbox, suffix)
        assert isinstance(watched, Watched)
        self.started.append(watched)
        return watched


class Deaf:
    """A watch that never hears anything and claims to be well."""

    def __call__(self, roots: Sequence[str], inbox: Inbox, suffix: Suffix) -> Observation:
        return self

    def alive(self) -> bool:
        return True

    def refusal(self) -> Unwatchable | None:
        return None

    def watched(self) -> int | None:
        return None

    def stop(self) -> None:
        pass


async def test_it_begins_with_a_scan(root: Path) -> None:
    """D6: what was there before the watch is found by the first scan."""
    path = append(root / "p" / "a.jsonl")
    async with Watcher([str(root)], times=EVENTS_ONLY) as watcher:
        listener = Listener(watcher)
        dirty = await listener.step()
        assert (dirty.scan_all, dirty.reason) == (True, "start")
        assert listener.scanned == {str(path)}
        assert (watcher.watch.state, watcher.watch.detail) == ("watching", "watching 2 folders")


@pytest.mark.timed
async def test_a_write_comes_out_at_once(root: Path) -> None:
    """A line is announced long before any timer, as the path of its file and nothing else."""
    path = append(root / "p" / "a.jsonl")
    async with Watcher([str(root)], times=EVENTS_ONLY) as watcher:
        listener = Listener(watcher)
        await listener.step()
        waits = []
        for _ in range(20):
            written = time.monotonic()
            append(path)
            async with asyncio.timeout(DEADLINE):
                dirty = await watcher.changes()
            waits.append(time.monotonic() - written)
            assert (dirty.paths, dirty.scan_all) == ({str(path)}, False)
        assert sorted(waits)[10] < 0.2 * noise()


async def test_writes_of_one_moment_come_together(root: Path) -> None:
    """Hints are gathered into sets: a thousand writes are a handful of wake-ups."""
    paths = [root / "p" / f"{n}.jsonl" for n in range(10)]
    async with Watcher([str(root)], times=EVENTS_ONLY) as watcher:
        listener = Listener(watcher)
        await listener.step()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(asyncio.to_thread(append_all, paths * 100))
            await listener.until_seen(paths)
        assert listener.calls < 300


async def test_removed_and_moved_files_are_announced(root: Path) -> None:
    """F06, F08: both names of a moved file and the name of a removed one come out."""
    moved, removed = append(root / "p" / "a.jsonl"), append(root / "p" / "b.jsonl")
    async with Watcher([str(root)], times=EVENTS_ONLY) as watcher:
        listener = Listener(watcher)
        await listener.step()
        moved.rename(root / "p" / "c.jsonl")
        removed.unlink()
        wanted = {str(root / "p" / f"{name}.jsonl") for name in "abc"}
        await listener.until(lambda: wanted <= listener.hinted)


@pytest.mark.skipif(not os.path.isdir("/proc/sys/fs/inotify"), reason="about inotify")
async def test_a_move_does_not_hold_up_other_events(root: Path, tmp_path: Path) -> None:
    """A file moved out of sight used to delay everything behind it by half a second."""
    append(root / "p" / "a.tmp")
    async with Watcher([str(root)], times=EVENTS_ONLY) as watcher:
        listener = Listener(watcher)
        await listener.step()
        waits = []
        for number in range(5):
            append(root / "p" / "a.tmp").rename(tmp_path / f"away{number}")
            written = time.monotonic()
            await listener.until_seen([append(root / "p" / f"{number}.jsonl")])
            waits.append(time.monotonic() - written)
        assert min(waits) < 0.4


async def test_other_files_cause_no_wakeup(root: Path) -> None:
    """F26: what is no transcript is not announced."""
    async with Watcher([str(root)], times=EVENTS_ONLY) as watcher:
        listener = Listener(watcher)
        await listener.step()
        append(root / "p" / "meta.json")
        append(root / "p" / "out.txt")
        wanted = append(root / "p" / "z.jsonl")
        await listener.until_seen([wanted])
        assert listener.hinted == {str(wanted)}


async def test_our_own_reading_makes_no_events(root: Path) -> None:
    """F26: a thousand files read while watched cause nothing; the next change is all that comes."""
    paths = [append(root / "p" / f"{n}.jsonl") for n in range(1000)]
    async with Watcher([str(root)], times=EVENTS_ONLY) as watcher:
        listener = Listener(watcher)
        await listener.step()
        calls = listener.calls
        for path in paths:
            path.read_bytes()
        list(os.scandir(root / "p"))
        wanted = append(root / "p" / "last.jsonl")
        await listener.until_seen([wanted])
        assert listener.hinted == {str(wanted)}
        assert listener.calls <= calls + 2


async def test_files_in_new_folders_are_found(root: Path) -> None:
    """F25: 500 folders made and filled as fast as possible give 500 sessions, without any timer."""
    paths = [root / f"new{n}" / "s" / "subagents" / "a.jsonl" for n in range(500)]
    async with Watcher([str(root)], times=EVENTS_ONLY) as watcher:
        listener = Listener(watcher)
        await listener.step()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(asyncio.to_thread(append_all, paths))
            await listener.until_seen(paths)
        await listener.until_seen([append(paths[0], "later"), append(paths[-1], "later")])


async def test_a_folder_moved_in_is_looked_into(root: Path, tmp_path: Path) -> None:
    """F25: its files were written before it was watched."""
    append(tmp_path / "elsewhere" / "deep" / "a.jsonl")
    async with Watcher([str(root)], times=EVENTS_ONLY) as watcher:
        listener = Listener(watcher)
        await listener.step()
        (tmp_path / "elsewhere").rename(root / "moved")
        await listener.until_seen([root / "moved" / "deep" / "a.jsonl"])


@pytest.mark.skipif(not os.path.isdir("/proc/sys/fs/inotify"), reason="about inotify")
async def test_lost_events_cause_a_scan(root: Path) -> None:
    """F21: an overflow of the kernel's queue causes a scan at once, and watching continues."""
    observing = Observing()
    a, b = append(root / "p" / "a.jsonl"), append(root / "p" / "b.jsonl")
    async with Watcher([str(root)], times=EVENTS_ONLY, observe=observing) as watcher:
        listener = Listener(watcher)
        await listener.step()
        channel = vars(observing.started[0])["_channel"]
        stalled, handle = threading.Event(), channel.handle_event
        channel.handle_event = lambda event: (stalled.wait(DEADLINE), handle(event))
        await asyncio.to_thread(overflow, a, b)
        lost = append(root / "p" / "lost.jsonl")
        stalled.set()
        await listener.until(lambda: str(lost) in listener.scanned)
        assert {"events were lost", "burst of events"} & set(listener.reasons)
        await listener.until(lambda: "events were lost" in listener.reasons or watcher.watch.state == "watching")
        later = root / "q" / "later.jsonl"
        await listener.until_seen([append(later)])
        assert len(observing.started) == 1


def overflow(a: Path, b: Path) -> None:
    """More events than the kernel keeps; it merges equal neighbours, so two files take turns."""
    queue = int(Path("/proc/sys/fs/inotify/max_queued_events").read_text())
    one, two = (os.open(path, os.O_WRONLY | os.O_APPEND) for path in (a, b))
    for _ in range(queue // 2 + 4096):
        os.write(one, b"x")
        os.write(two, b"x")
    os.close(one)
    os.close(two)


async def test_a_burst_causes_a_scan(root: Path) -> None:
    """F21: more raw events than can be trusted since the last look make a scan, but never a flood of scans."""
    async with Watcher([str(root)], times=Times(scan=3600, poll=0.5)) as watcher:
        listener = Listener(watcher)
        await listener.step()
        inbox = vars(watcher)["_inbox"]
        started = time.monotonic()
        for _ in range(50):
            for _ in range(BURST + 1):
                inbox.put("x.jsonl")
            await listener.step()
        assert listener.reasons.count("burst of events") <= 1 + (time.monotonic() - started) / 0.5
        await listener.until(lambda: "burst of events" in listener.reasons)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
async def test_a_dead_watcher_is_started_again(root: Path) -> None:
    """F23: when watchdog's own thread dies, that is noticed, a scan is done and events come again."""
    observing = Observing()
    async with Watcher([str(root)], times=QUICK, observe=observing) as watcher:
        listener = Listener(watcher)
        await listener.step()
        kill_observer(observing.started[0], root)
        append(root / "p" / "trigger.jsonl")
        await listener.until(lambda: "the watcher was started again" in listener.reasons)
        await listener.until(lambda: len(observing.started) == 2)
        path = append(root / "p" / "a.jsonl")
        await listener.until(lambda: str(path) in listener.hinted)


class Bomb(FileSystemEventHandler):
    def dispatch(self, event: FileSystemEvent) -> None:
        raise ValueError("a handler that raises")


def kill_observer(watched: Watched, root: Path) -> None:
    vars(watched)["_observer"].schedule(Bomb(), str(root), recursive=True)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
async def test_a_dead_reader_thread_is_noticed(root: Path) -> None:
    """F23: also when it is the thread that reads from the kernel, which observer and emitters outlive."""
    observing = Observing()
    async with Watcher([str(root)], times=QUICK, observe=observing) as watcher:
        listener = Listener(watcher)
        await listener.step()
        channel = vars(observing.started[0])["_channel"]
        channel.handle_event = None
        append(root / "p" / "trigger.jsonl")
        await listener.until(lambda: len(observing.started) == 2)
        path = append(root / "p" / "a.jsonl")
        await listener.until(lambda: str(path) in listener.hinted)


async def test_a_watcher_that_keeps_dying_is_given_up(root: Path) -> None:
    """F23: after three deaths burnd polls, reports it and retries later."""

    class Dying(Deaf):
        def alive(self) -> bool:
            return False

    async with Watcher([str(root)], times=QUICK, observe=Dying()) as watcher:
        listener = Listener(watcher)
        await listener.until(lambda: watcher.watch.state == "polling")
        assert watcher.watch.detail == "polling: the watcher keeps failing"
        await listener.until_seen([append(root / "p" / "a.jsonl")])
        await listener.until(lambda: "watching again" in listener.reasons)


async def test_a_handler_that_cannot_read_an_event_does_not_raise(root: Path) -> None:
    """F23: an event of an unexpected shape causes a scan."""
    observing = Observing()
    async with Watcher([str(root)], times=EVENTS_ONLY, observe=observing) as watcher:
        listener = Listener(watcher)
        await listener.step()
        handlers = vars(vars(observing.started[0])["_observer"])["_handlers"]
        for handler in [handler for some in handlers.values() for handler in some]:
            handler.dispatch(object())
        await listener.until(lambda: "an event could not be read" in listener.reasons)


async def test_a_root_that_is_missing_is_waited_for(tmp_path: Path) -> None:
    """F24: that is normal; when it appears it is scanned and watched."""
    root = tmp_path / "later" / "projects"
    async with Watcher([str(root)], times=QUICK) as watcher:
        listener = Listener(watcher)
        await listener.step()
        assert (watcher.watch.state, watcher.watch.detail) == ("waiting", f"waiting for {root}")
        first = append(root / "p" / "a.jsonl")
        await listener.until_seen([first])
        assert watcher.watch.state == "watching"
        second = append(root / "p" / "b.jsonl")
        await listener.until(lambda: str(second) in listener.hinted)


async def test_a_root_removed_and_made_again(root: Path) -> None:
    """F24: three times over, every later line arrives, though inodes come again."""
    async with Watcher([str(root)], times=QUICK) as watcher:
        listener = Listener(watcher)
        for number in range(3):
            await listener.until_seen([append(root / "p" / f"{number}.jsonl")])
            shutil.rmtree(root)
            if number == 1:
                await listener.until(lambda: watcher.watch.state == "waiting")
        last = append(root / "p" / "last.jsonl")
        await listener.until_seen([last])
        await listener.until(lambda: watcher.watch.state == "watching")
        again = append(root / "p" / "again.jsonl")
        await listener.until(lambda: str(again) in listener.hinted)


async def test_a_root_replaced_by_a_link(root: Path, tmp_path: Path) -> None:
    """F24: a root may become a link; what lies there is read under its real path."""
    async with Watcher([str(root)], times=QUICK) as watcher:
        listener = Listener(watcher)
        await listener.until_seen([append(root / "p" / "a.jsonl")])
        elsewhere = tmp_path / "elsewhere"
        append(elsewhere / "p" / "b.jsonl")
        turn_into_link(root, elsewhere)
        await listener.until_seen([elsewhere / "p" / "b.jsonl"])
        path = append(elsewhere / "p" / "c.jsonl")
        await listener.until(lambda: str(path) in listener.hinted)


def turn_into_link(root: Path, elsewhere: Path) -> None:
    root.rename(root.with_name("old"))
    root.symlink_to(elsewhere)


async def test_one_of_two_roots_may_be_missing(root: Path, tmp_path: Path) -> None:
    """F24: the other is watched, and both when it comes."""
    other = tmp_path / "other"
    async with Watcher([str(root), str(other)], times=QUICK) as watcher:
        listener = Listener(watcher)
        await listener.until_seen([append(root / "p" / "a.jsonl")])
        await listener.until_seen([append(other / "p" / "b.jsonl")])
        paths = [append(root / "p" / "c.jsonl"), append(other / "p" / "d.jsonl")]
        await listener.until(lambda: {str(path) for path in paths} <= listener.hinted)


async def test_a_deaf_watcher_loses_nothing(root: Path) -> None:
    """F28: when no event ever comes, the timer's scan finds everything."""
    async with Watcher([str(root)], times=Times(scan=0.1), observe=Deaf()) as watcher:
        listener = Listener(watcher)
        for number in range(3):
            await listener.until_seen([append(root / f"n{number}" / "a.jsonl")])
        assert listener.hinted == set()
        assert "timer" in listener.reasons


async def test_waking_up_late_causes_a_scan(root: Path) -> None:
    """D6: a jump of the clock means that the machine slept: a scan runs at once."""
    skew = 0.0
    times = Times(roots=0.05, scan=100_000)
    async with Watcher([str(root)], times=times, clock=lambda: time.monotonic() + skew, observe=Deaf()) as watcher:
        listener = Listener(watcher)
        await listener.step()
        path = append(root / "p" / "a.jsonl")
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(listener.until_seen([path]))
            await asyncio.sleep(0.02)
            skew = 61.0
        assert "the machine slept" in listener.reasons


async def test_missed_folders_are_noticed(root: Path) -> None:
    """F22: two scans in a row that find more folders than are watched start the watch again, once."""

    class Short(Deaf):
        starts = 0

        def __call__(self, roots: Sequence[str], inbox: Inbox, suffix: Suffix) -> Observation:
            self.starts += 1
            return self

        def watched(self) -> int | None:
            return 1

    short = Short()
    times = Times(roots=0.02, alive=3600, scan=0.05, poll=0.01)
    async with Watcher([str(root)], times=times, observe=short) as watcher:
        listener = Listener(watcher)
        await listener.until(lambda: short.starts == 2)
        await listener.until(lambda: len(listener.reasons) > 10)
        assert short.starts == 2
        assert watcher.watch.detail == "watching 1 of 2 folders, scanning the others"


async def test_folders_without_permission_recover(unprivileged: Path) -> None:
    """F17, F22: folders that cannot be entered do not stop the scan; once they can, they are scanned and watched."""
    locked = [unprivileged / "a", unprivileged / "b"]
    for folder in locked:
        folder.mkdir(mode=0)
    times = Times(roots=0.02, alive=3600, scan=0.05, poll=0.01)
    async with Watcher([str(unprivileged)], times=times) as watcher:
        listener = Listener(watcher)
        await listener.until_seen([append(unprivileged / "c" / "a.jsonl")])
        for folder in locked:
            folder.chmod(0o700)
        paths = [append(folder / "a.jsonl") for folder in locked]
        await listener.until_seen(paths)
        await listener.until(lambda: "the watcher was started again" in listener.reasons)
        listener.hinted.clear()

        def are_hinted() -> bool:
            # Appended again each time: the folders may become watched one restart after the other.
            return {str(append(path)) for path in paths} <= listener.hinted

        await listener.until(are_hinted)


async def test_watching_that_cannot_start_becomes_polling(root: Path) -> None:
    """F27: without inotify files are found by scans; watching is tried again later, and taken up when it works."""
    works = False

    def unreliable(roots: Sequence[str], inbox: Inbox, suffix: Suffix) -> Observation:
        if not works:
            raise Unwatchable("inotify does not work here (Function not implemented)")
        return observe(roots, inbox, suffix)

    async with Watcher([str(root)], times=QUICK, observe=unreliable) as watcher:
        listener = Listener(watcher)
        await listener.step()
        assert watcher.watch.state == "polling"
        assert watcher.watch.detail == "polling: inotify does not work here (Function not implemented)"
        await listener.until_seen([append(root / "p" / "a.jsonl")])
        assert "polling" in listener.reasons
        works = True
        await listener.until(lambda: watcher.watch.state == "watching")
        path = append(root / "p" / "b.jsonl")
        await listener.until(lambda: str(path) in listener.hinted)


async def test_polling_rests_longer_when_scans_are_slow(root: Path) -> None:
    """P8: scans take at most a twentieth of the time."""

    def never(roots: Sequence[str], inbox: Inbox, suffix: Suffix) -> Observation:
        raise Unwatchable("no")

    async with Watcher([str(root)], times=Times(poll=0.01, scan=0.6), observe=never) as watcher:
        await watcher.changes()
        started = time.monotonic()
        watcher.scanned(directories=2, seconds=0.02)
        await watcher.changes()
        assert time.monotonic() - started >= 0.39
        started = time.monotonic()
        watcher.scanned(directories=2, seconds=100)
        async with asyncio.timeout(DEADLINE):
            await watcher.changes()
        assert time.monotonic() - started >= 0.59


async def test_a_tree_too_deep_for_watchdog_is_polled(root: Path, dig: Callable[[Path, int], None]) -> None:
    """F16, F23: whatever the library trips over at its start, burnd starts and finds files by scans."""
    dig(root, 1500)
    async with Watcher([str(root)], times=QUICK) as watcher:
        listener = Listener(watcher)
        await listener.until_seen([append(root / "p" / "a.jsonl")])
        if sys.version_info < (3, 12):  # from then on walking a tree does not recurse
            assert watcher.watch.detail == "polling: the watcher failed (RecursionError)"


async def test_a_cancelled_call_loses_nothing(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """P1: hints that were already fetched when the call was cancelled come out of the next one."""
    entered, go_on = threading.Event(), threading.Event()

    def slow(folders: set[str], suffix: Suffix) -> set[str]:
        entered.set()
        go_on.wait(DEADLINE)
        return {f"{folder}/found.jsonl" for folder in folders}

    monkeypatch.setattr("burnd.logfiles.watcher._list_files", slow)
    async with Watcher([str(root)], times=EVENTS_ONLY, observe=Deaf()) as watcher:
        await watcher.changes()
        inbox = vars(watcher)["_inbox"]
        inbox.put("a.jsonl")
        inbox.put(folder="folder")
        call = asyncio.ensure_future(watcher.changes())
        await asyncio.to_thread(entered.wait, DEADLINE)
        call.cancel()
        go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await call
        async with asyncio.timeout(DEADLINE):
            assert (await watcher.changes()).paths == {"a.jsonl", "folder/found.jsonl"}


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="needs /proc to count descriptors")
async def test_nothing_stays_behind(root: Path) -> None:
    """P8, P10: fifty watchers later no thread and no descriptor is left."""

    async def once() -> None:
        async with Watcher([str(root)], times=EVENTS_ONLY) as watcher:
            await watcher.changes()

    await once()
    threads, descriptors = threading.active_count(), len(os.listdir("/proc/self/fd"))
    for _ in range(50):
        await once()
    assert threading.active_count() <= threads
    assert len(os.listdir("/proc/self/fd")) <= descriptors


async def test_an_idle_watcher_sleeps(root: Path) -> None:
    """F26: without changes it wakes only for its timers."""
    async with Watcher([str(root)], times=EVENTS_ONLY) as watcher:
        await watcher.changes()
        before = time.process_time()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.5):
                await watcher.changes()
        assert time.process_time() - before < 0.1


class Bell:
    def __init__(self) -> None:
        self.rung = 0

    def __call__(self) -> None:
        self.rung += 1


def test_many_hints_wake_once() -> None:
    """No second wake-up before the first hints are fetched."""
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
    """D9: beyond the limit paths are dropped and a scan is requested."""
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
