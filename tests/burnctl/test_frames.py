"""F73: what was recorded of a protocol version is understood for as long as that version is."""

from __future__ import annotations

from typing import Any

from burnd import protocol
from burnd.paths import Home
from tests.burnctl.fake_daemon import FakeConnection as Connection
from tests.burnctl.fake_daemon import fake_daemon
from tests.burnctl.frames import FOLDER, VERBS, Frame, recorded
from tests.burnctl.runner import burnctl
from tests.server.documented import ANYTHING, MAPS, furnish
from tests.server.wire import running

_TALKS = recorded(protocol.VERSION)


def test_every_version_is_kept() -> None:
    """F73: each protocol version has a record, and this version's covers every view."""
    assert [path.name for path in sorted(FOLDER.iterdir())] == [f"v{n + 1}.jsonl" for n in range(protocol.VERSION)]
    assert [talk.verb for talk in _TALKS] == VERBS


def test_a_client_understands_an_older_daemon(home: Home) -> None:
    """F73: every verb, answered with what a daemon of this protocol version once answered, ends as it did."""
    for talk in _TALKS:
        answers = {frame.request["method"]: _replay(frame) for frame in talk.frames}
        with fake_daemon(home.root / "burnd.sock") as server:
            server.answers = dict(answers)
            done = burnctl(home.root, *talk.verb)
        assert (done.returncode, done.stderr) == (0, ""), (talk.verb, done)
        assert done.stdout or talk.verb[0] == "stamp", talk.verb


def _replay(frame: Frame) -> Any:
    def answer(_params: dict[str, Any], connection: Connection) -> None:
        for line in frame.answers:
            connection.send(line | {"id": connection.id} if "id" in line else line)

    return answer


def test_a_daemon_understands_an_older_client(home: Home) -> None:
    """F73: every request that a client of this protocol version once made is answered with at least what it got."""
    furnish(home)
    with running(home) as daemon, daemon.wire() as wire:
        wire.call("flush")
        for frame in [frame for talk in _TALKS for frame in talk.frames]:
            method, params = frame.request["method"], frame.request.get("params", {})
            _has(wire.call(method, **params), frame.answers[-1]["result"], method)


def _has(found: Any, once: Any, where: str) -> None:
    """True if every recorded field, by name and type, is in the current answer."""
    if isinstance(once, dict) and isinstance(found, dict):
        if where.rpartition(".")[2] not in MAPS | ANYTHING:
            assert once.keys() <= found.keys(), where
        for key in once.keys() & found.keys():
            _has(found[key], once[key], f"{where}.{key}")
    elif isinstance(once, list) and isinstance(found, list):
        for one, other in zip(found, once, strict=False):
            _has(one, other, where)
    elif found is not None and once is not None and where.rpartition(".")[2] not in ANYTHING:
        assert isinstance(found, type(once) if not isinstance(once, int) else int | float), where
