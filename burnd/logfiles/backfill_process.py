"""Reads transcripts in a child process: a large backlog, and logs that an earlier process died over.

Reading is most of the work of a first start and needs nothing but the file and its rows: so it is done on another
core, while this process makes durable what was read before. The child ends at the end of its input, also when this
process dies.
"""

from __future__ import annotations

import contextlib
import fcntl
import pickle
import resource
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, Literal, NamedTuple

import msgspec

from burnd import unforeseen
from burnd.ledger.shelving import INLINE_BYTES, Shelved
from burnd.logfiles.crash_guard import Acknowledger, Item
from burnd.logfiles.safe_open import Refused
from burnd.logfiles.transcripts import Piece, Transcript, Transcripts
from burnd.memory import collect_seldom, keep_little
from burnd.recording.candidate import Candidate

_LENGTH = 8
_PIPE_BYTES = 1 << 20
_PATIENCE_S = 2.0
MODULE = "burnd.logfiles.backfill_process"
# Memory limit of a child that reads a suspect log: a line that needs more would harm the whole machine.
MEMORY_BYTES = 768 << 20
CRASHES = (signal.SIGSEGV, signal.SIGBUS, signal.SIGABRT)
HANGS_S = 60.0  # a piece takes a second, and many on a machine that has no memory left
_PIECE_BYTES = 4 << 20  # a piece with all that is made of it: the next one needs as much again

# The many small things of a piece are packed by msgspec, which knows their types; the few others are pickled.
Packed = tuple[bytes, list[Candidate], list[Shelved]]
_encoder = msgspec.msgpack.Encoder()
_packed = msgspec.msgpack.Decoder(Packed)


Task = Literal["read", "whole tail", "tail", "settle answered", "settle"]


class Wanted(NamedTuple):
    """A task on one file; `saved` is its cursor and state from the index.

    The task is to read on, to take the last line (only if complete, or always), or to settle open turns (only those
    with all results, or all).
    """

    path: str
    root: str
    saved: tuple[bytes, bytes] | None
    max_bytes: int
    now: float
    seen_ms: int
    skipped: frozenset[Item] = frozenset()
    task: Task = "read"


class Gone(Exception):
    """Raised when the child has ended; `crashed` if it crashed, and was not killed."""

    def __init__(self, *, crashed: bool = False, item: Item | None = None) -> None:
        super().__init__("the process that reads transcripts has ended")
        self.crashed = crashed
        self.item = item  # the last one it acknowledged


class Unreadable(Exception):
    """Raised when a reader failed over a file there, as it would have here."""


class Apart:
    """The other process, started when it is first asked. Its methods block, and are called by one thread at a time.

    It may be asked for a file before it has answered for another, so that it always has something to do: answers come
    in the order of asking.
    """

    def __init__(
        self,
        transcripts: type[Transcripts],
        index_path: Path,
        inline_bytes: int = INLINE_BYTES,
        *,
        is_trial: bool = False,
    ) -> None:
        """In a trial the child acknowledges each item before it works on it, and its memory is bounded."""
        self._setting = (transcripts, index_path, inline_bytes, is_trial)
        self._process: subprocess.Popen[bytes] | None = None

    def ask(self, wanted: Wanted) -> None:
        """Lets it begin with a file. Raises Gone when it has ended."""
        if self._process is None:
            self._process = _started(self._setting)
        try:
            _send(self._process.stdin, pickle.dumps(wanted))
        except OSError as error:
            raise Gone(crashed=self.close() in CRASHES) from error

    def answer(self) -> Piece | None:
        """The result of `Transcripts.read` for the oldest request; None if the file is not a transcript.

        Raises Gone. Running out of memory counts as a crash.
        """
        item: Item | None = None
        try:
            while True:
                if self._process is None:
                    raise EOFError
                with _ended_if_it_hangs(self._process):
                    message = _receive(self._process.stdout)
                if message[:1] != b"a":
                    break
                item = msgspec.msgpack.decode(message[1:], type=int | str | None)
        except (OSError, EOFError) as error:
            raise Gone(crashed=self.close() in CRASHES, item=item) from error
        if message[:1] == b"m":
            self.close()
            raise Gone(crashed=True, item=item)
        return _told(message)

    def attempt(self, wanted: Wanted) -> Piece | None:
        """Asks for one file and waits for its answer. Raises Gone."""
        self.ask(wanted)
        return self.answer()

    def close(self) -> int:
        """Ends the child, which has no state of its own; returns the signal that had ended it, or 0."""
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


@contextlib.contextmanager
def _ended_if_it_hangs(process: subprocess.Popen[bytes]) -> Iterator[None]:
    """Whoever waits for it would wait for ever otherwise: as it is, what it was to read is read here."""
    timer = threading.Timer(HANGS_S, process.kill)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _started(setting: Any) -> subprocess.Popen[bytes]:
    # Somebody else's modules may lie in the folder that the daemon was started in.
    command = [sys.executable, "-P", "-m", MODULE]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd="/")
    with contextlib.suppress(OSError, AttributeError):  # a larger pipe only saves some switching
        fcntl.fcntl(process.stdout, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)  # type: ignore[arg-type]
    _send(process.stdin, pickle.dumps(setting))
    return process


def _told(told: bytes) -> Piece | None:
    kind, data = told[:1], memoryview(told)[1:]
    if kind == b"p":
        return _unpacked(data)
    what = pickle.loads(data)  # noqa: S301 - made by our own child
    if kind == b"r":
        raise Refused(*what)
    if kind == b"o":
        raise OSError(*what)
    if kind == b"f":
        raise Unreadable(what)
    return None


def _unpacked(data: memoryview) -> Piece:
    rest, candidates, content = _packed.decode(data)
    piece: Piece = pickle.loads(rest)  # noqa: S301 - made by our own child
    piece.reading.candidates = candidates
    return piece._replace(content=content)


def _packed_up(piece: Piece) -> bytearray:
    candidates, piece.reading.candidates, piece.reading.content = piece.reading.candidates, [], []
    rest = pickle.dumps(piece._replace(content=[]), pickle.HIGHEST_PROTOCOL)
    answer = bytearray(b"p")  # with its kind before it: some MB are not to be copied for that
    _encoder.encode_into((rest, candidates, piece.content), answer, 1)
    return answer


def _send(pipe: IO[bytes] | None, data: bytes | bytearray) -> None:
    assert pipe is not None  # noqa: S101 - made with pipes
    pipe.write(len(data).to_bytes(_LENGTH, "big"))
    pipe.write(data)
    pipe.flush()


def _receive(pipe: IO[bytes] | None) -> bytes:
    assert pipe is not None  # noqa: S101 - made with pipes
    return _exactly(pipe, int.from_bytes(_exactly(pipe, _LENGTH), "big"))


def _exactly(pipe: IO[bytes], size: int) -> bytes:
    data = pipe.read(size)
    if len(data) != size:
        raise EOFError
    return data


def _answer(transcripts: Transcripts, wanted: Wanted) -> bytes | bytearray:
    try:
        transcript = transcripts.open(wanted.path, wanted.root, wanted.saved)
        piece = _done(transcripts, transcript, wanted) if transcript is not None else None
        return _packed_up(piece) if piece is not None else b"n" + pickle.dumps(None)
    except MemoryError:
        return b"m"
    except Refused as refused:
        return b"r" + pickle.dumps((refused.path, refused.reason))
    except OSError as error:
        return b"o" + pickle.dumps((error.errno, error.strerror))
    except Exception as error:  # noqa: BLE001 - one file must never stop the others; status shows it
        return b"f" + pickle.dumps(type(error).__name__)
    finally:
        transcripts.forget(wanted.path)


def _done(transcripts: Transcripts, transcript: Transcript, wanted: Wanted) -> Piece | None:
    if wanted.task == "read":
        return transcripts.read(transcript, wanted.max_bytes, wanted.now, wanted.seen_ms)
    if wanted.task in ("whole tail", "tail"):
        return transcripts.take_tail(transcript, wanted.seen_ms, only_whole=wanted.task == "whole tail")
    return transcripts.settle(transcript, wanted.seen_ms, answered_only=wanted.task == "settle answered")


def _tell(error: BaseException) -> None:
    unforeseen.write_stderr(f"burnd: reading stopped on {unforeseen.kinds(error)} at {unforeseen.place(error)}")


def main() -> None:
    """Answers until the input ends."""
    unforeseen.never_quote(_tell)
    keep_little(_PIECE_BYTES)
    collect_seldom()
    asked, answers = sys.stdin.buffer, sys.stdout.buffer
    sys.stdout = sys.stderr  # whatever else is said must not stand between answers
    transcripts_type, index_path, inline_bytes, is_trial = pickle.loads(_receive(asked))  # noqa: S301 - our own parent
    transcripts: Transcripts = transcripts_type(index_path, inline_bytes, Acknowledger(None, frozenset()))
    if is_trial:
        with contextlib.suppress(OSError, ValueError):  # a smaller limit is set already
            resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))

    def acknowledge(item: Item | None) -> None:
        _send(answers, b"a" + msgspec.msgpack.encode(item))

    with contextlib.suppress(EOFError, BrokenPipeError, KeyboardInterrupt):
        while True:
            wanted: Wanted = pickle.loads(_receive(asked))  # noqa: S301 - from our own parent
            transcripts.guard = Acknowledger(acknowledge if is_trial else None, wanted.skipped)
            _send(answers, _answer(transcripts, wanted))


if __name__ == "__main__":
    main()
