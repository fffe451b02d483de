"""Metrics for Prometheus: figures of `summary` over HTTP, at a loopback address only."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from burnd.errors import ConfigError
from burnd.paths import Home
from burnd.server.metrics import Counters
from burnd.settings.config import load
from tests.harness.claude_code.transcript import Transcript, text
from tests.server.logs import write
from tests.server.wire import Daemon, running, until

MODEL = "claude-opus-5-5"
USAGE = "gen_ai_client_inference_usage"


def free_port() -> int:
    with closing(socket.create_server(("127.0.0.1", 0))) as listening:
        port: int = listening.getsockname()[1]
        return port


def request(port: int, head: str) -> tuple[str, str]:
    """The status line and the body of an answer."""
    with closing(socket.create_connection(("127.0.0.1", port), 30)) as client:
        client.sendall(head.encode())
        data = b"".join(iter(lambda: client.recv(1 << 16), b""))
    answer, _, body = data.decode().partition("\r\n\r\n")
    return answer.splitlines()[0] if answer else "", body


def scrape(port: int) -> dict[str, float]:
    """Every sample by its name and labels."""
    status, body = request(port, f"GET /metrics HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n")
    assert status == "HTTP/1.1 200 OK", body
    samples = [line for line in body.splitlines() if not line.startswith("#")]
    assert all(re.fullmatch(r"[a-z_0-9]+(\{.*\})? [-+.e0-9]+", line) for line in samples)
    return {name: float(value) for name, _, value in (line.rpartition(" ") for line in samples)}


def log(home: Home, session: str, output: int) -> None:
    lines = Transcript(session=session, prefix=session)
    lines.prompt("add a page")
    usage = {"input_tokens": 5, "cache_read_input_tokens": 70, "cache_creation_input_tokens": 300}
    lines.says(f"{session}-m", text("done"), output=output, usage=usage)
    write(home, lines, session)


@pytest.fixture
def port(home: Home) -> int:
    found = free_port()
    home.root.mkdir(0o700, exist_ok=True)
    home.config.write_text(f'[metrics]\nlisten = "127.0.0.1:{found}"\n')
    return found


@pytest.fixture
def daemon(home: Home, port: int) -> Iterator[Daemon]:
    log(home, "s1", 100)
    with running(home) as daemon, daemon.wire() as wire:
        wire.call("flush")
        until(lambda: _listens(port), 30, daemon.why)
        yield daemon


def _listens(port: int) -> bool:
    with closing(socket.socket()) as client:
        return client.connect_ex(("127.0.0.1", port)) == 0


def labelled(name: str, **more: str) -> str:
    labels = {"gen_ai_response_model": MODEL, "project": "/home/dev/app", **more}
    pairs = ",".join(f'{key}="{value}"' for key, value in labels.items())
    return f"{name}{{{pairs}}}"


def test_gauges_are_those_of_the_summary(daemon: Daemon, port: int) -> None:
    samples = scrape(port)
    with daemon.wire() as wire:
        totals: dict[str, Any] = wire.call("summary")["totals"]
    assert samples[labelled("burnd_cost_usd")] == totals["costUsd"] > 0
    assert samples[labelled("burnd_requests")] == totals["turns"] == 1
    usage = totals["usage"]
    assert samples[labelled("burnd_tokens", kind="output")] == usage["output"] == 100
    assert samples[labelled("burnd_tokens", kind="cache_read")] == usage["cacheRead"] == 70
    assert samples["burnd_backfill_done"] == 1
    assert samples['burnd_source_pending_files{source="claude-code"}'] == 0


def test_counters_count_from_the_first_scrape(daemon: Daemon, home: Home, port: int) -> None:
    """Cached tokens are within input."""
    assert scrape(port)[labelled(f"{USAGE}_output_tokens_total")] == 0
    log(home, "s2", 40)
    with daemon.wire() as wire:
        wire.call("flush")
    samples = scrape(port)
    assert samples[labelled(f"{USAGE}_output_tokens_total")] == 40
    assert samples[labelled(f"{USAGE}_input_tokens_total")] == 375
    assert samples[labelled(f"{USAGE}_cache_read_input_tokens_total")] == 70
    assert samples[labelled(f"{USAGE}_cache_write_input_tokens_total")] == 300
    assert samples[labelled("burnd_tokens", kind="output")] == 140


def test_other_requests_are_refused(daemon: Daemon, port: int) -> None:
    """Also those of a web page whose host name resolves here; the daemon continues."""
    for head, code in {
        "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n": "404",
        "POST /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n": "405",
        "GET /metrics HTTP/1.1\r\nHost: evil.example\r\n\r\n": "403",
        "GET /metrics HTTP/1.1\r\n\r\n": "403",
        "GET /metrics HTTP/1.1\r\nHost: [::1]:9464\r\n\r\n": "200",
        f"GET /metrics HTTP/1.1\r\nX: {'x' * 9000}": "",
    }.items():
        assert (request(port, head)[0].split(" ") + [""] * 2)[1] == code, head
    assert scrape(port)["burnd_backfill_done"] == 1
    with daemon.wire() as wire:
        assert wire.call("status")["degraded"] == []


def test_it_is_off_by_default(home: Home) -> None:
    assert load(home, {}).metrics_address is None


@pytest.mark.parametrize(
    "address", ["0.0.0.0:9464", "192.168.1.5:9464", "[::]:9464", "example.org:80", "127.0.0.1", "x"]
)
def test_only_a_loopback_address_is_accepted(home: Home, address: str) -> None:
    home.root.mkdir()
    home.config.write_text(f'[metrics]\nlisten = "{address}"\n')
    with pytest.raises(ConfigError, match="must be a loopback address and a port"):
        load(home, {})
    home.config.write_text('[metrics]\nlisten = "[::1]:9464"\n')
    assert load(home, {}).metrics_address == ("::1", 9464)


def test_a_port_that_is_taken_is_a_problem_with_a_remedy(home: Home, port: int) -> None:
    with closing(socket.create_server(("127.0.0.1", port))), running(home) as daemon, daemon.wire() as wire:
        until(lambda: "metrics cannot be served" in str(wire.call("status")["degraded"]), 30, daemon.why)


def test_counters_only_grow() -> None:
    """A turn that is taken back does not shrink them, and old logs do not count."""
    counters, name, series = Counters(), f"{USAGE}_reasoning_output_tokens_total", ("m", "p")

    def value(total: int, **state: bool) -> int:
        usage = dict.fromkeys(("input", "output", "cacheRead", "cacheCreate5m", "cacheCreate1h"), 0)
        counters.update({series: {**usage, "reasoning": total}}, **{"is_backfill": False, **state})
        return dict(counters.of(name))[series]

    assert [value(100), value(130), value(120), value(140)] == [0, 30, 30, 40]
    assert [value(900, is_backfill=True), value(910)] == [40, 50]
    series = ("other", "p")
    assert [value(500, is_cut=True), value(510)] == [0, 10]
    series = ("new", "p")
    assert value(5) == 5
