"""`burnctl run`: runs any harness; its tags wait for the session that it starts in this folder."""

from __future__ import annotations

import os

from burnctl import flags, foreground, stamp_record, tagged_run
from burnctl.errors import BurnctlError, UsageError
from burnctl.tagged_run import Claim, WrapperFlags

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse

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
    mode = tagged_run.content_mode(os.environ)
    command = tagged_run.after_dashes(options.command)
    if not command:
        raise UsageError("run: COMMAND is missing", "for example: burnctl run --tag workflowId=wf-1 -- opencode")
    program = foreground.find_program(command[0])
    claim = Claim(_working_folder(), os.path.basename(program), tags, mode)
    claim.open()
    ended = foreground.run(program, command[1:])
    claim.close()
    if not ended.was_told_to_stop:
        tagged_run.tell_claimed(claim.name, quiet=options.quiet)
    return ended.code


def _working_folder() -> str:
    try:
        return os.getcwd()
    except OSError:
        raise BurnctlError("this folder no longer exists", "change to another one first") from None
