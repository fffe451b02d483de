"""Random and mutated real inputs: no exception escapes, nothing hangs, memory does not grow."""

from __future__ import annotations

import json
import os
import random
import resource
import sqlite3
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from burnd.paths import Home
from burnd.settings import config
from tests.faults import tally
from tests.faults.mutations import ODD, Mutations, bent_settings, read_bent_ledger
from tests.faults.watched import Watched
from tests.harness.claude_code.transcript import sample_lines as claude_samples
from tests.harness.codex.rollout import CASES as CODEX
from tests.harness.collect import client_versions, lines_of, transcripts
from tests.harness.opencode import data as opencode
from tests.server.documented import furnish, shown
from tests.server.wire import PROJECT, running

SEED = 20261116
MEMORY = 96 << 20  # what may be added by reading: caches have their size, and the first lines fill them
# The long run takes other seeds each time, the same in all its processes; a failure names its own.
RUN = os.environ.get("PYTEST_XDIST_TESTRUNUID") or uuid.uuid4().hex
FIRST = int(os.environ.get("BURND_FUZZ_SEED") or int(RUN[:8], 16))
SEEDS = [SEED, *(pytest.param(FIRST + n, marks=pytest.mark.slow) for n in range(4))]
MUCH = int(os.environ.get("BURND_FUZZ", "10"))  # factor of the long run


def amount(seed: int, few: int) -> int:
    return few if seed == SEED else few * MUCH


def claude_lines() -> list[bytes]:
    real = [line for version in client_versions() for path in transcripts(version) for line in lines_of(path)]
    return [*claude_samples(), *random.Random(1).sample(real, min(len(real), 2000))]


def codex_lines() -> list[bytes]:
    return [line for log in sorted(CODEX.glob("*/input/*")) for line in log.read_bytes().splitlines()]


def well(watched: Watched, before: int, more: int = MEMORY) -> None:
    """No unforeseen error, and about the same memory."""
    status = watched.call("status")
    assert [source for source in status["sources"] if source["restarts"]] == []
    said = watched.daemon.log.read_text(errors="replace")
    for event in ("source.failed", "source.session_failed", "request.failed", "client.failed", "Traceback"):
        assert event not in said, said[-3000:]
    assert watched.daemon.rss() - before < more


@pytest.mark.parametrize("seed", SEEDS)
def test_logs_may_hold_anything(watched: Watched, seed: int) -> None:
    """F11, F12: lines of Claude Code's and Codex's, bent in every way, in many files: read, counted, survived."""
    before = watched.daemon.rss()
    count = amount(seed, 30)
    claude, codex = Mutations(claude_lines(), seed), Mutations(codex_lines(), seed)
    for n in range(count):
        watched.append(f"fuzz-{seed}-{n}", b"".join(line + b"\n" for line in claude.lines(40)))
        path = watched.home.root.parent / ".codex" / "sessions" / "2026" / f"rollout-{seed}-{n}.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"".join(line + b"\n" for line in codex.lines(40)))
    watched.flush()
    well(watched, before)
    tally.bad_inputs(count * 80)


@pytest.mark.parametrize("seed", SEEDS)
def test_rows_may_hold_anything(watched: Watched, seed: int) -> None:
    """F35, F36: opencode rows with mutated JSON and columns; the source continues."""
    before = watched.daemon.rss()
    path = watched.home.root.parent / ".local" / "share" / "opencode" / f"opencode-{seed}.db"
    count = amount(seed, 60)
    with closing(opencode.Writer(path)) as writer:
        for n in range(count):
            _story(writer, f"ses_{n}", f"m{n}")
        watched.flush()
        _bend(writer.db, Mutations([b"{}"], seed))
        watched.flush()
    well(watched, before)
    tally.bad_inputs(count * 7)


def _story(writer: opencode.Writer, session: str, name: str) -> None:
    writer.session(session)
    writer.user(f"{name}u", session, "go")
    parts = (opencode.reasoning("hm"), opencode.tool(f"{name}c", "bash", {"command": "ls"}), opencode.text("done"))
    writer.step(f"{name}a", session, f"{name}u", *parts)


def _bend(db: sqlite3.Connection, mutations: Mutations) -> None:
    chance = mutations.chance
    for table, columns in (("message", ("time_created",)), ("part", ()), ("session", ("title", "directory", "agent"))):
        for (number,) in db.execute(f"SELECT rowid FROM {table}").fetchall():
            if table != "session" and chance.random() < 0.8:
                (data,) = db.execute(f"SELECT data FROM {table} WHERE rowid = ?", (number,)).fetchone()
                bent = chance.choice((mutations.odd, mutations.odd, mutations.flipped, mutations.cut))(data.encode())
                db.execute(
                    f"UPDATE {table} SET data = ?, time_updated = time_updated + 5000 WHERE rowid = ?", (bent, number)
                )
            for column in columns:
                value = chance.choice([odd for odd in ODD if isinstance(odd, str | float) and odd != "\ud800"])
                if chance.random() < 0.3:
                    db.execute(f"UPDATE {table} SET {column} = ? WHERE rowid = ?", (value, number))


@pytest.fixture(scope="module")
def furnished(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    home = Home(tmp_path_factory.mktemp("furnished") / "home")
    furnish(home)
    with running(home) as daemon:
        watched = Watched(home, daemon)
        watched.flush()
        yield watched


@pytest.mark.parametrize("seed", SEEDS)
def test_requests_may_say_anything(furnished: Watched, seed: int) -> None:
    """F69: valid requests of every method with random values replaced: an answer or an error, never an internal error
    or silence."""
    before = furnished.daemon.rss()
    asked = [one.request for one in shown() if one.method not in ("shutdown", "tail", "rebuild")]
    mutations = Mutations([b"{}"], seed)
    for n in range(amount(seed, 300)):
        request = json.loads(json.dumps(mutations.chance.choice(asked)))
        request["id"] = n
        for _ in range(mutations.chance.randrange(1, 4)):
            mutations.odd_value(request.setdefault("params", {"limit": 1}))
        _ask(furnished, request)
    well(furnished, before)
    tally.bad_inputs(amount(seed, 300))


def _ask(watched: Watched, request: dict[str, Any]) -> None:
    with watched.daemon.wire(60) as wire:
        wire.send(json.dumps(request).encode() + b"\n")
        while (answer := wire.line()) is not None and "method" in answer:
            pass
    assert answer is not None, request
    error = answer.get("error")
    assert error is None or error["data"]["name"] != "failed", (request, error)


@pytest.mark.parametrize("seed", SEEDS)
def test_request_lines_may_be_any_bytes(furnished: Watched, seed: int) -> None:
    """F69, P8: bytes cut, flipped and mixed, twenty lines to a connection: at most one answer each, the line after them
    is answered as ever, and memory stays what it was after the first of them."""
    asked = [json.dumps(one.request).encode() for one in shown() if one.method not in ("shutdown", "tail", "rebuild")]
    mutations = Mutations(asked, seed)
    for _ in range(amount(seed, 5)):
        _send(furnished, list(mutations.lines(20)))
    before = furnished.daemon.rss()
    for _ in range(amount(seed, 10)):
        _send(furnished, list(mutations.lines(20)))
    well(furnished, before, 16 << 20)
    tally.bad_inputs(amount(seed, 15) * 20)


def _send(watched: Watched, lines: list[bytes]) -> None:
    """Sends lines that may be anything, and a good request behind them."""
    last = b'{"jsonrpc":"2.0","id":"last","method":"config.show"}'
    answers = list[dict[str, Any]]()
    with watched.daemon.wire(60) as wire:
        wire.send(b"".join(line + b"\n" for line in [*lines, last]))
        while not answers or answers[-1].get("id") != "last":
            answer = wire.line()
            assert answer is not None, lines
            answers += [answer] if "method" not in answer else []
    assert "result" in answers[-1], lines
    assert len(answers) <= len(lines) + 1, lines
    assert [one for one in answers if "error" in one and one["error"]["data"]["name"] == "failed"] == [], lines


@pytest.mark.parametrize("seed", SEEDS)
async def test_a_ledger_may_hold_anything(tmp_path: Path, seed: int) -> None:
    """F46: lines of a real ledger, bent in every way: read to the end, and the index is made of what can be used."""
    for n in range(amount(seed, 4)):
        tally.bad_inputs(await read_bent_ledger(tmp_path / f"{n}", seed + n))


@pytest.mark.parametrize("seed", SEEDS)
def test_settings_may_say_anything(tmp_path: Path, seed: int) -> None:
    """F81: a settings file bent in every way is understood or refused, with the file and a reason."""
    bent_settings(tmp_path / "home", Mutations([config.template().encode()], seed), amount(seed, 300))
    tally.bad_inputs(amount(seed, 300))


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
def test_bent_ledgers_and_settings_leave_nothing_behind() -> None:
    """F46, F81, P8: forty times over in one process that may not have more than 1 GB: no hang, and no growth."""
    command = [sys.executable, "-m", "tests.faults.fuzz_rounds", str(FIRST)]

    def limited() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))

    done = subprocess.run(
        command, cwd=PROJECT, capture_output=True, text=True, check=True, timeout=600, preexec_fn=limited
    )
    early, late = map(int, done.stdout.split())
    tally.note(f"forty bent ledgers and 2,000 settings: {late - early:,} bytes more than after five, seed {FIRST}")
    assert late - early < 16 << 20
    tally.bad_inputs(41 * 550)
