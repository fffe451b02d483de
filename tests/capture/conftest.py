"""Fixtures for tests of capture: a folder of opencode's with a writer in it, and a rig that follows it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.capture.opencode_rig import OpenCodeRig
from tests.harness.opencode.data import BORN_MS, Writer


@pytest.fixture
def made() -> list[Writer]:
    """All writers of a test: what their clocks say is what the time is."""
    return []


@pytest.fixture
def writers(tmp_path: Path, made: list[Writer]) -> Iterator[Callable[..., Writer]]:
    """Makes writers of databases in opencode's folder; all are closed in the end."""

    def make(name: str = "opencode.db", schema: str = "1.18.33") -> Writer:
        made.append(Writer(tmp_path / "opencode" / name, schema))
        return made[-1]

    yield make
    for writer in made:
        writer.close()


@pytest.fixture
def writer(writers: Callable[..., Writer]) -> Writer:
    return writers()


@pytest.fixture
async def rigs(tmp_path: Path, made: list[Writer]) -> AsyncIterator[Callable[..., Any]]:
    """Opens rigs on one home, one after the other."""
    opened: list[OpenCodeRig] = []

    async def make(**options: Any) -> OpenCodeRig:
        for rig in opened:
            await rig.close()
        opened[:] = [OpenCodeRig(tmp_path / "home", tmp_path / "opencode", **options)]
        opened[0].wall = lambda: max((writer.clock for writer in made), default=BORN_MS)
        await opened[0].open()
        return opened[0]

    yield make
    for rig in opened:
        await rig.close()


@pytest.fixture
async def rig(rigs: Callable[..., Any]) -> OpenCodeRig:
    found = await rigs()
    assert isinstance(found, OpenCodeRig)
    return found
