"""Sentences around a report: unread logs, caveats on its costs, no rows."""

from __future__ import annotations

from burnctl.render.numbers import counted, duration, money, roughly
from burnctl.render.text import clean

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Mapping
    from typing import Any

    from burnctl.client import Client
    from burnctl.render.screen import Screen

API_PRICES = "Costs are at API list prices; a subscription covers them."
NO_NAME = "(unknown)"  # a model that no log names
_MODELS_NAMED = 5
_WORTH = 0.01  # of the bill: smaller caveats are printed with --notes alone
_UNITS = {"m": ("minute", "min"), "h": ("hour", "h"), "d": ("day", "days"), "w": ("week", "weeks")}
_FILTERS = (
    *("project", "session", "workflow", "agent", "tags", "source", "model", "provider", "branch", "activity"),
    "version",
)


def backfill_line(answer: Mapping[str, Any], what: str = "Totals") -> str:
    """The line above a partial answer, or an empty text."""
    backfill = answer.get("backfill")
    if not backfill or backfill["done"] or backfill.get("exact"):
        return ""
    if blocked := backfill.get("blocked"):
        return f"Old logs cannot be read at the moment ({clean(blocked)}). {what} are not complete. See: burnctl status"
    return f"Reading old logs{progress(backfill, ': ')}. {what} are not complete yet."


def progress(backfill: Mapping[str, Any], between: str) -> str:
    """`32%, about 8 s left`, as far as known."""
    percent, seconds = backfill.get("percent"), backfill.get("secondsLeft")
    text = "" if percent is None else f"{between}{percent}%"
    return text + ("" if seconds is None else f", about {duration(seconds)} left")


def add_caveats(answer: Mapping[str, Any], screen: Screen) -> None:
    """Adds caveats, which change how the numbers are read, to the footnote."""
    for share, *forms in _caveats(answer):
        if share < _WORTH:
            screen.note(forms[0])
        else:
            screen.footnote(*forms)


def caveats(answer: Mapping[str, Any]) -> list[str]:
    """Requests without a price, the harness's own figures, unlogged usage, an unusable price file, old prices."""
    return [text for _, text, *_ in _caveats(answer)]


def _caveats(answer: Mapping[str, Any]) -> Iterator[tuple[Any, ...]]:
    """Each caveat: its share of the bill, 1 if unknown, and its forms, the longest first."""
    totals = answer.get("totals") or {}

    def share(cost: float | None) -> float:
        bill = totals.get("costUsd")
        return 1.0 if cost is None or not bill else cost / bill

    if models := answer.get("unpricedModels"):
        turns = totals.get("unpricedTurns")  # not every answer counts them
        requests = "No price" if turns is None else f"{counted(turns, 'request')} without a price"
        names = _listed(models)
        yield 1, f"{requests} ({names}): burnctl pricing show MODEL.", f"{requests} ({names}).", f"{requests}."
    models, cost = answer.get("harnessModels"), totals.get("harnessCostUsd")
    if models or cost is not None:
        part = "This" if cost is None else money(cost)
        figure = f"{part} is the harness's own figure"
        yield share(cost), f"{figure}: no price list has {_listed(models) if models else 'its models'}.", f"{figure}."
    if extra := answer.get("unlogged"):
        yield share(extra["costUsd"]), *_unlogged(extra)
    if problem := answer.get("pricesProblem"):
        yield 1, f"Prices: {problem}."
    if day := answer.get("stalePrices"):
        old = f"The price list of {day} is more than 60 days old and lacks models in use: burnctl pricing update."
        yield 1, old, f"Prices are of {day}: burnctl pricing update.", f"Prices are of {day}."


def _listed(models: list[str]) -> str:
    names = ", ".join(model or NO_NAME for model in models[:_MODELS_NAMED])
    return f"{names} ..." if len(models) > _MODELS_NAMED else names


def _unlogged(extra: Mapping[str, Any]) -> tuple[str, ...]:
    """Usage that is in no log; a minimum for requests without a response."""
    tokens, requests, cost = sum(extra["usage"].values()), extra.get("requests", 0), extra["costUsd"]
    used = roughly(tokens, "token")
    amount = used if cost is None else money(cost)
    if not requests:
        used = used if cost is None else f"{amount} ({used})"
        return f"Not included: {used} that harnesses used without logging it.", f"Not included: {amount} not logged."
    lost, short = counted(requests, "request"), f"Not included: {counted(requests, 'unanswered request')}"
    if not tokens:
        return f"Not included: {lost} without a logged response, maybe billed.", f"{short}."
    used = used if cost is None else f"{amount}, {used}"
    long = f"Not included: {lost} without a logged response (at least {used})."
    return long, f"{short} (at least {amount}).", f"{short}."


def no_matches(client: Client, options: argparse.Namespace, lead: str = "") -> str:
    """`lead`, or that there are no requests; with a period also the age of the last one."""
    newest, when = client.summary(limit=1)["newest"], _period(options)
    if newest is None:
        # A session without an answered request has no turns, but can be listed.
        if lead and client.sessions_list(limit=1)["sessions"]:
            return f"{lead}{when}."
        if getattr(options, "scan", False):
            return "No logs were found. `burnctl doctor` shows where they are looked for."
        return "Nothing is recorded yet. `burnctl status` shows what burnd is reading."
    import time

    from burnctl.render.numbers import ago

    age = ago(newest, time.time() * 1000)
    if not lead:
        is_filtered = any(getattr(options, name, None) for name in _FILTERS)
        return f"{'No requests match' if is_filtered else 'No requests'}{when}; the last request was {age}."
    return f"{lead}{when}; the last request was {age}." if when else f"{lead}."


def _period(options: argparse.Namespace) -> str:
    """` in the last 7 days`, ` from 2026-11-01 to 2026-11-07`."""
    since, until = (getattr(options, name, None) for name in ("since", "until"))
    if since and until:
        return f" from {since} to {until}"
    if until:
        return f" up to {until}"
    if not since:
        return ""
    count, unit = since[:-1], since[-1:]
    if not count.isdecimal() or unit not in _UNITS:
        return f" {since}" if since == "today" else f" since {since}"
    return f" in the last {_UNITS[unit][0] if count == '1' else f'{count} {_UNITS[unit][1]}'}"
