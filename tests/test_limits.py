"""Limits: readings of a plan, budgets and their command, and the guard that stops sessions."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import anyio
import pytest

from burnd import limits
from burnd.errors import ConfigError
from burnd.limits import BudgetWatch, Guard, Quotas, Recorded, new_readings, run_command
from burnd.paths import Home
from burnd.pricing import PriceTable
from burnd.queries.guard import NextCall, Use
from burnd.queries.spending import BudgetUse, budget_uses, period_of
from burnd.queries.view import View
from burnd.recording.candidate import Batch
from burnd.recording.pipeline import Pipeline
from burnd.records import Quota, Usage
from burnd.records.times import to_iso, to_ms
from burnd.settings import config
from tests.conftest import Opened
from tests.make import at, turn
from tests.queries.looking import look

HOUR = 3600


def reading(seconds: float, percent: float, resets: float | None = 5 * HOUR, window: Any = "5h", **more: Any) -> Quota:
    resets_at = None if resets is None else at(resets)
    facts = {"ts": at(seconds), "source": "claude-code", "window": window, "used_percent": percent}
    return Quota(**{**facts, "resets_at": resets_at, **more})


def taken(*readings: Quota) -> list[tuple[str, float]]:
    return [(quota.window, quota.used_percent) for quota in new_readings(readings, [])]


def test_only_what_rises_is_news() -> None:
    """A session that idles repeats its figure, and an outdated one is lower: neither is recorded."""
    assert taken(reading(1, 16), reading(2, 18), reading(3, 18), reading(4, 16), reading(5, 19)) == [
        ("5h", 16),
        ("5h", 18),
        ("5h", 19),
    ]


def test_the_next_window_starts_at_zero() -> None:
    assert taken(reading(1, 90), reading(6 * HOUR, 2, 10 * HOUR)) == [("5h", 90), ("5h", 2)]


def test_a_window_that_is_over_is_not_spoken_of_any_more() -> None:
    """A session left open overnight still shows yesterday's window."""
    assert taken(reading(5 * HOUR, 90), reading(9 * HOUR, 95)) == []


def test_two_windows_do_not_mix() -> None:
    assert taken(reading(1, 40), reading(1, 10, 90 * HOUR, "7d"), reading(1, 10, source="other")) == [
        ("5h", 40),
        ("7d", 10),
        ("5h", 10),
    ]


def test_an_end_that_is_rounded_is_the_same_end() -> None:
    assert taken(reading(1, 40, 5 * HOUR), reading(2, 40, 5 * HOUR + 59)) == [("5h", 40)]


def test_another_account_is_another_window() -> None:
    """After a login to another account the ends differ, and so both are followed."""
    assert taken(reading(1, 90, 5 * HOUR), reading(2, 3, 4 * HOUR), reading(3, 4, 4 * HOUR)) == [
        ("5h", 90),
        ("5h", 3),
        ("5h", 4),
    ]


def test_tenths_are_enough() -> None:
    """Figures come with the noise of binary fractions, which is no new_readings."""
    assert taken(reading(1, 28.000000000000004), reading(2, 28.04), reading(3, 28.1)) == [("5h", 28.0), ("5h", 28.1)]


def test_without_an_end_every_other_figure_is_news() -> None:
    assert taken(reading(1, 5, None), reading(2, 5, None), reading(3, 2, None)) == [("5h", 5), ("5h", 2)]


def test_nonsense_is_left_out() -> None:
    """No percentage, or an end that lies too far away to be one."""
    for percent in (float("nan"), float("inf"), -1, 5000):
        assert taken(reading(1, percent)) == []
    (kept,) = new_readings([reading(1, 5, 300 * HOUR)], [])
    assert kept.resets_at is None


def test_what_the_ledger_has_counts() -> None:
    recorded = [Recorded("claude-code", "5h", 50.0, to_ms(at(5 * HOUR)))]
    assert new_readings([reading(1, 49), reading(2, 50)], recorded) == []
    assert len(new_readings([reading(3, 50.1)], recorded)) == 1


async def test_it_is_recorded_once(opened: Opened) -> None:
    """For any number of sessions that report it at once, and across restarts."""
    pipeline = await opened()
    quotas = Quotas(pipeline)
    async with anyio.create_task_group() as tasks:
        for n in range(5):
            tasks.start_soon(quotas.record, [reading(n, 42)])
    pipeline = await opened()
    assert await Quotas(pipeline).record([reading(9, 42), reading(9, 43)]) == 1
    recorded = [e.entry.used_percent for e in pipeline.journal.read() if isinstance(e.entry, Quota)]
    assert recorded == [42, 43]


async def test_readings_do_not_wait_for_the_disk(opened: Opened) -> None:
    """Readings are queued and recorded later, even while the ledger is busy."""
    pipeline = await opened()
    quotas = Quotas(pipeline)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(quotas.run)
        async with pipeline._writing():
            for n in range(2000):
                quotas.enqueue([reading(n, n / 100)])
            assert list(pipeline.journal.read()) == []
        with anyio.fail_after(60):
            while not list(pipeline.journal.read()):  # noqa: ASYNC110 - what is waited for is in a file
                await anyio.sleep(0.01)
        tasks.cancel_scope.cancel()
    highest = max(e.entry.used_percent for e in pipeline.journal.read() if isinstance(e.entry, Quota))
    assert highest == 20.0


NOW = "2026-06-10T12:00:00.000Z"


@pytest.fixture
def zone(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], None]]:
    """Sets the machine's clock to a zone."""

    def choose(name: str) -> None:
        monkeypatch.setenv("TZ", name)
        time.tzset()

    choose("UTC")
    yield choose
    monkeypatch.undo()
    time.tzset()


@pytest.mark.parametrize(
    ("where", "name", "now", "begin", "end"),
    [
        ("UTC", "daily", "2026-06-10T12:00:00Z", "2026-06-10T00:00:00Z", "2026-06-11T00:00:00Z"),
        ("UTC", "weekly", "2026-06-10T12:00:00Z", "2026-06-08T00:00:00Z", "2026-06-15T00:00:00Z"),
        ("UTC", "monthly", "2026-06-10T12:00:00Z", "2026-06-01T00:00:00Z", "2026-07-01T00:00:00Z"),
        ("UTC", "monthly", "2026-12-31T23:59:59Z", "2026-12-01T00:00:00Z", "2027-01-01T00:00:00Z"),
        ("UTC", "weekly", "2026-06-08T00:00:00Z", "2026-06-08T00:00:00Z", "2026-06-15T00:00:00Z"),
        # Half past midnight in Berlin is still yesterday in Greenwich.
        ("Europe/Berlin", "daily", "2026-06-09T22:30:00Z", "2026-06-09T22:00:00Z", "2026-06-10T22:00:00Z"),
        ("Asia/Kolkata", "daily", "2026-06-10T12:00:00Z", "2026-06-09T18:30:00Z", "2026-06-10T18:30:00Z"),
        # The days on which summer time begins and ends have 23 and 25 hours.
        ("Europe/Berlin", "daily", "2026-03-29T12:00:00Z", "2026-03-28T23:00:00Z", "2026-03-29T22:00:00Z"),
        ("Europe/Berlin", "daily", "2026-10-25T12:00:00Z", "2026-10-24T22:00:00Z", "2026-10-25T23:00:00Z"),
    ],
)
def test_periods_follow_the_clock_of_the_machine(
    zone: Callable[[str], None], where: str, name: str, now: str, begin: str, end: str
) -> None:
    zone(where)
    assert period_of(name, to_ms(now))[1:] == (to_ms(begin), to_ms(end))


def spends(name: str, ts: str = NOW, output: int = 1000) -> Any:
    """A turn that costs $0.015 for every 1,000 tokens of output."""
    return turn(name, ts=ts, usage=Usage(output=output))


async def standing(pipeline: Pipeline, limit: str, now: str = NOW) -> BudgetUse:
    (found,) = await look(pipeline, lambda view: budget_uses(view, {"daily": Decimal(limit)}), now)
    return found


async def test_a_budget_is_crossed_when_it_is_used_up(opened: Opened, zone: object) -> None:
    """To the last digit: a budget of $0.03 is crossed by $0.03, one of a little more is not."""
    pipeline = await opened()
    await pipeline.commit(Batch(entries=[spends("m1"), spends("m2"), spends("m0", "2026-06-09T23:59:59.999Z")]))
    assert (await standing(pipeline, "0.03")).crossed
    assert not (await standing(pipeline, "0.030000000000001")).crossed


async def test_nothing_is_projected_from_the_first_hour(opened: Opened, zone: object) -> None:
    pipeline = await opened()
    await pipeline.commit(Batch(entries=[spends("m1", "2026-06-10T00:10:00Z")]))
    assert (await standing(pipeline, "1", "2026-06-10T01:00:00Z")).projected is None
    assert (await standing(pipeline, "1", "2026-06-10T06:00:00Z")).projected == Decimal("0.06")


@pytest.mark.parametrize(
    ("said", "budgets", "command"),
    [
        ("", {}, []),
        ("daily = 20", {"daily": Decimal(20)}, []),
        ("daily = 0.1\nweekly = 0\nmonthly = 250", {"daily": Decimal("0.1"), "monthly": Decimal(250)}, []),
        ('command = "echo over"', {}, "echo over"),
        ('command = ["echo", "over"]', {}, ["echo", "over"]),
    ],
)
def test_settings(tmp_path: Path, said: str, budgets: dict[str, Decimal], command: object) -> None:
    """Amounts are taken as they are written: a tenth of a dollar is exactly that."""
    (tmp_path / "config.toml").write_text(f"[budget]\n{said}\n")
    settings = config.load(Home(tmp_path), {})
    assert (settings.budgets, settings.budget_command) == (budgets, command)


def test_an_amount_too_large_names_the_limit(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text("[budget]\nweekly = 1e9\n")
    with pytest.raises(ConfigError, match="below 1000000000"):
        config.load(Home(tmp_path), {})


@pytest.mark.parametrize(
    "said",
    [
        "daily = -1",
        'daily = "20"',
        "daily = true",
        "daily = nan",
        "daily = inf",
        "command = 3",
        "command = [1]",
        "dayly = 1",
    ],
)
def test_a_bad_setting_is_refused_by_its_name(tmp_path: Path, said: str) -> None:
    (tmp_path / "config.toml").write_text(f"[budget]\n{said}\n")
    with pytest.raises(ConfigError, match=rf"budget\.{said.split(maxsplit=1)[0]}"):
        config.load(Home(tmp_path), {})


class Watched:
    """A watch whose command writes its variables to a file."""

    def __init__(self, pipeline: Pipeline, folder: Path, now: str = NOW) -> None:
        self.note, self.crossings = folder / "note", folder / "crossings.json"
        self.said: list[dict[str, Any]] = []
        self.now = now
        self.pipeline = pipeline
        self.command: str | list[str] = ["/bin/sh", "-c", f"env | grep BURND_BUDGET | sort >> {self.note}"]
        self.budgets = {"daily": Decimal("0.03")}
        self.problem: Callable[[], str] = str

    async def watch_until(self, enough: Callable[[], bool]) -> None:
        """Lets it look again and again, until that is so."""
        prices = PriceTable.load()

        async def look(question: Any) -> Any:
            return await self.pipeline.index.ask(lambda db: question(View(db, prices, to_ms(self.now))))

        watch = BudgetWatch(
            self.crossings, self.budgets, self.command, look=look, announce=self.said.append, notices={}
        )
        self.problem = lambda: watch.problem
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(watch.run, anyio.lowlevel.checkpoint)
            with anyio.fail_after(60):
                while not enough():  # noqa: ASYNC110 - what is waited for happens in other processes
                    await anyio.sleep(0.01)
            await anyio.sleep(0.1)
            tasks.cancel_scope.cancel()

    @property
    def lines(self) -> list[str]:
        return self.note.read_text().splitlines() if self.note.exists() else []


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "PAUSE_S", 0.01)


async def test_the_command_runs_once_and_knows_the_amounts(opened: Opened, tmp_path: Path, zone: object) -> None:
    """Its environment has the budget's name, its amount and the amount spent."""
    pipeline = await opened()
    await pipeline.commit(Batch(entries=[spends("m1", output=3000)]))
    watched = Watched(pipeline, tmp_path)
    await watched.watch_until(lambda: len(watched.lines) >= 5)
    assert watched.lines == [
        "BURND_BUDGET_FROM=2026-06-10T00:00:00.000Z",
        "BURND_BUDGET_LIMIT_USD=0.03",
        "BURND_BUDGET_PERIOD=daily",
        "BURND_BUDGET_SPENT_USD=0.04",
        "BURND_BUDGET_TO=2026-06-11T00:00:00.000Z",
    ]
    assert [said["period"] for said in watched.said] == ["daily"]


async def test_a_restart_does_not_run_it_again(opened: Opened, tmp_path: Path, zone: object) -> None:
    """Once for each period, whatever happens in between; the next day it runs again, and so does another amount."""
    pipeline = await opened()
    await pipeline.commit(Batch(entries=[spends("m1", output=3000), spends("m2", "2026-06-11T01:00:00Z", 3000)]))
    watched = Watched(pipeline, tmp_path)
    await watched.watch_until(lambda: len(watched.lines) == 5)
    watched.pipeline = await opened()
    await watched.watch_until(lambda: True)
    assert len(watched.lines) == 5
    watched.now = "2026-06-11T02:00:00Z"
    await watched.watch_until(lambda: len(watched.lines) == 10)
    watched.budgets = {"daily": Decimal("0.04")}
    await watched.watch_until(lambda: len(watched.lines) == 15)


@pytest.mark.parametrize("left", [b"", b"{", b"[]", b'{"daily": 3}', b"\xff"])
async def test_a_damaged_memory_is_replaced(opened: Opened, tmp_path: Path, zone: object, left: bytes) -> None:
    """Counts as empty: the crossing is announced, and remembered from then on."""
    pipeline = await opened()
    await pipeline.commit(Batch(entries=[spends("m1", output=3000)]))
    watched = Watched(pipeline, tmp_path)
    watched.crossings.write_bytes(left)
    await watched.watch_until(lambda: len(watched.lines) == 5)
    await watched.watch_until(lambda: True)
    assert len(watched.lines) == 5


async def test_a_crossing_is_seen_when_it_happens(opened: Opened, tmp_path: Path, zone: object) -> None:
    """No event below the amount; the turn that crosses it causes one."""
    pipeline = await opened()
    watched = Watched(pipeline, tmp_path)
    await watched.watch_until(lambda: True)
    assert watched.said == []
    await pipeline.commit(Batch(entries=[spends("m1", output=2000)]))
    await watched.watch_until(lambda: len(watched.lines) == 5)


async def test_a_line_for_the_shell(opened: Opened, tmp_path: Path, zone: object) -> None:
    """A text is passed to the shell unchanged."""
    pipeline = await opened()
    await pipeline.commit(Batch(entries=[spends("m1", output=3000)]))
    watched = Watched(pipeline, tmp_path)
    watched.command = f'echo "$BURND_BUDGET_PERIOD: $BURND_BUDGET_SPENT_USD" > "{watched.note}"'
    await watched.watch_until(lambda: bool(watched.lines))
    assert watched.lines == ["daily: 0.04"]


@pytest.mark.parametrize(
    ("command", "problem"),
    [
        (["/no/such/program"], "the budget command cannot be run: No such file or directory"),
        (["/bin/sh", "-c", "exit 3"], "the budget command ended with code 3"),
    ],
)
async def test_a_failing_command_is_logged(
    opened: Opened, tmp_path: Path, zone: object, command: list[str], problem: str
) -> None:
    """It is not tried again, and nothing else notices."""
    pipeline = await opened()
    await pipeline.commit(Batch(entries=[spends("m1", output=3000)]))
    watched = Watched(pipeline, tmp_path)
    watched.command = command
    await watched.watch_until(lambda: watched.problem() == problem)
    assert len(watched.said) == 1


async def test_a_command_that_hangs_is_ended_with_its_children(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After its time is up the whole group goes."""
    monkeypatch.setattr(limits, "COMMAND_TIMEOUT_S", 0.3)
    note = tmp_path / "pid"
    began = time.monotonic()
    assert await run_command(f"sleep 60 & echo $! > {note}; wait", {}) is None
    assert time.monotonic() - began < 30
    child = int(note.read_text())
    with anyio.fail_after(60):
        while _is_alive(child):  # noqa: ASYNC110 - nobody tells when a process of others ends
            await anyio.sleep(0.02)


def _is_alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] if sys.platform == "linux" else "R"
        os.kill(pid, 0)
    except (ProcessLookupError, FileNotFoundError):
        return False
    return state != "Z"


async def test_no_budget_no_watch(opened: Opened, tmp_path: Path) -> None:
    pipeline = await opened()
    watched = Watched(pipeline, tmp_path)
    watched.budgets = {}
    await watched.watch_until(lambda: True)
    assert watched.said == []


def test_times_in_the_environment_are_utc() -> None:
    assert to_iso(period_of("daily", to_ms(NOW)).begin).endswith("Z")


OVER = [Use("session_usd", 1.0, 2.0)]


class Time:
    """A clock that the test sets."""

    ms = 1_000_000

    def __call__(self) -> int:
        return self.ms


@pytest.fixture
def clock() -> Time:
    return Time()


async def check(checked: Guard, found: list[Use], session: str = "s1") -> dict[str, Any]:
    async def look(_: Any) -> list[Use]:
        return found

    return await checked.check(look, {"session_usd": 1.0}, session, "claude-code", NextCall("Bash", "ls"))


async def test_an_agent_that_goes_on_is_ended_at_its_third_response(tmp_path: Path, clock: Time) -> None:
    """Several denied calls of one response are one warning; an allowed call or `allow` starts again."""
    checked = Guard(tmp_path / "guard.json", clock)
    stops = []
    for _ in range(3):
        clock.ms += 5_000
        stops.append([(await check(checked, OVER))["stop"] for _ in range(4)])
    assert stops == [[False] * 4, [False] * 4, [True] * 4]
    await check(checked, [])
    clock.ms += 5_000
    answer = await check(checked, OVER)
    assert not answer["stop"]
    assert answer["reason"].startswith("burnd guard: this session cost $2.00 at API prices (limit $1.00). Stop here")
    assert len(checked.denials) == 13


async def test_choices_made_at_once_are_all_stored(tmp_path: Path, clock: Time) -> None:
    checked = Guard(tmp_path / "guard.json", clock)
    async with anyio.create_task_group() as group:
        for number in range(20):
            group.start_soon(checked.allow, f"s{number}", 0)
        group.start_soon(lambda: checked.switch(is_off=True))
    again = Guard(tmp_path / "guard.json", clock)
    assert again.is_off
    assert len(again.allowed) == 20


async def test_an_allowed_session_counts_with_all_it_started(
    tmp_path: Path, clock: Time, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also those of a session that was itself started by another; until the time that was given."""
    monkeypatch.setattr(limits, "line_of", lambda _, session: [session, "middle", "root"])
    monkeypatch.setattr(limits, "uses", lambda *_: OVER)
    checked = Guard(tmp_path / "guard.json", clock)

    async def look(question: Any) -> list[Use]:
        return question(None)  # type: ignore[no-any-return]

    async def decision() -> str:
        answer = await checked.check(look, {"session_usd": 1.0}, "leaf", "claude-code", None)
        return str(answer["decision"])

    assert await decision() == "deny"
    await checked.allow("middle", clock.ms + 1000)
    assert await decision() == "allow"
    clock.ms += 1000
    assert await decision() == "deny"
    assert checked.allowed == {}


@pytest.mark.parametrize("text", ["", "{", "[]", '{"allowed": 7}'])
def test_a_damaged_file_of_choices_is_as_none(tmp_path: Path, clock: Time, text: str) -> None:
    path = tmp_path / "guard.json"
    path.write_text(text)
    assert (Guard(path, clock).is_off, Guard(path, clock).allowed) == (False, {})
