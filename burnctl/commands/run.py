"""`burnctl run`: any harness, with its tags waiting for the session that it will begin in this folder."""

from __future__ import annotations

import os

from burnctl import after_run, flags, stamping, wrapper_options, wrapping
from burnctl import options as own
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
    flags.add(parser, own.Wrapper)
    flags.place(parser, own.Wrapper, "command", nargs="...")


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
