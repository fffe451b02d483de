"""Times `waste` over a long history: `python -m tests.bench.waste [TURNS]`. CPU time, beside that of a plain loop."""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import msgspec

from burnd.attribution import saved_findings
from burnd.contract.reports import WasteParams
from burnd.memory import relax_gc
from burnd.paths import Home
from burnd.pricing import PriceTable
from burnd.queries import waste
from burnd.queries.quotes import Quotes
from burnd.queries.selection import choose
from burnd.queries.view import View
from burnd.queries.waste import answer
from burnd.recording.candidate import Batch
from burnd.records import Turn
from tests.attribution.bench import session
from tests.conftest import Opened

PRICES = PriceTable.load()
TURNS_A_SESSION = 250


async def main(turns: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        opened = Opened(Home(Path(folder) / "home"))
        pipeline = await opened()
        for number in range(turns // TURNS_A_SESSION):
            facts: dict[str, Any] = {
                "session_id": f"s{number}",
                "model": "claude-sonnet-4-5",
                "project": f"/code/{number % 20}",
            }
            made: list[Any] = [
                msgspec.structs.replace(entry, message_id=f"{number}-{entry.message_id}", **facts)
                for entry in session(TURNS_A_SESSION)
                if isinstance(entry, Turn)
            ]
            await pipeline.commit(Batch(entries=made))
        print(f"{turns:,} turns in {turns // TURNS_A_SESSION:,} sessions; a loop takes {_loop() * 1000:.0f} ms")
        for name in ("first", "again"):
            await _ask(pipeline.index, pipeline.home.ledger, name)
        await opened.close()


async def _ask(index: Any, ledger: Path, name: str) -> None:
    params = WasteParams()
    await index.transact(saved_findings.begin)
    planned, plan = await _timed(index, lambda view: waste.plan(view, choose(view, params), compared=True))
    looked_at: dict[int, bytes] = {}
    looked = 0.0
    for some in plan.portions():
        took, told = await _timed(index, lambda view: waste.examine(view, ledger, plan.scope, some))  # noqa: B023
        await index.transact(lambda db: saved_findings.save(db, saved_findings.sizes_of(PRICES), told))  # noqa: B023
        looked_at |= {family.root: kept for family, kept in told}
        looked += took
    seen = plan.findings(looked_at)
    asked, told = await _timed(index, lambda view: answer(view, Quotes(view, None), params, seen))
    size = sum(map(len, looked_at.values())) / 1e6
    print(
        f"{name}: planned in {planned * 1000:.0f} ms, looked for {looked:.2f} s, answered in {asked * 1000:.0f} ms "
        f"({len(told['findings']) + told['moreFindings']} findings, {size:.1f} MB kept)"
    )


async def _timed(index: Any, question: Callable[[View], Any]) -> tuple[float, Any]:
    def ask(db: Any) -> tuple[float, Any]:
        begun = time.thread_time()
        told = question(View(db, PRICES, 0))
        return time.thread_time() - begun, told

    timed: tuple[float, Any] = await index.ask(ask, 600)
    return timed


def _loop() -> float:
    begun, total = time.thread_time(), 0
    for n in range(1_000_000):
        total += n
    return time.thread_time() - begun


if __name__ == "__main__":
    relax_gc()
    anyio.run(main, int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000)
