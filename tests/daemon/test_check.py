"""`burnd check` finds every mistake before the daemon does, and reports none in sound settings."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from burnd.daemon.check import CheckResult, check
from burnd.paths import Home
from tests import warm
from tests.server.wire import environment

_CLONE = Path(__file__).parents[1]


def errors(home: Home, **environ: str) -> list[str]:
    return [finding.text for finding in check(home, environment(home, **environ)) if finding.level == "error"]


def said(home: Home, level: str, **environ: str) -> str:
    findings: list[CheckResult] = list(check(home, environment(home, **environ)))
    return "\n".join(finding.text for finding in findings if finding.level == level)


def test_a_sound_home_has_no_errors(home: Home) -> None:
    """Sources that are not here are no error: they may come."""
    assert errors(home) == []
    assert "claude-code: not found" in said(home, "ok")
    (home.root.parent / ".claude" / "projects").mkdir(parents=True)
    assert f"claude-code: {home.root.parent}/.claude/projects" in said(home, "ok")


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (lambda home: home.config.write_text("[content]\nstor = 1\n"), "content.stor"),
        (lambda home: home.root.chmod(0o777), "writable by other users"),
        (lambda home: (home.root / "burnd.sock").write_text("x"), "is not a socket"),
        (lambda home: home.prices.write_text("{"), "models.dev.json"),
        (lambda home: home.config.write_text("[disk]\nreserve = 1125899906842624\n"), "recording needs"),
        (lambda home: home.config.write_text('[log]\nfile = "none/such/log"\n'), "log.file"),
    ],
    ids=["setting", "rights", "socket", "prices", "disk", "log"],
)
def test_each_mistake_is_an_error_with_its_reason(home: Home, spoil: object, reason: str) -> None:
    """F81: and the exit code agrees."""
    home.root.mkdir(mode=0o700)
    assert callable(spoil)
    spoil(home)
    found = errors(home)
    assert any(reason in text for text in found), found
    done = warm.run(
        [sys.executable, "-m", "burnd", "check"], env=environment(home), capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert reason in done.stdout + done.stderr
    assert "Traceback" not in done.stderr


def test_a_socket_path_that_cannot_be_is_an_error(home: Home) -> None:
    assert any("too long" in text for text in errors(home, BURND_SOCKET=f"{home.root}/{'x' * 100}"))
    assert any("others may write" in text for text in errors(home, BURND_SOCKET="/tmp/burnd.sock"))


def test_files_that_others_may_read_are_warned_about(home: Home) -> None:
    home.root.mkdir(mode=0o700)
    home.ledger.write_text("")
    home.ledger.chmod(0o644)
    assert "ledger.jsonl: readable by other users" in said(home, "warning")


@pytest.mark.skipif(not Path("/proc/sys/fs/inotify").exists(), reason="needs Linux")
def test_more_folders_than_may_be_watched_are_warned_about(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """F22: with what to raise."""
    limit = home.root.parent / "limit"
    limit.write_text("5\n")
    monkeypatch.setattr("burnd.daemon.check._WATCH_LIMIT", limit)
    for n in range(10):
        (home.root.parent / ".claude" / "projects" / f"p{n}").mkdir(parents=True)
    assert "max_user_watches" in said(home, "warning")


def test_a_source_that_cannot_be_read_is_an_error(home: Home) -> None:
    """In a separate process without root's right to read everything."""
    (home.root.parent / ".claude" / "projects").mkdir(parents=True, mode=0o000)
    command = [sys.executable, "-m", "tests.faults.unprivileged", "check"]
    done = warm.run(command, env=environment(home), capture_output=True, text=True, check=False, cwd=_CLONE)
    assert done.returncode == 1
    assert "not readable" in done.stdout
