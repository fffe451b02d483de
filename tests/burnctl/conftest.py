"""Fixtures for tests of burnctl: a home whose path is short enough for a socket."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from burnd.paths import Home
from tests.burnctl.demo_home import DemoHome, demo_home
from tests.burnctl.stub_machine import StubMachine


@pytest.fixture(scope="session")
def demo() -> Iterator[DemoHome]:
    """One demo for all tests that only read."""
    with demo_home() as demo:
        yield demo


@pytest.fixture
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="burnctl-") as name:
        yield Path(name).resolve()


@pytest.fixture
def home(folder: Path) -> Home:
    return Home(folder / "home")


@pytest.fixture
def machine(folder: Path) -> StubMachine:
    """A machine on which a stub replaces the harness."""
    return StubMachine(folder)
