"""`burnctl statusline` prints a line for any input, with or without a daemon, and passes limits on."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import time
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from burnctl.commands import statusline
from burnd.paths import Home
from tests.burnctl.fake_daemon import FakeConnection, fake_daemon
from tests.burnctl.invoke import environment, run
from tests.burnctl.runner import BURNCTL
from tests.make import examples
from tests.server.wire import until

SOON = int(time.time()) + 3600
TOLD: dict[str, Any] = {
    "hook_event_name": "Status",
    "session_id": "0f9c1d2e",
    "transcript_path": "/home/dev/.claude/projects/p/0f9c1d2e.jsonl",
    "cwd": "/home/dev/app",
    "model": {"id": "claude-opus-5", "display_name": "Opus 5"},
    "workspace": {"current_dir": "/home/dev/app", "project_dir": "/home/dev/app"},
    "version": "2.1.325",
    "output_style": {"name": "default"},
    "cost": {"total_cost_usd": 0.4231, "total_duration_ms": 45_000, "total_lines_added": 3},
    "context_window": {"context_window_size": 200_000, "used_percentage": 26.4, "current_usage": None},
    "exceeds_200k_tokens": False,
    "rate_limits": {
        "five_hour": {"used_percentage": 42.6, "resets_at": SOON},
        "seven_day": {"used_percentage": 18, "resets_at": SOON + 86_400 * 3},
    },
}
KNOWN = {
    "session": {"turns": 3, "costUsd": 1.234},
    "today": {"costUsd": 14.2},
    "window": {"costUsd": 3.4, "secondsLeft": 9000, "quota": None},
    "crossed": [],
}


def line(home: Home, told: Any, *flags: str, **env: str) -> str:
    done = run(home, "statusline", *flags, stdin=told if isinstance(told, str) else json.dumps(told), **env)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.count("\n") == 1
    return done.stdout[:-1]


def answered(home: Home, told: Any, *flags: str, **env: str) -> str:
    """The line with burnd's figures: on a busy machine a quarter of a second may be too short for its answer."""
    shown = ""
    for _ in range(20):
        if "$1.23 session" in (shown := line(home, told, *flags, **env)):
            break
    return shown


def clock(seconds: float, form: str = "%H:%M") -> str:
    return time.strftime(form, time.gmtime(seconds))


def test_the_whole_line(home: Home) -> None:
    """Cost of session and day from burnd, the account's windows, and the context."""
    with fake_daemon(home.root / "burnd.sock", statusline=KNOWN, quota={"taken": 2}) as server:
        today, week = clock(SOON), clock(SOON + 86_400 * 3, "%a %H:%M")
        assert (
            answered(home, TOLD)
            == f"$1.23 session · $14.20 today · 5h 43% until {today} · 7d 18% until {week} · ctx 26%"
        )
        assert server.asked[0] == ("statusline", {"session": "0f9c1d2e"})


def test_costs_are_in_the_currency_of_the_settings(home: Home) -> None:
    known = KNOWN | {"currency": {"code": "EUR", "rate": 0.5}}
    with fake_daemon(home.root / "burnd.sock", statusline=known, quota={"taken": 2}):
        until(lambda: "\u20ac7.10 today" in line(home, TOLD, PYTHONIOENCODING="utf-8"))


def test_the_limits_are_passed_on(home: Home) -> None:
    """Limits are sent as readings with their ends, without waiting for the recording."""

    def slow(_params: dict[str, Any], _talk: FakeConnection) -> None:
        time.sleep(0.5)

    with fake_daemon(home.root / "burnd.sock", statusline=KNOWN, quota=slow) as server:
        answered(home, TOLD)
        until(lambda: "quota" in dict(server.asked))
        assert next(asked for asked in server.asked if asked[0] == "quota") == (
            "quota",
            {
                "readings": [
                    {"window": "5h", "usedPercent": 42.6, "resetsAt": clock(SOON, "%Y-%m-%dT%H:%M:%S.000Z")},
                    {"window": "7d", "usedPercent": 18, "resetsAt": clock(SOON + 259_200, "%Y-%m-%dT%H:%M:%S.000Z")},
                ]
            },
        )


def test_without_limits_nothing_is_passed_on(home: Home) -> None:
    """Someone with an API key has none: then the window shows what was counted of it."""
    told = {name: value for name, value in TOLD.items() if name != "rate_limits"}
    with fake_daemon(home.root / "burnd.sock", statusline=KNOWN) as server:
        assert answered(home, told) == "$1.23 session · $14.20 today · 5h $3.40, 2 h 30 min left · ctx 26%"
        assert {method for method, _ in server.asked} == {"statusline"}


@pytest.mark.parametrize(
    ("session", "today", "said"),
    [
        (
            {"costUsd": 1.234, "unpricedTurns": 2},
            {"costUsd": None, "unpricedTurns": 5},
            "$1.23 session + 2 unpriced · today: 5 unpriced",
        ),
        (
            {"costUsd": None, "unpricedTurns": 2},
            {"costUsd": 9.0, "unpricedTurns": 0},
            "$0.42 session · $9.00 today",
        ),
        (
            {"costUsd": 0.4, "unpricedTurns": 0},
            {"costUsd": 9.0, "unpricedTurns": 0},
            "$0.42 session · $9.00 today",
        ),
        (None, {"costUsd": None, "unpricedTurns": 0}, "$0.42 session"),
    ],
)
def test_turns_without_a_price_are_mentioned(session: Any, today: Any, said: str) -> None:
    """Unpriced turns are counted; Claude Code's own figure of the session is shown where it is higher."""
    known = {"session": session, "today": today, "window": None, "crossed": []}
    told = {"cost": TOLD["cost"]}
    assert " · ".join(statusline._parts(told, {}, known, colored=False)) == said


def test_a_recorded_quota_is_the_fallback(home: Home) -> None:
    """Before the first answer of a session there are no limits on stdin; burnd has the last ones."""
    quota = {"usedPercent": 61.0, "resetsAt": clock(SOON, "%Y-%m-%dT%H:%M:%SZ")}
    known = {**KNOWN, "window": {**KNOWN["window"], "quota": quota}}  # type: ignore[dict-item]
    told = {name: value for name, value in TOLD.items() if name != "rate_limits"}
    with fake_daemon(home.root / "burnd.sock", statusline=known):
        assert f"5h 61% until {clock(SOON)}" in answered(home, told)


def test_a_recorded_week_is_the_fallback() -> None:
    """Each window separately: burnd supplies those that stdin lacks."""
    quota = {"usedPercent": 61.0, "resetsAt": None}
    known = {"window": {"quota": {"usedPercent": 9.0, "resetsAt": None}}, "weekQuota": quota}
    assert statusline._parts({}, {"5h": (42.6, None)}, known, colored=False) == ["5h 43%", "7d 61%"]
    assert statusline._parts({}, {}, known, colored=False) == ["5h 9%", "7d 61%"]
    assert statusline._parts({}, {"7d": (3.0, None)}, known, colored=False) == ["5h 9%", "7d 3%"]


def test_what_is_not_full_does_not_look_full() -> None:
    told = {"context_window": {"used_percentage": 99.6}}
    assert statusline._parts(told, {"5h": (99.9, None), "7d": (100.2, None)}, {}, colored=False) == [
        "5h 99%",
        "7d 100%",
        "ctx 99%",
    ]


@pytest.mark.parametrize("percent", [-5, 300, "-1", 1e17])
def test_what_cannot_be_is_not_shown(percent: Any) -> None:
    """Less than nothing, or far more than all, is no figure; nor is it recorded."""
    told = {
        "cost": {"total_cost_usd": -3},
        "context_window": {"used_percentage": percent},
        "rate_limits": {"five_hour": {"used_percentage": percent, "resets_at": SOON}},
    }
    assert statusline._limits_in(told) == {}
    assert statusline._parts(told, {}, {}, colored=False) == []


def test_without_burnd_it_prints_its_input(home: Home) -> None:
    shown = line(home, TOLD)
    assert shown.startswith(f"$0.42 session · 5h 43% until {clock(SOON)} · 7d 18%")
    assert shown.endswith("ctx 26%")
    assert not home.root.exists()  # a home is made by burnd, not by a status line


def test_without_burnd_the_limits_wait_in_the_spool(home: Home) -> None:
    """Each figure once, however often it is repeated, with its first time."""
    home.root.mkdir(mode=0o700)
    for _ in range(3):
        line(home, TOLD)
    more = json.loads(json.dumps(TOLD))
    more["rate_limits"]["five_hour"]["used_percentage"] = 43.6
    line(home, more)
    left = sorted(home.spool.glob("*.json"))
    records = [json.loads(path.read_bytes())["record"] for path in left]
    assert sorted((r["window"], r["usedPercent"]) for r in records) == [("5h", 42.6), ("5h", 43.6), ("7d", 18)]
    assert {r["source"] for r in records} == {"claude-code"}


def test_a_busy_burnd_is_not_waited_for(home: Home) -> None:
    with fake_daemon(home.root / "burnd.sock", statusline=lambda _params, _talk: None):
        began = time.monotonic()
        assert line(home, TOLD).startswith("$0.42 session")
        assert time.monotonic() - began < 30  # it would not have answered for ever


def test_a_burnd_that_knows_no_statusline(home: Home) -> None:
    """With an older burnd the line shows what Claude Code sent."""
    with fake_daemon(home.root / "burnd.sock"):
        assert line(home, TOLD).startswith("$0.42 session")


def test_warnings_are_coloured_unless_refused(home: Home) -> None:
    high = json.loads(json.dumps(TOLD))
    high["rate_limits"]["five_hour"]["used_percentage"] = 97
    high["context_window"]["used_percentage"] = 85
    with fake_daemon(home.root / "burnd.sock", statusline={**KNOWN, "crossed": ["daily"]}, quota={}):
        shown = answered(home, high)
        assert "\x1b[31m5h 97%" in shown
        assert "\x1b[33mctx 85%\x1b[0m" in shown
        assert shown.endswith("\x1b[31mdaily budget exceeded\x1b[0m")
        assert "\x1b" not in line(home, high, "--no-color")
        assert "\x1b" not in line(home, high, NO_COLOR="1")


@pytest.mark.parametrize(
    "told", ["", "not JSON", "[]", "null", "3", '"x"', "{}", '{"cost": null}', "[" * 100_000, "{" * 9]
)
def test_anything_on_stdin_gives_a_line(home: Home, told: str) -> None:
    assert line(home, told) == "burnd is not running"
    with fake_daemon(home.root / "burnd.sock", statusline=KNOWN):
        assert answered(home, told).startswith("$1.23 session · $14.20 today")


@pytest.mark.parametrize(
    ("told", "shown"),
    [
        ({"cost": {"total_cost_usd": "0.5"}}, "$0.50 session"),
        ({"cost": {"total_cost_usd": True}}, "burnd is not running"),
        ({"cost": {"total_cost_usd": 1e400}}, "burnd is not running"),
        ({"cost": "none", "context_window": {"used_percentage": 3}}, "ctx 3%"),
        ({"context_window": {"context_window_size": 200_000, "current_usage": {"input_tokens": 20_000}}}, "ctx 10%"),
        ({"context_window": {"context_window_size": 0, "current_usage": {"input_tokens": 5}}}, "burnd is not running"),
        ({"rate_limits": {"five_hour": {"used_percentage": 7}}}, "5h 7%"),
        ({"rate_limits": {"five_hour": {"used_percentage": 7, "resets_at": 5}}}, "5h 7%"),
        ({"rate_limits": {"five_hour": {"used_percentage": 7, "resets_at": "soon"}}}, "5h 7%"),
        pytest.param(  # named: two processes must not call it by two minutes
            {"rate_limits": {"five_hour": {"used_percentage": 7, "resets_at": SOON * 1000}}},
            f"5h 7% until {clock(SOON)}",
            id="milliseconds",
        ),
        ({"rate_limits": {"five_hour": {"used_percentage": -7}}}, "burnd is not running"),
        ({"rate_limits": {"five_hour": [], "seven_day": {"used_percentage": 9}}}, "7d 9%"),
        ({"rate_limits": {"five_hour": {"used_percentage": 105}}}, "\x1b[31m5h 105%\x1b[0m"),
        ({"session_id": 7, "rate_limits": "none"}, "burnd is not running"),
    ],
)
def test_any_field_may_be_missing_or_odd(home: Home, told: Any, shown: str) -> None:
    assert line(home, told) == shown


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=4), inner, max_size=2),
    max_leaves=4,
)
ODD = st.fixed_dictionaries(
    {},
    optional={
        "session_id": JSON,
        "cost": JSON | st.fixed_dictionaries({"total_cost_usd": JSON}),
        "context_window": JSON | st.fixed_dictionaries({"used_percentage": JSON, "current_usage": JSON}),
        "rate_limits": JSON
        | st.fixed_dictionaries(
            {"five_hour": JSON | st.fixed_dictionaries({"used_percentage": JSON, "resets_at": JSON})}
        ),
    },
)


@settings(max_examples=examples(100), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(told=ODD, known=ODD)
def test_nothing_in_either_can_stop_it(told: dict[str, Any], known: dict[str, Any]) -> None:
    """Any input and any answer give a partial line, and readings that can be written."""
    limits = statusline._limits_in(told)
    parts = statusline._parts(told, limits, known, colored=True)
    assert all(isinstance(part, str) for part in parts)
    json.dumps([statusline._reading(*limit) for limit in limits.items()], allow_nan=False)


def test_at_a_terminal_it_does_not_wait_for_input(home: Home) -> None:
    """Someone who tries it by hand gets a line, not a program that hangs."""
    from tests.burnctl.invoke import seen

    shown = seen(home, "statusline")
    assert (shown.text.strip(), shown.code) == ("burnd is not running", 0)


def spent(command: list[str], home: Home) -> float:
    """The least processor time, in milliseconds, that a command took of several times."""
    least = float("inf")
    for _ in range(7):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(
            command, input=json.dumps(TOLD).encode(), stdout=subprocess.DEVNULL, env=environment(home), check=True
        )
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        least = min(least, used * 1000)
    return least


def test_it_takes_no_longer_than_a_blink(home: Home) -> None:
    """60 ms for the whole process, burnd's answer included; reckoned in processor time, which others cannot slow."""
    with fake_daemon(home.root / "burnd.sock", statusline=KNOWN, quota={"taken": 2}):
        assert spent([*BURNCTL, "statusline"], home) < 60


def test_it_imports_little(home: Home) -> None:
    """No slow import delays the line."""
    script = (
        "import sys; sys.argv = ['burnctl', 'statusline']; from burnctl.cli import main; main(); "
        "sys.stderr.write(' '.join(sys.modules))"
    )
    with fake_daemon(home.root / "burnd.sock", statusline=KNOWN, quota={"taken": 2}):
        done = subprocess.run(
            [sys.executable, "-I", "-S", "-c", f"import sys; sys.path.insert(0, {os.getcwd()!r}); {script}"],
            input=json.dumps(TOLD),
            capture_output=True,
            text=True,
            env=environment(home),
            check=True,
        )
    heavy = {"typing", "pathlib", "datetime", "subprocess", "socket", "dataclasses", "rich", "burnd.pricing", "decimal"}
    assert heavy & set(done.stderr.split()) == set()


@pytest.mark.parametrize("told", [b"", b'{"cost": {"total_cost_usd": 0.5}}', b'{"cost": '])
def test_an_input_that_stays_open_is_not_waited_for(home: Home, told: bytes) -> None:
    """A pipe that is never closed: the input so far is used."""
    reader, writer = os.pipe()
    os.write(writer, told)
    try:
        command = [*BURNCTL, "statusline"]
        done = subprocess.run(command, stdin=reader, env=environment(home), capture_output=True, timeout=60, check=True)
    finally:
        os.close(reader)
        os.close(writer)
    assert done.stdout.decode() == ("$0.50 session\n" if told.endswith(b"}") else "burnd is not running\n")
