"""I1, I2, I3: whenever a database is looked at, and whatever dies meanwhile, one clean read says the same."""

from __future__ import annotations

import random
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.capture.opencode_rig import OpenCodeRig, clean_read
from tests.readers.opencode_data import BORN_MS, SCHEMAS, Statement, Writer
from tests.readers.opencode_stories import tell_all

RELEASES = pytest.mark.parametrize("schema", sorted(SCHEMAS))


def told(folder: Path, schema: str, born: int = BORN_MS) -> list[Statement]:
    """All stories in a database that nobody has open any more, and how it came to be."""
    writer = Writer(folder / "opencode.db", schema, born)
    tell_all(writer)
    writer.close()
    return writer.done


async def replayed(home: Path, data: Path, schema: str, statements: Sequence[Statement], seed: int) -> dict[str, Any]:
    """The same statements one by one, with looks, pauses, restarts and lost indexes at random in between."""
    rng = random.Random(seed)
    writer = Writer(data / "opencode.db", schema)
    rig = OpenCodeRig(home, data)
    await rig.open()
    often = rng.choice([0.05, 0.3, 0.9])
    times = [BORN_MS]
    rig.wall = lambda: max(times)
    for sql, values in statements:
        writer.db.execute(sql, values)
        times += [value for value in values if isinstance(value, int) and value >= BORN_MS]
        if rng.random() < often:
            await rig.attend(rng.choice([0.0, 0.1, 0.1, 0.5, 2.5, 30.0]))
        if rng.random() < 0.02:
            await rig.restart()
        if rng.random() < 0.01:
            await rig.close()
            shutil.rmtree(rig.home.index)
            await rig.open()
    if rng.random() < 0.5:
        writer.close()
    await rig.settle()
    outcome = await rig.outcome()
    await rig.close()
    writer.close()
    return outcome


@RELEASES
@pytest.mark.parametrize("seed", range(6))
async def test_any_phase_of_looking_gives_the_same(tmp_path: Path, schema: str, seed: int) -> None:
    """Rows are inserted early and filled later; when they were looked at changes nothing in the end."""
    statements = told(tmp_path / "whole", schema)
    expected = await clean_read(tmp_path / "clean", tmp_path / "whole")
    found = await replayed(tmp_path / "home", tmp_path / "live", schema, statements, seed)
    for what, said in expected.items():
        assert found[what] == said


@RELEASES
async def test_a_look_after_every_row_gives_the_same(tmp_path: Path, schema: str) -> None:
    """The finest there is: a round after each transaction, with everything settled as soon as it can be."""
    statements = told(tmp_path / "whole", schema)
    expected = await clean_read(tmp_path / "clean", tmp_path / "whole")
    writer = Writer(tmp_path / "live" / "opencode.db", schema)
    rig = OpenCodeRig(tmp_path / "home", tmp_path / "live")
    await rig.open()
    for sql, values in statements:
        writer.db.execute(sql, values)
        await rig.attend(3.0)
    await rig.settle()
    assert await rig.outcome() == expected
    await rig.close()
    writer.close()
