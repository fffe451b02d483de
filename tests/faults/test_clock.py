"""F79, F50: the machine's clock is set, ahead or back, under a running daemon."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from burnd.paths import Home
from tests.faults import tally
from tests.faults.shims import built, needs_shims
from tests.faults.watched import Watched, answers, sum_of, whole
from tests.server.wire import running, until

_HOUR, _YEAR = 3600, 365 * 86400


@needs_shims
@pytest.mark.slow
@pytest.mark.parametrize("by", [-70 * _YEAR, -40 * _YEAR, -_HOUR, _HOUR, 30 * _YEAR])
def test_a_clock_that_is_set_changes_nothing(home: Home, tmp_path: Path, by: int) -> None:
    """F79, F50: what is open settles in its time, what comes is seen at once, nothing is deleted, nothing is twice."""
    off = tmp_path / "off"
    off.write_text("0")
    shim: dict[str, Any] = {"LD_PRELOAD": str(built("clock", tmp_path)), "CLOCK_OFF": str(off)}
    with running(home, RELAYBURN_CONTENT_TTL_DAYS="3000", **shim) as daemon:
        watched = Watched(home, daemon)
        watched.append("s", whole(answers("s", 0, 3)))
        watched.until_recorded("s", sum_of(0, 1, 2))
        off.write_text(str(by))
        watched.append("s", whole(answers("s", 3, 3)))
        watched.until_recorded("s", sum_of(*range(6)))
        # The last answer of a log settles after ten seconds without a line, whatever the wall clock says.
        until(lambda: b"s-m5" in home.ledger.read_bytes(), 60, daemon.why)
        assert len(watched.texts("s")) == 6
        until(lambda: watched.call("sessions.search", query="answer")["hits"], 60, daemon.why)
        assert daemon.terminate() == 0
    turns = [json.loads(line)["record"] for line in home.ledger.read_bytes().splitlines() if b'"kind":"turn"' in line]
    assert [(turn["messageId"], turn["rev"]) for turn in turns] == [(f"s-m{n}", 1) for n in range(6)]
    tally.faults()
