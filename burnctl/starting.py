"""Reaching the daemon: who may start it, and waiting until it answers and has taken in old logs."""

from __future__ import annotations

import os
import sys
import time

from burnctl.client import Client
from burnctl.errors import BurnctlError, NotRunning

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from typing import Any

    from burnctl.spawning import Detached, Service

ANSWER_S = 60.0
_PAUSE_S = 0.03
_FIRST_LOOK_S = 1.0
_STARTING_S = 2.0


def reach(options: argparse.Namespace) -> Client:
    """A client that is connected; for a person at a terminal who did not refuse, burnd is started. Else: NotRunning."""
    # A person who asks while burnd is just starting would only ask again.
    client = Client(patience=_STARTING_S if sys.stdout.isatty() else 0.0)
    try:
        client.connect()
    except NotRunning:
        if not may_start(options):
            raise
        start(client)
        wait_for_old_logs(client, color=not getattr(options, "no_color", False))
    return client


def may_start(options: argparse.Namespace) -> bool:
    """Whether somebody is looking who would want the daemon started; scripts and CI decide for themselves."""
    if getattr(options, "no_start", False) or os.environ.get("CI"):
        return False
    return sys.stdin.isatty() and sys.stdout.isatty()


def start(client: Client) -> None:
    """Starts burnd and returns when it can be asked. Raises BurnctlError, in the daemon's own words, when it cannot."""
    from burnctl.spawning import spawn

    daemon = spawn()
    say(f"starting burnd {daemon.how} ...")
    await_answer(client, daemon)


def await_answer(client: Client, daemon: Detached | Service) -> None:
    """Returns when a burnd that was just started can be asked. Raises BurnctlError when it cannot."""
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
    daemon.give_way(_wait_until_open(client))


def _wait_until_open(client: Client) -> int:
    """The pid of burnd, when its storage is open: that takes long where the index must be built anew."""
    said = ""
    while (status := client.status()).get("daemon", {}).get("state") == "starting":
        state = str((status.get("index") or {}).get("state") or "")
        if state != said and state != "opening":
            said = state
            say(f"burnd is starting: {state}")
        time.sleep(_PAUSE_S)
    return int(status["daemon"]["pid"])


def wait_for_old_logs(client: Client, *, color: bool = True) -> None:
    """Shows how far burnd has come with the logs that were there before it, until it is through."""
    deadline = time.monotonic() + _FIRST_LOOK_S
    while not (status := client.status()).get("backfill"):
        # What there is to read is known a moment after the sources have begun.
        sources = status.get("sources") or []
        if time.monotonic() > deadline or (sources and all(map(_has_begun, sources))):
            return
        time.sleep(_PAUSE_S)
    from burnctl.progress import follow

    follow(client, status, color=color)


def _has_begun(source: dict[str, Any]) -> bool:
    """Whether it is known what there is to read, or that this may take long."""
    return bool(source.get("files") or source.get("hasLooked") or source.get("state") == "degraded")


def say(text: str) -> None:
    """A word about what is going on, beside the answer."""
    print(text, file=sys.stderr, flush=True)
