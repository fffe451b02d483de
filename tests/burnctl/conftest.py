"""Fixtures for tests of burnctl: a home whose path is short enough for a socket."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from burnd.paths import Home
from tests.burnctl.demo_home import DemoHome, demo_home


@pytest.fixture(scope="session")
def demo() -> Iterator[DemoHome]:
    """For all that is only asked."""
    with demo_home() as demo:
        yield demo


@pytest.fixture
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="burnctl-") as name:
        yield Path(name).resolve()


@pytest.fixture
def home(folder: Path) -> Home:
    return Home(folder / "home")
