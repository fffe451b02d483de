"""One connection to burnd: lines of JSON-RPC, each within its deadline. It knows no method."""

from __future__ import annotations

import time

# `socket` takes 4 ms to import, mostly for names not needed here.
from _socket import AF_UNIX, MSG_PEEK, SOCK_STREAM, socket

from burnctl import quick_json as json
from burnctl.errors import Failed, MissingField, NoAnswer, NotRunning, VersionMismatch
from burnd import protocol

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

_CHUNK = 1 << 16
_MOST = protocol.ANSWER_BYTES + (1 << 20)


class Wire:
    """Sends one request at a time. Raises NotRunning if no daemon listens at `path`."""

    def __init__(self, path: str, timeout: float) -> None:
        self._socket = _connected(path, timeout)
        self._rest = bytearray()
        self._last_id = 0

    def close(self) -> None:
        self._socket.close()

    def usable(self) -> bool:
        """Whether the other end is open: burnd closes idle connections after a minute."""
        self._socket.settimeout(0)
        try:
            return bool(self._socket.recv(1, MSG_PEEK))
        except BlockingIOError:
            return True
        except OSError:
            return False

    def ask(
        self,
        method: str,
        params: Mapping[str, Any],
        timeout: float,
        on_progress: Callable[[dict[str, Any]], None] | None = None,
    ) -> dict[str, Any]:
        """The result of one call, its version checked. Passes earlier notifications to `on_progress`."""
        deadline = time.monotonic() + timeout
        self._send_request(method, params, deadline)
        while True:
            answer = self.receive(deadline)
            if answer is None:
                raise NoAnswer(protocol.TOO_LONG, f"burnd did not answer {method} within {timeout:g} s", _BUSY)
            if answer.get("id") == self._last_id or ("error" in answer and answer.get("id") is None):
                return result_of(answer)
            if on_progress is not None and "method" in answer:
                on_progress(answer.get("params") or {})
                deadline = time.monotonic() + timeout

    def send(self, method: str, params: Mapping[str, Any], timeout: float) -> None:
        """Sends a request and ignores its answer."""
        self._send_request(method, params, time.monotonic() + timeout)

    def _send_request(self, method: str, params: Mapping[str, Any], deadline: float) -> None:
        self._last_id += 1
        request = {"jsonrpc": "2.0", "id": self._last_id, "method": method, "params": params}
        line = json.dumps(request).encode() + b"\n"
        self._wait(deadline)
        try:
            self._socket.sendall(line)
        except TimeoutError:
            raise NoAnswer(protocol.TOO_LONG, "burnd did not accept the request in time", _BUSY) from None
        except OSError:
            # The daemon may have sent the reason why it closed: too many connections, too large a request.
            if (reply := self._last_words()) is not None:
                result_of(reply)
            raise _gone(None) from None

    def receive(self, deadline: float | None) -> dict[str, Any] | None:
        """The next line; None at the deadline (None: no deadline)."""
        searched = 0
        while (end := self._rest.find(b"\n", searched)) < 0:
            searched = len(self._rest)
            if searched > _MOST:
                raise NoAnswer(protocol.TOO_LARGE, "burnd sent an answer that is too long")
            if not self._wait(deadline):
                return None
            try:
                chunk = self._socket.recv(_CHUNK)
            except TimeoutError:
                return None
            except OSError as error:
                raise _gone(error) from None
            if not chunk:
                raise _gone(None)
            self._rest += chunk
        line = bytes(self._rest[:end])
        del self._rest[: end + 1]
        try:
            answer = json.loads(line, object_hook=Answer)
        except (ValueError, RecursionError):
            answer = None
        if not isinstance(answer, dict):
            raise NoAnswer(protocol.NOT_JSON, "burnd sent an invalid answer")
        return answer

    def _last_words(self) -> dict[str, Any] | None:
        try:
            return self.receive(time.monotonic() + 1)
        except Failed:
            return None

    def _wait(self, deadline: float | None) -> bool:
        """Sets the timeout of the next operation; False if the deadline is over."""
        seconds = None if deadline is None else deadline - time.monotonic()
        if seconds is not None and seconds <= 0:
            return False
        self._socket.settimeout(seconds)
        return True


_BUSY = "it may be busy; ask again, or look at: burnctl status"


def result_of(answer: dict[str, Any]) -> dict[str, Any]:
    """The result of an answer. Raises its error, or VersionMismatch."""
    if (error := answer.get("error")) is not None:
        raise _failed(error)
    result = answer.get("result")
    if not isinstance(result, dict):
        raise NoAnswer(protocol.NOT_JSON, "burnd sent an invalid answer")
    if result.get("version") != protocol.VERSION:
        raise VersionMismatch(result.get("version", "none"), protocol.VERSION)
    return result


def _failed(error: Any) -> Failed | VersionMismatch:
    reply = error if isinstance(error, dict) else {}
    data = reply.get("data")
    data = data if isinstance(data, dict) else {}
    if data.get("version", protocol.VERSION) != protocol.VERSION:
        return VersionMismatch(data["version"], protocol.VERSION)
    code = int(reply.get("code", protocol.FAILED))
    name = str(data.get("name") or protocol.NAMES.get(code, ""))
    hint = str(data.get("hint") or "")
    if code == protocol.NO_SUCH_METHOD and not hint:
        hint = "burnd may be older than burnctl; restart it with: burnctl restart"
    return Failed(code, str(reply.get("message", "burnd failed")), hint, name, str(data.get("about") or ""))


def _connected(path: str, timeout: float) -> socket:
    connection = socket(AF_UNIX, SOCK_STREAM)
    connection.settimeout(timeout)
    deadline = time.monotonic() + timeout
    while True:
        try:
            connection.connect(path)
        except BlockingIOError:
            # Listen backlog full: retry until the deadline.
            if time.monotonic() < deadline:
                time.sleep(0.01)
                continue
            problem = NotRunning("too many clients at once", "try again in a moment")
        except (FileNotFoundError, ConnectionRefusedError, NotADirectoryError):
            problem = NotRunning()
        except PermissionError:
            problem = NotRunning(f"{path} belongs to another user", "set RELAYBURN_HOME or BURND_SOCKET to your own")
        except OSError as error:
            problem = NotRunning(f"{path}: {error.strerror or error}")
        else:
            return connection
        connection.close()
        raise problem


class Answer(dict):  # type: ignore[type-arg]
    """An object of an answer. A missing field raises MissingField: burnd is of another release.

    `answer | {...}` is one too.
    """

    def __missing__(self, key: object) -> Any:
        raise MissingField(key)

    def __or__(self, more: Any) -> Answer:
        return Answer({**self, **more})


def _gone(error: OSError | None) -> NoAnswer:
    reason = f": {error.strerror}" if error and error.strerror else ""
    return NoAnswer(protocol.FAILED, f"burnd closed the connection before it answered{reason}", _BUSY)
