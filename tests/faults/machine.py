"""A machine on which two harnesses write, files are lost and the daemon dies, with a model of what must be known."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from burnd.paths import Home
from tests.readers import opencode_data as opencode
from tests.readers.transcript import Transcript, text
from tests.server.logs import projects
from tests.server.test_spool import leave, stamped
from tests.server.wire import Daemon, Wire, until

_SHIM = Path(__file__).parents[1] / "shim" / "full_disk.c"
PATIENCE_S = 120.0


class Log:
    """One transcript on disk, and what is still to be written of its last line."""

    def __init__(self, path: Path, session: str, lines: list[bytes]) -> None:
        self.path = path
        self.session = session
        self.lines = lines
        self.rest = b""
        self.waiting: dict[str, int] = {}  # what is told by a line that is not whole yet

    def write(self, data: bytes) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("ab") as file:
            file.write(data)


class Machine:
    """What happens on it, and the model: turns by message, tags by session, words that must be found."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="burnd-"))
        self.home = Home(self.folder / "home")
        self.turns: dict[str, int] = {}  # message id: output tokens
        self.tags: dict[str, dict[str, str]] = {}
        self.words: dict[str, str] = {}  # word: session
        self.logs: dict[str, Log] = {}
        self.steps: list[str] = []  # of opencode's, those that are still in its database
        self.unfinished: dict[str, int] = {}
        self.daemon: Daemon | None = None
        self._count = 0
        self._full = self.folder / "full"
        self._shim = self.folder / "full_disk.so"
        subprocess.run(["gcc", "-shared", "-fPIC", "-O1", "-o", str(self._shim), str(_SHIM), "-ldl"], check=True)
        self._opencode = opencode.Writer(self.folder / ".local" / "share" / "opencode" / "opencode.db")
        self._opencode.session("ses_oc")
        self._opencode.user("ou", "ses_oc", "go")

    # The daemon

    def start(self) -> None:
        self.daemon = Daemon(
            self.home, LD_PRELOAD=str(self._shim), FULL_BELOW=str(self.home.root), FULL_WHILE=str(self._full)
        )
        self.daemon.wait_until_ready()

    def stop(self, *, kill: bool) -> None:
        if self.daemon is None:
            return
        if kill:
            self.daemon.kill()
        else:
            assert self.daemon.terminate() == 0, self.daemon.why()
        self.daemon = None

    def lose_index(self) -> None:
        self.stop(kill=False)
        shutil.rmtree(self.home.root / "index", ignore_errors=True)

    def end(self) -> None:
        if self.daemon is not None:
            self.daemon.kill()
        self._opencode.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def settle(self) -> None:
        """Everything that can be read now is recorded."""
        if self.daemon is None:
            self.start()
        assert self.daemon is not None
        with self.daemon.wire(PATIENCE_S) as wire:
            answer = wire.call("flush")
            assert all(source["flushed"] for source in answer["sources"]), answer

    # Claude Code

    def converse(self, session: str) -> None:
        """A prompt and its answer, at the end of a session's log."""
        log = self._log(session)
        self._finish(log)
        lines, told = self._exchange(log)
        log.write(b"".join(line + b"\n" for line in lines))
        log.lines += lines
        self.turns |= told

    def converse_half(self, session: str) -> None:
        """The same, cut in the middle of the answer's line."""
        log = self._log(session)
        self._finish(log)
        lines, log.waiting = self._exchange(log)
        cut = len(lines[-1]) // 2
        log.write(b"".join(line + b"\n" for line in lines[:-1]) + lines[-1][:cut])
        log.rest = lines[-1][cut:] + b"\n"
        log.lines += lines

    def cut(self, session: str) -> None:
        """Half of the log is gone; what it said was recorded."""
        log = self._log(session)
        self._finish(log)
        self.settle()
        log.lines = log.lines[: len(log.lines) // 2]
        if log.path.exists():
            with log.path.open("r+b") as file:
                file.truncate(sum(len(line) + 1 for line in log.lines))

    def replace(self, session: str) -> None:
        """Another file with the same lines, and more, takes the log's place."""
        log = self._log(session)
        self._finish(log)
        lines, told = self._exchange(log)
        log.lines += lines
        new = log.path.with_suffix(".new")
        new.parent.mkdir(parents=True, exist_ok=True)
        new.write_bytes(b"".join(line + b"\n" for line in log.lines))
        os.replace(new, log.path)
        self.turns |= told

    def delete(self, session: str) -> None:
        log = self._log(session)
        self._finish(log)
        self.settle()
        log.path.unlink(missing_ok=True)
        log.lines = []

    def branch(self, session: str) -> str:
        """A copy of the log as another session's, which goes on by itself. What was copied costs nothing."""
        log = self._log(session)
        self._finish(log)
        name = f"s{len(self.logs)}"
        copies = []
        for line in log.lines:
            said = json.loads(line)
            said["forkedFrom"] = {"sessionId": said["sessionId"], "messageUuid": said["uuid"]}
            copies.append(json.dumps(said | {"sessionId": name}).encode())
        self.logs[name] = Log(self._path(name), name, copies)
        self.logs[name].write(b"".join(line + b"\n" for line in copies))
        self.converse(name)
        return name

    def _log(self, session: str) -> Log:
        if session not in self.logs:
            self.logs[session] = Log(self._path(session), session, [])
        return self.logs[session]

    def _path(self, session: str) -> Path:
        return projects(self.home) / "-home-dev-app" / f"{session}.jsonl"

    def _finish(self, log: Log) -> None:
        log.write(log.rest)
        self.turns |= log.waiting
        log.rest, log.waiting = b"", {}

    def _exchange(self, log: Log) -> tuple[list[bytes], dict[str, int]]:
        self._count += 1
        n = self._count
        script = Transcript(session=log.session, prefix=f"{log.session}-{n}-u")
        script.last = json.loads(log.lines[-1])["uuid"] if log.lines else None
        script.prompt(f"question {n}", ts=_now())
        script.says(f"m{n}", text(f"answer word{n}x " + "and so on " * 300), output=n, ts=_now())
        self.words[f"word{n}x"] = log.session
        return script.lines, {f"m{n}": n}

    # opencode

    def step(self, *, done: bool) -> None:
        self._count += 1
        name = f"oa{self._count}"
        usage = opencode.tokens(input=7, output=self._count)
        self._opencode.step(name, "ses_oc", "ou", opencode.text(f"step {name}"), tokens=usage, done=done)
        self.steps.append(name)
        if done:
            self.turns[name] = self._count
        else:
            self.turns[name] = 0
            self.unfinished[name] = self._opencode.clock

    def finish_steps(self) -> None:
        """What was begun ends, with its usage."""
        for name, created in self.unfinished.items():
            if name in self.steps:
                self._count += 1
                usage = opencode.tokens(input=7, output=self._count)
                finish = {"type": "step-finish", "reason": "stop", "cost": 0, "tokens": usage}
                self._opencode.part(name, "ses_oc", finish)
                ended = {"created": created, "completed": self._opencode.tick()}
                data = opencode.assistant("ou", created) | {"tokens": usage, "finish": "stop", "time": ended}
                self._opencode.update(name, data)
                self.turns[name] = self._count
        self.unfinished.clear()

    def revert(self) -> None:
        """The newest step is taken back; it was paid for, and its row's number is given out again."""
        if self.steps:
            self.settle()
            name = self.steps.pop()
            self.unfinished.pop(name, None)
            self._opencode.delete(name)

    def drop_session(self) -> None:
        """opencode's session is deleted with all its rows, and begun again under the same numbers."""
        self.settle()
        self._opencode.delete(*self.steps, "ou")
        self.steps.clear()
        self.unfinished.clear()
        self._opencode.user("ou", "ses_oc", "again")

    # People

    def stamp(self, session: str, value: str) -> None:
        record = stamped(session, step=value)
        self._count += 1
        record["ts"] = _now()
        if self.daemon is None:
            leave(self.home.spool, record)
        else:
            with self.daemon.wire(PATIENCE_S) as wire:
                wire.call("stamp", **{name: record[name] for name in ("ts", "selector", "enrichment")})
        self.tags.setdefault(session, {})["step"] = value

    def prune(self) -> None:
        """All that was said goes."""
        self.settle()
        assert self.daemon is not None
        with self.daemon.wire(PATIENCE_S) as wire:
            wire.call("content.prune", olderThanDays=0)
        half = {f"word{message[1:]}x" for log in self.logs.values() for message in log.waiting}
        self.words = {word: session for word, session in self.words.items() if word in half}

    def fill_disk(self) -> None:
        self._full.touch()

    def free_disk(self) -> None:
        self._full.unlink(missing_ok=True)

    # What must be known

    def check(self) -> None:
        """The daemon's answers are the model's."""
        self.free_disk()
        self.settle()
        assert self.daemon is not None
        with self.daemon.wire(PATIENCE_S) as wire:
            self._check_totals(wire)
            self._check_tags(wire)
            self._check_words(wire)

    def _check_totals(self, wire: Wire) -> None:
        assert self.daemon is not None
        totals = wire.call("summary")["totals"]
        known = (totals["turns"], totals["usage"]["output"])
        assert known == (len(self.turns), sum(self.turns.values())), self.daemon.why()

    def _check_tags(self, wire: Wire) -> None:
        known = {s for s in self.tags if s in self.logs and self.logs[s].lines}
        rows = {row["key"]: row for row in wire.call("summary", by="tag:step", limit=1000)["rows"]}
        for session in known:
            assert self.tags[session]["step"] in rows, (session, rows.keys())

    def _check_words(self, wire: Wire) -> None:
        waiting = {f"word{message[1:]}x" for log in self.logs.values() for message in log.waiting}
        for word in self.words.keys() - waiting:
            until(lambda w=word: self._found(wire, w), 30.0, lambda w=word: f"{w} is not found")  # type: ignore[misc]

    @staticmethod
    def _found(wire: Wire, word: str) -> list[Any]:
        found: list[Any] = wire.call("sessions.search", query=word)["hits"]
        return found


def _now() -> str:
    """Real time: what was pruned up to now does not come back, what is said later does."""
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
