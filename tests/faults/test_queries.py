"""Part E, queries: words that look like syntax, and values that no database can store."""

from __future__ import annotations

import json
import time

import pytest

from tests.faults import tally
from tests.faults.watched import Watched, answers, sum_of, whole
from tests.harness.claude_code.transcript import Transcript, call, text
from tests.server.wire import noise, until

HOSTILE = [
    *('"x', "a AND", "NEAR(", "col:x", "-", "*", "a*", "^a", "(", ")", '"""', "{x}", "[a TO b]", "a OR OR b", "+-+"),
    *("NOT", "a:b:c", "text:(", "\\", "/.*/", "%", "_", "'; DROP TABLE turns; --", "\x00", "\x1b[2J", "\u202e", "~2"),
    *("a~9999", "a^99999999999", '"a b"~99999', "<script>", "${HOME}", "`id`", "\U0001f600", "\ufeff", "a\nb\tc"),
    *("(" * 2000, "a " * 5000, '"' * 999, "*" * 500, "a*" * 500, "x" * 100_000, "-a " * 1000),
]


@pytest.mark.timed
def test_words_are_never_syntax(watched: Watched) -> None:
    """F56: any typed text is searched for; no query fails or takes long, and the next one is answered."""
    watched.append("f56", whole(answers("f56", 0, 2, words="NEAR(cake) col:x needle")))
    watched.flush()
    until(lambda: _found(watched, "needle"), 30)
    for query in HOSTILE:
        began = time.monotonic()
        with watched.daemon.wire(60) as wire:
            answer = wire.ask("sessions.search", query=query)
        assert "result" in answer, (query[:50], answer)
        assert time.monotonic() - began < 5 * noise() + 1, query[:50]
    assert _found(watched, "col:x")
    assert _found(watched, "NEAR(cake)")
    tally.bad_inputs(len(HOSTILE))


def _found(watched: Watched, query: str) -> bool:
    return any(hit["sessionId"] == "f56" for hit in watched.call("sessions.search", query=query)["hits"])


def test_values_no_database_holds(watched: Watched) -> None:
    """F57: lone surrogates, NULs and numbers beyond 2**63, in text and arguments: stored as far as possible."""
    log = Transcript(session="f57", prefix="f57-u")
    log.prompt("a\x00b HALF c")
    log.calls("f57-m0", call("f57-c0", "Bash", command="HALF\x00", number=2**70, less=-(2**70)), output=1)
    log.result("f57-c0", [text("HALF"), {"type": "odd", "odd": 2**64}])
    log.says("f57-m1", text("\x00"), output=2)
    watched.append("f57", whole(log.lines).replace(b"HALF", b"\\ud800"))
    assert watched.recorded("f57") == sum_of(0, 1)
    assert watched.texts("f57")[0] == "a\x00b \ufffd c"
    assert "f57" in json.dumps(watched.call("sessions.messages", id="f57"))
    tally.bad_inputs(7)
