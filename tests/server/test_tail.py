"""Following turns as they land, and recording everything at once."""

from __future__ import annotations

import time
from typing import Any

import anyio
import msgspec
import pytest

from burnd.contract.daemon import TailParams
from burnd.index.change import Change, OpenTurn
from burnd.paths import Home
from burnd.queries.names import future_project
from burnd.queries.view import View
from burnd.recording.candidate import Batch
from burnd.records import Turn, Usage
from burnd.server.methods.daemon import is_wanted, shown
from burnd.server.service import QUEUE, Feed, TurnEvent
from tests.conftest import Opened
from tests.harness.claude_code.transcript import Transcript, call, text
from tests.make import turn
from tests.queries.asking import PRICES
from tests.server.logs import conversation, projects, write
from tests.server.wire import Daemon, Wire, noise, running, until


def heard(wire: Wire, count: int) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    while len(found) < count:
        line = wire.line()
        assert line is not None
        assert line["method"] == "tail"
        assert "id" not in line
        found.append(line["params"])
    return found


@pytest.mark.timed
def test_turns_are_streamed_as_they_land(home: Home) -> None:
    """Open at once, settled when the next one begins, with what they cost."""
    projects(home).mkdir(parents=True)
    with running(home) as daemon, daemon.wire() as wire:
        assert wire.call("tail")["following"] is True
        log = Transcript(session="s1")
        log.prompt("hello")
        log.says("m1", text("one"), output=7, model="claude-sonnet-4-5")
        begun = time.monotonic()
        write(home, log, "s1")
        (first,) = heard(wire, 1)
        assert time.monotonic() - begun < 3 * noise()
        assert (first["turn"]["messageId"], first["open"], first["missed"]) == ("m1", True, 0)
        assert first["turn"]["usage"]["output"] == 7
        assert first["costUsd"] > 0
        log.says("m2", text("two"))
        begun = time.monotonic()
        write(home, log, "s1")
        landed = {(item["turn"]["messageId"], item["open"]) for item in heard(wire, 2)}
        assert landed == {("m1", False), ("m2", True)}
        assert time.monotonic() - begun < 2 * noise()


def test_only_what_was_requested_is_streamed(live: Daemon) -> None:
    """By session, by project, by source."""
    with live.wire() as wire, live.wire() as other, live.wire() as none:
        wire.call("tail", session="asked-2")
        other.call("tail", project="/home/asked", source="claude-code")
        none.call("tail", project="/home/aske")
        for session in ("asked-1", "asked-2"):
            write(live.home, conversation(session, "fine", cwd="/home/asked/app"), session)
        assert {item["turn"]["sessionId"] for item in heard(wire, 1)} == {"asked-2"}
        assert {item["turn"]["sessionId"] for item in heard(other, 2)} == {"asked-1", "asked-2"}
        none.socket.settimeout(0.5)
        with pytest.raises(TimeoutError):
            none.line()


@pytest.mark.parametrize(
    ("asked", "wanted"),
    [
        ({}, True),
        ({"session": "s1"}, True),
        ({"session": "s2"}, False),
        ({"source": "opencode"}, False),
        ({"project": "/p"}, True),
        ({"project": "/p/"}, True),
        ({"project": "/"}, True),
        ({"project": "/p/app"}, True),
        ({"project": "/p/ap"}, False),
        ({"project": "/clone"}, True),
        ({"project": "github.com/a/b"}, True),
        ({"project": "git@github.com:a/b.git"}, True),
        ({"project": "clone"}, True),
        ({"project": "github.com/a"}, False),
    ],
)
async def test_which_turns_a_follower_wants(opened: Opened, asked: dict[str, str], wanted: bool) -> None:
    """A project is what it is in reports: a clone of what was recorded before lands as well."""
    params, pipeline = TailParams(**asked), await opened()
    await pipeline.commit(Batch(entries=[turn("m1", project="/clone", project_key="github.com/a/b")]))
    project = None
    if params.project is not None:
        named = params.project
        project = await pipeline.index.ask(lambda db: future_project(View(db, PRICES, 0), named))
    assert is_wanted(turn(project="/p/app", project_key="github.com/a/b"), params, project) == wanted


async def test_a_remote_can_be_followed_before_anything_is_of_it(opened: Opened) -> None:
    pipeline = await opened()
    project = await pipeline.index.ask(lambda db: future_project(View(db, PRICES, 0), "https://github.com/a/b.git"))
    assert project.covers("/p/app", "github.com/a/b")
    assert not project.covers("/p/app", "github.com/a/c")
    assert not project.covers(None, None)


def test_who_leaves_is_forgotten(live: Daemon) -> None:
    """A follower's place is free when it has gone, also if nothing ever lands."""
    with live.wire() as wire:
        wire.call("tail", session="nobody")
    with live.wire() as wire:
        until(lambda: wire.call("status")["daemon"]["clients"] == 1)


async def test_a_slow_reader_gets_the_number_of_missed_turns() -> None:
    """F67: its queue is short, the oldest turns are dropped, and the recorder never waits."""
    feed = Feed()
    with feed.following(lambda _: True) as follower:
        turns = [turn(f"m{n}") for n in range(QUEUE + 50)]
        feed.publish(Change(open=[OpenTurn(one, "claude-code", "x") for one in turns]))
        landed, missed = await follower.take()
        assert (len(landed), missed) == (QUEUE, 50)
        assert landed[0] == TurnEvent(turn("m50"), open=True)
        feed.publish(Change(closed=[turn("last")]))
        assert await follower.take() == ([TurnEvent(turn("last"), open=False)], 0)
        with anyio.move_on_after(0.05) as waited:
            await follower.take()
        assert waited.cancelled_caught
    feed.publish(Change(closed=[turn("nobody follows")]))


def test_a_follower_that_never_reads_holds_nothing_up(live: Daemon) -> None:
    """F67: hundreds of turns are recorded at once meanwhile."""
    with live.wire() as stuck, live.wire() as wire:
        stuck.call("tail")
        for n in range(40):
            write(live.home, conversation(f"stuck{n}", *["x" * 200] * 20, cwd="/home/stuck"), f"stuck{n}")
        wire.call("flush")
        assert wire.call("summary", project="/home/stuck")["totals"]["turns"] == 800


def test_flush_returns_when_everything_is_recorded(home: Home) -> None:
    """Written before, settled and in the ledger after; nothing has to be waited for."""
    write(home, conversation("s0", "before the daemon"), "s0")
    with running(home) as daemon, daemon.wire() as wire:
        flushed = {source["name"]: source["flushed"] for source in wire.call("flush")["sources"]}
        assert flushed["claude-code"]
        assert all(flushed.values())
        for n in range(1, 15):
            write(home, conversation(f"s{n}", "one", "two"), f"s{n}")
            wire.call("flush")
            status = wire.call("status")["ledger"]
            assert (status["turns"], status["openTurns"]) == (1 + 2 * n, 0)


def test_flush_of_one_session_settles_only_that_one(live: Daemon) -> None:
    """The others may still be talking."""
    with live.wire() as wire:
        for session in ("talking", "settled"):
            log = conversation(session)
            log.calls(f"{session}-m", call(f"{session}-c", "Bash", command="make"))  # waited for, for minutes
            write(live.home, log, session)
        wire.call("flush", session="settled")
        for session, is_open in (("talking", 1), ("settled", 0)):
            assert wire.call("summary", session=session)["totals"]["openTurns"] == is_open


def test_several_flush_at_once(live: Daemon) -> None:
    """Each gets its answer."""
    wires = [live.wire() for _ in range(10)]
    write(live.home, conversation("several", "one"), "several")
    for wire in wires:
        wire.request("flush")
    for wire in wires:
        answer = wire.line()
        assert answer is not None
        assert answer["result"]["sources"][0]["flushed"]
        wire.close()


def test_a_turn_is_whole() -> None:
    """The stream has the records of the ledger."""
    one = turn(model="nobody-knows-this-model")
    said = shown(TurnEvent(one, True), PRICES, 3)
    assert msgspec.convert(said["turn"], Turn) == one
    assert (said["costUsd"], said["missed"]) == (None, 3)


def test_leaving_in_the_middle_is_no_error(live: Daemon) -> None:
    """F70: a disconnect during a write is logged at debug level only."""
    with live.wire() as wire:
        for n in range(5):
            following = live.wire()
            following.call("tail")
            write(live.home, conversation(f"left{n}", *["words"] * 5), f"left{n}")
            following.line()
            following.close()
        wire.call("flush")
        until(lambda: wire.call("status")["daemon"]["clients"] == 1)
        assert "failed" not in live.why()


def test_a_turn_without_a_list_price_costs_what_its_row_states() -> None:
    stated = turn("m1", model="house-1", provider="house", stated_usd=0.25, usage=Usage(input=7, output=3))
    assert shown(TurnEvent(stated, open=False), PRICES, 0)["costUsd"] == pytest.approx(0.25)
    listed = msgspec.structs.replace(stated, model="claude-opus-5", provider=None)
    assert shown(TurnEvent(listed, open=False), PRICES, 0)["costUsd"] == pytest.approx(7 * 5e-6 + 3 * 25e-6)
