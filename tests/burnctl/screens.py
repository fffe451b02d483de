"""Screens of burnctl on the demo's sessions, rendered in this process at a time that never changes.

A daemon reads the logs of a made-up machine whose last session was written at `NOW`; burnctl gets that time as its own.
"""

from __future__ import annotations

import contextlib
import gc
import io
import json
import os
import re
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from unittest import mock

from burnctl import cli
from burnctl.client import Client
from burnctl.demo_machine import Machine, live
from burnctl.render.numbers import use_currency
from burnd.contract.results.daemon import Status

NOW = 1_763_389_800.0  # Monday, 2025-11-17 14:30 UTC
_STYLES = {
    "1": "bold", "2": "dim", "7": "reverse", "31": "red", "32": "green", "33": "yellow", "34": "blue", "35": "magenta",
    "36": "cyan",
}  # fmt: skip


class Output(io.TextIOWrapper):
    """Output of burnctl, as a terminal or as a pipe."""

    def __init__(self, encoding: str, *, is_terminal: bool) -> None:
        self.bytes = io.BytesIO()
        self._is_terminal = is_terminal
        super().__init__(self.bytes, encoding=encoding, newline="\n")

    def isatty(self) -> bool:
        return self._is_terminal


class DemoScreens:
    """The made-up machine with its daemon."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self.environment = {
            "PATH": os.environ["PATH"],
            "CI": "1",
            "TZ": "UTC",
            "TERM": "xterm",
            "PAGER": "cat",
            "RELAYBURN_CONTENT_TTL_DAYS": "forever",
            **machine.environment,
        }

    def run(self, *words: str, stdin: str = "") -> None:
        command = [sys.executable, "-P", "-m", "burnctl", *words]
        subprocess.run(
            command, env=self.environment, check=True, capture_output=True, timeout=60, input=stdin, text=True
        )

    def rendered(
        self, words: list[str], columns: int = 0, *, color: bool = False, is_pipe: bool = False, encoding: str = "utf-8"
    ) -> str:
        """Output of a command. Colours are shown as `{bold}`, and the machine's folder is replaced by a fixed name."""
        own = {"COLUMNS": str(columns)} if columns else {}
        output = Output(encoding, is_terminal=not is_pipe)
        environment = self.environment | own | ({} if color else {"NO_COLOR": "1"})
        with (
            mock.patch.dict(os.environ, environment, clear=True),
            mock.patch("sys.stdout", output),
            mock.patch("time.time", return_value=NOW),
            warnings.catch_warnings(),
        ):
            warnings.simplefilter("ignore", ResourceWarning)  # burnctl leaves its connection to the end of its process
            time.tzset()
            code = cli.main(words)
            output.flush()
            gc.collect()
        time.tzset()
        use_currency(None)
        assert code == 0, words
        text = output.bytes.getvalue().decode(encoding)
        # The folder of the machine, whole or cut, with a name of the same length: columns stay where they are.
        return _readable(re.sub(r"(/tmp/burnd-)(\w+)", lambda match: match[1] + "_" * len(match[2]), text))


def _readable(text: str) -> str:
    def style(match: re.Match[str]) -> str:
        names = [_STYLES[code] for code in match[1].split(";") if code != "0"]
        return "{" + (" ".join(names) or "/") + "}"

    return re.sub(r"\x1b\[([\d;]+)m", style, text)


@contextlib.contextmanager
def demo_screens() -> Iterator[DemoScreens]:
    """Starts the daemon, waits until everything is recorded, searchable and attributed, and stops it in the end."""
    folder = tempfile.mkdtemp(prefix="burnd-", dir="/tmp")
    machine = Machine(str(Path(folder).resolve()))
    written = machine.write_logs(NOW)
    story = live()
    log = machine.live_log(story, NOW - 150)
    for act in story.acts:
        log.act(act)
    made = DemoScreens(machine)
    # The daemon's clock does not move either: windows, today and ages are those of burnctl.
    Path(folder, "sitecustomize.py").write_text(
        f"import time\ntime.time = lambda: {NOW}\ntime.time_ns = lambda: {int(NOW)} * 10**9\n"
    )
    made.environment["PYTHONPATH"] = folder
    made.run("up")
    try:
        at = datetime.fromtimestamp(NOW, UTC).isoformat()
        tagged = [{"sessionId": name, "ts": at, **dict(one.tags)} for name, one in written.items() if one.tags]
        made.run("stamp", "--stdin", stdin="\n".join(map(json.dumps, tagged)))
        made.run("flush")
        made.run("hotspots")  # attributes what is new at once
        with Client(Path(machine.environment["RELAYBURN_HOME"]) / "burnd.sock") as client:
            while not _is_settled(client.status()):
                time.sleep(0.05)
        yield made
    finally:
        made.run("down")
        subprocess.run(["rm", "-r", machine.folder], check=True)


def _is_settled(status: Status) -> bool:
    return not (status["backfill"] or status["causes"]["pending"] or status["search"]["pending"])
