"""`tail`: turns as they land, streamed to a client until it goes away."""

from __future__ import annotations

from typing import Any

import msgspec

from burnd import protocol
from burnd.contract.daemon import TailParams
from burnd.errors import IndexDamaged, NotNow
from burnd.index.asking import TookTooLong
from burnd.pricing import UNITS_PER_USD, PriceTable, Tokens, terms_text
from burnd.pricing.terms import figure_of
from burnd.queries.budgets import standings
from burnd.queries.projects import Project, to_come
from burnd.records import Turn
from burnd.server.feed import Landed, Notice
from burnd.server.method import AnyMethod, Caller, LongMethod, Result
from burnd.server.service import Service


async def tail(service: Service, params: TailParams, caller: Caller) -> Result:
    """Answers at once, then notifies of each turn, and of a budget that is or will be crossed. Who reads too slowly is
    told how many went by unseen."""
    _ = service.pipeline  # nothing lands before it is open
    project = await _project(service, params.project) if params.project is not None else None
    with service.feed.following(lambda turn: is_wanted(turn, params, project)) as follower:
        await caller.answer({"following": True})
        for budget in await _crossed(service):
            await caller.notify("tail", {"version": protocol.VERSION, "missed": 0, "budget": budget})
        while True:
            landed, missed = await follower.take()
            prices = service.prices.table
            for item in landed:
                await caller.notify("tail", shown(item, prices, missed))
                missed = 0


def is_wanted(turn: Turn, params: TailParams, project: Project | None) -> bool:
    """Whether a turn passes the filters; `project` is what the caller's name for it means."""
    if params.session not in (None, turn.session_id) or params.source not in (None, turn.source):
        return False
    return project is None or project.covers(turn.project, turn.project_key)


async def _project(service: Service, given: str) -> Project:
    return await service.ask(lambda view: to_come(view, given), project=given)


async def _crossed(service: Service) -> list[dict[str, Any]]:
    """Nothing where that cannot be said just now: turns are followed all the same."""
    budgets = service.settings.budgets
    if not budgets:
        return []
    try:
        found = await service.ask(lambda view: standings(view, budgets))
    except (NotNow, IndexDamaged, TookTooLong):
        return []
    return [standing.answer() for standing in found if standing.crossed]


def shown(landed: Landed | Notice, prices: PriceTable, missed: int) -> dict[str, Any]:
    if isinstance(landed, Notice):
        return {"version": protocol.VERSION, "missed": missed, **landed.what}
    turn = landed.turn
    return {
        "version": protocol.VERSION,
        "open": landed.open,
        "missed": missed,
        "costUsd": _cost(turn, prices),
        "turn": msgspec.to_builtins(turn),
    }


def _cost(turn: Turn, prices: PriceTable) -> float | None:
    usage = turn.usage
    tokens = Tokens(
        usage.input, usage.output, usage.reasoning, usage.cache_read, usage.cache_create_5m, usage.cache_create_1h
    )
    figure = figure_of(round((turn.stated_usd or 0) * UNITS_PER_USD), sum(tokens))
    terms = terms_text(turn.speed, turn.service_tier, turn.inference_geo, figure)
    return prices.turn_usd(turn.model, turn.provider, tokens, terms=terms, searches=turn.searches)


METHODS: tuple[AnyMethod, ...] = (LongMethod(TailParams, tail),)
