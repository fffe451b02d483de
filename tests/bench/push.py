"""Measures `burnctl push` to a folder: `python -m tests.bench.push [TURNS]`.

Prints processor time of burnctl and of the daemon, and the memory that each needed at most: for everything, again
without a change, after one more tag, for the comparison of totals, and for reports over the folder.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import msgspec

from burnctl.push.schema import TABLES
from burnd.paths import Home
from burnd.records import Turn
from burnd.records.codec import encode
from tests.attribution.bench import session
from tests.burnctl.runner import BURNCTL, environment
from tests.server.wire import Daemon, running, until

TURNS_A_SESSION = 250
_PATIENCE_S = 3600.0


class Run(NamedTuple):
    """A run of burnctl: its output, and processor time and memory of it and of the daemon."""

    output: str
    wall_s: float
    own_s: float
    own_mb: float
    daemon_s: float
    daemon_mb: float


def write_ledger(home: Home, turns: int) -> None:
    home.root.mkdir(mode=0o700)
    one = [entry for entry in session(TURNS_A_SESSION) if isinstance(entry, Turn)]
    with open(os.open(home.ledger, os.O_WRONLY | os.O_CREAT, 0o600), "wb") as file:
        for number in range(-(-turns // TURNS_A_SESSION)):
            facts = {"session_id": f"s{number}", "model": "claude-sonnet-4-5", "project": f"/code/{number % 20}"}
            named = (
                msgspec.structs.replace(entry, message_id=f"{number}-{entry.message_id}", **facts) for entry in one
            )
            file.writelines(map(encode, named))


def measured(daemon: Daemon, home: Home, *words: str) -> Run:
    before, begun = _daemon_cpu(daemon), time.monotonic()
    child = subprocess.Popen([*BURNCTL, *words], env=environment(home.root), stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    output = child.stdout.read().strip()
    _, code, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(code)
    assert child.returncode == 0, output
    wall = time.monotonic() - begun
    own = usage.ru_utime + usage.ru_stime
    return Run(output, wall, own, usage.ru_maxrss / 1024, _daemon_cpu(daemon) - before, daemon.rss() / 1e6)


def _daemon_cpu(daemon: Daemon) -> float:
    fields = Path(f"/proc/{daemon.process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _is_explained(daemon: Daemon) -> bool:
    with daemon.wire() as wire:
        return bool(wire.call("status")["causes"]["state"] == "ready")


def main(turns: int) -> None:
    with tempfile.TemporaryDirectory() as temporary:
        home, folder = Home(Path(temporary) / "home"), Path(temporary) / "there"
        write_ledger(home, turns)
        with running(home, ready=False) as daemon:
            until(lambda: daemon.state() == "ready", _PATIENCE_S, daemon.why)
            until(lambda: _is_explained(daemon), _PATIENCE_S, daemon.why)
            print(f"{turns:,} turns; the daemon has {daemon.rss() / 1e6:.0f} MB")
            _show("everything", measured(daemon, home, "push", str(folder)))
            _show("no change", measured(daemon, home, "push", str(folder)))
            with daemon.wire() as wire:
                wire.call("stamp", selector={"sessionId": "s0"}, enrichment={"step": "plan"})
                wire.call("flush")
            _show("one more tag", measured(daemon, home, "push", str(folder)))
            _show("--check", measured(daemon, home, "push", str(folder), "--check"))
            _show("--compact", measured(daemon, home, "push", str(folder), "--compact"))
            for report in (("summary",), ("daily",), ("models",), ("hotspots", "--by", "tool")):
                _show(" ".join(report), measured(daemon, home, *report, "--fleet", str(folder), "--json"))
            for table in TABLES:
                files = [path.stat().st_size for path in folder.glob(f"{table}/*/*.parquet")]
                print(f"{table}: {len(files)} files, {sum(files) / turns:.0f} bytes a turn")


def _show(name: str, run: Run) -> None:
    print(
        f"{name}: {run.wall_s:.1f} s; burnctl {run.own_s:.1f} s of processor time and {run.own_mb:.0f} MB, "
        f"the daemon {run.daemon_s:.1f} s and {run.daemon_mb:.0f} MB afterwards ({run.output[:80]})",
        flush=True,
    )


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 200_000)
