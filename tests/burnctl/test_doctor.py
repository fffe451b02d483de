"""Each check of the doctor finds its problem, gives advice and changes nothing."""

from __future__ import annotations

import json
import os
import socket
import time
from pathlib import Path
from typing import Any

import pytest

from burnctl import doctor
from burnctl.client import Client
from burnctl.commands import doctor as command
from burnctl.commands.doctor import report
from burnctl.doctor import CheckResult, fail, ok, warn
from burnctl.errors import BurnctlError
from burnctl.push.state import state_file, write_state
from burnctl.render.screen import Screen
from burnctl.render.text import width_of
from burnd import __version__, protocol
from burnd.paths import Home
from tests.burnctl.fake_daemon import Refused, fake_daemon
from tests.burnctl.invoke import run

NOW = 1_790_000_000.0


@pytest.fixture
def made(home: Home) -> Home:
    home.root.mkdir(parents=True, mode=0o700)
    return home


def told(finding: CheckResult) -> tuple[str, str]:
    return finding.level, f"{finding.says} {finding.remedy}"


def test_a_home_that_is_not_there_yet_is_fine(home: Home) -> None:
    assert doctor.folder(home).level == "ok"
    assert not home.root.exists()


def test_an_open_home_is_broken(made: Home) -> None:
    made.root.chmod(0o755)
    level, text = told(doctor.folder(made))
    assert level == "fail"
    assert f"chmod 700 {made.root}" in text
    assert made.root.stat().st_mode & 0o777 == 0o755


def test_a_home_that_is_a_file_is_broken(home: Home) -> None:
    home.root.parent.mkdir(exist_ok=True)
    home.root.write_text("")
    assert doctor.folder(home).level == "fail"


def test_files_that_others_may_read_are_found(made: Home) -> None:
    assert doctor.files(made).level == "ok"
    (made.root / "content").mkdir(mode=0o700)
    for name in ("ledger.jsonl", "content/s.jsonl"):
        (made.root / name).touch(mode=0o644)
    finding = doctor.files(made)
    assert finding.level == "warn"
    assert "and 1 more" in finding.says


def test_a_network_file_system_is_warned_of(made: Home, tmp_path: Path) -> None:
    mounts = tmp_path / "mounts"
    mounts.write_text(f"a / ext4 rw 0 0\nb {made.root.parent} nfs4 rw 0 0\nc /elsewhere cifs rw 0 0\nshort\n")
    assert doctor.file_system(made, str(mounts)).level == "ok"  # a line that cannot be read ends the list
    mounts.write_text(f"a / ext4 rw 0 0\nb {made.root.parent} nfs4 rw 0 0\nc /elsewhere cifs rw 0 0\n")
    assert doctor.file_system(made, str(mounts)).level == "warn"
    assert doctor.file_system(made, "/nowhere").level == "ok"


def test_a_full_disk(made: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    class Facts:
        f_bavail, f_frsize = 0, 4096

    monkeypatch.setattr(os, "statvfs", lambda _path: Facts)
    for blocks, level in ((0, "fail"), (100_000, "warn"), (10**9, "ok")):
        Facts.f_bavail = blocks
        assert doctor.disk(made, reserve=20 << 20).level == level
    assert doctor.disk(made, reserve=10**13).level == "fail"  # a reserve larger than the free space


def test_the_reserve_is_the_daemons_or_else_that_of_the_settings() -> None:
    """Doctor warns at the same limit at which recording pauses."""
    settings = {"settings": [{"key": "disk.reserve", "value": 5_000}]}
    assert command._reserve({"disk": {"free": 1, "reserve": 7_000}}, settings) == 7_000
    assert command._reserve({"disk": {"free": None, "reserve": None}}, settings) == 5_000
    assert command._reserve(None, settings) == 5_000
    assert command._reserve(None, {"settings": [{"key": "disk.reserve", "value": "auto"}]}) == 20 << 20


def test_the_spool(made: Home) -> None:
    assert doctor.spool(made, NOW, running=True).level == "ok"
    made.spool.mkdir()
    waiting = made.spool / "1-2-3.json"
    waiting.touch()
    (made.spool / ".half-written.json.tmp").touch()
    os.utime(waiting, (NOW - 600, NOW - 600))
    assert told(doctor.spool(made, NOW, running=False))[0] == "warn"
    assert "burnctl up" in told(doctor.spool(made, NOW, running=False))[1]
    assert "burnctl status" in told(doctor.spool(made, NOW, running=True))[1]
    assert doctor.spool(made, NOW - 599, running=True).level == "ok"
    (made.spool / "bad").mkdir()
    (made.spool / "bad" / "x.json").touch()
    assert "could not use" in told(doctor.spool(made, NOW, running=True))[1]


def test_leftovers(made: Home) -> None:
    assert doctor.leftovers(made).level == "ok"
    (made.root / "ledger.torn-1").touch()
    assert "may be deleted" in doctor.leftovers(made).says
    made.content.mkdir()
    (made.content / "blobs.db.damaged").touch()
    assert doctor.leftovers(made).level == "warn"


def test_the_socket(made: Home) -> None:
    path = made.root / "burnd.sock"
    assert doctor.socket(str(path)).level == "ok"
    path.write_text("")
    assert doctor.socket(str(path)).level == "fail"
    path.unlink()
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(str(path))
        path.chmod(0o666)
        assert doctor.socket(str(path)).level == "warn"
        path.chmod(0o600)
        assert doctor.socket(str(path)).level == "ok"


def test_the_daemon(made: Home) -> None:
    client = Client(made.root / "burnd.sock", timeout=30)
    status, finding = doctor.ask(client)
    assert (status, finding.level, finding.remedy) == (None, "fail", "start it with: burnctl up")
    old: dict[str, Any] = {"daemon": {"pid": 7, "version": "0.0.9", "uptimeMs": 90_000}}
    with fake_daemon(made.root / "burnd.sock", status=old), client:
        status, finding = doctor.ask(client)
        assert finding.says == "answers (pid 7, for 1 min)"
        assert doctor.versions(status).level == "warn"
    with fake_daemon(made.root / "burnd.sock", status={"version": 99}), client:
        assert "version 99" in doctor.ask(client)[1].says
    assert doctor.versions({"daemon": {"version": __version__}}).level == "ok"
    assert doctor.versions(None).level == "ok"


def test_what_burnd_calls_degraded_is_passed_on() -> None:
    found = doctor.degraded({"degraded": [{"what": "opencode: locked", "remedy": "close it"}]})
    assert [(f.level, f.says, f.remedy) for f in found] == [("warn", "opencode: locked", "close it")]
    assert doctor.degraded({}) == []


def test_pushes_that_fail_or_wait(made: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RELAYBURN_HOME", str(made.root))
    client = Client(made.root / "burnd.sock", timeout=30)
    with fake_daemon(made.root / "burnd.sock", changes={"left": 3}), client:
        assert doctor.pushes(client) == []
        write_state("/there", "c1")
        (done,) = doctor.pushes(client)
        assert (done.level, "3 changed sessions" in done.says) == ("ok", True)
        write_state("/there", None, error="no route")
        (failed,) = doctor.pushes(client)
        assert (failed.level, failed.remedy) == ("warn", "try it: burnctl push /there")
        assert "no route" in failed.says
        file = Path(state_file("/there"))
        file.write_text(json.dumps({"target": "/there", "cursor": "c1", "at": "2020-01-01T00:00:00Z"}))
        (late,) = doctor.pushes(client)
        assert (late.level, "service install --push /there" in late.remedy) == ("warn", True)


def test_models_without_a_price(made: Home) -> None:
    client = Client(made.root / "burnd.sock", timeout=30)
    many = [f"model-{n}" for n in range(7)]
    for models, level in (([], "ok"), (many, "warn")):
        with fake_daemon(made.root / "burnd.sock", summary={"unpricedModels": models}), client:
            assert doctor.prices(client).level == level

    def refuse(_params: dict[str, Any], _talk: object) -> dict[str, Any]:
        raise Refused(protocol.NOT_NOW, "the index is being rebuilt", "try again")

    with fake_daemon(made.root / "burnd.sock", summary=refuse), client:
        assert "being rebuilt" in doctor.prices(client).says


@pytest.mark.parametrize("lacking", ["unpricedModels", "harnessModels"])
def test_an_old_list_that_lacks_a_model_is_to_be_updated(made: Home, lacking: str) -> None:
    client = Client(made.root / "burnd.sock", timeout=30)
    for stale, level in (({"stalePrices": "2026-09-28"}, "warn"), ({}, "ok" if lacking == "harnessModels" else "warn")):
        with fake_daemon(made.root / "burnd.sock", summary={lacking: ["claude-haiku-5-5"], **stale}), client:
            found = doctor.prices(client)
        assert (found.level, "claude-haiku-5-5" in found.says) == (level, True)
        assert ("2026-09-28 is more than 60 days old" in found.says) == bool(stale)


def test_settings_that_cannot_be_used() -> None:
    assert doctor.settings(BurnctlError("config.toml: content.store: must be ...")).level == "fail"
    for mode, days, says in (("full", 90, "90 days"), ("full", "forever", "never deleted"), ("off", 90, "no text")):
        values = [{"key": "content.store", "value": mode}, {"key": "content.retention_days", "value": days}]
        assert says in doctor.settings({"settings": values}).says


def test_the_clock() -> None:
    assert doctor.clock(0, None).level == "fail"
    assert doctor.clock(NOW, NOW + 86400 * 3).level == "warn"
    assert doctor.clock(NOW, NOW - 5).level == "ok"


def test_logs(tmp_path: Path) -> None:
    """Log folders with their counts, databases with their paths, and a single warning when there are none."""
    assert doctor.logs({}, str(tmp_path), {})[0].level == "warn"
    project = tmp_path / ".claude" / "projects" / "-w"
    project.mkdir(parents=True)
    (project / "s.jsonl").touch()
    (project / "notes.txt").touch()
    more = tmp_path / "more" / "sessions"
    more.mkdir(parents=True)
    data = tmp_path / ".local" / "share" / "opencode"
    data.mkdir(parents=True)
    (data / "opencode.db").touch()
    (data / "opencode.db-wal").touch()
    findings = doctor.logs({}, str(tmp_path), {"codex.roots": [str(tmp_path / "more")]})
    assert [(finding.name, finding.level, finding.says) for finding in findings[:3]] == [
        ("Claude Code", "ok", f"1 session log below {tmp_path}/.claude/projects"),
        ("Codex", "ok", f"0 session logs below {more}"),
        ("opencode", "ok", f"database at {data / 'opencode.db'}"),
    ]
    assert [finding.name for finding in findings[3:]] == ["watch limit", "log clean-up"]


def test_watch_limits(tmp_path: Path) -> None:
    found = [doctor.Logs("/r")]
    found[0].folders = 900
    assert doctor.watches(found, "/nowhere").level == "ok"
    for watches, instances, level in ((1000, 128, "warn"), (100_000, 4, "warn"), (100_000, 128, "ok")):
        (tmp_path / "max_user_watches").write_text(f"{watches}\n")
        (tmp_path / "max_user_instances").write_text(f"{instances}\n")
        assert doctor.watches(found, str(tmp_path)).level == level


FINDINGS = [
    ok("home", "/srv/burn is yours alone"),
    warn(
        "log clean-up",
        "a rather long sentence that does not fit into one line of a terminal \x1b[31mof eighty",
        "raise it",
    ),
    fail("burnd", "burnd is not running", "start it with: burnctl up"),
]


@pytest.mark.parametrize("columns", [80, 160])
def test_the_report(columns: int) -> None:
    text = report(FINDINGS, Screen(columns))
    lines = text.splitlines()
    assert lines[0] == "ok    home          /srv/burn is yours alone"
    assert "FAIL  burnd         burnd is not running" in lines
    assert "                    → start it with: burnctl up" in lines
    assert lines[-1] == "1 broken, 1 worth a look"
    assert max(map(width_of, lines)) <= columns
    assert "\x1b" not in text
    assert report(FINDINGS[:1], Screen(columns)).endswith("\nall is well")
    assert "\x1b[1;31mFAIL" in report(FINDINGS, Screen(columns, color=True))


def test_broken_is_exit_code_one(home: Home) -> None:
    """No daemon is a problem, and checking does not start one or create files."""
    begun = time.monotonic()
    done = run(home, "doctor")
    assert done.returncode == 1
    assert "FAIL  burnd" in done.stdout
    assert not home.root.exists()
    assert time.monotonic() - begun < 30
    said = json.loads(run(home, "doctor", "--json").stdout)
    assert (said["version"], said["ok"]) == (protocol.VERSION, False)
