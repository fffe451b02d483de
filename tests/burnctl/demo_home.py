"""A user at the demo's machine, with a real daemon that has read its logs."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from burnctl.demo_machine import Machine
from tests import warm


class DemoHome:
    """A person at the demo's machine."""

    def __init__(self, machine: Machine, sessions: dict[str, str]) -> None:
        self.machine = machine
        self.sessions = sessions  # by title
        self.home = machine.environment["RELAYBURN_HOME"]
        self._environment = {"PATH": os.environ["PATH"], "CI": "1", "TZ": "UTC", **machine.environment}

    def run(self, *arguments: str, columns: int = 80, folder: str | None = None) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-P", "-m", "burnctl", *arguments]
        environment = self._environment | {"COLUMNS": str(columns)}
        return warm.run(command, env=environment, cwd=folder, capture_output=True, text=True, timeout=60, check=False)

    def json(self, *arguments: str) -> dict[str, Any]:
        done = self.run(*arguments, "--json")
        assert done.returncode == 0, done.stderr
        answer = json.loads(done.stdout)
        assert isinstance(answer, dict)
        return answer


@contextlib.contextmanager
def demo_home() -> Iterator[DemoHome]:
    with tempfile.TemporaryDirectory(prefix="burnd-", dir="/tmp") as folder:
        machine = Machine(str(Path(folder).resolve()))
        written = machine.write_logs(time.time())
        demo = DemoHome(machine, {story.title: session_id for session_id, story in written.items()})
        try:
            assert demo.run("up").returncode == 0
            for session_id, story in written.items():
                if story.tags:
                    demo.run("stamp", "--session", session_id, *(f"{key}={value}" for key, value in story.tags))
            assert demo.run("flush").returncode == 0
            yield demo
        finally:
            demo.run("down")
