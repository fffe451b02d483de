"""Hostile logs and rows: memory is bounded, other sessions are not delayed, and SIGTERM works."""

from __future__ import annotations

from pathlib import Path

import pytest

from burnd.paths import Home
from tests.faults import hostile, tally
from tests.faults.hostile import MB, Measured, claude_logs, codex_logs, measure, opencode_parts, turns_of, watched
from tests.server.logs import projects
from tests.server.wire import noise, until

SESSION = "77777777-0000-4000-8000-000000000007"
MOST_MB = 400
LATEST_S, STOP_S = 1.0, 2.0
LARGE = 60.0


def test_hostile_logs_of_every_kind(home: Home) -> None:
    """F18: every kind of them at once; each has its turn, and all processes together stay within their memory."""
    logs = claude_logs(0.2)
    with watched(home) as (daemon, taken):
        for n, make in enumerate(logs.values()):
            place(projects(home) / "-q" / f"{SESSION[:-2]}{n:02d}.jsonl", make(f"{SESSION[:-2]}{n:02d}"))
        with daemon.wire(300) as wire:
            assert wire.call("flush")["flushed"]
        without = [name for n, name in enumerate(logs) if not turns_of(home, f"{SESSION[:-2]}{n:02d}")]
        assert without == []
    assert max(taken) < MOST_MB
    tally.bad_inputs(len(logs))


@pytest.mark.slow
@pytest.mark.parametrize("name", claude_logs(LARGE))
def test_a_hostile_claude_log(home: Home, name: str) -> None:
    """F18: with the figures that are promised."""
    log = projects(home) / "-q" / f"{SESSION}.jsonl"
    check(name, measure(home, SESSION, lambda: place(log, claude_logs(LARGE)[name](SESSION))))


@pytest.mark.slow
@pytest.mark.parametrize("name", codex_logs(LARGE))
def test_a_hostile_codex_log(home: Home, name: str) -> None:
    """F18: the same for Codex."""
    folder = home.root.parent / ".codex" / "sessions" / "2026" / "11" / "16"
    log = folder / f"rollout-2026-11-16T10-00-00-{SESSION}.jsonl"
    check(name, measure(home, SESSION, lambda: place(log, codex_logs(LARGE)[name](SESSION))))


@pytest.mark.slow
@pytest.mark.parametrize("name", opencode_parts(LARGE))
def test_a_hostile_opencode_database(home: Home, name: str) -> None:
    """F18: the same for opencode's rows."""

    def write() -> None:
        made = home.root.parent / "made.db"
        hostile.write_rows(made, "ses_x", opencode_parts(LARGE)[name]())
        there = home.root.parent / ".local" / "share" / "opencode" / "opencode.db"
        there.parent.mkdir(parents=True)
        made.rename(there)

    check(name, measure(home, "ses_x", write))


@pytest.mark.slow
def test_reading_a_large_input_back(home: Home) -> None:
    """F18: what is shown of it is all that is read of it."""
    log = hostile.claude(SESSION, hostile.one_input(b'"' + b"word, " * int(15 * MB / 6) + b'"'))
    place(projects(home) / "-q" / f"{SESSION}.jsonl", log)
    with watched(home) as (daemon, taken), daemon.wire(120) as wire:
        assert wire.call("flush")["flushed"]
        before = max(taken)
        for _ in range(5):
            (record,) = wire.call("content.read", session=SESSION)["records"]
            assert record["truncated"]
        until(lambda: len(taken) > 3)
        assert max(taken) < max(before, MOST_MB)


def place(path: Path, data: bytes) -> None:
    """All at once, as one event."""
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name("aside")
    aside.write_bytes(data)
    aside.rename(path)


def check(name: str, found: Measured) -> None:
    tally.bad_inputs()
    tally.note(
        f"{name}: {found.peak_mb:.0f} MB, others {found.latest_s:.2f} s late, stopped in {found.stop_s:.2f} s, "
        f"{found.cpu_s:.1f} s of a processor"
    )
    assert found.turns == 1
    assert found.peak_mb < MOST_MB
    assert found.latest_s < LATEST_S * noise()
    assert found.stop_s < STOP_S * noise()
