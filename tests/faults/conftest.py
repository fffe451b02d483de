"""Fixtures for faults: a home with a short path that a real daemon can be started on, and the table at the end."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from burnd.paths import Home
from tests.faults import tally
from tests.faults.watched import Watched
from tests.server.conftest import daemon, home
from tests.server.wire import running

__all__ = ["daemon", "home"]


@pytest.fixture(scope="module")
def watched() -> Iterator[Watched]:
    """One daemon that all tests of a file meet, each with sessions of its own."""
    with tempfile.TemporaryDirectory(prefix="burnd-") as folder:
        own = Home(Path(folder) / "home")
        with running(own) as daemon:
            yield Watched(own, daemon)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """A worker hands its counts to whoever started it."""
    output: dict[str, Any] | None = getattr(session.config, "workeroutput", None)
    if output is not None:
        output["faults"] = (dict(tally.counted), tally.notes)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any, error: object) -> None:
    counted, notes = getattr(node, "workeroutput", {}).get("faults", ({}, []))
    tally.counted.update(counted)
    tally.notes.extend(notes)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    reports = [*terminalreporter.getreports("failed"), *terminalreporter.getreports("error")]
    losses = sum("tests/faults/" in report.nodeid for report in reports)
    if tally.counted or tally.notes:
        terminalreporter.section("faults")
        for line in tally.table(losses):
            terminalreporter.write_line(line)
