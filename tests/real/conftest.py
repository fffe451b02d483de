"""Fixtures: the demo's machine with a daemon that has read its logs."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.burnctl.desk import Desk, at_the_desk


@pytest.fixture(scope="session")
def desk() -> Iterator[Desk]:
    with at_the_desk() as desk:
        yield desk
