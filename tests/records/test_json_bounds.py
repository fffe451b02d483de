"""Bounds on foreign JSON: what is cut, what stays, and that the result is JSON again."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from burnd.harness.claude_code import lines as claude_lines
from burnd.records import json_bounds
from burnd.records.json_bounds import CUT_MARK, LONGEST_TEXT, WHOLE_BYTES, reduced, small_values, surplus
from burnd.records.safe_json import Rejected, Repaired, unpack

MANY = 300_000
BLOCK = b'{"type":"text","text":"a, [b] {c"}'


def line(content: bytes = b"[]", before: bytes = b"", within: bytes = b"") -> bytes:
    """An assistant's line in the order in which Claude Code writes its fields: the usage comes last."""
    return (
        b'{"parentUuid":null,'
        + before
        + b'"type":"assistant","message":{"id":"m","model":"x","content":'
        + content
        + b","
        + within
        + b'"usage":{"input_tokens":1,"output_tokens":7}},"uuid":"u"}'
    )


HOSTILE = {
    "blocks": line(b"[" + b",".join([BLOCK] * MANY) + b"]"),
    "calls": line(b"[" + b",".join([b'{"type":"tool_use","id":"t","name":"n","input":{"a":[1]}}'] * MANY) + b"]"),
    "empty objects": line(b"[" + b"{}," * MANY + b"{}]"),
    "lists in one block": line(b'[{"type":"tool_result","content":[' + b"[[]]," * MANY + b"0]}]"),
    "keys of one input": line(b'[{"type":"tool_use","input":{' + b'"k":0,' * MANY + b'"k":0}}]'),
    "keys of the line": line(before=b'"k":0,' * MANY),
    "keys of the message": line(within=b'"k":[0],' * MANY),
    "a list beside": line(within=b'"k":[' + b"0," * MANY + b"0],"),
    "one long text": line(b'[{"type":"text","text":"' + "é\\n,".encode() * (WHOLE_BYTES // 4) + b'"}]'),
    "many long texts": line(b"[" + b",".join([b'{"type":"text","text":"' + b"x" * 100_000 + b'"}'] * 200) + b"]"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_the_usage_of_a_line_outlives_whatever_stands_beside_it(name: str) -> None:
    """F09: however much content a line has, its turn is counted."""
    data = HOSTILE[name]
    assert surplus(data) is not None
    found = claude_lines.lines.decode(data)
    assert isinstance(found, Repaired)
    assert found.what[-1] in ("many-values", "large")
    assert found.value.message is not None
    assert found.value.message.usage is not None
    assert found.value.message.usage.output_tokens == 7
    assert (found.value.uuid, found.value.message.model) == ("u", "x")
    assert len(msgspec.json.encode(found.value)) <= 2 * WHOLE_BYTES


def test_blocks_up_to_the_bound_stay() -> None:
    found = claude_lines.lines.decode(HOSTILE["blocks"])
    assert isinstance(found, Repaired)
    assert found.value.message is not None
    blocks = found.value.message.content
    assert isinstance(blocks, list)
    assert 5_000 < len(blocks) < json_bounds.MOST_VALUES
    assert blocks[-1].text == "a, [b] {c"


def test_a_text_full_of_brackets_is_not_cut() -> None:
    data = line(b'[{"type":"text","text":"' + b"[{,}] " * MANY + b'"}]')
    assert surplus(data) is None
    assert isinstance(claude_lines.lines.decode(data), claude_lines.Line)


@pytest.mark.parametrize(
    "data", [b"[" * MANY, b'{"a":[' + b"0," * MANY, b"]" * 10 + b"," * MANY, b"," * MANY, b"0" * (WHOLE_BYTES * 3)]
)
def test_what_is_no_json_is_rejected(data: bytes) -> None:
    assert isinstance(claude_lines.lines.decode(data), Rejected)


def test_a_raw_part_is_bounded_where_it_is_opened() -> None:
    value, raw = unpack(msgspec.Raw(b'{"a":[' + b"{}," * MANY + b'{}],"b":1}'))
    assert isinstance(value, dict)
    assert (len(value["a"]) <= json_bounds.MOST_VALUES, value["b"]) == (True, 1)
    assert json.loads(bytes(raw)) == value


values = st.recursive(
    st.none() | st.integers(-9, 9) | st.text('a\\",[]{}é\U0001f600\n', max_size=8),
    lambda inner: st.lists(inner, max_size=6) | st.dictionaries(st.text("ab,{", max_size=3), inner, max_size=6),
    max_leaves=60,
)


@given(values, st.integers(1, 30), st.booleans())
def test_what_is_cut_is_a_part_of_what_there_was(value: Any, most: int, spaced: bool) -> None:
    """Whatever the value and the bound: JSON again, with the same beginning, and no more than what was there."""
    data = json.dumps(value, indent=1 if spaced else None, ensure_ascii=spaced).encode()
    found = reduced(data, most)
    assert is_part(json.loads(found), value)
    if len(data) <= most:
        assert found == data


def is_part(part: Any, whole: Any) -> bool:
    if isinstance(part, list) and isinstance(whole, list):
        return len(part) <= len(whole) and all(map(is_part, part, whole))
    if isinstance(part, dict) and isinstance(whole, dict):
        return all(key in whole and is_part(value, whole[key]) for key, value in part.items())
    return bool(part == whole)


@given(st.text('a\\"é\U0001f600\n', max_size=40), st.integers(1, 12), st.booleans())
def test_small_values_is_the_same_in_any_chunks(text: str, step: int, is_ascii: bool) -> None:
    data = json.dumps({"a": text, "b": [1, text]}, ensure_ascii=is_ascii).encode()
    assert small_values(data[at : at + step] for at in range(0, len(data), step)) == data


@pytest.mark.parametrize("character", ["x", '"', "\\", "é", "\U0001f600", "\n"])
@pytest.mark.parametrize("is_ascii", [True, False])
def test_a_long_text_ends_behind_a_whole_character(character: str, is_ascii: bool) -> None:
    data = json.dumps({"a": character * (LONGEST_TEXT + 5), "b": 1}, ensure_ascii=is_ascii).encode()
    for step in (LONGEST_TEXT, LONGEST_TEXT // 3 - 1):
        found = json.loads(small_values(data[at : at + step] for at in range(0, len(data), step)))
        assert found["b"] == 1
        assert found["a"].endswith(CUT_MARK.decode())
        assert set(found["a"].removesuffix(CUT_MARK.decode())) <= {character, "\ud83d"}
