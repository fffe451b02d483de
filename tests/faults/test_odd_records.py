"""One odd record, of a broken clock or with a name of megabytes, costs no report its answer."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from burnd.paths import Home
from burnd.records.codec import encode
from burnd.records.names import bounded
from tests.burnctl.invoke import run as burnctl
from tests.harness.claude_code.transcript import Transcript, call
from tests.harness.codex.rollout import Rollout, says
from tests.harness.codex.rollout import call as codex_call
from tests.harness.opencode.data import Writer, tokens, tool
from tests.make import turn
from tests.server.logs import write
from tests.server.wire import Wire, running, until

LONG = "n" * 300_000
ZONES = ("Pacific/Kiritimati", "+23:59", -1439)
TIMES = (
    "0001-01-01T00:00:00.000Z",
    "9999-12-31T23:59:59.999Z",
    "0001-01-01T00:00:00+14:00",
    "9999-12-31T23:59:59-14:00",
    "0000-01-01T00:00:00Z",
    "-0001-01-01T00:00:00Z",
    "10000-01-01T00:00:00Z",
    "1969-12-31T23:59:59Z",
)
REPORTS: tuple[tuple[str, dict[str, Any]], ...] = (
    *(("summary", {"by": by}) for by in ("model", "provider", "project", "branch", "agent", "session", "tag:t")),
    ("compare", {}),
    *(("hotspots", {"by": by}) for by in ("tool", "file", "command", "mcp", "skill", "subagent", "prompt")),
    ("export", {}),
    ("sessions.list", {}),
    ("waste", {}),
    ("overhead", {}),
    ("limits", {}),
    ("status", {}),
)


def test_times_of_broken_clocks(home: Home) -> None:
    """F79: reports by any length of time answer in every zone; the ledger has the times as the log has them."""
    for n, ts in enumerate(TIMES):
        _write(home, f"t{n}", {"timestamp": ts})
    with running(home) as daemon, daemon.wire() as wire:
        until(lambda: wire.call("summary")["totals"]["turns"] == len(TIMES))
        for zone in ZONES:
            for by in ("hour", "day", "week", "month"):
                for since in ("0001-01-01", "7d"):
                    answer = wire.call("summary", by=by, tz=zone, since=since)
                    assert sum(row["turns"] for row in answer["rows"]) == (len(TIMES) if since != "7d" else 2)
        wire.call("flush")
        assert wire.call("summary", until="9999-12-31")["totals"]["turns"] == len(TIMES)
        _check_reports(wire)
    found = {one["sessionId"]: one["ts"] for one in _turns(home)}
    assert (found["t0"], found["t1"]) == TIMES[:2]


def _write(home: Home, session: str, envelope: dict[str, Any], model: str = "claude-opus-4-5", **facts: Any) -> None:
    log = Transcript(session=session)
    log.prompt("hello")
    log.calls(f"m-{session}", call(f"c-{session}", facts.get("tool", "Bash"), command="ls"))
    lines = [json.loads(line) | envelope for line in log.lines]
    for line in lines:
        if "model" in line["message"]:
            line["message"]["model"] = model
    log.lines[:] = [json.dumps(line).encode() for line in lines]
    write(home, log, session)


def _check_long_tags(wire: Wire, tags: dict[str, str]) -> None:
    """Reports show them cut; both the whole value and what is shown select the turns. The stamps have values whole."""
    for key, value in tags.items():
        rows = {row["key"]: row["turns"] for row in wire.call("summary", by=f"tag:{key}")["rows"]}
        (shown,) = rows.keys() - {None}
        assert rows[shown] == 5
        assert len(shown) <= 256
        for given in (value, shown):
            assert wire.call("summary", tags={key: given})["totals"]["turns"] == 5
            assert len(wire.call("export", tags={key: given})["turns"]) == 5
        assert len(wire.call("stamps.list", key=key, value=value)["stamps"]) == 5
    assert wire.call("summary", agent=tags["agentId"])["totals"]["turns"] == 5
    assert wire.call("summary", workflow=tags["workflowId"])["totals"]["turns"] == 5
    stored = {bounded(key): value for key, value in tags.items()}
    assert [one["enrichment"] for one in wire.call("stamps.list")["stamps"]] == [stored] * 5


def _check_reports(wire: Wire) -> None:
    for method, params in REPORTS:
        answer = wire.call(method, **params)
        longest = max(map(len, _texts(answer)), default=0)
        assert longest <= 4096, f"{method} {params} has a text of {longest}"


def _texts(value: Any) -> Iterator[bytes]:
    if isinstance(value, str):
        yield value.encode()
    elif isinstance(value, dict):
        for name, item in value.items():
            yield name.encode()
            yield from _texts(item)
    elif isinstance(value, list):
        for item in value:
            yield from _texts(item)


def _turns(home: Home) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in home.ledger.read_bytes().splitlines()]
    return [line["record"] for line in lines if line["kind"] == "turn"]


def test_names_of_megabytes_in_logs_and_from_clients(home: Home) -> None:
    """A name has at most 256 bytes, of which the last are a hash, so that two long ones are two."""
    _write(home, "s0", {}, model=LONG)
    _write(home, "s1", {}, model=LONG + "x")
    _write(home, "s2", {"gitBranch": LONG})
    _write(home, "s3", {}, tool=LONG)
    _write(home, "s4", {"version": LONG, "requestId": LONG})
    _write(home, "s5", {}, model="日" * 100)
    _write(home, "s6", {"cwd": f"/{LONG}"})
    _write_codex(home)
    _write_opencode(home)
    with running(home) as daemon, daemon.wire() as wire:
        until(lambda: wire.call("summary")["totals"]["turns"] == 9)
        api = wire.call("sessions.new", agent="a", sender="test")["sessionId"]
        usage = {"input_tokens": 1, "output_tokens": 1}
        wire.call(
            "sessions.append",
            id=api,
            source="anthropic-api",
            messages=[{"id": "a1", "role": "assistant", "content": "x", "model": "ж" * 200, "usage": usage}],
        )
        wire.call("flush")
        tags = {"t": "v" * 100_000, "k" * 100_000: "v", "agentId": "a" * 1000, "workflowId": "w" * 1000}
        wire.call("stamp", stamps=[{"selector": {"sessionId": f"s{n}"}, "enrichment": tags} for n in range(5)])
        _check_reports(wire)
        _check_long_tags(wire, tags)
        models = [row["key"] for row in wire.call("summary", by="model")["rows"]]
        assert all(len(model.encode()) <= 256 for model in models)
        assert sum(model.startswith("nnn") for model in models) == 4
        tools = [row["key"] for row in wire.call("hotspots", by="tool")["rows"]]
        assert sum(str(name).startswith("nnn") for name in tools) >= 1
    for one in _turns(home):
        names = [one["model"], one.get("gitBranch", ""), one.get("provider", "")]
        names += [made["name"] for made in one["toolCalls"]]
        assert max(len(name.encode()) for name in names) <= 256


def _write_codex(home: Home) -> None:
    log = Rollout(1, git={"branch": LONG})
    log.task(f"{LONG}-codex")
    log.prompt("hello")
    log.item(codex_call("c1", LONG, a=1), says("done"))
    log.meter(10, 0, 5, 0)
    folder = home.root.parent / ".codex" / "sessions" / "2026" / "11" / "16"
    folder.mkdir(parents=True)
    (folder / log.name).write_bytes(log.data)


def _write_opencode(home: Home) -> None:
    folder = home.root.parent / ".local" / "share" / "opencode"
    folder.mkdir(parents=True)
    writer = Writer(folder / "opencode.db")
    writer.session("ses_1", title=LONG)
    writer.user("msg_1", "ses_1")
    writer.step(
        "msg_2",
        "ses_1",
        "msg_1",
        tool("c1", LONG, {}),
        modelID=f"{LONG}-oc",
        providerID=LONG,
        tokens=tokens(input=3, output=4),
    )
    writer.close()


@pytest.mark.parametrize("long", [LONG, "ß" * 200])
def test_an_older_ledger_with_long_names(home: Home, long: str) -> None:
    """Names in older ledgers, from before the limit, are cut when read."""
    home.root.mkdir(parents=True, mode=0o700)
    calls = [{"id": "c1", "name": long, "target": f"/{long}"}]
    record = json.loads(encode(turn("m1")))
    record["record"] |= {"model": long, "gitBranch": long, "project": f"/{long}", "toolCalls": calls}
    home.ledger.write_bytes(json.dumps(record).encode() + b"\n" + encode(turn("m2")))
    with running(home) as daemon, daemon.wire() as wire:
        assert wire.call("summary")["totals"]["turns"] == 2
        _check_reports(wire)
    assert long in Path(home.ledger).read_text() or json.dumps(long)[1:-1] in Path(home.ledger).read_text()


EVIL = "\x1b]52;c;aGk=\x07\x1b[31mEV\x9b2J\u202eIL\r\n\tX"


def test_names_with_control_characters_are_shown_without(home: Home) -> None:
    """F74: ids, models, tags, branches, tools and projects, in reports, errors and pictures, also through a pipe."""
    session = f"s{EVIL[10:]}"
    _write(home, session, {"gitBranch": f"b{EVIL}", "cwd": f"/p{EVIL}"}, model=f"m{EVIL}", tool=f"t{EVIL}")
    with running(home) as daemon, daemon.wire() as wire:
        until(lambda: wire.call("summary")["totals"]["turns"] == 1)
        wire.call("stamp", selector={"sessionId": session}, enrichment={f"k{EVIL}": f"v{EVIL}"})
        unnamed = [["status"], ["doctor"], ["by-tool"], [], ["top"], ["agents"], ["tags"], ["waste"], ["search", "EV"]]
        for words in (
            *unnamed,
            ["projects"],
            ["models"],
            ["daily", "--breakdown"],
            ["sessions"],
            ["show", session],
            ["why", session],
            ["why", f"no{EVIL}"],
            ["flow", session],
            ["flow", session, "--svg", "-"],
            ["flow", session, "--mermaid"],
            ["resume", session],
            ["summary", "--by", f"tag:k{EVIL}"],
            ["summary", "--by", "branch"],
            ["summary", "--model", f"no{EVIL}"],
            ["compare", "--by", f"tag:k{EVIL}"],
            ["stamps", "list"],
            ["pricing", "show", f"m{EVIL}", "--provider", f"p{EVIL}"],
        ):
            done = burnctl(home, *words)
            assert all(line.isprintable() for line in (done.stdout + done.stderr).split("\n")), (words, done)
            assert "EV" in done.stdout + done.stderr or words in unnamed
