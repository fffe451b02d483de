"""Sessions that live through what real ones live through, written row by row in the order opencode writes them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.harness.opencode.data import BORN_MS, Statement, Writer, assistant, reasoning, text, tokens, tool

MAIN, CHILD, FORK, KILLED = "ses_main", "ses_child", "ses_fork", "ses_killed"


def tell_all(writer: Writer) -> None:
    """Every story, one after the other, with a fork of the first."""
    work(writer)
    delegate(writer)
    compact(writer)
    fail(writer)
    be_killed(writer)
    writer.fork(MAIN, FORK, upto=6, title="fork #1")
    writer.user("fork_u", FORK, "go on in the fork")
    writer.step("fork_a", FORK, "fork_u", text("forked"), tokens=tokens(input=70, output=7, read=900))


def work(writer: Writer) -> None:
    """A prompt whose text comes late, steps with tools that run for a while, a title that is found on the way."""
    writer.session(MAIN)
    writer.user("u1", MAIN, None)
    writer.part("u1", MAIN, {"type": "text", "text": "fix the bug in the parser"})
    _slow_step(writer, "a1", "u1", reading())
    writer.retitle(MAIN, "Parser bug")
    _slow_step(writer, "a2", "u1", editing("c2"), running("c3", 1))
    writer.update("u1", {"role": "user", "time": {"created": BORN_MS}, "agent": "build", "summary": {"diffs": []}})
    _slow_step(writer, "a3", "u1", editing("c4"))
    writer.step("a4", MAIN, "u1", reasoning("all done"), text("fixed " * 300), tokens=tokens(input=9, output=80))
    writer.user("u2", MAIN, "now add a test")
    writer.step("a5", MAIN, "u2", running_now("c5", "pytest -q"), done=False)
    writer.user("u3", MAIN, "queued while busy")
    writer.update("a5", ended("u2", writer.clock - 500, tokens(input=5, output=6, reasoning=3, read=70)))
    writer.step("a6", MAIN, "u3", text("yes"))


def delegate(writer: Writer) -> None:
    """A child session whose first step ends before the parent's call is known."""
    writer.user("u4", MAIN, "delegate it")
    created = writer.tick()
    writer.message("a7", MAIN, created, assistant("u4", created))
    given = {"prompt": "look around", "subagent_type": "explore", "description": "d"}
    part = writer.part("a7", MAIN, tool("c7", "task", given, None))
    writer.session(CHILD, parent_id=MAIN, title="d (@explore subagent)", **_agent(writer, "explore"))
    writer.user("cu1", CHILD, "look around")
    writer.step("ca1", CHILD, "cu1", tool("k1", "grep", {"pattern": "x", "path": "/home/dev/app"}, "a.py:1"))
    writer.update(part, tool("c7", "task", given, None, metadata={"sessionId": CHILD}), "part")
    writer.step("ca2", CHILD, "cu1", text("all is well"))
    writer.update(part, tool("c7", "task", given, "all is well", metadata={"sessionId": CHILD}), "part")
    writer.update("a7", ended("u4", created, tokens(input=11, output=12)))


def compact(writer: Writer) -> None:
    """A context overflow: a compaction, then the prompt repeated by opencode."""
    writer.user("u5", MAIN, "a long story")
    writer.step("a8", MAIN, "u5", text("so it is"), tokens=tokens(input=5000, output=50))
    writer.user("u6", MAIN, None)
    writer.part("u6", MAIN, {"type": "compaction", "auto": True, "overflow": True})
    created = writer.tick()
    writer.message("a9", MAIN, created, assistant("u6", created, summary=True, agent="compaction"))
    writer.part("a9", MAIN, text("## Goal"))
    writer.update("a9", ended("u6", created, tokens(input=5100, output=40), summary=True, agent="compaction"))
    writer.user("u7", MAIN, "a long story")
    writer.step("a10", MAIN, "u7", text("as I said"))
    writer.user("u8", MAIN, None)
    writer.part("u8", MAIN, {"type": "text", "text": "Continue", "synthetic": True})
    writer.step("a11", MAIN, "u8", text("going on"))


def fail(writer: Writer) -> None:
    """An answer that was refused, one that was aborted, one that a filter cut after it had ended."""
    writer.user("u9", MAIN, "try it")
    refused = {"name": "APIError", "data": {"message": "no", "statusCode": 429, "responseBody": "secret"}}
    writer.step("a12", MAIN, "u9", tokens=tokens(total=False), error=refused, finish=None)
    aborted = {"name": "MessageAbortedError", "data": {"message": "aborted"}}
    writer.step("a13", MAIN, "u9", text("half"), tokens=tokens(total=False), error=aborted, finish=None)
    created = writer.tick()
    writer.step("a14", MAIN, "u9", text("cut"), at=created)
    filtered = {"name": "ContentFilterError", "data": {"message": "blocked"}}
    writer.update("a14", ended("u9", created, tokens(input=100, output=20), finish="content-filter", error=filtered))


def be_killed(writer: Writer) -> None:
    """A step that died in the middle, after which the session went on; and one after which it did not."""
    writer.session(KILLED, directory="/home/dev/other")
    writer.user("ku1", KILLED, "begin")
    writer.step("ka1", KILLED, "ku1", reasoning("hm"), running_now("kc1", "sleep 60"), done=False)
    writer.user("ku2", KILLED, "carry on")
    writer.step("ka2", KILLED, "ku2", text("yes"))
    writer.user("ku3", KILLED, "and again")
    writer.step("ka3", KILLED, "ku3", text(""), done=False)


def reading() -> list[dict[str, Any]]:
    given = {"filePath": "/home/dev/app/a.py"}
    return [
        tool("c1", "read", {}, None, status="pending"),
        tool("c1", "read", given, None),
        tool("c1", "read", given, "line " * 400),
    ]


def editing(call: str) -> list[dict[str, Any]]:
    given = {"filePath": "/home/dev/app/a.py", "oldString": "a", "newString": "b"}
    return [tool(call, "edit", {}, None, status="pending"), tool(call, "edit", given, "Edit applied")]


def running(call: str, code: int) -> list[dict[str, Any]]:
    given = {"command": "pytest -q"}
    return [
        tool(call, "bash", given, None, metadata={"output": "..."}),
        tool(call, "bash", given, "1 failed", metadata={"exit": code}),
    ]


def running_now(call: str, command: str) -> dict[str, Any]:
    return tool(call, "bash", {"command": command}, None)


def ended(parent: str, created: int, usage: dict[str, Any], **changes: Any) -> dict[str, Any]:
    times = {"created": created, "completed": created + 400}
    return assistant(parent, created, time=times, tokens=usage, finish="stop") | changes


def _agent(writer: Writer, name: str) -> dict[str, Any]:
    return {} if writer.schema == "1.2.27" else {"agent": name}


def _slow_step(writer: Writer, message_id: str, parent: str, *calls: list[dict[str, Any]]) -> None:
    """Text that is inserted empty and filled later, calls that come along, tokens before the end, then the end."""
    created = writer.tick()
    writer.message(message_id, MAIN, created, assistant(parent, created))
    writer.part(message_id, MAIN, {"type": "step-start", "snapshot": "x"})
    writer.grow(message_id, MAIN, {"type": "reasoning", "text": ""}, reasoning("thinking about it"))
    writer.grow(message_id, MAIN, {"type": "text", "text": ""}, text(f"step {message_id}"))
    for states in calls:
        writer.grow(message_id, MAIN, *states)
    usage = tokens(input=200, output=30, reasoning=10, read=1000, write=50)
    writer.part(message_id, MAIN, {"type": "step-finish", "reason": "tool-calls", "cost": 0.1, "tokens": usage})
    now = assistant(parent, created, tokens=usage, finish="tool-calls", cost=0.1)
    writer.update(message_id, now)
    writer.part(message_id, MAIN, {"type": "patch", "hash": "h", "files": ["/home/dev/app/a.py"]})
    writer.update(message_id, now | {"time": {"created": created, "completed": writer.tick()}})


def write_all_stories(folder: Path, schema: str, born: int = BORN_MS) -> list[Statement]:
    """All stories in a closed database, and its history."""
    writer = Writer(folder / "opencode.db", schema, born)
    tell_all(writer)
    writer.close()
    return writer.done
