"""JSON-RPC 2.0: parses requests; encodes answers, errors and notifications."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from burnd import protocol
from burnd.records.foreign_json import without_lone_surrogates

_MOST_SHOWN = 300
NO_ID = msgspec.Raw(b"null")
NO_PARAMS = msgspec.Raw(b"{}")
_ABSENT = msgspec.Raw(b"")
_encoder = msgspec.json.Encoder()
_LONG = 64  # items or characters
_SCALARS = frozenset((int, float, bool, type(None)))  # most values: the check of a Mapping is slow
_SIZED = (str, list, tuple, dict, msgspec.Raw, Mapping)


class Fault(Exception):
    """An error for the client. `about` is what it concerns."""

    def __init__(self, code: int, message: str, hint: str = "", about: str = "") -> None:
        self.code, self.message, self.hint, self.about = code, message, hint, about
        super().__init__(message)


class _Envelope(msgspec.Struct, forbid_unknown_fields=True):
    jsonrpc: str
    method: str
    id: msgspec.Raw = _ABSENT
    params: msgspec.Raw = NO_PARAMS


class Request(msgspec.Struct, frozen=True):
    """`id` is echoed byte by byte; None for a notification, which gets no answer."""

    method: str
    params: msgspec.Raw
    id: msgspec.Raw | None


class BadRequest(Fault):
    def __init__(self, code: int, message: str, hint: str = "", id_: msgspec.Raw = NO_ID) -> None:
        super().__init__(code, message, hint)
        self.id = id_


_envelopes = msgspec.json.Decoder(_Envelope)
_ids = msgspec.json.Decoder(str | int | float | None)


def parse(line: bytes) -> Request:
    """Raises BadRequest."""
    try:
        line.decode("utf-8")
        envelope = _envelope(line)
    except UnicodeDecodeError:
        raise BadRequest(protocol.NOT_JSON, "the request is not UTF-8") from None
    except RecursionError:
        raise BadRequest(protocol.NOT_JSON, "the request is nested too deeply") from None
    except msgspec.ValidationError as error:
        if line.lstrip()[:1] == b"[":
            hint = "send each request on a separate line"
            raise BadRequest(protocol.NOT_A_REQUEST, "batches are not supported", hint) from None
        try:
            id_ = _checked_id(msgspec.json.decode(line, type=dict[str, msgspec.Raw]).get("id", _ABSENT))
        except (msgspec.MsgspecError, ValueError, RecursionError, Fault):
            id_ = None
        raise BadRequest(protocol.NOT_A_REQUEST, f"not a request: {_short(error)}", id_=id_ or NO_ID) from None
    except (msgspec.DecodeError, ValueError) as error:
        raise BadRequest(protocol.NOT_JSON, f"the request is not JSON: {_short(error)}") from None
    id_ = _checked_id(envelope.id)
    if envelope.jsonrpc != "2.0":
        raise BadRequest(protocol.NOT_A_REQUEST, 'jsonrpc must be "2.0"', id_=id_ or NO_ID)
    return Request(envelope.method, envelope.params, id_)


def _envelope(line: bytes) -> _Envelope:
    """Repairs lone surrogates instead of rejecting the request."""
    try:
        return _envelopes.decode(line)
    except msgspec.DecodeError:
        repaired = without_lone_surrogates(line)
        if repaired == line:
            raise
    return _envelopes.decode(repaired)


def _checked_id(raw: msgspec.Raw) -> msgspec.Raw | None:
    if not bytes(raw):
        return None
    try:
        _ids.decode(raw)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        raise BadRequest(protocol.NOT_A_REQUEST, "id must be a string, a number or null") from None
    return raw


def answer(id_: msgspec.Raw, result: Mapping[str, Any]) -> bytes:
    """Encodes piece by piece, and raises Fault if the line is too large."""
    line = bytearray(b'{"jsonrpc":"2.0","id":' + bytes(id_) + b',"result":')
    for piece in _pieces({"version": protocol.VERSION, **result}):
        line += piece
        if len(line) > protocol.ANSWER_BYTES:
            most = protocol.ANSWER_BYTES >> 20
            raise Fault(
                protocol.TOO_LARGE,
                f"the answer is larger than {most} MiB",
                "narrow the filters, or page with a smaller limit",
            )
    return bytes(line + b"}\n")


def _pieces(value: Any) -> Iterator[bytes]:
    if isinstance(value, Mapping) and any(map(_is_long, value.values())):
        before = b"{"
        for key, item in value.items():
            yield before + _encoded(str(key)) + b":"
            yield from _pieces(item)
            before = b","
        yield b"}"
    elif isinstance(value, list | tuple) and _is_long(value):
        before = b"["
        for item in value:
            yield before
            yield from _pieces(item)
            before = b","
        yield b"]"
    else:
        yield _encoded(value)


def _is_long(value: Any) -> bool:
    return type(value) not in _SCALARS and isinstance(value, _SIZED) and len(value) > _LONG


def error(id_: msgspec.Raw, fault: Fault) -> bytes:
    data = {"name": protocol.NAMES[fault.code], "hint": fault.hint, "version": protocol.VERSION}
    data |= {"about": fault.about} if fault.about else {}
    return _line({"jsonrpc": "2.0", "id": id_, "error": {"code": fault.code, "message": fault.message, "data": data}})


def notification(method: str, params: Mapping[str, Any]) -> bytes:
    return _line({"jsonrpc": "2.0", "method": method, "params": params})


def _line(message: Mapping[str, Any]) -> bytes:
    return _encoded(message) + b"\n"


def _encoded(value: Any) -> bytes:
    try:
        return _encoder.encode(value)
    except UnicodeEncodeError:
        return _encoder.encode(_repaired(value))


def _repaired(value: Any) -> Any:
    """File names may be any bytes."""
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, Mapping):
        return {_repaired(key): _repaired(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_repaired(item) for item in value]
    return value


def _short(reason: object) -> str:
    text = str(reason)
    return text if len(text) <= _MOST_SHOWN else text[:_MOST_SHOWN] + "..."
