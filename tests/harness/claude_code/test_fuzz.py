"""Random bytes never make a reader raise, and accepted values never break the code after it."""

from __future__ import annotations

import json
import random
from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from burnd.harness.claude_code.messages import MOST_BLOCKS
from burnd.records import Turn
from burnd.records.codec import Entry, decode, decode_content, digest, encode, encode_content
from burnd.records.content import Content
from burnd.records.times import to_ms
from tests.harness.claude_code.transcript import Transcript, call, sample_lines
from tests.harness.collect import Collected, client_versions, fold, lines_of, read, transcripts
from tests.make import examples

_any_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


def _check(rows: Collected) -> None:
    """Everything that came out can be written, read again and ordered in time."""
    for joined in fold(rows.candidates.values()).values():
        stored = decode(encode(joined.turn))
        assert isinstance(stored, Turn)
        assert digest(stored) == digest(joined.turn)
        to_ms(stored.ts)
        assert all(0 <= tokens < 2**63 for tokens in msgspec.structs.astuple(stored.usage))
    records: list[Entry] = [*rows.events, *rows.compactions, *rows.overheads]
    for record in records:
        assert type(decode(encode(record))) is type(record)
    for content in rows.content:
        back = decode_content(encode_content(content))
        assert isinstance(back, Content)
        to_ms(back.ts)
        if back.tool_use is not None:
            json.loads(bytes(back.tool_use.input))
        if back.tool_result is not None:
            json.loads(bytes(back.tool_result.content))
    assert rows.state is not None


@given(st.lists(st.binary(max_size=120), max_size=20))
def test_random_bytes_never_raise(lines: list[bytes]) -> None:
    rows = read(lines)
    assert rows.lines == len(lines)
    _check(rows)


@given(st.lists(st.tuples(st.integers(0, 13), st.integers(0, 600), st.binary(max_size=6)), max_size=12))
@settings(max_examples=examples(120), deadline=None)
def test_damaged_lines_never_raise(damages: list[tuple[int, int, bytes]]) -> None:
    lines = sample_lines()
    for which, where, bytes_ in damages:
        line = lines[which % len(lines)]
        lines[which % len(lines)] = line[:where] + bytes_ + line[where + len(bytes_) :]
    _check(read(lines, cuts=range(0, len(lines), 2)))


@given(st.integers(0, 13), _any_json, st.randoms(use_true_random=False))
@settings(max_examples=examples(150), deadline=None)
def test_any_value_anywhere_never_raises(which: int, value: Any, rng: random.Random) -> None:
    """Each field of each line may be anything at all."""
    lines = sample_lines()
    body = json.loads(lines[which])
    _replace_one(body, value, rng)
    lines[which] = json.dumps(body).encode()
    _check(read(lines))


def _replace_one(body: Any, value: Any, rng: random.Random) -> None:
    keys = list(body) if isinstance(body, dict) else list(range(len(body)))
    if not keys:
        return
    key = rng.choice(keys)
    if isinstance(body[key], dict | list) and body[key] and rng.random() < 0.8:
        _replace_one(body[key], value, rng)
    else:
        body[key] = value


def test_real_lines_damaged_at_random_never_raise() -> None:
    """Ten thousand lines of real clients, each with a few bytes changed."""
    rng = random.Random(4)
    pool = [line for version in client_versions() for path in transcripts(version) for line in lines_of(path)]
    damaged = []
    for _ in range(10_000 if pool else 0):
        line = bytearray(rng.choice(pool))
        for _ in range(rng.randrange(1, 4)):
            line[rng.randrange(len(line))] = rng.randrange(256)
        damaged.append(bytes(line).replace(b"\n", b" "))
    rows = read(damaged, cuts=range(0, 10_000, 997))
    assert rows.lines == len(damaged)
    _check(rows)


def test_a_message_of_endless_blocks_stays_cheap() -> None:
    """P7, P8: what no model would write costs a bounded time a line, and its usage still counts."""
    log = Transcript()
    log.prompt("go")
    for n in range(MOST_BLOCKS + 500):
        log.calls("m1", call(f"c{n}", "Read", file_path=f"/f{n}"), output=n + 1)
    turn = read(log.lines).turn("m1")
    assert turn.usage.output == MOST_BLOCKS + 500
    assert len(turn.tool_calls) == len(turn.made) == MOST_BLOCKS
