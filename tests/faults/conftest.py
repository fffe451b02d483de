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
from tests.server.conftest import home
from tests.server.wire import running

__all__ = ["home"]


@pytest.fixture(scope="module")
def watched() -> Iterator[Watched]:
    """One daemon that all tests of a file meet, each with sessions of its own."""
    with tempfile.TemporaryDirectory(prefix="burnd-") as folder:
        own = Home(Path(folder) / "home")
        with running(own) as daemon:
            yield Watched(own, daemon)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if "tests/faults/" in report.nodeid and report.failed:
        tally.losses(1)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """A worker hands its counts to whoever started it."""
    output: dict[str, Any] | None = getattr(session.config, "workeroutput", None)
    if output is not None:
        output["faults"] = dict(tally.counted)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any, error: object) -> None:
    tally.counted.update(getattr(node, "workeroutput", {}).get("faults", {}))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if not tally.counted:
        return
    terminalreporter.section("faults")
    for name in tally.TABLE:
        terminalreporter.write_line(f"{name:<18}{tally.counted[name]:>10,}")
