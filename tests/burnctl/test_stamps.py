"""`burnctl stamps`: what was said can be read, and taken to another machine as it is."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from burnd.paths import Home
from tests.burnctl.commanding import burnctl
from tests.burnctl.fake import Refused, Talk, fake
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


def test_a_program_gets_what_the_socket_says(stamped: Path, daemon: Daemon) -> None:
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
    """What export prints, stamp --stdin takes; the ledger there has the same stamps with the same times."""
    exported = burnctl(stamped, "stamps", "export").stdout
    elsewhere = folder / "elsewhere"
    with running(Home(elsewhere)):
        for _ in range(2):  # the very same stamp twice counts once
            assert burnctl(elsewhere, "stamp", "--stdin", input=exported).returncode == 0
        assert burnctl(elsewhere, "stamps", "export").stdout == exported
    lines = [json.loads(line) for line in (stamped / "ledger.jsonl").read_text().splitlines()]
    assert [json.loads(line) for line in exported.splitlines()] == lines


def test_pages_are_put_together(folder: Path) -> None:
    """However many there are, and however large: pages too large for an answer are asked for in parts."""
    every = [
        {"ts": "2026-11-16T08:00:00.000Z", "selector": {"sessionId": f"s{n}"}, "enrichment": {"a": "b"}}
        for n in range(2500)
    ]

    def listing(params: dict[str, int], _talk: Talk) -> dict[str, object]:
        if params["limit"] > 400:
            raise Refused(-32002, "the answer is too large")
        start = params.get("after", -1) + 1
        end = start + params["limit"]
        return {"stamps": every[start:end], "next": end - 1 if end < len(every) else None}

    with fake(folder / "home" / "burnd.sock", stamps__list=listing):
        done = burnctl(folder / "home", "stamps", "export")
    assert [json.loads(line)["selector"]["sessionId"] for line in done.stdout.splitlines()] == [
        f"s{n}" for n in range(2500)
    ]


def test_with_no_daemon_a_script_is_told(folder: Path) -> None:
    """Exit code 3, and no daemon is started by it."""
    done = burnctl(folder / "home", "stamps", "list")
    assert done.returncode == 3
    assert not (folder / "home").exists()
