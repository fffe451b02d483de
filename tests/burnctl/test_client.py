"""The client gives an answer or a reason, and never a wrong answer, whatever the daemon does."""

from __future__ import annotations

import inspect
import re
import socket
import threading
import time
from typing import Any

import pytest

import burnctl
from burnctl import Client, Failed, NotRunning, VersionMismatch
from burnctl.errors import BurnctlError, NoAnswer
from burnd import protocol
from burnd.contract import methods
from burnd.paths import Home
from tests.burnctl.fake_daemon import FakeDaemon, Refused, fake_daemon


def client_of(home: Home, **more: Any) -> Client:
    return Client(home.root / "burnd.sock", **more)


def test_it_asks_and_is_answered(home: Home) -> None:
    """One connection serves many questions; parameters go out in the socket's own spelling."""
    answers: dict[str, Any] = {"status": {"daemon": {}}, "content__prune": {"files": 0}}
    with fake_daemon(home.root / "burnd.sock", **answers) as server, client_of(home) as client:
        assert client.status() == {"version": protocol.VERSION, "daemon": {}}
        client.content_prune(older_than_days=30, dry_run=True)
        client.content_prune()
    assert server.connections == 1
    assert server.asked[1:] == [("content.prune", {"olderThanDays": 30, "dryRun": True}), ("content.prune", {})]


def test_every_method_of_the_socket_has_its_python_method() -> None:
    """`Client` finds them in the table; type checkers see the same names."""
    names = {name.replace(".", "_") for name in methods()}
    assert all(callable(getattr(Client(), name)) for name in names)
    typed = re.findall(r"^ +(\w+) = Method\(", inspect.getsource(inspect.getmodule(Client) or Client), re.MULTILINE)
    assert {*typed, "stamp", "stamps_remove", "tail"} == names


def test_a_parameter_that_is_not_in_the_table_is_an_error(home: Home) -> None:
    wrong: dict[str, Any] = {"sinse": "7d"}
    with pytest.raises(TypeError, match="summary has no parameter 'sinse'"):
        client_of(home).summary(**wrong)
    with pytest.raises(TypeError, match="1 arguments"):
        client_of(home).flow(*["a", "b"])


def test_no_daemon(home: Home) -> None:
    with pytest.raises(NotRunning) as raised:
        client_of(home).status()
    assert raised.value.exit_code == 3
    assert isinstance(raised.value, BurnctlError)


def test_a_daemon_that_is_just_coming_up_can_be_waited_for(home: Home) -> None:
    home.root.mkdir(parents=True)
    servers: list[FakeDaemon] = []

    def come_up() -> None:
        time.sleep(0.2)
        servers.append(FakeDaemon(home.root / "burnd.sock"))

    thread = threading.Thread(target=come_up)
    thread.start()
    client = client_of(home)
    client.connect(wait=60)
    client.close()
    thread.join()
    servers[0].close()


def test_patience_asks_again_while_the_daemon_is_starting(home: Home) -> None:
    tries = iter(range(10))

    def opening(_params: dict[str, Any], _talk: Any) -> dict[str, Any]:
        if next(tries) < 2:
            raise Refused(protocol.NOT_NOW, "burnd is starting: opening")
        return {"by": "model"}

    with fake_daemon(home.root / "burnd.sock", summary=opening):
        with client_of(home) as client, pytest.raises(Failed, match="starting"):
            client.summary()
        with client_of(home, patience=60.0) as client:
            assert client.summary()["by"] == "model"


def test_an_error_carries_code_name_and_hint(home: Home) -> None:
    def refuse(_params: dict[str, Any], _talk: Any) -> dict[str, Any]:
        raise Refused(protocol.NOT_FOUND, "no session starts with abc", "burnctl sessions lists them")

    with (
        fake_daemon(home.root / "burnd.sock", flush=refuse),
        client_of(home) as client,
        pytest.raises(Failed) as raised,
    ):
        client.flush(session="abc")
    error = raised.value
    assert (error.code, error.name, error.exit_code) == (protocol.NOT_FOUND, "not_found", 1)
    assert str(error) == "no session starts with abc; burnctl sessions lists them"


@pytest.mark.parametrize("version", [0, 2, None, "1"])
def test_another_version_is_never_taken_for_ours(home: Home, version: Any) -> None:
    """F73: an answer of another protocol version is an error that names both."""
    server, client = fake_daemon(home.root / "burnd.sock", status={"version": version}), client_of(home)
    with server, client, pytest.raises(VersionMismatch) as raised:
        client.status()
    assert (raised.value.theirs, raised.value.ours, raised.value.exit_code) == (version, protocol.VERSION, 4)


def test_an_error_of_another_version_is_a_mismatch_too(home: Home) -> None:
    """F73: a daemon of another version that does not know a method is not asked to be mended, but to be replaced."""

    def other(_params: dict[str, Any], talk: Any) -> None:
        data = {"name": "no_such_method", "hint": "", "version": 7}
        talk.send(
            {"jsonrpc": "2.0", "id": talk.id, "error": {"code": -32601, "message": "no such method", "data": data}}
        )

    with fake_daemon(home.root / "burnd.sock", status=other), client_of(home) as client, pytest.raises(VersionMismatch):
        client.status()


def test_an_answer_that_does_not_come_is_not_waited_for(home: Home) -> None:
    with fake_daemon(home.root / "burnd.sock", status=lambda *_: None), client_of(home, timeout=0.2) as client:
        begun = time.monotonic()
        with pytest.raises(NoAnswer, match=r"within 0\.2 s"):
            client.status()
        assert time.monotonic() - begun < 30


def test_an_answer_that_drips_in_is_held_to_the_deadline(home: Home) -> None:
    """The deadline is for the whole answer, not for each byte of it."""

    def drip(_params: dict[str, Any], talk: Any) -> None:
        while True:  # until the client has gone
            talk.connection.sendall(b" ")
            time.sleep(0.1)

    with fake_daemon(home.root / "burnd.sock", status=drip), client_of(home, timeout=0.5) as client:
        begun = time.monotonic()
        with pytest.raises(NoAnswer):
            client.status()
        assert time.monotonic() - begun < 30


def test_a_late_answer_is_not_the_next_questions(home: Home) -> None:
    def late(_params: dict[str, Any], _talk: Any) -> dict[str, Any]:
        time.sleep(0.5)
        return {"late": True}

    with (
        fake_daemon(home.root / "burnd.sock", status=late, flush={"sources": []}),
        client_of(home, timeout=0.1) as client,
    ):
        with pytest.raises(NoAnswer):
            client.status()
        assert "late" not in client.call("flush", timeout=60)


@pytest.mark.parametrize(
    "garbage", [b"\n", b"not json\n", b"[]\n", b'{"jsonrpc":"2.0","id":1}\n', b"\xff\xfe\n", b"[" * 10_000 + b"\n"]
)
def test_garbage_is_no_answer(home: Home, garbage: bytes) -> None:
    def answer(_params: dict[str, Any], talk: Any) -> None:
        talk.connection.sendall(garbage)

    with (
        fake_daemon(home.root / "burnd.sock", status=answer),
        client_of(home, timeout=1) as client,
        pytest.raises(NoAnswer),
    ):
        client.status()


def test_an_endless_answer_is_cut_off(home: Home) -> None:
    def endless(_params: dict[str, Any], talk: Any) -> None:
        try:
            for _ in range(64):
                talk.connection.sendall(b"x" * (1 << 20))
        except OSError:
            return

    with (
        fake_daemon(home.root / "burnd.sock", status=endless),
        client_of(home) as client,
        pytest.raises(NoAnswer, match="too long"),
    ):
        client.status()


def test_hanging_up_instead_of_answering(home: Home) -> None:
    server, client = fake_daemon(home.root / "burnd.sock", status=lambda _params, talk: talk.hang_up()), client_of(home)
    with server, client, pytest.raises(NoAnswer, match="closed the connection"):
        client.status()


def test_a_connection_closed_by_the_daemon_is_reopened(home: Home) -> None:
    """burnd closes what is idle for a minute; a program that asks once an hour must not notice."""

    def answer_and_leave(_params: dict[str, Any], talk: Any) -> None:
        talk.answer({})
        talk.hang_up()
        has_left.set()

    has_left = threading.Event()
    with fake_daemon(home.root / "burnd.sock", status=answer_and_leave) as server, client_of(home) as client:
        for _ in range(3):
            client.status()
            assert has_left.wait(60)
            has_left.clear()
        assert server.connections == 3


def test_the_daemon_may_be_restarted_between_questions(home: Home) -> None:
    client = client_of(home)
    for _ in range(2):
        with fake_daemon(home.root / "burnd.sock", status={}):
            client.status()
    with pytest.raises(NotRunning):
        client.status()


def test_a_stream_yields_until_it_ends(home: Home) -> None:
    def three(_params: dict[str, Any], talk: Any) -> None:
        talk.answer({"following": True})
        for n in range(3):
            talk.notify("progress", {"other": True})
            talk.notify("tail", {"missed": n})
        talk.hang_up()

    with fake_daemon(home.root / "burnd.sock", tail=three) as server, client_of(home) as client:
        turns = client.tail(project="/w")
        assert [next(turns)["missed"] for _ in range(3)] == [0, 1, 2]
        with pytest.raises(NoAnswer):
            next(turns)
    assert server.asked == [("tail", {"project": "/w"})]


def test_progress_messages_are_delivered(home: Home) -> None:
    def slowly(_params: dict[str, Any], talk: Any) -> dict[str, Any]:
        for done in (1, 2):
            talk.notify("progress", {"id": talk.id, "done": done, "total": 2})
        return {"rebuilt": "index"}

    heard: list[int] = []
    with fake_daemon(home.root / "burnd.sock", rebuild=slowly), client_of(home) as client:
        client.progress = lambda notice: heard.append(notice["done"])
        assert client.rebuild(index=True)["rebuilt"] == "index"
    assert heard == [1, 2]


def test_a_full_backlog_of_connections_is_retried(home: Home) -> None:
    """When many connect at once the kernel refuses some, which retry."""
    home.root.mkdir(parents=True)
    path = home.root / "burnd.sock"
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path))
        listening.listen(0)
        waiting = [Client(path, timeout=60) for _ in range(6)]
        threads = [threading.Thread(target=client.connect) for client in waiting]
        for thread in threads:
            thread.start()
        accepted = [listening.accept()[0] for _ in waiting]
        for thread in threads:
            thread.join(60)
        for client in waiting:
            client.close()
        for connection in accepted:
            connection.close()


def test_the_socket_is_found_as_the_daemon_finds_it(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """`$BURND_SOCKET`, else the home's; an error names a path that no socket can have."""
    monkeypatch.delenv("BURND_SOCKET", raising=False)
    monkeypatch.setenv("RELAYBURN_HOME", str(home.root))
    assert Client().socket_path == str(home.root / "burnd.sock")
    monkeypatch.setenv("BURND_SOCKET", "/elsewhere")
    assert Client().socket_path == "/elsewhere"
    monkeypatch.delenv("BURND_SOCKET")
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    monkeypatch.setenv("RELAYBURN_HOME", "/h" + "x" * 200)
    with pytest.raises(NotRunning, match="too long for a socket"):
        Client().status()


def test_what_the_package_offers() -> None:
    assert {name: getattr(burnctl, name) for name in burnctl.__all__}["Client"] is Client
    with pytest.raises(AttributeError):
        _ = burnctl.nothing
