"""Asking burnd's own code about settings: as a process, since importing it here would make every start slow."""

from __future__ import annotations

import json
import subprocess
import sys

from burnctl.errors import BurnctlError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def ask_burnd(action: str, *words: str) -> dict[str, Any]:
    """What `init`, `show`, `set KEY VALUE` or `path` comes to. Raises BurnctlError with burnd's own words."""
    command = [sys.executable, "-P", "-m", "burnd.settings.command", action, *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines()
        raise BurnctlError(lines[-1] if lines else f"burnd ended with code {done.returncode}")
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer
