"""Foreign lines become a value, a repaired value or a reason, and never an exception."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from burnd.harness.claude_code import lines as claude_lines
from burnd.records import foreign_json
from burnd.records.foreign_json import (
    CUT_MARK,
    LONGEST_TEXT,
    MAX_DEPTH,
    WHOLE_BYTES,
    Rejected,
    Repaired,
    SafeDecoder,
    depth,
    plain,
    reduced,
    small_values,
    surplus,
    unpack,
)
from burnd.records.names import Name, bounded


class Inner(msgspec.Struct):
    n: int = 0
    names: list[str] = []


class Thing(msgspec.Struct):
    text: str = ""
    count: int = 0
    raw: msgspec.Raw = msgspec.Raw(b"")
    inner: Inner | None = None


_things = SafeDecoder(Thing)


def test_a_good_line_is_decoded_as_it_is() -> None:
    assert _things.decode('{"text":"ä","count":2}'.encode()) == Thing("ä", 2)


def test_a_carriage_return_is_no_part_of_a_line() -> None:
    assert _things.decode(b'{"text":"x"}\r') == Thing("x")


def test_a_line_separator_within_a_text_splits_nothing() -> None:
    assert _things.decode('{"text":"a\u2028b\u0085c"}'.encode()) == Thing("a\u2028b\u0085c")


def test_a_byte_order_mark_is_ignored_at_the_files_start_only() -> None:
    line = b'\xef\xbb\xbf{"text":"x"}'
    assert _things.decode(line, 0) == Repaired(Thing("x"), ("bom",))
    assert _things.decode(line, 7) == Rejected("not-json")


def test_zeroes_left_by_a_crash_are_stripped() -> None:
    assert _things.decode(b'\0\0\0{"text":"x"}') == Repaired(Thing("x"), ("nul",))


def test_invalid_utf8_is_replaced_and_counted() -> None:
    assert _things.decode(b'{"text":"a\xffb"}') == Repaired(Thing("a\ufffdb"), ("utf8",))


def test_invalid_utf8_in_a_raw_part_is_replaced_too() -> None:
    found = _things.decode(b'{"raw":"a\xffb"}')
    assert isinstance(found, Repaired)
    assert bytes(found.value.raw).decode() == '"a\ufffdb"'


@pytest.mark.parametrize("lone", [r"\ud800", r"\uDC00", r"\ud800\ud800", r"\ud83dx", r"\ud800\n"])
def test_a_lone_surrogate_becomes_the_replacement_character(lone: str) -> None:
    found = _things.decode(f'{{"text":"<{lone}>","raw":"{lone}"}}'.encode())
    assert isinstance(found, Repaired)
    assert found.what == ("surrogate",)
    assert "\ufffd" in found.value.text
    assert "\ufffd" in json.loads(bytes(found.value.raw))
    found.value.text.encode()


def test_a_pair_and_an_escaped_backslash_are_left_alone() -> None:
    found = _things.decode(rb'{"text":"\ud83d\ude00 \\ud800 \ud800"}')
    assert isinstance(found, Repaired)
    assert found.value.text == "\U0001f600 \\ud800 \ufffd"


@pytest.mark.parametrize("line", [b"", b"   ", b"\r", b"\0\0"])
def test_an_empty_line_has_its_own_reason(line: bytes) -> None:
    assert _things.decode(line) == Rejected("empty")


@pytest.mark.parametrize(
    "line", [b'{"text":', b"nonsense", b'{"text":NaN}', b'{"text":Infinity}', b'{"raw":01}', b'{"a":1}{"b":2}']
)
def test_what_is_no_json_is_rejected(line: bytes) -> None:
    assert _things.decode(line) == Rejected("not-json")


@pytest.mark.parametrize("line", [b"[]", b'"x"', b"12", b"null"])
def test_what_is_no_object_is_rejected(line: bytes) -> None:
    assert _things.decode(line) == Rejected("not-an-object")


@pytest.mark.parametrize("opening", [b"[", b'{"a":'])
def test_a_million_brackets_are_rejected(opening: bytes) -> None:
    deep = opening * 1_000_000
    assert isinstance(_things.decode(deep), Rejected)
    assert isinstance(_things.decode(b'{"raw":' + deep), Rejected)
    assert _things.decode(b'{"raw":' + b"[" * 5000 + b"]" * 5000 + b"}") == Rejected("too-deep")


def test_an_odd_field_is_dropped_and_the_rest_kept() -> None:
    """One field of a wrong type is no reason to lose a bill."""
    line = b'{"text":7,"count":3,"inner":{"n":"x","names":["a",1,"b"]}}'
    assert _things.decode(line) == Repaired(Thing(count=3, inner=Inner(names=["a", "b"])), ("wrong-type",))


def test_a_whole_float_is_a_count() -> None:
    assert _things.decode(b'{"count":12.0}') == Repaired(Thing(count=12), ("wrong-type",))


def test_a_count_that_is_written_as_a_text_counts() -> None:
    assert _things.decode(b'{"count":"12"}') == Repaired(Thing(count=12), ("wrong-type",))
    for odd in ("", "-3", "1.5", "٢", "9" * 20):
        assert _things.decode(json.dumps({"text": "x", "count": odd}).encode()) == Repaired(Thing("x"), ("wrong-type",))
    assert _things.decode(b'{"text":"x","inner":"12"}') == Repaired(Thing("x"), ("wrong-type",))


def test_a_huge_integer_where_a_count_should_be_is_dropped() -> None:
    line = b'{"text":"x","count":' + b"9" * 5000 + b"}"
    assert _things.decode(line) == Repaired(Thing("x"), ("wrong-type",))


def test_a_number_beyond_all_bounds_is_rejected() -> None:
    assert _things.decode(b'{"count":1e999}') == Rejected("not-finite")
    assert plain(b'{"a":[1e999]}') == Rejected("not-finite")


def test_a_huge_integer_is_kept_as_text_where_any_value_may_stand() -> None:
    digits = "9" * 5000
    assert plain(f'{{"a":[{digits},-{digits},1.5,"7{digits}"]}}'.encode()) == {
        "a": [digits, f"-{digits}", 1.5, f"7{digits}"]
    }


def test_the_last_of_two_equal_keys_counts() -> None:
    assert _things.decode(b'{"count":1,"count":2}') == Thing(count=2)


def test_depth_is_counted_outside_of_strings() -> None:
    assert depth(rb'{"a":"[[[[\"[[","b":[[1]]}') == 3
    assert plain(json.dumps("[" * 1000).encode()) == "[" * 1000


def test_plain_values_nest_only_so_deep() -> None:
    assert plain(b"[" * MAX_DEPTH + b"]" * MAX_DEPTH) is not Rejected("too-deep")
    assert plain(b"[" * (MAX_DEPTH + 1) + b"]" * (MAX_DEPTH + 1)) == Rejected("too-deep")


@given(st.binary(max_size=200))
def test_random_bytes_never_raise(data: bytes) -> None:
    found = _things.decode(data, 0)
    if isinstance(found, Thing):
        assert isinstance(json.loads(data), dict)


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.floats() | st.text(), st.lists))
def test_any_value_in_any_field_never_raises(value: object) -> None:
    line = json.dumps({"text": value, "count": value, "inner": value, "raw": value}).encode()
    found = _things.decode(line)
    assert isinstance(found, Thing | Repaired | Rejected)


class Named(msgspec.Struct):
    name: Name | None = None
    pieces: str | list[Named] | None = None
    by_name: dict[Name, Inner] | None = None
    raw: msgspec.Raw = msgspec.Raw(b"")


def test_long_names_are_bounded_wherever_they_stand() -> None:
    """In lists and as keys, any number of them, while nothing else is lost."""
    long = "n" * 300
    pieces = [{"name": long}] * 100 + [{"name": "short"}]
    line = json.dumps({"name": long, "pieces": pieces, "by_name": {long: {"n": 7}}, "raw": {"name": long}})
    found = SafeDecoder(Named).decode(line.encode())
    assert isinstance(found, Repaired)
    assert found.what == ("long-name",)
    short = bounded(long)
    assert found.value.name == short
    assert found.value.pieces == [Named(short)] * 100 + [Named("short")]
    assert found.value.by_name == {short: Inner(7)}
    assert json.loads(bytes(found.value.raw)) == {"name": long}


def test_a_long_name_beside_a_wrong_type() -> None:
    found = SafeDecoder(Named).decode(json.dumps({"name": "n" * 300, "pieces": 7}).encode())
    assert found == Repaired(Named(bounded("n" * 300)), ("long-name", "wrong-type"))


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
    "halves of pairs": line(b'[{"type":"text","text":"' + rb"\ud800" * (WHOLE_BYTES // 6 + 1) + b'"}]'),
    "many long texts": line(b"[" + b",".join([b'{"type":"text","text":"' + b"x" * 100_000 + b'"}'] * 200) + b"]"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_the_usage_of_a_line_survives_damage_beside_it(name: str) -> None:
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
    assert 5_000 < len(blocks) < foreign_json.MOST_VALUES
    assert blocks[-1].text == "a, [b] {c"


def test_a_text_full_of_brackets_is_not_cut() -> None:
    data = line(b'[{"type":"text","text":"' + b"[{,}] " * MANY + b'"}]')
    assert surplus(data) is None
    assert isinstance(claude_lines.lines.decode(data), claude_lines.ClaudeLine)


@pytest.mark.parametrize(
    "data", [b"[" * MANY, b'{"a":[' + b"0," * MANY, b"]" * 10 + b"," * MANY, b"," * MANY, b"0" * (WHOLE_BYTES * 3)]
)
def test_large_data_that_is_no_json_is_rejected(data: bytes) -> None:
    assert isinstance(claude_lines.lines.decode(data), Rejected)


def test_a_raw_part_is_bounded_where_it_is_opened() -> None:
    value, raw = unpack(msgspec.Raw(b'{"a":[' + b"{}," * MANY + b'{}],"b":1}'))
    assert isinstance(value, dict)
    assert 0 < len(value["a"]) <= foreign_json.MOST_VALUES
    assert json.loads(bytes(raw)) == value


values = st.recursive(
    st.none() | st.integers(-9, 9) | st.text('a\\",[]{}é\U0001f600\n', max_size=8),
    lambda inner: st.lists(inner, max_size=6) | st.dictionaries(st.text("ab,{", max_size=3), inner, max_size=6),
    max_leaves=60,
)


@given(values, st.integers(1, 30), st.booleans())
def test_what_is_cut_is_a_part_of_what_there_was(value: Any, most: int, spaced: bool) -> None:
    """For any value and limit: JSON with the same beginning and nothing added."""
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
