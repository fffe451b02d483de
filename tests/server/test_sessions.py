"""Sessions over the socket: written, found, read, with a real daemon."""

from __future__ import annotations

import sys
from typing import Any, cast

import pytest

from burnd import protocol
from burnd.paths import Home
from burnd.search.indexer import SearchIndexer, SearchStatus
from burnd.server.methods.sessions import _pending
from tests.harness.claude_code.transcript import Transcript, text
from tests.server.logs import conversation, write
from tests.server.wire import Daemon, Wire, noise, running, until

PROMPT = {"id": "p1", "role": "user", "content": "please polish the zeppelin"}
ANSWER = {
    "id": "a1",
    "role": "assistant",
    "model": "claude-sonnet-4-5",
    "content": "polished",
    "usage": {"input_tokens": 1000, "output_tokens": 100},
}


def found(wire: Wire, query: str, **params: Any) -> list[str]:
    return [hit["sessionId"] for hit in wire.call("sessions.search", query=query, **params)["hits"]]


@pytest.mark.timed
def test_what_is_written_is_found_within_a_second(live: Daemon) -> None:
    """A line of a log becomes a hit, while the daemon runs, in less than a second after it is recorded."""
    with live.wire() as wire:
        log = conversation("watched")
        log.says("m", text("an aardvark appears"))
        write(live.home, log, "watched")
        wire.call("flush")
        until(lambda: found(wire, "aardvark") == ["watched"], 2 * noise())


def test_rows_and_windows_name_an_untitled_session_by_its_first_prompt(live: Daemon) -> None:
    """Also in rows by two dimensions, in either order, and in what filled a window of a plan."""
    prompt = {"id": "q1", "role": "user", "content": "please inflate the balloon"}
    with live.wire() as wire:
        session = wire.call("sessions.new", agent="pilot", sender="studio", source="anthropic-api")["sessionId"]
        wire.call("sessions.append", id=session, messages=[prompt, ANSWER | {"id": "b1"}])
        for by in ("session", "session,model", "model,session"):
            assert [row["title"] for row in wire.call("summary", by=by, agent="pilot")["rows"]] == [prompt["content"]]
        (window,) = wire.call("limits", source="anthropic-api", filled=True)["windows"]["5h"]["filled"]
        assert prompt["content"] in [row["title"] for row in window["sessions"]]


def test_a_program_keeps_a_session_of_its_own(live: Daemon) -> None:
    """Made, filled, named, found, read and counted: the whole way over the socket."""
    with live.wire() as wire:
        session = wire.call("sessions.new", agent="painter", sender="studio")["sessionId"]
        assert wire.call("sessions.append", id=session, messages=[PROMPT, ANSWER])["messageCount"] == 2
        again = wire.call("sessions.append", id=session, messages=[PROMPT, ANSWER])
        assert (again["appended"], again["messageCount"]) == (0, 2)
        assert wire.call("sessions.set", id=session, title="Zeppelins")["title"] == "Zeppelins"
        until(lambda: found(wire, "zeppelin polish") == [session])
        until(lambda: found(wire, "zeppelins") == [session])
        page = wire.call("sessions.messages", id=session[:8])
        assert [message["role"] for message in page["messages"]] == ["user", "assistant"]
        meta = wire.call("sessions.meta", id=session[:8])
        assert (meta["turns"], meta["usage"]["input"], meta["title"]) == (1, 1000, "Zeppelins")
        assert meta["costUsd"] == 0.0045
        listed = wire.call("sessions.list", agent="painter")["sessions"]
        assert [row["sessionId"] for row in listed] == [session]
        assert wire.call("summary", agent="painter")["totals"]["turns"] == 1


@pytest.mark.parametrize(
    "failed",
    [
        {"type": "summary", "summary": "Invalid API key · Please run /login"},
        {"type": "summary", "summary": "API Error: 529 overloaded_error"},
        {"type": "ai-title", "aiTitle": "Credit balance is too low"},
        {"type": "ai-title", "aiTitle": "OAuth token revoked · Please run /login"},
    ],
    ids=lambda line: str(line)[:40],
)
def test_a_resumed_session_is_called_by_its_first_prompt(live: Daemon, failed: dict[str, str]) -> None:
    """Not by its last prompt, which the client repeats on separate lines, nor by a stored error."""
    name = "resumed-" + "".join(filter(str.isalpha, "".join(failed.values())))
    with live.wire() as wire:
        log = Transcript(session=name, prefix=name)
        first = log.prompt("mend the drawbridge")
        log.bare(**failed, leafUuid=first, sessionId=name)
        log.says(f"{name}-1", text("mended"))
        log.bare(type="last-prompt", lastPrompt="mend the drawbridge", leafUuid=first, sessionId=name)
        log.prompt("thanks, and now the moat")
        log.says(f"{name}-2", text("dug"))
        log.bare(type="last-prompt", lastPrompt="thanks, and now the moat", leafUuid=first, sessionId=name)
        write(live.home, log, name)
        wire.call("flush")
        meta = wire.call("sessions.meta", id=name)
        assert (meta["title"], meta["summary"]) == ("mend the drawbridge", None)
        listed = {one["sessionId"]: one for one in wire.call("sessions.list", limit=200)["sessions"]}
        assert listed[name]["title"] == "mend the drawbridge"
        assert wire.call("sessions.messages", id=name)["title"] == "mend the drawbridge"
        assert wire.call("flow", session=name)["title"] == "mend the drawbridge"


@pytest.mark.parametrize("title", ["Invalid API key handling in login", "Connection error retries", "Rate limit tests"])
def test_a_title_about_errors_is_a_title(live: Daemon, title: str) -> None:
    with live.wire() as wire:
        name = title.split(maxsplit=1)[0]
        log = conversation(name, "ok")
        log.bare(type="ai-title", aiTitle=title, sessionId=name)
        write(live.home, log, name)
        wire.call("flush")
        assert wire.call("sessions.meta", id=name)["title"] == title


def test_a_session_without_a_title_has_its_first_prompt(live: Daemon) -> None:
    """Not by text of the harness before it; on one line, cut if long; without a title when forgotten. A command used as
    a prompt counts."""
    with live.wire() as wire:
        logs = {
            name: Transcript(session=name, prefix=name)
            for name in ("short", "long", "named", "told", "silent", "skill")
        }
        for name, log in logs.items():
            log.prompt("<command-name>/clear</command-name>")
            if name == "short":
                log.prompt([text("<ide_opened_file>x.py</ide_opened_file>"), text("<b>why</b> does the zeppelin sink")])
            elif name == "told":
                log.prompt([text(f"<system-reminder>{'é' * 3000}</system-reminder>"), text("find the hole")])
            elif name == "skill":
                log.prompt(
                    "<command-message>mend is running</command-message>\n<command-name>/mend</command-name>\n"
                    "<command-args>the hole\nat once</command-args>"
                )
                log.prompt("Look for holes and close them.", isMeta=True)
                log.says("skill-n", text("done"))
                log.prompt("thanks")
            elif name != "silent":
                log.prompt(
                    "<system-reminder>be\nbrief</system-reminder>\nwhy does\n  the zeppelin sink"
                    + " and sink" * 200 * (name == "long")
                )
            log.says(f"{name}-m", text("a hole"))
            if name == "named":
                log.bare(type="ai-title", aiTitle="Zeppelins", sessionId=name)
            write(live.home, log, name)
        wire.call("flush")

        def titles() -> dict[str, str | None]:
            rows = wire.call("sessions.list", limit=200)["sessions"]
            return {row["sessionId"]: row["title"] for row in rows if row["sessionId"] in logs}

        long = "why does the zeppelin sink" + " and sink" * 10 + " an"
        expected = {
            "short": "<b>why</b> does the zeppelin sink",
            "long": f"{long}…",
            "named": "Zeppelins",
            "told": "find the hole",
            "silent": None,
            "skill": "/mend the hole at once",
        }
        assert titles() == expected
        assert {name: wire.call("sessions.meta", id=name)["title"] for name in logs} == expected
        wire.call("content.forget", session="short")
        assert titles()["short"] is None


def test_a_large_append_is_taken(live: Daemon) -> None:
    """Sixteen megabytes are too much for any other method, but not for this one."""
    with live.wire() as wire:
        session = wire.call("sessions.new", agent="a", sender="b")["sessionId"]
        large = [{"id": f"m{n}", "role": "user", "content": "word " * 200_000} for n in range(5)]
        assert wire.call("sessions.append", id=session, messages=large)["appended"] == 5


def test_forgotten_words_are_not_found(live: Daemon) -> None:
    """As soon as `content.forget` has answered."""
    with live.wire() as wire:
        session = wire.call("sessions.new", agent="a", sender="b")["sessionId"]
        wire.call("sessions.append", id=session, messages=[PROMPT | {"content": "the dirigible"}])
        until(lambda: found(wire, "dirigible") == [session])
        wire.call("content.forget", session=session)
        assert found(wire, "dirigible") == []


def test_mistakes_are_reported(live: Daemon) -> None:
    """With a code for programs and a sentence for people."""
    with live.wire() as wire:
        assert wire.error("sessions.search")["code"] == protocol.BAD_PARAMS
        assert wire.error("sessions.search", query="x", role="nobody")["code"] == protocol.BAD_PARAMS
        assert wire.error("sessions.search", query="x", since="soon")["code"] == protocol.BAD_PARAMS
        assert wire.error("sessions.search", query="x", session="none")["code"] == protocol.NOT_FOUND
        assert wire.error("sessions.messages", id="none")["code"] == protocol.NOT_FOUND
        assert wire.error("sessions.append", id="none", messages=[PROMPT])["code"] == protocol.NOT_FOUND
        assert wire.error("sessions.append", id="none", messages=[])["code"] == protocol.REFUSED
        assert wire.error("sessions.append", id="x", messages=[{"id": 5}])["code"] == protocol.BAD_PARAMS
        assert wire.error("sessions.new", agent="", sender="x")["code"] == protocol.REFUSED


def test_an_empty_search_gives_the_reason(home: Home) -> None:
    """Without content there is nothing to find, and the answer reports it."""
    for mode in ("hash-only", "off"):
        with running(home, RELAYBURN_CONTENT_STORE=mode) as daemon, daemon.wire() as wire:
            answer = wire.call("sessions.search", query="anything")
            assert answer["hits"] == []
            assert f"mode {mode}" in answer["note"]


def test_without_tantivy_everything_else_works(home: Home) -> None:
    """Search names the missing package, everything else works."""
    with running(home, script="tests.server.without_tantivy") as daemon, daemon.wire() as wire:
        session = wire.call("sessions.new", agent="a", sender="b")["sessionId"]
        wire.call("sessions.append", id=session, messages=[PROMPT, ANSWER])
        assert wire.call("sessions.messages", id=session)["total"] == 2
        error = wire.error("sessions.search", query="zeppelin")
        assert "tantivy" in error["message"]
        assert error["code"] == protocol.REFUSED
        states = [one for one in wire.call("status")["degraded"] if "tantivy" in one["what"]]
        assert [f"{sys.executable} -m pip install" in one["remedy"] for one in states] == [True]


@pytest.mark.parametrize(
    ("status", "pending"),
    [(("ready", 0), 0), (("ready", 3), 0), (("ready", 300), 300), (("catching-up", 3), 3), (("rebuilding", 3), 0)],
)
def test_a_search_is_partial_while_many_sessions_wait(status: tuple[Any, int], pending: int) -> None:
    """Those that agents write to right now are always a little behind."""

    class Indexer:
        def status(self) -> SearchStatus:
            return SearchStatus(*status)

    assert _pending(cast("SearchIndexer", Indexer())) == pending
