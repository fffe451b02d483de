"""`burnctl mcp`, with the client of the SDK: as a process with pipes, or within this process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, chdir
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from unittest import mock

import anyio
import pytest

from burnd.contract.reports import CAUSES
from burnd.harness.registry import PRODUCTS
from burnd.paths import Home
from tests.burnctl.fake_daemon import FakeConnection, fake_daemon
from tests.burnctl.invoke import environment
from tests.harness.claude_code.transcript import text
from tests.server.logs import conversation, write
from tests.server.wire import running, until

if TYPE_CHECKING:
    from mcp import Client

# As `mcp_tools.OWN_SESSION`, without the second that importing it takes.
_VARIABLES = ["RELAYBURN_SESSION_ID", *(name for product in PRODUCTS for name in product.session_variables)]
TOOLS = [
    "search_sessions",
    "search_memory",
    "list_sessions",
    "session_messages",
    "session_cost",
    "why",
    "waste",
    "limits",
    "summary",
    "hotspots",
    "compare",
]


@asynccontextmanager
async def agent(home: Home) -> AsyncIterator[Client]:
    """An agent whose harness has started `burnctl mcp`."""
    from mcp import Client, StdioServerParameters  # takes a second to load, and every worker loads this file

    command = StdioServerParameters(
        command=sys.executable,
        args=["-m", "burnctl", "mcp"],
        env=environment(home, PYTHONPATH=str(Path(__file__).parents[2])),
    )
    async with Client(command) as client:
        yield client


@asynccontextmanager
async def agent_here(home: Home, folder: Path | None = None, own: str = "") -> AsyncIterator[Client]:
    """An agent at the server in this process, in its folder; `own` is the variable that names its session."""
    from mcp import Client

    from burnctl.mcp_tools import server

    variables = environment(home) | ({own: "mine"} if own else {})
    with mock.patch.dict(os.environ, variables, clear=True), chdir(folder or home.root.parent):
        async with Client(server()) as client:
            yield client


async def told(client: Client, tool: str, **arguments: Any) -> dict[str, Any]:
    result = await client.call_tool(tool, arguments)
    said = getattr(result.content[0], "text", "")
    assert not result.is_error, said
    answer: dict[str, Any] = json.loads(said)
    return answer


async def complaint(client: Client, tool: str, **arguments: Any) -> str:
    result = await client.call_tool(tool, arguments)
    assert result.is_error
    return str(getattr(result.content[0], "text", ""))


class Alone(NamedTuple):
    """A server without a daemon: its tools, the answer of each, and its home."""

    tools: list[Any]
    complaints: list[str]
    home: Home


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Alone:
    home = Home(tmp_path_factory.mktemp("alone") / "home")

    async def ask() -> Alone:
        async with agent(home) as client:
            complaints = [await _ask_for(client, tool) for tool in TOOLS] + [await complaint(client, "session_cost")]
            return Alone((await client.list_tools()).tools, complaints, home)

    return anyio.run(ask)


async def _ask_for(client: Client, tool: str) -> str:
    arguments = {"query": "x"} if tool.startswith("search_") else {"session": "x"}
    return await complaint(
        client, tool, **({} if tool in ("compare", "summary", "list_sessions", "limits") else arguments)
    )


def test_every_tool_is_there_and_only_reads(alone: Alone) -> None:
    """Each tool is described and marked read-only."""
    assert [tool.name for tool in alone.tools] == TOOLS
    for tool in alone.tools:
        assert tool.description
        assert tool.annotations is not None
        assert tool.annotations.read_only_hint
        assert all("description" in about for about in tool.input_schema["properties"].values())
        assert tool.input_schema["additionalProperties"] is False


@pytest.mark.parametrize(
    ("tool", "arguments", "complaint_text"),
    [
        ("list_sessions", {"limt": 3}, "unknown parameter 'limt'; did you mean: limit"),
        ("search_memory", {"query": "x", "zzz": 1}, "unknown parameter 'zzz'; it takes: query, limit, full"),
        ("summary", {"by": "modell"}, "by cannot be 'modell'; did you mean: model"),
        ("search_sessions", {"query": "x", "limit": "many"}, "limit must be a whole number, not 'many'"),
        ("search_sessions", {"query": "x", "role": "userr"}, "role cannot be 'userr'; did you mean: user"),
        ("why", {"full": "perhaps"}, "full must be true or false, not 'perhaps'"),
        ("serch_sessions", {"query": "x"}, "unknown tool 'serch_sessions'; did you mean: search_sessions"),
        ("qqq", {}, f"unknown tool 'qqq'; there are: {', '.join(TOOLS)}"),
        ("hotspots", {"by": "tag:x"}, f"by cannot be 'tag:x'; by is one of: {', '.join(CAUSES)}"),
        ("hotspots", {"by": "prompt,model"}, "by cannot be 'prompt,model'; did you mean: prompt"),
        ("summary", {"by": "model,frog"}, "by cannot be 'model,frog'; did you mean: model"),
    ],
)
async def test_wrong_arguments_are_refused_in_our_words(
    home: Home, tool: str, arguments: dict[str, Any], complaint_text: str
) -> None:
    """Not in those of the library that checks them."""
    async with agent_here(home) as client:
        assert await complaint(client, tool, **arguments) == complaint_text


def test_the_page_is_true(alone: Alone) -> None:
    """docs/mcp.md names every tool, every parameter and every variable."""
    from burnctl.mcp_tools import OWN_SESSION

    page = (Path(__file__).parents[2] / "docs" / "mcp.md").read_text()
    for tool in alone.tools:
        assert f"| `{tool.name}` |" in page
        assert all(f"`{name}`" in page for name in tool.input_schema["properties"]), tool.name
    assert all(f"`{variable}`" in page for variable in OWN_SESSION)


async def test_past_sessions_can_be_searched_and_read(home: Home) -> None:
    """Found by its words, read around the hit, and what it cost, with a real daemon."""
    log = conversation("past")
    log.says("m1", text("the aardvark was refactored"), model="claude-sonnet-4-5")
    write(home, log, "past")
    with running(home) as daemon:
        with daemon.wire() as wire:
            wire.call("flush")
            until(lambda: wire.call("sessions.search", query="aardvark")["hits"])
        async with agent(home) as client:
            (hit,) = (await told(client, "search_sessions", query="aardvark refactored"))["hits"]
            assert (hit["sessionId"], hit["msgIdx"]) == ("past", 1)
            page = await told(client, "session_messages", session="past", offset=1)
            assert page["messages"][0]["blocks"][0]["text"] == "the aardvark was refactored"
            cost = await told(client, "session_cost", session="past")
            assert cost["costUsd"] > 0
            assert [row["key"] for row in cost["byModel"]] == ["claude-sonnet-4-5"]
            assert (await told(client, "summary", by="model"))["totals"]["turns"] == 1
            spent = await told(client, "why", session="past")
            assert sum(cause["costUsd"] for cause in spent["causes"]) == pytest.approx(cost["costUsd"], rel=1e-2)
            assert (await told(client, "why", session="past", turn=0))["sessionId"] == "past"
            assert (await told(client, "compare"))["cellsWithFewRequests"] == 1
            assert (await told(client, "compare", models=["claude-sonnet-4-5"]))["models"] == ["claude-sonnet-4-5"]
            for by in ("tool", "file"):
                heavy = await told(client, "hotspots", by=by)
                assert sum(row.get("costUsd", 0) for row in heavy["rows"]) == pytest.approx(cost["costUsd"], rel=1e-2)
            (listed,) = (await told(client, "list_sessions"))["sessions"]
            assert (listed["sessionId"], listed["costUsd"]) == ("past", cost["costUsd"])
            assert (await told(client, "list_sessions", gone=True))["gone"] == {"count": 0, "unexplained": 0}
            assert (await told(client, "waste"))["totals"]["turns"] == 1
            assert "windows" in await told(client, "limits")
            assert "by" in await complaint(client, "hotspots", by="day")
            assert "no session" in await complaint(client, "session_messages", session="nobody")
            # A filter that was passed over would be taken for one that holds.
            assert "branch" in await complaint(client, "summary", branch="main")


def test_it_never_starts_the_daemon(alone: Alone) -> None:
    """Without a daemon every tool reports it, and no file or process is left."""
    assert all("burnd is not running" in said for said in alone.complaints)
    assert not alone.home.root.exists()


@pytest.mark.parametrize("variable", _VARIABLES)
async def test_ones_own_session_is_meant(home: Home, variable: str) -> None:
    """The session that the harness names is the default."""
    with fake_daemon(home.root / "burnd.sock", why={"causes": []}, sessions__messages={"messages": []}) as burnd:
        async with agent_here(home, own=variable) as client:
            await told(client, "why")
            await told(client, "session_messages")
            await told(client, "why", session="other")
    assert [params.get("session") or params.get("id") for _, params in burnd.asked] == ["mine", "mine", "other"]


async def test_else_the_newest_session_of_the_folder(home: Home, folder: Path) -> None:
    """The newest session of the folder, not one that it started; an error if there is none."""
    here = {"project": str(folder), "parentSessionId": None}
    sessions: list[dict[str, Any]] = [
        {"sessionId": "in another clone"} | here | {"project": "/elsewhere"},
        {"sessionId": "started by it"} | here | {"parentSessionId": "newest"},
        {"sessionId": "newest"} | here,
        {"sessionId": "older"} | here,
    ]

    def listed(params: dict[str, Any], _talk: FakeConnection) -> dict[str, Any]:
        assert params["project"] == str(folder)
        return {"sessions": sessions}

    with fake_daemon(home.root / "burnd.sock", sessions__list=listed, why={"causes": []}) as burnd:
        async with agent_here(home, folder) as client:
            await told(client, "why")
            sessions.clear()
            assert "which session is yours" in await complaint(client, "why")
    assert burnd.asked[1] == ("why", {"session": "newest", "limit": 8})


async def test_answers_are_bounded(home: Home) -> None:
    """An answer is short whatever the size of the data, and shows what was left out and how to continue."""
    from burnctl.mcp_tools import BRIEF_BYTES, MOST_BYTES

    causes = [{"kind": "result", "label": "x" * 100, "costUsd": n} for n in range(5000)]
    messages = [{"msgIdx": n, "blocks": [{"kind": "text", "text": "é" * 900}]} for n in range(40)]
    page = {"offset": 10, "total": 900, "messages": messages, "next": 50}
    with fake_daemon(home.root / "burnd.sock", why={"causes": causes}, sessions__messages=page) as burnd:
        async with agent_here(home) as client:
            long = await told(client, "why", session="x")
            cut = await told(client, "session_messages", session="x", limit=10**6, offset=-3)
            await client.call_tool("search_sessions", {"query": "x", "limit": 99})
            await client.call_tool("search_memory", {"query": "x", "limit": 99})
            whole = await told(client, "why", session="x", full=True)
            page_of_messages = await told(client, "session_messages", session="x")
    assert size_of(long) <= BRIEF_BYTES < size_of(whole) <= MOST_BYTES
    assert whole["leftOut"]["causes"] + len(whole["causes"]) == 5000
    assert size_of(page_of_messages) <= BRIEF_BYTES
    assert page_of_messages["next"] == 10 + len(page_of_messages["messages"])
    assert long["leftOut"]["causes"] + len(long["causes"]) == 5000
    assert long["causes"][0]["costUsd"] == 0
    assert cut["next"] == 10 + len(cut["messages"])
    (_, asked), (_, found), (_, remembered) = burnd.asked[1:4]
    assert burnd.asked[-1][1]["blockBytes"] == 400
    assert (asked["limit"], asked["offset"], asked["blockBytes"]) == (40, 0, 2000)
    assert (found["limit"], found["before"], found["after"]) == (20, 4, 4)
    assert remembered["limit"] == 20


def size_of(answer: dict[str, Any]) -> int:
    return len(json.dumps(answer, ensure_ascii=False, separators=(",", ":")).encode())


async def test_a_hit_counts_more_than_what_is_around_it(home: Home) -> None:
    """In an answer that is too long, context around hits is cut before any hit."""
    window = [{"msgIdx": n, "role": "user", "snippet": "x" * 1000, "match": n == 4} for n in range(9)]
    answer = {"query": "x", "hits": [{"sessionId": f"s{n}", "window": window} for n in range(10)]}
    with fake_daemon(home.root / "burnd.sock", sessions__search=answer) as burnd:
        async with agent_here(home) as client:
            found = await told(client, "search_sessions", query="x", before=9, after=9)
    assert (burnd.asked[0][1]["before"], burnd.asked[0][1]["after"]) == (9, 9)
    assert len(found["hits"]) == 10
    assert [len(item["snippet"]) for item in found["hits"][0]["window"]][3:6] == [201, 1000, 201]


async def test_rows_of_a_short_answer_have_what_answers_the_question(home: Home) -> None:
    """The match and the start of its neighbours, rows without tokens; `next` is the first hit that was left out."""
    window = [{"msgIdx": n, "role": "user", "snippet": "x" * 300, "match": n == 4} for n in range(9)]
    found = {"query": "x", "hits": [{"sessionId": f"s{n}", "window": window} for n in range(10)], "next": 20}
    rows = [{"key": f"m{n}", "turns": 3, "openTurns": 0, "costUsd": 1.0, "usage": {"input": 5}} for n in range(4)]
    totals = {"turns": 12, "usage": {"input": 20}}
    with fake_daemon(home.root / "burnd.sock", sessions__search=found, summary={"totals": totals, "rows": rows}):
        async with agent_here(home) as client:
            hits = await told(client, "search_sessions", query="x", offset=10)
            summary = await told(client, "summary", by="model")
            whole = await told(client, "summary", by="model", full=True)
    assert [len(item["snippet"]) for item in hits["hits"][0]["window"]] == [121, 300, 121]
    assert hits["next"] == 10 + len(hits["hits"]) == 20 - hits["leftOut"]["hits"]
    assert "hint" in hits
    assert summary == {"totals": totals, "rows": [{"key": f"m{n}", "turns": 3, "costUsd": 1.0} for n in range(4)]}
    assert whole["rows"] == rows


def test_a_brief_answer_has_more_messages_around_few_hits() -> None:
    """Four before and four after one hit; fewer where three hits would not fit; what matched is cut at its word."""
    from burnctl.mcp_tools import _brief_windows, _shorten_matches

    window = [{"msgIdx": n, "role": "user", "snippet": "x" * 300, "match": n == 4} for n in range(9)]
    assert len(_brief_windows([{"window": window}], 2200)[0]["window"]) == 9
    assert {len(hit["window"]) for hit in _brief_windows([{"window": window}] * 3, 2200)} == {3}
    match: dict[str, Any] = {"snippet": "a" * 500 + "word" + "b" * 500, "highlights": [[500, 504]], "match": True}
    _shorten_matches([{"window": [match]}])
    assert "word" in match["snippet"]
    assert len(match["snippet"]) == 302


async def test_a_memory_is_whole_or_named(home: Home) -> None:
    """An entry that is too long for an answer is not cut: the agent is shown where it is."""
    entry = {"path": "/p/CLAUDE.md", "heading": "Deploying", "line": 3, "text": "short"}
    with fake_daemon(home.root / "burnd.sock", search_memory={"entries": [entry, entry | {"text": "é" * 15_000}]}):
        async with agent_here(home) as client:
            found = (await told(client, "search_memory", query="x"))["entries"]
    assert found[0]["text"] == "short"
    assert ("text" in found[1], found[1]["bytes"], found[1]["path"]) == (False, 30_000, "/p/CLAUDE.md")


def test_a_message_that_is_too_long_by_itself_is_cut() -> None:
    """It keeps its first blocks with a count of the missing ones; the next page begins with the next message."""
    from burnctl.mcp_tools import MOST_BYTES, bounded

    blocks = [{"kind": "text", "text": "x" * 2000} for _ in range(60)]
    message = {"msgIdx": 7, "blocks": blocks}
    told = json.loads(bounded({"offset": 7, "messages": [message, message, message], "next": 10}))
    assert len(json.dumps(told)) <= MOST_BYTES
    (first,) = told["messages"]
    assert len(first["blocks"]) > 10
    assert len(first["blocks"]) + first["blocksLeftOut"] == 60
    assert (told["next"], told["leftOut"]) == (8, {"messages": 2})


def test_an_answer_is_compact() -> None:
    """Nothing that is empty, four significant digits, whether it is whole, and where to get more."""
    from burnctl.mcp_tools import bounded, compact

    answer = {
        "version": 1,
        "backfill": {"done": True, "percent": 100},
        "rows": [{"key": "a", "costUsd": 1.23456789, "usage": {"input": 5, "output": 0}, "title": None, "is": False}],
        "moreRows": 3,
    }
    row = {"key": "a", "costUsd": 1.235, "usage": {"input": 5}, "is": False}
    assert json.loads(bounded(compact(answer), "more")) == {
        "backfill": {"done": True},
        "rows": [row],
        "moreRows": 3,
        "hint": "more",
    }


def test_every_parameter_comes_from_the_table(alone: Alone) -> None:
    """Its description, and its choices as an enum."""
    from burnctl.mcp_tools import OFFERS

    for offer, tool in zip(OFFERS, alone.tools, strict=True):
        for name in offer.takes:
            one = offer.method.params[name]
            schema = tool.input_schema["properties"]["session" if name == offer.own else name]
            assert schema["description"].lower().startswith(one.help.lower())
            assert not one.choices or json.dumps(list(one.choices)) in json.dumps(schema)


def test_what_has_no_list_cannot_be_cut() -> None:
    from burnctl.mcp_tools import bounded

    with pytest.raises(Exception, match="too long"):
        bounded({"text": "x" * 50_000})


def test_without_the_package_it_shows_what_to_install(home: Home) -> None:
    """One line with the command, for the environment that burnctl runs in, and an exit code."""
    script = "import sys; sys.modules['mcp'] = None; from burnctl.cli import main; sys.exit(main(['mcp']))"
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, env=environment(home), capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr == (
        "burnctl: the MCP server needs the package `mcp`, version 2 or newer; "
        f"install it with: {sys.executable} -m pip install 'mcp>=2'\n"
    )
