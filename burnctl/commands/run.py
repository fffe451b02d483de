"""`burnctl run`: any harness, with its tags waiting for the session that it will begin in this folder."""

from __future__ import annotations

import os

from burnctl import after_run, delivery, spool, stamping, wrapper_options, wrapping
from burnctl.errors import BurnctlError, Usage
from burnd.protocol import HARNESSES

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from typing import Any

HELP = (
    "Runs any harness and tags the first session that begins in this folder while it runs. A session that was there "
    "before, or that another wrapper has, is never taken. The exit code is the harness's."
)
EXAMPLES = (
    "burnctl run --tag workflowId=wf-1 -- opencode",
    "burnctl run --tag step=tests -- opencode run 'mend the failing tests'",
)
_SOURCES = {program: source for source, (program, _) in HARNESSES.items()}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    wrapper_options.add(parser)
    parser.add_argument("command", metavar="-- COMMAND", nargs="...", help="the harness and its arguments")


def run(options: argparse.Namespace) -> int:
    tags = stamping.from_words(options.tag)
    mode = wrapper_options.content_mode(os.environ)
    command = wrapper_options.after_dashes(options.command)
    if not command:
        raise Usage("run: COMMAND is missing", "for example: burnctl run --tag workflowId=wf-1 -- opencode")
    program = wrapping.find_program(command[0])
    claim = Claim(_working_folder(), os.path.basename(program), tags, mode)
    claim.open()
    ended = wrapping.run(program, command[1:])
    claim.close()
    if not ended.was_told_to_stop:
        after_run.tell_claimed(claim.name, quiet=options.quiet)
    return ended.code


class Claim:
    """The word left for the daemon: the next session in this folder is ours, until we say that we have ended."""

    def __init__(self, folder: str, program: str, tags: dict[str, str], mode: str | None) -> None:
        self.name = spool.new_name()
        self._home = delivery.home()
        self._record: dict[str, Any] = {
            "v": 1,
            "kind": "claim",
            "project": folder,
            "fromTs": stamping.now_iso(),
            "enrichment": tags,
        }
        if program in _SOURCES:
            self._record["source"] = _SOURCES[program]
        if mode is not None:
            self._record["contentMode"] = mode

    def open(self) -> None:
        """Makes it durable. Raises NotSpooled, and then nothing should be started."""
        spool.put_as(self._home, self.name, self._record)

    def close(self) -> None:
        """Says when we ended. Without it the claim would wait some days longer, but it is not lost."""
        try:
            spool.put_as(self._home, self.name, self._record | {"toTs": stamping.now_iso()})
        except BurnctlError as error:
            after_run.say(str(error))


def _working_folder() -> str:
    try:
        return os.getcwd()
    except OSError:
        raise BurnctlError("this folder is gone", "go to another one first") from None
