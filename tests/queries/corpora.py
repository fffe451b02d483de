"""Generated corpora whose exact totals are known."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.harness.collect import case_root


def generator(name: str) -> Path | None:
    root = case_root()
    script = root.parent / "bench" / name if root is not None else None
    return script if script is not None and script.exists() else None


def generate(name: str, out: Path, *options: str) -> dict[str, Any]:
    command = [sys.executable, str(generator(name)), "--out", str(out), *options]
    made = subprocess.run(command, check=True, capture_output=True).stdout
    return dict(json.loads(made))
