"""Completes the beginning of a JSON text by closing open strings, lists and objects. Pure."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from typing import Final, NamedTuple

import msgspec

_ESCAPE: Final = 12  # the most bytes of a JSON string that make one character
_TOKEN: Final = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+("?)|[\[\]{},]', re.DOTALL)
_CLOSING: Final = {b"[": b"]", b"{": b"}"}


class _Cut(NamedTuple):
    """The end of a cut JSON text. All values before the last comma are complete."""

    is_in_string: bool
    closing: bytes  # the brackets that would close it
    comma: int


def closed(beginning: bytes) -> bytes:
    """Completes the value as far as its beginning goes; its text if that is impossible."""
    for value in _closings(beginning):
        with contextlib.suppress(msgspec.MsgspecError, ValueError, RecursionError):
            msgspec.json.decode(value)
            return value
    return msgspec.json.encode(beginning.decode("utf-8", "ignore"))


def _closings(beginning: bytes) -> Iterator[bytes]:
    """Candidates. A string is cut after its last whole character; half a name or a number is left out."""
    cut = _seen(beginning)
    size = len(beginning)
    for end in range(size, max(size - _ESCAPE, 0), -1) if cut.is_in_string else (size,):
        yield beginning[:end] + (b'"' if cut.is_in_string else b"") + cut.closing
    if cut.comma * 2 > size:  # else most of the text would be missing
        whole = beginning[: cut.comma]
        yield whole + _seen(whole).closing


def _seen(beginning: bytes) -> _Cut:
    is_in_string, comma = False, 0
    closing: list[bytes] = []
    for token in _TOKEN.finditer(beginning):
        what = token[0]
        is_in_string = what[:1] == b'"' and not token[1]
        if what in _CLOSING:
            closing.append(_CLOSING[what])
        elif what in (b"]", b"}"):
            del closing[-1:]
        elif what == b",":
            comma = token.start()
    return _Cut(is_in_string, b"".join(reversed(closing)), comma)
