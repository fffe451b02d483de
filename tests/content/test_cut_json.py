"""Repairs a JSON text cut at any place without losing whole values."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from burnd.content.recall import closed
from burnd.tokens.words import in_json

VALUES: list[Any] = [
    'a "quoted" text\n\\ with \u001b[0m escapes, \u91cd and \U0001f600',
    [{"type": "text", "text": 'first "block", [not a list]'}, {"type": "text", "text": "second " * 9}],
    {"stdout": "line\n" * 20, "code": 12345, "ok": True, "nested": [[1, 2.5], {"deep": {"deeper": ["end"]}}]},
]


def leaves(raw: bytes) -> str:
    return "\n".join(in_json(msgspec.Raw(raw)))


@pytest.mark.parametrize("value", VALUES)
def test_what_is_cut_anywhere_is_closed(value: Any) -> None:
    """Whatever byte it ends at, what comes out is valid and begins as the whole does; mostly it is of the same kind."""
    whole = msgspec.json.encode(value)
    same_kind = 0
    for end in range(1, len(whole)):
        found = closed(whole[:end])
        same_kind += type(msgspec.json.decode(found)) is type(value)
        if type(msgspec.json.decode(found)) is type(value):
            assert leaves(whole).startswith(leaves(found))
        else:
            assert whole.startswith(msgspec.json.decode(found).encode())
    assert same_kind > len(whole) * 0.8


def test_what_would_say_too_little_is_given_as_text() -> None:
    """If nearly everything follows the last whole value, the beginning is returned as plain text."""
    beginning = b'[1, {"' + b"k" * 100
    assert msgspec.json.decode(closed(beginning)) == beginning.decode()


ODD = [b"", b"{", b"[", b'"', b"tr", b"]]", b'{"a', b'"\\', b'"\\u12', b"\xff\xfe", b"[" * 9999]


@pytest.mark.parametrize("beginning", ODD)
def test_nothing_is_too_odd(beginning: bytes) -> None:
    """Damaged, hardly begun or endlessly nested, it is valid JSON in the end."""
    msgspec.json.decode(closed(beginning))
