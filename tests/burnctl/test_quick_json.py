"""Reads and writes JSON as the standard library does."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from burnctl import quick_json

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


@given(VALUES)
def test_it_is_what_json_does(value: Any) -> None:
    text = quick_json.dumps(value)
    assert text == json.dumps(value)
    assert quick_json.loads(text) == quick_json.loads(f" {text}\r\n".encode()) == value


@given(VALUES)
def test_without_the_functions_of_cpython_json_does_it(value: Any) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(quick_json, "_native", None)
        assert quick_json.loads(quick_json.dumps(value)) == value


@pytest.mark.parametrize("text", ["", "{", "[1,]", '{"a": 1} x', "nul", '"\\ud8"', '{"a" 1}', b'"\xff"'])
def test_other_text_is_refused(text: str | bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - of several kinds
        quick_json.loads(text)


def test_objects_are_made_by_the_hook() -> None:
    assert quick_json.loads('{"a": {"b": 1}}', list) == ["a"]
    assert quick_json.loads('{"a": 18446744073709551616, "b": 1e3}') == {"a": 1 << 64, "b": 1000.0}
