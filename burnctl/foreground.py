"""Runs a harness in the foreground: it gets the terminal's signals, and its exit code becomes ours.

The child shares our process group, so the terminal signals it directly (Ctrl-C, Ctrl-Z, resize, hang-up). We block
these signals and pass on those sent to us alone. When the child stops, we stop, so that the shell sees the whole job
stopped; `fg` wakes both.
"""

from __future__ import annotations

import os
import signal
import sys

from burnctl.errors import BurnctlError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_LOOK_S = 1.0
NOT_FOUND, NOT_EXECUTABLE = 127, 126
_STARTED = "BURNCTL_STARTED"  # `pid=path` of each burnctl among our ancestors and its program
_DEEPEST = 8
_MOST_ANCESTORS = 64
_SCRIPT_BYTES = 1 << 16
_STOPPING = {signal.SIGTERM, signal.SIGHUP}
_FROM_TERMINAL = {signal.SIGINT, signal.SIGQUIT, signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU}
_OURS = {*_STOPPING, *_FROM_TERMINAL, signal.SIGUSR1, signal.SIGUSR2, signal.SIGCHLD}
# Python ignores these; a harness expects their defaults.
_IGNORED_BY_PYTHON = [getattr(signal, name) for name in ("SIGPIPE", "SIGXFSZ") if hasattr(signal, name)]


class CannotRun(BurnctlError):
    """Raised for a missing program (exit 127) or one that may not be run (exit 126), as in a shell."""

    def __init__(self, message: str, hint: str = "", exit_code: int = NOT_FOUND) -> None:
        super().__init__(message, hint)
        self.exit_code = exit_code


class ExitStatus:
    """The exit code of a child, 128 + n after signal n, and whether burnctl was asked to stop."""

    __slots__ = ("code", "was_stopped")

    def __init__(self, code: int, *, was_stopped: bool) -> None:
        self.code, self.was_stopped = code, was_stopped


def find_program(name: str, hint: str = "", *, is_client: bool = False) -> str:
    """Finds a program in PATH, skipping wrappers that start burnctl again. Raises CannotRun.

    `is_client`: programs of this name may replace themselves by burnctl.
    """
    if "/" in name:
        candidates = [name]
    else:
        folders = os.environ.get("PATH", os.defpath).split(os.pathsep)
        candidates = [os.path.join(folder or ".", name) for folder in folders]
    there = [path for path in candidates if os.path.isfile(path)]
    wrapper = ""
    for path in there:
        if os.access(path, os.X_OK):
            if "/" in name or not _leads_back(os.path.realpath(path), is_client=is_client):
                return path
            wrapper = wrapper or path
    if wrapper:
        what = f"{wrapper} starts burnctl again, and there is no other {name} after it on PATH"
        raise CannotRun(what, hint)
    if there:
        raise CannotRun(f"{there[0]} is not executable", hint, NOT_EXECUTABLE)
    raise CannotRun(f"{name} was not found" + ("" if "/" in name else " on PATH"), hint)


def _leads_back(path: str, *, is_client: bool) -> bool:
    """Whether an ancestor burnctl started this program and the program, as a wrapper, started us.

    A client that replaced itself by burnctl (`exec`) is a wrapper; one that runs it as a subprocess is not. Other
    wrappers are scripts with the word burnctl.
    """
    entries = (entry.partition("=") for entry in os.environ.get(_STARTED, "").split(os.pathsep) if entry)
    above = [(pid, path) for pid, _, path in entries]
    starters = [pid for pid, started in above if started == path]
    if not starters and (above or not _has_burnctl_above(os.path.basename(path))):
        return False
    if is_client and (str(os.getppid()) in starters or len(starters) >= _DEEPEST):
        return True
    try:
        with open(path, "rb") as file:
            head = file.read(_SCRIPT_BYTES)
    except OSError:
        return False
    return head.startswith(b"#!") and b"burnctl" in head


def _has_burnctl_above(name: str) -> bool:
    """Whether an ancestor is `burnctl NAME`, if a wrapper cleared the environment. Needs /proc."""
    pid = os.getppid()
    try:
        for _ in range(_MOST_ANCESTORS):
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                words = [os.path.basename(word) for word in os.fsdecode(file.read(_SCRIPT_BYTES)).split("\0")]
            if "burnctl" in words and name in words[words.index("burnctl") + 1 :]:
                return True
            with open(f"/proc/{pid}/stat", "rb") as file:
                pid = int(file.read().rpartition(b")")[2].split()[1])
    except (OSError, ValueError, IndexError):
        pass
    return False


def run(program: str, arguments: Sequence[str], watch: Callable[[int], None] | None = None) -> ExitStatus:
    """Runs a program until it ends. Raises CannotRun.

    `watch` gets its process id about once a second, on platforms with `sigtimedwait`.
    """
    inherited = signal.pthread_sigmask(signal.SIG_BLOCK, _OURS)
    # A parent may have left SIGCHLD ignored; then no child could be waited for.
    signal.signal(signal.SIGCHLD, lambda *_: None)
    try:
        child = _started(program, arguments, inherited)
        return _watched(child, watch)
    finally:
        for number in _OURS:
            before = signal.signal(number, signal.SIG_IGN)
            signal.signal(number, signal.SIG_DFL if before is None or number == signal.SIGCHLD else before)
        signal.pthread_sigmask(signal.SIG_SETMASK, inherited)


def _started(program: str, arguments: Sequence[str], mask: set[int | signal.Signals]) -> int:
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
    try:
        above = os.environ.get(_STARTED)
        own = f"{os.getpid()}={os.path.realpath(program)}"
        environ = {**os.environ, _STARTED: f"{above}{os.pathsep}{own}" if above else own}
        return os.posix_spawn(program, [program, *arguments], environ, setsigmask=mask, setsigdef=_IGNORED_BY_PYTHON)
    except OSError as error:
        reason = os.strerror(error.errno or 0)
        raise CannotRun(f"{program} cannot be run: {reason}", exit_code=NOT_EXECUTABLE) from None


def _watched(child: int, watch: Callable[[int], None] | None) -> ExitStatus:
    was_stopped = False
    while True:
        if watch is not None and hasattr(signal, "sigtimedwait"):
            watch(child)
            number, has_reached_child = _next_signal(_LOOK_S)
        else:
            number, has_reached_child = _next_signal()
        if not number:
            continue
        if number == signal.SIGCHLD:
            if (code := _exit_code(child)) is not None:
                if watch is not None:
                    watch(child)  # the last look
                return ExitStatus(code, was_stopped=was_stopped)
            continue
        was_stopped = was_stopped or number in _STOPPING
        if not has_reached_child:
            os.kill(child, number)


def _next_signal(within: float | None = None) -> tuple[int, bool]:
    """The next signal, 0 after the timeout, and whether the child has it too, from a terminal key."""
    if hasattr(signal, "sigwaitinfo"):
        info = signal.sigwaitinfo(_OURS) if within is None else signal.sigtimedwait(_OURS, within)
        if info is None:
            return 0, False
        # The kernel's own signals have a positive code, those of kill() do not. A hang-up reaches only the leader of a
        # session, so it is always passed on.
        return info.si_signo, info.si_signo in _FROM_TERMINAL and info.si_code > 0
    number = signal.sigwait(_OURS)  # macOS does not say who sent it
    return number, number in _FROM_TERMINAL and _has_terminal()


def _exit_code(child: int) -> int | None:
    """The exit code of a child that has status. While it is stopped at a terminal, we stop too."""
    have_just_woken = False
    while True:
        pid, status = os.waitpid(child, os.WNOHANG | os.WUNTRACED | os.WCONTINUED)
        if pid == 0:
            if have_just_woken:  # and the child has not: only our pid got SIGCONT
                os.kill(child, signal.SIGCONT)
            return None
        if os.WIFCONTINUED(status):
            have_just_woken = False
        elif os.WIFSTOPPED(status):
            # Without a terminal nothing would wake us: a spawner that paused the harness knows only its pid.
            have_just_woken = _has_terminal()
            if have_just_woken:
                os.kill(os.getpid(), signal.SIGSTOP)
        else:
            code = os.waitstatus_to_exitcode(status)
            return code if code >= 0 else 128 - code


def _has_terminal() -> bool:
    return any(os.isatty(fd) for fd in (0, 1, 2))
