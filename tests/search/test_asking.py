"""Search over the socket: notes on missing content, and appended messages that survive a kill."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from burnd.contract.sessions import SearchParams
from burnd.paths import Home
from burnd.queries.view import View
from burnd.server.methods.sessions import find
from tests.conftest import Opened
from tests.make import START_MS, text, turn
from tests.search.library import PRICES, Library, library
from tests.server.wire import running, until


async def asked(lib: Library, query: str, **params: Any) -> dict[str, Any]:
    """What a client is answered."""

    async def ask(question: Any, **_: Any) -> Any:
        return await lib.pipeline.index.ask(lambda db: question(View(db, PRICES, START_MS)))

    service: Any = SimpleNamespace(search_indexer=lib.indexer, pipeline=lib.pipeline, ask=ask)
    return dict(await find(service, SearchParams(query=query, **params)))


@pytest.mark.parametrize("mode", ["hash-only", "off"])
async def test_an_empty_answer_says_why(opened: Opened, mode: str) -> None:
    """Where content is not kept, the answer names the mode."""
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


async def test_nothing_is_said_where_all_is_kept(opened: Opened) -> None:
    async with library(opened) as lib:
        await lib.add(text("m", "apple"))
        assert "note" not in await asked(lib, "apple")
        assert "note" not in await asked(lib, "pear", session="s1")


async def test_a_session_of_which_nothing_is_kept_says_so(opened: Opened) -> None:
    """Pruned, or nothing kept: asked for by name, it is not merely empty."""
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
