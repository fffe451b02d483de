"""Fixtures: the demo's machine with a daemon that has read its logs."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.burnctl.demo_home import DemoHome, demo_home


@pytest.fixture(scope="session")
def demo() -> Iterator[DemoHome]:
    with demo_home() as demo:
        yield demo
