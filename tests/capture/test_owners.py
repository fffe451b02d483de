"""Owner and project of a turn are the same in any order of files."""

from __future__ import annotations

import itertools
import json
import random
import shutil
from pathlib import Path
from typing import Any

import pytest

from burnd.recording import turn_builder
from burnd.recording.turn_builder import shared_messages
from burnd.records import Compaction, Event, Turn
from tests.capture.rig import Rig
from tests.capture.trees import begun, clean_read, drip, forked, talk, write
from tests.harness.claude_code.transcript import Transcript, call, text
from tests.harness.collect import cases, client_versions, lines_of
from tests.harness.collect import line as line_of
from tests.make import seeds

_MOST_ORDERS = 3
Files = dict[str, Transcript]


def turns(outcome: dict[str, Any]) -> dict[str, Turn]:
    return {entry.message_id: entry for entry in outcome["ledger"]["latest"].values() if isinstance(entry, Turn)}


async def every_way(tmp_path: Path, files: Files) -> list[dict[str, Any]]:
    """Records of these files in several orders, one by one or in one batch, some with a lost index between."""
    projects = tmp_path / "projects"
    for name, log in files.items():
        path = projects / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"".join(line + b"\n" for line in log.lines))
    found = []
    orders = list(itertools.permutations(files))
    some = [orders[0], *random.Random(1).sample(orders[1:], min(len(orders) - 1, _MOST_ORDERS))]
    for n, order in enumerate(some):
        rig = Rig(tmp_path / "home", projects)
        await rig.open()
        await rig.read(projects / order[0])
        if n % 3 == 0:
            await rig.flush()
            await rig.close()
            shutil.rmtree(rig.home.index)
            await rig.open()
        await rig.read(*(projects / name for name in order[1:]), pieces_at_once=1 + 99 * (n % 2))
        await rig.read(*(projects / name for name in order))
        await rig.flush()
        found.append(await rig.outcome())
        await rig.close()
        shutil.rmtree(rig.home.root)
    return found


def assert_all_alike(first: dict[str, Any], others: list[dict[str, Any]]) -> None:
    for other in others:
        assert other["ledger"] == first["ledger"]
        for table, rows in first["index"].items():
            assert (table, other["index"][table]) == (table, rows)


def agent(cwd: str, name: str, message: str) -> Transcript:
    log = Transcript(session="S", prefix=name, isSidechain=True, agentId=name, cwd=cwd)
    log.prompt("do it", parent=None)
    log.says(message)
    return log


def asked(log: Transcript, message: str, tokens: int, in_all: int) -> None:
    """One more answer, and the client's total for the session."""
    log.prompt("go on")
    log.says(message, usage={"input_tokens": tokens, "output_tokens": 0})
    log.bare(type="cost-state", modelUsage={"claude-opus-5-5": {"inputTokens": in_all}})


async def test_of_two_calls_that_name_an_agent_the_first_started_it(tmp_path: Path) -> None:
    """An agent that was gone on with is named by two calls, in two logs of its session: it is the first one's."""
    session = "11111111-0000-4000-8000-000000000001"
    files: Files = {}
    for name, hour in (("-a", 1), ("-b", 0)):
        log = Transcript(session=session, prefix=name)
        log.prompt("look around", ts=f"2026-11-16T0{hour}:00:00.000Z")
        kind = "Explore" if hour else "Plan"
        asked = call(f"call{name}", "Task", prompt="look", subagent_type=kind, description="d")
        log.calls(f"m{name}", asked, output=9, ts=f"2026-11-16T0{hour}:00:01.000Z")
        said = {"agentId": "abc123", "status": "completed"}
        log.result(f"call{name}", "all is well", toolUseResult=said, ts=f"2026-11-16T0{hour}:00:09.000Z")
        files[f"{name}/{session}.jsonl"] = log
    agent = Transcript(session=session, prefix="s", isSidechain=True, agentId="abc123")
    agent.prompt("look", parent=None, ts="2026-11-16T00:00:02.000Z")
    agent.says("a1", text("all is well"), output=4, ts="2026-11-16T00:00:03.000Z")
    files[f"-a/{session}/subagents/agent-abc123.jsonl"] = agent
    first, *others = await every_way(tmp_path, files)
    found = turns(first)["a1"].subagent
    assert found is not None
    assert (found.parent_tool_use_id, found.type) == ("call-b", "Plan")
    assert all(other["ledger"] == first["ledger"] for other in others)


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
    first, *others = await every_way(tmp_path, files)
    assert {row[0]: row[11] for row in first["index"]["unlogged"]} == {"P": 500, "F": 7, "B": 20, "G": 11}
    for other in others:
        assert other["index"]["unlogged"] == first["index"]["unlogged"]


async def test_a_subagent_works_for_the_project_of_its_session(tmp_path: Path) -> None:
    """Its folder may differ by then; the order of files does not matter."""
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
    assert_all_alike(first, others)


def eventful() -> Transcript:
    """A session that was compacted, after a request that was tried again."""
    log = Transcript("2.1.90", session="S")
    log.prompt("go")
    log.add("system", subtype="api_error", error={"status": 529})
    log.says("m1")
    log.add("system", parent=None, subtype="compact_boundary", compactMetadata={"trigger": "auto"})
    log.prompt("so far", isCompactSummary=True)
    log.says("m2")
    return log


def happened(outcome: dict[str, Any]) -> set[tuple[str, str, str]]:
    told = outcome["ledger"]["latest"].items()
    return {(key[0], e.session_id, e.rail_id) for key, e in told if isinstance(e, Event | Compaction)}


async def test_what_others_repeat_happened_in_the_original(tmp_path: Path) -> None:
    """Forks of any name, and the agent of a compaction, which contains all of it, in any order. If the original is
    gone, a fork supplies the turns."""
    original = eventful()
    fork = begun("F", "f", 1, original)
    branch = begun("B", "b", 2, original, forkedFrom={"sessionId": "S", "messageUuid": "x"})
    del branch.lines[0]
    replay = Transcript(session="S", prefix="a", isSidechain=True, agentId="acompact-1")
    replay.lines = [line_of(**(json.loads(line) | {"isSidechain": True})) for line in original.lines]
    for log, message in ((fork, "f1"), (branch, "b1"), (replay, "a1")):
        log.prompt("on")
        log.says(message)
    files = {"-p/F.jsonl": fork, "-p/B.jsonl": branch}
    all_files = {"-p/S.jsonl": original, "-p/S/subagents/agent-acompact-1.jsonl": replay, **files}
    first, *others = await every_way(tmp_path / "all", all_files)
    assert happened(first) == {("event", "S", "main"), ("compaction", "S", "main")}
    assert_all_alike(first, others)
    first, *others = await every_way(tmp_path / "forks", files)
    assert {what for what, _, _ in happened(first)} == {"event", "compaction"}
    assert_all_alike(first, others)


async def test_when_a_session_began_does_not_depend_on_whose_its_past_was_taken_for(tmp_path: Path) -> None:
    """A resumed session of an old client repeats its past with the time of resuming."""
    original = talk(Transcript("1.0.100", session="z", prefix="z"), "m1", "m2")
    resumed = Transcript("1.0.100", session="a", prefix="a")
    resumed.begin(3600)
    for line in original.lines:
        one = json.loads(line) | {"sessionId": "a", "timestamp": resumed.time(3600)}
        resumed.lines.append(line_of(**{key: value for key, value in one.items() if key != "requestId"}))
    talk(resumed, "m3")
    agent_log = Transcript(session="z", prefix="c", isSidechain=True, agentId="acompact-1")
    agent_log.lines = [line_of(**(json.loads(line) | {"isSidechain": True})) for line in original.lines]
    files = {"-p/a.jsonl": resumed, "-p/z/subagents/agent-acompact-1.jsonl": agent_log, "-p/z.jsonl": original}
    first, *others = await every_way(tmp_path, files)
    begun_at = {row[0]: row[7] for row in first["index"]["sessions"]}
    assert begun_at["a"] - begun_at["z"] == 3_600_000
    assert_all_alike(first, others)


async def test_agents_whose_session_is_gone_keep_their_own_folders(tmp_path: Path) -> None:
    """The session under which they are listed does not depend on the order of files."""
    files = {
        "-p/S/subagents/agent-A.jsonl": agent("/home/dev/app/sub", "A", "a1"),
        "-p/S/subagents/agent-B.jsonl": agent("/home/dev/app", "B", "b1"),
    }
    first, *others = await every_way(tmp_path, files)
    assert {name: turn.project for name, turn in turns(first).items()} == {
        "a1": "/home/dev/app/sub",
        "b1": "/home/dev/app",
    }
    assert_all_alike(first, others)


async def owners_in_every_way(tmp_path: Path, **logs: Transcript) -> dict[str, str]:
    files = {f"-p/{session}.jsonl": log for session, log in logs.items()}
    first, *others = await every_way(tmp_path, files)
    assert_all_alike(first, others)
    return {name: turn.session_id for name, turn in turns(first).items()}


async def test_a_fork_made_at_a_terminal_does_not_own_its_past(tmp_path: Path) -> None:
    """Neither marker, time nor name reveals the order, only that the fork has continued."""
    original = talk(Transcript("2.1.90", session="z", prefix="z"), "m1", "m2")
    fork = talk(forked("a", 1, original), "m3")
    assert await owners_in_every_way(tmp_path, z=original, a=fork) == {"m1": "z", "m2": "z", "m3": "a"}


async def test_a_fork_of_a_fork_owns_only_what_it_made(tmp_path: Path) -> None:
    original = talk(Transcript("2.1.90", session="z", prefix="z"), "m1", "m2")
    fork = talk(forked("m", 1, original), "m3")
    fork_of_fork = talk(forked("a", 2, fork), "m4")
    owners = await owners_in_every_way(tmp_path, z=original, m=fork, a=fork_of_fork)
    assert owners == {"m1": "z", "m2": "z", "m3": "m", "m4": "a"}


async def test_a_session_that_goes_on_after_its_fork_still_owns_its_past(tmp_path: Path) -> None:
    original = talk(Transcript("2.1.90", session="z", prefix="z"), "m1")
    fork = talk(forked("a", 1, original), "m2")
    original.begin(7200)
    talk(original, "m3", "m4")
    later = talk(forked("b", 3, original), "m5")
    owners = await owners_in_every_way(tmp_path, z=original, a=fork, b=later)
    assert owners == {"m1": "z", "m2": "a", "m3": "z", "m4": "z", "m5": "b"}


async def test_a_rewound_attempt_tells_who_was_there_first(tmp_path: Path) -> None:
    """A fork does not repeat abandoned attempts, so a log that has one is the original."""
    original = talk(Transcript("2.1.90", session="z", prefix="z"), "m1")
    kept, last = list(original.lines), original.last
    talk(original, "given-up")
    original.last, before = last, len(original.lines)
    talk(original, "m2")
    fork = forked("a", 1, original)
    fork.lines[1:] = [line.replace(b'"sessionId":"z"', b'"sessionId":"a"') for line in kept + original.lines[before:]]
    talk(fork, "m3")
    owners = await owners_in_every_way(tmp_path, z=original, a=fork)
    assert owners == {"m1": "z", "given-up": "z", "m2": "z", "m3": "a"}


async def test_a_file_whose_lines_name_another_session_repeats_it(tmp_path: Path) -> None:
    """A fork made in the desktop app has the old name in copied lines; so has a log saved under another name."""
    original = talk(Transcript("2.1.90", session="z", prefix="z"), "m1", "m2")
    fork = Transcript("2.1.90", session="a", prefix="a")
    fork.begin(60)
    fork.lines, fork.last = list(original.lines), original.last
    talk(fork, "m3")
    original.begin(30)  # before the fork: the point of divergence would point to the wrong one
    talk(original, "m4")
    saved = Transcript()
    saved.lines = list(original.lines)
    owners = await owners_in_every_way(tmp_path, z=original, a=fork, **{"a-copy-of-z": saved})
    assert owners == {"m1": "z", "m2": "z", "m3": "a", "m4": "z"}


async def test_a_session_in_the_background_does_not_own_what_it_took_over(tmp_path: Path) -> None:
    """Its lines mark it as a background session, whether it continued or not, and whichever continued first."""
    original = talk(Transcript("2.1.250", session="z", prefix="z"), "m1", "m2")
    taken = [line.replace(b'"sessionId":"z"', b'"sessionId":"a","sessionKind":"bg"') for line in original.lines]
    fork = Transcript("2.1.250", session="a", prefix="a", sessionKind="bg")
    fork.begin(60)
    fork.lines, fork.last = taken, original.last
    talk(fork, "m3")
    original.begin(30)  # before the fork: the point of divergence would point to the wrong one
    talk(original, "m4")
    still = Transcript()
    still.lines = [line.replace(b'"sessionId":"a"', b'"sessionId":"b"') for line in taken]
    owners = await owners_in_every_way(tmp_path, z=original, a=fork, b=still)
    assert owners == {"m1": "z", "m2": "z", "m3": "a", "m4": "z"}


def fork_samples() -> list[Path]:
    return [path for version in client_versions() for path in version.glob("*/projects/-home-dev-fork")]


@pytest.mark.parametrize("sample", cases(fork_samples()), ids=lambda path: path.parts[-4])
async def test_a_real_fork_is_known_without_the_lines_that_tell_when_it_began(tmp_path: Path, sample: Path) -> None:
    """As it would be at a terminal, and by an older client: the original of these samples went on after its fork."""
    folder = tmp_path / "projects" / "-p"
    folder.mkdir(parents=True)
    swapped = {b"00000000008": b"zzzzzzzzzz8"}  # so that the names would point to the wrong one
    for path in sample.glob("*.jsonl"):
        lines = [line for line in lines_of(path) if not json.loads(line)["type"].startswith(("queue-", "api-req"))]
        data = b"".join(line + b"\n" for line in lines)
        name = path.name.encode()
        for old, new in swapped.items():
            data, name = data.replace(old, new), name.replace(old, new)
        (folder / name.decode()).write_bytes(data)
    outcome = await clean_read(tmp_path / "home", tmp_path / "projects")
    shared = {key[2] for key in outcome["ledger"]["latest"] if key[0] == "copy"}
    assert {turns(outcome)[message].session_id[-1] for message in shared} == {"8"}


def family(rng: random.Random) -> dict[str, Transcript]:
    """Sessions that go on and are forked at random; every message is named for the session that made it."""
    names = rng.sample("abcdefgh", 8)
    logs = {names[0]: talk(Transcript("2.1.90", session=names[0], prefix=names[0]), f"{names[0]}0")}
    for hour in range(1, 12):
        name = rng.choice(list(logs))
        if rng.random() < 0.5 and len(logs) < 5:
            fork = next(other for other in names if other not in logs)
            logs[fork], name = forked(fork, hour, logs[name]), fork
        logs[name].begin(hour * 3600 + 60)
        talk(logs[name], *(f"{name}{hour}{n}" for n in range(rng.randrange(1, 3))))
    return logs


@seeds(2, 20)
async def test_in_a_family_of_forks_everyone_owns_what_it_made(tmp_path: Path, seed: int) -> None:
    """Logs grow with restarts and lost indexes, in any order of reading."""
    projects = tmp_path / "projects" / "-p"
    projects.mkdir(parents=True)
    rng = random.Random(seed)
    for name, log in family(rng).items():
        write(projects / f"{name}.jsonl", log)
    whole = {path: path.read_bytes() for path in sorted(projects.glob("*.jsonl"))}
    clean = await clean_read(tmp_path / "clean", tmp_path / "projects")
    assert [name for name, turn in turns(clean).items() if turn.session_id != name[0]] == []
    for path in whole:
        path.write_bytes(b"")
    dripped = await drip(tmp_path / "home", tmp_path / "projects", whole, rng)
    assert_all_alike(clean, [dripped])


async def test_only_where_sessions_part_is_all_of_them_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every further turn of a fork, and of what it was made from, costs the same however long they are."""
    original = talk(Transcript("2.1.90", session="z", prefix="z"), "m1", "m2")
    fork = talk(forked("a", 1, original), "m3")
    original.begin(7200)
    talk(original, "m4")
    looks: list[frozenset[str]] = []

    def counted(db: Any, sessions: frozenset[str], known: Any) -> Any:
        looks.append(sessions)
        return shared_messages(db, sessions, known)

    monkeypatch.setattr(turn_builder, "shared_messages", counted)
    rig = Rig(tmp_path / "home", tmp_path / "projects")
    await rig.open()
    paths = {log: rig.projects / "-p" / f"{name}.jsonl" for name, log in (("z", original), ("a", fork))}
    rig.projects.joinpath("-p").mkdir(parents=True)
    for n in range(4):
        for log, path in paths.items():
            write(path, log)
            await rig.read(path)
            await rig.flush()
            talk(log, f"{path.stem}{n}")
        if n == 0:
            assert looks
            looks.clear()
    assert looks == []
    await rig.close()


async def test_a_lost_index_changes_no_label(tmp_path: Path) -> None:
    """I3: a label made by the rules of another release stays, though the log is read again by the rules of today."""
    log = Transcript()
    log.add("user", message={"role": "user", "content": "go"})
    log.calls("m1", call("c1", "Bash", command="docker exec app pytest"))
    log.result("c1", "2 passed")
    log.says("m2", text("done"))
    projects = tmp_path / "projects" / "p"
    projects.mkdir(parents=True)
    (projects / "s.jsonl").write_bytes(b"".join(line + b"\n" for line in log.lines))
    rig = Rig(tmp_path / "home", tmp_path / "projects")
    await rig.open()
    await rig.read(projects / "s.jsonl")
    await rig.flush()
    first = turns(await rig.outcome())["m1"]
    await rig.close()
    assert first.activity == "testing"
    ledger = rig.home.ledger
    older = (
        ledger.read_text().replace('"testing"', '"exploration"').replace('"target":"pytest"', '"target":"docker exec"')
    )
    ledger.write_text(older)
    shutil.rmtree(rig.home.index)
    await rig.open()
    await rig.read(projects / "s.jsonl")
    await rig.flush()
    turn = turns(await rig.outcome())["m1"]
    await rig.close()
    assert (turn.activity, turn.tool_calls[0].target) == ("exploration", "docker exec")
    assert ledger.read_text() == older
