"""Reports from the logs alone are those of a daemon that has read them, and leave nothing behind."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from burnd import protocol
from burnd.paths import Home
from burnd.server import scan
from tests.bench.corpus import Tree
from tests.capture.rig import Rig
from tests.harness.codex.rollout import Rollout, says
from tests.harness.scanning import differences
from tests.queries.asking import ask_summary

FILTERS: tuple[dict[str, Any], ...] = (
    {"by": "day", "tz": "Asia/Kathmandu"},
    {"by": "project", "since": "2026-05-28T21:07:00Z"},
    {"by": "session", "model": "claude-sonnet-4-5-20250929"},
    {"by": "hour", "since": "2026-05-28T22:00:01Z", "until": "2026-05-29T05:59:31Z"},
    {"by": "month", "project": "/home/dev/work/project-1"},
)


@pytest.fixture
def logs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    Tree(tmp_path / "claude").grow(1_200_000)
    for name in ("CODEX_HOME", "XDG_DATA_HOME", "XDG_CONFIG_HOME", "OPENCODE_DB"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "user"))
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path / "claude"))
    return tmp_path / "claude" / "projects"


async def ask(home: Path, method: str = "summary", **params: Any) -> dict[str, Any]:
    request, answers = {"jsonrpc": "2.0", "id": 7, "method": method, "params": params}, io.BytesIO()
    await scan.serve(Home(home), io.BytesIO(msgspec.json.encode(request)), answers)
    answer: dict[str, Any] = msgspec.json.decode(answers.getvalue())
    return answer


async def test_every_filter_gives_what_the_daemon_gives(tmp_path: Path, logs: Path) -> None:
    rig = Rig(tmp_path / "home", logs)
    await rig.open()
    await rig.read(*rig.files(), pieces_at_once=8)
    await rig.flush()
    for params in FILTERS:
        recorded = msgspec.to_builtins(await ask_summary(rig.pipeline.index, **params))
        scanned = (await ask(tmp_path / "none", **params))["result"]
        assert scanned.pop("backfill")["done"]
        assert scanned.pop("version") == protocol.VERSION
        for row in (*recorded["rows"], *scanned["rows"]):
            for name in ("title", "createdAt", "updatedAt"):
                row.pop(name, None)
        assert recorded["rows"]
        assert differences(scanned, json.loads(json.dumps(recorded))) == []
    await rig.close()
    assert not (tmp_path / "none").exists()


async def test_what_the_logs_alone_cannot_answer_is_refused(tmp_path: Path, logs: Path) -> None:
    for params in ({"by": "activity"}, {"by": "tag:team"}, {"quality": True}, {"workflow": "w"}, {"by": "nonsense"}):
        assert (await ask(tmp_path / "none", **params))["error"]["code"] == protocol.BAD_PARAMS, params
    assert (await ask(tmp_path / "none", "waste"))["error"]["code"] == protocol.NO_SUCH_METHOD


async def test_sessions_are_listed_with_their_costs(tmp_path: Path, logs: Path) -> None:
    listed = (await ask(tmp_path / "none", "sessions.list", costs=True, limit=200))["result"]["sessions"]
    summed = (await ask(tmp_path / "none", by="session"))["result"]["rows"]
    costs = {session["sessionId"]: session["costUsd"] for session in listed}
    assert costs == {row["key"]: row["costUsd"] for row in summed}
    assert all(session["project"] and session["updatedAt"] for session in listed)
    assert (await ask(tmp_path / "none", "sessions.list", agent="build"))["error"]["code"] == protocol.BAD_PARAMS


async def test_requests_for_names_of_threads(tmp_path: Path, logs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file of names counts for threads that have a log, once with what the log itself states."""
    codex = tmp_path / "codex"
    threads = [Rollout(number=number) for number in (1, 2)]
    for n, thread in enumerate(threads):
        thread.task()
        thread.prompt("look")
        if n:
            thread.event("thread_name_updated", thread_name="A look")
        thread.item(says("hello"))
        thread.meter(100, 0, 10, 0)
        path = codex / "sessions" / "2026" / f"rollout-2026-11-16T10-00-00-{thread.thread}.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"".join(line + b"\n" for line in thread.lines))
    names = [*(thread.thread for thread in threads), Rollout(number=3).thread]
    lines = [{"id": name, "thread_name": "A look", "updated_at": "2026-11-16T10:00:30Z"} for name in names]
    (codex / "session_index.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    monkeypatch.setenv("CODEX_HOME", str(codex))
    answer = (await ask(tmp_path / "none", source="codex"))["result"]
    assert answer["totals"]["turns"] == 2
    assert answer["unlogged"]["requests"] == 2


def test_the_command_needs_no_daemon_and_writes_nothing(tmp_path: Path, logs: Path) -> None:
    environment = {**os.environ, "HOME": str(tmp_path / "user"), "RELAYBURN_HOME": str(tmp_path / "user" / "home")}
    (tmp_path / "user").mkdir()
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    command = [sys.executable, "-m", "burnctl", "daily", "--all", "--scan"]
    table = subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout
    found = json.loads(
        subprocess.run([*command, "--json"], env=environment, check=True, capture_output=True, text=True).stdout
    )
    assert "opus-4-5" in table
    assert found["totals"]["turns"] > 100
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == before
