"""F79, F50: the machine's clock is set, ahead or back, under a running daemon."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from burnd.paths import Home
from burnd.records.times import to_ms
from tests.faults import tally
from tests.faults.shims import built, needs_shims
from tests.faults.watched import Watched, answers, sum_of, whole
from tests.server.wire import running, until

_HOUR, _YEAR = 3600, 365 * 86400
_AHEAD, _BEHIND = "the clock ran ahead", "the clock is years behind"


class Clock:
    """The wall clock of the daemons that are started under it, which a test sets."""

    def __init__(self, home: Home, folder: Path) -> None:
        self._home, self._off, self._library = home, folder / "off", built("clock", folder)
        self.set(0)

    def set(self, by: int) -> None:
        """So many seconds ahead of the true time, or behind it."""
        self._by = by
        self._off.write_text(str(by))

    @contextmanager
    def life(self) -> Iterator[Watched]:
        """A daemon that keeps content for 3000 days."""
        shim: dict[str, Any] = {"LD_PRELOAD": str(self._library), "CLOCK_OFF": str(self._off)}
        with running(self._home, RELAYBURN_CONTENT_TTL_DAYS="3000", **shim) as daemon:
            yield Watched(self._home, daemon)
            assert daemon.terminate() == 0

    def assert_is_the_daemons(self, watched: Watched) -> None:
        """Without this, a library that does nothing would prove everything."""
        watched.call("stamp", selector={"sessionId": "s"}, enrichment={"by": str(self._by)})
        said = next(one for one in watched.call("stamps.list")["stamps"] if one["enrichment"] == {"by": str(self._by)})
        assert abs(to_ms(said["ts"]) - (time.time() + self._by) * 1000) < 60_000, said


@pytest.fixture
def clock(home: Home, tmp_path: Path) -> Clock:
    return Clock(home, tmp_path)


@needs_shims
def test_retention_does_not_believe_a_clock_that_leapt(home: Home, clock: Clock) -> None:
    """F50: thirty years ahead of the last run, retention refuses and reports it, and no text is deleted."""
    _leap(home, clock)
    tally.faults()


@needs_shims
@pytest.mark.slow
def test_a_clock_that_is_set_right_again(home: Home, clock: Clock) -> None:
    """F50: nothing is missing, and the warning is gone. A control: the prune command, which trusts the clock, deletes
    everything at the same wrong time."""
    _leap(home, clock)
    clock.set(0)
    with clock.life() as watched:
        until(lambda: _AHEAD not in str(watched.call("status")["degraded"]), 60, watched.daemon.why)
        assert len(watched.texts("s")) == 3
    shutil.rmtree(home.index)
    clock.set(30 * _YEAR)
    with clock.life() as watched:
        until(lambda: "retention.refused" in watched.daemon.log.read_text(), 60, watched.daemon.why)
        assert len(watched.texts("s")) == 3
        assert watched.call("content.prune")["files"] == 1
    tally.faults()


@needs_shims
def test_logs_read_while_the_clock_is_years_behind(home: Home, clock: Clock) -> None:
    """F50: when the clock is right again nothing is pruned, neither by the timer, which waits, nor by the command."""
    clock.set(-16 * _YEAR)
    with clock.life() as watched:
        watched.append("s", whole(answers("s", 0, 3)))
        watched.flush()
        until(lambda: _BEHIND in str(watched.call("status")["degraded"]), 60, watched.daemon.why)
    clock.set(0)
    with clock.life() as watched:
        until(lambda: _AHEAD in str(watched.call("status")["degraded"]), 60, watched.daemon.why)
        assert watched.call("content.prune")["files"] == 0
        assert len(watched.texts("s")) == 3
    tally.faults()


def _leap(home: Home, clock: Clock) -> None:
    """A life in which three answers are recorded, and one for which thirty years have passed."""
    with clock.life() as watched:
        watched.append("s", whole(answers("s", 0, 3)))
        watched.flush()
        assert len(watched.texts("s")) == 3
    clock.set(30 * _YEAR)
    with clock.life() as watched:
        until(lambda: "retention.refused" in watched.daemon.log.read_text(), 60, watched.daemon.why)
        assert _AHEAD in str(watched.call("status")["degraded"])
        assert len(watched.texts("s")) == 3
    assert list(home.content.glob("*s*.jsonl"))


@needs_shims
@pytest.mark.slow
@pytest.mark.parametrize("by", [-70 * _YEAR, -40 * _YEAR, -_HOUR, _HOUR, 30 * _YEAR])
def test_a_clock_that_is_set_changes_nothing(home: Home, clock: Clock, by: int) -> None:
    """F79: what is open settles in its time, what comes is seen at once, nothing is deleted, nothing is twice."""
    with clock.life() as watched:
        watched.append("s", whole(answers("s", 0, 3)))
        watched.until_recorded("s", sum_of(0, 1, 2))
        clock.set(by)
        clock.assert_is_the_daemons(watched)
        watched.append("s", whole(answers("s", 3, 3)))
        watched.until_recorded("s", sum_of(*range(6)))
        # The last answer of a log settles after ten seconds without a line, independent of the wall clock.
        until(lambda: b"s-m5" in home.ledger.read_bytes(), 60, watched.daemon.why)
        assert len(watched.texts("s")) == 6
        until(lambda: watched.call("sessions.search", query="answer")["hits"], 60, watched.daemon.why)
    turns = [json.loads(line)["record"] for line in home.ledger.read_bytes().splitlines() if b'"kind":"turn"' in line]
    assert [(turn["messageId"], turn["rev"]) for turn in turns] == [(f"s-m{n}", 1) for n in range(6)]
    tally.faults()
