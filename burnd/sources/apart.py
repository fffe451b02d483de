"""Reads transcripts in a process of its own, for as long as there is a lot to read.

Reading is most of the work of a first start and needs nothing but the file and its rows: so it is done on another
core, while this process makes durable what was read before. The other process ends when its input does, which is also
what it sees when this one dies.
"""

from __future__ import annotations

import contextlib
import fcntl
import pickle
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, NamedTuple

import msgspec

from burnd import unforeseen
from burnd.ledger.shelving import INLINE_BYTES, Shelved
from burnd.memory import collect_seldom, keep_little
from burnd.readers.holding import Holding
from burnd.sources.safe_open import Refused
from burnd.sources.transcripts import Piece, Transcripts

_LENGTH = 8
_PIPE_BYTES = 1 << 20
_NOTE = "reading-apart"
_PATIENCE_S = 2.0
HANGS_S = 60.0  # a piece takes a second, and many on a machine that has no memory left
_PIECE_BYTES = 4 << 20  # a piece with all that is made of it: the next one needs as much again

# The many small things of a piece are packed by msgspec, which knows their types; the few others are pickled.
Packed = tuple[bytes, list[Holding], list[Shelved]]
_encoder = msgspec.msgpack.Encoder()
_packed = msgspec.msgpack.Decoder(Packed)


class Wanted(NamedTuple):
    """One turn at one file; `saved` is its cursor and state from the index."""

    path: str
    root: str
    saved: tuple[bytes, bytes] | None
    max_bytes: int
    now: float
    seen_ms: int


class Gone(Exception):
    """Raised when the other process has ended: what it was to read is read here."""


class Unreadable(Exception):
    """Raised when a reader failed over a file there, as it would have here."""


class Apart:
    """The other process, started when it is first asked. Its methods block, and are called by one thread at a time.

    It may be asked for a file before it has answered for another, so that it always has something to do: answers come
    in the order of asking.
    """

    def __init__(self, transcripts: type[Transcripts], index_path: Path, inline_bytes: int = INLINE_BYTES) -> None:
        self._setting = (transcripts, index_path, inline_bytes)
        self._process: subprocess.Popen[bytes] | None = None

    def ask(self, wanted: Wanted) -> None:
        """Lets it begin with a file. Raises Gone when it has ended."""
        if self._process is None:
            self._process = _started(self._setting)
        try:
            _send(self._process.stdin, pickle.dumps(wanted))
        except OSError as error:
            self.close()
            raise Gone("the process that reads transcripts has ended") from error

    def answer(self) -> Piece | None:
        """What `Transcripts.read` would give for the first file that was asked for; None where it is no transcript."""
        try:
            if self._process is None:
                raise EOFError
            with _ended_if_it_hangs(self._process):
                told = _receive(self._process.stdout)
        except (OSError, EOFError) as error:
            self.close()
            raise Gone("the process that reads transcripts has ended") from error
        return _told(told)

    def close(self) -> None:
        """Ends the other process; it has nothing that is not here as well."""
        process, self._process = self._process, None
        if process is None:
            return
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()
        try:
            process.wait(_PATIENCE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


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
    command = [sys.executable, "-P", "-m", "burnd.sources.apart"]
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
    rest, holdings, content = _packed.decode(data)
    piece: Piece = pickle.loads(rest)  # noqa: S301 - made by our own child
    piece.reading.holdings = holdings
    return piece._replace(content=content)


def _packed_up(piece: Piece) -> bytearray:
    holdings, piece.reading.holdings, piece.reading.content = piece.reading.holdings, [], []
    rest = pickle.dumps(piece._replace(content=[]), pickle.HIGHEST_PROTOCOL)
    answer = bytearray(b"p")  # with its kind before it: some MB are not to be copied for that
    _encoder.encode_into((rest, holdings, piece.content), answer, 1)
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
        if transcript is None:
            return b"n" + pickle.dumps(None)
        return _packed_up(transcripts.read(transcript, wanted.max_bytes, wanted.now, wanted.seen_ms))
    except Refused as refused:
        return b"r" + pickle.dumps((refused.path, refused.reason))
    except OSError as error:
        return b"o" + pickle.dumps((error.errno, error.strerror))
    except Exception as error:  # noqa: BLE001 - one file must never stop the others; status shows it
        return b"f" + pickle.dumps(type(error).__name__)
    finally:
        transcripts.forget(wanted.path)


def _tell(error: BaseException) -> None:
    unforeseen.write_stderr(f"burnd: reading stopped on {unforeseen.kinds(error)} at {unforeseen.place(error)}")


def main() -> None:
    """Answers until the input ends."""
    unforeseen.never_quote(_tell)
    keep_little(_PIECE_BYTES)
    collect_seldom()
    asked, answers = sys.stdin.buffer, sys.stdout.buffer
    sys.stdout = sys.stderr  # whatever else is said must not stand between answers
    transcripts_type, index_path, inline_bytes = pickle.loads(_receive(asked))  # noqa: S301 - from our own parent
    transcripts: Transcripts = transcripts_type(index_path, inline_bytes, note=_NOTE)
    with contextlib.suppress(EOFError, BrokenPipeError, KeyboardInterrupt):
        while True:
            _send(answers, _answer(transcripts, pickle.loads(_receive(asked))))  # noqa: S301 - from our own parent


if __name__ == "__main__":
    main()
