"""HTTP client of ClickHouse with a scripted server. tests/real has the engine."""

from __future__ import annotations

import gzip
import ssl
import threading
from collections.abc import Iterator
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from burnctl.push.clickhouse import ClickHouseTarget, Connection
from burnctl.push.clickhouse_tables import literal, statements
from burnctl.push.target import Batch, Refused, Unreachable
from tests.burnctl.push.rows import turn
from tests.certificates import self_signed


class Server(ThreadingHTTPServer):
    """Answers with the next of `answers`, and remembers what was asked."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.answers: list[tuple[int, str]] = []
        self.asked: list[tuple[str, str]] = []
        self.closes = False
        self.url = f"clickhouse://127.0.0.1:{self.server_port}/fleet"


class Handler(BaseHTTPRequestHandler):
    server: Server
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        body = gzip.decompress(body) if self.headers.get("Content-Encoding") == "gzip" else body
        query = parse_qs(urlsplit(self.path).query).get("query", [""])[0]
        self.server.asked.append((query, body.decode()))
        status, text = self.server.answers.pop(0) if self.server.answers else (200, "")
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())
        self.close_connection = self.server.closes

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield server
        server.shutdown()


def test_rows_come_before_the_cursor(server: Server) -> None:
    target = ClickHouseTarget.at(server.url)
    target.send(Batch("a", {"sessions": [], "turns": [turn("a", f"m{n}", n) for n in range(20)]}, "next", 20))
    (rows, body), (state, cursor) = server.asked
    assert rows == "INSERT INTO turns FORMAT JSONEachRow"
    assert len(body.splitlines()) == 20
    assert '"cost_usd":"0.000001234567"' in body
    assert state == "INSERT INTO push_state FORMAT JSONEachRow"
    assert '"cursor": "next"' in cursor
    target.close()


@pytest.mark.parametrize(
    ("status", "text", "error"),
    [
        (403, "Code: 516. DB::Exception: burnd: Authentication failed", Refused),
        (401, "", Refused),
        (403, "Code: 497. DB::Exception: Not enough privileges", Refused),
        (404, "Code: 81. DB::Exception: Database fleet does not exist", Refused),
        (500, "Code: 252. DB::Exception: Too many parts", Unreachable),
        (500, "Code: 241. DB::Exception: Memory limit exceeded", Unreachable),
        (500, "Code: 159. DB::Exception: Timeout exceeded: elapsed 300 seconds", Unreachable),
        (503, "", Unreachable),
    ],
)
def test_an_error_states_whether_to_try_again(server: Server, status: int, text: str, error: type[Exception]) -> None:
    server.answers = [(status, text)]
    with closing(Connection(server.url, "burnd", "hush")) as connection, pytest.raises(error):
        connection.rows("SELECT 1")


def test_an_idle_connection_that_was_closed_is_opened_again(server: Server) -> None:
    server.closes = True
    connection = Connection(server.url)
    for _ in range(3):
        connection.execute("SELECT 1")
    assert len(server.asked) == 3
    connection.close()


def test_a_server_that_is_down_is_tried_again_later() -> None:
    with pytest.raises(Unreachable, match="does not answer"):
        Connection("clickhouse://127.0.0.1:1/x").rows("SELECT 1")


def test_a_certificate_is_verified_by_the_authority_that_the_url_names(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    certificate, key = self_signed(tmp_path / "own")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    url = server.url.replace("clickhouse:", "clickhouses:")
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    other, _ = self_signed(tmp_path / "other")
    for given in (url, f"{url}?sslrootcert={other}"):
        with closing(Connection(given, "burnd", "hush")) as connection, pytest.raises(Refused, match="not valid"):
            connection.execute("SELECT 1")
    with (
        closing(Connection(f"{url}?sslrootcert={tmp_path}/none")) as connection,
        pytest.raises(Refused, match="No such"),
    ):
        connection.execute("SELECT 1")
    assert server.asked == []
    with closing(Connection(f"{url}?sslrootcert={certificate}", "burnd", "hush")) as connection:
        connection.execute("SELECT 1")
    assert len(server.asked) == 1


def test_a_newer_schema_is_refused(server: Server) -> None:
    server.answers = [(200, ""), (200, "[9, 9]")]
    with closing(ClickHouseTarget.at(server.url)) as target, pytest.raises(Refused, match="newer burnd: schema 9"):
        target.open("a")


def test_the_name_has_no_credentials() -> None:
    assert Connection("clickhouses://me:hush@db.example/fleet").name == "clickhouses://db.example:8443/fleet"


def test_texts_are_escaped() -> None:
    assert literal("a'b\\") == "'a\\'b\\\\'"


def test_tables_are_not_partitioned() -> None:
    """A turn that moves to another month would be in two partitions, which are never merged."""
    assert not any("PARTITION BY toYYYYMM" in statement for statement in statements())
