"""A daemon for tests, and a raw socket client."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

from burnd.paths import Home
from tests import warm

PROJECT = Path(__file__).parents[2]
_BOUND_S = 5.0
_ids = iter(range(1, 1 << 60))


class Wire:
    """One connection. Everything it does has a deadline."""

    def __init__(self, path: Path | str, timeout: float = 60.0, bound_s: float = _BOUND_S) -> None:
        self.socket = _connected(str(path), bound_s)
        self.socket.settimeout(timeout)
        self._rest = b""

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def request(self, method: str, **params: Any) -> int:
        number = next(_ids)
        self.send(json.dumps({"jsonrpc": "2.0", "id": number, "method": method, "params": params}).encode() + b"\n")
        return number

    def line(self) -> dict[str, Any] | None:
        """The next line; None when the other end has closed."""
        while b"\n" not in self._rest:
            try:
                data = self.socket.recv(1 << 16)
            except ConnectionResetError:
                return None
            if not data:
                return None
            self._rest += data
        line, _, self._rest = self._rest.partition(b"\n")
        found: dict[str, Any] = json.loads(line)
        return found

    def ask(self, method: str, **params: Any) -> dict[str, Any]:
        """The whole answer to a request, notifications passed over."""
        number = self.request(method, **params)
        while (found := self.line()) is not None:
            if "method" not in found:
                assert found["id"] in (number, None), found
                return found
        raise AssertionError("the daemon closed the connection")

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        answer = self.ask(method, **params)
        assert "result" in answer, answer
        found: dict[str, Any] = answer["result"]
        return found

    def error(self, method: str, **params: Any) -> dict[str, Any]:
        answer = self.ask(method, **params)
        assert "error" in answer, answer
        found: dict[str, Any] = answer["error"]
        return found

    def close(self) -> None:
        self.socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _connected(path: str, bound_s: float) -> socket.socket:
    """The socket file appears a moment before its listener."""
    patience = time.monotonic() + bound_s
    while True:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            connection.connect(path)  # blocking: with a timeout, a full backlog would be an error at once
        except ConnectionRefusedError:
            connection.close()
            if time.monotonic() > patience:
                raise
            time.sleep(0.02)
        except BaseException:
            connection.close()
            raise
        else:
            return connection


def environment(home: Home, **more: str) -> dict[str, str]:
    return {
        "PATH": os.environ["PATH"],
        "HOME": str(home.root.parent),
        "RELAYBURN_HOME": str(home.root),
        "RELAYBURN_CONTENT_TTL_DAYS": "forever",
        **more,
    }


class Daemon:
    """A daemon in a separate process, with its log in a file."""

    def __init__(
        self,
        home: Home,
        *arguments: str,
        log_level: str = "info",
        script: str = "burnd",
        tree: str = str(PROJECT),
        **more: str,
    ) -> None:
        self.home = home
        self.socket = Path(more.get("BURND_SOCKET", home.root / "burnd.sock"))
        self.log = home.root.parent / "daemon.log"
        words = ["run", "--log-format", "json", "--log-level", log_level, *arguments]
        env = environment(home, **more)
        with self.log.open("ab") as log:
            self.process: subprocess.Popen[bytes] = warm.Popen(
                [sys.executable, "-m", script, *words],
                env=env,
                cwd=tree,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def wire(self, timeout: float = 60.0) -> Wire:
        return Wire(self.socket, timeout)

    def wait_until_ready(self, seconds: float = 90.0) -> None:
        """Until it has opened everything and answers."""
        until(lambda: self.state() == "ready", seconds, self.why)

    def state(self) -> str:
        assert self.process.poll() is None, self.why()
        try:
            with self.wire() as wire:
                return str(wire.call("status")["daemon"]["state"])
        except (ConnectionRefusedError, FileNotFoundError):
            return "not listening"

    def why(self) -> str:
        return self.log.read_text(errors="replace")[-4000:]

    def rss(self) -> int:
        """The memory that it allocated: pages of libraries are mapped when they are first used, whatever it does."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(next(line for line in status.splitlines() if line.startswith("RssAnon")).split()[1]) * 1024

    def descriptors(self) -> int:
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))

    def threads(self) -> int:
        return len(os.listdir(f"/proc/{self.process.pid}/task"))

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def terminate(self, within: float = 60.0) -> int:
        self.process.terminate()
        return self.process.wait(within)


@contextmanager
def running(home: Home, *arguments: str, ready: bool = True, **more: Any) -> Iterator[Daemon]:
    """A daemon that answers; killed when the block ends, if it still runs."""
    daemon = Daemon(home, *arguments, **more)
    try:
        if ready:
            daemon.wait_until_ready()
        yield daemon
    finally:
        daemon.kill()


_MOST_NOISE = 8.0


def noise() -> float:
    """Factor by which this machine is slower than an idle one, to multiply time limits by. The load average lags, so
    running processes count as well; at least three, at most eight. With BURND_QUIET, as in the second half of `make
    test-faults`, limits apply unchanged."""
    if os.environ.get("BURND_QUIET"):
        return 1.0
    runs_now = int(Path("/proc/loadavg").read_text().split()[3].partition("/")[0]) if sys.platform == "linux" else 0
    return min(_MOST_NOISE, max(3.0, 2 * max(os.getloadavg()[0], runs_now) / (os.cpu_count() or 1)))


def stamp_often(wire: Wire, times: int) -> None:
    """So many stamps, each another: a ledger that takes a moment to read."""
    for begin in range(0, times, 4000):
        stamps = [
            {
                "selector": {"sessionId": f"s{n}"},
                "enrichment": {"n": str(n)},
                "ts": f"2026-11-16T10:{n // 60_000:02d}:{n // 1000 % 60:02d}.{n % 1000:03d}Z",
            }
            for n in range(begin, min(begin + 4000, times))
        ]
        wire.call("stamp", stamps=stamps)


def until(check: Callable[[], Any], seconds: float = 60.0, why: Callable[[], str] = lambda: "") -> None:
    """Waits until a condition holds. The limit is there for failures, not for timing."""
    deadline = time.monotonic() + seconds
    while not check():
        assert time.monotonic() < deadline, f"waited {seconds} s in vain; {why()}"
        time.sleep(0.02)
