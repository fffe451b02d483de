"""Many concurrent sessions and clients, and many short sessions in a row: nothing is lost, nothing grows."""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from statistics import median
from typing import NamedTuple

import pytest

from burnd.paths import Home
from burnd.recording import retention
from tests.faults import tally
from tests.faults.watched import Watched, answers, sum_of, whole
from tests.harness.claude_code.transcript import Transcript, text
from tests.server.logs import projects
from tests.server.wire import Daemon, Wire, noise, running, until

LOAD_S = float(os.environ.get("BURND_LOAD_S", "600"))
SOAK_S = float(os.environ.get("BURND_SOAK_S", "300"))
CLIENTS = 20
_A_LOG = 2048  # bytes that may be kept in memory of each log that is known
PAUSE_S = 2.0  # between two answers of a session
_MB = 1 << 20


class Writers:
    """Sessions that grow all at the same moment, again and again; lines of others say how late one is answered for."""

    def __init__(self, watched: Watched, sessions: int) -> None:
        self.watched = watched
        self.turns = 0
        self.lags: list[float] = []
        self._logs = [Transcript(session=f"l{n}", prefix=f"l{n}-u") for n in range(sessions)]

    def keep_on(self, over: threading.Event, pause: float) -> None:
        """Appends one answer to every session at once, each in a thread, then pauses."""
        together = threading.Barrier(len(self._logs), timeout=60)
        with ThreadPoolExecutor(len(self._logs)) as pool:
            while not over.is_set():
                list(pool.map(partial(self._grow, together), range(len(self._logs))))
                self.turns += len(self._logs)
                over.wait(pause)

    def _grow(self, together: threading.Barrier, n: int) -> None:
        log = self._logs[n]
        log.prompt("go on")
        log.says(f"l{n}-{self.turns}", text("an answer of ordinary length " * 20), output=1)
        together.wait()
        self.watched.append(f"l{n}", whole(log.lines))
        log.lines.clear()

    def measure(self, over: threading.Event) -> None:
        """Measures repeatedly the time from a log line to an answer with it."""
        count = 0
        while not over.is_set():
            session = f"lag{count % 10}-{count // 300}"
            began = time.monotonic()
            self.watched.append(session, whole(answers(session, count // 10 % 30, 1)))
            until(lambda s=session, n=count: self.watched.outputs(s) >> (n // 10 % 30) & 1, 120)  # type: ignore[misc]
            self.lags.append(time.monotonic() - began)
            count += 1
            over.wait(0.1)


@contextmanager
def beside(*work: Callable[[threading.Event], None]) -> Iterator[None]:
    """Does all of it in threads until the block ends; what fails in one fails the test."""
    over, failures = threading.Event(), list[BaseException]()

    def kept(do: Callable[[threading.Event], None]) -> None:
        try:
            do(over)
        except BaseException as error:  # noqa: BLE001 - raised again below
            failures.append(error)

    threads = [threading.Thread(target=kept, args=(do,)) for do in work]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        over.set()
        for thread in threads:
            thread.join()
    assert failures == []


def _ask(daemon: Daemon, over: threading.Event) -> None:
    chance = random.Random(threading.get_ident())
    with daemon.wire(60) as wire:
        while not over.is_set():
            _question(wire, chance.randrange(5))
            over.wait(chance.uniform(0.05, 0.3))


def _question(wire: Wire, which: int) -> None:
    if which == 0:
        wire.call("summary", by="session", limit=50)
    elif which == 1:
        wire.call("sessions.list", limit=20)
    elif which == 2:
        wire.call("sessions.search", query="ordinary length")
    elif which == 3:
        wire.call("summary", by="day")
    else:
        wire.call("status")


def own_memory(daemon: Daemon) -> int:
    """Private memory; mapped file pages can be reclaimed at any time and do not count."""
    status = Path(f"/proc/{daemon.process.pid}/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith("RssAnon")).split()[1]) * 1024


@pytest.mark.slow
@pytest.mark.parametrize("seconds", [pytest.param(6.0, marks=pytest.mark.timed), LOAD_S])
def test_two_hundred_sessions_at_once(home: Home, seconds: float) -> None:
    """P1, P8, F59: 200 sessions append at once, 20 clients ask: every turn is recorded, soon, in level memory."""
    projects(home).mkdir(parents=True)  # one that comes later is watched after five seconds only
    with running(home) as daemon:
        watched = Watched(home, daemon)
        writers = Writers(watched, 200)
        asking = [lambda over: _ask(daemon, over) for _ in range(CLIENTS)]
        with beside(lambda over: writers.keep_on(over, PAUSE_S), writers.measure, *asking):
            end = time.monotonic() + seconds
            time.sleep(seconds / 3)
            settled, logs = own_memory(daemon), list[int]()
            while time.monotonic() < end:
                logs.append(sum(path.stat().st_size for path in (home.root / "index").glob("*-wal")))
                time.sleep(1)
            grown = own_memory(daemon) - settled
        watched.flush()
        totals = watched.call("summary")["totals"]
        assert totals["turns"] == writers.turns + len(writers.lags)
        assert max(logs) < 64 * _MB
    lag = sorted(writers.lags)[int(len(writers.lags) * 0.99)]
    assert lag < 5 * noise()
    assert grown < 32 * _MB, f"{grown / _MB:.0f} MB more"
    tally.load(totals["turns"])
    rate = writers.turns / seconds
    tally.note(
        f"{seconds:.0f} s of {rate:.0f} turns/s over 200 sessions, {CLIENTS} clients asking:"
        f" lag p50 {median(writers.lags):.2f} s, p99 {lag:.2f} s, memory {grown / _MB:+.0f} MB"
    )


class Mark(NamedTuple):
    """Descriptors, threads and memory of an idle daemon."""

    sessions: int
    memory: int
    descriptors: int
    threads: int


def _rested(daemon: Daemon, sessions: int) -> Mark:
    """Waits until SQLite has dropped its cached pages, some time after the last write."""
    time.sleep(retention.CLEAN_EVERY_S * (retention.CALM_CHECKS + 2))
    return Mark(sessions, own_memory(daemon), daemon.descriptors(), daemon.threads())


@pytest.mark.slow
def test_short_sessions_for_a_long_time(home: Home) -> None:
    """F80: sessions come, are queried and deleted, for BURND_SOAK_S seconds: descriptors, threads and memory end at
    their level after the first quarter, except for a few bytes per log."""
    with running(home) as daemon:
        watched = Watched(home, daemon)
        first = _rested(daemon, _short_lives(watched, 0, SOAK_S / 4))
        last = _rested(daemon, _short_lives(watched, first.sessions, SOAK_S * 3 / 4))
        totals = watched.call("summary")["totals"]
        expected = (3 * last.sessions, last.sessions * sum_of(0, 1, 2))
        assert (totals["turns"], totals["usage"]["output"]) == expected
    assert last.descriptors <= first.descriptors + 8, (first, last)
    assert last.threads <= first.threads + 4, (first, last)
    more, sessions = last.memory - first.memory, last.sessions - first.sessions
    assert more < 8 * _MB + _A_LOG * sessions, (first, last)
    tally.load(3 * last.sessions)
    tally.note(f"{SOAK_S:.0f} s of short sessions, {sessions} after the first quarter: memory {more / _MB:+.1f} MB")


def _short_lives(watched: Watched, count: int, seconds: float) -> int:
    """Runs short sessions until the deadline; returns their number."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        _short_life(watched, count)
        count += 1
    watched.flush()
    return count


def _short_life(watched: Watched, number: int) -> None:
    name = f"short{number}"
    path = watched.append(name, whole(answers(name, 0, 3)))
    if number % 10 == 0:
        watched.flush()
        watched.call("summary", session=name)
        watched.call("sessions.search", query=f"answer of {name}")
    if number % 20 == 0:
        path.unlink()
