"""Instruction files as products read them; `tests/burnctl/test_overhead.py` tests those of each product."""

from __future__ import annotations

from typing import Any

import pytest

from burnd.harness.instructions import commented_json


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"a": [1, 2,], /* x */ "b": "// no, /* comment */",}', {"a": [1, 2], "b": "// no, /* comment */"}),
        ('// first\n{"a": "\\"//"}', {"a": '"//'}),
        ('{"a": 1} /* open', {"a": 1}),
    ],
)
def test_comments_are_left_out(text: str, expected: Any) -> None:
    assert commented_json(text) == expected
