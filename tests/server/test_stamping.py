"""Stamps over the socket: durable when answered, refused with a reason, listed in pages."""

from __future__ import annotations

import json
import shutil
from typing import Any

import pytest

from burnd.paths import Home
from burnd.records.codec import decode, encode
from tests.make import turn
from tests.server.logs import conversation, write
from tests.server.wire import Daemon, running


def ledger(home: Home) -> list[dict[str, Any]]:
    return [json.loads(line) for line in home.ledger.read_bytes().splitlines()]


def test_a_stamp_is_in_the_ledger_when_it_is_answered(live: Daemon) -> None:
    """Flat, as the format specifies, with the daemon's time if none was given."""
    before = ledger(live.home)
    with live.wire() as wire:
        answer = wire.call("stamp", selector={"sessionId": "s1"}, enrichment={"workflowId": "wf-1"})
        assert (answer["stamped"], answer["new"]) == (1, 1)
    *others, line = ledger(live.home)
    assert others == before
    assert (line["v"], line["kind"]) == (1, "stamp")
    assert (line["selector"], line["enrichment"]) == ({"sessionId": "s1"}, {"workflowId": "wf-1"})
    assert line["ts"].endswith("Z")


def test_many_are_taken_at_once_or_not_at_all(live: Daemon) -> None:
    """One that cannot be used is named by its number, and none of the others is taken."""
    good = {"selector": {"sessionId": "s1"}, "enrichment": {"a": "1"}, "ts": "2026-11-16T10:00:00Z"}
    bad = {"selector": {"sessionId": ""}, "enrichment": {"a": "1"}}
    before = ledger(live.home)
    with live.wire() as wire:
        error = wire.error("stamp", stamps=[good, bad])
        assert error["message"].startswith("stamp 1: ")
        assert ledger(live.home) == before
        assert wire.call("stamp", stamps=[good, good | {"enrichment": {"b": "2"}}])["new"] == 2
        assert wire.call("stamp", stamps=[good])["new"] == 0  # the same one again is the same one


@pytest.mark.parametrize(
    ("params", "reason"),
    [
        ({}, "selector and an enrichment"),
        ({"selector": {"sessionId": "s"}}, "selector and an enrichment"),
        ({"selector": {}, "enrichment": {"a": "b"}}, "either a sessionId or a messageId"),
        ({"selector": {"sessionId": "s", "messageId": "m"}, "enrichment": {"a": "b"}}, "either"),
        ({"selector": {"session": "s"}, "enrichment": {"a": "b"}}, "unknown parameter 'session' in selector"),
        ({"selector": {"sessionId": "s"}, "enrichment": {}}, "at least one key"),
        ({"selector": {"sessionId": "s"}, "enrichment": {"": "b"}}, "key must not be empty"),
        ({"selector": {"sessionId": "s"}, "enrichment": {"a": 1}}, "must be a text, not a whole number"),
        ({"selector": {"sessionId": "s"}, "enrichment": {"a": None}}, "must be a text, not null"),
        ({"selector": {"sessionId": "s"}, "enrichment": {"a": ["b"]}}, "must be a text, not a list"),
        ({"selector": {"sessionId": "s"}, "enrichment": {"a": "b"}, "ts": "soon"}, "not an ISO time"),
        (
            {
                "selector": {"messageId": "m", "range": {"fromTs": "2026-01-01", "toTs": "2026-01-02"}},
                "enrichment": {"a": "b"},
            },
            "range goes with a sessionId",
        ),
        (
            {
                "selector": {"sessionId": "s", "range": {"fromTs": "2026-01-02", "toTs": "2026-01-01"}},
                "enrichment": {"a": "b"},
            },
            "begins before it ends",
        ),
        ({"selector": {"sessionId": "s", "range": {"fromTs": "2026-01-02"}}, "enrichment": {"a": "b"}}, "toTs"),
        ({"stamps": [], "selector": {"sessionId": "s"}}, "with stamps, give"),
    ],
)
def test_a_stamp_that_cannot_be_used_is_refused_with_the_reason(
    live: Daemon, params: dict[str, Any], reason: str
) -> None:
    """Bad selectors and values that are no text; the ledger does not grow."""
    before = ledger(live.home)
    with live.wire() as wire:
        assert reason in wire.error("stamp", **params)["message"]
    assert ledger(live.home) == before


def test_odd_but_legal_stamps_are_kept_whole(live: Daemon) -> None:
    """Any key, any text: emoji, NUL, newlines, quotes, a very long value."""
    keys = {'k\n\x00"': "v\u2028\U0001f600\x00", "long": "x" * 100_000, "wf id": " "}
    with live.wire() as wire:
        wire.call("stamp", selector={"messageId": "m\x00é"}, enrichment=keys)
        (found,) = wire.call("stamps.list", message="m\x00é")["stamps"]
    assert found["enrichment"] == keys
    *_, line = live.home.ledger.read_bytes().splitlines()
    assert decode(line).enrichment == keys  # type: ignore[union-attr]


def test_a_page_of_large_stamps_fits_into_an_answer(daemon: Daemon) -> None:
    """It ends early; all stamps come once, in order."""
    with daemon.wire() as wire:
        for n in range(12):
            wire.call("stamp", selector={"messageId": f"m{n}"}, enrichment={"n": str(n), "long": "x" * 1_000_000})
        found: list[str] = []
        after = -1
        while after is not None:
            page = wire.call("stamps.list", limit=1000, after=after)
            found += [one["enrichment"]["n"] for one in page["stamps"]]
            after = page["next"]
    assert found == [str(n) for n in range(12)]


def test_an_open_range_reaches_turns_of_broken_clocks(home: Home) -> None:
    """A range without an end has the last time there is, and comes back with it; so does one without a beginning."""
    ends = {"fromTs": "0001-01-01T00:00:00.000Z", "toTs": "9999-12-31T23:59:59.999Z"}
    home.root.mkdir(parents=True, mode=0o700)
    times = ("0001-06-01T00:00:00.000Z", "2026-11-16T10:00:00.000Z", "9999-06-01T00:00:00.000Z")
    home.ledger.write_bytes(b"".join(encode(turn(f"m{n}", ts=ts, turn_index=n)) for n, ts in enumerate(times)))
    middle = "2026-11-16T10:00:00.000Z"
    stamps = [
        ({"fromTs": ends["fromTs"], "toTs": middle}, {"a": "b"}),
        ({"fromTs": middle, "toTs": ends["toTs"]}, {"c": "d"}),
    ]
    with running(home) as daemon, daemon.wire() as wire:
        for span, tags in stamps:
            wire.call("stamp", selector={"sessionId": "s1", "range": span}, enrichment=tags, ts=ends["toTs"])
        assert wire.call("summary", tags={"a": "b"})["totals"]["turns"] == 1
        assert wire.call("summary", tags={"c": "d"})["totals"]["turns"] == 2
        listed = wire.call("stamps.list")["stamps"]
    assert [(one["ts"], one["selector"]["range"], one["enrichment"]) for one in listed] == [
        (ends["toTs"], span, tags) for span, tags in stamps
    ]


def test_stamps_are_listed_in_pages_and_by_what_they_say(daemon: Daemon) -> None:
    """All of them once, in order, whatever the size of the page; filters narrow them."""
    stamps = [
        {
            "selector": {"sessionId": f"s{n % 3}"},
            "enrichment": {"n": str(n), "even": "yes" if n % 2 == 0 else "no"},
            "ts": f"2026-11-16T10:00:{n:02d}Z",
        }
        for n in range(50)
    ]
    with daemon.wire() as wire:
        wire.call("stamp", stamps=stamps)
        for size in (1, 7, 50, 1000):
            found, after = [], -1
            while after is not None:
                page = wire.call("stamps.list", limit=size, after=after)
                found += page["stamps"]
                after = page["next"]
            assert [stamp["enrichment"]["n"] for stamp in found] == [str(n) for n in range(50)]
        assert len(wire.call("stamps.list", session="s1")["stamps"]) == 17
        assert len(wire.call("stamps.list", key="even", value="yes")["stamps"]) == 25
        assert len(wire.call("stamps.list", key="none")["stamps"]) == 0
        assert len(wire.call("stamps.list", value="7")["stamps"]) == 1
        times = {"since": "2026-11-16T10:00:10Z", "until": "2026-11-16T10:00:20Z"}
        assert len(wire.call("stamps.list", **times)["stamps"]) == 10
        assert "ISO" in wire.error("stamps.list", since="later")["message"]


def test_a_stamp_with_a_range_is_listed_unchanged(live: Daemon) -> None:
    """With its times in the ledger's own form."""
    span = {"fromTs": "2026-11-16T10:00:00+02:00", "toTs": "2026-11-17"}
    with live.wire() as wire:
        wire.call("stamp", selector={"sessionId": "ranged", "range": span}, enrichment={"a": "b"})
        (found,) = wire.call("stamps.list", session="ranged")["stamps"]
    assert found["selector"] == {
        "sessionId": "ranged",
        "range": {"fromTs": "2026-11-16T08:00:00.000Z", "toTs": "2026-11-17T00:00:00.000Z"},
    }


def test_stamps_outlive_the_index(home: Home) -> None:
    """I3: after a rebuild the list is the same."""
    with running(home) as daemon, daemon.wire() as wire:
        wire.call("stamp", selector={"sessionId": "s"}, enrichment={"a": "b"})
        before = wire.call("stamps.list")
        daemon.terminate()
    shutil.rmtree(home.index)
    with running(home) as daemon, daemon.wire() as wire:
        assert wire.call("stamps.list") == before


def test_a_session_may_be_named_by_the_beginning_of_its_id(home: Home) -> None:
    """As short as `shortId`; several that begin so, or none, are refused with the reason, and nothing is stamped."""
    ids = [f"{first}1b2c3d4-0000-4000-8000-000000000001" for first in ("a", "b", "ba")]
    for session in ids:
        write(home, conversation(session, "one"), session)
    with running(home) as daemon, daemon.wire() as wire:
        wire.call("flush")
        short = {one["sessionId"]: one["shortId"] for one in wire.call("sessions.list")["sessions"]}
        wire.call("stamp", selector={"sessionId": short[ids[0]]}, enrichment={"x": "y"})
        wire.call("stamp", selector={"sessionId": "job-1"}, enrichment={"x": "z"})  # of a session to come
        for given, reason in (("b", "more than one session begins with 'b'"), ("c", "no session begins with 'c'")):
            error = wire.error("stamp", selector={"sessionId": given}, enrichment={"x": "y"})
            assert error["data"]["name"] == "refused"
            assert error["message"].startswith(reason)
        stamped = [line["selector"]["sessionId"] for line in ledger(home) if line["kind"] == "stamp"]
        assert stamped == [ids[0], "job-1"]
        assert wire.call("summary", tags={"x": "y"})["totals"]["turns"] == 1


def test_a_removal_is_in_the_ledger_when_it_is_answered(live: Daemon) -> None:
    """As a stamp without tags; the same one again is the same one, and the stamp before it stays listed."""
    session = {"sessionId": "s1"}
    removal = {"selector": session, "keys": ["persona", "persona"], "ts": "2026-11-16T11:00:00Z"}
    with live.wire() as wire:
        wire.call("stamp", selector=session, enrichment={"persona": "x", "b": "y"}, ts="2026-11-16T10:00:00Z")
        before = ledger(live.home)
        answer = wire.call("stamps.remove", **removal)
        assert (answer["removed"], answer["new"]) == (["persona"], 1)
        line = {"v": 1, "kind": "stamp", "ts": "2026-11-16T11:00:00.000Z", "selector": session, "enrichment": {}}
        assert ledger(live.home) == [*before, line | {"removes": ["persona"]}]
        assert wire.call("stamps.remove", **removal)["new"] == 0
        given, removed = wire.call("stamps.list", key="persona")["stamps"]
        assert given["enrichment"] == {"persona": "x", "b": "y"}
        assert "removes" not in given
        assert (removed["enrichment"], removed["removes"]) == ({}, ["persona"])
        assert wire.call("stamps.list", key="persona", value="x")["stamps"] == [given]


@pytest.mark.parametrize(
    ("params", "reason"),
    [
        ({"selector": {"sessionId": "s1"}, "keys": []}, "no key to remove"),
        ({"selector": {"sessionId": "s1"}, "keys": [""]}, "key must not be empty"),
        ({"selector": {"sessionId": "s1"}, "keys": ["nowhere"]}, "no stamp has the key 'nowhere'"),
        ({"selector": {}, "keys": ["a"]}, "either a sessionId or a messageId"),
        ({"selector": {"sessionId": "s1"}, "keys": "a"}, "must be a list"),
        ({"selector": {"sessionId": "s1"}, "keys": ["a"], "ts": "soon"}, "not an ISO time"),
        ({"keys": ["a"]}, "selector"),
    ],
)
def test_a_removal_that_cannot_be_used_is_refused_with_the_reason(
    live: Daemon, params: dict[str, Any], reason: str
) -> None:
    """The ledger does not grow."""
    before = ledger(live.home)
    with live.wire() as wire:
        assert reason in wire.error("stamps.remove", **params)["message"]
    assert ledger(live.home) == before


def test_a_removed_tag_is_gone_from_reports_and_from_a_rebuilt_index(home: Home) -> None:
    """For a part of a session, then for all of it; `stamp` takes removals among many too."""
    home.root.mkdir(mode=0o700)
    times = ["2026-11-16T09:00:00.000Z", "2026-11-16T10:00:00.000Z"]
    home.ledger.write_bytes(b"".join(encode(turn(f"m{n}", turn_index=n, ts=ts)) for n, ts in enumerate(times)))
    home.ledger.chmod(0o600)
    span = {"fromTs": times[1], "toTs": "2026-11-16T11:00:00Z"}

    def tagged() -> dict[str | None, int]:
        exported = [row["tags"] for row in wire.call("export")["turns"]]
        rows = {row["key"]: row["turns"] for row in wire.call("summary", by="tag:wf")["rows"]}
        assert sum(tags.get("wf") == "1" for tags in exported) == rows.get("1", 0)
        return rows

    with running(home) as daemon, daemon.wire() as wire:
        wire.call("stamp", selector={"sessionId": "s1"}, enrichment={"wf": "1"})
        assert tagged() == {"1": 2}
        wire.call("stamps.remove", selector={"sessionId": "s1", "range": span}, keys=["wf"])
        assert tagged() == {"1": 1, None: 1}
        wire.call("rebuild", index=True)
        assert tagged() == {"1": 1, None: 1}
        many = [{"selector": {"sessionId": "s1"}, "enrichment": {"b": "2"}, "removes": ["wf"]}]
        assert wire.call("stamp", stamps=many)["new"] == 1
        assert tagged() == {None: 2}
        both = [{"selector": {"sessionId": "s1"}, "enrichment": {"wf": "2"}, "removes": ["wf"]}]
        assert "both given and removed" in wire.error("stamp", stamps=both)["message"]
    shutil.rmtree(home.root / "index")
    with running(home) as daemon, daemon.wire() as wire:
        wire.call("flush")
        assert tagged() == {None: 2}
