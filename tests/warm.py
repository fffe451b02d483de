"""Starts burnd and burnctl as forks of processes that have imported them already. Imports are most of the CPU time of a
program under test, and tests start thousands. `Popen` and `run` are those of subprocess: a fork has the arguments,
environment, folder, descriptors, session and terminal of a new process. On systems that cannot adopt processes
(Linux can), or for options that change how Python starts, a new process is started."""

from __future__ import annotations

import array
import ctypes
import fcntl
import gc
import importlib
import inspect
import json
import os
import pkgutil
import runpy
import socket
import subprocess
import sys
import termios
import time
from functools import cache
from pathlib import Path
from typing import Any

_PROJECT = Path(__file__).parents[1]
_SET_CHILD_SUBREAPER = 36  # of prctl
_MOST_BYTES = 1 << 17
# The program that each module is or changes. Those of tests change it after they have imported it, if at all.
_PROGRAMS = {
    "burnctl": "burnctl",
    "burnd": "burnd",
    "tests.faults.blockable": "burnd",
    "tests.faults.failing_parts": "burnd",
    "tests.faults.poison": "burnd",
    "tests.faults.quick": "burnd",
    "tests.faults.slow_to_drop": "burnd",
    "tests.faults.slow_to_stop": "burnd",
    "tests.server.dead_mount": "burnd",
    "tests.server.endless": "burnd",
    "tests.server.failing": "burnd",
    "tests.server.gated": "burnd",
}
# Variables that are read before the program runs.
_EARLY = ("PYTHON", "LD_", "LC_", "MALLOC_", "GLIBC_", "OPENSSL_", "SSL_")
_LANGUAGE = "C.UTF-8"
# Modules that need a second to import what a few tests need.
_RARE = ("__main__", ".parquet", ".mcp_tools", "push.postgres", "push.segments")
# Modules of others that a daemon imports only when it runs.
_LATE = (
    "anyio._backends._asyncio",
    "anyio._core._signals",
    "anyio._core._sockets",
    "anyio._core._streams",
    "anyio._core._synchronization",
    "anyio.streams.memory",
    "anyio.streams.stapled",
    "anyio.streams.tls",
    "watchdog.observers.inotify",
)
# Options of Popen that a fork does not have, and their defaults.
_DEFAULTS = {
    "executable": None,
    "preexec_fn": None,
    "close_fds": True,
    "pass_fds": (),
    "shell": False,
    "restore_signals": True,
    "gid": None,
    "gids": None,
    "uid": None,
    "umask": -1,
    "process_group": -1,
}


class Popen(subprocess.Popen[Any]):
    """A child of this process like any other; with `own_terminal`, the terminal it has as input is its session's."""

    def __init__(self, command: list[str], *, own_terminal: bool = False, **options: Any) -> None:
        self._own_terminal = own_terminal
        super().__init__(command, start_new_session=options.pop("start_new_session", own_terminal), **options)

    def _execute_child(self, *given: Any) -> None:
        asked = inspect.signature(subprocess.Popen._execute_child).bind(self, *given).arguments  # type: ignore[attr-defined]
        found = _module(asked)
        if found is None:
            if self._own_terminal:
                given = ([sys.executable, "-m", "tests.warm", "--own-terminal", *asked["args"]], *given[1:])
            super()._execute_child(*given)  # type: ignore[misc]
            return
        module, arguments = found
        request = {
            "module": module,
            "arguments": arguments,
            "env": asked["env"],
            "cwd": os.fspath(asked["cwd"] or os.getcwd()),
            "session": asked["start_new_session"],
            "terminal": self._own_terminal,
        }
        streams = [asked["p2cread"], asked["c2pwrite"], asked["errwrite"]]
        streams = [number if asked_for == -1 else asked_for for number, asked_for in enumerate(streams)]
        self.pid = _warm(_PROGRAMS[module]).fork(json.dumps(request).encode(errors="surrogateescape"), streams)
        self._child_created = True
        self._close_pipe_fds(*(asked[name] for name in _PIPES))  # type: ignore[attr-defined]


_PIPES = ("p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite")


def run(
    command: list[str],
    *,
    input: Any = None,  # noqa: A002 - as in subprocess
    capture_output: bool = False,
    timeout: float | None = None,
    check: bool = False,
    **options: Any,
) -> subprocess.CompletedProcess[Any]:
    """The same as subprocess.run."""
    if input is not None:
        options["stdin"] = subprocess.PIPE
    if capture_output:
        options["stdout"] = options["stderr"] = subprocess.PIPE
    with Popen(command, **options) as process:
        try:
            stdout, stderr = process.communicate(input, timeout=timeout)
        except BaseException:
            process.kill()
            raise
    done = subprocess.CompletedProcess(command, process.returncode, stdout, stderr)
    if check:
        done.check_returncode()
    return done


def _module(asked: dict[str, Any]) -> tuple[str, list[str]] | None:
    """The module to run and its arguments; None if only a new process is like a new process."""
    command, env, cwd = list(map(os.fspath, asked["args"])), asked["env"], asked["cwd"]
    is_safe = command[1:2] == ["-P"]
    if is_safe:
        del command[1]
    forkable = (
        sys.platform == "linux"
        and command[:2] == [sys.executable, "-m"]
        and command[2] in _PROGRAMS
        and (is_safe or cwd is None or Path(cwd) == _PROJECT or not _has_modules(Path(os.fsdecode(cwd))))
        and env is not None
        and not any(name.startswith(_EARLY) for name in env)
        and env.get("LANG", _LANGUAGE) == _LANGUAGE
        and all(asked.get(name, default) == default for name, default in _DEFAULTS.items())
        and os.geteuid() == os.getuid()
    )
    return (command[2], command[3:]) if forkable else None


def _has_modules(folder: Path) -> bool:
    """True if a program started in the folder would import something from it."""
    return any((folder / name).exists() for name in ("burnd", "burnctl", "tests"))


class _Warm:
    """The process that forks, seen from here."""

    def __init__(self, program: str) -> None:
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        for end in (self._socket, theirs):
            end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 2 * _MOST_BYTES)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.warm", program, str(theirs.fileno())],
                cwd=_PROJECT,
                env={"PATH": os.environ["PATH"], "HOME": "/nonexistent", "LANG": _LANGUAGE},
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
            )

    def fork(self, request: bytes, streams: list[int]) -> int:
        """The id of the new process, which is a child of ours: its parent has ended, and we adopt what it leaves."""
        assert len(request) < _MOST_BYTES
        libc = ctypes.CDLL(None, use_errno=True)
        assert libc.prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0
        try:
            socket.send_fds(self._socket, [request], streams)
            return int(self._socket.recv(64))
        finally:
            libc.prctl(_SET_CHILD_SUBREAPER, 0, 0, 0, 0)


@cache
def _warm(program: str) -> _Warm:
    return _Warm(program)


def _serve(requests: socket.socket) -> dict[str, Any]:
    """Forks twice for every request, and sends the id when the process in between is gone; returns in the new one."""
    while True:
        request, ancillary, _, _ = requests.recvmsg(_MOST_BYTES, socket.CMSG_SPACE(3 * 4))
        if not request:
            os._exit(0)
        streams = array.array("i", ancillary[0][2])
        told, tell = os.pipe()
        between = os.fork()
        if between == 0:
            pid = os.fork()
            if pid != 0:
                os.write(tell, str(pid).encode())
                os._exit(0)
            for number, stream in enumerate(streams):
                os.dup2(stream, number)
            for number in (*streams, told, tell, requests.detach()):
                os.close(number)
            found: dict[str, Any] = json.loads(request.decode(errors="surrogateescape"))
            return found
        os.close(tell)
        for stream in streams:
            os.close(stream)
        os.waitpid(between, 0)
        requests.send(os.read(told, 64))
        os.close(told)


def _become(asked: dict[str, Any]) -> None:
    """Makes this process what a new one would be that was started so."""
    if asked["session"]:
        os.setsid()
    if asked["terminal"]:
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    os.chdir(asked["cwd"])
    os.environ.clear()
    os.environ.update(asked["env"])
    time.tzset()
    sys.stdin = sys.__stdin__ = open(0, encoding="utf-8", errors=sys.stdin.errors, closefd=False)  # type: ignore[misc]  # noqa: SIM115
    sys.stdout = sys.__stdout__ = open(1, "w", encoding="utf-8", errors=sys.stdout.errors, closefd=False)  # type: ignore[misc]  # noqa: SIM115
    sys.stderr = sys.__stderr__ = open(  # type: ignore[misc]  # noqa: SIM115
        2, "w", buffering=1, encoding="utf-8", errors=sys.stderr.errors, closefd=False
    )
    sys.argv = [asked["module"], *asked["arguments"]]


def _import_all(program: str) -> None:
    """Imports all that the program imports, at its start or later."""
    if program == "burnd":
        sys.modules.setdefault("rich", None)  # type: ignore[arg-type] # as its command line does
        for name in _LATE:
            importlib.import_module(name)
    package = importlib.import_module(program)
    for module in pkgutil.walk_packages(package.__path__, f"{program}."):
        if not module.name.endswith(_RARE):
            importlib.import_module(module.name)


def main() -> None:
    if sys.argv[1] == "--own-terminal":
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
        os.execvp(sys.argv[2], sys.argv[2:])
    _import_all(sys.argv[1])
    gc.collect()
    gc.freeze()  # a collection in a fork would otherwise copy every page
    assert len(os.listdir("/proc/self/task")) == 1, "a fork would lose a thread"
    asked = _serve(socket.socket(fileno=int(sys.argv[2])))
    _become(asked)
    runpy.run_module(asked["module"], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
