"""Decodes lines of JSON that nobody vouches for: a value, a repaired value or a reason, never an exception."""

from __future__ import annotations

import contextlib
import re
from typing import Any, Final, Generic, Literal, NamedTuple, TypeVar

import msgspec

from burnd.records import json_bounds
from burnd.records.names import bound_names

T = TypeVar("T")

Reason = Literal["empty", "not-json", "not-an-object", "too-deep", "too-large", "not-finite", "wrong-shape"]
Repair = Literal["bom", "nul", "utf8", "surrogate", "big-number", "wrong-type", "long-name", "many-values", "large"]

MAX_DEPTH: Final = 200
_MAX_SALVAGES: Final = 32
_BOM: Final = b"\xef\xbb\xbf"
_PADDING: Final = b" \t\r\n\0"
_STRING: Final = rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?'  # an unclosed one matches to the end of the text
_STRINGS: Final = re.compile(_STRING, re.DOTALL)
_STRING_OR_NUMBER: Final = re.compile(_STRING + rb"|-?\d[\d.eE+-]*+", re.DOTALL)
_LOW: Final = rb"\\u[dD][c-fC-F][0-9a-fA-F]{2}"
_HIGH: Final = rb"\\u[dD][89abAB][0-9a-fA-F]{2}"
# Text up to the next lone surrogates, and these. Escapes match as a whole, so that the `ud800` after an escaped
# backslash (`\\ud800`) is left alone.
_TO_LONE: Final = re.compile(
    rb"((?:[^\\]++|\\(?:[^u]|u(?![dD][89a-fA-F][0-9a-fA-F]{2}))|" + _HIGH + _LOW + rb")*+)"
    rb"((?:" + _HIGH + rb"(?!" + _LOW + rb")|" + _LOW + rb")++)",
    re.DOTALL,
)
_ESCAPE_BYTES: Final = 6
_ERROR_PATH: Final = "at `$"
_PATH_STEP: Final = re.compile(r"\.([^.\[]+)|\[(\d+)\]|(\[\.\.\.\])")
_NOT_BRACKETS: Final = bytes(set(range(256)) - set(b"[]{}"))
_BIG_DIGITS: Final = 19
_FAILURES: Final = (msgspec.MsgspecError, ValueError, RecursionError)


class Rejected(msgspec.Struct, frozen=True):
    """There is nothing to be had from these bytes, and why."""

    reason: Reason


class Repaired(msgspec.Struct, Generic[T], frozen=True):
    """A value that could only be had by changing its bytes, and what was changed."""

    value: T
    what: tuple[Repair, ...]


class SafeDecoder(Generic[T]):
    """Decodes whole lines into a struct type whose fields all have defaults.

    A good line costs one decode and one check of its UTF-8; repairs are tried only after that failed.
    Parts left `Raw` are well-formed, valid UTF-8 and free of lone surrogates, but may be nested deeply or
    hold numbers beyond all bounds: open them with `unpack`, which refuses those. A line with too many values, or
    too large a line, is cut first (`json_bounds`).
    """

    def __init__(self, struct: type[T]) -> None:
        self._struct = struct
        self._typed = msgspec.json.Decoder(struct)
        self._projection = json_bounds.Projection(struct)

    def decode(self, line: bytes, offset: int = -1) -> T | Repaired[T] | Rejected:
        """The line's value; `offset` is where the line stands in its file, a BOM counts only at 0."""
        if (surplus := json_bounds.surplus(line)) is None:
            return self._decoded(line, offset)
        found = self._decoded(self._reduced(line), offset)
        if isinstance(found, Rejected):
            return Rejected("too-large") if found.reason == "empty" else found
        value, what = (found.value, found.what) if isinstance(found, Repaired) else (found, ())
        return Repaired(value, (*what, surplus))

    def _reduced(self, line: bytes) -> bytes:
        with contextlib.suppress(*_FAILURES):
            line = self._projection.of(line)
        return json_bounds.reduced(line)

    def _decoded(self, line: bytes, offset: int) -> T | Repaired[T] | Rejected:
        try:
            if line.isascii() or _is_utf8(line):
                return self._typed.decode(line)
        except _FAILURES:
            pass
        return self._mended(line, offset)

    def _mended(self, line: bytes, offset: int) -> T | Repaired[T] | Rejected:
        mended, what = _mend_bytes(line, offset)
        if not mended:
            return Rejected("empty")
        try:
            value = self._typed.decode(mended)
        except RecursionError:
            return Rejected("too-deep")
        except msgspec.ValidationError:
            return self._salvaged(mended, what)
        except ValueError:
            return Rejected("not-json")
        return Repaired(value, what) if what else value

    def _salvaged(self, line: bytes, what: tuple[Repair, ...]) -> T | Repaired[T] | Rejected:
        """Decode with long names cut and without fields of a wrong type: one odd field must not lose the usage."""
        loose = plain(line)
        if isinstance(loose, Rejected):
            return loose
        if not isinstance(loose, dict):
            return Rejected("not-an-object")
        short = bound_names(loose, self._struct)
        if short != loose:
            loose, what = short, (*what, "long-name")
            with contextlib.suppress(*_FAILURES):
                return Repaired(self._typed.decode(msgspec.json.encode(loose)), what)
        for _ in range(_MAX_SALVAGES):
            try:
                value = self._typed.decode(msgspec.json.encode(loose))
            except msgspec.ValidationError as error:
                if not _drop(loose, str(error)):
                    break
            except _FAILURES:
                break
            else:
                return Repaired(value, (*what, "wrong-type"))
        return Rejected("wrong-shape")


def plain(data: bytes) -> Any | Rejected:
    """The JSON value as plain objects: at most `MAX_DEPTH` deep, all numbers finite, huge integers as text."""
    return unpack(msgspec.Raw(data)).value


class Unpacked(NamedTuple):
    """A raw part's value, and the same part as JSON that any reader can open."""

    value: Any | Rejected
    raw: msgspec.Raw


def unpack(raw: msgspec.Raw) -> Unpacked:
    """Open a raw part; what cannot be opened becomes a JSON text of itself."""
    data = bytes(raw)
    if json_bounds.surplus(data) is not None:
        data = json_bounds.reduced(data) or b"null"
        raw = msgspec.Raw(data)
    try:
        if len(data) <= 2 * MAX_DEPTH or _openings(data) <= MAX_DEPTH or depth(data) <= MAX_DEPTH:
            return Unpacked(msgspec.json.decode(data), raw)
        value: Any = Rejected("too-deep")
    except RecursionError:
        value = Rejected("too-deep")
    except msgspec.ValidationError:
        value = _with_big_numbers_as_text(data)
    except ValueError:
        value = Rejected("not-json")
    kept = data.decode("utf-8", "replace") if isinstance(value, Rejected) else value
    return Unpacked(value, msgspec.Raw(msgspec.json.encode(kept)))


def _openings(data: bytes) -> int:
    return data.count(b"[") + data.count(b"{")


def depth(data: bytes) -> int:
    """How deeply the brackets outside of strings are nested."""
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


def _mend_bytes(line: bytes, offset: int) -> tuple[bytes, tuple[Repair, ...]]:
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
    mended = without_lone_surrogates(line)
    if mended != line:
        what.append("surrogate")
    return mended, tuple(what)


def without_lone_surrogates(data: bytes) -> bytes:
    """JSON in which half of an escaped surrogate pair is the replacement character."""
    parts: list[bytes] = []
    at = 0
    while (found := _TO_LONE.match(data, at)) is not None:
        parts += [found[1], b"\\ufffd" * (len(found[2]) // _ESCAPE_BYTES)]
        at = found.end()
    return b"".join([*parts, data[at:]]) if parts else data


def _with_big_numbers_as_text(data: bytes) -> Any | Rejected:
    """Decode again after a number was out of range: integers become text, other numbers have no value."""
    try:
        return msgspec.json.decode(_STRING_OR_NUMBER.sub(_big_number_as_text, data))
    except _FAILURES:
        return Rejected("not-finite")


def _big_number_as_text(match: re.Match[bytes]) -> bytes:
    token = match[0]
    digits = token[1:] if token.startswith(b"-") else token
    return b'"%s"' % token if len(digits) > _BIG_DIGITS and digits.isdigit() else token


def _drop(loose: dict[str, Any], error: str) -> bool:
    """Take the value an error names out of its container, or make it whole; False when it names none."""
    _, found, path = error.rpartition(_ERROR_PATH)
    steps: list[Any] = []
    for name, index, anything in _PATH_STEP.findall(path.removesuffix("`") if found else ""):
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
        if (whole := _whole(value)) is not None:
            container[steps[-1]] = whole
        else:
            del container[steps[-1]]
    except (LookupError, TypeError):
        return False
    return True


def _whole(value: Any) -> int | None:
    """The number that a value of another type stands for."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    is_digits = isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < _BIG_DIGITS
    return int(value) if is_digits else None
