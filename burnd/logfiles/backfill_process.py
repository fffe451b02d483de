"""Reads logs in a child process: a large backlog, and logs that an earlier process died over.

Reading is most of the work of a first start and needs nothing but the file and its rows: so it is done on another
core, while this process makes durable what was read before.
"""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec

from burnd.ledger.shelving import INLINE_BYTES, Shelved
from burnd.logfiles.safe_open import Refused
from burnd.logfiles.transcripts import Piece, Transcript, Transcripts
from burnd.recording.candidate import Candidate
from burnd.recording.child_process import ChildProcess
from burnd.recording.crash_guard import Acknowledger, Guard, Item

# The many small things of a piece are packed by msgspec, which knows their types; the few others are pickled.
Packed = tuple[bytes, list[Candidate], list[Shelved]]
_encoder = msgspec.msgpack.Encoder()
_packed = msgspec.msgpack.Decoder(Packed)
_PIECE, _NO_LOG, _REFUSED = b"p", b"n", b"r"


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
    task: Task = "read"


class Apart(ChildProcess):
    """The child that reads logs. Answers come in the order of the requests, so that it always has something to do."""

    def __init__(
        self,
        transcripts: type[Transcripts],
        index_path: Path,
        inline_bytes: int = INLINE_BYTES,
        *,
        is_trial: bool = False,
    ) -> None:
        super().__init__(_Worker, transcripts, index_path, inline_bytes, is_trial=is_trial)

    def ask(self, wanted: Wanted, skipped: frozenset[Item] = frozenset()) -> None:
        """Lets it begin with a file. Raises Gone when it has ended."""
        self.send(wanted, skipped)

    def answer(self) -> Piece | None:
        """The result of the oldest request; None if the file is not a log. Raises what `receive` does, and Refused."""
        return unpacked(self.receive())


class _Worker:
    """Reads logs in the child."""

    def __init__(self, transcripts: type[Transcripts], index_path: Path, inline_bytes: int) -> None:
        self._transcripts = transcripts(index_path, inline_bytes, Acknowledger(None, frozenset()))

    def __call__(self, wanted: Wanted, guard: Guard) -> bytes | bytearray:
        transcripts = self._transcripts
        transcripts.guard = guard
        try:
            transcript = transcripts.open(wanted.path, wanted.root, wanted.saved)
            piece = _done(transcripts, transcript, wanted) if transcript is not None else None
            return _packed_up(piece) if piece is not None else _NO_LOG
        except Refused as refused:
            return _REFUSED + pickle.dumps((refused.path, refused.reason))
        finally:
            transcripts.forget(wanted.path)


def unpacked(answer: memoryview) -> Piece | None:
    """The piece in an answer; None if there is none. Raises Refused."""
    kind, data = bytes(answer[:1]), answer[1:]
    if kind == _REFUSED:
        raise Refused(*pickle.loads(data))  # noqa: S301 - made by our own child
    if kind == _NO_LOG:
        return None
    rest, candidates, content = _packed.decode(data)
    piece: Piece = pickle.loads(rest)  # noqa: S301 - made by our own child
    piece.reading.candidates = candidates
    return piece._replace(content=content)


def _packed_up(piece: Piece) -> bytearray:
    candidates, piece.reading.candidates, piece.reading.content = piece.reading.candidates, [], []
    rest = pickle.dumps(piece._replace(content=[]), pickle.HIGHEST_PROTOCOL)
    answer = bytearray(_PIECE)  # with its kind before it: some MB are not to be copied for that
    _encoder.encode_into((rest, candidates, piece.content), answer, 1)
    return answer


def _done(transcripts: Transcripts, transcript: Transcript, wanted: Wanted) -> Piece | None:
    if wanted.task == "read":
        return transcripts.read(transcript, wanted.max_bytes, wanted.now, wanted.seen_ms)
    if wanted.task in ("whole tail", "tail"):
        return transcripts.take_tail(transcript, wanted.seen_ms, only_whole=wanted.task == "whole tail")
    return transcripts.settle(transcript, wanted.seen_ms, answered_only=wanted.task == "settle answered")
