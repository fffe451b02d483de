"""Three machines push to ClickHouse, Postgres, a folder and a bucket: each has all totals after any event."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from burnctl.fleet_client import FleetClient
from burnctl.push.engine import target_of
from burnd.contract.reports import HotspotsParams, SummaryParams
from tests.fleet.machines import Machine, Sums, as_floats, fleet_sums, newer_schema, story, sums_of, three_machines
from tests.real.clickhouse_server import PASSWORD, USER
from tests.real.engines import bucket, clickhouse, connect_postgres, postgres

pytestmark = pytest.mark.real
KILLS = 50
ROOT = Path(__file__).parents[2]


@pytest.fixture
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="burnd-", dir="/tmp") as folder:
        yield Path(folder)


@pytest.fixture
def targets(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    monkeypatch.setenv("BURND_PUSH_USER", USER)
    monkeypatch.setenv("BURND_PUSH_PASSWORD", PASSWORD)
    with clickhouse() as first, postgres() as second, bucket(monkeypatch) as third:
        with connect_postgres(second, autocommit=True) as db:
            db.execute(f"CREATE ROLE {USER} SUPERUSER LOGIN PASSWORD '{PASSWORD}'")
        address = second.partition("@")[2]
        yield [f"{first}/fleet", f"postgres://{address}", str(folder / "fleet"), third]


def assert_same(target: str, expected: Sums, event: str = "") -> None:
    """Postgres answers with decimals, reports with floats."""
    if target.startswith("postgres"):
        tokens = "input + output + reasoning + cache_read + cache_create_5m + cache_create_1h"
        with connect_postgres(target, user=USER, password=PASSWORD) as db:
            rows = db.execute(
                f"SELECT (ts AT TIME ZONE 'UTC')::date::text, count(*), sum({tokens})::bigint, sum(cost_usd) "
                "FROM turns_once GROUP BY 1"
            ).fetchall()
        assert {day: tuple(sums) for day, *sums in rows} == expected, (event, target)
    else:
        assert fleet_sums(target) == as_floats(expected), (event, target)


def test_totals_follow_whatever_happens(folder: Path, targets: list[str]) -> None:
    with three_machines(folder) as machines:
        for event in story(folder, machines):
            for machine in machines:
                for target in targets:
                    machine.push(lambda target=target: target_of(target))  # type: ignore[misc]
                    assert machine.push(lambda target=target: target_of(target)) == 0  # type: ignore[misc]
            expected = sums_of(machines)
            for target in targets:
                assert_same(target, expected, event)
        for target in targets:
            machines[0].push(lambda target=target: target_of(target), name="renamed")  # type: ignore[misc]
            assert_same(target, sums_of(machines), "renamed")
        for target in targets:
            with newer_schema():
                assert machines[2].push(lambda target=target: target_of(target)) > 0  # type: ignore[misc]
        machines[1].log("s-bo3", "bo3-1")
        for target in targets:
            machines[1].push(lambda target=target: target_of(target))  # type: ignore[misc]
            assert_same(target, sums_of(machines), "two versions of the schema")
        with ExitStack() as stack:
            clients = [FleetClient.at(target) for target in targets if not target.startswith("postgres")]
            for client in clients:
                stack.callback(client.close)
            for params, by in ((SummaryParams, "machine"), (SummaryParams, "day,model"), (HotspotsParams, "tool")):
                first, *others = [client.ask(params, {"by": by}) for client in clients]
                assert all(other == first for other in others)
                assert len(first["rows"]) > 1


@pytest.mark.parametrize("number", [0, 1, 2])
def test_kills_at_any_moment(folder: Path, targets: list[str], number: int) -> None:
    """A push that is killed before or after any of its requests is completed by the next one."""
    target = targets[number]
    is_folder = target.startswith("/")
    module, of_folder = ("tests.burnctl.push.killed_push", [target]) if is_folder else ("tests.real.killed_push", [])
    machine = Machine(folder, "ana")
    try:
        machine.start()
        killed = 0
        for kill in range(1, KILLS + 1):
            machine.log(f"s{kill % 4}", f"m{kill}-0", f"m{kill}-1", day=f"2026-11-{kill % 9 + 1:02}")
            done = subprocess.run(
                [sys.executable, "-m", module, str(kill % 23 + 1), *of_folder, "push", target, "--no-start"],
                cwd=ROOT,
                env={**os.environ, "RELAYBURN_HOME": str(machine.home.root), "HOME": str(machine.home.root.parent)},
                capture_output=True,
                check=False,
                timeout=120,
            )
            killed += done.returncode == -signal.SIGKILL
            if kill % 10 == 0:
                machine.push(lambda: target_of(target))
                assert_same(target, sums_of([machine]))
        assert killed > KILLS // 2
    finally:
        machine.stop()
