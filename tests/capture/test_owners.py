"""Whose a turn is, and of which project, is the same in whatever order files are read."""

from __future__ import annotations

import itertools
import json
import random
import shutil
from pathlib import Path
from typing import Any

from burnd.records import Turn
from tests.capture.rig import Rig
from tests.readers.collect import line as line_of
from tests.readers.transcript import Transcript, call

_MOST_ORDERS = 9
Files = dict[str, Transcript]


def turns(outcome: dict[str, Any]) -> dict[str, Turn]:
    return {entry.message_id: entry for entry in outcome["ledger"]["latest"].values() if isinstance(entry, Turn)}


async def every_way(tmp_path: Path, files: Files, *, at_once: tuple[int, ...] = (1, 100)) -> list[dict[str, Any]]:
    """What is recorded of these files in many orders, one by one and all in one batch, with a lost index in between."""
    projects = tmp_path / "projects"
    for name, log in files.items():
        path = projects / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"".join(line + b"\n" for line in log.lines))
    found = []
    orders = list(itertools.permutations(files))
    some = [orders[0], *random.Random(1).sample(orders[1:], min(len(orders) - 1, _MOST_ORDERS))]
    for n, (order, pieces) in enumerate(itertools.product(some, at_once)):
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


def begun(session: str, prefix: str, hours: int, past: Transcript | None = None, **mark: Any) -> Transcript:
    """A log that begins so many hours after the first, with another's past before its own; `mark` is on that."""
    log = Transcript(session=session, prefix=prefix)
    log.begin(hours * 3600)
    log.bare(type="queue-operation", operation="enqueue", timestamp=log.time(hours * 3600), sessionId=session)
    if past is not None:
        copied = (json.loads(line) for line in past.lines)
        log.lines += [line_of(**(one | {"sessionId": session} | mark)) for one in copied if "uuid" in one]
        log.last = past.last
    return log


def asked(log: Transcript, message: str, tokens: int, in_all: int) -> None:
    """One more answer, and what the client says that the session has used in all."""
    log.prompt("go on")
    log.says(message, usage={"input_tokens": tokens, "output_tokens": 0})
    log.bare(type="cost-state", modelUsage={"claude-opus-5-5": {"inputTokens": in_all}})


async def test_what_forks_used_beyond_their_logs_counts_once(tmp_path: Path) -> None:
    """The client's total of a fork begins with its parent's, overhead included; that of a branch begins at nothing."""
    parent = begun("P", "p", 0)
    asked(parent, "m1", 100, 600)
    fork = begun("F", "f", 1, parent)
    asked(fork, "m2", 50, 657)
    branch = begun("B", "b", 2, parent, forkedFrom={"sessionId": "P", "messageUuid": "x"})
    asked(branch, "m3", 50, 70)
    fork_of_fork = begun("G", "g", 3, fork)
    asked(fork_of_fork, "m4", 10, 678)
    files = {f"-p/{name}.jsonl": log for name, log in zip("PFBG", (parent, fork, branch, fork_of_fork), strict=True)}
    first, *others = await every_way(tmp_path, files, at_once=(1,))
    assert {row[0]: row[11] for row in first["index"]["unlogged"]} == {"P": 500, "F": 7, "B": 20, "G": 11}
    for other in others:
        assert other["index"]["unlogged"] == first["index"]["unlogged"]


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
