"""Format page, rules 5 and 9: calls billed beside a response come from its best line, in any order of reading."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.capture.rig import Rig
from tests.capture.trees import clean_read, comparable
from tests.folded import Folded
from tests.harness.claude_code.transcript import Transcript, text

_BESIDE = {"iterations": [{"type": "compaction", "input_tokens": 400, "output_tokens": 30}]}


@pytest.mark.parametrize("settled", [False, True])
@pytest.mark.parametrize("comes_back", [False, True])
async def test_what_the_best_line_does_not_have_is_taken_back(
    tmp_path: Path, *, settled: bool, comes_back: bool
) -> None:
    """I2: an iteration of a line that a better one replaced is no turn, however much was read or settled in between."""
    projects = tmp_path / "claude" / "projects"
    path = projects / "-p" / "5e55.jsonl"
    path.parent.mkdir(parents=True)
    log = Transcript(session="5e55")
    log.prompt("hello")
    log.says("m1", text("one"), output=5, usage=_BESIDE)
    log.says("m1", text("two"), output=9)
    if comes_back:
        log.says("m1", text("three"), output=12, usage=_BESIDE)
    rig = Rig(tmp_path / "home", projects)
    await rig.open()
    for line in log.lines:
        with path.open("ab") as file:
            file.write(line + b"\n")
        await rig.read(path)
        if settled:
            await rig.flush()
    await rig.flush()
    turns = Folded(rig.pipeline.journal.read()).turns
    assert sorted(key[2] for key in turns) == (["m1", "m1:iter:0"] if comes_back else ["m1"])
    expected = comparable(await clean_read(tmp_path / "clean", projects))
    assert comparable(await rig.outcome()) == expected
    await rig.close()
    shutil.rmtree(rig.home.index)
    await rig.open()
    await rig.read(path)
    await rig.flush()
    assert comparable(await rig.outcome()) == expected
    await rig.close()
