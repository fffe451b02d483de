"""burnd as a process: its command, its settings, and its start by the service manager or detached."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys

from burnctl.client import Client
from burnctl.connection import result_of
from burnctl.daemon import print_note
from burnctl.errors import BurnctlError
from burnctl.service.units import wherever
from burnd.paths import Home, find_home, user_home, working_folder

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

_ALREADY_RUNS = 5  # burnd's exit code if another one has the home
_LABEL = "dev.burnd.burnd"
_GIVING_WAY_S = 10.0
_LAST_WORDS = 2000  # bytes of the log to search for the reason of a failed start


class Detached:
    """A burnd that runs without this terminal, with its log in a file."""

    how = "in the background"

    def __init__(self, home: Home) -> None:
        os.makedirs(home.root, 0o700, exist_ok=True)
        own_file = log_setting()
        self.where_it_logs = str(home.root / own_file) if own_file else str(home.log)
        # Early output and Python's own messages go to the log file.
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
        self._stderr = str(home.log)
        if os.path.exists(self._stderr) and not os.path.isfile(self._stderr):
            raise BurnctlError(f"burnd cannot log to {self._stderr}: it is not a regular file", "move it away")
        log = os.open(self._stderr, flags, 0o600)
        try:
            self._log_began = os.fstat(log).st_size
            self._process = subprocess.Popen(
                [*burnd_command(), "run", *([] if own_file else ["--log-file", home.log.name])],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd="/",
                env=os.environ | wherever(os.environ, working_folder() or "/"),
                umask=0o077,  # as in its unit: not every library creates private files
                start_new_session=True,
            )
        finally:
            os.close(log)

    def check(self) -> None:
        """Raises BurnctlError with its last output if the process has ended."""
        code = self._process.poll()
        if code is not None and code != _ALREADY_RUNS:
            raise BurnctlError(self._last_words() or f"burnd ended with code {code}", f"see: {self.where_it_logs}")

    def give_way(self, pid: int) -> None:
        """If another burnd (`pid`) was quicker, waits until ours has ended.

        Else ours might take its place when that one is stopped.
        """
        if self._process.pid != pid:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(_GIVING_WAY_S)

    def _last_words(self) -> str:
        with open(self._stderr, "rb") as log:
            log.seek(max(self._log_began, os.fstat(log.fileno()).st_size - _LAST_WORDS))
            lines = log.read().decode(errors="replace").splitlines()
        messages = [line for line in lines if line.strip() and not line.startswith("{")]
        return messages[-1] if messages else ""


class Service:
    def __init__(self, name: str, start: list[str], where_it_logs: str) -> None:
        self.how, self.where_it_logs = f"through {name}", where_it_logs
        done = subprocess.run(start, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            reason = done.stderr.strip() or f"exit code {done.returncode}"
            raise BurnctlError(f"{name} could not start burnd: {reason}", f"see: {where_it_logs}")

    def check(self) -> None:
        pass

    def give_way(self, pid: int) -> None:
        pass


def spawn() -> Detached | Service:
    home = find_home()
    try:
        if installed_unit(home, _systemd_unit()):
            start = ["systemctl", "--user", "start", "burnd.service"]
            return Service("systemd", start, "journalctl --user -u burnd")
        if installed_unit(home, os.path.join(user_home(), "Library", "LaunchAgents", f"{_LABEL}.plist")):
            start = ["launchctl", "kickstart", f"gui/{os.getuid()}/{_LABEL}"]
            return Service("launchd", start, "burnctl service logs")
    except FileNotFoundError:
        pass  # a unit left behind without its manager
    try:
        return Detached(home)
    except OSError as error:
        reason = f"{error.filename}: {error.strerror}" if error.filename else str(error)
        raise BurnctlError(f"burnd cannot be started: {reason}", "see: burnctl doctor") from None


def log_setting() -> str:
    """The log file of the settings, or an empty text."""
    values = {setting["key"]: setting["value"] for setting in ask_burnd("show")["settings"]}
    return str(values["log.file"])


def burnd_command() -> list[str]:
    """The burnd of this burnctl; -P keeps code in the working folder out of it."""
    return [sys.executable, "-P", "-m", "burnd"]


def installed_unit(home: Home, path: str) -> bool:
    """Whether a unit serves this home: one for another home has another socket."""
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read()
    except (OSError, UnicodeDecodeError):
        return False
    usual = home.root == user_home() / ".relayburn"
    same_home = str(home.root) in text if "RELAYBURN_HOME" in text else usual
    socket = os.environ.get("BURND_SOCKET")
    same_socket = socket in text if socket else "BURND_SOCKET" not in text
    return same_home and same_socket


def _systemd_unit() -> str:
    config = os.environ.get("XDG_CONFIG_HOME") or os.path.join(user_home(), ".config")
    return os.path.join(config, "systemd", "user", "burnd.service")


def ask_burnd(action: str, *words: str) -> dict[str, Any]:
    """Runs `burnd config` with these words. Raises BurnctlError with burnd's own words."""
    command = [sys.executable, "-P", "-m", "burnd.settings.command", action, *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines()
        raise BurnctlError(lines[-1] if lines else f"burnd ended with code {done.returncode}")
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


class ScanClient(Client):
    """A client answered without a daemon, by one pass over the logs; only for totals."""

    _scan: subprocess.Popen[bytes] | None = None

    def close(self) -> None:
        if self._scan is not None:
            self._scan.communicate()
            self._scan = None

    def call(
        self,
        method: str,
        params: Mapping[str, Any] | None = None,
        *,
        timeout: float | None = None,  # noqa: ARG002
    ) -> dict[str, Any]:
        if self._scan is None:
            from burnctl.daemon_process import burnd_command

            pipe = subprocess.PIPE
            self._scan = subprocess.Popen([*burnd_command(), "scan"], stdin=pipe, stdout=pipe, stderr=pipe)
            if sys.stdout.isatty():
                print_note("reading all logs ...")
        request = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params or {}})
        assert self._scan.stdin is not None  # noqa: S101 - both are pipes
        assert self._scan.stdout is not None  # noqa: S101
        with contextlib.suppress(BrokenPipeError):  # it has ended: its stderr has the reason
            self._scan.stdin.write(f"{request}\n".encode())
            self._scan.stdin.flush()
        answer = self._scan.stdout.readline()
        if not answer:
            words = self._scan.communicate()[1].decode("utf-8", "replace").strip().splitlines()
            raise BurnctlError(words[-1] if words else f"burnd scan ended with code {self._scan.returncode}")
        return result_of(json.loads(answer))
