"""Daemon and client as processes, measured from outside: time, CPU, memory, disk, answers."""

from __future__ import annotations

import contextlib
import os
import pty
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.server.wire import Wire

BIN = Path(sys.executable).parent
_TICKS = os.sysconf("SC_CLK_TCK")


class Home:
    """A folder for everything a daemon sees, so that no data of the user is read."""

    def __init__(self, root: Path, claude: Path | None = None) -> None:
        self.root = root
        root.mkdir(parents=True, exist_ok=True, mode=0o700)
        (root / "person").mkdir(exist_ok=True)
        self.environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(root / "person"),
            "RELAYBURN_HOME": str(root / "home"),
            "CLAUDE_CONFIG_DIR": str(claude or root / "no-logs"),
            "XDG_DATA_HOME": str(root / "no-data"),
            "RELAYBURN_CONTENT_TTL_DAYS": "forever",  # the logs are always the same, and so ever older
            "LANG": "C.UTF-8",
        }

    @property
    def socket(self) -> Path:
        return self.root / "home" / "burnd.sock"

    def bytes(self) -> int:
        """Size of the home on disk."""
        found = 0
        for folder, _, names in os.walk(self.root / "home"):
            for name in names:
                with contextlib.suppress(OSError):
                    found += os.lstat(os.path.join(folder, name)).st_size
        return found

    def burnctl(self, *arguments: str) -> float:
        """Seconds that a command takes as a whole process; output is discarded."""
        begun = time.perf_counter()
        subprocess.run([BIN / "burnctl", *arguments], env=self.environment, check=True, capture_output=True)
        return time.perf_counter() - begun

    def at_a_terminal(self, *arguments: str) -> float:
        """The same at a terminal."""
        ours, theirs = pty.openpty()
        environment = {**self.environment, "TERM": "xterm-256color", "COLUMNS": "120"}
        drain = threading.Thread(target=_drain, args=(ours,), daemon=True)
        drain.start()
        begun = time.perf_counter()
        subprocess.run([BIN / "burnctl", *arguments], env=environment, check=True, stdin=theirs, stdout=theirs)
        took = time.perf_counter() - begun
        os.close(theirs)
        return took


def _drain(fd: int) -> None:
    with contextlib.suppress(OSError):
        while os.read(fd, 1 << 16):
            pass


def processor_of(pid: int) -> float:
    """The processor time a process took so far, in seconds, ended children included."""
    stat = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, stat[11:15])) / _TICKS


class Daemon:
    """One that runs. Its processes are looked at twenty times a second."""

    def __init__(self, home: Home) -> None:
        self.home = home
        self.begun = time.perf_counter()
        log = open(home.root / "burnd.log", "wb")  # noqa: SIM115 - the process's own
        self._process = subprocess.Popen([BIN / "burnd", "run"], env=home.environment, stdout=log, stderr=log)
        self.peak_bytes = 0
        self._ended = threading.Event()
        self._watching = threading.Thread(target=self._watch, daemon=True)
        self._watching.start()

    def wire(self) -> Wire:
        while True:
            if self._process.poll() is not None:
                raise RuntimeError(f"burnd ended: see {self.home.root / 'burnd.log'}")
            with contextlib.suppress(OSError):
                return Wire(self.home.socket, timeout=60)
            time.sleep(0.01)

    def resident(self) -> int:
        """The memory of all its processes, in bytes."""
        return sum(_resident(pid) for pid in self._processes())

    def processor(self) -> float:
        """The processor time it took so far, in seconds, ended children included."""
        return processor_of(self._process.pid)

    def stop(self) -> None:
        self._ended.set()
        self._watching.join()
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _processes(self) -> list[int]:
        found = [self._process.pid]
        for pid in found:  # children of children, too: the workers of a quick pass
            with contextlib.suppress(OSError):
                for task in os.listdir(f"/proc/{pid}/task"):
                    found += map(int, Path(f"/proc/{pid}/task/{task}/children").read_text().split())
        return found

    def _watch(self) -> None:
        while not self._ended.wait(0.05):
            self.peak_bytes = max(self.peak_bytes, self.resident())


def _resident(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0


@contextlib.contextmanager
def running(home: Home) -> Iterator[Daemon]:
    daemon = Daemon(home)
    try:
        yield daemon
    finally:
        daemon.stop()


def is_caught_up(status: dict[str, Any]) -> bool:
    """True when everything is recorded, indexed and searchable."""
    sources = {source["name"]: source for source in status["sources"]}
    claude = sources.get("claude-code")
    read = claude is not None and claude["state"] == "watching" and not claude.get("pending")
    search = status["search"]
    return bool(read and not status.get("backfill") and search["state"] == "ready" and not search.get("pending"))
