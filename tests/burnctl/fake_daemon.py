"""A scripted burnd: a real unix socket with answers from the test."""

from __future__ import annotations

import json
import os
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from burnd import protocol

Answer = dict[str, Any] | Callable[[dict[str, Any], "FakeConnection"], dict[str, Any] | None]


class Refused(Exception):
    """Raised by an answer to make it an error."""

    def __init__(self, code: int, message: str, hint: str = "", about: str = "") -> None:
        self.code, self.message, self.hint, self.about = code, message, hint, about


class FakeConnection:
    """A client's connection, for answers of several messages."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self.id: Any = None

    def send(self, message: dict[str, Any]) -> None:
        self.connection.sendall(json.dumps(message).encode() + b"\n")

    def answer(self, result: dict[str, Any]) -> None:
        self.send({"jsonrpc": "2.0", "id": self.id, "result": {"version": protocol.VERSION, **result}})

    def notify(self, method: str, params: dict[str, Any]) -> None:
        self.send({"jsonrpc": "2.0", "method": method, "params": params})

    def hang_up(self) -> None:
        self.connection.shutdown(socket.SHUT_RDWR)


class FakeDaemon:
    """Answers by method name and records requests in `asked`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.answers: dict[str, Answer] = {"status": {"daemon": {"state": "ready"}, "backfill": None}}
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self.connections = 0
        self._listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listening.bind(str(path))
        self._listening.listen(16)
        self._threads: list[threading.Thread] = []
        self._open: list[socket.socket] = []
        self._spawn(self._accept)

    def close(self) -> None:
        """Stops like a daemon: no more answers, and the socket file is removed."""
        self.path.unlink(missing_ok=True)
        self._shut(self._listening)
        self._threads[0].join(5)  # the newest connection is among the open ones then
        for connection in self._open:
            self._shut(connection)
        for thread in self._threads:
            thread.join(5)

    @staticmethod
    def _shut(end: socket.socket) -> None:
        with suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)
        end.close()

    def _spawn(self, target: Callable[..., None], *arguments: Any) -> None:
        thread = threading.Thread(target=target, args=arguments, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listening.accept()
            except OSError:
                return
            self.connections += 1
            self._open.append(connection)
            self._spawn(self._serve, connection)

    def _serve(self, connection: socket.socket) -> None:
        talk = FakeConnection(connection)
        try:
            with connection.makefile("rb") as lines:
                for line in lines:
                    self._answer(json.loads(line), talk)
        except OSError:
            return

    def _answer(self, request: dict[str, Any], talk: FakeConnection) -> None:
        talk.id = request["id"]
        method, params = request["method"], request.get("params", {})
        self.asked.append((method, params))
        try:
            answer = self.answers[method]
        except KeyError:
            error = {"code": protocol.NO_SUCH_METHOD, "message": f"there is no method {method}", "data": {}}
            talk.send({"jsonrpc": "2.0", "id": talk.id, "error": error})
            return
        try:
            result = answer(params, talk) if callable(answer) else answer
        except Refused as refused:
            data = {"name": protocol.NAMES[refused.code], "hint": refused.hint, "about": refused.about}
            error = {"code": refused.code, "message": refused.message, "data": data}
            talk.send({"jsonrpc": "2.0", "id": talk.id, "error": error})
            return
        if result is not None:
            talk.answer(result)


@contextmanager
def fake_daemon(path: Path, **answers: Answer) -> Iterator[FakeDaemon]:
    """A fake daemon at that path; `sessions__list` answers `sessions.list`."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    os.chmod(path.parent, 0o700)
    server = FakeDaemon(path)
    server.answers |= {name.replace("__", "."): answer for name, answer in answers.items()}
    try:
        yield server
    finally:
        server.close()
