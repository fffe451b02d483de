"""A wrapped harness for tests: a stub on PATH, a working folder and separate homes."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests import warm
from tests.burnctl import stub_claude
from tests.burnctl.runner import BURNCTL, environment
from tests.burnctl.terminal import Terminal


class StubMachine:
    """A machine on which `claude` (and `harness`) is the stub."""

    def __init__(self, folder: Path) -> None:
        self.home = folder / "home"
        self.config = folder / "claude-config"
        self.work = folder / "work"
        self.work.mkdir()
        self._note = folder / "note"
        programs = folder / "bin"
        programs.mkdir()
        for name in ("claude", "harness"):
            script = programs / name
            script.write_text(f"#!{sys.executable} -P\n" + Path(stub_claude.__file__).read_text())
            script.chmod(0o755)
        self.env = environment(
            self.home,
            PATH=f"{programs}:{os.environ['PATH']}",
            STUB_NOTE=str(self._note),
            CLAUDE_CONFIG_DIR=str(self.config),
        )

    @property
    def note(self) -> dict[str, Any]:
        """Arguments and environment that the stub recorded at its start."""
        found: dict[str, Any] = json.loads(self._note.read_text())
        return found

    @property
    def signals(self) -> str:
        return Path(f"{self._note}.signal").read_text()

    @property
    def transcripts(self) -> Path:
        return self.config / "projects" / re.sub("[^A-Za-z0-9]", "-", str(self.work.resolve()))

    def run(self, *words: str, do: str = "", **env: str) -> subprocess.CompletedProcess[str]:
        """burnctl, at no terminal."""
        return warm.run(
            [*BURNCTL, *words],
            env={**self.env, "STUB_DO": do, **env},
            cwd=self.work,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    def start(self, *words: str, do: str = "", **env: str) -> subprocess.Popen[str]:
        """The same, left running, with its output to be read."""
        return warm.Popen(
            [*BURNCTL, *words],
            env={**self.env, "STUB_DO": do, **env},
            cwd=self.work,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def at_terminal(self, *words: str, do: str = "", **env: str) -> Terminal:
        return Terminal([*BURNCTL, *words], {**self.env, "STUB_DO": do, **env}, self.work)

    def shell(self, do: str = "") -> Terminal:
        """An interactive bash, whose job control is the real thing; `$BURNCTL` is burnctl."""
        env = {**self.env, "STUB_DO": do, "PS1": "shell> ", "BURNCTL": " ".join(BURNCTL), "TERM": "dumb"}
        return Terminal(["bash", "--norc", "--noprofile", "-i"], env, self.work)
