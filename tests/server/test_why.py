"""Causes and waste over the socket of a running daemon."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from burnd.paths import Home
from burnd.records.codec import encode
from tests.attribution.scenes import worked_example
from tests.harness.claude_code.transcript import call
from tests.queries.wasteful import in_session, wasteful_session
from tests.server.logs import conversation, write
from tests.server.wire import Wire, running, until


def furnish(home: Home) -> None:
    """A ledger with the worked example and a wasteful_session session."""
    home.root.mkdir(mode=0o700)
    entries = [*worked_example().entries, *in_session(wasteful_session(), "wasteful")]
    home.ledger.write_bytes(b"".join(encode(entry) for entry in entries))
    home.ledger.chmod(0o600)


def test_causes_and_waste_of_a_running_daemon(home: Home) -> None:
    """The worked example to the last digit; every session's causes are its summary; waste outlives an index."""
    furnish(home)
    with running(home) as daemon, daemon.wire() as wire:
        until(lambda: wire.call("summary")["backfill"]["done"])
        told = wire.call("why", session="s1")
        (result,) = [row for row in told["causes"] if row["kind"] == "call"]
        entry_and_rides = 8_000 * 3 + 20 * 8_000 * Decimal("0.3")
        arguments = 60 * 15 + 60 * 3 + 20 * 60 * Decimal("0.3")
        assert result["costUsd"] == float((entry_and_rides + arguments) / 10**6)
        for session in ("s1", "wasteful"):
            agrees(wire, session)
        found = wire.call("waste")
        assert {"reread", "retry-loop"} <= {one["kind"] for one in found["findings"]}
        assert progress(wire, "waste") == []
        wire.call("rebuild", index=True)
        assert progress(wire, "waste") != []
        assert wire.call("waste") == found


def test_a_turn_that_grows_is_explained_as_it_grows(home: Home) -> None:
    """Causes follow a live session line by line, and end where one clean read ends."""
    home.root.mkdir(mode=0o700)
    log = conversation("live")
    with running(home) as daemon, daemon.wire() as wire:
        for n in range(3):
            log.calls(f"m{n}", call(f"c{n}", "Bash", command="ls"), model="claude-sonnet-4-5")
            write(home, log, "live")
            wire.call("flush")
            log.result(f"c{n}", "x" * 400)
            write(home, log, "live")
            wire.call("flush")
            agrees(wire, "live")
        lived = wire.call("why", session="live")
        wire.call("rebuild", index=True)
        assert wire.call("why", session="live") == lived


def agrees(wire: Wire, session: str) -> None:
    told, summary = wire.call("why", session=session), wire.call("summary", session=session)
    assert told["totals"] == summary["totals"]
    assert sum(row["costUsd"] for row in told["causes"]) == pytest.approx(summary["totals"]["costUsd"], abs=1e-12)


def progress(wire: Wire, method: str) -> list[Any]:
    """Progress messages before an answer."""
    number = wire.request(method)
    heard = []
    while (line := wire.line()) is not None and line.get("id") != number:
        heard.append(line)
    return heard
