"""A daemon killed while it explains continues where it was and ends in the same sums."""

from __future__ import annotations

import os
import signal
import time

import pytest

from tests.burnctl.demo_home import DemoHome, demo_home

WAYS = ("tool", "file", "command", "subagent", "prompt", "prefix", "cache-miss")


def answers(demo: DemoHome) -> dict[str, object]:
    return {by: demo.json("hotspots", "--by", by) for by in WAYS}


@pytest.mark.slow
def test_kill_nine_and_lost_indexes() -> None:
    """Killed at any moment, with or without its index, every rollup is the same."""
    with demo_home() as demo:
        expected = answers(demo)
        for n in range(4):
            pid = int(demo.json("status")["daemon"]["pid"])
            os.kill(pid, signal.SIGKILL)
            while os.path.exists(f"/proc/{pid}"):
                time.sleep(0.02)
            if n % 2 == 0:
                os.unlink(os.path.join(demo.home, "index", "burn.db"))
            assert demo.run("up").returncode == 0
            time.sleep(0.1 * n)
        assert demo.run("flush").returncode == 0
        assert answers(demo) == expected
        for by, answer in expected.items():
            assert all(row["key"] != "not yet explained" for row in answer["rows"]), by  # type: ignore[index]
