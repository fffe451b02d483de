"""Forks of a private session beside a running daemon: no text of theirs is found, though it is killed in between."""

from __future__ import annotations

import random
import shutil
from typing import Any

from burnd.paths import Home
from tests.faults.canaries import CANARY, files_with_canary
from tests.make import seeds
from tests.recording.forks import OFF, PLAIN, SILENT, logs
from tests.server.logs import projects
from tests.server.wire import Wire, running, until


def _append(home: Home, session: str, lines: list[bytes]) -> None:
    folder = projects(home) / "-home-dev-app"
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / f"{session}.jsonl").open("ab") as file:
        file.write(b"".join(line + b"\n" for line in lines))


def _found(wire: Wire, word: str) -> set[str]:
    return {hit["sessionId"] for hit in wire.call("sessions.search", query=word)["hits"]}


@seeds(1, 6)
def test_search_never_finds_text_that_came_out_of_a_private_session(home: Home, seed: int) -> None:
    """In random order, with kill -9 and a deleted index; an ordinary session is found."""
    chance = random.Random(seed)
    made = logs()
    order = [session for session in made for _ in range(2)]
    chance.shuffle(order)
    env: dict[str, Any] = {}
    with running(home, **env) as daemon, daemon.wire(60) as wire:
        for session in (OFF, SILENT):
            wire.call("announce", sessionId=session, contentMode="off")
        for session in order[: len(order) // 2]:
            _append(home, session, made[session][: len(made[session]) // 2])
            del made[session][: len(made[session]) // 2]
        daemon.kill()
    for session in order[len(order) // 2 :]:
        _append(home, session, made[session])
        made[session].clear()
    with running(home, **env) as daemon, daemon.wire(60) as wire:
        for session, lines in made.items():
            _append(home, session, lines)
        wire.call("flush")
        until(lambda: _found(wire, "ordinary") == {PLAIN})
        assert _found(wire, CANARY) == set()
        wire.call("flush")
        until(lambda: files_with_canary(home) == set())
        daemon.terminate()
    shutil.rmtree(home.index)
    with running(home, **env) as daemon, daemon.wire(60) as wire:
        wire.call("flush")
        until(lambda: _found(wire, "ordinary") == {PLAIN})
        assert _found(wire, CANARY) == set()
        until(lambda: files_with_canary(home) == set())
        assert wire.call("summary")["totals"]["turns"] > 5


def test_a_forgotten_message_is_not_found_in_a_later_fork(home: Home) -> None:
    """`forget` takes the copies in other sessions along, and a fork that is made afterwards brings nothing back."""
    made = logs()
    late = made.pop("background")
    with running(home) as daemon, daemon.wire(60) as wire:
        for session in (OFF, "forked", PLAIN):
            lines = [line for line in made[session] if b"-own" not in line and b"and now" not in line]
            _append(home, session, lines)
        wire.call("flush")
        until(lambda: _found(wire, CANARY) >= {OFF, "forked"})
        wire.call("content.forget", session=OFF)
        assert _found(wire, CANARY) == set()
        _append(home, "background", [line for line in late if b"-own" not in line and b"and now" not in line])
        wire.call("flush")
        until(lambda: files_with_canary(home) == set())
        assert _found(wire, CANARY) == set()
        assert _found(wire, "ordinary") == {PLAIN}
