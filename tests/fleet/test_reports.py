"""Reports over a fleet equal those of its machines, to the last digit, with copies counted once."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from burnctl.cli import main
from burnctl.client import Client
from burnctl.errors import BurnctlError
from burnctl.fleet_client import FleetClient
from burnctl.push.schema import row_of
from burnctl.push.segments import SegmentTarget
from burnctl.push.target import Batch
from burnd.contract.reports import MOST_CHANGES, ChangesParams, SummaryParams
from tests.burnctl.demo_home import DemoHome, demo_home
from tests.burnctl.push.rows import common, gone, turn
from tests.fleet.segments import put

# Not pushed: usage that no log has, texts.
LOCAL = {"unlogged", "backfill", "title", "shortId", "quote", "machines", "filters", "createdAt", "project"}


@pytest.fixture(scope="module")
def demo() -> Iterator[DemoHome]:
    with demo_home() as demo:
        yield demo


@pytest.fixture(scope="module")
def fleet(demo: DemoHome, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The turns and sessions of the demo as two machines have them: some twice, some with an older version."""
    folder = tmp_path_factory.mktemp("fleet")
    with closing(Client(Path(demo.home) / "burnd.sock")) as client:
        sessions = client.ask(ChangesParams, {"limit": MOST_CHANGES})["sessions"]
    put(folder, "sessions", *(row_of("sessions", one, common("a", 5)) for one in sessions))
    put(folder, "sessions", *(row_of("sessions", one, common("b", 5)) for one in sessions[::3]))
    turns = [json.loads(line) for line in demo.run("export").stdout.splitlines()]
    rows = [row_of("turns", one, common("a", 5)) for one in turns]
    put(folder, "turns", *(row | {"seq": 3, "output": 1, "open": True} for row in rows[::2]))
    put(folder, "turns", *rows)
    put(folder, "turns", *(row | {"machine_id": "b", "machine": "box-b", "quality": "partial"} for row in rows[::3]))
    return str(folder)


def same(local: Any, fleet: Any) -> None:
    if isinstance(local, dict):
        assert local.keys() - LOCAL == fleet.keys() - LOCAL
        for name in local.keys() - LOCAL:
            same(local[name], fleet[name])
    elif isinstance(local, list):
        assert len(local) == len(fleet)
        for one, other in zip(local, fleet, strict=True):
            same(one, other)
    else:
        assert local == fleet


@pytest.mark.parametrize(
    "words",
    [
        "summary",
        "summary --by day,model",
        "summary --by activity --quality",
        "summary --by agent",
        "summary --by agent --quality --source claude-code",
        "summary --by day,model --quality",
        "summary --by session",
        "summary --by hour",
        "summary --by tag:persona --quality --limit 2",
        "summary --by branch --source codex",
        "summary --model sonnet --by project",
        "summary --project webapp --activity coding",
        "projects",
        "models --since 2020-01-01 --until 2040-01-01",
        "harnesses",
        "daily --all",
        "weekly --all",
        "monthly",
        "compare",
        "compare --by source --min-sample 2",
        "compare --by tag:persona",
        "compare --models opus,sonnet",
        "hotspots --by prompt",
        "hotspots --by prompt --limit 3 --rank tokens",
    ],
)
def test_an_answer_is_that_of_the_machine(
    demo: DemoHome, fleet: str, words: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TZ", "UTC")
    assert main([*words.split(), "--fleet", fleet, "--json"]) == 0  # in this process: it needs no daemon
    same(demo.json(*words.split()), json.loads(capsys.readouterr().out))


@pytest.mark.parametrize("zone", ["Asia/Kathmandu", "America/New_York", "Europe/Berlin"])
def test_days_are_local(demo: DemoHome, fleet: str, zone: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(demo._environment, "TZ", zone)
    for words in (["summary", "--by", "day"], ["summary", "--by", "hour"], ["weekly", "--all"]):
        same(demo.json(*words), demo.json(*words, "--fleet", fleet))


def test_rows_by_machine_user_and_team_add_up(demo: DemoHome, fleet: str) -> None:
    total = demo.json("summary")["totals"]
    for by in ("machine", "user", "team", "machine,model", "day,user"):
        answer = demo.json("summary", "--by", by, "--fleet", fleet)
        assert answer["totals"] == total
        assert sum(row["turns"] for row in answer["rows"]) == total["turns"]
    for words in (
        "daily --all",
        "weekly --all",
        "monthly",
        "projects",
        "models",
        "harnesses",
        "agents",
        "tags persona",
    ):
        for by in ("machine", "user", "team"):
            answer = demo.json(*words.split(), "--by", by, "--fleet", fleet)
            assert answer["totals"] == total
            assert answer["by"].endswith(f",{by}")
            assert sum(row["turns"] for row in answer["rows"]) == total["turns"]
            assert demo.run(*words.split(), "--by", by, "--fleet", fleet).returncode == 0
    causes = demo.json("hotspots", "--by", "user", "--fleet", fleet)
    assert causes["by"] == "tool,user"
    assert causes["totals"]["costUsd"] == total["costUsd"]
    assert [row["key"] for row in demo.json("summary", "--by", "machine", "--fleet", fleet)["rows"]] == ["box-a"]
    both = demo.json("summary", "--by", "machine,model", "--fleet", fleet)
    assert {row["keys"]["machine"] for row in both["rows"]} == {"box-a"}
    assert "2 machines" in demo.run("summary", "--fleet", fleet).stdout


def test_tables_are_those_of_the_machine(demo: DemoHome, fleet: str) -> None:
    for words in (["daily"], ["compare"]):
        local, other = demo.run(*words), demo.run(*words, "--fleet", fleet)
        assert other.stderr == ""
        assert other.stdout.splitlines()[:6] == local.stdout.splitlines()[:6]


def test_what_a_fleet_cannot_answer_is_refused(demo: DemoHome, fleet: str, tmp_path: Path) -> None:
    refused = {
        "summary --by agent --tree": "--tree is not possible with --fleet",
        "compare --what-if opus": "--what-if is not possible with --fleet",
        "hotspots --activity coding": "--activity is not possible with --fleet",
        "hotspots --by tool,tag:x": "is not possible with --fleet",
        "summary --by nothing": "unknown dimension 'nothing'",
        "tags": "--fleet is for summary",
    }
    for words, sentence in refused.items():
        done = demo.run(*words.split(), "--fleet", fleet)
        assert done.returncode == 2, words
        assert sentence in done.stderr
    done = demo.run("summary", "--project", "nosuch", "--fleet", fleet)
    assert (done.returncode, done.stdout) == (1, "")
    assert "no usage recorded for project 'nosuch'" in done.stderr
    assert "has no segments" in demo.run("summary", "--fleet", str(tmp_path)).stderr
    damaged = tmp_path / "turns" / "m1" / "x.parquet"
    damaged.parent.mkdir(parents=True)
    damaged.write_bytes(b"half")
    assert "a segment of turns cannot be read" in demo.run("summary", "--fleet", str(tmp_path)).stderr
    assert "Postgres has tables and views" in demo.run("summary", "--fleet", "postgres://x/y").stderr
    assert "give --fleet TARGET" in demo.run("summary", "--by", "user").stderr
    for words in ("summary --fleet=", "push --machine x "):
        done = demo.run(*words.split(" "))  # a variable that is not set must not mean this folder or this machine
        assert (done.returncode, done.stdout) == (2, "")
        assert "the target is empty" in done.stderr


def test_segments_that_are_merged_during_a_report_are_listed_again(tmp_path: Path) -> None:
    target = SegmentTarget(str(tmp_path))
    target.open("a")
    for n in range(3):
        target.send(Batch("a", {"turns": [turn("a", f"m{n}", n + 1)]}, str(n), n + 1))
    client = FleetClient.at(str(tmp_path))
    target.compact("a")
    assert client.ask(SummaryParams, {"by": "model"})["totals"]["turns"] == 3
    (segment,) = (tmp_path / "turns" / "a").iterdir()
    segment.write_bytes(b"damaged")
    with pytest.raises(BurnctlError, match="segment of turns cannot be read"):
        client.ask(SummaryParams, {"by": "model"})
    client.close()


def test_two_versions_of_the_schema(demo: DemoHome, tmp_path: Path) -> None:
    """Segments of an older version lack columns; sums are exact decimals."""
    put(tmp_path, "turns", turn("a", "m1", 1), without=("model_name", "persona", "version"))
    put(tmp_path, "turns", turn("b", "m2", 1, costUsd=0.1), turn("b", "m3", 1, costUsd=0.2), turn("c", "m4", 1))
    put(tmp_path, "turns", gone("c", "m4", 2))
    answer = demo.json("summary", "--fleet", str(tmp_path))
    assert answer["totals"]["turns"] == 3
    assert answer["totals"]["costUsd"] == float(Decimal("0.300001234567"))
    assert {row["key"] for row in answer["rows"]} == {"claude-sonnet-4-5", "claude-sonnet-4-5-20250929"}
