"""Records survive their way to disk and back, and ids from outside never name a path of their choosing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from burnd.ledger.sidecars import Sidecars
from burnd.records import (
    Basis,
    Block,
    Compaction,
    Copy,
    Event,
    Overhead,
    Prune,
    Quota,
    Request,
    Selector,
    ServerTools,
    Session,
    Stamp,
    Subagent,
    ToolCall,
    Turn,
    Usage,
)
from burnd.records.codec import (
    KINDS,
    Skipped,
    clean,
    decode,
    decode_again,
    decode_content,
    decode_many_again,
    digest,
    encode,
    encoded,
    kind_of,
)
from burnd.records.content import Content
from burnd.records.names import bounded, file_stem
from burnd.records.times import canonical, index_ms, to_iso, to_ms
from tests.make import at, stamp, turn

words = st.text(max_size=20)
some_text = st.none() | words
counts = st.integers(0, 2**40)
times = st.integers(0, 4_000_000_000_000).map(to_iso)
usages = st.builds(Usage, **dict.fromkeys(Usage.__struct_fields__, counts))
blocks = st.lists(st.builds(Block, kind=words, bytes=counts, call_id=some_text), max_size=2).map(tuple)
calls = st.lists(
    st.builds(
        ToolCall,
        id=words,
        name=words,
        target=some_text,
        args_hash=some_text,
        result_hash=some_text,
        is_error=st.none() | st.booleans(),
    ),
    max_size=2,
).map(tuple)
bases = st.builds(
    Basis,
    rank=st.integers(0, 15),
    ts=st.none() | times,
    late_born=st.booleans(),
    line=st.none() | st.tuples(words, words),
)
turns = st.builds(
    Turn,
    rev=counts,
    source=words,
    session_id=words,
    rail_id=words,
    message_id=words,
    turn_index=counts,
    parent=some_text,
    ts=times,
    model=words,
    provider=some_text,
    project=some_text,
    project_key=some_text,
    git_branch=some_text,
    usage=usages,
    speed=some_text,
    server_tools=st.none() | st.builds(ServerTools, search=counts, fetch=counts),
    tool_calls=calls,
    entered=blocks,
    made=blocks,
    files_touched=st.lists(words, max_size=2).map(tuple),
    subagent=st.none() | st.builds(Subagent, agent_id=some_text, type=some_text, parent_tool_use_id=some_text),
    stop_reason=some_text,
    activity=some_text,
    prompt_words=st.lists(words, max_size=2).map(tuple),
    retries=st.none() | counts,
    has_edits=st.none() | st.booleans(),
    prompt_id=some_text,
    prompt_retries=st.none() | counts,
    quality=st.sampled_from(["final", "partial", "empty"]),
    basis=st.none() | bases,
)
where = {"source": words, "session_id": words, "rail_id": words, "ts": times}
entries = st.one_of(
    turns,
    st.builds(
        Copy, **where, message_id=words, turn_index=counts, parent=some_text, entered=blocks, made=blocks, basis=bases
    ),
    st.builds(
        Session,
        session_id=words,
        source=words,
        parent_session_id=some_text,
        project=some_text,
        title=some_text,
        created_at=st.none() | times,
        message_count=counts,
        content_mode=st.sampled_from([None, "full", "hash-only", "off"]),
    ),
    st.builds(Compaction, **where, id=words, trigger=some_text, before_tokens=st.none() | counts),
    st.builds(Event, **where, id=words, name=words, message_id=some_text, status=st.none() | st.integers(0, 999)),
    st.builds(Request, **where, id=words, model=words, usage=usages, withdrawn=st.booleans()),
    st.builds(Overhead, source=words, session_id=words, ts=times, models=st.dictionaries(words, usages, max_size=2)),
    st.builds(
        Quota,
        ts=times,
        source=words,
        window=st.sampled_from(["5h", "7d"]),
        used_percent=st.floats(0, 100),
        resets_at=st.none() | times,
    ),
    st.builds(Prune, session_id=words, up_to=times, messages=counts),
    st.builds(
        Stamp,
        ts=times,
        selector=st.builds(Selector, session_id=st.text(min_size=1, max_size=9)),
        enrichment=st.dictionaries(st.text(min_size=1, max_size=9), words, min_size=1, max_size=3),
    ),
)


@given(entries)
def test_what_is_written_is_read_back(entry: Any) -> None:
    """Every record of every kind makes one line, and the line makes the same record."""
    line = encode(entry)
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    assert decode(line) == entry


def test_the_shape_on_disk_is_the_documented_one() -> None:
    """Others build on these names: an envelope around records, stamps flat."""
    line = json.loads(encode(turn(entered=(Block(kind="prompt", bytes=3),))))
    assert {k: line[k] for k in ("v", "kind")} == {"v": 1, "kind": "turn"}
    record = line["record"]
    assert set(record) >= {"v", "rev", "source", "sessionId", "railId", "messageId", "turnIndex", "ts", "model"}
    assert set(record) >= {"usage", "toolCalls", "in", "out", "quality"}
    assert list(record["usage"]) == ["input", "output", "reasoning", "cacheRead", "cacheCreate5m", "cacheCreate1h"]
    assert json.loads(encode(stamp(1, persona="senior"))) == {
        "v": 1,
        "kind": "stamp",
        "ts": at(1),
        "selector": {"sessionId": "s1"},
        "enrichment": {"persona": "senior"},
    }


@given(turns, st.dictionaries(st.text(min_size=1, max_size=9).map("new".__add__), st.integers(), max_size=3))
def test_unknown_fields_are_ignored(record: Turn, extra: dict[str, int]) -> None:
    """A line from a later version with more to say is read for what we know of it."""
    line = json.loads(encode(record))
    line["record"] |= extra
    line |= extra
    assert decode(json.dumps(line).encode()) == record


def test_missing_fields_take_defaults() -> None:
    """Old and new lines mix: a session line with nothing but its names is sound."""
    line = b'{"v":1,"kind":"session","record":{"sessionId":"s","source":"opencode"}}\n'
    assert decode(line) == Session(session_id="s", source="opencode")


def test_a_turn_without_a_rail_is_of_the_main_one() -> None:
    """A null is a missing field too."""
    line = json.loads(encode(turn(rail_id="main")))
    del line["record"]["railId"]
    for more in ({}, {"railId": None, "filesTouched": None}):
        line_bytes = json.dumps(line | {"record": line["record"] | more}).encode()
        assert decode(line_bytes) == decode_again(line_bytes) == turn(rail_id="main")
        assert decode_many_again([line_bytes + b"\n"]) == [turn(rail_id="main")]


def test_content_without_numbers_is_numbered_by_its_position() -> None:
    """Rail and number on the line are used; only missing ones get defaults."""
    line: dict[str, Any] = {"v": 1, "sessionId": "s", "messageId": "m", "ts": "2026-01-01T00:00:00Z"}
    line |= {"role": "user", "kind": "text", "text": "hello"}
    for more, expected in (
        ({}, ("main", "m", 0, 70)),
        ({"railId": "a1"}, ("a1", "m", 0, 70)),
        ({"n": 2}, ("main", "m", 2, 70)),
        ({"n": 2, "b": 3}, ("main", "m", 2, 3)),
        ({"railId": None, "n": None, "b": None, "toolUse": None}, ("main", "m", 0, 70)),
    ):
        record = decode_content(json.dumps(line | more).encode(), 70)
        assert type(record) is Content
        assert record.key == expected
        assert record.text == "hello"
    for damage in ({"n": -1}, {"role": "nobody"}, {"ts": "soon"}, {"sessionId": None}):
        assert decode_content(json.dumps(line | damage).encode(), 70) == Skipped("corrupt")


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b'{"v":1,"kind":"quark","record":{}}', "unknown-kind"),
        (b'{"v":99,"kind":"turn","record":{"rev":"x"}}', "unknown-version"),
        (b'{"v":1,"kind":"turn","record":{}}', "corrupt"),
        (b'{"v":1,"kind":"turn"}', "corrupt"),
        (b"", "corrupt"),
        (b"\x00\x00\x00\n", "corrupt"),
        (b"[1,2]", "corrupt"),
        (b'{"v":1,"kind":"prune","record":{"sessionId":"s","upTo":"yesterday"}}', "corrupt"),
        (b'{"v":1,"kind":"stamp","ts":"2026-01-01","selector":{},"enrichment":{"a":"b"}}', "corrupt"),
        (b'{"v":1,"kind":"stamp","ts":"2026-01-01","selector":{"sessionId":"s"},"enrichment":{"a":1}}', "corrupt"),
        (b'{"v":1,"kind":"turn","record":' + b"[" * 100_000, "corrupt"),
        (encode(turn()).replace(b'"output":20', b'"output":%d' % 2**63), "corrupt"),
        (encode(turn()).replace(b'"output":20', b'"output":-1'), "corrupt"),
    ],
)
def test_what_cannot_be_used_says_why(line: bytes, reason: str) -> None:
    """F46, F51: unknown kinds, unknown versions and damage are distinguished, and none raises."""
    found = decode(line)
    assert isinstance(found, Skipped)
    assert found.reason == reason


@pytest.mark.parametrize("after", [b"}", b"x", b"{}", b" }", b"}}", b',"v":1}'])
def test_what_follows_a_record_makes_the_line_unusable(after: bytes) -> None:
    """A line is one record and no more: what a damaged disk hung on to it is not taken for part of it."""
    assert isinstance(decode(encode(turn("t")).rstrip(b"\n") + after), Skipped)


@given(st.binary(max_size=200))
def test_no_bytes_raise(line: bytes) -> None:
    """Any bytes in a ledger give a record or a reason."""
    decode(line)


@given(st.text(st.characters(), max_size=30))
def test_any_text_can_be_written(text: str) -> None:
    """F57: a lone surrogate, which UTF-8 cannot hold, becomes the replacement character; NUL stays."""
    found = decode(encode(turn(session_id=text)))
    assert isinstance(found, Turn)
    assert found.session_id == clean(text)
    found.session_id.encode()


@pytest.mark.parametrize(
    "other",
    [
        encode(turn("b")),
        encode(turn("b"))[:-1],
        encode(stamp(workflow="w")),
        encode(turn("b")).replace(b'{"v":1', b'{"v":9', 1),
        encode(turn("b")) + encode(turn("c")),
        encode(turn("b"))[:50],
        b"{}\n",
        b"?\n",
        b"",
    ],
)
def test_many_lines_are_read_as_each_of_them(other: bytes) -> None:
    """A batch of lines gives the same as each line alone."""
    lines = [encode(turn("a")), other, encode(turn("d"))]
    assert decode_many_again(lines) == [decode_again(line) for line in lines]
    assert decode_many_again(lines[1:]) == [decode_again(line) for line in lines[1:]]


def test_an_equal_record_has_an_equal_digest() -> None:
    """The digest covers everything but the revision."""
    assert digest(turn(rev=1)) == digest(turn(rev=7))
    assert digest(turn()) != digest(turn(ts=at(1)))
    assert digest(turn()) != digest(turn(quality="partial"))


def test_every_kind_has_a_name() -> None:
    samples: list[Any] = [msgspec.convert(sample(t), t) for t in KINDS.values()]
    assert [kind_of(record) for record in samples] == list(KINDS)


def sample(record_type: type[Any]) -> dict[str, Any]:
    """The least a record of this type must say."""
    full = {
        "source": "s",
        "sessionId": "s",
        "railId": "r",
        "messageId": "m",
        "turnIndex": 0,
        "ts": at(0),
        "model": "m",
        "usage": {},
        "id": "i",
        "name": "n",
        "models": {},
        "window": "5h",
        "usedPercent": 1.0,
        "upTo": at(0),
        "selector": {"sessionId": "s"},
        "enrichment": {"a": "b"},
        "ids": "AAAAAAAAAAA=",
        "origin": "o",
    }
    return {name: full[name] for name in record_type.__struct_encode_fields__ if name in full}


HOSTILE = [
    "",
    ".",
    "..",
    "../../x",
    "/etc/passwd",
    "a/b",
    "a\\b",
    "a\0b",
    "a\nb",
    "x" * 10_000,
    "con",
    "NUL",
    "é",
    "=a",
]


@pytest.mark.parametrize("session_id", HOSTILE)
def test_hostile_ids_stay_inside(tmp_path: Path, session_id: str) -> None:
    """F15: whatever an id holds, its sidecar is a file directly inside content/, with a short name."""
    path = Sidecars(tmp_path / "content").path(session_id)
    assert path.parent == tmp_path / "content"
    assert path.resolve().parent == (tmp_path / "content").resolve()
    assert len(path.name.encode()) <= 120
    assert not path.name.startswith(".")


@given(st.sets(st.text(st.characters(), max_size=120) | st.sampled_from(HOSTILE), min_size=2, max_size=8))
def test_two_ids_never_share_a_file(ids: set[str]) -> None:
    """F15: different ids have different names; a hashed name never equals a plain one."""
    stems = {file_stem(i) for i in ids}
    assert len(stems) == len(ids)
    assert all(file_stem(stem) != stem or stem in ids for stem in stems)


@given(st.integers(-62_135_596_800_000, 253_402_300_799_999))
def test_times_keep_their_milliseconds(ms: int) -> None:
    """A time goes to text and back unchanged, and text order is time order."""
    assert to_ms(to_iso(ms)) == ms
    assert canonical(to_iso(ms)) == to_iso(ms)
    assert (to_iso(ms) < to_iso(ms + 1)) or ms == 253_402_300_799_999


def test_a_time_without_a_zone_is_utc() -> None:
    assert to_ms("2026-01-01T00:00:00") == to_ms("2026-01-01T00:00:00Z") == to_ms("2026-01-01T01:00:00+01:00")


@given(st.text(), st.text(max_size=80))
def test_names_are_bounded_and_stay_distinct(long: str, other: str) -> None:
    """At most so many bytes, cut between characters; what is short enough stays as it is."""
    name, twin = long * 40, long * 40 + other
    assert len(bounded(name).encode("utf-8", "surrogatepass")) <= 256
    assert bounded(bounded(name)) == bounded(name)
    assert (bounded(name) == bounded(twin)) == (name == twin)
    assert bounded(other) == other or len(other.encode()) > 256


def test_what_is_written_has_bounded_names() -> None:
    """In the ledger and in the index, for records from any origin; they read back the same."""
    calls = (ToolCall(id="c1", name="t" * 5000, target="/" + "p" * 9000),)
    long = turn("m1", model="m" * 5000, provider="日" * 100, git_branch="b" * 5000, tool_calls=calls)
    found = encoded(long)
    assert found is not None
    back = decode(found.line)
    assert back == found.entry
    assert digest(found.entry) == found.digest
    assert isinstance(back, Turn)
    names = (back.model, back.provider, back.git_branch, back.tool_calls[0].name)
    assert [len((name or "").encode()) for name in names] == [256, 254, 256, 256]
    assert len(back.tool_calls[0].target or "") == 4096
    stamped = encoded(msgspec.structs.replace(stamp(), enrichment={"k" * 5000: "v" * 5000}))
    assert stamped is not None
    assert 5000 < len(stamped.line) < 5600  # the value of a tag is whole
    assert decode(stamped.line) == stamped.entry


def test_the_index_has_no_time_without_a_date() -> None:
    """Times of broken clocks count as the first or last moment from 1970 to 2099; the ledger has them as they are."""
    assert to_iso(index_ms("0001-01-01T00:00:00+14:00")) == "1970-01-01T00:00:00.000Z"
    assert to_iso(index_ms("9999-12-31T23:59:59Z")) == "2099-12-31T23:59:59.999Z"
    assert canonical("9999-12-31T23:59:59Z") == "9999-12-31T23:59:59.000Z"
    assert index_ms("2026-11-16T00:00:00Z") == to_ms("2026-11-16T00:00:00Z")
