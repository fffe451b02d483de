"""Machines with a daemon each, that push to the same targets; and what happens to them, step by step.

After each step the totals of every target must be those of all machines, with copies counted once. The expected totals
come from the exports of the machines and a plain loop, and each export must agree with its machine's summary.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from decimal import Decimal
from importlib import import_module
from pathlib import Path
from typing import Any

import pyarrow as arrow
import pytest

from burnctl.client import Client
from burnctl.errors import BurnctlError
from burnctl.fleet_client import FleetClient
from burnctl.parquet import TYPES
from burnctl.push import clickhouse, engine, schema, segments
from burnctl.push.engine import Labels, Push
from burnctl.push.schema import SCHEMA_VERSION, TABLES, Column, usd
from burnctl.push.target import Target
from burnd.contract.reports import ExportParams, SummaryParams
from burnd.paths import Home
from tests.harness.claude_code.transcript import Transcript, call, text
from tests.server.logs import projects, write
from tests.server.wire import Daemon, until

PRICES = {
    "anthropic": {
        "id": "anthropic",
        "models": {
            "claude-opus-4-5": {"id": "claude-opus-4-5", "cost": {"input": 7.7, "output": 33.3, "cache_read": 0.77}}
        },
    }
}
Sum = tuple[int, int, Decimal]  # turns, tokens, cost
Sums = dict[str, Sum]  # by day of UTC
Connect = Callable[[], Target]
Total = Callable[[], Sum]
MODELS = ("claude-opus-4-5", "claude-sonnet-4-5", "claude-haiku-4-5")
USAGE = {"input_tokens": 37, "cache_read_input_tokens": 12_345, "cache_creation_input_tokens": 678}


class Machine:
    """A home with logs and a daemon."""

    def __init__(self, folder: Path, name: str) -> None:
        self.name = name
        self.home = Home(folder / name / "home")
        self.home.root.parent.mkdir(parents=True, exist_ok=True)
        self._daemon: Daemon | None = None
        self.client = Client(self.home.root / "burnd.sock")

    def start(self) -> None:
        self._daemon = Daemon(self.home)
        self._daemon.wait_until_ready()
        self.flush()

    def stop(self) -> None:
        self.client.close()
        if self._daemon is not None:
            self._daemon.kill()
            self._daemon = None

    def log(self, session: str, *messages: str, day: str = "2026-11-10", done: bool = True, output: int = 10) -> None:
        """Appends turns to a session's log and waits until they are recorded."""
        log = Transcript(session=session, prefix=f"{session}-{messages[0]}-{output}")
        log.prompt(f"work on {session}", ts=f"{day}T09:00:00.000Z")
        for n, message in enumerate(messages):
            ts = f"{day}T10:{n % 60:02}:00.000Z"
            model = MODELS[n % 3]
            log.calls(
                message, call(f"c-{message}", "Bash", command="ls"), output=output, usage=USAGE, model=model, ts=ts
            )
            log.result(f"c-{message}", "a\nb", ts=ts)
        if done:
            log.says(
                f"{messages[-1]}-end", text("done"), output=5, usage=USAGE, model=MODELS[0], ts=f"{day}T11:00:00.000Z"
            )
        write(self.home, log, session)
        self.flush()

    def flush(self) -> None:
        """Waits until all logs are recorded and all costs are attributed."""
        self.client.flush()
        until(lambda: self.client.hotspots(limit=1)["pending"] == 0)

    def push(self, connect: Connect, name: str = "") -> int:
        target = connect()
        try:
            push = Push(self.client, target, Labels(name or self.name, f"user-{self.name}"), tries=1)
            push.open()
            rows = push.once()
            assert push.differences() == []
            return rows
        finally:
            target.close()

    def turns(self) -> list[dict[str, Any]]:
        """Turns of its export, which must add up to its summary."""
        turns: list[dict[str, Any]] = []
        after = None
        while True:
            page = self.client.ask(ExportParams, {"limit": 1000, "after": after})
            turns += page["turns"]
            if (after := page["next"]) is None:
                break
        totals: Any = self.client.summary()["totals"]
        assert (len(turns), sum(map(tokens, turns))) == (totals["turns"], sum(totals["usage"].values()))
        assert float(sum(cost(turn) for turn in turns)) == (totals["costUsd"] or 0)
        return turns


def tokens(turn: dict[str, Any]) -> int:
    return sum(turn["usage"].values())


def cost(turn: dict[str, Any]) -> Decimal:
    return usd(turn["costUsd"]) or Decimal(0)


def sums_of(machines: list[Machine]) -> Sums:
    """The sums over machines, of copies the best one."""
    best: dict[tuple[str, str], dict[str, Any]] = {}
    for turn in sorted((turn for machine in machines for turn in machine.turns()), key=_rank):
        best.setdefault((turn["source"], turn["messageId"]), turn)
    days: dict[str, list[dict[str, Any]]] = {}
    for turn in best.values():
        days.setdefault(turn["ts"][:10], []).append(turn)
    return {
        day: (len(turns), sum(map(tokens, turns)), sum(map(cost, turns), Decimal(0)))
        for day, turns in sorted(days.items())
    }


def fleet_sums(target: str) -> dict[str, tuple[int, int, float]]:
    """The same from a report over all machines, which has the float that is nearest to a cost."""
    with closing(FleetClient.at(target)) as client:
        rows = client.ask(SummaryParams, {"by": "day", "tz": "UTC"})["rows"]
    return {row["key"]: (row["turns"], sum(row["usage"].values()), row["costUsd"]) for row in rows}


def as_floats(sums: Sums) -> dict[str, tuple[int, int, float]]:
    return {day: (turns, used, float(cost)) for day, (turns, used, cost) in sums.items()}


def _rank(turn: dict[str, Any]) -> tuple[Any, ...]:
    return turn["quality"] != "final", turn["open"], -turn["usage"]["output"], -len(turn["tags"])


@contextmanager
def three_machines(folder: Path) -> Iterator[list[Machine]]:
    machines = [Machine(folder, name) for name in ("ana", "bo", "cy")]
    try:
        for machine in machines:
            machine.start()
        yield machines
    finally:
        for machine in machines:
            machine.stop()


@contextmanager
def newer_schema() -> Iterator[None]:
    """A burnctl of a later release, whose turns have one more column."""
    column, version = Column("later", "text", "of a later release"), SCHEMA_VERSION + 1
    modules = [engine, clickhouse, segments]
    with suppress(BurnctlError):  # psycopg is optional
        modules.append(import_module("burnctl.push.postgres"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(TABLES, "turns", (*TABLES["turns"], column))
        patch.setitem(schema._EMPTY, "turns", schema._EMPTY["turns"] | {"later": None})
        patch.setitem(segments.SCHEMAS, "turns", segments.SCHEMAS["turns"].append(arrow.field("later", TYPES["text"])))
        for module in modules:
            patch.setattr(module, "SCHEMA_VERSION", version)
        yield


def story(folder: Path, machines: list[Machine]) -> Iterator[str]:
    """Changes the machines; yields a name after each change that the targets must follow."""
    ana, bo, cy = machines
    for machine in machines:
        machine.log(f"s-{machine.name}", *(f"{machine.name}-{n}" for n in range(7)))
    yield "first push"
    ana.log("s-ana", "ana-more", "ana-most")
    bo.log("s-bo2", "bo2-1", done=False)
    yield "growth"
    cy.log("s-late", *(f"late-{n}" for n in range(5)), day="2026-03-01")
    yield "a late log"
    ana.client.stamp(session="s-ana", team="core", persona="lead")
    ana.flush()
    yield "a late stamp"
    bo.log("s-bo2", "bo2-1", output=400)
    yield "a revision"
    bo.log("s-moved", "moved-1", day="2026-11-02", done=False)
    yield "a day of one request"
    bo.log("s-moved", "moved-1", day="2026-10-31", done=False, output=300)
    assert [turn["ts"][:10] for turn in bo.turns() if turn["messageId"] == "moved-1"] == ["2026-10-31"]
    yield "a moved day"
    cy.stop()
    cy.start()
    cy.log("s-cy", "cy-after", day="2026-11-15")
    yield "a gap"
    shutil.copytree(projects(ana.home), projects(bo.home), dirs_exist_ok=True)
    bo.flush()
    yield "copied logs"
    copy = Machine(folder, "copy")
    ana.stop()
    shutil.copytree(
        ana.home.root.parent, copy.home.root.parent, dirs_exist_ok=True, ignore=shutil.ignore_patterns("*.sock")
    )
    ana.start()
    machines.append(copy)
    copy.start()
    copy.log("s-copy", "copy-1", "copy-2")
    yield "a copied home"
    copy.stop()
    shutil.rmtree(copy.home.index)
    copy.start()
    yield "a rebuilt index"
    for machine in machines:
        machine.stop()
        machine.home.prices.write_text(json.dumps(PRICES))
        machine.start()
    yield "other prices"
