"""`burnctl run`: runs any harness and tags the session that it starts in this folder.

`burnctl claude` uses its claims and its line at the end.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time

from burnctl import delivery, flags, foreground, stamp_record
from burnctl.client import Client
from burnctl.errors import BurnctlError, UsageError
from burnd.contract import Params, param
from burnd.harness.registry import PRODUCTS
from burnd.paths import working_folder
from burnd.protocol import USAGE_FIELDS

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from typing import Any

HELP = (
    "Runs any harness and tags the first session that begins in this folder while it runs. Older sessions and those of "
    "another wrapper are not tagged. The exit code is the harness's."
)
EXAMPLES = (
    "burnctl run --tag workflowId=wf-1 -- opencode",
    "burnctl run --tag step=tests -- opencode run 'fix the failing tests'",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    flags.add(parser, WrapperFlags)
    flags.place(parser, WrapperFlags, "command", nargs="...")


def run(options: argparse.Namespace) -> int:
    tags = stamp_record.from_words(options.tag)
    mode = content_mode(os.environ)
    command = after_dashes(options.command)
    if not command:
        raise UsageError("run: COMMAND is missing", "for example: burnctl run --tag workflowId=wf-1 -- opencode")
    program = foreground.find_program(command[0])
    claim = Claim(folder_of_run(), os.path.basename(program), tags, mode)
    claim.open()
    status = foreground.run(program, command[1:])
    claim.close()
    if not status.was_stopped:
        print_claimed(claim.name, quiet=options.quiet)
    return status.code


def folder_of_run() -> str:
    if (folder := working_folder()) is None:
        raise BurnctlError("this folder no longer exists", "change to another one first")
    return folder


_SOURCES = {product.program: product.source for product in PRODUCTS}


class WrapperFlags(Params):
    tag: list[str] = param(default=[], help="a tag; may be given again", kind="tags", metavar="KEY=VALUE")
    quiet: bool = param(default=False, help="do not print at the end what the session cost")
    arguments: list[str] = param(
        default=[], help="Claude Code's own arguments, passed on untouched", flag="", metavar="-- ARGUMENTS"
    )
    command: list[str] = param(default=[], help="the harness and its arguments", flag="", metavar="-- COMMAND")


class Claim:
    """A file in the spool that claims the next session in a folder."""

    def __init__(
        self, folder: str, program: str, tags: dict[str, str], mode: str | None, roots: Sequence[str] = ()
    ) -> None:
        self.name = delivery.new_name()
        self._home = delivery.home()
        self._record: dict[str, Any] = {
            "v": 1,
            "kind": "claim",
            "project": folder,
            "fromTs": stamp_record.now_iso(),
            "enrichment": tags,
        }
        if program in _SOURCES:
            self._record["source"] = _SOURCES[program]
        if mode is not None:
            self._record["contentMode"] = mode
        if roots:
            self._record["roots"] = list(roots)

    def open(self) -> None:
        """Makes the claim durable. Raises NotSpooled; then the harness must not be started."""
        delivery.spool_as(self._home, self.name, self._record)

    def close(self, session_id: str | None = None, *, grace_s: float = 0) -> None:
        """Ends the claim after `grace_s` seconds, or assigns it to a session.

        An open claim expires after a week.
        """
        end = {"sessionId": session_id} if session_id is not None else {"toTs": stamp_record.now_iso(grace_s)}
        try:
            delivery.spool_as(self._home, self.name, self._record | end)
        except BurnctlError as error:
            print_note(str(error))


WAIT_S = 3.0
_NONE_TAKEN = "no new session began in this folder; one that is found later will be tagged"


def print_session(session: str, *, quiet: bool) -> None:
    """Has the session's last turns recorded and prints its line; nothing if the daemon is down."""
    with _patience() as ask:
        ask("flush", session=session)
        if not quiet:
            print_note(line(session, ask("summary", session=session)))


def print_claimed(claim: str, *, quiet: bool) -> None:
    """The same for the session of a claim, or says that there was none."""
    with _patience() as ask:
        ask("flush", session=claim)  # reads logs without settling other sessions' turns
        session_id = ask("spool", claim=claim)["claims"][0]["sessionId"]
        if session_id is not None:
            ask("flush", session=session_id)
        if not quiet:
            print_note(_NONE_TAKEN if session_id is None else line(session_id, ask("summary", session=session_id)))


@contextlib.contextmanager
def _patience() -> Iterator[Callable[..., dict[str, Any]]]:
    """Sends requests that together take seconds at most. No answer, or Ctrl-C, ends them silently."""
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
        return f"session {short_id(session)}: no requests"
    tokens = sum(totals["usage"].get(field, 0) for field in USAGE_FIELDS)
    cost = "no price known" if totals["costUsd"] is None else f"{money(totals['costUsd'])} at API prices"
    if totals["costUsd"] is not None and totals.get("unpricedTurns"):
        cost += f", {counted(totals['unpricedTurns'], 'request')} without a price"
    return f"session {short_id(session)}: {counted(turns, 'request')}, {number(tokens)} tokens, {cost}"


def print_note(text: str) -> None:
    """Prints to stderr, which may be closed."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        print(f"burnctl: {text}", file=sys.stderr, flush=True)


_MODES = ("full", "hash-only", "off")


def after_dashes(words: Sequence[str]) -> list[str]:
    """The other program's arguments, without the first `--`."""
    return list(words[1:] if words[:1] == ["--"] else words)


def content_mode(env: Mapping[str, str]) -> str | None:
    """The mode in `RELAYBURN_CONTENT_STORE`, or None. Raises UsageError."""
    mode = env.get("RELAYBURN_CONTENT_STORE") or None
    if mode is not None and mode not in _MODES:
        raise UsageError(f"RELAYBURN_CONTENT_STORE is {mode!r}", f"it may be {', '.join(_MODES)}")
    return mode
