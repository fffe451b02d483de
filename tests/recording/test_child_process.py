"""A child process that reads suspect inputs, and what counts as its crash."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from burnd.recording import child_process
from burnd.recording.child_process import ChildProcess, try_suspect
from burnd.recording.crash_guard import CRASHES, CrashGuard, Guard


class Reading:
    """Answers with the items it was given; one that is called "endless" never ends."""

    def __call__(self, request: Any, guard: Guard) -> bytes:
        passed: list[str] = []
        for item in guard.each("input", request, str, lambda _: None):
            if item == "endless":
                threading.Event().wait()
            passed.append(item)
        return " ".join(passed).encode()


def test_an_item_that_hangs_three_times_is_skipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """F78: it is treated like one that crashes its reader, so that what comes after it is read."""
    monkeypatch.setattr(child_process, "HANGS_S", 3.0)
    guard, trial = CrashGuard(tmp_path / "note"), ChildProcess(Reading, is_trial=True)
    crashes: list[tuple[Any, int]] = []
    answer = try_suspect(guard, trial, "input", ["a", "endless", "b"], 0, lambda *crash: crashes.append(crash))
    assert bytes(answer) == b"a b"
    assert crashes == [("endless", n + 1) for n in range(CRASHES)]
    assert guard.skipped("input") == {"endless"}
    trial.close()
    guard.close()
