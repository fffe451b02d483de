"""Totals are exact at any moment of the first read, for any cuts and order of logs."""

from __future__ import annotations

import errno
import os
import random
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partialmethod
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest

from burnctl.client import Client
from burnctl.errors import Failed
from burnd.harness.opencode.follower import DatabaseFollower
from burnd.harness.quick_pass import LogTask
from burnd.paths import socket_file
from burnd.recording.candidate import Batch
from burnd.recording.pipeline import Pipeline
from burnd.totals import early as early_totals
from burnd.totals.early import EarlyTotals, LogPass
from burnd.totals.index import PassRequest, write_totals
from tests import warm
from tests.bench.corpus import Tree
from tests.capture.adversary import World
from tests.capture.codex_logs import all_cases
from tests.capture.opencode_rig import OpenCodeRig
from tests.capture.opencode_traces import write_sessions
from tests.capture.rig import CodexRig, Rig
from tests.capture.trees import CASES, trees
from tests.harness.opencode.data import Writer
from tests.harness.scanning import claude_logs, codex_logs, differences, opencode_logs, totals_in
from tests.make import seeds, stamp, turn
from tests.queries.asking import PRICES
from tests.server.wire import until

BY = ("model", "day", "project", "session", "hour", "source", "branch")


class PassHere(LogPass):
    """The pass over some logs in this process."""

    def __init__(self, tasks: Sequence[LogTask]) -> None:
        self._tasks, self._process = list(tasks), None

    def logs(self) -> list[LogTask]:
        return self._tasks

    async def write(self, path: Path) -> bool:
        await write_totals(self._tasks, PRICES, path)
        return True


@pytest.fixture(autouse=True)
def _any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(early_totals, "LEAST_BYTES", 0)


@asynccontextmanager
async def early(pipeline: Pipeline, tasks: Sequence[LogTask]) -> AsyncIterator[EarlyTotals]:
    """Totals of these logs from before they are read until the end of the block."""
    is_read = anyio.Event()
    totals = EarlyTotals(pipeline, PassHere(tasks), lambda: PRICES, is_read.is_set)
    async with anyio.create_task_group() as group:
        group.start_soon(totals.run)
        await pipeline.wait_for_listeners()
        assert totals.are_exact
        yield totals
        is_read.set()
    assert not totals.are_exact
    assert list(pipeline.home.index.glob("early*")) == []
    assert not (await pipeline.index.meta())["early_totals"]


async def shown(totals: EarlyTotals) -> dict[str, Any]:
    index = await totals.index()
    assert index is not None
    return await totals_in(index, BY)


async def exact_at_every_cut(rig: Rig, tasks: Sequence[LogTask], seed: int, most: int = 25) -> None:
    """Reads logs in a random order and random pieces, and compares totals after some of the batches with the end."""
    rng = random.Random(seed)
    await rig.open()
    cuts: list[dict[str, Any]] = []
    async with early(rig.pipeline, tasks) as totals:
        cuts.append(await shown(totals))
        paths = rig.files()
        rng.shuffle(paths)
        look_at = set(rng.sample(range(len(paths)), min(most, len(paths))))
        for n, path in enumerate(paths):
            size = rng.choice([300, 2000, 50_000, 4 << 20])
            while (piece := await rig._piece(path, size)) is not None:
                await rig._commit([piece])
                if n in look_at and rng.random() < 0.5:
                    cuts.append(await shown(totals))
                if not piece.more:
                    break
        await rig.flush()
        cuts.append(await shown(totals))
    truth = await totals_in(rig.pipeline.index, BY)
    await rig.close()
    assert truth["model"]["totals"]["turns"]
    for cut in cuts:
        assert differences(cut, truth) == []


@pytest.mark.parametrize("which", CASES)
async def test_logs_of_every_release_of_claude_code(tmp_path: Path, which: Path | None) -> None:
    for projects in trees(tmp_path, which):
        rig = Rig(tmp_path / projects.parent.name / "home", projects)
        await exact_at_every_cut(rig, claude_logs(projects), 1, most=6)


@seeds(3, 40)
async def test_any_mixture_of_logs(tmp_path: Path, seed: int) -> None:
    """Forks, resumed sessions, agents: messages that several logs have, the copies read first or last."""
    World(seed).write(tmp_path / "projects")
    rig = Rig(tmp_path / "home", tmp_path / "projects")
    await exact_at_every_cut(rig, claude_logs(tmp_path / "projects"), seed)


async def test_long_names_are_cut_as_in_the_ledger(tmp_path: Path) -> None:
    """A name of few characters may have too many bytes; both passes count it under the same name."""
    log = tmp_path / "projects" / "-work" / "s1.jsonl"
    log.parent.mkdir(parents=True)
    first = {"type": "user", "uuid": "u1", "message": {"role": "user", "content": "hello"}}
    usage = {"input_tokens": 3, "output_tokens": 5}
    message = {"id": "m1", "role": "assistant", "model": "日" * 100, "content": [], "usage": usage}
    answer = {"type": "assistant", "uuid": "u2", "parentUuid": "u1", "requestId": "r1", "message": message}
    shared = {"sessionId": "s1", "timestamp": "2026-11-18T10:00:00.000Z", "cwd": "/work", "gitBranch": "é" * 200}
    log.write_bytes(b"".join(msgspec.json.encode({**shared, **line}) + b"\n" for line in (first, answer)))
    await exact_at_every_cut(Rig(tmp_path / "home", tmp_path / "projects"), claude_logs(tmp_path / "projects"), 1)


async def test_codex_logs_of_every_release(tmp_path: Path) -> None:
    sessions = all_cases(tmp_path / "codex")
    await exact_at_every_cut(CodexRig(tmp_path / "home", sessions), codex_logs(sessions), 1)


@seeds(2, 10)
async def test_databases_with_forks_of_forks(tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(DatabaseFollower, "read", partialmethod(DatabaseFollower.read, max_bytes=4000))
    writer = Writer(tmp_path / "data" / "opencode.db")
    write_sessions(writer, random.Random(seed), 30)
    rig = OpenCodeRig(tmp_path / "home", tmp_path / "data")
    await rig.open()
    cuts: list[dict[str, Any]] = []
    async with early(rig.pipeline, opencode_logs(tmp_path / "data")) as totals:
        commit = rig.pipeline.commit

        async def committed(batch: Batch) -> int:
            number = await commit(batch)
            cuts.append(await shown(totals))
            return number

        rig.pipeline.commit = committed  # type: ignore[method-assign]
        await rig.settle()
    truth = await totals_in(rig.pipeline.index, BY)
    await rig.close()
    writer.close()
    assert len(cuts) > 3
    for cut in cuts:
        assert differences(cut, truth) == []


async def test_what_is_written_meanwhile_counts_at_once(tmp_path: Path) -> None:
    """Turns that programs push, lines appended to a log, and tags; also after a restart in the middle."""
    Tree(tmp_path).grow(300_000)
    rig = Rig(tmp_path / "home", tmp_path / "projects")
    await rig.open()
    tasks = claude_logs(tmp_path / "projects")
    first, *others = rig.files()
    whole = first.read_bytes()
    first.write_bytes(whole[: len(whole) // 2])
    cut: dict[str, Any] = {}
    for again in (False, True):
        async with early(rig.pipeline, tasks) as totals:
            before = (await shown(totals))["model"]["totals"]["turns"]
            if not again:
                await rig.read(others[0])
                first.write_bytes(whole)
                await rig.read(first)
                await rig.pipeline.commit(Batch(entries=[turn(source="anthropic-api", session_id="pushed")]))
                await rig.pipeline.commit(Batch(entries=[stamp(session="pushed", team="a")]))
                assert (await shown(totals))["model"]["totals"]["turns"] > before + 1
            sources = {row["key"]: row["turns"] for row in (await shown(totals))["source"]["rows"]}
            assert sources["anthropic-api"] == 1
            cut = await shown(totals)
        if not again:
            await rig.pipeline.write_derived(
                rig.pipeline.generation,
                lambda db: db.execute("UPDATE meta SET value = 'wanted' WHERE key = 'early_totals'"),
            )
            await rig.restart()
    await rig.read(*rig.files())
    await rig.flush()
    assert differences(cut, await totals_in(rig.pipeline.index, BY)) == []
    await rig.close()


async def test_a_change_that_cannot_be_added_ends_their_use(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a full disk totals are partial again; they never claim to be exact without that turn."""
    Tree(tmp_path).grow(300_000)
    rig = Rig(tmp_path / "home", tmp_path / "projects")
    await rig.open()
    is_read = anyio.Event()
    totals = EarlyTotals(rig.pipeline, PassHere(claude_logs(tmp_path / "projects")), lambda: PRICES, is_read.is_set)
    monkeypatch.setattr(early_totals, "_LOOK_S", 0.01)
    async with anyio.create_task_group() as group:
        group.start_soon(totals.run)
        await rig.pipeline.wait_for_listeners()
        index = await totals.index()
        assert index is not None
        with monkeypatch.context() as patch:
            patch.setattr(index.writer, "run", _full_disk)
            await rig.pipeline.commit(Batch(entries=[turn(source="anthropic-api", session_id="pushed")]))
            assert await totals.index() is None
        await rig.pipeline.commit(Batch(entries=[turn(source="anthropic-api", session_id="later")]))
        assert await totals.index() is None
        assert not totals.are_exact
        is_read.set()
    assert list(rig.pipeline.home.index.glob("early*")) == []
    await rig.close()


async def _full_disk(_work: object) -> None:
    raise sqlite3.OperationalError("database or disk is full")


async def test_a_client_that_leaves_takes_no_change_with_it(tmp_path: Path) -> None:
    """Its question may be cancelled while the changes since the last one are added."""
    Tree(tmp_path).grow(300_000)
    rig = Rig(tmp_path / "home", tmp_path / "projects")
    await rig.open()
    async with early(rig.pipeline, claude_logs(tmp_path / "projects")) as totals:
        for n in range(20):
            await rig.pipeline.commit(Batch(entries=[turn(f"m{n}", source="anthropic-api", session_id="pushed")]))
        with anyio.move_on_after(0.002):
            await totals.index()
        sources = {row["key"]: row["turns"] for row in (await shown(totals))["source"]["rows"]}
        assert sources["anthropic-api"] == 20
    await rig.read(*rig.files())
    await rig.close()


async def test_a_pass_that_never_ends_is_given_up_when_all_logs_are_read(tmp_path: Path) -> None:
    """Such as one whose worker was killed: old logs wait for it for a limited time only."""

    class Hanging(PassHere):
        ended = False

        async def write(self, path: Path) -> bool:
            await anyio.sleep_forever()
            raise AssertionError

        def stop(self) -> None:
            self.ended = True

    Tree(tmp_path).grow(300_000)
    rig = Rig(tmp_path / "home", tmp_path / "projects")
    await rig.open()
    is_read = anyio.Event()
    hanging = Hanging(claude_logs(tmp_path / "projects"))
    totals = EarlyTotals(rig.pipeline, hanging, lambda: PRICES, is_read.is_set)
    with anyio.fail_after(30):
        async with anyio.create_task_group() as group:
            group.start_soon(totals.run)
            await anyio.sleep(0.1)
            assert not hanging.ended
            is_read.set()
    assert hanging.ended
    assert not (await rig.pipeline.index.meta())["early_totals"]
    await rig.close()


async def test_without_descriptors_the_daemon_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder that cannot be listed, as at the limit of open files, ends neither the totals nor the daemon."""

    def refuse(*_: object) -> None:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    rig = Rig(tmp_path / "home", tmp_path / "projects")
    await rig.open()
    totals = EarlyTotals(rig.pipeline, PassHere([]), lambda: PRICES, lambda: True)
    with monkeypatch.context() as patch:
        patch.setattr(Path, "glob", refuse)
        await totals.run()
    assert not totals.are_exact
    await rig.close()


def test_a_daemon_that_is_killed_while_it_reads(tmp_path: Path) -> None:
    """Every answer that claims to be exact is, in every life of the daemon, and so is the last one."""
    truth = Tree(tmp_path / "claude").grow(6_000_000)
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(tmp_path),
        "RELAYBURN_HOME": str(tmp_path / "home"),
        "CLAUDE_CONFIG_DIR": str(tmp_path / "claude"),
        "CODEX_HOME": str(tmp_path / "none"),
    }
    client = Client(socket_file(str(tmp_path / "home"), environment), patience=60)
    lives: list[list[dict[str, Any]]] = []
    for is_last in (False, False, True):
        command = [sys.executable, "-m", "burnd", "run", "--log-format", "json"]
        daemon = warm.Popen(command, env=environment, stderr=subprocess.DEVNULL)
        exact: list[dict[str, Any]] = []
        lives.append(exact)
        try:
            client.connect(60)
            until(lambda: asked(client, exact, is_last=is_last), 120)  # noqa: B023
        finally:
            client.close()
            daemon.kill()
            daemon.wait()
    assert all(lives)
    answers = [answer for exact in lives for answer in exact]
    last = answers[-1]
    assert last["backfill"]["done"]
    assert len(last["rows"]) > 1
    for answer in answers:
        assert truth.differs(answer["totals"]) == ""
        assert differences(sums_by_session(answer), sums_by_session(last)) == []


def asked(client: Client, exact: list[dict[str, Any]], *, is_last: bool) -> bool:
    """Collects exact answers of this life: two before all logs are read, or of the last life all up to then."""
    try:
        answer: dict[str, Any] = {**client.summary(by="session")}
    except Failed as error:
        assert error.name == "too_long"  # a busy machine  # noqa: PT017
        return False
    backfill = answer["backfill"]
    if backfill["done"] or backfill.get("exact"):
        exact.append(answer)
    return backfill["done"] or (len(exact) >= 2 and not is_last)


def sums_by_session(answer: dict[str, Any]) -> dict[str, Any]:
    """The rows of a summary by session, of each only what totals promise."""
    return {row["key"]: {name: row[name] for name in ("turns", "usage", "costUsd")} for row in answer["rows"]}


def test_the_pass_reports_its_progress(tmp_path: Path) -> None:
    """The process that runs it prints the bytes that are done of all bytes. Writing the index counts, too."""
    Tree(tmp_path / "claude").grow(600_000)
    files = list((tmp_path / "claude" / "projects").rglob("*.jsonl"))
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "CLAUDE_CONFIG_DIR": str(tmp_path / "claude")}
    request = PassRequest(str(tmp_path / "home"), str(tmp_path / "early.db"), ["claude-code"], {})
    command = [sys.executable, "-m", "burnd", "scan", "--totals"]
    done = subprocess.run(command, env=environment, input=msgspec.json.encode(request), capture_output=True, check=True)
    steps = [msgspec.json.decode(line, type=tuple[int, int]) for line in done.stdout.splitlines()]
    size = sum(path.stat().st_size for path in files)
    assert 1 < len(steps) <= 101
    assert steps == sorted(steps)
    assert {total for _, total in steps} == {size}
    assert steps[-1][0] == size
    assert [done for done, _ in steps if size * 0.6 < done < size]
