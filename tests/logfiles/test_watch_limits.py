"""The kernel's limits, lowered in a user namespace."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

FOLDERS = 20

CHILD = """
import asyncio, sys
from pathlib import Path
from tests.logfiles.listening import Listener, append
from burnd.logfiles.watcher import Times, Watcher

root, when = Path(sys.argv[1]), sys.argv[2]

async def main():
    times = Times(roots=0.05, alive=0.05, scan=3600, poll=0.05, retry=3600)
    async with Watcher([str(root)], times=times) as watcher:
        listener = Listener(watcher)
        await listener.step()
        if when == "later":
            assert watcher.watch.state == "watching", watcher.watch.detail
        paths = [append(root / f"d{n}" / "a.jsonl") for n in range(20)]
        await listener.until_seen(paths)
        await listener.until(lambda: watcher.watch.state == "polling")
        await listener.until_seen([append(path.with_name("b.jsonl")) for path in paths])
        print(watcher.watch.detail)

asyncio.run(main())
"""


WITHOUT_DESCRIPTORS = """
import asyncio, os, resource, sys
from pathlib import Path
from tests.logfiles.listening import Listener, append
from burnd.logfiles.watcher import Times, Watcher

root = Path(sys.argv[1])

def taken():
    held = []
    try:
        while True:
            held.append(os.open(os.devnull, os.O_RDONLY))
    except OSError:
        return held

def free(held, count):
    for _ in range(count):
        os.close(held.pop())

async def main():
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
    held = taken()
    free(held, 2)
    times = Times(roots=0.05, alive=0.05, scan=3600, poll=0.05, retry=3600)
    async with Watcher([str(root)], times=times) as watcher:
        listener = Listener(watcher)
        await listener.step()
        await listener.until_seen([append(root / "d" / "a.jsonl")])
        print(watcher.watch.detail, watcher.watch.remedy, sep="\\n")
        for n in range(5):
            await listener.until_seen([append(root / "d" / f"{n}.jsonl")])
        spare = taken()
        assert len(spare) == 2, len(spare)
        free(spare, len(spare))
        free(held, len(held))
        await listener.until(lambda: watcher.watch.state == "watching")

asyncio.run(main())
"""


def run_limited(limit: str, value: int, root: Path, when: str) -> str:
    shell = f'echo {value} > /proc/sys/user/{limit} && exec "$@"'
    done = subprocess.run(
        ["unshare", "-Ur", "sh", "-c", shell, "sh", sys.executable, "-c", CHILD, str(root), when],
        capture_output=True,
        text=True,
        check=False,
        timeout=90,
        cwd=Path(__file__).parents[2],
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.fixture
def namespaces() -> None:
    if shutil.which("unshare") is None:
        pytest.skip("needs the program unshare")
    probe = subprocess.run(
        ["unshare", "-Ur", "sh", "-c", "echo 5 > /proc/sys/user/max_inotify_watches"],
        capture_output=True,
        text=True,
        check=False,
    )
    if probe.returncode != 0:
        pytest.skip(f"user namespaces are not allowed here: {probe.stderr.strip()}")


@pytest.mark.usefixtures("namespaces")
def test_too_few_watches_at_the_start(tmp_path: Path) -> None:
    """F22: burnd starts, all lines arrive, and status names the limit."""
    for number in range(FOLDERS):
        (tmp_path / f"d{number}").mkdir()
    detail = run_limited("max_inotify_watches", 5, tmp_path, "start")
    assert detail.startswith("polling: inotify watch limit (fs.inotify.max_user_watches=")
    assert detail.endswith(", user.max_inotify_watches=5)")


@pytest.mark.usefixtures("namespaces")
def test_too_few_watches_later(tmp_path: Path) -> None:
    """F22: watchdog hides that a new folder could not be watched; it is noticed all the same."""
    detail = run_limited("max_inotify_watches", 5, tmp_path, "later")
    assert detail.startswith("polling: inotify watch limit (fs.inotify.max_user_watches=")


@pytest.mark.usefixtures("namespaces")
def test_no_watch_at_all(tmp_path: Path) -> None:
    """F22: also when not even the root can be watched."""
    detail = run_limited("max_inotify_watches", 0, tmp_path, "start")
    assert detail.startswith("polling: inotify watch limit (")


@pytest.mark.usefixtures("namespaces")
def test_no_instance(tmp_path: Path) -> None:
    """F27: without an inotify instance burnd polls, and status says so."""
    detail = run_limited("max_inotify_instances", 0, tmp_path, "start")
    assert detail.startswith("polling: inotify instance limit (fs.inotify.max_user_instances=")
    assert detail.endswith(", user.max_inotify_instances=0)")


def test_no_descriptors(tmp_path: Path) -> None:
    """F27: burnd polls, names the limit to raise, holds no descriptor, and watches once some are free."""
    command = [sys.executable, "-c", WITHOUT_DESCRIPTORS, str(tmp_path)]
    root = Path(__file__).parents[2]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=90, cwd=root)
    assert done.returncode == 0, done.stderr
    detail, remedy = done.stdout.splitlines()
    assert detail == "polling: no descriptor is free (Too many open files)"
    assert remedy == "raise the limit of open files (ulimit -n)"
