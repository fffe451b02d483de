"""Codex's rollouts while they grow: chunks, crashes and restarts end where one clean read ends."""

from __future__ import annotations

import json
import random
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
import zstandard

from burnd.clients.announcements import SessionClaim, assign, matching_session
from burnd.harness.codex import source as codex_source
from burnd.harness.codex.product import PRODUCT
from burnd.harness.codex.source import CodexLogs
from burnd.logfiles import follower
from burnd.logfiles.follower import LogFollower
from burnd.logfiles.tail import TOO_LARGE
from burnd.logfiles.watcher import Times
from burnd.recording.pipeline import Pipeline
from burnd.records import Usage
from burnd.records.times import to_iso
from tests.capture.codex_logs import all_cases
from tests.capture.kill_loop import run_and_kill
from tests.capture.rig import CodexRig
from tests.capture.trees import clean_read, comparable, drip
from tests.conftest import Opened
from tests.harness.codex.rollout import BORN_MS, Rollout, call, says, thinking

QUICK = Times(window=0.01, roots=0.2, alive=5, scan=0.5, poll=0.2)
PATIENCE_S = 60


async def test_any_order_of_files_gives_the_same(tmp_path: Path) -> None:
    """I2: shuffled logs, one or several to a batch, end in the same ledger, owners of repeated responses included."""
    sessions = all_cases(tmp_path / "codex")
    expected = await clean_read(tmp_path / "clean", sessions, CodexRig)
    for seed in range(3):
        rig = CodexRig(tmp_path / f"home{seed}", sessions)
        await rig.open()
        files = random.Random(seed).sample(rig.files(), len(rig.files()))
        await rig.read(*files, pieces_at_once=1 + seed * 3)
        await rig.flush()
        assert comparable(await rig.outcome()) == comparable(expected)
        await rig.close()


async def test_dripping_bytes_give_the_same(tmp_path: Path) -> None:
    """I2, I3: every log grows at random bytes, files in turns, with restarts in between and deleted indexes."""
    sessions = all_cases(tmp_path / "codex")
    expected = await clean_read(tmp_path / "clean", sessions, CodexRig)
    whole = {path: path.read_bytes() for path in sorted(sessions.rglob("*.jsonl"))}
    for path in whole:
        path.write_bytes(b"")
    outcome = await drip(tmp_path / "home", sessions, whole, random.Random(11), CodexRig)
    assert comparable(outcome) == comparable(expected)


async def test_kill_nine_while_logs_grow(tmp_path: Path) -> None:
    """I1, I2: the real daemon, killed while rollouts grow, loses nothing and doubles nothing."""
    await run_and_kill(tmp_path, all_cases(tmp_path / "codex"), rounds=3, make=CodexRig)


async def test_an_archived_log_is_the_same_session(tmp_path: Path) -> None:
    """A rollout that was moved to the archive, or exists in both places at different lengths, is billed once."""
    expected = await clean_read(tmp_path / "clean", all_cases(tmp_path / "codex"), CodexRig)
    twice = tmp_path / "twice"
    sessions = all_cases(twice)
    for n, log in enumerate(sorted(sessions.rglob("*.jsonl"))):
        lines = log.read_bytes().splitlines(keepends=True)
        archived = sessions / "archived_sessions" / log.name
        archived.parent.mkdir(exist_ok=True)
        archived.write_bytes(b"".join(lines[: len(lines) - n % 4]))
    for newest_first in (False, True):
        rig = CodexRig(tmp_path / f"home{newest_first}", sessions)
        await rig.open()
        await rig.read(*sorted(rig.files(), reverse=newest_first))
        await rig.flush()
        found = await rig.outcome()
        await rig.close()
        assert found["ledger"] == expected["ledger"]


class Watched:
    """The source on a folder of Codex's, with a clock a test can set forward."""

    def __init__(self, pipeline: Pipeline, folder: Path) -> None:
        self.pipeline, self.folder, self.ahead = pipeline, folder, 0.0
        roots = PRODUCT.logs({"CODEX_HOME": str(folder)}, str(folder / "nobody"))
        self.source = LogFollower(
            CodexLogs(), roots, pipeline, times=QUICK, clock=lambda: time.monotonic() + self.ahead
        )

    def write(self, log: Rollout) -> None:
        """Appends the lines that were not written yet."""
        path = self.folder / "sessions" / "2026" / "11" / "16" / log.name
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab") as file:
            file.write(log.data)
        log.lines.clear()

    async def turns(self) -> list[tuple[str, int, int, bool]]:
        told = "SELECT m.name, t.cache_read, t.output, t.open"
        sql = told + " FROM turns t JOIN names m ON m.id = t.model ORDER BY t.ts, t.id"
        return [(row[0], row[1], row[2], bool(row[3])) for row in await self.pipeline.index.rows(sql)]

    async def until(self, wanted: Callable[[list[Any]], bool]) -> list[Any]:
        with anyio.fail_after(PATIENCE_S):
            while not wanted(turns := await self.turns()):  # noqa: ASYNC110
                await anyio.sleep(0.02)
        return turns


@asynccontextmanager
async def watched(opened: Opened, folder: Path) -> AsyncIterator[Watched]:
    found = Watched(await opened(), folder)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(found.source.run)
        yield found
        tasks.cancel_scope.cancel()


async def test_a_response_is_seen_before_it_is_metered(opened: Opened, tmp_path: Path) -> None:
    """Output is shown as open at once, billed with the token count, and settles at the end of the turn."""
    log = Rollout()
    log.task()
    log.prompt("look")
    log.item(thinking("seal"), call("c1", "exec_command", cmd="ls"))
    async with watched(opened, tmp_path / "codex") as here:
        here.write(log)
        assert await here.until(bool) == [("gpt-5.1-codex", 0, 0, True)]
        log.answer("c1", "Process exited with code 0\n")
        log.meter(1000, 900, 50, 10)
        here.write(log)
        await here.until(lambda turns: turns == [("gpt-5.1-codex", 900, 40, True)])
        log.event("task_complete")
        here.write(log)
        await here.until(lambda turns: turns == [("gpt-5.1-codex", 900, 40, False)])


async def test_a_quiet_response_settles(opened: Opened, tmp_path: Path) -> None:
    """Ten seconds of quiet settle an answered response even if its task never ends."""
    log = Rollout()
    log.task()
    log.prompt("look")
    log.item(says("seen"))
    log.meter(1000, 900, 50, 0)
    async with watched(opened, tmp_path / "codex") as here:
        here.write(log)
        await here.until(bool)
        here.ahead += follower.QUIET_S + 1
        await here.until(lambda turns: [turn[3] for turn in turns] == [False])


async def test_a_flush_settles_and_what_comes_late_still_counts(opened: Opened, tmp_path: Path) -> None:
    """A response that was flushed before the meter was read is partial until it is, and then has its use."""
    log = Rollout()
    log.task()
    log.prompt("look")
    log.item(call("c1", "exec_command", cmd="sleep 900"))
    async with watched(opened, tmp_path / "codex") as here:
        here.write(log)
        await here.source.flush()
        assert [turn[1:] for turn in await here.turns()] == [(0, 0, False)]
        log.answer("c1", "Process exited with code 0\n")
        log.meter(1000, 900, 50, 0)
        here.write(log)
        await here.source.flush()
        assert [turn[1:] for turn in await here.turns()] == [(900, 50, False)]


async def test_both_folders_are_read_and_listed(opened: Opened, tmp_path: Path) -> None:
    """`sessions/` and `archived_sessions/` below CODEX_HOME are read; status counts files and lines."""
    folder = tmp_path / "codex"
    for n, name in enumerate(("sessions", "archived_sessions"), 1):
        log = Rollout(n)
        log.task()
        log.item(says("hello"))
        log.meter(100, 0, 10, 0)
        (folder / name).mkdir(parents=True)
        (folder / name / log.name).write_bytes(log.data)
    async with watched(opened, folder) as here:
        await here.source.flush()
        assert len(await here.turns()) == 2
        status = here.source.status()
        assert (status.name, status.files, status.counts["lines"]) == ("codex", 2, 10)


async def test_a_family_of_forks_adds_up_in_reports(tmp_path: Path) -> None:
    """The ledger's turns of parent, forks and agents sum to what was spent, each response once."""
    sessions = all_cases(tmp_path / "codex")
    outcome = await clean_read(tmp_path / "home", sessions, CodexRig)
    turns = [entry for key, entry in outcome["ledger"]["latest"].items() if key[0] == "turn"]
    family = [turn for turn in turns if turn.session_id[-2:] in ("07", "08", "09")]
    assert sum((turn.usage for turn in family), Usage()).context == 1000 + 1100 + 1150 + 1200 + 1200


async def test_a_thread_has_the_name_it_was_given_last(opened: Opened, tmp_path: Path) -> None:
    """Names of threads are in one file, written before or after the log; the newest is the title."""
    folder = tmp_path / "codex"
    folder.mkdir()
    log = Rollout()
    log.task()
    log.item(says("hello"))
    log.meter(100, 0, 10, 0)
    names = folder / "session_index.jsonl"

    def name(given: str, thread: str = log.thread) -> None:
        line = {"id": thread, "thread_name": given, "updated_at": "2026-11-16T11:00:00Z"}
        with names.open("a") as file:
            file.write(json.dumps(line) + "\nnot json\n")

    name("First")
    name("Nobody's", "unknown")
    async with watched(opened, folder) as here:
        for given in ("First", "Second"):
            here.write(log)
            await here.source.flush()
            titles = await here.pipeline.index.rows("SELECT session_id, harness_title FROM sessions")
            assert titles == [(log.thread, given)]
            name("Second")


async def test_the_request_that_made_a_threads_name_is_counted_once(opened: Opened, tmp_path: Path) -> None:
    """Detected from the thread's log or from the file of names, shortly after the start; a later name is the user's."""
    folder = tmp_path / "codex"
    folder.mkdir()
    logs = [Rollout(number=number) for number in range(1, 5)]
    for n, log in enumerate(logs):
        log.task()
        log.prompt("look")
        if n == 1:
            log.event("thread_name_updated", thread_name="A look")
        log.item(says("hello"))
        log.meter(100, 0, 10, 0)
        log.task()
        log.prompt("look again")
        log.event("thread_rolled_back", num_turns=1)
        if n == 2:
            log.event("thread_name_updated", thread_name="A look")
    names = [(logs[0].thread, "2026-11-16T10:00:30Z"), (logs[1].thread, "2026-11-16T10:00:30Z")]
    names.append((logs[3].thread, "2026-11-16T11:00:00Z"))
    lines = [json.dumps({"id": thread, "thread_name": "A look", "updated_at": ts}) for thread, ts in names]
    (folder / "session_index.jsonl").write_text("\n".join(lines) + "\n")
    async with watched(opened, folder) as here:
        for log in logs:
            here.write(log)
        await here.source.flush()
        rows = await here.pipeline.index.rows("SELECT s.session_id FROM requests r JOIN sessions s ON s.id = r.session")
        assert sorted(row[0] for row in rows) == sorted([logs[0].thread, logs[1].thread])


async def test_compressed_logs_are_the_same_sessions(tmp_path: Path) -> None:
    """A compressed log gives the same records, in pieces of any size, without duplicates."""
    sessions = all_cases(tmp_path / "codex")
    expected = await clean_read(tmp_path / "clean", sessions, CodexRig)
    for log in sessions.rglob("*.jsonl"):
        log.with_suffix(".jsonl.zst").write_bytes(zstandard.compress(log.read_bytes()))
        log.unlink()
    compressed = sorted(sessions.rglob("*.zst"))
    rig = CodexRig(tmp_path / "home", sessions)
    await rig.open()
    for max_bytes in (700, 4 << 20):
        await rig.read(*compressed, max_bytes=max_bytes)
        await rig.restart()
        await rig.flush()
        found = await rig.outcome()
        assert found["ledger"] == expected["ledger"]
        assert found["content"] == expected["content"]
    await rig.close()


async def test_a_damaged_archive_is_reported_and_others_are_read(opened: Opened, tmp_path: Path) -> None:
    """A file with the suffix but without zstd data is retried and shown; the other logs are read."""
    log = Rollout()
    log.task()
    log.item(says("hello"))
    log.meter(100, 0, 10, 0)
    async with watched(opened, tmp_path / "codex") as here:
        here.write(log)
        (tmp_path / "codex" / "sessions" / "2026" / f"{Rollout(2).name}.zst").write_bytes(b"not zstd at all")
        await here.source.flush()
        status = here.source.status()
        assert (status.state, status.files, len(await here.turns())) == ("degraded", 2, 1)
        assert "damaged" in status.detail


@pytest.mark.parametrize("with_newlines", [True, False])
async def test_an_archive_that_unpacks_to_gigabytes_is_read_to_a_bound(
    opened: Opened, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, with_newlines: bool
) -> None:
    """Everything before the limit is recorded; status shows the log and where reading stopped."""
    monkeypatch.setattr(codex_source, "MOST_UNPACKED", 4 << 20)
    monkeypatch.setattr(codex_source, "MAX_LINE", 1 << 20)
    log = Rollout()
    log.task()
    log.item(says("hello"))
    log.meter(100, 0, 10, 0)
    filler = (b" " * 1023 + b"\n" if with_newlines else b" " * 1024) * 1024
    packer = zstandard.ZstdCompressor().compressobj()
    packed = [packer.compress(log.data), *(packer.compress(filler) for _ in range(1024)), packer.flush()]
    async with watched(opened, tmp_path / "codex") as here:
        folder = tmp_path / "codex" / "sessions" / "2026"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{log.name}.zst").write_bytes(b"".join(packed))
        await here.source.flush()
        assert len(await here.turns()) == 1
        unused = [line for line in here.source.status().unused.lines if line.reason == TOO_LARGE]
        assert [line.offset <= 6 << 20 for line in unused] == [True]


async def test_a_claim_takes_the_session_that_begins_in_its_folder(opened: Opened, tmp_path: Path) -> None:
    """`burnctl run -- codex` tags the session that Codex begins, though it cannot name it beforehand."""
    log = Rollout()
    log.task()
    log.item(says("hello"))
    log.meter(100, 0, 10, 0)
    async with watched(opened, tmp_path / "codex") as here:
        here.write(log)
        await here.source.flush()
        before = to_iso(BORN_MS - 1000)
        claim = SessionClaim(
            v=1, kind="claim", project="/home/dev/app", from_ts=before, enrichment={"a": "b"}, source="codex"
        )
        assert await matching_session(here.pipeline.index, claim) == log.thread
        await assign(here.pipeline, "mine", claim, log.thread)
        assert await matching_session(here.pipeline.index, claim) is None
