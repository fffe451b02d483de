"""Encodes records as JSON lines and decodes them: the only module that knows the format of a line."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple, TypeVar, cast

import msgspec

from burnd.records.base import VERSION, Count, Record
from burnd.records.content import MAIN, Content
from burnd.records.names import LONGEST_NAME, Name, bound_names
from burnd.records.session import Compaction, Event, Origin, Overhead, Prune, Quota, Request, Session, Withheld
from burnd.records.stamp import Selector, Stamp
from burnd.records.times import to_ms
from burnd.records.turn import Copy, Turn

Entry = Turn | Stamp | Session | Compaction | Copy | Event | Overhead | Request | Quota | Prune | Origin | Withheld
Reason = Literal["corrupt", "unknown-kind", "unknown-version"]
T = TypeVar("T")

KINDS: dict[str, type[Record]] = {
    "turn": Turn,
    "stamp": Stamp,
    "session": Session,
    "compaction": Compaction,
    "copy": Copy,
    "event": Event,
    "overhead": Overhead,
    "request": Request,
    "quota": Quota,
    "prune": Prune,
    "origin": Origin,
    "withheld": Withheld,
}


class Skipped(msgspec.Struct, frozen=True):
    """`kind` is the kind in the line, cut to a safe length."""

    reason: Reason
    kind: str = ""


class _Envelope(msgspec.Struct):
    v: int
    kind: str
    record: msgspec.Raw = msgspec.Raw(b"")


class _TurnLine(msgspec.Struct, gc=False):
    v: int
    kind: Literal["turn"]
    record: Turn


class _FlatStamp(msgspec.Struct):
    ts: str
    selector: Selector
    enrichment: dict[Name, str]
    removes: tuple[Name, ...] = ()
    v: int = VERSION
    kind: str = "stamp"


class _OlderContent(Content, frozen=True, kw_only=True):
    """A line of the older ledger."""

    rail_id: str = MAIN
    n: Count = 0
    b: Count = -1


_KIND_OF = {record_type: kind for kind, record_type in KINDS.items()}
_DECODERS = {kind: msgspec.json.Decoder(t) for kind, t in KINDS.items() if t is not Stamp}
_PREFIX = {t: b'{"v":%d,"kind":"%s","record":' % (VERSION, kind.encode()) for kind, t in KINDS.items()}
_TURN = _PREFIX[Turn]
_turn = msgspec.json.Decoder(Turn)
_turn_lines = msgspec.json.Decoder(_TurnLine)
_encoder = msgspec.json.Encoder()
_envelope = msgspec.json.Decoder(_Envelope)
_flat_stamp = msgspec.json.Decoder(_FlatStamp)
_content = msgspec.json.Decoder(Content)
_older_content = msgspec.json.Decoder(_OlderContent)
_fields = msgspec.json.Decoder(dict[str, msgspec.Raw])
_KNOWN = {t: frozenset(t.__struct_encode_fields__) for t in KINDS.values()}


def kind_of(entry: Entry) -> str:
    return _KIND_OF[type(entry)]


def encode(entry: Entry) -> bytes:
    """A line of the ledger, newline included."""
    if isinstance(entry, Stamp):
        flat = {"v": VERSION, "kind": "stamp", "ts": entry.ts, "selector": entry.selector}
        removes = {"removes": entry.removes} if entry.removes else {}
        return _to_json({**flat, "enrichment": entry.enrichment, **removes}) + b"\n"
    return _PREFIX[type(entry)] + _to_json(entry) + b"}\n"


def encode_over(line: bytes, entry: Entry) -> bytes:
    """Keeps unknown fields."""
    if isinstance(entry, Stamp):
        return encode(entry)
    old = _fields.decode(_envelope.decode(line).record)
    unknown = {name: value for name, value in old.items() if name not in _KNOWN[type(entry)]}
    if not unknown:
        return encode(entry)
    new = _fields.decode(_to_json(entry))
    return _PREFIX[type(entry)] + _to_json(new | unknown) + b"}\n"


def decode(line: bytes, *, check: bool = True) -> Entry | Skipped:
    """Never raises. A turn has the format that burnd writes, or is read like any other record."""
    try:
        end = -2 if line.endswith(b"}}\n") else -1 if line.endswith(b"}}") else 0
        if end and line.startswith(_TURN):
            try:
                turn = _turn.decode(memoryview(line)[len(_TURN) : end])
            except (msgspec.MsgspecError, ValueError, RecursionError):
                return _decode(line, check=check)
            if check:
                to_ms(turn.ts)
            return turn
        return _decode(line, check=check)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return Skipped("corrupt")


def decode_again(line: bytes) -> Entry | Skipped:
    """Does not check times."""
    return decode(line, check=False)


def decode_many_again(lines: Sequence[bytes]) -> list[Entry | Skipped]:
    """Takes half the time if all are turns."""
    try:
        decoded = _turn_lines.decode_lines(b"".join(lines))
    except (msgspec.MsgspecError, ValueError, RecursionError):
        decoded = []
    if len(decoded) != len(lines):
        return [decode_again(line) for line in lines]
    return [one.record if one.v == VERSION else Skipped("unknown-version", one.kind) for one in decoded]


def _decode(line: bytes, *, check: bool) -> Entry | Skipped:
    envelope = _envelope.decode(line)
    if envelope.v != VERSION:
        return Skipped("unknown-version", envelope.kind[:40])
    if envelope.kind == "stamp":
        flat = _bounded(_flat_stamp, line)
        stamp = Stamp(ts=flat.ts, selector=flat.selector, enrichment=flat.enrichment, removes=flat.removes)
        return Skipped("corrupt", "stamp") if stamp.problem() else stamp
    decoder = _DECODERS.get(envelope.kind)
    if decoder is None:
        return Skipped("unknown-kind", envelope.kind[:40])
    entry = cast("Entry", _bounded(decoder, envelope.record))
    if check:
        _check_times(entry)
    return entry


def _bounded(decoder: msgspec.json.Decoder[T], data: bytes | msgspec.Raw) -> T:
    """Accepts longer names and null for missing fields, as in older records."""
    try:
        return decoder.decode(data)
    except msgspec.ValidationError:
        return decoder.decode(_shortened(data, decoder.type))


def _shortened(data: bytes | msgspec.Raw, struct: type[Any]) -> bytes:
    value = msgspec.json.decode(data)
    if isinstance(value, dict):
        value = {name: item for name, item in value.items() if item is not None}
    return _encoder.encode(bound_names(value, struct))


def _check_times(entry: Entry) -> None:
    """Raises ValueError: a bad time would break orders and filters later."""
    if isinstance(entry, Turn):
        to_ms(entry.ts)
    elif isinstance(entry, Prune):
        to_ms(entry.up_to)
    elif isinstance(entry, Session):
        for text in (entry.created_at, entry.updated_at, entry.content_since):
            to_ms(text or "1970-01-01")
    elif isinstance(entry, Origin):
        to_ms(entry.content_since or "1970-01-01")
    elif not isinstance(entry, Withheld):
        to_ms(entry.ts)
    if isinstance(entry, Quota) and entry.resets_at is not None:
        to_ms(entry.resets_at)


def encode_content(record: Content) -> bytes:
    return _to_json(record) + b"\n"


def decode_content(line: bytes, position: int = 0) -> Content | Skipped:
    """Never raises. A block of the older format gets the position of its line as its number."""
    try:
        record = _content_in(line, position)
        to_ms(record.ts)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return Skipped("corrupt")
    return record if record.v == VERSION else Skipped("unknown-version", "content")


def _content_in(line: bytes, position: int) -> Content:
    try:
        return _content.decode(line)
    except msgspec.ValidationError:
        fields = {name: value for name, value in _fields.decode(line).items() if bytes(value) != b"null"}
        older = _older_content.decode(_encoder.encode(fields))
    values = {name: getattr(older, name) for name in Content.__struct_fields__}
    return Content(**values | ({"b": position} if older.b < 0 else {}))


class EncodedEntry(NamedTuple):
    """`entry` is as it will be read back."""

    line: bytes
    entry: Entry
    digest: int


def encoded(entry: Entry) -> EncodedEntry | None:
    """None if the entry could not be read back."""
    if isinstance(entry, Stamp):
        stamp = decode(encode(entry))
        return None if isinstance(stamp, Skipped) else EncodedEntry(encode(stamp), stamp, digest(stamp))
    body = _to_json(entry)
    try:
        decoder = _DECODERS[_KIND_OF[type(entry)]]
        if isinstance(entry, Turn) and not body.isascii() and _has_long_name(entry):
            body = _shortened(body, Turn)
        try:
            back = cast("Entry", decoder.decode(body))
        except msgspec.ValidationError:
            body = _shortened(body, type(entry))
            back = cast("Entry", decoder.decode(body))
        _check_times(back)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None
    is_first = not isinstance(entry, Turn) or entry.rev == 1
    return EncodedEntry(_PREFIX[type(entry)] + body + b"}\n", back, hash_of(body) if is_first else digest(back))


def bounded_turn(turn: Turn) -> Turn:
    """The turn as the ledger would give it back: names with too many bytes are cut."""
    return _turn.decode(_shortened(_to_json(turn), Turn)) if _has_long_name(turn) else turn


def _has_long_name(turn: Turn) -> bool:
    """In bytes; decoding only checks the number of characters, the same in ASCII."""
    texts = [turn.provider, turn.git_branch, turn.stop_reason, turn.harness_version, turn.request_id]
    names = [turn.model, *(text or "" for text in texts)]
    names += [call.name for call in turn.tool_calls]
    if max(map(len, names)) * 4 <= LONGEST_NAME:
        return False
    return any(len(name) * 4 > LONGEST_NAME and len(name.encode()) > LONGEST_NAME for name in names)


def digest(entry: Entry) -> int:
    """Without the revision: equal records need no new line."""
    if isinstance(entry, Turn) and entry.rev != 1:
        entry = msgspec.structs.replace(entry, rev=1)
    return hash_of(_to_json(entry))


def hash_of(line: bytes) -> int:
    """A signed 64-bit hash, the same in every process."""
    return int.from_bytes(hashlib.blake2b(line, digest_size=8).digest(), "big", signed=True)


def clean(text: str) -> str:
    """Replaces lone surrogates, which UTF-8 and SQLite cannot store."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def _to_json(value: Any) -> bytes:
    try:
        return _encoder.encode(value)
    except UnicodeEncodeError:
        return _encoder.encode(_cleaned(value))


def _cleaned(value: Any) -> Any:
    """Keeps structs, so that defaults are left out."""
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, msgspec.Struct):
        fields = {name: _cleaned(getattr(value, name)) for name in value.__struct_fields__}
        return type(value)(**fields)
    if isinstance(value, dict):
        return {_cleaned(key): _cleaned(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(_cleaned(item) for item in value)
    return value
