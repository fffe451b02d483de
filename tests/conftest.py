"""Fixtures every room of tests may use: a home, and a pipeline on it."""

from __future__ import annotations

import contextlib
import gc
import importlib
import inspect
import os
import signal
import sys
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from burnd.ledger.content import INLINE_BYTES
from burnd.ledger.content_modes import ContentModes
from burnd.ledger.files import HomeLock, prepare_home
from burnd.paths import Home
from burnd.recording.pipeline import Pipeline, open_pipeline
from tests import turning
from tests.make import START_MS
from tests.queries.corpora import Corpora

# The parent may ignore signals, as `nohup` and background jobs do; child processes must not.
for _number in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP, signal.SIGTERM):
    if signal.getsignal(_number) == signal.SIG_IGN:
        signal.signal(_number, signal.default_int_handler if _number == signal.SIGINT else signal.SIG_DFL)


_SHARED_MEMORY = "/dev/shm"
_ENOUGH_BYTES = 4 << 30
_MANY_FILES = 50
_PROJECT = Path(__file__).parents[1]


def _keep_files_in_memory() -> None:
    """The default run writes tens of thousands of small files, and a disk takes a moment to remove each."""
    is_at_length = {"BURND_THOROUGH", "BURND_TALLY"} & os.environ.keys()
    if sys.platform != "linux" or "TMPDIR" in os.environ or is_at_length:
        return
    if not os.path.ismount(_SHARED_MEMORY) or not os.access(_SHARED_MEMORY, os.W_OK):
        return
    found = os.statvfs(_SHARED_MEMORY)
    if found.f_bavail * found.f_frsize >= _ENOUGH_BYTES and not found.f_flag & os.ST_NOEXEC:
        os.environ["TMPDIR"] = tempfile.tempdir = _SHARED_MEMORY


_keep_files_in_memory()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_setupnodes() -> None:
    """Compiles the test files of a fresh clone in a process per core: every worker would compile all of them."""
    stale = [path for path in sorted(Path(__file__).parent.rglob("test_*.py")) if not _is_compiled(path)]
    if len(stale) < _MANY_FILES:
        return
    cores = os.cpu_count() or 1
    shares = [_compile(stale[first::cores]) for first in range(cores)]
    for pid in shares:
        os.waitpid(pid, 0)


def _is_compiled(path: Path) -> bool:
    written = path.stat().st_mtime
    return any(pyc.stat().st_mtime >= written for pyc in path.parent.glob(f"__pycache__/{path.stem}.*-pytest-*.pyc"))


def _compile(paths: list[Path]) -> int:
    """Imports them in a fork, through pytest, which saves what it compiles. A fault shows when they are collected."""
    pid = os.fork()
    if pid == 0:
        for path in paths:
            with contextlib.suppress(BaseException):
                importlib.import_module(".".join(path.relative_to(_PROJECT).with_suffix("").parts))
        os._exit(0)
    return pid


gc.disable()  # until all tests are collected


def pytest_collection_finish() -> None:
    """Collected tests live for the whole run, so exclude them from garbage collection."""
    gc.freeze()
    gc.enable()


# No deadline: the time of one example depends on the load of the machine. The default run tries the same examples
# every time. The thorough run draws new ones.
settings.register_profile("patient", deadline=None, max_examples=15, derandomize=True, database=None)
settings.register_profile("thorough", deadline=None, max_examples=300)
settings.load_profile("thorough" if os.environ.get("BURND_THOROUGH") else "patient")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """F76: a coroutine of burnd's that holds up the loop for long fails the test in which it did."""
    for item in items:
        if isinstance(item, pytest.Function) and inspect.iscoroutinefunction(item.obj):
            item.obj = turning.watched(item.obj)


@pytest.fixture(scope="session")
def corpora(tmp_path_factory: pytest.TempPathFactory) -> Corpora:
    """Generated corpora that all workers of a run share."""
    own = tmp_path_factory.getbasetemp()
    return Corpora((own.parent if "PYTEST_XDIST_WORKER" in os.environ else own) / "corpora")


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path / "home")


class Opened:
    """Opens pipelines on one home, one after the other, as restarts of a daemon would."""

    def __init__(self, home: Home) -> None:
        self.home = home
        self.pipeline: Pipeline | None = None
        self._lock: HomeLock | None = None

    async def __call__(self, mode: Any = "full", **options: Any) -> Pipeline:
        await self.close()
        prepare_home(self.home.root)
        self._lock = HomeLock(self.home.lock)
        facts: dict[str, Any] = {"inline_bytes": INLINE_BYTES, "reserve": 0, "now": lambda: START_MS + 3_600_000}
        self.pipeline = await open_pipeline(self.home, ContentModes(mode), **facts | options)
        return self.pipeline

    async def close(self) -> None:
        if self.pipeline is not None:
            await self.pipeline.close()
            self.pipeline = None
        if self._lock is not None:
            self._lock.release()
            self._lock = None


@pytest.fixture
async def opened(home: Home) -> AsyncIterator[Opened]:
    opener = Opened(home)
    yield opener
    await opener.close()
