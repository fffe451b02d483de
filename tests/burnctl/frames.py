"""Recorded exchanges of burnctl and burnd of one protocol version, kept for all later versions. `python -m
tests.burnctl.frames` records them again; do that only while the version is unreleased."""

from __future__ import annotations

import json
import socket
import tempfile
import threading
from pathlib import Path
from typing import Any, NamedTuple

from burnd import protocol
from burnd.paths import Home
from tests.burnctl.runner import burnctl
from tests.server.documented import SESSION, furnish
from tests.server.wire import running

FOLDER = Path(__file__).parent / "frames"
VERBS = [
    ["status"],
    ["summary"],
    ["summary", "--by", "session"],
    ["sessions"],
    ["show", SESSION],
    ["search", "bug"],
    ["why", SESSION],
    ["hotspots"],
    ["waste"],
    ["stamp", "--session", SESSION, "step=plan"],
    ["stamps", "list"],
    ["export"],
]


class Frame(NamedTuple):
    """A request, and every line that came back for it."""

    request: dict[str, Any]
    answers: list[dict[str, Any]]


class Talk(NamedTuple):
    """A command line and the exchange it caused."""

    verb: list[str]
    frames: list[Frame]


def recorded(version: int) -> list[Talk]:
    talks = [json.loads(line) for line in (FOLDER / f"v{version}.jsonl").read_text().splitlines()]
    return [Talk(talk["verb"], [Frame(**frame) for frame in talk["frames"]]) for talk in talks]


class _Between:
    """A proxy between client and daemon that records both directions."""

    def __init__(self, path: Path, daemon: Path) -> None:
        self.frames: list[Frame] = []
        self._daemon = str(daemon)
        self._listening = socket.socket(socket.AF_UNIX)
        self._listening.bind(str(path))
        self._listening.listen(8)
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            client, _ = self._listening.accept()
            threading.Thread(target=self._pass_on, args=(client,), daemon=True).start()

    def _pass_on(self, client: socket.socket) -> None:
        with client, socket.socket(socket.AF_UNIX) as daemon, client.makefile("rwb") as asking:
            daemon.connect(self._daemon)
            with daemon.makefile("rwb") as answering:
                for line in asking:
                    answering.write(line)
                    answering.flush()
                    frame = Frame(json.loads(line), [])
                    self.frames.append(frame)
                    while not frame.answers or "id" not in frame.answers[-1]:
                        answer = answering.readline()
                        frame.answers.append(json.loads(answer))
                        asking.write(answer)
                        asking.flush()


def record() -> None:
    with tempfile.TemporaryDirectory(prefix="burnd-") as folder:
        home = Home(Path(folder) / "home")
        furnish(home)
        with running(home) as daemon:
            with daemon.wire() as wire:
                wire.call("flush")
            between = _Between(Path(folder) / "between", daemon.socket)
            said = []
            for verb in VERBS:
                between.frames.clear()
                done = burnctl(home.root, *verb, env={"BURND_SOCKET": f"{folder}/between"})
                assert done.returncode == 0, done
                said.append(Talk(verb, [*between.frames]))
    lines = [json.dumps({"verb": talk.verb, "frames": [frame._asdict() for frame in talk.frames]}) for talk in said]
    FOLDER.mkdir(exist_ok=True)
    (FOLDER / f"v{protocol.VERSION}.jsonl").write_text(
        "".join(f"{line}\n" for line in lines).replace(folder, "/home/dev")
    )


if __name__ == "__main__":
    record()
