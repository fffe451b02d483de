"""Limits with a running daemon: readings, crossed budgets, labels and pages over the socket."""

from __future__ import annotations

import json
import shutil
import time
from pathlib import Path
from typing import Any

from burnd.paths import Home
from tests.burnctl.invoke import run
from tests.server.logs import iso, projects, work
from tests.server.wire import Daemon, running, until


def away_from_midnight() -> None:
    """Waits while what is done now, a moment ago or in a minute may be of different days."""
    while not 5 < time.localtime().tm_hour * 3600 + time.localtime().tm_min * 60 + time.localtime().tm_sec < 86_340:
        time.sleep(1)


def quota_of(daemon: Daemon, window: str = "5h") -> Any:
    with daemon.wire() as wire:
        current = wire.call("limits")["windows"][window]["current"]
    return current and current["quota"]


def test_a_status_line_is_recorded_and_shown(home: Home) -> None:
    """Readings from the status line are shown beside the counted usage, also after a restart."""
    away_from_midnight()
    work(home)
    resets = int(time.time()) + 7200
    told = {
        "session_id": "s1",
        "context_window": {"used_percentage": 10},
        "rate_limits": {"five_hour": {"used_percentage": 37.5, "resets_at": resets}},
    }
    with running(home) as daemon:
        with daemon.wire() as wire:
            wire.call("flush")
        shown = "$0.01 session · $0.01 today · 5h 38% until "
        # An answer that does not come within moments is not waited for, so a busy machine may have to be asked again.
        until(lambda: run(home, "statusline", stdin=json.dumps(told)).stdout.startswith(shown))
        until(lambda: quota_of(daemon) is not None)
        run(home, "statusline", stdin=json.dumps(told))
        daemon.terminate()
    ledger = home.ledger.read_bytes()
    assert ledger.count(b'"kind":"quota"') == 1
    with running(home) as daemon:
        with daemon.wire() as wire:
            window = wire.call("limits")["windows"]["5h"]["current"]
        assert (window["basis"], window["turns"], window["costUsd"]) == ("reported", 1, 0.015)
        assert window["quota"]["usedPercent"] == 37.5
        assert "38% used" in run(home, "limits").stdout


def test_readings_in_the_spool_are_recorded(home: Home) -> None:
    """With their own times, also for a window that has ended."""
    home.spool.mkdir(mode=0o700, parents=True)
    home.root.chmod(0o700)
    for n, (ago, percent) in enumerate([(20_000, 30.0), (19_000, 80.0), (60, 5.0)]):
        record = {"v": 1, "ts": iso(-ago), "source": "claude-code", "window": "5h", "usedPercent": percent}
        record["resetsAt"] = iso(-5000) if ago > 5000 else iso(10_000)
        (home.spool / f"quota-{n}.json").write_text(json.dumps({"v": 1, "kind": "quota", "record": record}))
    with running(home) as daemon:
        assert quota_of(daemon)["usedPercent"] == 5.0
        assert list(home.spool.glob("*.json")) == []
    assert home.ledger.read_bytes().count(b'"kind":"quota"') == 3


def test_a_bad_reading_is_refused(home: Home) -> None:
    with running(home) as daemon, daemon.wire() as wire:
        many = [{"window": "5h", "usedPercent": 1}] * 101
        wrong: list[Any] = [[{"window": "1h", "usedPercent": 1}], [{"window": "5h"}], "none", many]
        for readings in wrong:
            assert wire.error("quota", readings=readings)["code"] in (-32602, -32006)
        late = [{"window": "5h", "usedPercent": 1, "resetsAt": "soon"}]
        assert wire.error("quota", readings=late)["message"] == "resetsAt is not an ISO time"


def test_a_crossed_budget_is_reported_everywhere_once(home: Home) -> None:
    """In `status`, to followers, by the exit code of --check, and by the command, once across restarts."""
    away_from_midnight()
    note = home.root.parent / "note"
    configure(home, f'daily = 0.02\nmonthly = 50\ncommand = "echo $BURND_BUDGET_PERIOD >> {note}"')
    projects(home).mkdir(parents=True)
    with running(home) as daemon, daemon.wire() as follower:
        follower.call("tail", session="nobody")
        work(home, "s1")
        until(lambda: budget(daemon)["spentUsd"] == 0.015)
        assert run(home, "limits", "--check").returncode == 0
        work(home, "s2")
        told = follower.line()
        assert told is not None
        assert told["params"]["budget"]["period"] == "daily"
        assert told["params"]["budget"]["spentUsd"] == 0.03
        until(lambda: budget(daemon)["crossed"] is True)
        checked = run(home, "limits", "--check")
        assert (checked.returncode, checked.stdout) == (1, "the daily budget is exceeded: $0.03 of $0.02\n")
        until(lambda: note.exists() and note.read_text() == "daily\n")
        with daemon.wire() as later:
            later.call("tail", session="nobody")
            told = later.line()
            assert told is not None, "who comes later is told as well"
            assert told["params"]["budget"]["crossed"] is True
        daemon.terminate()
    shutil.rmtree(home.index)
    with running(home) as daemon:
        work(home, "s3")
        until(lambda: budget(daemon)["spentUsd"] == 0.045)
        time.sleep(2.5)
    assert note.read_text() == "daily\n"


def test_settings_are_followed_while_it_runs(home: Home) -> None:
    """A plan is in the next answer; a budget is watched from then on, and a command of it that fails is shown."""
    work(home)
    with running(home) as daemon, daemon.wire() as wire:
        assert "plans" not in wire.call("summary")
        home.config.write_text(
            '[display]\nplan = "max20"\n[budget]\ndaily = 0.01\ncommand = ["/no/such/program"]\n[log]\nlevel="error"\n'
        )
        assert [plan["name"] for plan in wire.call("summary")["plans"]] == ["max20"]
        values = {one["key"]: one["value"] for one in wire.call("config.show")["settings"]}
        assert (values["budget.daily"], values["log.level"]) == (0.01, "info")
        until(lambda: any("budget command" in item["what"] for item in status(daemon)["degraded"]))
        home.config.write_text("[display]\nplan = 3\n")
        assert "plans" in wire.call("summary")
        assert any("display.plan" in item["what"] for item in status(daemon)["degraded"])


def configure(home: Home, budget: str) -> None:
    home.root.mkdir(mode=0o700)
    home.config.write_text(f"[budget]\n{budget}\n")


def status(daemon: Daemon) -> dict[str, Any]:
    with daemon.wire() as wire:
        return wire.call("status")


def budget(daemon: Daemon) -> dict[str, Any]:
    found: dict[str, Any] = status(daemon)["budget"][0]
    return found


def test_labels_are_reclassified_while_it_runs(home: Home) -> None:
    """`rebuild --reclassify` over a ledger that lacks labels; a second time it has nothing to do."""
    work(home, turns=3)
    with running(home) as daemon, daemon.wire() as wire:
        wire.call("flush")
    strip_labels(home.ledger)
    with running(home) as daemon:
        done = run(home, "rebuild", "--reclassify")
        assert (done.returncode, done.stdout) == (0, "3 requests are labelled\n")
        assert run(home, "rebuild", "--reclassify").stdout == "every request was labelled already\n"
        with daemon.wire() as wire:
            found = wire.call("export")["turns"]
        assert [turn["activity"] for turn in found] == ["feature"] * 3
    with running(home) as daemon, daemon.wire() as wire:
        assert [turn["activity"] for turn in wire.call("export")["turns"]] == ["feature"] * 3


def strip_labels(ledger: Path) -> None:
    lines = []
    for line in ledger.read_text().splitlines():
        entry = json.loads(line)
        for name in ("activity", "retries", "hasEdits", "promptWords"):
            entry.get("record", {}).pop(name, None)
        lines.append(json.dumps(entry, separators=(",", ":")))
    ledger.write_text("\n".join(lines) + "\n")


def test_an_export_of_everything(home: Home) -> None:
    """Through the command, with a stamp folded in."""
    work(home, turns=5)
    with running(home) as daemon, daemon.wire() as wire:
        wire.call("flush")
        wire.call("stamp", selector={"sessionId": "s1"}, enrichment={"workflowId": "wf"})
        turns = [json.loads(line) for line in run(home, "export", "--workflow", "wf").stdout.splitlines()]
        assert len(turns) == 5
        assert {turn["tags"]["workflowId"] for turn in turns} == {"wf"}
        assert sum(turn["costUsd"] for turn in turns) == 0.075
        assert run(home, "export", "--workflow", "other").stdout == ""
