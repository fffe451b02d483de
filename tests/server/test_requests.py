"""Recognises requests; every line gets one answer, and none a traceback."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from burnd import protocol
from burnd.server import rpc
from tests.make import examples
from tests.server.wire import Daemon, Wire

NULL: Any = None


def said(live: Daemon, line: bytes) -> dict[str, Any]:
    """The answer to one line; the connection must survive it."""
    with live.wire() as wire:
        wire.send(line + b"\n")
        answer = wire.line()
        assert answer is not None
        assert wire.call("status")["version"] == protocol.VERSION
        return answer


@pytest.mark.parametrize(
    "raw_id",
    ["1", "-7", "0", '"a"', '""', '"\\u00e9\\n"', "null", "1.5", "1.50", "1e3", "123456789012345678901234567890"],
)
def test_an_id_is_returned_as_it_was_written(live: Daemon, raw_id: str) -> None:
    """Every id that JSON-RPC allows comes back byte for byte."""
    with live.wire() as wire:
        wire.send(b'{"jsonrpc":"2.0","id":' + raw_id.encode() + b',"method":"config.show"}\n')
        data = wire.socket.recv(1 << 16)
        assert data.startswith(b'{"jsonrpc":"2.0","id":' + raw_id.encode() + b',"result":')


@pytest.mark.parametrize(
    ("line", "code", "id_"),
    [
        (b"{", protocol.NOT_JSON, NULL),
        (b"nonsense", protocol.NOT_JSON, NULL),
        (b"\xff\xfe{}", protocol.NOT_JSON, NULL),
        (b'{"jsonrpc":"2.0","id":1,"method":"\xff"}', protocol.NOT_JSON, NULL),
        (b'{"jsonrpc":"2.0","id":1,"method":"\\ud800"}', protocol.NO_SUCH_METHOD, 1),
        (b'{"jsonrpc":"2.0","id":1,"method":"\\ud800', protocol.NOT_JSON, NULL),
        (b"[" * 100_000, protocol.NOT_A_REQUEST, NULL),
        (b'{"params":' + b"[" * 100_000 + b"]" * 100_000 + b"}", protocol.NOT_JSON, NULL),
        (b'{"a":' * 50_000, protocol.NOT_A_REQUEST, NULL),
        (b"[]", protocol.NOT_A_REQUEST, NULL),
        (b'[{"jsonrpc":"2.0","id":1,"method":"status"}]', protocol.NOT_A_REQUEST, NULL),
        (b"3", protocol.NOT_A_REQUEST, NULL),
        (b'"status"', protocol.NOT_A_REQUEST, NULL),
        (b"null", protocol.NOT_A_REQUEST, NULL),
        (b"{}", protocol.NOT_A_REQUEST, NULL),
        (b'{"id":7}', protocol.NOT_A_REQUEST, 7),
        (b'{"jsonrpc":"1.0","id":7,"method":"status"}', protocol.NOT_A_REQUEST, 7),
        (b'{"jsonrpc":"2.0","id":7,"method":5}', protocol.NOT_A_REQUEST, 7),
        (b'{"jsonrpc":"2.0","id":7,"method":"status","parms":{}}', protocol.NOT_A_REQUEST, 7),
        (b'{"jsonrpc":"2.0","id":{},"method":"status"}', protocol.NOT_A_REQUEST, NULL),
        (b'{"jsonrpc":"2.0","id":true,"method":"status"}', protocol.NOT_A_REQUEST, NULL),
        (b'{"jsonrpc":"2.0","id":7,"method":"no.such"}', protocol.NO_SUCH_METHOD, 7),
        (b'{"jsonrpc":"2.0","id":7,"method":""}', protocol.NO_SUCH_METHOD, 7),
        (b'{"jsonrpc":"2.0","id":7,"method":"status","params":[]}', protocol.BAD_PARAMS, 7),
        (b'{"jsonrpc":"2.0","id":7,"method":"status","params":null}', protocol.BAD_PARAMS, 7),
        (b'{"jsonrpc":"2.0","id":7,"method":"status","params":{"x":1}}', protocol.BAD_PARAMS, 7),
        (b'{"jsonrpc":"2.0","id":7,"method":"flush","params":{"session":1}}', protocol.BAD_PARAMS, 7),
        (b'{"jsonrpc":"2.0","id":7,"method":"stamps.list","params":{"limit":-1}}', protocol.BAD_PARAMS, 7),
        (b'{"jsonrpc":"2.0","id":7,"method":"stamps.list","params":{"limit":1e99}}', protocol.BAD_PARAMS, 7),
        (
            b'{"jsonrpc":"2.0","id":7,"method":"stamps.list","params":{"after":99999999999999999999}}',
            protocol.BAD_PARAMS,
            7,
        ),
        (b'{"jsonrpc":"2.0","id":7,"method":"content.read","params":{"session":"none"}}', protocol.NOT_FOUND, 7),
        (
            b'{"jsonrpc":"2.0","id":7,"method":"content.read","params":{"session":"none","offset":-1}}',
            protocol.BAD_PARAMS,
            7,
        ),
    ],
    ids=lambda value: repr(value)[:50],
)
def test_what_is_no_request_gets_one_error(live: Daemon, line: bytes, code: int, id_: Any) -> None:
    """F69: a code, a sentence and a hint, with the request's id if readable; the connection stays."""
    answer = said(live, line)
    assert answer["id"] == id_
    error = answer["error"]
    assert error["code"] == code
    assert error["data"]["name"] == protocol.NAMES[error["code"]]
    assert error["data"]["version"] == protocol.VERSION
    assert error["message"]
    assert "Traceback" not in json.dumps(answer)


@pytest.mark.parametrize("query", ["\\ud83d", "\\udcf0\\udc9f word", "\\\\ud83d \\ud83d\\ude00\\ude00"])
def test_half_a_character_is_no_mistake(live: Daemon, query: str) -> None:
    """A lone surrogate from an incomplete character is dropped from the query."""
    params = f'{{"query":"{query}"}}'.encode()
    answer = said(live, b'{"jsonrpc":"2.0","id":7,"method":"sessions.search","params":' + params + b"}")
    halves = json.loads(f'"{query}"').encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    assert (answer["id"], answer["result"]["query"]) == (7, halves)


def test_an_invalid_choice_lists_the_valid_ones(live: Daemon) -> None:
    with live.wire() as wire:
        error = wire.error("sessions.search", query="x", role="bot")
        assert error["data"]["hint"] == "role is one of: user, assistant, tool_result, system"
        given = [{"id": "m", "role": role, "content": "x"} for role in ("user", "bot")]
        error = wire.error("sessions.append", id="x", messages=given)
        assert error["data"]["hint"].startswith("role is one of: assistant, ")
        assert "file" in wire.error("hotspots", by="bot")["data"]["hint"]


def test_a_notification_gets_no_answer(live: Daemon) -> None:
    """Not even when it fails: only the request after it is answered."""
    with live.wire() as wire:
        wire.send(b'{"jsonrpc":"2.0","method":"status"}\n{"jsonrpc":"2.0","method":"no.such"}\n')
        wire.send(b'{"jsonrpc":"2.0","id":"last","method":"config.show"}\n')
        answer = wire.line()
        assert answer is not None
        assert answer["id"] == "last"


def test_blank_lines_and_carriage_returns_are_passed_over(live: Daemon) -> None:
    """A client that ends its lines as others do, or sends some for good measure, is understood."""
    with live.wire() as wire:
        wire.send(b'\r\n\n  \n{"jsonrpc":"2.0","id":1,"method":"config.show"}\r\n\n')
        answer = wire.line()
        assert answer is not None
        assert answer["id"] == 1


def test_a_last_line_without_its_newline_is_answered(live: Daemon) -> None:
    """`printf '{...}' | socat` closes its end before it reads, and still gets its answer."""
    with live.wire() as wire:
        wire.send(b'{"jsonrpc":"2.0","id":1,"method":"config.show"}')
        wire.socket.shutdown(1)
        answer = wire.line()
        assert answer is not None
        assert answer["id"] == 1
        assert wire.line() is None


def test_many_requests_at_once_are_answered_in_order(live: Daemon) -> None:
    """F69: 10,000 pipelined requests, read while they are sent, one answer each and in their order."""
    requests = b"".join(b'{"jsonrpc":"2.0","id":%d,"method":"nothing"}\n' % n for n in range(10_000))
    with live.wire() as wire, live.wire() as other:
        sending = threading.Thread(target=wire.send, args=(requests,))
        sending.start()
        answers = [wire.line() for _ in range(10_000)]
        sending.join()
        assert [answer and answer["id"] for answer in answers] == list(range(10_000))
        assert other.call("status")["version"] == protocol.VERSION


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=10), inner, max_size=4),
    max_leaves=10,
)
METHODS = ["status", "stamp", "stamps.list", "announce", "spool", "content.read", "content.prune", "config.show", "x"]


@st.composite
def requests(draw: st.DrawFn) -> bytes:
    """Lines that are nearly requests."""
    fields = {
        "jsonrpc": draw(st.sampled_from(["2.0", "2.0", "2.0", "1.0", 2])),
        "id": draw(ANYTHING),
        "method": draw(st.sampled_from(METHODS) | ANYTHING),
        "params": draw(st.dictionaries(st.sampled_from(PARAMS), ANYTHING, max_size=3) | ANYTHING),
    }
    for name in draw(st.sets(st.sampled_from(sorted(fields)), max_size=1)):
        del fields[name]
    return json.dumps(fields).encode("utf-8", "surrogatepass")


PARAMS = [
    "selector",
    "enrichment",
    "stamps",
    "ts",
    "limit",
    "after",
    "session",
    "sessionId",
    "roots",
    "dryRun",
    "offset",
]
GARBAGE = st.binary(max_size=200).map(lambda data: data.replace(b"\n", b"")) | requests()


@settings(max_examples=examples(40), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(lines=st.lists(GARBAGE, max_size=8))
def test_garbage_never_hurts(live: Daemon, lines: list[bytes]) -> None:
    """F69: whatever the lines are, each gets at most one answer, and a good request after them is answered."""
    with live.wire() as wire:
        wire.send(b"".join(line + b"\n" for line in lines))
        wire.send(b'{"jsonrpc":"2.0","id":"the last one","method":"config.show"}\n')
        answers = list(_until_last(wire))
    assert len(answers) <= len(lines) + 1
    assert all(answer["jsonrpc"] == "2.0" and ("result" in answer) != ("error" in answer) for answer in answers)
    assert "Traceback" not in json.dumps(answers)
    assert "request.failed" not in live.why()


def _until_last(wire: Wire) -> Iterator[dict[str, Any]]:
    while (answer := wire.line()) is not None:
        yield answer
        if answer["id"] == "the last one":
            return
    raise AssertionError("the connection ended")


@given(data=st.binary(max_size=300))
def test_parsing_raises_nothing_else(data: bytes) -> None:
    """Any bytes are a request or a BadRequest."""
    with contextlib.suppress(rpc.BadRequest):
        rpc.parse(data)


def test_an_answer_too_large_advises_to_page() -> None:
    """F71: no frame over 8 MiB; the error suggests paging."""
    with pytest.raises(rpc.Fault) as raised:
        rpc.answer(rpc.NO_ID, {"rows": ["x" * 1000] * 10_000})
    assert raised.value.code == protocol.TOO_LARGE
    assert "limit" in raised.value.hint


def test_file_names_that_are_not_utf8_can_be_sent() -> None:
    """A path of any bytes in an answer does not break it."""
    line = rpc.answer(rpc.NO_ID, {"path": b"/tmp/\xff\xfe".decode("utf-8", "surrogateescape")})
    assert json.loads(line)["result"]["path"] == "/tmp/\\udcff\\udcfe"
