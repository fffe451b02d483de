"""Writes logs of three harnesses and updates the model."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from burnd.records.times import to_iso
from tests.faults.known import Known, now_ms, word_of
from tests.harness.claude_code.transcript import Transcript, text
from tests.harness.codex.rollout import Rollout, says
from tests.harness.opencode import data as opencode

LONG = "and so on " * 300  # stored apart, compressed


class Log:
    """One log on disk, and what is still to be written of its last line."""

    def __init__(self, path: Path, session: str, lines: list[bytes]) -> None:
        self.path = path
        self.session = session
        self.lines = lines
        self.rest = b""
        self.waiting: dict[str, tuple[str, int]] = {}  # turns whose last line is incomplete
        self.word = ""  # said by that line

    def write(self, data: bytes) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("ab") as file:
            file.write(data)

    def add(self, lines: list[bytes]) -> None:
        self.write(whole(lines))
        self.lines += lines

    def add_half(self, lines: list[bytes]) -> None:
        """All of it but for half of its last line."""
        cut = len(lines[-1]) // 2
        self.write(whole(lines[:-1]) + lines[-1][:cut])
        self.rest = lines[-1][cut:] + b"\n"
        self.lines += lines

    def replace(self) -> None:
        """Another file with all of its lines takes its place."""
        new = self.path.with_suffix(".new")
        new.parent.mkdir(parents=True, exist_ok=True)
        new.write_bytes(whole(self.lines))
        os.replace(new, self.path)

    def finish(self, known: Known) -> None:
        """Completes half-written lines."""
        self.write(self.rest)
        known.turns |= self.waiting
        if self.word and self.waiting:
            known.words[self.word] = self.session
        self.rest, self.waiting, self.word = b"", {}, ""


def whole(lines: list[bytes]) -> bytes:
    return b"".join(line + b"\n" for line in lines)


class ClaudeCode:
    """Session files that grow, are cut, replaced, deleted, and copied by forks and resumes."""

    def __init__(self, projects: Path, known: Known) -> None:
        self.folder = projects / "-home-dev-app"
        self.known = known
        self.logs: dict[str, Log] = {}

    def log(self, session: str) -> Log:
        """A session's log, its last line whole."""
        log = self.logs.setdefault(session, Log(self.folder / f"{session}.jsonl", session, []))
        log.finish(self.known)
        return log

    def converse(self, session: str, *, words: str = "") -> None:
        """A prompt and its answer, at the end of a session's log."""
        log = self.log(session)
        number, lines = self._exchange(log, words)
        log.add(lines)
        self._tell(log, number, quiet=bool(words))

    def converse_half(self, session: str) -> None:
        """The same, cut in the middle of the answer's line."""
        log = self.log(session)
        number, lines = self._exchange(log)
        log.add_half(lines)
        log.waiting, log.word = {f"m{number}": (session, number)}, word_of(number)

    def replace(self, session: str) -> None:
        """Another file with the same lines, and more, takes the log's place."""
        log = self.log(session)
        number, lines = self._exchange(log)
        log.lines += lines
        log.replace()
        self._tell(log, number)

    def rewrite(self, session: str) -> None:
        """The same file is emptied, and written again with the same lines and more."""
        log = self.log(session)
        number, lines = self._exchange(log)
        log.lines += lines
        log.path.parent.mkdir(parents=True, exist_ok=True)
        log.path.write_bytes(whole(log.lines))
        self._tell(log, number)

    def rotate(self, session: str) -> None:
        """Renames the log to a name that is not read, and begins another in its place."""
        log = self.log(session)
        if log.path.exists():
            log.path.rename(log.path.with_suffix(".old"))
        log.lines = []
        self.converse(session)

    def cut(self, session: str) -> None:
        log = self.log(session)
        log.lines = log.lines[: len(log.lines) // 2]
        if log.path.exists():
            with log.path.open("r+b") as file:
                file.truncate(len(whole(log.lines)))

    def delete(self, session: str) -> None:
        log = self.log(session)
        log.path.unlink(missing_ok=True)
        log.lines = []

    def fork(self, session: str) -> None:
        """A copy under another session id, which continues. Copied messages cost nothing."""
        copies = []
        for line in self.log(session).lines:
            said = json.loads(line)
            said["forkedFrom"] = {"sessionId": said["sessionId"], "messageUuid": said["uuid"]}
            copies.append(said)
        self._go_on(copies)

    def resume(self, session: str) -> None:
        """Like the first releases: a new file with copied lines, new times and no request ids."""
        copies = [json.loads(line) | {"timestamp": _now()} for line in self.log(session).lines]
        for said in copies:
            said.pop("requestId", None)
        self._go_on(copies)

    def _go_on(self, copies: list[dict[str, Any]]) -> None:
        name = f"s{len(self.logs)}"
        self.log(name).add([json.dumps(said | {"sessionId": name}).encode() for said in copies])
        self.converse(name)

    def _exchange(self, log: Log, words: str = "") -> tuple[int, list[bytes]]:
        number = self.known.next()
        script = Transcript(session=log.session, prefix=f"{log.session}-{number}-u")
        script.last = json.loads(log.lines[-1])["uuid"] if log.lines else None
        script.prompt(f"question {number} {words}", ts=_now())
        said = text(f"answer {words or word_of(number)} {LONG}")
        script.says(f"m{number}", said, output=number, ts=_now())
        return number, script.lines

    def _tell(self, log: Log, number: int, *, quiet: bool = False) -> None:
        self.known.turns[f"m{number}"] = (log.session, number)
        if not quiet:
            self.known.words[word_of(number)] = log.session


class Codex:
    """Rollouts that grow, are replaced by copies of themselves, and are archived."""

    def __init__(self, folder: Path, known: Known) -> None:
        self.folder = folder
        self.known = known
        self._rollouts: dict[int, Rollout] = {}
        self._logs: dict[int, Log] = {}

    def converse(self, number: int, *, half: bool) -> None:
        """A prompt, its answer and its cost, or only half of the answer's first line."""
        rollout, log = self._rollout(number)
        n = self.known.next()
        rollout.clock = max(rollout.clock, now_ms())
        rollout.task()
        rollout.prompt(f"question {n}")
        begun = len(rollout.lines)
        rollout.item(says(f"answer {word_of(n)} {LONG}"))
        rollout.meter(100 + n, 40, n, 0)
        lines, rollout.lines = rollout.lines, []
        if half:
            log.add_half(lines[: begun + 1])
            log.rest += whole(lines[begun + 1 :])
            log.lines += lines[begun + 1 :]
            log.waiting, log.word = {f"c{n}": (rollout.thread, n)}, word_of(n)
        else:
            log.add(lines)
            self.known.turns[f"c{n}"] = (rollout.thread, n)
            self.known.words[word_of(n)] = rollout.thread

    def replace(self, number: int) -> None:
        self._rollout(number)[1].replace()

    def archive(self, number: int) -> None:
        """Moves the log; a later conversation continues there."""
        _, log = self._rollout(number)
        new = self.folder / "archived_sessions" / log.path.name
        new.parent.mkdir(parents=True, exist_ok=True)
        if log.path.exists():
            os.rename(log.path, new)
        log.path = new

    def half_said(self) -> list[Log]:
        return [log for log in self._logs.values() if log.waiting]

    def _rollout(self, number: int) -> tuple[Rollout, Log]:
        if number not in self._rollouts:
            rollout = self._rollouts[number] = Rollout(number)
            path = self.folder / "sessions" / "2026" / "11" / "16" / rollout.name
            self._logs[number] = Log(path, rollout.thread, [])
        self._logs[number].finish(self.known)
        return self._rollouts[number], self._logs[number]


class Opencode:
    """A database with several sessions whose rows are filled late, taken back and deleted."""

    def __init__(self, path: Path, known: Known) -> None:
        self.known = known
        self.steps: dict[str, list[str]] = {"ses_a": [], "ses_b": []}  # those that are still there
        self._unfinished: dict[str, int] = {}
        self._writer = opencode.Writer(path)
        for session in self.steps:
            self._writer.session(session)
            self._writer.user(f"{session}-u", session, "go")

    def close(self) -> None:
        self._writer.close()

    def step(self, session: str, *, done: bool) -> None:
        number = self.known.next()
        name = f"oa{number}"
        self._writer.clock = max(self._writer.clock, now_ms())
        at = self._writer.tick()
        said = {"type": "text", "text": f"step {word_of(number)} {LONG}", "time": {"start": at, "end": at}}
        usage = opencode.tokens(input=7, output=number)
        self._writer.step(name, session, f"{session}-u", said, tokens=usage, done=done, at=at)
        self.steps[session].append(name)
        self.known.turns[name] = (session, number if done else 0)
        if done:
            self.known.words[word_of(number)] = session
        else:
            self._unfinished[name] = at

    def finish_steps(self) -> None:
        """Ends open steps, with their usage."""
        for session, steps in self.steps.items():
            for name in steps:
                if name in self._unfinished:
                    self._finish(name, session, self._unfinished.pop(name))

    def _finish(self, name: str, session: str, begun: int) -> None:
        number = self.known.next()
        usage = opencode.tokens(input=7, output=number)
        finish = {"type": "step-finish", "reason": "stop", "cost": 0, "tokens": usage}
        self._writer.part(name, session, finish)
        ended = {"created": begun, "completed": self._writer.tick()}
        data = opencode.assistant(f"{session}-u", begun) | {"tokens": usage, "finish": "stop", "time": ended}
        self._writer.update(name, data)
        self.known.turns[name] = (session, number)

    def revert(self, session: str) -> None:
        """The newest step is taken back; it was paid for, and its row's number is given out again."""
        if self.steps[session]:
            self._delete(self.steps[session].pop())

    def drop(self, session: str) -> None:
        """A session is deleted with all its rows, and begun again under the same numbers."""
        for name in self.steps[session]:
            self._delete(name)
        self.steps[session].clear()
        self._writer.delete(f"{session}-u")
        self._writer.user(f"{session}-u", session, "again")

    def _delete(self, name: str) -> None:
        self._writer.delete(name)
        self._unfinished.pop(name, None)
        self.known.words.pop(word_of(int(name[2:])), None)


def _now() -> str:
    return to_iso(now_ms())
