"""ClickHouse's engine (chdb) behind the HTTP interface of a server, as far as burnctl and Grafana use it.

`python -m tests.real.clickhouse_server FOLDER` prints its port and serves until its stdin is closed.
"""

from __future__ import annotations

import gzip
import re
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

USER, PASSWORD = "burnd", "secret"
_LOCK = threading.Lock()
_SESSION: Any = None
_DONE: set[str] = set()  # statements that are in force
_OWN = {"query", "default_format", "database", "wait_end_of_query"}


class Handler(BaseHTTPRequestHandler):
    """One request at a time: chdb has one session in a process."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if self.headers.get("Content-Encoding") == "gzip":
            body = gzip.decompress(body)
        options = {name: values[0] for name, values in parse_qs(urlsplit(self.path).query).items()}
        if (self.headers.get("X-ClickHouse-User"), self.headers.get("X-ClickHouse-Key")) != (USER, PASSWORD):
            self._answer(403, b"Code: 516. DB::Exception: Authentication failed. (AUTHENTICATION_FAILED)")
            return
        query = b"\n".join(part for part in (options.get("query", "").encode(), body) if part)
        try:
            with _LOCK:
                self._prepare(options)
                answer = _SESSION.query(query.decode(), options.get("default_format", "TabSeparated"))
                data = answer.bytes() or b""
        except Exception as error:  # noqa: BLE001 - whatever the engine says is the answer
            self._answer(404 if "Code: 81" in str(error) else 500, str(error).encode())
            return
        self._answer(200, data)

    def _prepare(self, options: dict[str, str]) -> None:
        """Chooses the database, which is made if it is missing, and the settings, as far as they changed."""
        database = self.headers.get("X-ClickHouse-Database") or "default"
        wanted = {f"SET {name} = '{value}'" for name, value in options.items() if name not in _OWN}
        for statement in (f"CREATE DATABASE IF NOT EXISTS `{database}`", f"USE `{database}`", *sorted(wanted)):
            if statement not in _DONE:
                if statement.startswith("USE"):
                    _DONE.difference_update([one for one in _DONE if one.startswith("USE")])
                _SESSION.query(statement)
                _DONE.add(statement)

    def _answer(self, status: int, text: bytes) -> None:
        self.send_response(status)
        if found := re.match(rb"Code: (\d+)", text):
            self.send_header("X-ClickHouse-Exception-Code", found[1].decode())
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_: Any) -> None:
        """Discards the log."""


def main() -> None:
    global _SESSION  # noqa: PLW0603 - one in a process
    from chdb import session

    _SESSION = session.Session(sys.argv[1])
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    print(server.server_port, flush=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    sys.stdin.read()


if __name__ == "__main__":
    main()
