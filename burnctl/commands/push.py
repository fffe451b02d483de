"""`burnctl push`: sends what changed to a database or a folder, for reports over many machines."""

from __future__ import annotations

import sys

from burnctl import flags
from burnctl.commands.export import host_name
from burnctl.daemon import reach
from burnctl.errors import FAILED, OK, UsageError
from burnctl.output import as_json
from burnctl.progress import WIPE, can_take_back
from burnd.contract import Params, param

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse

    from burnctl.push.engine import Push
    from burnctl.push.target import Totals

HELP = (
    "sends requests, sessions and causes to a database or folder, for reports over many machines: whatever changed "
    "since the last push, so a repeat sends nothing. Prompts, answers and files are not sent, unless you give "
    "--content. TARGET is a folder, s3://BUCKET/PREFIX, clickhouse://HOST/DATABASE (clickhouses:// with TLS) or "
    "postgres://HOST/DATABASE"
)
EXAMPLES = (
    "burnctl push /mnt/team/burn",
    "burnctl push s3://team-burn/turns --watch",
    "burnctl push clickhouses://ch.example.com/burn --credentials ~/.burn-push",
    "burnctl push /mnt/team/burn --check",
    "burnctl service install --push /mnt/team/burn",
)
_MOST_SHOWN = 20


class PushFlags(Params):
    target: str = param(help="where to push to", flag="", metavar="TARGET")
    watch: bool = param(default=False, help="keep running, and push whatever changes")
    every: int = param(default=60, help="with --watch: seconds between pushes", kind="count", most=86_400)
    check: bool = param(
        default=False, help="send nothing: compare totals by day and model there and here; exit code 1 if they differ"
    )
    compact: bool = param(
        default=False, help="folder or s3: merge the segments of this machine into one for each table"
    )
    without_project: list[str] = param(
        default=[],
        help="leave a project out: a folder, a git remote or the end of one; may be repeated",
        kind="projects",
        metavar="PROJECT",
    )
    content: bool = param(
        default=False, help="also send conversations: prompts, answers, tool inputs and outputs, titles, summaries"
    )
    credentials: str | None = param(
        default=None,
        help="file with user and password, mode 0600 (BURND_PUSH_USER and BURND_PUSH_PASSWORD)",
        metavar="FILE",
    )
    machine: str | None = param(default=None, help="a name for this machine (its host name)", metavar="NAME")
    user: str | None = param(default=None, help="a name for the user (the login name)", metavar="NAME")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    flags.place(parser, PushFlags, "target")
    flags.add(parser, PushFlags)
    flags.add(parser, flags.Output, only=("json", "no_start"))


def run(options: argparse.Namespace) -> int:
    if sum((options.watch, options.check, options.compact)) > 1:
        raise UsageError("push: --watch, --check and --compact exclude each other")
    from burnctl.push.engine import Labels, Push, target_of, watch
    from burnctl.push.state import locked, write_state
    from burnctl.push.target import Refused, Unreachable

    target = target_of(options.target, options.credentials)
    labels = Labels(
        options.machine or host_name(),
        options.user or _user_name(),
        options.without_project,
        content=options.content,
    )
    has_progress = can_take_back() and not options.json
    push = Push(reach(options), target, labels, report=_progress if has_progress else lambda _: None)
    try:
        if options.check:
            push.open()
            return _check(push, options)
        with locked(options.target):
            if options.watch:
                watch(push, options.target, options.every)
            try:
                push.open()
                if options.compact:
                    compact = getattr(target, "compact", None)
                    if compact is None:
                        raise UsageError(
                            "push: --compact is for a folder or s3://", "a database merges its rows itself"
                        )
                    before, after = compact(push.machine_id)
                    _print(options, {"before": before, "after": after}, f"{before:,} segments merged into {after:,}")
                    return OK
                rows = push.once()
            except (Refused, Unreachable) as error:
                write_state(options.target, push.feed, error=error.message)
                raise
            write_state(options.target, push.feed)
    finally:
        target.close()
    _print(options, {"rows": rows}, f"{rows:,} rows sent to {options.target}" if rows else "nothing to send")
    return OK


def _check(push: Push, options: argparse.Namespace) -> int:
    differences = push.differences()
    if options.json:
        as_json({"differences": [_difference(*one) for one in differences]})
        return FAILED if differences else OK
    for (day, model), here, there in differences[:_MOST_SHOWN]:
        print(f"{day}  {model}: here {_amount(here)}, there {_amount(there)}")
    if len(differences) > _MOST_SHOWN:
        print(f"and {len(differences) - _MOST_SHOWN:,} more")
    if not differences:
        print("the totals are the same there and here")
    elif push.has_other_labels:
        # Advising a push would send the projects that the last one left out.
        what = "the last push had other flags (--without-project, --machine, --user, --content)"
        print(f"burnctl: {what}; give --check the same ones", file=sys.stderr)
    elif push.is_behind():
        print(f"burnctl: changes are not sent yet; run: burnctl push {options.target}", file=sys.stderr)
    else:
        remedy = f"delete {push.machine_id} from push_state there, and push again: everything is sent"
        print(f"burnctl: the rows there were changed or lost; {remedy}", file=sys.stderr)
    return FAILED if differences else OK


def _difference(key: tuple[str, str], here: Totals, there: Totals) -> dict[str, object]:
    sides = {
        side: {"turns": one.turns, "tokens": list(one.tokens), "costUsd": None if one.cost is None else str(one.cost)}
        for side, one in (("here", here), ("there", there))
    }
    return {"day": key[0], "model": key[1], **sides}


def _amount(totals: Totals) -> str:
    cost = "no price" if totals.cost is None else f"${totals.cost:f}"
    return f"{totals.turns:,} turns, {sum(totals.tokens):,} tokens, {cost}"


def _print(options: argparse.Namespace, facts: dict[str, int], line: str) -> None:
    if options.json:
        as_json(facts)
    else:
        if can_take_back():
            print(WIPE, end="", file=sys.stderr, flush=True)
        print(line)


def _progress(rows: int) -> None:
    print(f"{WIPE}{rows:,} rows ...", end="", file=sys.stderr, flush=True)


def _user_name() -> str:
    import getpass

    try:
        return getpass.getuser()
    except (KeyError, OSError):  # an id without a name, as in a container
        import os

        return str(os.getuid())
