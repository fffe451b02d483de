"""Golden screens: at 80 and 160 columns, in colour at a terminal and plain in a pipe. `BURNCTL_GOLDEN=write` rewrites
the expected pages; look at the difference before you commit them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from burnctl.render.text import clean, width_of
from burnd.paths import Home
from tests.burnctl.fake_daemon import FakeConnection, fake_daemon
from tests.burnctl.invoke import TerminalProcess, run, seen

GOLDEN = Path(__file__).parent / "golden"
EVIL = "\x1b]52;c;cm0gLXJm\x07\x1b[31m\u202e"

STATUS: dict[str, Any] = {
    "daemon": {"version": "0.1.0", "pid": 4711, "state": "ready", "uptimeMs": 7_500_000, "home": "/srv/burn"},
    "sources": [
        {"name": "claude-code", "state": "watching", "detail": "watching 412 folders", "files": 10_234, "pending": 0,
         "lagMs": 12, "restarts": 0, "lastFailure": None, "counts": {"lines": 81_000, "unrecognised type=foo": 12},
         "unused": {"count": 9, "lines": [
             {"path": "/srv/claude/projects/-home-dev-some-rather-long-name/0f9c1d2e-6b7a-4c3d-8e5f-001122334455.jsonl",
              "offset": 20_480, "size": 73_400_321, "reason": "longer than a line may be"},
             {"path": "/srv/claude/projects/-home-dev-app/\x1b[2Jodd.jsonl", "offset": 5, "size": 40,
              "reason": "unfinished"}]},
         "leftAlone": [
             {"reason": "symlink", "why": "links are not followed", "count": 3, "paths": ["/srv/claude/projects/-link"],
              "remedy": "if it leads to logs, put the folder itself there", "isNormal": True},
             {"reason": "foreign owner", "why": "it belongs to another user", "count": 1, "paths": ["/srv/x.jsonl"],
              "remedy": "if it is yours, make it so again (chown)", "isNormal": False}]},
        {"name": "opencode", "state": "degraded", "detail": f"unsupported opencode schema: {EVIL}no column data in 表",
         "files": 1, "pending": 3, "lagMs": 120_000, "restarts": 2, "lastFailure": "OSError", "counts": {}},
    ],
    "backfill": {"done": 1_200_000_000, "total": 2_900_000_000, "bytesPerSecond": 64_000_000},
    "ledger": {"bytes": 48_123_456, "turns": 120_423, "openTurns": 2, "sessions": 3102, "stamps": 12,
               "skipped": {"count": 8, "lines": [
                   {"position": n * 1000, "length": 96, "reason": "not JSON", "kind": ""} for n in range(1, 8)]}},
    "content": {"mode": "full", "bytes": 120_000_000, "sidecars": 310},
    "index": {"state": "ready", "bytes": 80_000_000},
    "disk": {"free": 83_000_000_000, "reserve": 20_971_520},
    "prices": {"asOf": "2026-10-01", "fetched": "2026-10-03", "own": 2, "problem": None},
    "degraded": [
        {"what": f"opencode: unsupported opencode schema: {EVIL}no column data in 表",
         "remedy": "update burnd, or tell which opencode you run; nothing of it is lost while its database is there"},
        {"what": "8 lines of the ledger cannot be used", "remedy": "restore them from a backup if they were damaged"},
    ],
    "budget": [{"period": "daily", "limitUsd": 20, "spentUsd": 31.2, "crossed": True}],
}  # fmt: skip

EMPTY: dict[str, Any] = {
    "daemon": {"version": "0.1.0", "pid": 1, "state": "ready", "uptimeMs": 900, "home": "/srv/burn"},
    "sources": [{"name": "claude-code", "state": "waiting", "detail": "waiting for /home/me/.claude/projects",
                 "files": 0, "pending": 0, "lagMs": 0, "restarts": 0, "lastFailure": None, "counts": {}}],
    "backfill": None,
    "ledger": {"bytes": 0, "turns": 0, "openTurns": 0, "sessions": 0, "stamps": 0,
               "skipped": {"count": 0, "lines": []}},
    "content": {"mode": "off", "bytes": 0, "sidecars": 0},
    "index": {"state": "ready", "bytes": 217_088},
    "disk": {"free": 83_000_000_000, "reserve": 1},
    "prices": {"asOf": "2026-10-01", "fetched": None, "own": 0, "problem": None},
    "degraded": [],
}  # fmt: skip

_FULL, _FREE = "/srv/burn: only {} MB are free, and 20 MB are reserved", "free some space; nothing is lost meanwhile"
FULL_DISK: dict[str, Any] = STATUS | {
    "sources": [
        {"name": name, "state": "waiting", "detail": f"blocked: {_FULL.format(free)}", "files": 10, "pending": 10,
         "lagMs": 0, "restarts": 0, "lastFailure": None, "counts": {}}
        for name, free in (("claude-code", 12), ("codex", 9))
    ],
    "backfill": {"done": 0, "total": 9, "bytesPerSecond": 0, "blocked": f"claude-code, codex: {_FULL.format(9)}"},
    "degraded": [
        {"what": f"claude-code: blocked: {_FULL.format(12)}", "remedy": _FREE},
        {"what": f"codex: blocked: {_FULL.format(9)}", "remedy": _FREE},
        {"what": "only 9 MB of disk are free", "remedy": _FREE},
    ],
    "ledger": EMPTY["ledger"], "budget": [],
}  # fmt: skip

FORGET: dict[str, Any] = {
    "dryRun": True, "files": 3, "bytes": 1_234_567, "count": 1023,
    "sessions": [
        {"sessionId": "0f9c12ab-1111-4222-8333-444455556666", "source": "claude-code", "messages": 1200,
         "bytes": 900_000, "project": "/home/me/work/a-folder-with-a-rather-long-name/and-another-one-below-it"},
        {"sessionId": "ses_5f3a91bc0ffexyz", "source": "opencode", "messages": 1, "bytes": 12,
         "project": f"/w/{EVIL}日本"},
        {"sessionId": "abc", "source": "claude-code", "messages": 0, "bytes": 0, "project": None},
    ],
}  # fmt: skip


def landed(n: int, **more: Any) -> dict[str, Any]:
    usage = {
        "input": 10,
        "output": 1200,
        "reasoning": 0,
        "cacheRead": 9000 * n,
        "cacheCreate5m": 800,
        "cacheCreate1h": 0,
    }
    turn = {
        "ts": f"2026-09-21T14:10:{n:02d}.000Z", "source": "claude-code", "sessionId": "0f9c12ab-1111",
        "messageId": f"m{n}", "project": f"/home/me/{EVIL}プロジェクト", "model": "claude-opus-4-5-20251101",
        "usage": usage, "activity": "coding",
        "toolCalls": [{"name": "Read"}, {"name": "Read"}, {"name": f"Bash{EVIL}", "isError": True}],
    }  # fmt: skip
    return {
        "version": 1,
        "open": False,
        "missed": 0,
        "costUsd": 0.0123 * n,
        "turn": turn | more.pop("turn", {}),
        **more,
    }


TURNS = [
    landed(1),
    landed(
        2, costUsd=None, turn={"model": "unheard-of/new-model-with-a-very-long-name", "project": None, "toolCalls": []}
    ),
    landed(3, missed=40),
    landed(3, turn={"rev": 2}),
    landed(4, open=True),
    {"version": 1, "missed": 0, "budget": {"period": "daily", "limitUsd": 20.0, "spentUsd": 20.4, "crossed": True}},
    landed(4, costUsd=1234.5),
]


def tail(_params: dict[str, Any], talk: FakeConnection) -> None:
    talk.answer({"following": True})
    for turn in TURNS:
        talk.notify("tail", turn)
    talk.hang_up()


ANSWERS: dict[str, Any] = {"status": STATUS, "content__forget": FORGET, "tail": tail}
COMMANDS = {
    "status": ["status"],
    "status-empty": ["status"],
    "status-full-disk": ["status"],
    "forget": ["forget", "0f9c12ab"],
    "tail": ["tail"],
}


def check(name: str, text: str, columns: int) -> None:
    path = GOLDEN / f"{name}.txt"
    if os.environ.get("BURNCTL_GOLDEN") == "write":
        path.write_text(text)
    assert text == path.read_text()
    for line in text.splitlines():
        assert width_of(clean(line)) <= columns
    assert "52;c" not in text
    assert "\u202e" not in text


@pytest.mark.parametrize("columns", [80, 100, 160])
@pytest.mark.parametrize("name", COMMANDS)
def test_in_a_pipe(home: Home, name: str, columns: int) -> None:
    answers = ANSWERS | {"status": {"status-empty": EMPTY, "status-full-disk": FULL_DISK}.get(name, STATUS)}
    with fake_daemon(home.root / "burnd.sock", **answers):
        done = run(home, *COMMANDS[name], COLUMNS=str(columns))
    check(f"{name}-{columns}", done.stdout, columns)


@pytest.mark.parametrize("columns", [80, 160])
@pytest.mark.parametrize("name", ["status", "status-empty"])
def test_at_a_terminal(home: Home, name: str, columns: int) -> None:
    """The same page in colour, as wide as the terminal is."""
    with fake_daemon(home.root / "burnd.sock", status=EMPTY if name == "status-empty" else STATUS):
        shown = seen(home, "status", columns=columns)
        plain = seen(home, "status", "--no-color", columns=columns)
    assert shown.code == 0
    check(f"{name}-{columns}-colour", shown.text, columns)
    assert plain.text == (GOLDEN / f"{name}-{columns}.txt").read_text()


def test_tail_at_a_terminal(home: Home) -> None:
    """Settled turns stay, the open one is shown below them and wiped; when burnd stops, tail waits for it."""
    with fake_daemon(home.root / "burnd.sock", tail=tail):
        person = TerminalProcess(home, "tail", columns=80)
        person.wait_for("waiting until it is back ...\n")
    with person, fake_daemon(home.root / "burnd.sock", tail=tail):
        person.wait_for("burnd is back\n")
        person.wait_for("$1,234", 20)
        person.type("\x03")
        shown = person.end()
    assert shown.code == 130
