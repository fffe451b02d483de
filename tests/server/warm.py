"""Starts daemons as forks of a process that has imported burnd already.

Importing burnd is most of the processor time a daemon of a test takes, and there are hundreds of them. Where the system
has no way to adopt a process (Linux has), or the environment changes how Python itself starts, a daemon is started as
usual.
"""

from __future__ import annotations

import array
import ctypes
import json
import os
import runpy
import socket
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import IO, Any

_PROJECT = Path(__file__).parents[2]
_SET_CHILD_SUBREAPER = 36  # of prctl
_MOST_BYTES = 1 << 16
# Programs that change burnd after they have imported it, if at all.
_SCRIPTS = ("burnd", "tests.server.endless", "tests.server.gated", "tests.faults.poison")
# Variables that nothing reads before burnd runs.
_HARMLESS = ("BURND_", "RELAYBURN_", "CLAUDE_CONFIG_DIR", "CODEX_HOME", "XDG_", "GATES", "LATE", "POISON")


def can_start(script: str, more: dict[str, str]) -> bool:
    """Whether a daemon with these variables may be a fork."""
    return sys.platform == "linux" and script in _SCRIPTS and all(name.startswith(_HARMLESS) for name in more)


class Forked(subprocess.Popen[bytes]):
    """A child of this process like any other, which the warm process has forked."""

    def __init__(self, script: str, arguments: list[str], env: dict[str, str], log: IO[bytes]) -> None:
        self._request = json.dumps({"script": script, "arguments": arguments, "env": env}).encode()
        self._log = log.fileno()
        super().__init__([script, *arguments])

    def _execute_child(self, *_: Any) -> None:
        self.pid = _warm().fork(self._request, self._log)
        self._child_created = True


class _Warm:
    """The process that forks, seen from here."""

    def __init__(self) -> None:
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.server.warm", str(theirs.fileno())],
                cwd=_PROJECT,
                env={"PATH": os.environ["PATH"], "HOME": "/nonexistent"},
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
            )

    def fork(self, request: bytes, log: int) -> int:
        """The id of the new process, which is a child of ours: its parent has ended, and we adopt what it leaves."""
        libc = ctypes.CDLL(None, use_errno=True)
        assert libc.prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0
        try:
            socket.send_fds(self._socket, [request], [log])
            return int(self._socket.recv(64))
        finally:
            libc.prctl(_SET_CHILD_SUBREAPER, 0, 0, 0, 0)


@cache
def _warm() -> _Warm:
    return _Warm()


def _serve(requests: socket.socket) -> dict[str, Any]:
    """Forks twice for every request, and tells the id when the process in between is gone; returns in the new one."""
    while True:
        request, ancillary, _, _ = requests.recvmsg(_MOST_BYTES, socket.CMSG_SPACE(4))
        if not request:
            os._exit(0)
        (log,) = array.array("i", ancillary[0][2])
        told, tell = os.pipe()
        between = os.fork()
        if between == 0:
            pid = os.fork()
            if pid != 0:
                os.write(tell, str(pid).encode())
                os._exit(0)
            for number in (1, 2):
                os.dup2(log, number)
            for number in (log, told, tell, requests.detach()):
                os.close(number)
            found: dict[str, Any] = json.loads(request)
            return found
        os.close(tell)
        os.close(log)
        os.waitpid(between, 0)
        requests.send(os.read(told, 64))
        os.close(told)


def main() -> None:
    from burnd import cli

    cli._block_rich()
    import burnd.daemon.lifecycle
    import burnd.daemon.log
    import burnd.memory  # noqa: F401

    assert len(os.listdir("/proc/self/task")) == 1, "a fork would lose a thread"
    wanted = _serve(socket.socket(fileno=int(sys.argv[1])))
    os.environ.clear()
    os.environ.update(wanted["env"])
    sys.argv = [wanted["script"], *wanted["arguments"]]
    runpy.run_module(wanted["script"], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
