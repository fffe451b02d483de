"""Reaches, starts and stops the daemon, and waits until it has read old logs."""

from __future__ import annotations

import os
import sys
import time

from burnctl.client import Client
from burnctl.errors import BurnctlError, Failed, NotRunning, VersionMismatch
from burnd.paths import home_folder

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse

    from burnctl.daemon_process import Detached, Service
    from burnd.contract.results.daemon import BackfillBytes, Status

ANSWER_S = 60.0
_PAUSE_S = 0.03
_FIRST_LOOK_S = 1.0
_TOTALS_S = 2.0  # enough to total most logs
_STARTING_S = 2.0
_FEW_CONVERSATIONS = 5


def reach(options: argparse.Namespace, *, causes: bool = False, totals: bool = False) -> Client:
    """A connected client. Starts burnd at a terminal, unless --no-start; raises NotRunning otherwise.

    At a terminal, a report (a verb with --no-wait) waits until old logs are read, with `causes` until costs are
    attributed, with `totals` only until totals are complete. Other verbs wait only if they started burnd.
    """
    if (target := getattr(options, "fleet", None)) is not None:
        from burnctl.fleet_client import FleetClient

        return FleetClient.at(target)
    if getattr(options, "scan", False):
        from burnctl.daemon_process import ScanClient

        return ScanClient()
    # retry for a person while burnd is starting
    client = Client(patience=_STARTING_S if sys.stdout.isatty() else 0.0)
    is_started = False
    try:
        client.connect()
    except NotRunning:
        if not may_start(options):
            raise
        start(client)
        is_started = True
    if sys.stdout.isatty() and sys.stderr.isatty() and not getattr(options, "no_wait", not is_started):
        wait_for_old_logs(client, color=not getattr(options, "no_color", False), totals=totals)
        if causes:
            _wait_for_causes(client)
    if hasattr(options, "no_wait"):
        from burnctl.progress import waiting

        waiting.start()
    return client


def may_start(options: argparse.Namespace) -> bool:
    """True at a terminal, but not in scripts and CI."""
    if getattr(options, "no_start", False) or os.environ.get("CI"):
        return False
    return sys.stdin.isatty() and sys.stdout.isatty()


def start(client: Client) -> None:
    """Starts burnd and waits until it answers. Raises BurnctlError with its own words if it fails."""
    from burnctl.daemon_process import spawn

    daemon = spawn()
    print_note(f"starting burnd {daemon.how} ...")
    await_answer(client, daemon)


def await_answer(client: Client, daemon: Detached | Service) -> None:
    """Waits for a burnd that was just started. Raises BurnctlError if it fails."""
    deadline = time.monotonic() + ANSWER_S
    while True:
        try:
            client.connect()
            break
        except NotRunning:
            daemon.check()
        if time.monotonic() > deadline:
            raise BurnctlError("burnd was started but does not answer", f"see: {daemon.where_it_logs}")
        time.sleep(_PAUSE_S)
    daemon.give_way(int(wait_until_open(client)["daemon"]["pid"]))


def wait_until_open(client: Client) -> Status:
    """Waits until burnd has opened its storage, which may rebuild the index; returns its status."""
    last_state = ""
    while (status := client.status()).get("daemon", {}).get("state") == "starting":
        state = str((status.get("index") or {}).get("state") or "")
        if state != last_state and state != "opening":
            last_state = state
            print_note(f"burnd is starting: {state}")
        time.sleep(_PAUSE_S)
    return status


def wait_for_old_logs(client: Client, *, color: bool = True, totals: bool = False) -> None:
    """Shows a progress bar until old logs are read, reading is blocked, or totals are complete."""
    status = wait_until_open(client)
    deadline = time.monotonic() + (_TOTALS_S if totals else _FIRST_LOOK_S)
    while backfill := unread(status, totals=totals):
        if (backfill.get("total") and not totals) or time.monotonic() > deadline:
            from burnctl.progress import follow_backfill

            follow_backfill(client, status, color=color, totals=totals)
            return
        time.sleep(_PAUSE_S)  # totals are often complete at once; a bar would flash
        status = client.status()


def unread(status: Status, *, totals: bool = False) -> BackfillBytes | None:
    """The backfill of a status; None if it is done or blocked, or `totals` are complete."""
    backfill = status.get("backfill")
    if not backfill or backfill.get("blocked") or (totals and backfill.get("exact")):
        return None
    return backfill


def _wait_for_causes(client: Client) -> None:
    """Shows a progress line until costs are attributed; burnd itself waits for the last few."""
    from burnctl.progress import ProgressLine

    most = 0
    with ProgressLine("attributing costs") as show:
        while True:
            causes = client.status().get("causes") or {}
            pending = causes.get("pending") or 0
            if pending <= _FEW_CONVERSATIONS or causes.get("state") == "ready":
                return
            most = max(most, pending)
            if show is not None:
                show({"done": most - pending, "total": most})
            time.sleep(_PAUSE_S)


def print_note(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


GONE_S = 15.0  # burnd stops within 5 s, and gives up on blocked work after 10 s
_STOP_PAUSE_S = 0.02


def stop(client: Client) -> int:
    """Stops burnd and returns its pid. Raises NotRunning, or BurnctlError if it does not stop."""
    pid = noted_pid()
    try:
        client.connect()
        client.shutdown()
    except VersionMismatch:
        pass  # a daemon of another version stops all the same
    except NotRunning:
        if pid is None or not alive(pid):
            raise
        raise BurnctlError(f"burnd (pid {pid}) runs but does not listen", f"end it with: kill {pid}") from None
    except Failed as error:
        raise BurnctlError(f"burnd refused to stop: {error.message}", _kill(pid)) from None
    finally:
        client.close()
    deadline = time.monotonic() + GONE_S
    while listening(client) or (pid is not None and alive(pid)):
        if time.monotonic() > deadline:
            raise BurnctlError(f"burnd did not stop within {GONE_S:.0f} s", _kill(pid))
        time.sleep(_STOP_PAUSE_S)
    return pid or 0


def listening(client: Client) -> bool:
    try:
        client.connect()
    except NotRunning:
        return False
    finally:
        client.close()
    return True


def noted_pid() -> int | None:
    """The pid noted beside the home's lock."""
    try:
        with open(os.path.join(home_folder(), "burnd.lock"), encoding="ascii") as note:
            text = note.read().strip()
    except (OSError, ValueError):
        return None
    return int(text) if text.isdigit() else None


def alive(pid: int) -> bool:
    """Whether the process runs; a zombie does not."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return False  # another user's process: the pid was reused
    return not _ended(pid)


def _ended(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            return file.read().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return False


def _kill(pid: int | None) -> str:
    return f"end it with: kill {pid}" if pid else "find it with: pgrep -f 'burnd run'"
