"""When a wrapped harness has ended: have its session recorded, and say in one line what it came to."""

from __future__ import annotations

import contextlib
import sys
import time

from burnctl.client import Client
from burnctl.errors import BurnctlError
from burnd.protocol import USAGE_FIELDS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from typing import Any

WAIT_S = 3.0
_NONE_TAKEN = "no new session began in this folder, so nothing is tagged; should one turn up late, it still will be"


def tell_session(session: str, *, quiet: bool) -> None:
    """Has the session's last turns recorded and prints its line, within seconds; nothing where the daemon is down."""
    with _patience() as ask:
        ask("flush", session=session)
        if not quiet:
            say(line(session, ask("summary", session=session)))


def tell_claimed(claim: str, *, quiet: bool) -> None:
    """The same for the session that a claim took, or that it took none."""
    with _patience() as ask:
        ask("flush", session=claim)  # reads what is there; nobody else's open turns are settled by it
        taken = ask("spool", claim=claim)["claims"][0]["sessionId"]
        if taken is not None:
            ask("flush", session=taken)
        if not quiet:
            say(_NONE_TAKEN if taken is None else line(taken, ask("summary", session=taken)))


@contextlib.contextmanager
def _patience() -> Iterator[Callable[..., dict[str, Any]]]:
    """Questions to the daemon that all together take seconds at most. No answer, or Ctrl-C, ends them silently."""
    deadline = time.monotonic() + WAIT_S
    try:
        with Client(timeout=WAIT_S) as client:
            yield lambda method, **params: client.call(method, params, timeout=max(0, deadline - time.monotonic()))
    except (BurnctlError, KeyboardInterrupt):
        return


def line(session: str, answer: Mapping[str, Any]) -> str:
    """`session 0f9c1d2e: 12 turns, 345k tokens, $1.23 at API prices`."""
    from burnctl.render.names import short_id
    from burnctl.render.numbers import counted, money, number

    totals = answer["totals"]
    turns = totals["turns"]
    if not turns:
        return f"session {short_id(session)}: no turns"
    tokens = sum(totals["usage"].get(field, 0) for field in USAGE_FIELDS)
    cost = "no price known" if totals["costUsd"] is None else f"{money(totals['costUsd'])} at API prices"
    if totals["costUsd"] is not None and totals.get("unpricedTurns"):
        cost += f", {counted(totals['unpricedTurns'], 'turn')} not priced"
    return f"session {short_id(session)}: {counted(turns, 'turn')}, {number(tokens)} tokens, {cost}"


def say(text: str) -> None:
    """A line on stderr, which may be gone with its terminal."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        print(f"burnctl: {text}", file=sys.stderr, flush=True)
