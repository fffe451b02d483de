"""Fixtures for faults: a home with a short path that a real daemon can be started on, and the table at the end."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from burnd.paths import Home
from tests.faults import tally
from tests.faults.watched import EVERYTHING, SESSIONS, Watched, all_reports, answers, started, whole
from tests.server.conftest import daemon, home
from tests.server.wire import running

__all__ = ["daemon", "home"]


@pytest.fixture(scope="module")
def watched() -> Iterator[Watched]:
    """One daemon for all tests of a file, each with its own sessions."""
    with tempfile.TemporaryDirectory(prefix="burnd-") as folder:
        own = Home(Path(folder) / "home")
        with running(own) as daemon:
            yield Watched(own, daemon)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """A worker sends its counts to the controller."""
    output: dict[str, Any] | None = getattr(session.config, "workeroutput", None)
    if output is not None:
        output["faults"] = (dict(tally.counted), tally.notes)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any, error: object) -> None:
    counted, notes = getattr(node, "workeroutput", {}).get("faults", ({}, []))
    tally.counted.update(counted)
    tally.notes.extend(notes)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """The table; if BURND_TALLY names a file, of all runs that used the file. A worker prints none."""
    if hasattr(terminalreporter.config, "workerinput"):
        return
    tally.losses(sum(len(terminalreporter.getreports(kind)) for kind in ("failed", "error")))
    tally.not_tried.update(_reason(report) for report in terminalreporter.getreports("skipped"))
    if file := os.environ.get("BURND_TALLY"):
        tally.add_to(Path(file))
    if tally.counted.total() or tally.not_tried or tally.notes:
        terminalreporter.section("faults")
        for line in tally.table():
            terminalreporter.write_line(line)


def _reason(report: Any) -> str:
    """Why a test was skipped; its report is a tuple of where and why."""
    said = report.longrepr
    return str(said[2] if isinstance(said, tuple) else said).removeprefix("Skipped: ")


@pytest.fixture
def expected_reports(home: Home) -> dict[str, Any]:
    """A home with three sessions of twelve answers and a stamp, its daemon stopped; what its answers were."""
    with started(home) as watched:
        for session in SESSIONS:
            watched.append(session, whole(answers(session, 0, 12)))
        watched.flush()
        watched.call("stamp", selector={"sessionId": "a"}, enrichment={"step": "plan"})
        said = all_reports(watched)
        assert watched.daemon.terminate() == 0
    assert said["totals"]["usage"]["output"] == 3 * EVERYTHING
    return said
