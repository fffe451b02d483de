"""Runs work in a child process: a large backlog, and inputs that crashed a process (see `crash_guard`).

The child answers requests in order, has no state between them, and ends at the end of its input, even if its parent
dies. Work is a callable made in the child; it takes a request and a guard, and returns bytes.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import pickle
import resource
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from typing import IO, Any

import msgspec

from burnd import errors
from burnd.memory import limit_malloc, relax_gc
from burnd.recording.crash_guard import Acknowledger, CrashGuard, Guard, Item

MODULE = "burnd.recording.child_process"
CRASHES = (signal.SIGSEGV, signal.SIGBUS, signal.SIGABRT)
HANGS_S = 60.0  # an answer takes a second; many on a machine without free memory
# Memory limit for suspect inputs: an item that needs more would harm the whole machine.
MEMORY_BYTES = 768 << 20
_ANSWER_BYTES = 4 << 20  # an answer and all that is made for it; the next needs as much again
_LENGTH = 8
_PIPE_BYTES = 1 << 20
_PATIENCE_S = 2.0
_ACKNOWLEDGED, _ANSWER, _OUT_OF_MEMORY, _OS_ERROR, _FAILED = b"a", b"=", b"m", b"o", b"f"

Work = Callable[[Any, Guard], bytes | bytearray]


class Gone(Exception):
    """Raised when the child has ended; `crashed` if it crashed, hung or ran out of memory."""

    def __init__(self, *, crashed: bool = False, item: Item | None = None) -> None:
        super().__init__("the child process has ended")
        self.crashed = crashed
        self.item = item  # the last one it acknowledged


class Failed(Exception):
    """Raised when the work raised an exception; the text is its type."""


class ChildProcess:
    """A child that starts with the first request. Its methods block; one thread calls them."""

    def __init__(self, make: Callable[..., Work], *arguments: Any, is_trial: bool = False) -> None:
        """In a trial the child acknowledges each item before it works on it, and its memory is limited."""
        self._setting = (make, arguments, is_trial)
        self._process: subprocess.Popen[bytes] | None = None

    def send(self, request: Any, skipped: frozenset[Item] = frozenset()) -> None:
        """Sends a request; several may be sent ahead. Raises Gone."""
        if self._process is None:
            self._process = _start(self._setting)
        try:
            _send(self._process.stdin, pickle.dumps((request, skipped)))
        except OSError as error:
            raise Gone(crashed=self.close() in CRASHES) from error

    def receive(self) -> memoryview:
        """The answer to the oldest request. Raises Gone, Failed, or the work's OSError."""
        item: Item | None = None
        hung = threading.Event()
        try:
            while True:
                if self._process is None:
                    raise EOFError
                with _killed_if_it_hangs(self._process, hung):
                    message = _receive(self._process.stdout)
                if message[:1] != _ACKNOWLEDGED:
                    break
                item = msgspec.msgpack.decode(message[1:], type=int | str | None)
        except (OSError, EOFError) as error:
            has_hung = hung.is_set() and item is not None  # else it may only be slow
            raise Gone(crashed=self.close() in CRASHES or has_hung, item=item) from error
        kind, payload = message[:1], memoryview(message)[1:]
        if kind == _OUT_OF_MEMORY:
            self.close()
            raise Gone(crashed=True, item=item)
        if kind == _OS_ERROR:
            raise OSError(*msgspec.msgpack.decode(payload))
        if kind == _FAILED:
            raise Failed(msgspec.msgpack.decode(payload))
        return payload

    def kill(self) -> None:
        """Ends the child at once, from any thread; a call that waits for it raises Gone."""
        process = self._process
        if process is not None:
            process.kill()

    def close(self) -> int:
        """Ends the child; returns the signal that had ended it, or 0."""
        process, self._process = self._process, None
        if process is None:
            return 0
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()
        try:
            process.wait(_PATIENCE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        return -process.returncode


def try_suspect(
    guard: CrashGuard,
    trial: ChildProcess,
    name: str,
    request: Any,
    now_ms: int,
    on_crash: Callable[[Item, int], None],
) -> memoryview:
    """Sends a request about a suspect input to a trial child, again without the items that crash it.

    More than a minute for one item counts as a crash. Calls `on_crash` with the item and its number of crashes. Raises
    OSError if the child was killed, failed, or crashed outside of items: the input stays suspect.
    """
    while True:
        try:
            trial.send(request, guard.skipped(name))
            return trial.receive()
        except Gone as gone:
            if not gone.crashed:
                raise OSError(errno.EAGAIN, "the process that reads it was killed") from gone
            if gone.item is None:
                raise OSError(errno.EIO, "the process that reads it crashed") from gone
            on_crash(gone.item, guard.crashed(name, gone.item, now_ms).count)
        except Failed as error:
            raise OSError(errno.EIO, f"{error} while reading it") from error


@contextlib.contextmanager
def _killed_if_it_hangs(process: subprocess.Popen[bytes], hung: threading.Event) -> Iterator[None]:
    def kill() -> None:
        hung.set()
        process.kill()

    timer = threading.Timer(HANGS_S, kill)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _start(setting: Any) -> subprocess.Popen[bytes]:
    # -P: the daemon's working folder may have foreign modules.
    command = [sys.executable, "-P", "-m", MODULE]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd="/")
    with contextlib.suppress(OSError, AttributeError):  # a larger pipe saves switching
        fcntl.fcntl(process.stdout, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)  # type: ignore[arg-type]
    _send(process.stdin, pickle.dumps(setting))
    return process


def _send(pipe: IO[bytes] | None, *parts: bytes | bytearray) -> None:
    assert pipe is not None  # noqa: S101 - made with pipes
    pipe.write(sum(map(len, parts)).to_bytes(_LENGTH, "big"))
    for part in parts:
        pipe.write(part)
    pipe.flush()


def _receive(pipe: IO[bytes] | None) -> bytes:
    assert pipe is not None  # noqa: S101 - made with pipes
    return _read_exactly(pipe, int.from_bytes(_read_exactly(pipe, _LENGTH), "big"))


def _read_exactly(pipe: IO[bytes], size: int) -> bytes:
    data = pipe.read(size)
    if len(data) != size:
        raise EOFError
    return data


def _answer(work: Work, request: Any, guard: Guard) -> tuple[bytes, bytes | bytearray]:
    try:
        return _ANSWER, work(request, guard)
    except MemoryError:
        return _OUT_OF_MEMORY, b""
    except OSError as error:
        return _OS_ERROR, msgspec.msgpack.encode((error.errno, error.strerror))
    except Exception as error:  # noqa: BLE001 - one input must never stop the others; status shows it
        return _FAILED, msgspec.msgpack.encode(type(error).__name__)


def _report_failure(error: BaseException) -> None:
    errors.write_stderr(f"burnd: a child stopped on {errors.error_types(error)} at {errors.error_location(error)}")


def main() -> None:
    errors.report_uncaught(_report_failure)
    limit_malloc(_ANSWER_BYTES)
    relax_gc()
    requests, answers = sys.stdin.buffer, sys.stdout.buffer
    sys.stdout = sys.stderr  # nothing else may write between the answers
    make, arguments, is_trial = pickle.loads(_receive(requests))  # noqa: S301 - from our own parent
    work: Work = make(*arguments)
    if is_trial:
        with contextlib.suppress(OSError, ValueError):  # a smaller limit is set already
            resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))

    def acknowledge(item: Item | None) -> None:
        _send(answers, _ACKNOWLEDGED, msgspec.msgpack.encode(item))

    with contextlib.suppress(EOFError, BrokenPipeError, KeyboardInterrupt):
        while True:
            request, skipped = pickle.loads(_receive(requests))  # noqa: S301 - from our own parent
            guard = Acknowledger(acknowledge if is_trial else None, skipped)
            _send(answers, *_answer(work, request, guard))


if __name__ == "__main__":
    main()
