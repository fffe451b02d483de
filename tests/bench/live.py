"""Measures the processor time that the daemon takes for one turn of a live session.

`python -m tests.bench.live` appends turns of one session, half a second apart, and prints milliseconds per turn beside
those of an interpreter that does nothing: processor time depends on the machine and on what else runs there.
"""

from __future__ import annotations

import json
import random
import resource
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tests.bench.running import Daemon, Home, running

TURNS, BEFORE, APART_S = 50, 100, 0.5
SESSION = "44444444-0000-4000-8000-000000000001"
_SENTENCE = "the function returns a value, the index reads camelCaseWord in path/to/file.py and test_it asserts"


class LiveSession:
    """A log that grows by whole turns: a prompt or the result of the last call, a text, and mostly a call."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._random = random.Random(1)
        self._lines = self._turns = 0

    def append(self, turns: int = 1) -> None:
        lines = [line for _ in range(turns) for line in self._turn()]
        with self._path.open("ab") as log:
            log.write(b"".join(lines))

    def _turn(self) -> list[bytes]:
        n = self._turns
        self._turns += 1
        asked: Any = self._text(40)
        if n % 10:
            asked = [{"type": "tool_result", "tool_use_id": f"toolu_{n - 1}", "content": self._text(200)}]
        blocks: list[dict[str, Any]] = [{"type": "text", "text": self._text(60)}]
        if (n + 1) % 10:
            call = {"command": f"pytest tests/{self._text(2)}"}
            blocks.append({"type": "tool_use", "id": f"toolu_{n}", "name": "Bash", "input": call})
        usage = {"input_tokens": 3, "cache_creation_input_tokens": 500, "cache_read_input_tokens": 500 * n}
        lines = [self._line("user", {"role": "user", "content": asked})]
        for block in blocks:
            message: dict[str, Any] = {
                "id": f"msg_{n}",
                "role": "assistant",
                "model": "claude-opus-5-5",
                "content": [block],
            }
            stop = "end_turn" if len(blocks) == 1 else "tool_use"
            message |= {"stop_reason": stop, "usage": usage | {"output_tokens": 200}}
            lines.append(self._line("assistant", message, requestId=f"req_{n}"))
        return lines

    def _line(self, kind: str, message: dict[str, Any], **fields: str) -> bytes:
        n = self._lines
        self._lines += 1
        line = {
            "parentUuid": _uuid(n - 1) if n else None,
            "isSidechain": False,
            "type": kind,
            "uuid": _uuid(n),
            "timestamp": datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "sessionId": SESSION,
            "cwd": "/home/dev/app",
            "gitBranch": "main",
            "version": "2.1.325",
            "message": message,
        }
        return json.dumps(line | fields).encode() + b"\n"

    def _text(self, words: int) -> str:
        return " ".join(self._random.choices(_SENTENCE.split(), k=words)) + f" {self._random.randrange(10**6)}"


def _uuid(n: int) -> str:
    return f"aaaaaaaa-0000-4000-8000-{n:012d}"


def turn_ms(root: Path, turns: int = TURNS) -> float:
    """Milliseconds of processor time for one more turn, search and sums included."""
    path = root / "claude" / "projects" / "-home-dev-app" / f"{SESSION}.jsonl"
    path.parent.mkdir(parents=True)
    log = LiveSession(path)
    log.append(BEFORE)
    with running(Home(root / "run", root / "claude")) as daemon:
        _until_idle(daemon)
        begun = daemon.processor()
        for _ in range(turns):
            log.append()
            time.sleep(APART_S)
        return (daemon.processor() - begun) / turns * 1000


def _until_idle(daemon: Daemon) -> None:
    daemon.wire().close()
    before = -1.0
    while (now := daemon.processor()) - before > 0.05:
        before = now
        time.sleep(3)


def bare_ms(runs: int = 20) -> float:
    """Milliseconds of processor time of an interpreter that does nothing."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    for _ in range(runs):
        subprocess.run([sys.executable, "-I", "-c", "pass"], check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) / runs * 1000


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        live = turn_ms(Path(folder))
    print(f"{live:.1f} ms of processor time for a live turn; a bare interpreter takes {bare_ms():.1f} ms")


if __name__ == "__main__":
    main()
