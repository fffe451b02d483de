"""Fixtures for tests of the socket: a home with a short path, and a daemon that answers there."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from burnd.paths import Home
from tests.server.wire import Daemon, running


@pytest.fixture
def home() -> Iterator[Home]:
    """In a folder with a short name, since socket paths are limited in bytes."""
    with tempfile.TemporaryDirectory(prefix="burnd-") as folder:
        yield Home(Path(folder) / "home")


@pytest.fixture(scope="module")
def live() -> Iterator[Daemon]:
    """One daemon for all tests of a file that need not be alone with it."""
    with tempfile.TemporaryDirectory(prefix="burnd-") as folder, running(Home(Path(folder) / "home")) as daemon:
        yield daemon


@pytest.fixture
def daemon(home: Home) -> Iterator[Daemon]:
    with running(home) as daemon:
        yield daemon
