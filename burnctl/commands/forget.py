"""`burnctl forget`: erases the text of sessions after showing which."""

from __future__ import annotations

import sys

from burnctl import flags
from burnctl.daemon import reach
from burnctl.errors import BurnctlError, UsageError
from burnctl.output import as_json
from burnctl.progress import ProgressLine
from burnctl.render.names import harness_name, tilde
from burnctl.render.numbers import count, counted, size
from burnctl.render.screen import Screen
from burnctl.render.tables import Column, table
from burnctl.render.text import wrap
from burnctl.session_choice import whole_id
from burnd.contract import Params, param
from burnd.contract.sessions import ForgetParams

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from typing import Any


HELP = (
    "erases what was written in a session, in a project's sessions, or in every session that contains a text, such as "
    "a password: prompts, answers, tool inputs and results, from the store and from search. Requests, tokens and costs "
    "stay. It shows what it would erase and asks first; in a script it needs --yes. The harness's own logs are not "
    "changed; what they contain so far is not stored again"
)
EXAMPLES = ("burnctl forget 0f9c12ab", "burnctl forget --project .", "burnctl forget --match sk-ant-api03 --yes")
_SHOWN = 20


class ForgetFlags(Params):
    yes: bool = param(default=False, help="do not ask")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    flags.place(parser, ForgetParams, "session", nargs="?")
    flags.add(parser, ForgetParams, ForgetFlags, skip=("session",))
    flags.reading(parser)


def run(options: argparse.Namespace) -> int:
    params = {name: getattr(options, name) for name in ("session", "project", "match")}
    if sum(value is not None for value in params.values()) != 1:
        raise UsageError("forget: name one of SESSION, --project and --match", "see: burnctl help forget")
    client = reach(options)
    params["session"] = whole_id(client, params["session"])
    with ProgressLine("looking") as client.progress:
        plan = client.ask(ForgetParams, {**params, "dry_run": True})
    if options.json:
        return as_json(client.ask(ForgetParams, params) if options.yes else plan)
    screen = Screen.of(options)
    if not plan["count"]:
        print("nothing to erase: no session contains that text")
        return 0
    print(_shown(plan, screen, is_project=options.project is not None))
    if not options.yes and not _agreed():
        print("nothing was erased")
        return 1
    with ProgressLine("erasing") as client.progress:
        done = client.ask(ForgetParams, params)
    print(f"erased the content of {counted(done['count'], 'session')}, {size(done['bytes'])}")
    return 0


def _agreed() -> bool:
    """Asks for a confirmation; False without a terminal."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise BurnctlError(
            "nothing was erased: there is no terminal to confirm at", "to erase without confirmation, add --yes"
        )
    return input("erase it for good? [y/N] ").strip().lower() in ("y", "yes")


def _shown(plan: dict[str, Any], screen: Screen, *, is_project: bool) -> str:
    """The sessions to erase, as many as a person reads, and the totals."""
    rows = [
        (
            row["sessionId"],
            harness_name(row["source"]),
            tilde(row["project"] or ""),
            count(row["messages"]),
            size(row["bytes"]),
        )
        for row in plan["sessions"][:_SHOWN]
    ]
    columns = [
        Column("session"),
        Column("harness", drop=2),
        Column("project", least=8, where="start", style="cyan"),
        Column("messages", "right"),
        Column("text", "right", drop=1),
    ]
    lines = [table(columns, rows, screen)]
    if (more := plan["count"] - len(rows)) > 0:
        lines.append(f"... and {count(more)} more")
    where, folders = "", len({row["project"] for row in plan["sessions"]})
    if is_project and folders > 1:
        where = f" in {folders} folders (a project is all clones and worktrees of its repository)"
    text = f"This would erase the content of {counted(plan['count'], 'session')}{where}, {size(plan['bytes'])} on disk."
    return "\n".join([*wrap(text, screen.width), "", *lines])
