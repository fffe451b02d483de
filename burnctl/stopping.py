"""Ending the daemon: it is asked, and watched until it is gone; when it does not go, its pid is named."""

from __future__ import annotations

import contextlib
import os
import time

from burnctl.client import Client
from burnctl.errors import BurnctlError, Failed, NotRunning, VersionMismatch
from burnd.paths import home_folder

GONE_S = 15.0  # burnd stops within 5 s; 10 s is when it gives up on what still holds it
_PAUSE_S = 0.02


def stop(client: Client) -> int:
    """Stops burnd and returns the pid it had. Raises NotRunning, or BurnctlError naming the pid when it does not go."""
    pid = noted_pid()
    try:
        client.connect()
        # A daemon of another version has stopped all the same.
        with contextlib.suppress(VersionMismatch):
            client.shutdown()
    except NotRunning:
        if pid is None or not alive(pid):
            raise
        raise BurnctlError(f"burnd (pid {pid}) runs but does not listen", f"end it with: kill {pid}") from None
    except Failed as error:
        raise BurnctlError(f"burnd would not stop: {error.message}", _kill(pid)) from None
    finally:
        client.close()
    _wait_until_gone(client, pid)
    return pid or 0


def _wait_until_gone(client: Client, pid: int | None) -> None:
    deadline = time.monotonic() + GONE_S
    while listening(client) or (pid is not None and alive(pid)):
        if time.monotonic() > deadline:
            raise BurnctlError(f"burnd was told to stop and has not after {GONE_S:.0f} s", _kill(pid))
        time.sleep(_PAUSE_S)


def listening(client: Client) -> bool:
    try:
        client.connect()
    except NotRunning:
        return False
    finally:
        client.close()
    return True


def noted_pid() -> int | None:
    """Who has the home, by the note beside its lock."""
    try:
        with open(os.path.join(home_folder(), "burnd.lock"), encoding="ascii") as note:
            text = note.read().strip()
    except (OSError, ValueError):
        return None
    return int(text) if text.isdigit() else None


def alive(pid: int) -> bool:
    """Whether that process still runs; one that has ended and waits for its parent does not."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return False  # somebody else's: the number was given out again
    return not _ended(pid)


def _ended(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            return file.read().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return False


def _kill(pid: int | None) -> str:
    return f"end it with: kill {pid}" if pid else "find it with: pgrep -f 'burnd run'"
