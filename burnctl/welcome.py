"""What a person sees first: what was spent so far and what to ask next; the demo where there is nothing to show yet."""

from __future__ import annotations

import os
import shutil
import sys

from burnctl.client import Client

_ROWS = 8
_INDENT = 2


def welcome(client: Client) -> None:
    """Shows what burnd found, or that it found nothing and what it would show."""
    client.flush()  # what there is to read may not have been looked through yet
    status = client.status()
    ledger = status.get("ledger") or {}
    if ledger.get("turns") or ledger.get("openTurns"):
        show("summary", ["--by", "project", "--limit", str(_ROWS)])
        _say_what_to_ask_next(client)
    else:
        details = [source["detail"] for source in status.get("sources") or [] if source.get("detail")]
        print("\nThere are no agents' logs on this machine yet:")
        for detail in details:
            print(f"  {detail}")
        print("burnd goes on looking. This is what it shows, on made-up sessions:", flush=True)
        show("demo", [], heading=False)


def show(verb: str, arguments: list[str], *, heading: bool = True) -> None:
    """Runs a command as a person would type it."""
    from burnctl import cli

    if heading:
        print(f"\n$ burnctl {' '.join([verb, *arguments])}\n", flush=True)
    cli.run(verb, arguments)
    sys.stdout.flush()


def _say_what_to_ask_next(client: Client) -> None:
    from burnctl.render.screen import columns

    program = program_name()
    rows = client.summary(by="session", limit=1)["rows"]
    dearest = _typed(client, rows[0]["key"]) if rows else "SESSION"
    asks = (
        (f"{program} why {dearest}", "what the dearest session's dollars went to"),
        (f"{program} waste", "where to save, with evidence"),
        (f"{program} search WORDS", "find a conversation again"),
    )
    width = max(len(command) for command, _ in asks)
    are_beside = _INDENT + width + 2 + max(len(what) for _, what in asks) <= columns()
    print("\nTo ask next:")
    for command, what in asks:
        print(f"{'':{_INDENT}}{command:{width}}  {what}" if are_beside else f"{'':{_INDENT}}{what}:\n    {command}")
    print(f"\nburnd goes on recording in the background. To have it started at login:\n  {program} service install")


def _typed(client: Client, session_id: str) -> str:
    """As little of an id as can be typed in."""
    from burnctl.errors import Failed
    from burnctl.render.names import short_id

    try:
        client.sessions_meta(short_id(session_id))
    except Failed:
        return session_id
    return short_id(session_id)


def program_name() -> str:
    """What to type for burnctl: its path where the shell would not find it by name."""
    if shutil.which("burnctl"):
        return "burnctl"
    beside = os.path.join(os.path.dirname(sys.executable), "burnctl")
    if not os.path.exists(beside):
        return f"{sys.executable} -m burnctl"
    return min(beside, os.path.relpath(beside), key=len)
