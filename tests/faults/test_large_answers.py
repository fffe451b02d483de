"""Answers too large for one frame come in pages that are never all in memory."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from burnd.paths import Home
from burnd.records.codec import encode
from tests.faults import tally
from tests.make import at, turn
from tests.server.wire import Daemon, Wire, running

RECORDS = 1_000_000
_A_SESSION = 1000


@pytest.mark.slow
def test_a_million_records_are_listed_in_pages(home: Home) -> None:
    """F71: every one of them, once, in frames of at most 8 MB, while the daemon stays below 150 MB."""
    home.root.mkdir(parents=True, mode=0o700)
    with home.ledger.open("wb") as ledger:
        for lines in _lines():
            ledger.write(lines)
    with running(home, ready=False) as daemon:  # builds the index
        daemon.wait_until_ready(900)
        assert daemon.terminate() == 0
    with running(home) as daemon, daemon.wire(300) as wire:
        assert sum(_listed(wire)) == RECORDS
        peak = _peak_mb(daemon)
        assert daemon.terminate() == 0
    assert peak < 150
    tally.note(f"{RECORDS:,} records listed in pages: peak memory {peak:.0f} MB")


def _lines() -> Iterator[bytes]:
    """A ledger, session by session; a line differs from the one before in its ids, its number and its time."""
    made = encode(turn("MESSAGE", session_id="SESSION", turn_index=777_777, ts=at(0)))
    for session in range(RECORDS // _A_SESSION):
        named = made.replace(b"SESSION", b"s%d" % session)
        lines = []
        for n in range(_A_SESSION):
            moment = at(session * 3000 + n * 2).encode()
            line = named.replace(b"MESSAGE", b"m%d-%d" % (session, n)).replace(b"777777", b"%d" % n)
            lines.append(line.replace(at(0).encode(), moment))
        yield b"".join(lines)


def _listed(wire: Wire) -> Iterator[int]:
    """Sizes of the pages; each begins after the end of the one before, so there are no duplicates."""
    after, last = None, ("", 0)
    for number in count():
        page: dict[str, Any] = wire.call("export", limit=5000, **({"after": after} if after else {}))
        places = [(one["ts"], one["turnIndex"]) for one in page["turns"]]
        assert places == sorted(places)
        assert not places or last < places[0]
        yield len(places)
        after, last = page["next"], places[-1] if places else last
        if after is None:
            return
        assert number < RECORDS


def _peak_mb(daemon: Daemon) -> float:
    status = Path(f"/proc/{daemon.process.pid}/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith("VmHWM")).split()[1]) / 1024
