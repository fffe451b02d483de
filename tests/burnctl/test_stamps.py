"""`burnctl stamps` lists, exports, and removes stamps."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from burnd.paths import Home
from tests.burnctl.fake_daemon import FakeConnection, Refused, fake_daemon
from tests.burnctl.runner import burnctl
from tests.server.wire import Daemon, running

SESSION = "0f9c1d2e-0000-4000-8000-000000000001"


@pytest.fixture
def daemon(folder: Path) -> Iterator[Daemon]:
    with running(Home(folder / "home")) as found:
        yield found


@pytest.fixture
def stamped(daemon: Daemon) -> Path:
    """A home with three stamps of different kinds."""
    home = daemon.home.root
    lines = [
        {"sessionId": SESSION, "ts": "2026-11-16T08:00:00Z", "workflowId": "wf-1", "persona": "senior"},
        {"messageId": "msg_1", "ts": "2026-11-16T09:00:00Z", "verdict": "wr\x1b[31mong"},
        {
            "sessionId": "other",
            "ts": "2026-11-16T10:00:00Z",
            "range": {"fromTs": "2026-11-16T07:00:00Z"},
            "enrichment": {"workflowId": "wf-2"},
        },
    ]
    assert burnctl(home, "stamp", "--stdin", input="\n".join(map(json.dumps, lines))).returncode == 0
    return home


def test_a_person_sees_a_table(stamped: Path) -> None:
    """Time, session or message whole, range where there is one, tags; nothing in them can steer a terminal."""
    done = burnctl(stamped, "stamps", "list", env={"COLUMNS": "120"})
    assert done.returncode == 0, done.stderr
    head, *rows = done.stdout.splitlines()
    assert head.split("  ")[0] == "time (UTC)"
    assert rows[0].split() == ["2026-11-16", "08:00", SESSION, "workflowId=wf-1", "persona=senior"]
    assert "verdict=wr" in rows[1]
    assert rows[2].endswith("  from 2026-11-16 07:00  workflowId=wf-2")
    assert "\x1b" not in done.stdout
    narrow = burnctl(stamped, "stamps", "list", env={"COLUMNS": "80"}).stdout
    assert max(map(len, narrow.splitlines())) <= 80
    assert SESSION in narrow


def test_json_is_the_answer_of_the_socket(stamped: Path, daemon: Daemon) -> None:
    """--json: all pages in one answer of the same shape."""
    with daemon.wire() as wire:
        said = wire.call("stamps.list")
    assert json.loads(burnctl(stamped, "stamps", "list", "--json").stdout) == said


SOME = {
    ("--session", SESSION): 1,
    ("--session", "nobody"): 0,
    ("--message", "msg_1"): 1,
    ("--tag", "workflowId"): 2,
    ("--tag", "workflowId=wf-2"): 1,
    ("--tag", "workflowId="): 0,
}


def test_some_of_them(stamped: Path) -> None:
    """By session, message, key, or key and value."""
    for words, found in SOME.items():
        done = burnctl(stamped, "stamps", "list", "--json", *words)
        assert len(json.loads(done.stdout)["stamps"]) == found, words
    assert len(burnctl(stamped, "stamps", "export", "--tag", "workflowId").stdout.splitlines()) == 2
    assert burnctl(stamped, "stamps", "list", "--session", "nobody").stdout == "No tag matches.\n"


def test_they_go_to_another_machine_as_they_are(stamped: Path, folder: Path) -> None:
    """stamp --stdin reads the output of export; the other ledger then has the same stamps with the same times."""
    exported = burnctl(stamped, "stamps", "export").stdout
    elsewhere = folder / "elsewhere"
    with running(Home(elsewhere)):
        for _ in range(2):  # the very same stamp twice counts once
            assert burnctl(elsewhere, "stamp", "--stdin", input=exported).returncode == 0
        assert burnctl(elsewhere, "stamps", "export").stdout == exported
    lines = [json.loads(line) for line in (stamped / "ledger.jsonl").read_text().splitlines()]
    assert [json.loads(line) for line in exported.splitlines()] == lines


def test_pages_are_put_together(folder: Path) -> None:
    """Any number of stamps of any size is read in pages that fit an answer."""
    every = [
        {"ts": "2026-11-16T08:00:00.000Z", "selector": {"sessionId": f"s{n}"}, "enrichment": {"a": "b"}}
        for n in range(2500)
    ]

    def listing(params: dict[str, int], _talk: FakeConnection) -> dict[str, object]:
        if params["limit"] > 400:
            raise Refused(-32002, "the answer is too large")
        start = params.get("after", -1) + 1
        end = start + params["limit"]
        return {"stamps": every[start:end], "next": end - 1 if end < len(every) else None}

    with fake_daemon(folder / "home" / "burnd.sock", stamps__list=listing):
        done = burnctl(folder / "home", "stamps", "export")
    assert [json.loads(line)["selector"]["sessionId"] for line in done.stdout.splitlines()] == [
        f"s{n}" for n in range(2500)
    ]


def test_without_a_daemon_a_script_gets_an_error(folder: Path) -> None:
    """Exit code 3, and no daemon is started by it."""
    done = burnctl(folder / "home", "stamps", "list")
    assert done.returncode == 3
    assert not (folder / "home").exists()


def test_tags_are_removed(stamped: Path, folder: Path) -> None:
    """By key; the list shows the removal, and export takes it to another machine."""
    done = burnctl(stamped, "stamps", "remove", "--session", SESSION, "persona", "workflowId", "--json")
    answer = {"version": 1, "state": "recorded", "stamps": 1, "removes": ["persona", "workflowId"]}
    assert (done.returncode, json.loads(done.stdout)) == (0, answer)
    assert burnctl(stamped, "stamps", "remove", "--message", "msg_1", "verdict").stdout == ""
    listed = burnctl(stamped, "stamps", "list", env={"COLUMNS": "120"}).stdout.splitlines()
    assert listed[-2].endswith("  persona (removed) workflowId (removed)")
    exported = burnctl(stamped, "stamps", "export").stdout
    elsewhere = folder / "elsewhere"
    with running(Home(elsewhere)):
        assert burnctl(elsewhere, "stamp", "--stdin", input=exported).returncode == 0
        assert burnctl(elsewhere, "stamps", "export").stdout == exported


def test_a_removal_waits_in_the_spool(folder: Path) -> None:
    """With burnd down it is spooled after the stamp; burnd records both."""
    home = folder / "home"
    assert burnctl(home, "stamp", "--session", SESSION, "a=1", "b=2").returncode == 0
    done = burnctl(home, "stamps", "remove", "--session", SESSION, "a", "--json")
    answer = json.loads(done.stdout)
    assert (done.returncode, answer["state"], answer["removes"]) == (0, "spooled", ["a"])
    with running(Home(home)) as daemon, daemon.wire() as wire:
        wire.call("spool")
        given, removed = wire.call("stamps.list")["stamps"]
    assert given["enrichment"] == {"a": "1", "b": "2"}
    assert (removed["enrichment"], removed["removes"]) == ({}, ["a"])


WRONG = {
    ("--session", SESSION): (2, "KEY"),
    ("persona",): (2, "a tag needs a session or a message"),
    ("--session", SESSION, "persona=senior"): (2, "name the key alone: persona"),
    ("--session", SESSION, ""): (2, "must not be empty"),
    ("--message", "msg_1", "--from", "2026-11-16", "verdict"): (2, "goes with a session"),
    ("--session", SESSION, "persna"): (1, "no stamp has the key 'persna'"),
}


def test_a_wrong_removal_is_refused_with_the_reason(stamped: Path) -> None:
    """And nothing is recorded."""
    before = (stamped / "ledger.jsonl").read_bytes()
    for words, (code, reason) in WRONG.items():
        done = burnctl(stamped, "stamps", "remove", *words)
        assert (done.returncode, reason in done.stderr) == (code, True), done.stderr
    assert (stamped / "ledger.jsonl").read_bytes() == before


def test_lines_that_remove(folder: Path) -> None:
    """`removes` is a list of keys, none of them given too."""
    home = folder / "home"
    for line, reason in {
        '{"sessionId": "s", "removes": "a"}': "removes is not a list of keys",
        '{"sessionId": "s", "a": "1", "removes": ["a"]}': "both given and removed",
        '{"sessionId": "s", "removes": [1]}': "is not a string",
    }.items():
        done = burnctl(home, "stamp", "--stdin", input=line)
        assert (done.returncode, reason in done.stderr) == (2, True), done.stderr
    assert burnctl(home, "stamp", "--stdin", input='{"sessionId": "s", "b": "1", "removes": ["a"]}').returncode == 0
