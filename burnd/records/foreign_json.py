"""Decodes JSON of other programs to a value, a repaired value or a reason; never raises.

Bounds the number and length of values before decoding: a million small values take a hundred times the memory of their
bytes. The excess is cut out of the JSON text; what follows it stays.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Iterator
from types import UnionType
from typing import Any, Final, Generic, Literal, NamedTuple, TypeVar, get_args

import msgspec

from burnd.records.names import bound_names

T = TypeVar("T")
Buffer = bytes | msgspec.Raw

Reason = Literal["empty", "not-json", "not-an-object", "too-deep", "too-large", "not-finite", "wrong-shape"]
Repair = Literal["bom", "nul", "utf8", "surrogate", "big-number", "wrong-type", "long-name", "many-values", "large"]
Surplus = Literal["many-values", "large"]

MAX_DEPTH: Final = 200
MOST_VALUES: Final = 20_000  # real lines have some hundreds
WHOLE_BYTES: Final = 16 << 20  # larger JSON has its long texts cut
LONGEST_TEXT: Final = 1 << 20  # then; also the most that content.read shows
CUT_MARK: Final = b"... (cut)"

FAILURES: Final = (msgspec.MsgspecError, ValueError, RecursionError)
_PADDING: Final = b" \t\r\n\0"

# Repairs.
_MAX_SALVAGES: Final = 32
_BOM: Final = b"\xef\xbb\xbf"
_STRING: Final = rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?'  # an unclosed one matches to the end of the text
_STRINGS: Final = re.compile(_STRING, re.DOTALL)
_STRING_OR_NUMBER: Final = re.compile(_STRING + rb"|-?\d[\d.eE+-]*+", re.DOTALL)
_LOW: Final = rb"\\u[dD][c-fC-F][0-9a-fA-F]{2}"
_HIGH: Final = rb"\\u[dD][89abAB][0-9a-fA-F]{2}"
# Up to the next lone surrogates. Escapes match as a whole, so that the `ud800` of `\\ud800` stays.
_TO_LONE: Final = re.compile(
    rb"((?:[^\\]++|\\(?:[^u]|u(?![dD][89a-fA-F][0-9a-fA-F]{2}))|" + _HIGH + _LOW + rb")*+)"
    rb"((?:" + _HIGH + rb"(?!" + _LOW + rb")|" + _LOW + rb")++)",
    re.DOTALL,
)
_ESCAPE_BYTES: Final = 6
_ERROR_PATH: Final = "at `$"
_PATH_STEP: Final = re.compile(r"\.([^.\[]+)|\[(\d+)\]|(\[\.\.\.\])")
# All other bytes: deleting them takes a third of the time of counting each of these.
_NOT_BRACKETS: Final = bytes(set(range(256)) - set(b"[]{}"))
_NOT_OPENING: Final = bytes(set(range(256)) - set(b"[{"))
_NOT_MARKS: Final = bytes(set(range(256)) - set(b",[{"))
_BIG_DIGITS: Final = 19

# Bounds.
_LEAST_VALUES: Final = 256  # in a field after others used up the bound
_SHORT, _SHORTEST = 1024, 64
_MARK: Final = re.compile(rb'[^"\[\]{},]*+(["\[\]{},])')
_CLOSING: Final = {b"[": b"]", b"{": b"}"}
_FEW_BYTES: Final = 64
_TRIES: Final = 32  # quotes before a string is searched in portions


class Rejected(msgspec.Struct, frozen=True):
    reason: Reason


class Repaired(msgspec.Struct, Generic[T], frozen=True):
    value: T
    what: tuple[Repair, ...]


class SafeDecoder(Generic[T]):
    """Decodes lines into a struct type whose fields all have defaults.

    Tries repairs only after a failure. `Raw` parts may be nested deeply or have huge numbers: `unpack` rejects those.
    """

    def __init__(self, struct: type[T]) -> None:
        self._struct = struct
        self._typed = msgspec.json.Decoder(struct)
        self._outline = _Outline(struct)

    def decode(self, line: bytes, offset: int = -1) -> T | Repaired[T] | Rejected:
        """A BOM is accepted only at offset 0."""
        if len(line) <= MOST_VALUES and line.isascii():  # as most lines are
            try:
                return self._typed.decode(line)
            except FAILURES:
                pass
        if (excess := surplus(line)) is None:
            return self._decoded(line, offset)
        repairs: tuple[Repair, ...] = ()
        try:
            short = self._outline.bounded(line.strip(_PADDING), MOST_VALUES)
        except FAILURES:
            line, repairs = _repaired_bytes(line, offset)
            if not repairs:
                return Rejected("not-json")
            try:
                short = self._outline.bounded(line, MOST_VALUES)
            except FAILURES:
                return Rejected("not-json")
        result = self._decoded(_small(short), offset)
        if isinstance(result, Rejected):
            return Rejected("too-large") if result.reason == "empty" else result
        value, what = (result.value, result.what) if isinstance(result, Repaired) else (result, ())
        return Repaired(value, (*repairs, *what, excess))

    def value(self, data: bytes | msgspec.Raw) -> T | None:
        """None if rejected."""
        result = self.decode(bytes(data))
        if isinstance(result, Repaired):
            return result.value
        return None if isinstance(result, Rejected) else result

    def _decoded(self, line: bytes, offset: int) -> T | Repaired[T] | Rejected:
        try:
            if line.isascii() or _is_utf8(line):
                return self._typed.decode(line)
        except FAILURES:
            pass
        line, what = _repaired_bytes(line, offset)
        if not line:
            return Rejected("empty")
        try:
            value = self._typed.decode(line)
        except RecursionError:
            return Rejected("too-deep")
        except msgspec.ValidationError:
            return self._salvaged(line, what)
        except ValueError:
            return Rejected("not-json")
        return Repaired(value, what) if what else value

    def _salvaged(self, line: bytes, what: tuple[Repair, ...]) -> T | Repaired[T] | Rejected:
        """Cuts long names and drops fields of a wrong type: one bad field must not lose the usage."""
        loose = plain(line)
        if isinstance(loose, Rejected):
            return loose
        if not isinstance(loose, dict):
            return Rejected("not-an-object")
        short = bound_names(loose, self._struct)
        if short != loose:
            loose, what = short, (*what, "long-name")
            with contextlib.suppress(*FAILURES):
                return Repaired(self._typed.decode(msgspec.json.encode(loose)), what)
        for _ in range(_MAX_SALVAGES):
            try:
                value = self._typed.decode(msgspec.json.encode(loose))
            except msgspec.ValidationError as error:
                if not _drop(loose, str(error)):
                    break
            except FAILURES:
                break
            else:
                return Repaired(value, (*what, "wrong-type"))
        return Rejected("wrong-shape")


def plain(data: bytes) -> Any | Rejected:
    """At most `MAX_DEPTH` deep, all numbers finite, huge integers as text."""
    return unpack(msgspec.Raw(data)).value


class Unpacked(NamedTuple):
    """`raw` is JSON that any program can decode."""

    value: Any | Rejected
    raw: msgspec.Raw


def unpack(raw: msgspec.Raw) -> Unpacked:
    """A rejected part becomes a JSON string of itself."""
    data = bytes(raw)
    if len(data) > MOST_VALUES and surplus(data) is not None:
        data = reduced(data) or b"null"
        raw = msgspec.Raw(data)
    try:
        brackets = 0 if len(data) <= 2 * MAX_DEPTH else len(data.translate(None, _NOT_OPENING))
        if brackets <= MAX_DEPTH or depth(data) <= MAX_DEPTH:
            return Unpacked(msgspec.json.decode(data), raw)
        value: Any = Rejected("too-deep")
    except RecursionError:
        value = Rejected("too-deep")
    except msgspec.ValidationError:  # integers out of range become text
        try:
            value = msgspec.json.decode(_STRING_OR_NUMBER.sub(_big_number_as_text, data))
        except FAILURES:
            value = Rejected("not-finite")
    except ValueError:
        value = Rejected("not-json")
    text = data.decode("utf-8", "replace") if isinstance(value, Rejected) else value
    return Unpacked(value, msgspec.Raw(msgspec.json.encode(text)))


def _big_number_as_text(match: re.Match[bytes]) -> bytes:
    token = match[0]
    digits = token[1:] if token.startswith(b"-") else token
    return b'"%s"' % token if len(digits) > _BIG_DIGITS and digits.isdigit() else token


def depth(data: bytes) -> int:
    deepest = level = 0
    for byte in _STRINGS.sub(b"", data).translate(None, _NOT_BRACKETS):
        if byte in b"[{":
            level += 1
            deepest = max(deepest, level)
        else:
            level -= 1
    return deepest


def _is_utf8(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def _repaired_bytes(line: bytes, offset: int) -> tuple[bytes, tuple[Repair, ...]]:
    what: list[Repair] = []
    if offset == 0 and line.startswith(_BOM):
        line = line[len(_BOM) :]
        what.append("bom")
    stripped = line.strip(_PADDING)
    if b"\0" in line and b"\0" not in stripped:
        what.append("nul")
    line = stripped
    if not _is_utf8(line):
        line = line.decode("utf-8", "replace").encode()
        what.append("utf8")
    repaired = without_lone_surrogates(line)
    if repaired != line:
        what.append("surrogate")
    return repaired, tuple(what)


def without_lone_surrogates(data: bytes) -> bytes:
    """Replaces half of an escaped surrogate pair in JSON by the replacement character."""
    parts: list[bytes] = []
    at = 0
    while (match := _TO_LONE.match(data, at)) is not None:
        parts += [match[1], b"\\ufffd" * (len(match[2]) // _ESCAPE_BYTES)]
        at = match.end()
    return b"".join([*parts, data[at:]]) if parts else data


def _drop(loose: dict[str, Any], error: str) -> bool:
    """Also converts numbers to integers. False if the error names no value."""
    _, marker, path = error.rpartition(_ERROR_PATH)
    steps: list[Any] = []
    for name, index, anything in _PATH_STEP.findall(path.removesuffix("`") if marker else ""):
        if anything:
            break
        steps.append(name or int(index))
    if not steps:
        return False
    container: Any = loose
    try:
        for step in steps[:-1]:
            container = container[step]
        value = container[steps[-1]]
        is_digits = isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < _BIG_DIGITS
        if is_digits or (isinstance(value, float) and value.is_integer()):
            container[steps[-1]] = int(value)
        else:
            del container[steps[-1]]
    except (LookupError, TypeError):
        return False
    return True


def surplus(data: bytes) -> Surplus | None:
    if len(data) > WHOLE_BYTES:
        return "large"
    if len(data) <= MOST_VALUES or _marks(data) <= MOST_VALUES:
        return None
    values = at = 0
    while (at := _after_mark(data, at)) > 0:
        values += data[at - 1] in b"[{,"
        if values > MOST_VALUES:
            return "many-values"
    return None


def reduced(data: bytes, most: int = MOST_VALUES) -> bytes:
    """Empty if it is not JSON, is nested too deeply, or is still too large."""
    return _small(_with_values(data.strip(_PADDING), most))


def _small(data: bytes) -> bytes:
    if len(data) <= WHOLE_BYTES:
        return data
    view = memoryview(data)
    return small_values(bytes(view[at : at + LONGEST_TEXT]) for at in range(0, len(data), LONGEST_TEXT))


def _with_values(data: bytes, most: int) -> bytes:
    """The last list element is whole if others come before it."""
    closing: list[bytes] = []  # of the open brackets
    values = at = last_element = 0
    while (end := _after_mark(data, at)) > 0:
        at, mark = end, data[end - 1 : end]
        if mark in b"]}":
            if not closing or closing.pop() != mark:
                return b""
            continue
        values += 1
        if mark != b",":
            closing.append(_CLOSING[mark])
        elif closing == [b"]"]:
            last_element = at - 1
        if not closing or len(closing) > MAX_DEPTH:
            return b""
        if values > most:
            if last_element:
                return data[:last_element] + b"]"
            return data[: at - (mark == b",")] + b"".join(reversed(closing))
    return data


class _Outline:
    """Reduces a JSON object to the fields of a struct and to a number of values, without decoding the fields."""

    def __init__(self, struct: type[Any]) -> None:
        fields = msgspec.structs.fields(struct)
        self._fields: list[tuple[str, bytes, _Outline | None]] = []
        for field in fields:
            options = set(get_args(field.type)) - {type(None)} if isinstance(field.type, UnionType) else {field.type}
            inner = options.pop() if len(options) == 1 else None
            is_struct = isinstance(inner, type) and issubclass(inner, msgspec.Struct)
            outline = _Outline(inner) if is_struct and inner is not None else None
            self._fields.append((field.name, msgspec.json.encode(field.encode_name) + b":", outline))
        raw = [(field.name, msgspec.Raw, msgspec.Raw()) for field in fields]
        rename = {field.name: field.encode_name for field in fields}
        self._decoder = msgspec.json.Decoder(msgspec.defstruct(struct.__name__, raw, rename=rename))

    def bounded(self, data: bytes, room: int) -> bytes:
        """Raises as msgspec does if the data is not an object."""
        return b"".join(self._parts(data, room))

    def _parts(self, data: Buffer, room: int) -> Iterator[Buffer]:
        """Copies long values only to count what is in them."""
        if len(data) <= _LEAST_VALUES:
            yield data
            return
        raw = self._decoder.decode(data)
        before = b"{"
        for name, key, outline in self._fields:
            value: Buffer = getattr(raw, name)
            if not value:
                continue
            yield before + key
            before = b","
            most, opening = max(room, _LEAST_VALUES), bytes(memoryview(value)[:1])
            if outline is not None and opening == b"{":
                yield from outline._parts(value, most)
            elif opening == b'"':
                yield value
            elif (marks := _marks(copy := bytes(value))) <= most:
                room -= marks
                yield value
            else:
                room = 0
                yield _with_values(copy, most) or b"null"
        yield b"}" if before == b"," else b"{}"


def small_values(chunks: Iterable[bytes]) -> bytes:
    """Cuts long strings, in one pass over the chunks; empty if the text is still too large."""
    output = bytearray()
    in_string, length, rest = False, 0, b""
    for chunk in chunks:
        data, at = rest + chunk, 0
        rest = b""
        while at < len(data):
            if not in_string:
                quote = data.find(b'"', at)
                end = len(data) if quote < 0 else quote + 1
                output += data[at:end]
                in_string, length, at = quote >= 0, 0, end
                continue
            end = _quote_after(data, at)
            end = _whole_escapes(data, at) if end < 0 else end
            room = _longest_after(len(output)) - length
            if room >= 0:
                output += data[at:end] if end - at <= room else _whole_characters(data[at : at + room]) + CUT_MARK
            length += end - at
            if data[end : end + 1] == b"\\":
                rest = data[end:]  # half of an escape
                break
            if end < len(data):
                output += b'"'
                in_string, end = False, end + 1
            at = end
        if len(output) > 2 * WHOLE_BYTES:
            return b""
    return bytes(output)


def _longest_after(size: int) -> int:
    if size < WHOLE_BYTES // 2:
        return LONGEST_TEXT
    return _SHORT if size < WHOLE_BYTES else _SHORTEST


def _whole_characters(text: bytes) -> bytes:
    """Without an incomplete escape or character at its end."""
    text = text[: _whole_escapes(text, 0)]
    for back in range(1, min(4, len(text)) + 1):
        if text[-back] < 0x80:
            break
        if text[-back] >= 0xC0:
            return text[:-back]
    return text


def _marks(data: bytes) -> int:
    """An upper bound of the number of values: marks within strings count, too."""
    return len(data.translate(None, _NOT_MARKS))


def _after_mark(data: bytes, at: int) -> int:
    """After the next bracket or comma outside of strings; 0 if none follows."""
    while (match := _MARK.match(data, at)) is not None:
        at = match.end()
        if match[1] != b'"':
            return at
        at = _quote_after(data, at) + 1
        if at == 0:
            break
    return 0


def _quote_after(data: bytes, at: int) -> int:
    """The end of the string that `at` is in; -1 if it is not closed."""
    begin = at
    for _ in range(_TRIES):
        quote = data.find(b'"', at)
        if quote < 0 or _slashes_before(data, begin, quote) % 2 == 0:
            return quote
        at = quote + 1
    while at < len(data):  # in portions, to let other threads run
        end = min(at + LONGEST_TEXT, len(data))
        end -= _slashes_before(data, at, end) % 2
        text = data[at:end].replace(b"\\\\", b"__").replace(b'\\"', b"__")
        if (quote := text.find(b'"')) >= 0 or not text:
            return at + quote if text else -1
        at = end
    return -1


def _slashes_before(data: bytes, begin: int, end: int) -> int:
    text = data[max(begin, end - _FEW_BYTES) : end]
    slashes = len(text) - len(text.rstrip(b"\\"))
    if slashes < _FEW_BYTES:
        return slashes
    text = data[begin:end]
    return len(text) - len(text.rstrip(b"\\"))


def _whole_escapes(data: bytes, at: int) -> int:
    """The end of a text that is cut within a string, before an incomplete escape."""
    slash = data.rfind(b"\\", max(at, len(data) - _ESCAPE_BYTES + 1))
    if slash < 0 or _slashes_before(data, at, slash + 1) % 2 == 0:
        return len(data)
    is_whole = len(data) - slash >= 2 and data[slash + 1 : slash + 2] != b"u"
    return len(data) if is_whole else slash
