"""Agent products from npm in given versions, on a simulated machine with burnd."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

CLIENTS = Path(sys.prefix) / "clients"


def client(package: str, program: str, version: str = "latest") -> str:
    """The path of a program from npm, which is installed if it is missing."""
    folder = CLIENTS / f"{program}-{version}"
    path = folder / "node_modules" / ".bin" / program
    if not path.exists():
        command = ["npm", "install", "--silent", "--no-audit", "--no-fund", "--prefix", str(folder)]
        folder.mkdir(parents=True, exist_ok=True)
        subprocess.run([*command, f"{package}@{version}"], check=True, timeout=300, capture_output=True)
    return str(path)


class Machine:
    """A user's home with a project, agents and burnd."""

    def __init__(self, home: Path, environ: Mapping[str, str]) -> None:
        self.home, self.project = home, home / "project"
        self.project.mkdir()
        self.environ = {
            "PATH": os.environ["PATH"],
            "HOME": str(home),
            "RELAYBURN_HOME": str(home / "burn"),
            **environ,
        }

    def burnctl(self, *arguments: str, path: str = "") -> str:
        """Output of a burnctl command; programs in `path` come first."""
        environ = {**self.environ, "PATH": os.pathsep.join(filter(None, (path, self.environ["PATH"])))}
        command = [sys.executable, "-m", "burnctl", *arguments]
        done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=60, check=False)
        assert not done.returncode, done.stderr
        return done.stdout + done.stderr

    def run(self, *command: str, **environ: str) -> str:
        """Output of an agent in the project."""
        done = self.try_run(*command, **environ)
        assert not done.returncode, done.stderr or done.stdout
        return done.stdout

    def try_run(self, *command: str, **environ: str) -> subprocess.CompletedProcess[str]:
        """Runs an agent in the project; it may fail."""
        return subprocess.run(
            command,
            env={**self.environ, **environ},
            cwd=self.project,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    def ledger(self) -> list[str]:
        """The turns in the ledger, as their lines."""
        lines = (self.home / "burn" / "ledger.jsonl").read_text().splitlines()
        return [line for line in lines if '"kind":"turn"' in line]

    def content(self) -> str:
        """All content lines."""
        return "".join(path.read_text() for path in sorted((self.home / "burn" / "content").glob("*.jsonl")))
