"""Folders of Codex logs, as Codex lays them out."""

from __future__ import annotations

import shutil
from pathlib import Path

from tests.harness.codex.rollout import CASES


def all_cases(root: Path) -> Path:
    """The logs of every case, as if one person had them all."""
    sessions = root / "sessions"
    for log in sorted(CASES.glob("*/input/*")):
        target = sessions / "2026" / log.parent.parent.name / log.name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(log, target)
    return sessions
