"""The real program, driven against a scripted model while the source follows its rollouts."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import anyio.to_thread
import pytest

from burnd.harness.codex.product import PRODUCT
from burnd.harness.codex.source import CodexLogs
from burnd.logfiles.follower import LogFollower
from burnd.recording.pipeline import Pipeline
from burnd.records import Event, Quota, Session, Turn, Usage
from burnd.records.times import wall_ms
from tests.capture.codex_model import ScriptedModel
from tests.capture.rig import CodexRig
from tests.capture.trees import clean_read
from tests.conftest import Opened

pytestmark = pytest.mark.slow
_INSTALL_S, _RUN_S = 300, 120
# Each writes its logs in another way: the meter before the items, after them, after the results; forks that repeat
# all, that repeat only events, that repeat nothing.
RELEASES = ["0.42.0", "0.117.0", "0.145.0", "latest"]


@pytest.fixture(scope="module", params=RELEASES)
def program(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A release of Codex: below the folder BURND_CODEX by its number, or else freshly installed from npm."""
    release = request.param
    kept = Path(os.environ.get("BURND_CODEX", "/nowhere")) / release / "node_modules" / ".bin" / "codex"
    if kept.exists():
        return str(kept)
    npm = shutil.which("npm")
    if npm is None:
        pytest.skip("there is no npm to install Codex with")
    folder = tmp_path_factory.mktemp("npm")
    command = [npm, "install", "--no-audit", "--no-fund", "--prefix", str(folder), f"@openai/codex@{release}"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_INSTALL_S, check=False)
    except subprocess.TimeoutExpired:
        pytest.skip(f"Codex could not be installed from npm within {_INSTALL_S} s")
    if done.returncode:
        pytest.skip(f"Codex could not be installed from npm: {done.stderr.strip().splitlines()[-1:]}")
    return str(folder / "node_modules" / ".bin" / "codex")


@pytest.fixture
def model() -> Iterator[ScriptedModel]:
    scripted = ScriptedModel()
    yield scripted
    scripted.close()


class CodexProgram:
    """Runs Codex in a separate home, with the scripted model as its only network peer."""

    def __init__(self, program: str, home: Path, model: ScriptedModel) -> None:
        self.program, self.home, self.project = program, home / "codex", home / "project"
        self.project.mkdir(parents=True)
        self.home.mkdir()
        (self.project / "notes.txt").write_text("one line of notes\n")
        provider = f'[model_providers.fake]\nname = "Fake"\nbase_url = "{model.address}"\nwire_api = "responses"\n'
        policy = 'approval_policy = "never"\nsandbox_mode = "danger-full-access"\n'
        chosen = 'model = "gpt-5.1-codex"\nmodel_provider = "fake"\n'
        retries = "request_max_retries = 0\nstream_max_retries = 0\n"
        (self.home / "config.toml").write_text(chosen + policy + provider + retries)
        self.environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(home),
            "CODEX_HOME": str(self.home),
            "OPENAI_API_KEY": "none",
        }

    async def run(self, *arguments: str) -> None:
        with anyio.fail_after(_RUN_S):
            done = await anyio.run_process(
                [self.program, "exec", *arguments],
                env=self.environment,
                cwd=self.project,
                check=False,
                stdin=subprocess.DEVNULL,
            )
        assert done.returncode == 0, done.stderr.decode()

    async def run_and_stop(self, model: ScriptedModel, how: signal.Signals, *arguments: str) -> None:
        """Stops it, with all it started, while it waits for the rest of an answer."""
        model.hanging.clear()
        process = await anyio.open_process(
            [self.program, "exec", *arguments],
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
            os.killpg(process.pid, how)
            with anyio.move_on_after(20):
                await process.wait()

    def newest(self) -> str:
        """The thread of the log that was begun last."""
        return max(path.name for path in self.home.rglob("rollout-*.jsonl"))[-42:-6]

    def can(self, *words: str) -> bool:
        """True if this release has the command."""
        done = subprocess.run(
            [self.program, *words, "--help"], env=self.environment, capture_output=True, text=True, check=False
        )
        return done.returncode == 0 and f"codex {' '.join(words)}" in done.stdout


@asynccontextmanager
async def followed(opened: Opened, home: Path) -> AsyncIterator[tuple[LogFollower, Pipeline]]:
    """The source at its own pace, by the real clocks."""
    pipeline = await opened(now=wall_ms)
    source = LogFollower(CodexLogs(), PRODUCT.logs({"CODEX_HOME": str(home)}, str(home / "nobody")), pipeline)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(source.run)
        yield source, pipeline
        tasks.cancel_scope.cancel()


async def test_what_the_real_program_spends_is_what_is_recorded(
    program: str, model: ScriptedModel, opened: Opened, tmp_path: Path
) -> None:
    """Tools, a failing command, agents, forks, an interrupt and a kill: exact to the token, and live equals batch."""
    codex = CodexProgram(program, tmp_path / "me", model)
    every = ("--skip-git-repo-check",)
    async with followed(opened, codex.home) as (source, pipeline):
        await codex.run(*every, "[[tools]] read the notes")
        first = codex.newest()
        has_agents = False
        if codex.can("exec", "resume"):
            await codex.run(*every, "resume", first, "[[agent]] let somebody look")
            has_agents = codex.newest() != first
        if codex.can("exec", "fork"):
            await codex.run(*every, "fork", first, "[[hello]] in a fork")
        await codex.run_and_stop(model, signal.SIGINT, *every, "[[slow]] wait for it")
        await codex.run_and_stop(model, signal.SIGKILL, *every, "[[slow]] wait for it again")
        await source.flush()
        entries = [logged.entry for logged in pipeline.journal.read()]
        turns = {entry.message_id: entry for entry in entries if isinstance(entry, Turn)}
        assert sum((turn.usage for turn in turns.values()), Usage()) == sum(model.billed, Usage())
        assert Counter(turn.quality for turn in turns.values())["final"] == len(model.billed)
        assert {turn.model for turn in turns.values()} == {"gpt-5.1-codex"}
        check_tools(list(turns.values()))
        check_beside(entries, has_agents=has_agents)
        await check_clean_read(pipeline, codex.home, tmp_path)


def check_tools(turns: list[Turn]) -> None:
    calls = {call.id: call for turn in turns for call in turn.tool_calls}
    assert (calls["c1"].target, calls["c1"].is_error) == ("cat", False)
    assert (calls["c2"].target, calls["c2"].is_error) == ("echo", True)


def check_beside(entries: Sequence[object], *, has_agents: bool) -> None:
    windows = {entry.window for entry in entries if isinstance(entry, Quota)}
    assert windows == {"5h", "7d"}
    agents = [entry for entry in entries if isinstance(entry, Session) and entry.parent_session_id]
    assert bool(agents) == has_agents
    linked = [turn for turn in entries if isinstance(turn, Turn) and turn.subagent is not None]
    assert all(turn.subagent.parent_tool_use_id == "a1" for turn in linked if turn.subagent is not None)
    assert all(entry.name == "interrupt" for entry in entries if isinstance(entry, Event))


async def check_clean_read(pipeline: Pipeline, home: Path, tmp_path: Path) -> None:
    """Records of the live run equal those of one clean read of the finished logs."""
    rig = CodexRig(pipeline.home.root, home)
    rig.pipeline = pipeline
    lived = await rig.outcome()
    batch = await clean_read(tmp_path / "clean", home / "sessions", CodexRig)
    assert lived["ledger"] == batch["ledger"]
    assert lived["content"] == batch["content"]
