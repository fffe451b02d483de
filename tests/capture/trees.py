"""Trees of Claude Code logs, and reading them: in one clean read, or in pieces with restarts in between."""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.capture.rig import Rig
from tests.harness.claude_code.transcript import Transcript, call, text, thinking
from tests.harness.collect import client_versions
from tests.harness.collect import line as line_of

UNLISTED = "claude-haiku-5-5"


def own_tree(root: Path) -> Path:
    """A session with tools, a rewind, a sub-agent, a compaction; a fork of it that has a summary of its line.

    And a log whose lines have no ids.
    """
    project = root / "projects" / "-home-dev-app"
    project.mkdir(parents=True)
    main = Transcript(session="11111111-0000-4000-8000-000000000001")
    main.bare(type="queue-operation", operation="enqueue", timestamp=main.time(0), sessionId="x")
    main.prompt("fix the bug in the parser")
    main.says("m1", thinking("hm"), stop=None, done=False, output=1)
    main.calls("m1", call("c1", "Read", file_path="/home/dev/app/a.py"), output=40)
    main.result("c1", "line " * 400)
    main.calls("m2", call("c2", "Edit", file_path="/home/dev/app/a.py", old_string="a", new_string="b"), output=30)
    main.result("c2", "Error: no match", is_error=True)
    main.calls("m3", call("c3", "Task", prompt="look around", subagent_type="Explore", description="d"), output=50)
    branch = main.result("c3", "all is well", toolUseResult={"agentId": "a1b2c3d4e5f60718", "status": "completed"})
    main.says("m4", text("done " * 300), output=60, model=UNLISTED)
    main.bare(**total(since=0, cost=0.02, tokens=63))
    main.prompt("now add a test")
    main.calls("m5", call("c5", "Bash", command="pytest -q"), output=20)
    main.result("c5", "1 failed", is_error=True)
    main.prompt("try again, from before", parent=branch)
    main.says("m6", text("other way"), output=25, model=UNLISTED)
    main.bare(**total(since=0, cost=0.05, tokens=200))
    main.add("system", parent=None, subtype="compact_boundary", compactMetadata={"trigger": "auto", "preTokens": 900})
    main.prompt("the story so far", isCompactSummary=True, isVisibleInTranscriptOnly=True)
    main.says("m7", text("going on"), output=15, model=UNLISTED)
    main.bare(**total(since=17, cost=0.01, tokens=18))
    write(project / "11111111-0000-4000-8000-000000000001.jsonl", main)
    agent = Transcript(
        session="11111111-0000-4000-8000-000000000001", prefix="s", isSidechain=True, agentId="a1b2c3d4e5f60718"
    )
    agent.prompt("look around", parent=None)
    agent.calls("a1", call("k1", "Grep", pattern="x", path="/home/dev/app"), output=12)
    agent.result("k1", "a.py:1: x")
    agent.says("a2", text("all is well"), output=9, model=UNLISTED)
    below = project / "11111111-0000-4000-8000-000000000001" / "subagents"
    below.mkdir(parents=True)
    write(below / "agent-a1b2c3d4e5f60718.jsonl", agent)
    fork = "22222222-0000-4000-8000-000000000002"
    talk = [line for line in main.lines[1:13] if b"cost-state" not in line]
    copied = [line.replace(b"11111111-0000-4000-8000-000000000001", fork.encode()) for line in talk]
    begun = b'{"type":"queue-operation","operation":"enqueue","timestamp":"2026-11-16T01:00:00.000Z","sessionId":"f"}'
    own = Transcript(session=fork, prefix="f")
    own.last = branch
    own.prompt("in the fork", ts="2026-11-16T01:00:01.000Z")
    own.says("f1", text("forked"), output=70, ts="2026-11-16T01:00:02.000Z", model=UNLISTED)
    own.bare(**total(since=0, cost=0.09, tokens=136))
    summary = json.dumps({"type": "summary", "summary": "The parser was mended", "leafUuid": branch}).encode()
    (project / f"{fork}.jsonl").write_bytes(b"\n".join([begun, summary, *copied, *own.lines]) + b"\n")
    bare = Transcript(session="33333333-0000-4000-8000-000000000003", prefix="n")
    bare.prompt("fix the other bug")
    bare.calls("n1", call("d1", "Edit", file_path="/home/dev/app/b.py", old_string="a", new_string="b"), output=31)
    bare.result("d1", "done")
    bare.says("n2", text("mended"), output=11)
    bare.lines = [without_ids(line) for line in bare.lines]
    write(project / "33333333-0000-4000-8000-000000000003.jsonl", bare)
    return root / "projects"


def total(since: int, cost: float, tokens: int) -> dict[str, Any]:
    """A running total as the client writes it, of a model that no list has."""
    began = 1_794_787_200_000 + since * 1000  # as `Transcript.time`
    usage = {"inputTokens": tokens, "costUSD": cost, "webSearchRequests": 1}
    return {"type": "cost-state", "startTime": began, "modelUsage": {UNLISTED: usage}}


def without_ids(line: bytes) -> bytes:
    """A line as other tools write it: it does not say what it is called, nor what it follows."""
    fields = json.loads(line)
    return json.dumps({key: value for key, value in fields.items() if key not in ("uuid", "parentUuid")}).encode()


def write(path: Path, transcript: Transcript) -> None:
    path.write_bytes(b"\n".join(transcript.lines) + b"\n")


def trees(tmp_path: Path, which: Path | None) -> list[Path]:
    if which is None:
        return [own_tree(tmp_path / "claude")]
    found = []
    for projects in which.glob("*/projects"):
        target = tmp_path / projects.parent.name / "projects"
        shutil.copytree(projects, target, copy_function=shutil.copyfile)
        found.append(target)
    return found


CASES = [pytest.param(None, id="own"), *(pytest.param(v, id=v.name) for v in client_versions())]


async def clean_read(home: Path, projects: Path, make: type[Rig] = Rig) -> dict[str, Any]:
    rig = make(home, projects)
    await rig.open()
    await rig.read(*rig.files(), pieces_at_once=100)
    await rig.flush()
    outcome = await rig.outcome()
    await rig.close()
    return outcome


async def drip(
    home: Path, projects: Path, whole: dict[Path, bytes], rng: random.Random, make: type[Rig] = Rig
) -> dict[str, Any]:
    rig = make(home, projects)
    await rig.open()
    left = dict(whole)
    while left:
        path = rng.choice(list(left))
        cut = rng.choice([1, 200, 3000, 20_000, len(left[path])])
        with path.open("ab") as file:
            file.write(left[path][:cut])
        left[path] = left[path][cut:]
        if not left[path]:
            del left[path]
        if rng.random() < 0.8:
            await rig.read(path)
        if rng.random() < 0.1:
            await rig.flush()
        if rng.random() < 0.1:
            await rig.restart()
        if rng.random() < 0.02:
            await rig.close()
            shutil.rmtree(rig.home.index)
            await rig.open()
    await rig.read(*whole)
    await rig.flush()
    outcome = await rig.outcome()
    await rig.close()
    shutil.rmtree(home)
    return outcome


def comparable(outcome: dict[str, Any]) -> dict[str, Any]:
    """All of it; of a session's content the order between files does not matter, within a rail it does."""
    content = {session: by_rail(lines) for session, lines in outcome["content"].items()}
    # A summary from another file may arrive at any time, so its position among the messages is ignored.
    messages = [row[:2] + row[3:] if row[3].startswith("title:") else row for row in outcome["index"]["messages"]]
    return {
        "ledger": outcome["ledger"],
        "content": content,
        "index": outcome["index"] | {"messages": sorted(messages, key=repr)},
    }


def by_rail(lines: list[bytes]) -> dict[str, list[bytes]]:
    rails: dict[str, list[bytes]] = {}
    for line in lines:
        record = json.loads(line)
        where = "titles" if record["kind"] in ("title", "summary") else record["railId"]
        rails.setdefault(where, []).append(line)
    rails["titles"] = sorted(rails.get("titles", []))
    return rails


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


def talk(log: Transcript, *messages: str) -> Transcript:
    for message in messages:
        log.prompt("go on")
        log.says(message, done=False)
    return log


def forked(session: str, hours: int, past: Transcript) -> Transcript:
    """A fork as it is made at a terminal: nothing that has a time precedes what it repeats."""
    log = begun(session, session, hours, past)
    log.lines[0] = line_of(type="permission-mode", permissionMode="default", sessionId=session)
    return log
