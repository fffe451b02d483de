"""Three machines push to one folder: its totals are the sum, with copies counted once, after any event."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import closing
from decimal import Decimal
from pathlib import Path

import pytest

from burnctl.fleet_client import FleetClient
from burnctl.push.segments import SegmentTarget
from burnd.contract.reports import HotspotsParams, SummaryParams
from tests.fleet.machines import Machine, as_floats, fleet_sums, newer_schema, story, sums_of, three_machines


@pytest.fixture
def folder() -> Iterator[Path]:
    """A short path: that of a socket has few bytes."""
    with tempfile.TemporaryDirectory(prefix="burnd-", dir="/tmp") as folder:
        yield Path(folder)


def test_totals_follow_whatever_happens(folder: Path) -> None:
    target = str(folder / "fleet")
    with three_machines(folder) as machines:
        for event in story(folder, machines):
            for machine in machines:
                machine.push(lambda: SegmentTarget(target))
                assert machine.push(lambda: SegmentTarget(target)) == 0, f"a repeat sends nothing: {event}"
            assert fleet_sums(target) == as_floats(sums_of(machines)), event
        _rename(machines, target)
        with newer_schema():
            assert machines[2].push(lambda: SegmentTarget(target)) > 0, "everything again"
        machines[1].log("s-bo3", "bo3-1")
        machines[1].push(lambda: SegmentTarget(target))
        assert fleet_sums(target) == as_floats(sums_of(machines)), "two versions of the schema"


def _rename(machines: list[Machine], target: str) -> None:
    """A machine with another name counts once, under the new name; rows of causes add up to the bill.

    No other machine has a copy of its logs: of equal copies the one of the lowest machine id counts, which is random.
    """
    renamed = machines[2]
    renamed.push(lambda: SegmentTarget(target), name="renamed")
    sums = sums_of(machines).values()
    with closing(FleetClient.at(target)) as client:
        by_machine = client.ask(SummaryParams, {"by": "machine"})
        by_tool = client.ask(HotspotsParams, {"by": "tool"})
    assert by_machine["totals"]["turns"] == sum(turns for turns, _, _ in sums)
    assert "renamed" in [row["key"] for row in by_machine["rows"]]
    assert renamed.name not in [row["key"] for row in by_machine["rows"]]
    assert sum(Decimal(str(row["costUsd"] or 0)) for row in by_tool["rows"]) == sum(cost for _, _, cost in sums)
    assert by_tool["rows"][0]["key"] == "Bash"
