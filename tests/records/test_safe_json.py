"""Lines that nobody vouches for become a value, a repaired value or a reason, and never an exception."""

from __future__ import annotations

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from burnd.records.names import Name, bounded
from burnd.records.safe_json import MAX_DEPTH, Rejected, Repaired, SafeDecoder, depth, plain


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


def test_invalid_utf8_is_replaced_and_said() -> None:
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
def test_an_empty_line_is_said_to_be_empty(line: bytes) -> None:
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
