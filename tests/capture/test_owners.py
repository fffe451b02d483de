"""Whose a turn is, and of which project, is the same in whatever order files are read."""

from __future__ import annotations

import itertools
import shutil
from pathlib import Path
from typing import Any

from burnd.records import Turn
from tests.capture.rig import Rig
from tests.readers.transcript import Transcript, call

Files = dict[str, Transcript]


def turns(outcome: dict[str, Any]) -> dict[str, Turn]:
    return {entry.message_id: entry for entry in outcome["ledger"]["latest"].values() if isinstance(entry, Turn)}


async def every_way(tmp_path: Path, files: Files, *, at_once: tuple[int, ...] = (1, 100)) -> list[dict[str, Any]]:
    """What is recorded of these files in each order, one by one and all in one batch, with a lost index in between."""
    projects = tmp_path / "projects"
    for name, log in files.items():
        path = projects / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"".join(line + b"\n" for line in log.lines))
    found = []
    for n, (order, pieces) in enumerate(itertools.product(itertools.permutations(files), at_once)):
        rig = Rig(tmp_path / "home", projects)
        await rig.open()
        await rig.read(projects / order[0])
        if n % 3 == 0:
            await rig.flush()
            await rig.close()
            shutil.rmtree(rig.home.index)
            await rig.open()
        await rig.read(*(projects / name for name in order[1:]), pieces_at_once=pieces)
        await rig.read(*(projects / name for name in order))
        await rig.flush()
        found.append(await rig.outcome())
        await rig.close()
        shutil.rmtree(rig.home.root)
    return found


def agent(cwd: str, name: str, message: str) -> Transcript:
    log = Transcript(session="S", prefix=name, isSidechain=True, agentId=name, cwd=cwd)
    log.prompt("do it", parent=None)
    log.says(message)
    return log


async def test_a_subagent_works_for_the_project_of_its_session(tmp_path: Path) -> None:
    """Its own folder may be another by then; which of the files is read first does not matter."""
    main = Transcript(session="S")
    main.prompt("go")
    main.calls("m1", call("T1", "Agent", subagent_type="x", prompt="do it"))
    files = {
        "-p/S.jsonl": main,
        "-p/S/subagents/agent-A.jsonl": agent("/home/dev/app/sub/dir", "A", "a1"),
        "-p/agent-B.jsonl": agent("/elsewhere", "B", "b1"),
    }
    first, *others = await every_way(tmp_path, files)
    assert {turn.project for turn in turns(first).values()} == {"/home/dev/app"}
    assert [row[3] for row in first["index"]["sessions"]] == ["/home/dev/app"]
    for other in others:
        assert (other["ledger"], other["index"]) == (first["ledger"], first["index"])


async def test_agents_whose_session_is_gone_keep_their_own_folders(tmp_path: Path) -> None:
    """Which of them the session is listed by does not depend on which is read first."""
    files = {
        "-p/S/subagents/agent-A.jsonl": agent("/home/dev/app/sub", "A", "a1"),
        "-p/S/subagents/agent-B.jsonl": agent("/home/dev/app", "B", "b1"),
    }
    first, *others = await every_way(tmp_path, files)
    assert {name: turn.project for name, turn in turns(first).items()} == {
        "a1": "/home/dev/app/sub",
        "b1": "/home/dev/app",
    }
    for other in others:
        assert (other["ledger"], other["index"]) == (first["ledger"], first["index"])
