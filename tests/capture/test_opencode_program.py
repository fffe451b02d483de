"""The real program, driven against a scripted model while the source follows its database."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import anyio.to_thread
import pytest

from burnd.harness.opencode.source import OpenCode
from burnd.records import Turn, Usage
from burnd.records.times import wall_ms
from tests.capture.opencode_model import TITLE, ScriptedModel
from tests.capture.opencode_rig import OpenCodeRig, clean_read
from tests.conftest import Opened

pytestmark = pytest.mark.slow
_INSTALL_S, _RUN_S = 300, 180


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> str:
    """opencode from the PATH, or BURND_OPENCODE, or else freshly installed from npm."""
    found = os.environ.get("BURND_OPENCODE") or shutil.which("opencode")
    if found:
        return found
    npm = shutil.which("npm")
    if npm is None:
        pytest.skip("opencode is not installed, and there is no npm to install it with")
    folder = tmp_path_factory.mktemp("npm")
    command = [npm, "install", "--no-audit", "--no-fund", "--prefix", str(folder), "opencode-ai"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_INSTALL_S, check=False)
    except subprocess.TimeoutExpired:
        pytest.skip(f"opencode-ai could not be installed from npm within {_INSTALL_S} s")
    if done.returncode:
        pytest.skip(f"opencode-ai could not be installed from npm: {done.stderr.strip().splitlines()[-1:]}")
    return str(folder / "node_modules" / ".bin" / "opencode")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "notes.txt").write_text("one line of notes\n")
    return folder


@pytest.fixture
def model(project: Path) -> Iterator[ScriptedModel]:
    scripted = ScriptedModel(str(project))
    yield scripted
    scripted.close()


class OpenCodeProgram:
    """Runs opencode in a separate home, with the scripted model as its only network peer."""

    def __init__(self, program: str, home: Path, project: Path, model: ScriptedModel) -> None:
        self.program, self.project = program, project
        self.data = home / "data" / "opencode"
        models = {"scripted": {"name": "Scripted", "tool_call": True, "limit": {"context": 100_000, "output": 8000}}}
        provider = {
            "npm": "@ai-sdk/openai-compatible",
            "name": "Fake",
            "options": {"baseURL": model.address, "apiKey": "none"},
            "models": models,
        }
        settings = {
            "share": "disabled",
            "model": "fake/scripted",
            "small_model": "fake/scripted",
            "provider": {"fake": provider},
        }
        self.environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(home),
            "XDG_DATA_HOME": str(home / "data"),
            "XDG_CONFIG_HOME": str(home / "config"),
            "XDG_CACHE_HOME": str(home / "cache"),
            "XDG_STATE_HOME": str(home / "state"),
            "OPENCODE_DISABLE_AUTOUPDATE": "1",
            "OPENCODE_DISABLE_MODELS_FETCH": "1",
            "OPENCODE_DISABLE_LSP_DOWNLOAD": "1",
            "OPENCODE_DISABLE_DEFAULT_PLUGINS": "1",
            "OPENCODE_CONFIG_CONTENT": json.dumps(settings),
        }

    async def run(self, *arguments: str) -> None:
        with anyio.fail_after(_RUN_S):
            done = await anyio.run_process(
                [self.program, "run", *arguments], env=self.environment, cwd=self.project, check=False
            )
        assert done.returncode == 0, done.stderr.decode()

    async def run_and_kill(self, model: ScriptedModel, *arguments: str) -> None:
        """Kills it, with all it started, while it waits for the rest of an answer."""
        process = await anyio.open_process(
            [self.program, "run", *arguments],
            env=self.environment,
            cwd=self.project,
            start_new_session=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        async with process:
            assert await anyio.to_thread.run_sync(model.hanging.wait, _RUN_S)
            await anyio.sleep(1.0)
            os.killpg(process.pid, signal.SIGKILL)


@asynccontextmanager
async def followed(opened: Opened, data: Path) -> AsyncIterator[OpenCodeRig]:
    """The source at its own pace, by the real clocks."""
    rig = OpenCodeRig(opened.home.root, data)
    rig.pipeline = await opened(now=wall_ms)
    rig.source = OpenCode(rig.pipeline, str(data))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(rig.source.run)
        yield rig
        tasks.cancel_scope.cancel()


async def test_what_the_real_program_spends_is_what_is_recorded(
    program: str, project: Path, model: ScriptedModel, opened: Opened, tmp_path: Path
) -> None:
    """Tools, a failing command, a child session, a fork and a kill: exact to the token, and live equals batch."""
    opencode = OpenCodeProgram(program, tmp_path / "me", project, model)
    async with followed(opened, opencode.data) as rig:
        await opencode.run("[[tools]] read the notes")
        await opencode.run("--continue", "[[task]] let somebody look")
        await opencode.run("--continue", "--fork", "[[hello]] in a fork")
        await opencode.run_and_kill(model, "[[slow]] wait for it")
        await rig.source.flush()
        turns = list(rig.turns().values())
        check_tools(turns)
        check_child(turns)
        assert sum_of(turns) == sum(model.billed, Usage())
        assert Counter(turn.quality for turn in turns) == {"final": len(model.billed), "partial": 1}
        assert len(rig.copies()) == len(model.billed) - 1 - 1  # all but the fork's own, and the child's
        titles = await rig.pipeline.index.rows("SELECT count(*) FROM sessions WHERE harness_title = ?", (TITLE,))
        assert titles[0][0] >= 1
        lived = await rig.outcome()
    await opened.close()
    batch = await clean_read(tmp_path / "clean", opencode.data)
    assert lived["ledger"] == batch["ledger"]
    assert lived["content"] == batch["content"]


def check_tools(turns: list[Turn]) -> None:
    calls = {call.name: call for turn in turns for call in turn.tool_calls}
    assert calls["read"].target is not None
    assert calls["read"].target.endswith("notes.txt")
    assert (calls["read"].is_error, calls["bash"].is_error, calls["bash"].target) == (False, True, "echo")


def check_child(turns: list[Turn]) -> None:
    (child,) = [turn for turn in turns if turn.subagent is not None]
    assert child.subagent is not None
    assert (child.subagent.type, child.subagent.parent_tool_use_id) == ("general", "call_task")


def sum_of(turns: list[Turn]) -> Usage:
    return sum((turn.usage for turn in turns), Usage())
