"""Sessions of opencode, written row by row."""

from __future__ import annotations

from typing import Any

from tests.capture.opencode_rig import OpenCodeRig
from tests.harness.opencode.data import Writer, text, tokens, tool

S = "ses_one"


def conversation(writer: Writer, session: str = S, turns: int = 2, **facts: Any) -> None:
    """A session of so many prompts and answers, `<session>-a0` and on."""
    writer.session(session, **facts)
    for n in range(turns):
        exchange(writer, session, n)


def exchange(writer: Writer, session: str, n: int, **facts: Any) -> None:
    writer.user(f"{session}-u{n}", session, f"question {n}")
    usage = tokens(input=100 + n, output=10, read=1000)
    writer.step(f"{session}-a{n}", session, f"{session}-u{n}", text(f"answer {n}"), **{"tokens": usage} | facts)


def inputs(rig: OpenCodeRig) -> dict[str, int]:
    return {name: turn.usage.input for name, turn in rig.turns().items() if turn.quality != "empty"}


def original(writer: Writer, session: str = "ses_o") -> None:
    """Two steps with usage, and one that was aborted without any."""
    writer.session(session)
    writer.user(f"{session}-u", session)
    for n, parts in enumerate(([tool("c", "bash", {"command": "ls"}, "x" * 50)], [text("said")])):
        usage = tokens(input=100 + n, output=10)
        writer.step(f"{session}-a{n}", session, f"{session}-u", *parts, tokens=usage)
    aborted = {"name": "MessageAbortedError", "data": {}}
    writer.step(f"{session}-a2", session, f"{session}-u", tokens=tokens(total=False), error=aborted, finish=None)


def own_step(writer: Writer, session: str) -> None:
    writer.user(f"{session}-own-u", session, "in the fork")
    writer.step(f"{session}-own-a", session, f"{session}-own-u", text("forked"), tokens=tokens(input=900))
