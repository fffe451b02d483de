"""Generated corpora whose exact totals are known, each made once in a run."""

from __future__ import annotations

import fcntl
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.harness.collect import case_root

CLAUDE_OPTIONS = [
    ["--seed", "1"],
    ["--seed", "7", "--fork-frac", "0.5", "--growing-frac", "0.8", "--workflow-frac", "0.3"],
]
OPENCODE_OPTIONS = ["--seed", "7", "--fork-frac", "0.6", "--task-frac", "0.05"]


def generator(name: str) -> Path | None:
    root = case_root()
    script = root.parent / "bench" / name if root is not None else None
    return script if script is not None and script.exists() else None


needs_claude_corpus = pytest.mark.skipif(
    generator("gen_claude.py") is None, reason="needs the corpus generator beside BURND_CASES"
)
needs_opencode_corpus = pytest.mark.skipif(
    generator("gen_opencode.py") is None, reason="needs the corpus generator beside BURND_CASES"
)


class Corpora:
    """The corpora of this run, in a folder that all workers share. Tests may read them, not write."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def claude(self, options: list[str]) -> tuple[Path, dict[str, Any]]:
        """A folder with `projects` of about 2 MB, and the truth about it."""
        return self._made("gen_claude.py", "home", ["--size", "2MB", "--max-lines", "300", *options])

    def opencode(self, target: Path, options: list[str] = OPENCODE_OPTIONS) -> dict[str, Any]:
        """Copies a database of about 2 MB, because readers leave files beside it; returns its truth."""
        made, truth = self._made("gen_opencode.py", "opencode.db", ["--size", "2MB", *options])
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(made, target)
        return truth

    def _made(self, script: str, name: str, options: list[str]) -> tuple[Path, dict[str, Any]]:
        folder = self._folder / "-".join([script, *options]).replace("--", "")
        folder.mkdir(parents=True, exist_ok=True)
        truth = folder / "truth.json"
        with (folder / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not truth.exists():
                command = [sys.executable, str(generator(script)), "--out", str(folder / name), *options]
                output = subprocess.run(command, check=True, capture_output=True).stdout
                truth.write_bytes(output)
        return folder / name, dict(json.loads(truth.read_bytes()))
