"""Fixtures for tests of burnctl: a home whose path is short enough for a socket."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from burnd.paths import Home
from tests.burnctl.desk import Desk, at_the_desk


@pytest.fixture(scope="session")
def desk() -> Iterator[Desk]:
    """For all that is only asked."""
    with at_the_desk() as desk:
        yield desk


@pytest.fixture
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="burnctl-") as name:
        yield Path(name).resolve()


@pytest.fixture
def home(folder: Path) -> Home:
    return Home(folder / "home")
