"""Search over the socket: planted words are all found, and messages survive a kill."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import pytest

from burnd.contract.sessions import MOST_HITS, SearchParams
from burnd.paths import Home
from burnd.queries.view import View
from burnd.server.methods.sessions import find
from tests.burnctl.invoke import environment, run
from tests.conftest import Opened
from tests.harness.claude_code.transcript import Transcript, call, thinking
from tests.harness.claude_code.transcript import text as spoken
from tests.harness.codex import rollout
from tests.harness.codex.rollout import Rollout
from tests.harness.opencode import data as rows
from tests.make import START_MS, text, turn
from tests.search.library import PRICES, Library, library
from tests.server.logs import conversation, write
from tests.server.wire import running, until


async def asked(lib: Library, query: str, **params: Any) -> dict[str, Any]:
    """The answer to a client."""

    async def ask(question: Any, **_: Any) -> Any:
        return await lib.pipeline.index.ask(lambda db: question(View(db, PRICES, START_MS)))

    service: Any = SimpleNamespace(search_indexer=lib.indexer, pipeline=lib.pipeline, ask=ask)
    return dict(await find(service, SearchParams(query=query, **params)))


@pytest.mark.parametrize("mode", ["hash-only", "off"])
async def test_an_empty_answer_gives_the_reason(opened: Opened, mode: str) -> None:
    """Without content the answer names the mode."""
    async with library(opened, mode) as lib:
        await lib.add(text("m", "apple"), entries=[turn("m")])
        answer = await asked(lib, "apple")
        assert answer["hits"] == []
        assert f"content is not stored (mode {mode})" in answer["note"]


async def test_a_session_without_a_title_is_named_by_its_first_prompt(opened: Opened) -> None:
    async with library(opened) as lib:
        await lib.add(text("m", "Peel the apple", role="user"), entries=[turn("n")])
        (hit,) = (await asked(lib, "apple"))["hits"]
        assert hit["meta"]["title"] == "Peel the apple"


async def test_complete_content_needs_no_note(opened: Opened) -> None:
    async with library(opened) as lib:
        await lib.add(text("m", "apple"))
        assert "note" not in await asked(lib, "apple")
        assert "note" not in await asked(lib, "pear", session="s1")


async def test_a_session_without_content_is_marked(opened: Opened) -> None:
    """Pruned, or never stored: the answer to a request for it reports it."""
    async with library(opened) as lib:
        await lib.add(text("m", "apple"), entries=[turn("m"), turn("n", session_id="bare")])
        await lib.pipeline.forget(["s1"])
        assert "it was pruned" in (await asked(lib, "apple", session="s1"))["note"]
        assert "none of this session was stored" in (await asked(lib, "apple", session="bare"))["note"]


def test_what_was_appended_outlives_a_kill(home: Home) -> None:
    """Answered is durable: killed at once, the next daemon has it, once, findable, however often it is sent again."""
    said = {"id": "p1", "role": "user", "content": "the aardvark question"}
    made = {"id": "a1", "model": "gpt-5", "content": "answered", "usage": {"prompt_tokens": 9, "completion_tokens": 2}}
    with running(home) as daemon, daemon.wire() as wire:
        session = wire.call("sessions.new", agent="me", sender="test", title="Mine")["sessionId"]
        before = wire.call("sessions.append", id=session, messages=[said, made])
        daemon.kill()
    with running(home) as daemon, daemon.wire() as wire:
        again = wire.call("sessions.append", id=session, messages=[said, made])
        assert (again["appended"], again["messageCount"], again["updatedAt"]) == (0, 2, before["updatedAt"])
        facts = wire.call("sessions.meta", id=session)
        assert (facts["title"], facts["source"], facts["turns"]) == ("Mine", "openai-api", 1)
        assert facts["usage"]["input"] == 9
        until(lambda: wire.call("sessions.search", query="aardvark")["hits"])


LONG = "filler words of a long result\n" * 400

# Where each word is planted: the session, the role it is found under, and the tool where there is one.
CLAUDE = {
    "claudeprompt": ("user", None),
    "claudequeued": ("user", None),
    "claudethought": ("assistant", None),
    "claudeanswer": ("assistant", None),
    "claudeinput": ("assistant", "Bash"),
    "clauderesult": ("tool_result", "Bash"),
    "claudeblocks": ("tool_result", "mcp__docs__find"),
    "claudeside": ("assistant", None),
    "clauderefused": ("system", None),
}
CODEX = {
    "codexprompt": ("user", None),
    "codexthought": ("assistant", None),
    "codexanswer": ("assistant", None),
    "codexinput": ("assistant", "shell"),
    "codexoutput": ("tool_result", "shell"),
    "codexpatched": ("assistant", "apply_patch"),
}
OPENCODE = {
    "ocprompt": ("user", None),
    "ocattached": ("user", None),
    "ocanswer": ("assistant", None),
    "octhought": ("assistant", None),
    "ocinput": ("assistant", "bash"),
    "ocoutput": ("tool_result", "bash"),
    "ocfailure": ("tool_result", "edit"),
    "ocpatch": ("assistant", None),
}


def claude_log() -> Transcript:
    log = Transcript(session="claude")
    log.prompt("claudeprompt, if you please")
    log.attach("queued_command", prompt="claudequeued as well", commandMode="prompt")
    asked = call("c1", "Bash", command="grep claudeinput"), call("c2", "mcp__docs__find", query="x")
    log.calls("m1", thinking(LONG + "claudethought"), *asked)
    log.result("c1", LONG + "clauderesult")
    log.result("c2", [{"type": "text", "text": "first"}, {"type": "text", "text": LONG + "claudeblocks"}])
    log.says("m2", spoken(LONG + "claudeanswer"))
    log.says("m3", spoken("claudeside"), isSidechain=True, agentId="a7", parent=None)
    log.says("m4", spoken("API Error: clauderefused"), model="<synthetic>", isApiErrorMessage=True)
    return log


def codex_log() -> Rollout:
    log = Rollout()
    log.task()
    log.prompt("codexprompt, if you please")
    log.item(rollout.thinking("sealed", LONG + "codexthought"), rollout.call("c1", "shell", command="cat codexinput"))
    log.meter(100, 0, 10, 0)
    log.answer("c1", LONG + "codexoutput")
    log.item(rollout.patch("c2", "src/codexpatched.py"), rollout.says(LONG + "codexanswer"))
    log.meter(120, 0, 10, 0)
    return log


def opencode_database(home: Home) -> rows.Writer:
    made = rows.Writer(home.root.parent / "share" / "opencode" / "opencode.db")
    made.session("ses_oc")
    made.user("msg_1", "ses_oc", "ocprompt now")
    made.part(
        "msg_1", "ses_oc", {"type": "file", "mime": "text/plain", "filename": "ocattached.txt", "url": "file:///x"}
    )
    made.step(
        "msg_2",
        "ses_oc",
        "msg_1",
        rows.reasoning(LONG + "octhought"),
        rows.text("ocanswer"),
        rows.tool("c1", "bash", {"command": "echo ocinput"}, LONG + "ocoutput"),
        rows.tool("c2", "edit", {"filePath": "/x"}, None, status="error", error="ocfailure: no such file"),
        {"type": "patch", "hash": "abc123", "files": ["/home/dev/app/ocpatch.py"]},
    )
    return made


def test_every_word_is_found_in_its_message(home: Home) -> None:
    """Prompts, answers, thoughts, arguments, results, errors, patches and files of every harness: all, not most."""
    write(home, claude_log(), "claude")
    database = opencode_database(home)
    codex = codex_log()
    codex_home = home.root.parent / "codex"
    (codex_home / "sessions").mkdir(parents=True)
    (codex_home / "sessions" / codex.name).write_bytes(codex.data)
    share = str(home.root.parent / "share")
    with running(home, XDG_DATA_HOME=share, CODEX_HOME=str(codex_home)) as daemon, daemon.wire() as wire:
        wire.call("flush")
        for last in ("clauderefused", "ocpatch", "codexanswer"):
            until(lambda: wire.call("sessions.search", query=last)["hits"])  # noqa: B023 - asked at once
        for session, planted in (("claude", CLAUDE), ("ses_oc", OPENCODE), (codex.thread, CODEX)):
            for word, (role, tool) in planted.items():
                hits = wire.call("sessions.search", query=word, role=role, tool=tool, all=True)["hits"]
                assert [hit["sessionId"] for hit in hits] == [session], word
                (matched,) = [item for item in hits[0]["window"] if item.get("match")]
                assert (matched["role"], matched.get("toolName")) == (role, tool), word
                assert word in matched["snippet"]
    database.close()


async def test_pages_of_hits_follow_each_other(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond the most hits of one answer: over the socket, with burnctl and over MCP, each hit once, in one order."""
    for name, value in environment(home).items():
        monkeypatch.setenv(name, value)
    from mcp import Client

    from burnctl.mcp_tools import server

    sessions = {f"pie{n}" for n in range(2 * MOST_HITS + 5)}
    for session in sessions:
        write(home, conversation(session, "apple pie"), session)

    async def every(page: Callable[[int], Awaitable[dict[str, Any]]]) -> list[str]:
        found: list[str] = []
        offset: int | None = 0
        while offset is not None:
            answer = await page(offset)
            found += [hit["sessionId"] for hit in answer["hits"]]
            offset = answer.get("next")
        return found

    async def burnctl(offset: int) -> dict[str, Any]:
        done = run(home, "search", "apple", "--limit", str(MOST_HITS), "--offset", str(offset), "--json")
        return dict(json.loads(done.stdout))

    async def mcp(offset: int) -> dict[str, Any]:
        answer = await client.call_tool("search_sessions", {"query": "apple", "offset": offset})
        return dict(json.loads(getattr(answer.content[0], "text", "")))

    with running(home) as daemon, daemon.wire() as wire:
        wire.call("flush")
        until(lambda: wire.call("sessions.search", query="apple")["matches"] == len(sessions))

        async def socket(offset: int) -> dict[str, Any]:
            return dict(wire.call("sessions.search", query="apple", limit=MOST_HITS, offset=offset))

        over_socket = await every(socket)
        assert set(over_socket) == sessions
        assert len(over_socket) == len(sessions)
        assert await every(burnctl) == over_socket
        async with Client(server()) as client:
            assert await every(mcp) == over_socket
