"""`burnctl flush`, `rebuild`, `content` and `forget`: what is recorded, rebuilt, pruned and erased on request."""

from __future__ import annotations

import sys

from burnctl import flags
from burnctl.daemon import reach, wait_until_open
from burnctl.errors import BurnctlError, UsageError
from burnctl.output import as_json, json_line
from burnctl.progress import ProgressLine, waiting
from burnctl.render.names import harness_name, tilde
from burnctl.render.numbers import count, counted, size
from burnctl.render.screen import Screen
from burnctl.render.tables import Column, table
from burnctl.render.text import wrap
from burnctl.session_choice import whole_id
from burnd.contract import Params, param
from burnd.contract.daemon import FlushParams, RebuildParams
from burnd.contract.sessions import ForgetParams, PruneParams

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from typing import Any

    from burnctl.client import Client

HELP = {
    "flush": (
        "waits until everything that agents have logged so far is recorded, running requests included. For scripts "
        "that ask for a report right after an agent has ended"
    ),
    "rebuild": (
        "rebuilds the index from ledger and content, which is the default, or with --reclassify the activity labels of "
        "requests, from their tool calls, prompts and errors. Reports use the old index until the new one is complete; "
        "the ledger is replaced at once or not at all"
    ),
    "content": "deletes stored conversations; requests, tokens and costs stay",
    "forget": (
        "erases what was written in a session, in a project's sessions, or in every session that contains a text, "
        "such as a password: prompts, answers, tool inputs and results, from the store and from search. Requests, "
        "tokens and costs stay. It shows what it would erase and asks first; in a script it needs --yes. The "
        "harness's own logs are not changed; what they contain so far is not stored again"
    ),
}
EXAMPLES = {
    "flush": ("burnctl flush && burnctl summary --since 1h --json",),
    "rebuild": ("burnctl rebuild", "burnctl rebuild --reclassify", "burnctl rebuild --reclassify --force"),
    "content": ("burnctl content prune --older-than 30d --dry-run",),
    "forget": ("burnctl forget 0f9c12ab", "burnctl forget --project .", "burnctl forget --match sk-ant-api03 --yes"),
}
_SHOWN = 20  # sessions that `forget` lists


class ForgetFlags(Params):
    yes: bool = param(default=False, help="do not ask")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    verb = parser.prog.rpartition(" ")[2]
    if verb == "content":
        actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
        action = actions.add_parser("prune", help="delete the content of sessions that ended long ago")
        action.description = (
            "deletes the content of sessions whose last message is older than that, from the store and from search. "
            "What was pruned never comes back, even when its log is read again"
        )
        flags.add(action, PruneParams)
        flags.add(action, flags.Output, only=("json", "no_start"))
    elif verb == "forget":
        flags.place(parser, ForgetParams, "session", nargs="?")
        flags.add(parser, ForgetParams, ForgetFlags, skip=("session",))
        flags.reading(parser)
    else:
        flags.add(parser, FlushParams if verb == "flush" else RebuildParams)
        flags.add(parser, flags.Output, only=("json", "no_start"))
    parser.set_defaults(run={"flush": flush, "rebuild": rebuild, "content": prune, "forget": forget}[verb])


def run(options: argparse.Namespace) -> int:
    return int(options.run(options))


def flush(options: argparse.Namespace) -> int:
    client = reach(options)
    if options.session:
        wait_until_open(client)  # a starting burnd cannot look up the id
    waiting.start()
    answer = client.flush(session=whole_id(client, options.session))
    waiting.stop()
    missing = [source for source in answer["sources"] if not source["flushed"]]
    if options.json:
        as_json(answer)
        return 1 if missing else 0
    if missing:
        reasons = "; ".join(f"{source['name']}: {source.get('reason', 'does not run')}" for source in missing)
        raise BurnctlError(
            f"some logs are not recorded yet: {reasons}", "do not delete any logs yet; see: burnctl status"
        )
    print("everything logged so far is recorded")
    return 0


def rebuild(options: argparse.Namespace) -> int:
    if options.force and not options.reclassify:
        raise UsageError("rebuild: --force goes with --reclassify", "see: burnctl help rebuild")
    client = reach(options)
    answers = []
    if options.reclassify:
        answers.append(_rebuilt(client, "labelling requests", reclassify=True, force=options.force or None))
    if options.index or not options.reclassify:
        answers.append(_rebuilt(client, "building the index", index=True))
    for answer in answers:
        if options.json:
            json_line(answer)
        elif answer["rebuilt"] == "index":
            print("the index is rebuilt")
        elif count := answer["turns"]:
            print(f"{count:,} requests are labelled" if count != 1 else "1 request is labelled")
        else:
            print("no request has a new label" if options.force else "every request was labelled already")
    return 0


def _rebuilt(client: Client, what: str, **params: Any) -> dict[str, Any]:
    with ProgressLine(what) as client.progress:
        return client.ask(RebuildParams, params)


def prune(options: argparse.Namespace) -> int:
    client = reach(options)
    with waiting.during("looking" if options.dry_run else "deleting"):
        answer = flags.ask(client, PruneParams, options)
    if options.json:
        return as_json(answer)
    files = answer["files"]
    what = f"the content of {'1 session' if files == 1 else f'{files:,} sessions'}, {size(answer['bytes'])}"
    print(f"would delete {what}" if answer["dryRun"] else f"deleted {what}")
    return 0


def forget(options: argparse.Namespace) -> int:
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
