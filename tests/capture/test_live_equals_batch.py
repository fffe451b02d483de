"""I1, I2, I3: however bytes arrive and whatever dies in between, the same is recorded as by one clean read."""

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
from tests.make import examples

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


async def test_what_the_tree_comes_to(tmp_path: Path) -> None:
    """The own tree, read once: owners, links, rails and labels are what a person would say they are."""
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
    """Characters that mean something in a database's address mean nothing in a folder's name."""
    projects = own_tree(tmp_path / "claude")
    expected = await clean_read(tmp_path / "plain", projects)
    assert comparable(await clean_read(tmp_path / "odd #?%41 name", projects)) == comparable(expected)


async def test_a_stale_copy_of_a_log_changes_nothing(tmp_path: Path) -> None:
    """An older state of the same session in another folder says nothing new, whichever is read first."""
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
    """I1: a fork whose last message knows more than the original is heard, even if the daemon died meanwhile."""
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
    # A summary from another file comes when it comes, so where it stands among the messages says nothing.
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
