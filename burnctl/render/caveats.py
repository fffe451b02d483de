"""Notes on a report of money: a partial answer, requests without a price, usage that is in no log, old prices."""

from __future__ import annotations

from burnctl.render.numbers import counted, duration, money, roughly
from burnctl.render.text import clean

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from burnctl.render.screen import Screen

API_PRICES = "Costs are at API list prices; a subscription covers them."
NO_NAME = "(unknown)"  # a model that no log names
_NAMED = 5


def add_caveats(answer: Mapping[str, Any], screen: Screen) -> None:
    """Adds the notes on prices to the footnote of a report: each changes how its numbers are to be read."""
    for note in caveats(answer):
        screen.footnote(note)


def caveats(answer: Mapping[str, Any]) -> list[str]:
    notes = []
    if models := answer.get("unpricedModels"):
        turns = answer["totals"].get("unpricedTurns")  # not every answer counts them
        requests = "No price" if turns is None else f"{counted(turns, 'request')} without a price"
        notes.append(f"{requests} ({_named(models)}): burnctl pricing show MODEL.")
    return notes + price_caveats(answer)


def _harness_figure(answer: Mapping[str, Any]) -> list[str]:
    """A note on the part of the cost that is the harness's own figure; not every answer names the models."""
    models, cost = answer.get("harnessModels"), (answer.get("totals") or {}).get("harnessCostUsd")
    if not models and cost is None:
        return []
    part = "This" if cost is None else money(cost)
    return [f"{part} is the harness's own figure: no price list has {_named(models) if models else 'its models'}."]


def _named(models: list[str]) -> str:
    return ", ".join(model or NO_NAME for model in models[:_NAMED]) + (" ..." if len(models) > _NAMED else "")


def backfill_line(answer: Mapping[str, Any], what: str = "Totals") -> str:
    """The line above an answer that was given before all old logs were read; empty above a complete one."""
    backfill = answer.get("backfill")
    if not backfill or backfill["done"]:
        return ""
    if blocked := backfill.get("blocked"):
        return f"Old logs cannot be read at the moment ({clean(blocked)}). {what} are not complete. See: burnctl status"
    percent, left = backfill.get("percent"), backfill.get("secondsLeft")
    progress = "" if percent is None else f": {percent}%"
    progress += "" if left is None else f", about {duration(left)} left"
    return f"Reading old logs{progress}. {what} are not complete yet."


def _unlogged(extra: Mapping[str, Any]) -> str:
    """One sentence on usage that is in no log; for requests without a response it is a lower bound."""
    tokens, requests = sum(extra["usage"].values()), extra.get("requests", 0)
    used = roughly(tokens, "token")
    if extra["costUsd"] is not None:
        used = f"{money(extra['costUsd'])} ({used})"
    if not requests:
        return f"Not included: {used} that harnesses used without logging it."
    lost = f"{counted(requests, 'request')} without a logged response"
    return f"Not included: at least {used}, with {lost}." if tokens else f"Not included: {lost}, maybe billed."


def price_caveats(answer: Mapping[str, Any]) -> list[str]:
    """Notes on the harness's own figures, unlogged usage, an unusable price file and an old price list."""
    extra = answer.get("unlogged")
    notes = _harness_figure(answer) + ([_unlogged(extra)] if extra else [])
    if problem := answer.get("pricesProblem"):
        notes.append(f"Prices: {problem}.")
    if day := answer.get("stalePrices"):
        notes.append(
            f"The price list of {day} is more than 60 days old and lacks models in use: burnctl pricing update."
        )
    return notes
