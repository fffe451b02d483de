"""I1, I2, I3: polls at any moments, with crashes in between, end where one clean read ends."""

from __future__ import annotations

import random
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from burnd.records import Turn
from tests.capture.opencode_rig import OpenCodeRig, clean_read
from tests.harness.opencode.data import BORN_MS, SCHEMAS, Statement, Writer, text, tokens, tool
from tests.harness.opencode.stories import write_all_stories
from tests.make import seeds

RELEASES = pytest.mark.parametrize("schema", sorted(SCHEMAS))


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
@seeds(1, 30)
async def test_any_phase_of_looking_gives_the_same(tmp_path: Path, schema: str, seed: int) -> None:
    """Rows are inserted early and filled later; when they were looked at changes nothing in the end."""
    statements = write_all_stories(tmp_path / "whole", schema)
    expected = await clean_read(tmp_path / "clean", tmp_path / "whole")
    found = await replayed(tmp_path / "home", tmp_path / "live", schema, statements, seed)
    for what, said in expected.items():
        assert found[what] == said


@seeds(1, 40)
async def test_deletions_in_between_change_nothing_for_what_stays(tmp_path: Path, seed: int) -> None:
    """Reverts and deleted messages at random moments: the remaining rows are recorded as by one clean read. Turn
    numbers may differ, since deleted rows count: none is used twice, and their order is that of the rows."""
    rng = random.Random(seed)
    writer = Writer(tmp_path / "live" / "opencode.db")
    rig = OpenCodeRig(tmp_path / "home", tmp_path / "live")
    rig.wall = lambda: writer.clock
    await rig.open()
    writer.session("ses_x")
    there: list[str] = []
    spent: dict[str, int] = {}
    for n in range(25):
        writer.user(f"u{n}", "ses_x", f"question {n}")
        for step in range(rng.randrange(1, 4)):
            name, used = f"a{n}-{step}", rng.randrange(1, 1000)
            call = tool(
                f"c{name}", rng.choice(["edit", "bash", "read"]), {"command": "ls", "filePath": "/x"}, "y" * used
            )
            writer.step(name, "ses_x", f"u{n}", text(name), call, tokens=tokens(input=used))
            there.append(name)
            if rng.random() < 0.5:
                await rig.attend(rng.choice([0.1, 3.0]))
                spent |= {turn: writer_input(writer, turn) for turn in there}
        if rng.random() < 0.3:
            gone = rng.sample(there, 1) if rng.random() < 0.5 else there[-rng.randrange(1, 6) :]
            writer.delete(*gone)
            writer.bump("ses_x")
            there = [name for name in there if name not in gone]
        if rng.random() < 0.1:
            await rig.restart()
    await rig.settle()
    writer.close()
    expected = (await clean_read(tmp_path / "clean", tmp_path / "live"))["ledger"]["latest"]
    found = (await rig.outcome())["ledger"]["latest"]
    assert unnumbered({key: found.get(key) for key in expected}) == unnumbered(expected)
    assert in_order({key: found[key] for key in expected}) == in_order(expected)
    assert len({turn.turn_index for turn in rig.turns().values()}) == len(rig.turns())
    assert spent.items() <= {name: turn.usage.input for name, turn in rig.turns().items()}.items()
    await rig.close()


def unnumbered(latest: dict[Any, Any]) -> dict[Any, Any]:
    return {key: replace(entry, turn_index=0) if isinstance(entry, Turn) else entry for key, entry in latest.items()}


def in_order(latest: dict[Any, Any]) -> list[str]:
    turns = sorted((entry for entry in latest.values() if isinstance(entry, Turn)), key=lambda turn: turn.turn_index)
    return [turn.message_id for turn in turns]


def writer_input(writer: Writer, message_id: str) -> int:
    sql = "SELECT json_extract(data, '$.tokens.input') FROM message WHERE id = ?"
    return int(writer.db.execute(sql, (message_id,)).fetchone()[0])


@RELEASES
async def test_a_look_after_every_row_gives_the_same(tmp_path: Path, schema: str) -> None:
    """The finest there is: a round after each transaction, with everything settled as soon as it can be."""
    statements = write_all_stories(tmp_path / "whole", schema)
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
