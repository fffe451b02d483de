"""Reads logs in a child process, on another core: a large backlog, very long lines, and logs that crashed a process."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec

from burnd.ledger.blobs import Pack
from burnd.ledger.content import INLINE_BYTES, EncodedRecord
from burnd.logfiles.log_reader import Log, LogFormat, Logs, Piece
from burnd.logfiles.scanner import Refused
from burnd.recording.candidate import Candidate
from burnd.recording.child_process import ChildProcess
from burnd.recording.crash_guard import Acknowledger, Guard

# msgspec packs the many typed values of a piece; the few others are pickled.
_Packed = tuple[bytes, list[Candidate], list[EncodedRecord], list[Pack]]
_encoder = msgspec.msgpack.Encoder()
_packed = msgspec.msgpack.Decoder(_Packed)
_PIECE, _NO_PIECE, _REFUSED = b"p", b"n", b"r"


Task = Literal["read", "whole tail", "tail", "settle answered", "settle"]


class ReadRequest(NamedTuple):
    """`saved` is the log's cursor and state in the index."""

    path: str
    root: str
    saved: tuple[bytes, bytes] | None
    max_bytes: int
    now: float
    seen_ms: int
    task: Task = "read"


class BackfillProcess(ChildProcess):
    """A child that reads logs of one format; several requests may be sent ahead."""

    def __init__(
        self,
        log_format: type[LogFormat],
        index_path: Path,
        inline_bytes: int = INLINE_BYTES,
        *,
        stores_text: bool = True,
        is_trial: bool = False,
    ) -> None:
        super().__init__(_LogWorker, log_format, index_path, inline_bytes, stores_text, is_trial=is_trial)

    def receive_piece(self) -> Piece | None:
        return unpack_piece(self.receive())


class _LogWorker:
    def __init__(self, log_format: type[LogFormat], index_path: Path, inline_bytes: int, stores_text: bool) -> None:
        guard = Acknowledger(None, frozenset())
        self._logs = Logs(log_format(), index_path, guard, inline_bytes, stores_text=stores_text)

    def __call__(self, request: ReadRequest, guard: Guard) -> bytes | bytearray:
        logs = self._logs
        logs.guard = guard
        try:
            log = logs.open(request.path, request.root, request.saved)
            piece = _run(logs, log, request) if log is not None else None
            return _pack_piece(piece) if piece is not None else _NO_PIECE
        except Refused as refused:
            return _REFUSED + pickle.dumps((refused.path, refused.reason))
        finally:
            logs.forget(request.path)


def _run(logs: Logs, log: Log, request: ReadRequest) -> Piece | None:
    if request.task == "read":
        return logs.read(log, request.max_bytes, request.now, request.seen_ms)
    if request.task in ("whole tail", "tail"):
        return logs.take_tail(log, request.seen_ms, only_whole=request.task == "whole tail")
    return logs.settle(log, request.seen_ms, answered_only=request.task == "settle answered")


def _pack_piece(piece: Piece) -> bytearray:
    candidates, piece.reading.candidates, piece.reading.content = piece.reading.candidates, [], []
    rest = pickle.dumps(piece._replace(content=[], packs=[]), pickle.HIGHEST_PROTOCOL)
    answer = bytearray(_PIECE)
    _encoder.encode_into((rest, candidates, piece.content, piece.packs), answer, 1)
    return answer


def unpack_piece(answer: memoryview) -> Piece | None:
    """The piece in an answer, if it has one. Raises Refused."""
    kind, data = bytes(answer[:1]), answer[1:]
    if kind == _REFUSED:
        raise Refused(*pickle.loads(data))  # noqa: S301 - made by our own child
    if kind == _NO_PIECE:
        return None
    rest, candidates, content, packs = _packed.decode(data)
    piece: Piece = pickle.loads(rest)  # noqa: S301 - made by our own child
    piece.reading.candidates = candidates
    return piece._replace(content=content, packs=packs)
