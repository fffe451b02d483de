"""Asks an index what its methods would be asked."""

from __future__ import annotations

from typing import Any

from burnd.clients.folders import resolve
from burnd.contract.checking import checked
from burnd.contract.reports import CompareParams, HotspotsParams, SummaryParams
from burnd.index.store import IndexStore
from burnd.pricing import PriceTable
from burnd.queries.compare import compare
from burnd.queries.hotspots import hotspots
from burnd.queries.summary import summary
from burnd.queries.view import Folder, View
from burnd.recording.pipeline import Pipeline
from tests.make import START_MS

PRICES = PriceTable.load()
NOW = START_MS + 3_600_000


async def ask_summary(index: IndexStore, prices: PriceTable = PRICES, now: int = NOW, **params: Any) -> dict[str, Any]:
    """The answer as a client gets it, with parameters as a client sends them."""
    asked, folders = checked(SummaryParams, params), _looked_at(params)
    return await index.ask(lambda db: summary(View(db, prices, now, folders), asked))


def _looked_at(params: dict[str, Any]) -> dict[str, Folder]:
    """The folder of the project, as the daemon looks it up before it asks."""
    return {params["project"]: resolve(params["project"])} if params.get("project") else {}


async def ask_compare(index: IndexStore, prices: PriceTable = PRICES, now: int = NOW, **params: Any) -> dict[str, Any]:
    asked = checked(CompareParams, params)
    return await index.ask(lambda db: compare(View(db, prices, now), asked))


async def ask_hotspots(
    pipeline: Pipeline, prices: PriceTable = PRICES, now: int = NOW, **params: Any
) -> dict[str, Any]:
    asked, ledger = checked(HotspotsParams, params), pipeline.home.ledger
    return await pipeline.index.ask(lambda db: hotspots(View(db, prices, now), ledger, asked))


def by_key(answer: dict[str, Any]) -> dict[Any, dict[str, Any]]:
    return {row["key"]: row for row in answer["rows"]}


def by_cell(answer: dict[str, Any]) -> dict[Any, dict[str, Any]]:
    """The cells by what is compared, a pair if that has two dimensions, and by activity."""
    cells = answer["cells"]
    return {(tuple(c["keys"].values()) if "keys" in c else c["model"], c["category"]): c for c in cells}
