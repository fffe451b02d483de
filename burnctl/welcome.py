"""The first minute: the overview and the next commands, or the demo without logs."""

from __future__ import annotations

import os
import shutil
import sys

from burnctl.client import Client

_INDENT = 2
_PRICES = "Costs are at API list prices. With a subscription, set it once: {} config set plan max20"


def welcome(client: Client) -> None:
    """Shows the overview and the next commands; without usage, where burnd looks and the demo."""
    status = client.status()
    backfill = status.get("backfill")
    is_blocked = bool(backfill and backfill.get("blocked"))
    if not is_blocked and (backfill is None or not backfill.get("exact")):
        client.flush()  # logs that were just found may not be recorded yet
        status = client.status()
    totals = client.summary(limit=1)["totals"]
    if totals["turns"] or totals["openTurns"]:
        show("", [])
        from burnctl.render.screen import columns

        program = program_name()
        if not client.summary(limit=1).get("plans"):
            print("\n" + _PRICES.format(program))
        commands = (
            (f"{program} why --costliest", "where the most expensive session's money went"),
            (f"{program} waste", "where to save, with evidence"),
            (f"{program} search WORDS", "find a conversation"),
        )
        width = max(len(command) for command, _ in commands)
        are_beside = _INDENT + width + 2 + max(len(what) for _, what in commands) <= columns()
        print("\nNext:")
        for command, what in commands:
            print(f"{'':{_INDENT}}{command:{width}}  {what}" if are_beside else f"{'':{_INDENT}}{what}:\n    {command}")
        print(f"\nburnd keeps recording in the background. Start it at login with: {program} service install")
        return
    if is_blocked:  # the reason was printed below the bar
        return
    print("\nThere are no logs of agents on this machine yet:")
    for source in status.get("sources") or []:
        if source.get("detail"):
            print(f"  {source['detail']}")
    print("burnd keeps looking. This is what it shows, on made-up sessions:", flush=True)
    show("demo", [], heading=False)


def show(verb: str, arguments: list[str], *, heading: bool = True) -> None:
    """Runs a command below a line with its name; an empty verb is `burnctl` alone."""
    from burnctl import cli

    if heading:
        print(f"\n$ {' '.join(word for word in ('burnctl', verb, *arguments) if word)}\n", flush=True)
    cli.run(verb or "overview", arguments)
    sys.stdout.flush()


def program_name() -> str:
    """`burnctl`, or its path if the shell would not find it."""
    if shutil.which("burnctl"):
        return "burnctl"
    beside = os.path.join(os.path.dirname(sys.executable), "burnctl")
    if not os.path.exists(beside):
        return f"{sys.executable} -m burnctl"
    return min(beside, os.path.relpath(beside), key=len)
