"""Runs burnctl in a separate environment and reads the spool it leaves."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests import warm

BURNCTL = [sys.executable, "-P", "-m", "burnctl"]


def environment(home: Path, **more: str) -> dict[str, str]:
    """The environment of a shell whose home folder contains `home`."""
    plain = {"PATH": os.environ["PATH"], "HOME": str(home.parent), "RELAYBURN_HOME": str(home), "LANG": "C.UTF-8"}
    return plain | more


def burnctl(home: Path, *words: str, **options: Any) -> subprocess.CompletedProcess[str]:
    """`input`, `env` (added to ours) and other options are those of subprocess.run."""
    env = environment(home, **options.pop("env", {}))
    return warm.run([*BURNCTL, *words], env=env, capture_output=True, text=True, timeout=60, check=False, **options)


def spooled(home: Path) -> list[dict[str, Any]]:
    """Records in the spool, in order."""
    return [json.loads(path.read_text()) for path in spool_files(home)]


def spool_files(home: Path) -> list[Path]:
    return sorted(path for path in (home / "spool").glob("*.json") if not path.name.startswith("."))


def leftovers(home: Path) -> list[str]:
    """Anything in the spool that is no whole file."""
    whole = {path.name for path in spool_files(home)}
    return [path.name for path in (home / "spool").glob("*") if path.name not in whole] if home.exists() else []
