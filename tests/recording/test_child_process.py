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
    start, receive = child_process._start, child_process._receive

    def patient_start(setting: Any) -> Any:
        monkeypatch.setattr(child_process, "HANGS_S", 60.0)
        return start(setting)

    def impatient_receive(pipe: Any) -> bytes:
        message = receive(pipe)
        if b"endless" in message:  # it is acknowledged, and nothing more will come
            monkeypatch.setattr(child_process, "HANGS_S", 0.0)
        return message

    monkeypatch.setattr(child_process, "_start", patient_start)
    monkeypatch.setattr(child_process, "_receive", impatient_receive)
    guard, trial = CrashGuard(tmp_path / "note"), ChildProcess(Reading, is_trial=True)
    crashes: list[tuple[Any, int]] = []
    answer = try_suspect(guard, trial, "input", ["a", "endless", "b"], 0, lambda *crash: crashes.append(crash))
    assert bytes(answer) == b"a b"
    assert crashes == [("endless", n + 1) for n in range(CRASHES)]
    assert guard.skipped("input") == {"endless"}
    trial.close()
    guard.close()
