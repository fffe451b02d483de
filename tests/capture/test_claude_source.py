"""Claude Code as a running source: what is written is seen, settled, and never lost."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest

from burnd.errors import NoSpace
from burnd.harness.claude_code.source import ClaudeLogs
from burnd.logfiles import follower
from burnd.logfiles.finder import Positions
from burnd.logfiles.log_reader import Log, Logs
from burnd.logfiles.tail import Chunk, OpenFiles
from burnd.logfiles.watcher import Watch
from burnd.recording import pipeline as recording_pipeline
from burnd.recording.candidate import Candidate
from burnd.recording.crash_guard import Acknowledger
from burnd.records import Turn
from burnd.records.codec import Entry
from burnd.records.times import wall_ms
from tests.capture.claude_folder import SESSION, Watched, has_turn, until, watching
from tests.conftest import Opened
from tests.harness.claude_code.transcript import Transcript, call, text
from tests.make import read_content


async def test_an_open_turn_is_seen_and_settles(opened: Opened, tmp_path: Path) -> None:
    """A turn shows as open at once; the next message of its rail settles it; a late result revises it."""
    async with watching(opened, tmp_path / "projects") as watched:
        log = Transcript(session=SESSION)
        log.prompt("hello")
        log.calls("m1", call("c1", "Bash", command="ls"), output=7)
        watched.append(log)
        await until(lambda: has_turn(watched, "m1", open=1, output=7))
        assert watched.ledger() == {}
        log.result("c1", "a.py")
        log.says("m2", text("fine"), output=9)
        watched.append(log)
        await until(lambda: has_turn(watched, "m1", open=0, rev=1))
        await until(lambda: has_turn(watched, "m2", open=1))
        assert list(watched.ledger()) == ["m1"]
        log.result("c1", "boom", is_error=True)
        watched.append(log)
        await until(lambda: has_turn(watched, "m1", rev=2))
        assert watched.ledger()["m1"].tool_calls[0].is_error


async def test_a_quiet_turn_settles(opened: Opened, tmp_path: Path) -> None:
    """Ten seconds of quiet settle an answered turn, ten minutes one whose call was never answered."""
    async with watching(opened, tmp_path / "projects") as watched:
        log = Transcript(session=SESSION)
        log.prompt("hello")
        log.says("m1", text("hi"), output=7)
        watched.append(log)
        asking = Transcript(session=SESSION[:-1] + "4", prefix="q")
        asking.prompt("go")
        asking.calls("q1", call("c1", "Bash", command="sleep 9"), output=5)
        watched.append(asking, watched.path(SESSION[:-1] + "4"))
        await until(lambda: has_turn(watched, "m1", open=1))
        await until(lambda: has_turn(watched, "q1", open=1))
        watched.ahead += follower.QUIET_S + 1
        await until(lambda: has_turn(watched, "m1", open=0, rev=1))
        assert await has_turn(watched, "q1", open=1, rev=0)
        watched.ahead += follower.IDLE_S
        await until(lambda: has_turn(watched, "q1", open=0, rev=1))


async def test_flush_leaves_nothing_open(opened: Opened, tmp_path: Path) -> None:
    """After flush, everything readable is in the ledger; a flush may be for a single session."""
    async with watching(opened, tmp_path / "projects") as watched:
        for n in range(40):
            session = f"44444444-0000-4000-8000-{n:012d}"
            log = Transcript(session=session, prefix=f"f{n}-")
            log.prompt("hello")
            log.says(f"m{n}", text("hi"), output=n + 1)
            watched.append(log, watched.path(session))
        await watched.source.flush("44444444-0000-4000-8000-000000000007")
        assert "m7" in watched.ledger()
        await watched.source.flush()
        assert set(watched.ledger()) == {f"m{n}" for n in range(40)}
        assert not any(turn["open"] for turn in (await watched.turns()).values())


async def test_a_flush_says_what_could_not_be_read(
    opened: Opened, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The flush reports a log that could not be read, until a later flush can read it."""
    log = Transcript(session=SESSION)
    log.prompt("hello")
    log.says("m1", text("one"), output=5)
    async with watching(opened, tmp_path / "projects") as watched:
        with monkeypatch.context() as broken:

            def fail(_files: OpenFiles, path: str, *_cursor: object, **_limits: object) -> Chunk:
                raise OSError(5, "Input/output error", path)

            broken.setattr(OpenFiles, "read", fail)
            watched.append(log)
            reason = await watched.source.flush()
            assert reason == f"{watched.path()}: Input/output error"
        assert await watched.source.flush() is None
        assert set(watched.ledger()) == {"m1"}


async def test_trimming_leaves_a_log_alone_that_is_being_read(opened: Opened, tmp_path: Path) -> None:
    """The event loop drops readers while a worker thread reads in one: that one changes while it is looked at."""

    class Changing(Log):
        @property
        def open_candidates(self) -> list[Candidate]:
            raise RuntimeError("dictionary changed size during iteration")

    pipeline = await opened()
    logs = Logs(ClaudeLogs(), pipeline.home.index_db, Acknowledger(None, frozenset()))
    for n in range(100):
        kind = Changing if n == 0 else Log
        logs._logs[f"/{n}"] = kind(f"/{n}", "/", None, None, None)
    logs.trim({"/0"})
    assert "/0" in logs
    assert "/1" not in logs
    logs.close()


async def test_open_turns_outlive_a_restart(opened: Opened, tmp_path: Path) -> None:
    """A turn that was open when the daemon stopped is settled by the next one, even if its file is gone."""
    async with watching(opened, tmp_path / "projects") as watched:
        log = Transcript(session=SESSION)
        log.prompt("hello")
        log.says("m1", text("hi"), output=7)
        watched.append(log)
        await until(lambda: has_turn(watched, "m1", open=1))
    shutil.rmtree(tmp_path / "projects")
    async with watching(opened, tmp_path / "projects") as watched:
        assert await has_turn(watched, "m1", open=1)
        await until(lambda: list(watched.source.logs))
        watched.ahead += follower.QUIET_S + 1
        watched.source._wake_live.set()
        await until(lambda: has_turn(watched, "m1", open=0, rev=1))


async def test_a_file_that_shrinks_in_place_is_read_again(opened: Opened, tmp_path: Path) -> None:
    """F03, F04: a client cut a line out of its past and went on: what was seen stays, what is new comes."""
    async with watching(opened, tmp_path / "projects") as watched:
        log = Transcript(session=SESSION)
        log.prompt("hello")
        kept = list(log.lines)
        log.says("dead", text("half an ans"), output=1, done=False, stop=None)
        watched.append(log)
        await watched.source.flush()
        log.lines = [*kept, *log.lines]
        log.says("m2", text("the answer, longer than what was cut, " * 30), output=50)
        watched.path().write_bytes(b"".join(line + b"\n" for line in log.lines))
        await until(lambda: has_turn(watched, "m2", output=50))
        await watched.source.flush()
        assert set(watched.ledger()) == {"dead", "m2"}
        texts = [r.text for r in read_content(watched.pipeline.content, SESSION) if r.role == "user"]
        assert texts == ["hello"]


async def test_replaced_removed_and_recreated(opened: Opened, tmp_path: Path) -> None:
    """F06, F08, F24: atomic replaces, unlinks and roots that vanish and come back lose nothing."""
    async with watching(opened, tmp_path / "projects") as watched:
        for round_number in range(3):
            session = f"55555555-0000-4000-8000-{round_number:012d}"
            log = Transcript(session=session, prefix=f"r{round_number}-")
            log.prompt("hello")
            log.says(f"a{round_number}", text("hi"), output=3)
            path = watched.path(session)
            first = b"".join(line + b"\n" for line in log.lines)
            path.write_bytes(first)
            await until(lambda n=round_number: has_turn(watched, f"a{n}", output=3))  # type: ignore[misc]
            log.says(f"b{round_number}", text("more"), output=4)
            new = path.with_suffix(".new")
            new.write_bytes(b"".join(line + b"\n" for line in log.lines))
            os.replace(new, path)
            await until(lambda n=round_number: has_turn(watched, f"b{n}", output=4))  # type: ignore[misc]
            shutil.rmtree(tmp_path / "projects")
        await watched.source.flush()
        assert len(watched.ledger()) == 6


async def test_what_is_open_in_a_deleted_log_settles(opened: Opened, tmp_path: Path) -> None:
    """F24: the last turn of a deleted log settles, however often the log is searched for."""
    async with watching(opened, tmp_path / "projects") as watched:
        log = Transcript(session=SESSION)
        log.prompt("hello")
        log.says("m1", text("hi"), output=7)
        watched.append(log)
        await until(lambda: has_turn(watched, "m1", open=1))
        watched.path().unlink()
        for _ in range(3):
            watched.source._queue.add(str(watched.path()))
            watched.source._wake_live.set()
            await until(lambda: not watched.source.status().pending)
        await watched.source.flush()
        assert list(watched.ledger()) == ["m1"]


async def test_links_pipes_and_odd_names_are_left_alone(opened: Opened, tmp_path: Path) -> None:
    """F16, F15: links are not followed, a FIFO does not block, and a hostile session id cannot leave the folder."""
    secret = tmp_path / "secret.jsonl"
    outside = Transcript(session=SESSION)
    outside.says("stolen", text("x"))
    secret.write_bytes(outside.lines[0] + b"\n")
    async with watching(opened, tmp_path / "projects") as watched:
        folder = watched.path().parent
        (folder / "link.jsonl").symlink_to(secret)
        (folder.parent / "linked").symlink_to(tmp_path)
        os.mkfifo(folder / "pipe.jsonl")
        hostile = Transcript(session="../../../escape")
        hostile.prompt("hello")
        hostile.says("m1", text("y" * 3000))
        watched.append(hostile, folder / "agent-deadbeef.jsonl")
        await watched.source.flush()
        assert set(watched.ledger()) == {"m1"}
        assert watched.ledger()["m1"].session_id == "../../../escape"
        sidecars = [s.path for s in watched.pipeline.content.sidecars.scan()]
        assert all(p.resolve().parent == opened.home.content.resolve() for p in sidecars)
        assert not list(tmp_path.glob("**/escape*"))


async def test_transcripts_at_any_depth_are_read_and_other_files_counted(opened: Opened, tmp_path: Path) -> None:
    """Format page, rule 1: every transcript below the root is read; `status` counts the other files."""
    async with watching(opened, tmp_path / "projects") as watched:
        for n, path in enumerate(["top.jsonl", "-p/deep/er/low.jsonl", "subagents/named.jsonl", "-p/memory/no.jsonl"]):
            log = Transcript(session=f"s{n}", prefix=f"d{n}-")
            log.prompt("hello")
            log.says(f"m{n}", text("hi"), output=n + 1)
            target = tmp_path / "projects" / path
            target.parent.mkdir(parents=True, exist_ok=True)
            watched.append(log, target)
        (tmp_path / "projects" / "-p" / "link.jsonl").symlink_to(tmp_path / "elsewhere.jsonl")
        await watched.source.flush()
        assert {m: t.session_id for m, t in watched.ledger().items()} == {"m0": "top", "m1": "low", "m2": "named"}
        status = watched.source.status()
        told = {name: number for name, number in status.counts.items() if name.startswith("passed over")}
        assert (status.files, told) == (3, {"passed over: no transcript": 1, "passed over: symlink": 1})
        (tmp_path / "projects" / "-p" / "memory" / "no.jsonl").unlink()
        await watched.source.flush()
        assert "passed over: no transcript" not in watched.source.status().counts


async def test_bad_lines_hurt_only_themselves(opened: Opened, tmp_path: Path) -> None:
    """P7, F11-F13: garbage between good lines is counted; every good line is read."""
    async with watching(opened, tmp_path / "projects") as watched:
        log = Transcript(session=SESSION)
        log.prompt("hello")
        bad = [b"\xff\xfe{", b"\x00" * 99, b"{}" * 9, b"[" * 50_000, b'{"type":"user","n":' + b"9" * 5000 + b"}", b""]
        for n, junk in enumerate(bad):
            log.lines.append(junk)
            log.says(f"m{n}", text(f"answer {n}"), output=n + 1)
        log.bare(type="brand-new-thing", sessionId=SESSION)
        watched.append(log)
        await watched.source.flush()
        assert set(watched.ledger()) == {f"m{n}" for n in range(len(bad))}
        assert watched.source.counts["unrecognised type=brand-new-thing"] == 1
        assert any(name.startswith("rejected") for name in watched.source.counts)


async def test_an_unterminated_last_line_is_taken_when_quiet(opened: Opened, tmp_path: Path) -> None:
    """F10: a whole record that never got its newline is taken, once, after ten minutes or when its log is deleted.

    Half of one is counted.
    """
    async with watching(opened, tmp_path / "projects") as watched:
        log = Transcript(session=SESSION)
        log.prompt("hello")
        log.says("m1", text("hi"), output=5)
        last = log.lines.pop()
        watched.append(log)
        await watched.source.flush()
        with watched.path().open("ab") as file:
            file.write(last)
        await watched.source.flush()
        assert watched.ledger() == {}
        watched.ahead += follower.IDLE_S + 1
        watched.source._wake_live.set()
        await until(lambda: has_turn(watched, "m1", output=5))
        with watched.path().open("ab") as file:
            file.write(b"\n")
        log.says("m2", text("more"), output=6)
        watched.append(log)
        await watched.source.flush()
        assert {m: t.usage.output for m, t in watched.ledger().items()} == {"m1": 5, "m2": 6}
        for times, is_deleted in ((1, False), (2, True)):
            with watched.path().open("ab") as file:
                file.write(last[:40])
            await watched.source.flush()
            if is_deleted:
                watched.path().unlink()
            watched.ahead += follower.IDLE_S + 1
            watched.source._wake_live.set()
            await until(lambda n=times: _counted(watched, "unfinished lines", n))  # type: ignore[misc]
        log.says("m3", text("the last word"), output=7)
        watched.path().write_bytes(log.lines[-1])
        await watched.source.flush()
        assert "m3" not in watched.ledger()
        watched.path().unlink()
        await until(lambda: has_turn(watched, "m3", output=7))


async def _counted(watched: Watched, what: str, number: int) -> bool:
    return watched.source.counts[what] == number


async def test_a_full_disk_only_delays(opened: Opened, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """F41: the source waits, reports it and continues without help."""
    async with watching(opened, tmp_path / "projects") as watched:
        real, refusals = watched.pipeline.commit, iter(range(2))

        async def commit(batch: Any) -> int:
            if batch.files and next(refusals, None) is not None:
                raise NoSpace("No space left on device", "home")
            return await real(batch)

        monkeypatch.setattr(watched.pipeline, "commit", commit)
        monkeypatch.setattr(recording_pipeline, "FIRST_RETRY_S", 0.05)
        log = Transcript(session=SESSION)
        log.prompt("hello")
        log.says("m1", text("hi"), output=5)
        watched.append(log)
        await until(lambda: watched.source.status().state == "waiting")
        await until(lambda: has_turn(watched, "m1", output=5))
        await until(lambda: watched.source.status().state == "watching")


async def test_a_lost_index_makes_everything_be_read_again(opened: Opened, tmp_path: Path) -> None:
    """F53: after a rebuild the sources are read from their starts; nothing doubles, what comes next is found."""
    async with watching(opened, tmp_path / "projects") as watched:
        log = Transcript(session=SESSION)
        log.prompt("hello")
        log.says("m1", text("hi " * 900), output=5)
        watched.append(log)
        await watched.source.flush()
        lines, size = watched.pipeline.journal.end, watched.pipeline.content.sidecars.size(SESSION)
        await watched.pipeline.rebuild_index()
        watched.source._wake_live.set()
        await watched.source.flush()
        assert watched.pipeline.journal.end == lines
        assert watched.pipeline.content.sidecars.size(SESSION) == size
        log.says("m2", text("more"), output=6)
        watched.append(log)
        await watched.source.flush()
        assert {m: t.turn_index for m, t in watched.ledger().items()} == {"m1": 0, "m2": 1}


async def test_what_is_settled_stays_settled_while_its_log_is_read_again(opened: Opened, tmp_path: Path) -> None:
    """A rebuild changes no answer: the last message of a log that is read again is no more open than it was."""
    async with watching(opened, tmp_path / "projects") as watched:
        log = Transcript(session=SESSION)
        log.prompt("hello")
        log.says("m1", text("hi"), output=5)
        log.calls("m2", call("t1", "Bash", command="make"), output=7)
        watched.append(log)
        await watched.source.flush()
        before = await watched.turns()
        assert before["m2"]["open"] == 0
        await watched.pipeline.rebuild_index()
        watched.source._wake_live.set()
        await until(lambda: _is_read(watched))
        assert await watched.turns() == before


async def _is_read(watched: Watched) -> bool:
    return bool(await watched.pipeline.index.rows("SELECT 1 FROM files WHERE cursor IS NOT NULL"))


@pytest.mark.parametrize("rewritten", [False, True], ids=["index", "labels"])
async def test_open_turns_survive_a_rebuild(opened: Opened, tmp_path: Path, *, rewritten: bool) -> None:
    """I3: a turn that no ledger has yet is in every answer right after a rebuild, and settles as it would have."""
    async with watching(opened, tmp_path / "projects") as watched:
        log = Transcript(session=SESSION)
        log.prompt("hello")
        log.says("m1", text("hi"), output=5)
        log.prompt("and now?")
        log.says("m2", call("t1", "Bash", command="make"), output=7, stop="tool_use")
        watched.append(log)
        await until(lambda: has_turn(watched, "m2", output=7, open=1))
        before = await watched.turns()
        if rewritten:
            await watched.pipeline.rewrite_ledger(_relabelled)
        else:
            await watched.pipeline.rebuild_index()
        assert await watched.turns() == before
        if rewritten:
            labels = "SELECT DISTINCT name FROM turns JOIN names n ON n.id = activity"
            assert await watched.pipeline.index.rows(labels) == [("docs",)]
        await watched.source.flush()
        assert {m: t.usage.output for m, t in watched.ledger().items()} == {"m1": 5, "m2": 7}


def _relabelled(entry: Entry) -> Entry:
    return msgspec.structs.replace(entry, activity="docs") if isinstance(entry, Turn) else entry


async def test_what_is_open_in_a_file_that_is_gone_outlives_a_rebuild(opened: Opened, tmp_path: Path) -> None:
    """F08, I3: the log was deleted while a turn was open, then the index was rebuilt: the turn is not lost."""
    async with watching(opened, tmp_path / "projects") as watched:
        log = Transcript(session=SESSION)
        log.prompt("hello")
        log.says("m1", call("t1", "Bash", command="make"), output=7, stop="tool_use")
        watched.append(log)
        await until(lambda: has_turn(watched, "m1", open=1))
        watched.path().unlink()
        await watched.pipeline.rebuild_index()
        watched.source._wake_live.set()
        await until(lambda: watched.source._generation == watched.pipeline.generation)
        assert await has_turn(watched, "m1", output=7)
    await opened.close()
    async with watching(opened, tmp_path / "projects") as watched:
        await watched.source.flush()
        assert {m: t.usage.output for m, t in watched.ledger().items()} == {"m1": 7}


async def test_the_newest_session_is_read_first(opened: Opened, tmp_path: Path) -> None:
    """F18: on a first start the newest logs are read first, and progress is reported."""
    projects = tmp_path / "projects"
    watched = Watched(await opened(), projects)
    for n in range(30):
        session = f"66666666-0000-4000-8000-{n:012d}"
        log = Transcript(session=session, prefix=f"n{n}-")
        log.prompt("hello")
        log.says(f"m{n}", text("hi"), output=n + 1)
        watched.append(log, watched.path(session))
        os.utime(watched.path(session), (1_700_000_000 + n, 1_700_000_000 + n))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(watched.source.run)
        await until(lambda: watched.source.backfill.total > 0)
        await watched.source.flush()
        tasks.cancel_scope.cancel()
    order = [e.entry.message_id for e in watched.pipeline.journal.read() if isinstance(e.entry, Turn)]
    assert sorted(order, key=lambda m: -int(m[1:])) == [f"m{n}" for n in range(29, -1, -1)]
    assert watched.source.backfill.done == watched.source.backfill.total


async def test_a_name_that_is_not_utf8_is_harmless(opened: Opened, tmp_path: Path) -> None:
    """P7: a file with any bytes for a name is read like the others, which do not notice."""
    async with watching(opened, tmp_path / "projects") as watched:
        odd = os.fsencode(watched.path().parent) + b"/bad\xff\xfename.jsonl"
        for n, path in enumerate([Path(os.fsdecode(odd)), watched.path()]):
            log = Transcript(session=f"{n}", prefix=f"o{n}-")
            log.prompt("hello")
            log.says(f"m{n}", text("hi"), output=n + 1)
            watched.append(log, path)
        await watched.source.flush()
        assert set(watched.ledger()) == {"m0", "m1"}


async def test_a_cut_log_takes_nothing_back(opened: Opened, tmp_path: Path) -> None:
    """Format page 3.3: a line that was cut out of a log was read, and what it said stays."""
    async with watching(opened, tmp_path / "projects") as watched:
        log = Transcript(session=SESSION)
        log.prompt("hello")
        log.calls("m1", call("c1", "Bash", command="pytest"), output=7)
        log.result("c1", "boom", is_error=True)
        log.says("m2", text("so it goes"), output=8)
        lines = list(log.lines)
        watched.append(log)
        await watched.source.flush()
        before = watched.ledger()
        del lines[2]
        log.says("m3", text("after"), output=9)
        watched.path().write_bytes(b"".join(line + b"\n" for line in [*lines, *log.lines]))
        await watched.source.flush()
        after = watched.ledger()
        assert after["m1"].tool_calls == before["m1"].tool_calls
        assert after["m2"].entered == before["m2"].entered
        assert set(after) == {"m1", "m2", "m3"}


async def test_a_request_without_a_response_counts_until_it_gets_one(opened: Opened, tmp_path: Path) -> None:
    """Counted after ten minutes without a response, though no message is open, also across a restart."""
    projects = tmp_path / "projects"

    async def requests(watched: Watched) -> list[str]:
        assert watched.pipeline.index is not None
        return [row[0] for row in await watched.pipeline.index.rows("SELECT json_extract(key, '$[1]') FROM requests")]

    log = Transcript(session=SESSION)
    log.prompt("hello")
    log.says("m1", text("done"), output=4)
    for name in ("r1", "r2"):
        log.bare(type="api-request", id=name, timestamp=log.time(9), params={"model": "claude-opus-5"})
    async with watching(opened, projects) as watched:
        watched.append(log)
        await until(lambda: has_turn(watched, "m1", open=1))
        watched.ahead += follower.QUIET_S + 1
        await until(lambda: has_turn(watched, "m1", open=0))
        assert await requests(watched) == []
    async with watching(opened, projects) as watched:
        await until(lambda: list(watched.source.logs))
        watched.ahead += follower.IDLE_S + 1

        async def are_there() -> bool:
            return await requests(watched) == ["r1", "r2"]

        await until(are_there)
        log.says("m2", text("at last"), requestRef="r2", output=5)
        watched.append(log)
        await watched.source.flush()
        assert await requests(watched) == ["r1"]
        await watched.pipeline.rebuild_index()
        assert await requests(watched) == ["r1"]


async def test_the_parent_of_an_agent_may_be_recorded_late(opened: Opened, tmp_path: Path) -> None:
    """A meta file that appears after the agent settled links its turns all the same."""
    async with watching(opened, tmp_path / "projects") as watched:
        below = watched.path().with_suffix("") / "subagents"
        below.mkdir(parents=True)
        agent = Transcript(session=SESSION, prefix="s", isSidechain=True, agentId="abc123")
        agent.prompt("look around", parent=None)
        agent.says("a1", text("done"), output=4)
        watched.append(agent, below / "agent-abc123.jsonl")
        await watched.source.flush()
        assert watched.ledger()["a1"].subagent.parent_tool_use_id is None  # type: ignore[union-attr]
        (below / "agent-abc123.meta.json").write_text('{"agentType": "Explore", "toolUseId": "toolu_1"}')

        def is_linked() -> bool:
            found = watched.ledger()["a1"].subagent
            return found is not None and (found.parent_tool_use_id, found.type) == ("toolu_1", "Explore")

        await until(is_linked)


@pytest.mark.parametrize("lead_first", [True, False])
async def test_agents_of_a_workflow_and_of_a_team_hang_below_their_call(
    opened: Opened, tmp_path: Path, lead_first: bool
) -> None:
    """In any order of logs. The result of the call names the run or teammate; path or metadata identify the agent."""
    lead = Transcript(session=SESSION)
    lead.prompt("go")
    lead.calls("m1", call("c1", "Workflow", script="x"), call("c2", "Agent", subagent_type="reviewer"))
    lead.result("c1", "launched", toolUseResult={"status": "async_launched", "runId": "wf_1"})
    lead.result("c2", "spawned", toolUseResult={"status": "teammate_spawned", "teammate_id": "rev@core"})
    async with watching(opened, tmp_path / "projects") as watched:
        below = watched.path().with_suffix("") / "subagents"
        (below / "workflows" / "wf_1").mkdir(parents=True)
        (below / "agent-arev-1.meta.json").write_text('{"agentType": "reviewer", "name": "rev", "teamName": "core"}')

        def write_agents() -> None:
            for name, folder in (("a1", below / "workflows" / "wf_1"), ("arev-1", below)):
                agent = Transcript(session=SESSION, prefix=name, isSidechain=True, agentId=name)
                agent.prompt("look around", parent=None)
                agent.says(name, text("done"), output=4)
                watched.append(agent, folder / f"agent-{name}.jsonl")

        steps: list[Callable[[], Any]] = [partial(watched.append, lead, watched.path()), write_agents]
        for step in steps if lead_first else reversed(steps):
            step()
            await watched.source.flush()
        agents = {name: turn.subagent for name, turn in watched.ledger().items() if turn.subagent is not None}
        assert {name: one.parent_tool_use_id for name, one in agents.items()} == {"a1": "c1", "arev-1": "c2"}


async def test_the_parent_of_an_agent_may_be_recorded_while_the_daemon_is_down(opened: Opened, tmp_path: Path) -> None:
    """I2: a meta file that was written between two starts of the daemon is taken up; an old one is not looked at."""
    below = tmp_path / "projects" / "-home-dev-app" / SESSION / "subagents"
    below.mkdir(parents=True)
    async with watching(partial(opened, now=wall_ms), tmp_path / "projects") as watched:
        for name in ("late", "early"):
            agent = Transcript(session=SESSION, prefix=name, isSidechain=True, agentId=name)
            agent.prompt("look around", parent=None)
            agent.says(name, text("done"), output=4)
            watched.append(agent, below / f"agent-{name}.jsonl")
        (below / "agent-early.meta.json").write_text('{"agentType": "Plan", "toolUseId": "toolu_0"}')
        await watched.source.flush()
    (below / "agent-late.meta.json").write_text('{"agentType": "Explore", "toolUseId": "toolu_1"}')
    async with watching(partial(opened, now=lambda: wall_ms() + 60_000), tmp_path / "projects") as watched:
        await watched.source.flush()
        told = {name: turn.subagent for name, turn in watched.ledger().items()}
        assert {name: (of.type, of.parent_tool_use_id) for name, of in told.items() if of is not None} == {
            "late": ("Explore", "toolu_1"),
            "early": ("Plan", "toolu_0"),
        }
    async with watching(partial(opened, now=lambda: wall_ms() + 120_000), tmp_path / "projects") as watched:
        await watched.source.flush()
        assert not list(watched.source.logs)


async def _tell_between_starts(opened: Opened, projects: Path) -> None:
    """The log of an agent is read, and the record of its parent is written while the daemon is down."""
    below = projects / "-home-dev-app" / SESSION / "subagents"
    below.mkdir(parents=True)
    agent = Transcript(session=SESSION, prefix="late", isSidechain=True, agentId="late")
    agent.prompt("look around", parent=None)
    agent.says("late", text("done"), output=4)
    async with watching(partial(opened, now=wall_ms), projects) as watched:
        watched.append(agent, below / "agent-late.jsonl")
        await watched.source.flush()
    (below / "agent-late.meta.json").write_text('{"agentType": "Explore", "toolUseId": "toolu_1"}')


async def test_the_parent_of_an_agent_may_be_recorded_before_watching_begins(
    opened: Opened, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A first scan knows itself below which root a file is: the watcher may need a moment to find that out."""
    await _tell_between_starts(opened, tmp_path / "projects")
    monkeypatch.setattr(Watch, "roots", property(lambda _: [], lambda *_: None), raising=False)
    async with watching(partial(opened, now=lambda: wall_ms() + 60_000), tmp_path / "projects") as watched:
        await watched.source.flush()
        agent_of = watched.ledger()["late"].subagent
        assert agent_of is not None
        assert agent_of.parent_tool_use_id == "toolu_1"


async def test_a_flush_waits_for_the_scan_that_runs(
    opened: Opened, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file already found by the running scan is not found again by the next, and is flushed all the same."""
    await _tell_between_starts(opened, tmp_path / "projects")
    seen_ms = Positions.seen_ms

    async def slow(positions: Positions) -> dict[str, int]:
        asked.set()
        await anyio.sleep(0.3)
        return await seen_ms(positions)

    asked = anyio.Event()
    monkeypatch.setattr(Positions, "seen_ms", slow)
    again = Watched(await opened(), tmp_path / "projects")
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(again.source._finder.scan, "the roots changed")
        await asked.wait()
        tasks.start_soon(again.source.run)
        await again.source.flush()
        told = again.ledger()["late"].subagent
        assert told is not None
        assert told.type == "Explore"
        tasks.cancel_scope.cancel()


async def test_a_root_behind_a_link_settles_after_a_restart(opened: Opened, tmp_path: Path) -> None:
    """F16, F24: a configured root may itself be a link, to a folder of any name."""
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "projects").symlink_to(tmp_path / "elsewhere")
    async with watching(opened, tmp_path / "projects") as watched:
        log = Transcript(session=SESSION)
        log.prompt("hello")
        log.says("m1", text("hi"), output=7)
        watched.append(log)
        await until(lambda: has_turn(watched, "m1", open=1))
    async with watching(opened, tmp_path / "projects") as watched:
        await until(lambda: list(watched.source.logs))
        watched.ahead += follower.QUIET_S + 1
        watched.source._wake_live.set()
        await until(lambda: has_turn(watched, "m1", open=0, rev=1))


@pytest.mark.parametrize("mode", ["off", "hash-only"])
async def test_without_content_capture_leaves_no_text(opened: Opened, tmp_path: Path, mode: str) -> None:
    """I6: prompts, answers, tool inputs and results, titles and summaries of a log are nowhere in the home."""
    projects = tmp_path / "projects"
    watched = Watched(await opened(mode), projects)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(watched.source.run)
        log = Transcript(session=SESSION)
        log.prompt("zqcanary prompt")
        log.bare(type="summary", summary="zqcanary summary", leafUuid="u0")
        log.bare(type="last-prompt", lastPrompt="zqcanary prompt", sessionId=SESSION)
        log.calls("m1", call("c1", "Bash", command="echo zqcanary"), output=7)
        log.result("c1", "zqcanary result " * 400)
        log.says("m2", text("zqcanary answer"), output=8)
        watched.append(log)
        await watched.source.flush()
        assert set(watched.ledger()) == {"m1", "m2"}
        tasks.cancel_scope.cancel()
    await opened.close()
    for path in opened.home.root.rglob("*"):
        assert not path.is_file() or b"zqcanary" not in path.read_bytes(), path
    assert not opened.home.content.exists()
