"""A fixed piece of work for a daemon, done again from where it broke off until all of it is done."""

from __future__ import annotations

import json
import os
import signal
import struct
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

from burnd.ledger.journal import Journal
from burnd.paths import Home
from burnd.records import Turn
from burnd.records.codec import digest
from tests.faults.canaries import CANARY, files_with_canary
from tests.faults.watched import Watched, answers, whole
from tests.faults.writers import LONG
from tests.folded import Folded
from tests.harness.codex.rollout import Rollout, says, thread
from tests.harness.opencode import data as opencode
from tests.server.wire import Daemon, Wire, running, until

DIES, FAILS = 1, 2
_LATER = "2099-01-01T10:00:00.000Z"  # what was forgotten until now does not keep it out
_HITS = {"early": ["a"], "late": ["b"], "codex": [thread(1)], "step": ["ses_w"]}
_TIRED_S = 120.0


class Work:
    """A short life of a home, step by step; `broken` counts the starts of the daemon."""

    def __init__(self, home: Home, **fault: str) -> None:
        self.home = home
        self.broken = 0
        self.failures: set[int] = set()  # what the daemon ended with
        self._fault = fault
        self._daemon: Daemon | None = None
        self._steps: list[Callable[[Wire], Any]] = [
            lambda wire: wire.call("flush"),
            lambda wire: wire.call("stamp", ts=_LATER, selector={"sessionId": "a"}, enrichment={"step": "plan"}),
            lambda wire: wire.call("announce", sessionId="q", contentMode="off"),
            self._say_more,
            lambda wire: wire.call("content.forget", session="b"),
            lambda wire: wire.call("rebuild", index=True),
            self._say_after,
            lambda wire: wire.call("flush"),
        ]
        self._write_logs()

    def do(self) -> None:
        """All of it, to the end."""
        try:
            for step in self._steps:
                self._do(step)
            self._stop()
        finally:
            if self._daemon is not None:
                self._daemon.kill()

    def _do(self, step: Callable[[Wire], Any]) -> None:
        deadline = time.monotonic() + _TIRED_S
        while True:
            try:
                return self._try(step)
            except (AssertionError, OSError) as error:  # it died, or it could not just now
                if time.monotonic() > deadline:
                    raise AssertionError(f"given up: {self._fault}; {self._stacks()}") from error
                self._look_after()

    def _try(self, step: Callable[[Wire], Any]) -> None:
        if self._daemon is None:
            self._daemon = Daemon(self.home, PYTHONFAULTHANDLER="1", **self._fault)
        self._daemon.wait_until_ready()
        with self._daemon.wire(60) as wire:
            step(wire)

    def _look_after(self) -> None:
        """A service manager: what ended is started again, the fault being over."""
        assert self._daemon is not None
        time.sleep(0.05)
        if (code := self._daemon.process.poll()) is not None:
            self.broken += 1
            self.failures.add(code)
            self._fault = {}
            self._daemon = None

    def _stacks(self) -> str:
        """Stacks of a daemon that does not answer."""
        assert self._daemon is not None
        self._daemon.process.send_signal(signal.SIGABRT)
        self._daemon.process.wait(60)
        return self._daemon.log.read_text(errors="replace")[-12_000:]

    def _stop(self) -> None:
        if self._daemon is not None:
            self._daemon.terminate()

    # Texts

    def _write_logs(self) -> None:
        for session in ("a", "b"):
            self._append(session, whole(answers(session, 0, 4, words=f"early {LONG}")))
        rollout = Rollout(1)
        for n in range(3):
            rollout.task()
            rollout.prompt("go")
            rollout.item(says(f"codex {n} {LONG}"))
            rollout.meter(100, 50, 1 << n, 0)
        path = self.home.root.parent / ".codex" / "sessions" / "2026" / "11" / "16" / rollout.name
        path.parent.mkdir(parents=True)
        path.write_bytes(rollout.data)
        with closing(opencode.Writer(self.home.root.parent / ".local/share/opencode/opencode.db")) as writer:
            writer.session("ses_w")
            writer.user("wu", "ses_w", "go")
            for n in range(3):
                usage = opencode.tokens(input=5, output=1 << n)
                writer.step(f"w{n}", "ses_w", "wu", opencode.text(f"step {n} {LONG}"), tokens=usage)

    def _say_more(self, wire: Wire) -> None:
        self._put("a", whole(answers("a", 0, 4, words=f"early {LONG}") + answers("a", 4, 2, words="more")))
        self._put("q", whole(answers("q", 0, 3, words=f"{CANARY} {LONG}")))
        wire.call("flush")

    def _say_after(self, _: Wire) -> None:
        early = answers("b", 0, 4, words=f"early {LONG}")
        late = [json.dumps(json.loads(line) | {"timestamp": _LATER}).encode() for line in answers("b", 4, 2, "late")]
        self._put("b", whole(early + late))

    def _append(self, session: str, data: bytes) -> None:
        path = self._path(session)
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab") as file:
            file.write(data)

    def _put(self, session: str, data: bytes) -> None:
        """Appends what is missing, so that doing it twice changes nothing."""
        path = self._path(session)
        self._append(session, data[path.stat().st_size if path.exists() else 0 :])

    def _path(self, session: str) -> Path:
        return self.home.root.parent / ".claude" / "projects" / "-home-dev-app" / f"{session}.jsonl"


def outcome(home: Home) -> dict[str, Any]:
    """The state afterwards: answers, and the folded ledger."""
    with running(home) as daemon:
        watched = Watched(home, daemon)
        watched.flush()
        found: dict[str, Any] = {"totals": watched.call("summary")["totals"]}
        for by in ("session", "model", "tag:step", "activity"):
            found[by] = sorted(map(str, watched.call("summary", by=by)["rows"]))
        for session in ("a", "b", "ses_w"):
            found[f"texts of {session}"] = watched.texts(session)
        until(lambda: _hits(watched) == _HITS, 60, lambda: str(_hits(watched)))
        found["skipped"] = watched.call("status")["ledger"]["skipped"]["count"]
        daemon.terminate()
    found["canary"] = files_with_canary(home)
    journal = Journal(home.ledger, 0)
    found["turns"] = sorted((key, digest(turn)) for key, turn in Folded(journal.read()).turns.items())
    lines = [(turn.source, turn.message_id, turn.rev) for _, _, turn in journal.read() if isinstance(turn, Turn)]
    found["turns twice"] = sorted(line for line in set(lines) if lines.count(line) > 1)
    journal.close()
    return found


def _hits(watched: Watched) -> dict[str, list[str]]:
    found = {word: watched.call("sessions.search", query=word)["hits"] for word in _HITS}
    return {word: sorted(hit["sessionId"] for hit in hits) for word, hits in found.items()}


class Counter:
    """Number of calls the shim has seen, in a shared file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.write_bytes(bytes(8))

    @property
    def calls(self) -> int:
        return int(struct.unpack("q", self.path.read_bytes())[0])


def fault(shim: Path, home: Home, at: int, kind: int, counter: Counter) -> dict[str, str]:
    """The environment in which the `at`-th change below the home goes wrong."""
    named = {"BELOW": os.fspath(home.root), "AT": str(at), "KIND": str(kind), "SEEN": os.fspath(counter.path)}
    return {"LD_PRELOAD": os.fspath(shim)} | {f"FAULT_{name}": value for name, value in named.items()}
