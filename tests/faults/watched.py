"""A running daemon and the logs it watches. The n-th answer of a session has 2**n output tokens, so a sum shows which
were recorded, and duplicates."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from burnd.paths import Home
from tests.harness.claude_code.transcript import Transcript, text
from tests.server.logs import projects
from tests.server.wire import Daemon, running, until


def answers(session: str, first: int, count: int, words: str = "answer") -> list[bytes]:
    """Lines of a session from its `first` answer on."""
    log = Transcript(session=session, prefix=f"{session}-{first}-u")
    for n in range(first, first + count):
        moment = f"2026-11-16T10:{n % 60:02d}:00.000Z"
        log.says(f"{session}-m{n}", text(f"{words} {n} of {session}"), output=1 << n, ts=moment)
    return log.lines


def whole(lines: list[bytes]) -> bytes:
    return b"".join(line + b"\n" for line in lines)


def sum_of(*numbers: int) -> int:
    return sum(1 << n for n in numbers)


def turns_in(home: Home) -> list[tuple[str, int]]:
    """The turns that the ledger holds, by message and revision: none may be there twice."""
    lines = [line for line in home.ledger.read_bytes().splitlines() if b'"kind":"turn"' in line]
    return [(turn["messageId"], turn["rev"]) for turn in (json.loads(line)["record"] for line in lines)]


class Watched:
    """Shared by the tests of one file; every test has its own sessions."""

    def __init__(self, home: Home, daemon: Daemon) -> None:
        self.home = home
        self.daemon = daemon

    @property
    def root(self) -> Path:
        return projects(self.home)

    def path(self, session: str) -> Path:
        path = self.root / "-home-dev-app" / f"{session}.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        return path

    def append(self, session: str, data: bytes) -> Path:
        path = self.path(session)
        with path.open("ab") as file:
            file.write(data)
        return path

    def stop(self) -> None:
        """Stops the daemon with SIGSTOP; returns when all threads are stopped."""
        self.daemon.process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, self.daemon.process.pid, os.WSTOPPED | os.WNOWAIT)

    def go_on(self) -> None:
        self.daemon.process.send_signal(signal.SIGCONT)

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        with self.daemon.wire(120) as wire:
            return wire.call(method, **params)

    def flush(self) -> None:
        self.call("flush")

    def outputs(self, session: str) -> int:
        """Recorded outputs of a session, without a flush."""
        try:
            totals = self.call("summary", session=session)["totals"]
        except AssertionError:  # the daemon has not heard of it yet
            return 0
        found: int = totals["usage"]["output"]
        return found

    def recorded(self, session: str) -> int:
        self.flush()
        return self.outputs(session)

    def until_recorded(self, session: str, outputs: int, seconds: float = 60.0) -> None:
        """Waits for recording without a flush."""
        until(lambda: self.outputs(session) == outputs, seconds, lambda: f"{self.outputs(session)} is not {outputs}")

    def texts(self, session: str) -> list[str]:
        """Stored texts."""
        records = self.call("content.read", session=session, limit=200)["records"]
        return [record["text"] for record in records if record.get("text") is not None]

    def rewinds(self) -> int:
        """Number of times a log was read again from its start."""
        return self.daemon.log.read_text().count("source.rewound")

    def counts(self) -> dict[str, int]:
        (source,) = [s for s in self.call("status")["sources"] if s["name"] == "claude-code"]
        found: dict[str, int] = source["counts"]
        return found


EVERYTHING = sum_of(*range(12))


SESSIONS = ("a", "b", "c")


@contextmanager
def started(home: Home, **more: Any) -> Iterator[Watched]:
    with running(home, **more) as daemon:
        yield Watched(home, daemon)


def all_reports(watched: Watched) -> dict[str, Any]:
    rows = {by: watched.call("summary", by=by)["rows"] for by in ("session", "model", "tag:step", "activity")}
    return {"totals": watched.call("summary")["totals"], **rows}
