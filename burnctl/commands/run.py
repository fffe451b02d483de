"""`burnctl run`: any harness, with its tags waiting for the session that it will begin in this folder."""

from __future__ import annotations

import os

from burnctl import after_run, stamping, wrapper_options, wrapping
from burnctl.claim import Claim
from burnctl.errors import BurnctlError, Usage

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse

HELP = (
    "Runs any harness and tags the first session that begins in this folder while it runs. A session that was there "
    "before, or that another wrapper has, is never taken. The exit code is the harness's."
)
EXAMPLES = (
    "burnctl run --tag workflowId=wf-1 -- opencode",
    "burnctl run --tag step=tests -- opencode run 'mend the failing tests'",
)


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


def _working_folder() -> str:
    try:
        return os.getcwd()
    except OSError:
        raise BurnctlError("this folder is gone", "go to another one first") from None
