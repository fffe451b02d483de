"""Random bytes never make the rollout reader raise, and accepted values never break the code after it."""

from __future__ import annotations

import copy
import json
import random
from typing import Any

import msgspec
from hypothesis import example, given, settings
from hypothesis import strategies as st

from burnd.harness.codex.reader import CodexReader
from burnd.harness.codex.rollout import RolloutName, load_state
from burnd.recording.candidate import turn_of
from burnd.records import Turn
from burnd.records.codec import Entry, decode, decode_content, encode, encode_content
from burnd.records.times import to_ms
from tests.harness.codex.rollout import CASES
from tests.make import examples

_any_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
_LINES = [line for log in sorted(CASES.glob("*/input/*")) for line in log.read_bytes().splitlines()]


def check(lines: list[bytes]) -> None:
    """Everything that comes out can be written, read again and ordered in time."""
    reader = CodexReader(RolloutName("s"))
    for n, line in enumerate(lines):
        reader.feed(line, n)
    reader.flush()
    reading = reader.take()
    assert load_state(reading.state) is not None
    for candidate in reading.candidates:
        turn = decode(encode(turn_of(candidate)))
        assert isinstance(turn, Turn)
        to_ms(turn.ts)
        assert all(0 <= count < 2**63 for count in msgspec.structs.astuple(turn.usage))
    records: list[Entry] = [*reading.events, *reading.compactions, *reading.quotas, *reading.sessions]
    for record in records:
        assert type(decode(encode(record))) is type(record)
    for content in reading.content:
        back = decode_content(encode_content(content))
        assert back is not None
        if content.tool_use is not None:
            json.loads(bytes(content.tool_use.input))
        if content.tool_result is not None:
            json.loads(bytes(content.tool_result.content))


@given(st.lists(st.binary(max_size=120), max_size=20))
@settings(max_examples=examples(50))
def test_random_bytes_never_raise(lines: list[bytes]) -> None:
    """Lines of any bytes are counted and passed over."""
    check(lines)


@given(st.integers(0, 2**32), st.lists(_any_json, min_size=6, max_size=6))
@example(0, [None] * 5 + [-1.8e305])
@settings(max_examples=examples(60))
def test_odd_values_never_raise(seed: int, values: list[Any]) -> None:
    """Random values in any place, at any depth of any line."""
    rng = random.Random(seed)
    lines = rng.sample(_LINES, 12)
    odd = []
    for line in lines:
        try:
            value = json.loads(line)
        except ValueError:
            continue
        for new in values:
            _put(value, new, rng)
        odd.append(json.dumps(value).encode())
    check(odd)


def _put(value: Any, new: Any, rng: random.Random) -> None:
    """Replaces something somewhere inside by something else."""
    while isinstance(value, dict | list) and value:
        key = rng.choice(list(value)) if isinstance(value, dict) else rng.randrange(len(value))
        inner = value[key]
        if not isinstance(inner, dict | list) or not inner or rng.random() < 0.3:
            value[key] = copy.deepcopy(new)
            return
        value = inner
