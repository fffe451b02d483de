"""I1, I2, I3: chunks, crashes and restarts end where one clean read ends."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest

from tests.capture.rig import Rig
from tests.capture.trees import CASES, clean_read, comparable, drip, own_tree, trees, write
from tests.harness.claude_code.transcript import Transcript, text
from tests.make import examples


async def test_what_the_tree_comes_to(tmp_path: Path) -> None:
    """The test tree in one read has the expected owners, links, rails and labels."""
    outcome = await clean_read(tmp_path / "home", own_tree(tmp_path / "claude"))
    latest = outcome["ledger"]["latest"]
    turns = {key[2]: entry for key, entry in latest.items() if key[0] == "turn"}
    assert {m: t.session_id[:1] for m, t in turns.items()} == {
        **dict.fromkeys(["m1", "m2", "m3", "m4", "m5", "m6", "m7", "a1", "a2"], "1"),
        "f1": "2",
        **dict.fromkeys(["n1", "n2"], "3"),
    }
    assert {turns[m].subagent.parent_tool_use_id for m in ("a1", "a2")} == {"c3"}
    assert turns["m1"].usage.output == 40
    assert turns["m6"].parent == turns["m4"].parent == "m3"
    assert (turns["m5"].activity, turns["m2"].activity) == ("testing", "debugging")
    copies = {key[2] for key in latest if key[0] == "copy"}
    assert copies == {"m1", "m2", "m3", "m4", "m5"}
    assert [key[0] for key in latest if key[0] == "compaction"] == ["compaction"]


@pytest.mark.parametrize("which", CASES)
async def test_any_order_of_files_gives_the_same(tmp_path: Path, which: Path | None) -> None:
    """Shuffled files, one or several to a batch, newest first or not, end in the same ledger, owners included."""
    for projects in trees(tmp_path, which):
        expected = await clean_read(tmp_path / "clean", projects)
        for seed in range(examples(2)):
            rig = Rig(tmp_path / f"home{seed}", projects)
            await rig.open()
            files = random.Random(seed).sample(rig.files(), len(rig.files()))
            await rig.read(*files, pieces_at_once=1 + seed * 3)
            await rig.flush()
            assert comparable(await rig.outcome()) == comparable(expected)
            await rig.close()
            shutil.rmtree(rig.home.root)
        shutil.rmtree(tmp_path / "clean")


@pytest.mark.parametrize("which", CASES)
async def test_dripping_bytes_give_the_same(tmp_path: Path, which: Path | None) -> None:
    """Every log grows at random bytes, files in turns, with restarts in between and deleted indexes."""
    for projects in trees(tmp_path, which):
        expected = await clean_read(tmp_path / "clean", projects)
        whole = {path: path.read_bytes() for path in sorted(projects.rglob("*.jsonl"))}
        for seed in range(examples(1)):
            for path in whole:
                path.write_bytes(b"")
            outcome = await drip(tmp_path / f"home{seed}", projects, whole, random.Random(seed))
            assert comparable(outcome) == comparable(expected)
        shutil.rmtree(tmp_path / "clean")


async def test_a_cut_at_every_line_gives_the_same(tmp_path: Path) -> None:
    """Each file grows line by line, half a line at a time, with a restart after every one."""
    projects = own_tree(tmp_path / "claude")
    expected = await clean_read(tmp_path / "clean", projects)
    whole = {path: path.read_bytes() for path in sorted(projects.rglob("*.jsonl"))}
    for path in whole:
        path.write_bytes(b"")
    rig = Rig(tmp_path / "home", projects)
    await rig.open()
    for path, data in whole.items():
        for line in data.splitlines(keepends=True):
            for piece in (line[: len(line) // 2], line[len(line) // 2 :]):
                with path.open("ab") as file:
                    file.write(piece)
                await rig.read(path)
            await rig.restart()
    await rig.flush()
    assert comparable(await rig.outcome()) == comparable(expected)
    await rig.close()


async def test_a_home_may_have_any_name(tmp_path: Path) -> None:
    """Special characters of SQLite URIs are escaped in folder names."""
    projects = own_tree(tmp_path / "claude")
    expected = await clean_read(tmp_path / "plain", projects)
    assert comparable(await clean_read(tmp_path / "odd #?%41 name", projects)) == comparable(expected)


async def test_a_stale_copy_of_a_log_changes_nothing(tmp_path: Path) -> None:
    """An older copy of the same session in another folder adds nothing, in any order."""
    projects = own_tree(tmp_path / "claude")
    expected = comparable(await clean_read(tmp_path / "clean", projects))
    name = "11111111-0000-4000-8000-000000000001.jsonl"
    whole = (projects / "-home-dev-app" / name).read_bytes().splitlines(keepends=True)
    stale = projects / "-backup" / name
    stale.parent.mkdir()
    for cut in (5, 9, 14):
        stale.write_bytes(b"".join(whole[:cut]))
        for newest_first in (False, True):
            rig = Rig(tmp_path / f"home{cut}{newest_first}", projects)
            await rig.open()
            await rig.read(*sorted(rig.files(), reverse=newest_first))
            await rig.flush()
            found = comparable(await rig.outcome())
            await rig.close()
            assert found["ledger"] == expected["ledger"]
            assert found["content"] == expected["content"]


@pytest.mark.parametrize("restarted", [False, True])
async def test_a_copy_that_was_open_counts_after_a_restart(tmp_path: Path, restarted: bool) -> None:
    """I1: a fork whose last message is more complete than the original counts, even after a crash in between."""
    project = tmp_path / "projects" / "-p"
    project.mkdir(parents=True)
    one, two = Transcript(session="a" * 36), Transcript(session="b" * 36, forkedFrom={"sessionId": "a" * 36})
    for log, output in ((one, 1), (two, 50)):
        log.prompt("hello")
        log.says("m1", text("hi"), output=output, done=output == 50)
    one.says("m2", text("on"), output=5)
    write(project / f"{'a' * 36}.jsonl", one)
    write(project / f"{'b' * 36}.jsonl", two)
    rig = Rig(tmp_path / "home", tmp_path / "projects")
    await rig.open()
    await rig.read(*rig.files())
    if restarted:
        await rig.restart()
    await rig.flush()
    latest = (await rig.outcome())["ledger"]["latest"]
    await rig.close()
    turn = latest["turn", "claude-code", "m1"]
    assert (turn.session_id[0], turn.usage.output, turn.quality) == ("a", 50, "final")
    assert ("copy", "claude-code", "m1", "b" * 36, "main") in latest
