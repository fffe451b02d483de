"""Runs methods against an index."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import msgspec
import pytest

from burnd.clients.folders import resolve
from burnd.content.recall import Recall
from burnd.contract import validation
from burnd.contract.reports import CompareParams, FlowParams, HotspotsParams, SummaryParams, WhyParams
from burnd.contract.validation import checked
from burnd.index.store import IndexStore
from burnd.pricing import PriceTable
from burnd.queries.compare import compare
from burnd.queries.flow import flow
from burnd.queries.hotspots import hotspots
from burnd.queries.summary import summary
from burnd.queries.view import Folder, View
from burnd.queries.why import why
from burnd.recording.pipeline import Pipeline
from burnd.records import Turn
from tests.make import START_MS

PRICES = PriceTable.load()
NOW = START_MS + 3_600_000


async def ask_summary(index: IndexStore, prices: PriceTable = PRICES, now: int = NOW, **params: Any) -> dict[str, Any]:
    """The answer as a client gets it, with parameters as a client sends them."""
    asked, folders = checked(SummaryParams, params), _looked_at(params)
    return await index.ask(lambda db: summary(View(db, prices, now, folders), asked))


def _looked_at(params: dict[str, Any]) -> dict[str, Folder]:
    """The folder of the project, resolved as by the daemon."""
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


USAGE = ("input", "output", "reasoning", "cacheRead", "cacheCreate5m", "cacheCreate1h")


async def ask_why(pipeline: Pipeline, session: str, *, recall: Recall | None = None, **params: Any) -> dict[str, Any]:
    """The answer as a client gets it, with parameters as a client sends them."""
    asked = validation.checked(WhyParams, {"session": session, **params})
    return await pipeline.index.ask(lambda db: why(View(db, PRICES, NOW), pipeline.home.ledger, recall, asked))


def adds_up(rows: list[dict[str, Any]], whole: dict[str, Any]) -> None:
    """Exact for tokens, within float precision for costs."""
    for name in USAGE:
        assert sum(row["usage"][name] for row in rows) == whole["usage"][name], name
    priced = [Decimal(row["costUsd"]) for row in rows if row["costUsd"] is not None]
    assert bool(priced) == (whole["costUsd"] is not None) or not any(whole["usage"].values())
    assert float(sum(priced)) == pytest.approx(whole["costUsd"] or 0, rel=1e-12, abs=1e-12)


def moved_to(entry: Any, prefix: str, **facts: Any) -> Any:
    """The same entry in another place with another name."""
    if isinstance(entry, Turn):
        return msgspec.structs.replace(entry, message_id=prefix + entry.message_id, **facts)
    name = "message_id" if hasattr(entry, "message_id") else "id"
    facts = {key: value for key, value in facts.items() if key != "subagent"}
    return msgspec.structs.replace(entry, **{name: prefix + getattr(entry, name)}, **facts)


async def ask_flow(pipeline: Pipeline, session: str, **params: Any) -> dict[str, Any]:
    asked = checked(FlowParams, {"session": session, **params})
    return await pipeline.index.ask(lambda db: flow(View(db, PRICES, NOW), pipeline.home.ledger, asked))
