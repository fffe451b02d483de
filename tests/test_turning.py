"""F76: the guard of the tests' event loops reports blocking code of burnd, and only that."""

from __future__ import annotations

import inspect
import time
from pathlib import Path

import anyio
import pytest

from tests.turning import Turning

HERE, ELSEWHERE = Path(__file__), Path("/nowhere")


async def blocks() -> None:
    time.sleep(0.5)


@pytest.mark.parametrize(("own", "not_below", "is_told"), [(HERE, ELSEWHERE, True), (HERE, HERE, False)])
async def test_the_blocking_stack_is_reported(own: Path, not_below: Path, is_told: bool) -> None:
    """By its place; what the test itself does is not held against anybody."""
    with Turning(0.1, own, not_below) as loop:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(blocks)
    assert ("in blocks" in loop.held_up) == is_told


async def test_a_loop_that_turns_is_no_matter() -> None:
    with Turning(0.3, HERE, ELSEWHERE) as loop:
        for _ in range(20):
            await anyio.sleep(0.02)
    assert loop.held_up == ""


async def test_every_such_test_is_watched() -> None:
    """This one as well."""
    frames = [frame.filename for frame in inspect.stack()]
    assert any(name.endswith("tests/turning.py") for name in frames)
