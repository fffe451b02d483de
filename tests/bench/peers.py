"""Runs other programs on the same logs, offline, each with its own home."""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

_NPM = ("ccusage@20.0.24", "codeburn@0.9.15", "tokscale@1.4.3", "node@24", "@oven/bun-linux-x64")
_PYPI = "agentsview==0.46.1"
_PATIENCE_S = 600.0


class Peer(NamedTuple):
    """The commands of a program: one that imports logs, if it has one, and one that reports; and its total."""

    name: str
    imports: tuple[str, ...]
    reports: tuple[str, ...]
    dollars: Callable[[Any], float]


class Measured(NamedTuple):
    """Seconds that a program took, and its total in dollars; or `why_not`, the reason why it was not measured."""

    name: str
    first: float = 0.0
    report: float = 0.0
    dollars: float = 0.0
    disk_bytes: int = 0
    why_not: str = ""


PEERS = (
    Peer("ccusage", (), ("ccusage", "claude", "daily", "--json", "--offline"), lambda d: d["totals"]["totalCost"]),
    Peer(
        "codeburn",
        (),
        ("codeburn", "models", "--period", "all", "--format", "json"),
        lambda d: sum(row["costUSD"] for row in d),
    ),
    Peer(
        "tokscale",
        (),
        ("tokscale", "models", "--json", "--claude", "--no-spinner"),
        lambda d: sum(row["cost"] for row in d["entries"]),
    ),
    Peer(
        "agentsview",
        ("agentsview", "sync"),
        ("agentsview", "usage", "daily", "--all", "--json", "--offline", "--no-sync"),
        lambda d: d["totals"]["totalCost"]["microdollars"] / 1e6,
    ),
)


def install(folder: Path) -> None:
    """Installs the programs below a folder, once. One that is missing is reported when it is to run."""
    if (folder / ".tried").exists():
        return
    folder.mkdir(parents=True, exist_ok=True)
    if shutil.which("npm"):
        _quietly(["npm", "install", "--silent", "--no-fund", "--no-audit", *_NPM], folder)
    _quietly([sys.executable, "-m", "venv", str(folder / "python")], folder)
    _quietly([str(folder / "python" / "bin" / "pip"), "install", "--quiet", _PYPI], folder)
    (folder / ".tried").touch()


def _quietly(command: list[str], folder: Path) -> None:
    subprocess.run(command, cwd=folder, check=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def measure(peer: Peer, folder: Path, tree: Path, runs: int) -> Measured:
    """Reads a tree with an empty home, then reports `runs` times."""
    home = folder / f"home-{peer.name}"
    shutil.rmtree(home, ignore_errors=True)
    home.mkdir(parents=True)
    environment = _environment(folder, home, tree)
    if shutil.which(peer.reports[0], path=environment["PATH"]) is None:
        return Measured(peer.name, why_not="could not be installed here")
    begun = time.perf_counter()
    if peer.imports:
        _run(peer.imports, environment)
    answer = _run(peer.reports, environment)
    first = time.perf_counter() - begun
    if answer.returncode:
        return Measured(peer.name, why_not="it has no answer without a network")
    times = []
    for _ in range(runs):
        begun = time.perf_counter()
        answer = _run(peer.reports, environment)
        times.append(time.perf_counter() - begun)
    try:
        dollars = float(peer.dollars(json.loads(answer.stdout)))
    except (ValueError, LookupError, TypeError):
        return Measured(peer.name, why_not="it has no answer without a network")
    return Measured(peer.name, first, statistics.median(times), dollars, _size(home))


def _environment(folder: Path, home: Path, tree: Path) -> dict[str, str]:
    modules = folder / "node_modules"
    places = [modules / "node" / "bin", modules / ".bin", modules / "@oven" / "bun-linux-x64" / "bin"]
    places += [folder / "python" / "bin"]
    return {
        "PATH": os.pathsep.join([*map(str, places), "/usr/bin", "/bin"]),
        "HOME": str(home),
        "XDG_CONFIG_HOME": str(home / "config"),
        "XDG_DATA_HOME": str(home / "data"),
        "XDG_CACHE_HOME": str(home / "cache"),
        "CLAUDE_CONFIG_DIR": str(tree),
        "AGENTSVIEW_NO_DAEMON": "1",
    }


def _run(command: tuple[str, ...], environment: dict[str, str]) -> subprocess.CompletedProcess[bytes]:
    program = shutil.which(command[0], path=environment["PATH"]) or command[0]
    try:
        return subprocess.run(
            [program, *command[1:]], env=environment, check=False, capture_output=True, timeout=_PATIENCE_S
        )
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(command, 124, b"", b"")


def _size(folder: Path) -> int:
    return sum(entry.lstat().st_size for entry in folder.rglob("*") if entry.is_file())
