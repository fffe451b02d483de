"""The real daemon, killed again and again while logs grow, ends where one clean read ends."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.capture.kill_loop import run_and_kill
from tests.capture.trees import CASES, trees


async def test_kill_nine_while_logs_grow(tmp_path: Path) -> None:
    """I1, I2, F40: nothing lost, nothing twice, the same labels and order."""
    for projects in trees(tmp_path, None):
        await run_and_kill(tmp_path, projects, rounds=4)


@pytest.mark.slow
@pytest.mark.parametrize("which", CASES)
async def test_kill_nine_on_real_logs(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, which: Path | None
) -> None:
    """I1, I2, F40: the same over the logs of real clients, with many more kills."""
    for projects in trees(tmp_path, which):
        folder = tmp_path_factory.mktemp("run")  # the path of a socket may have few bytes
        await run_and_kill(folder, projects, rounds=25)
