"""`burnctl daily`, `weekly` and `monthly`: a row for each period, the newest last."""

from __future__ import annotations

import time

from burnctl import flags
from burnctl.daemon import reach
from burnctl.output import present
from burnctl.render.names import short_model
from burnctl.render.notes import add_caveats
from burnctl.render.numbers import count, day_names, money, number
from burnctl.render.tables import Column, model_style, table, weight_style
from burnd.contract import Params, param
from burnd.contract.reports import Filters, SummaryParams

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from typing import Any

    from burnctl.client import Client
    from burnctl.render.screen import Screen

HELP = (
    "shows what each day, week or month cost: its models, requests, tokens by kind and cost, the newest last, and a "
    "total. With --breakdown each model has its own row"
)
EXAMPLES = (
    "burnctl daily",
    "burnctl weekly --project .",
    "burnctl monthly --breakdown",
    "burnctl daily --since 7d --csv",
)
UNITS = {"daily": "day", "weekly": "week", "monthly": "month"}
_USUAL_DAYS = {"day": 30, "week": 26 * 7}
_WIDE = 110  # columns


class PeriodsFlags(Params):
    all: bool = param(default=False, help="all periods, not only the last ones")
    breakdown: bool = param(default=False, help="a row for each model below its period")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    verb = parser.prog.rpartition(" ")[2]
    flags.add(parser, Filters)
    flags.add(parser, PeriodsFlags, skip=() if UNITS[verb] in _USUAL_DAYS else ("all",))
    flags.reading_rows(parser)
    flags.add(parser, flags.Scan)
    flags.add(parser, flags.Fleet, flags.FleetRows)
    parser.set_defaults(verb=verb)


def run(options: argparse.Namespace) -> int:
    from datetime import date, timedelta

    unit = UNITS[options.verb]
    if not options.since and unit in _USUAL_DAYS and not options.all:
        days = _USUAL_DAYS[unit] - 1
        options.since = (date.fromtimestamp(time.time()) - timedelta(days=days)).isoformat()
    client = reach(options, totals=SummaryParams(**flags.given(options, Filters)).is_of_totals)
    filters = {**flags.given(options, Filters), "tz": flags.time_zone()}
    if options.by:
        from burnctl.commands import summary

        answer = client.ask(SummaryParams, {"by": f"{unit},{options.by}", **filters})
        return present(options, answer, summary.drawn, rows=summary.flat_rows, client=client)
    answer = client.ask(SummaryParams, {"by": unit, **filters})
    answer["models"] = _by_model(client, unit, filters) if answer["rows"] else {}

    def draw(answer: dict[str, Any], screen: Screen) -> str:
        return drawn(answer, screen, is_broken_down=options.breakdown)

    return present(options, answer, draw, rows=flat_rows, client=client)


def _by_model(client: Client, unit: str, chosen: dict[str, Any]) -> dict[str, list[dict[str, Any]]]:
    rows: dict[str, list[dict[str, Any]]] = {}
    for row in client.ask(SummaryParams, {"by": f"{unit},model", **chosen})["rows"]:
        rows.setdefault(str(row["key"]), []).append(row | {"model": row["keys"]["model"]})
    return {key: sorted(parts, key=lambda part: -(part["costUsd"] or 0)) for key, parts in rows.items()}


def drawn(answer: dict[str, Any], screen: Screen, *, is_broken_down: bool = False) -> str:
    if not answer["rows"]:
        return ""
    add_caveats(answer, screen)
    unit = answer["by"]
    most_models = 100 if screen.is_pipe else 2 if screen.width < _WIDE else 3
    longest = max(
        len(_names([part["model"] for part in parts], most_models)) for parts in answer["models"].values() or [[]]
    )
    columns = [
        Column(unit),
        Column("models", least=min(longest, 24), drop=2),
        Column("requests", "right"),
        Column("input", "right", drop=5),
        Column("output", "right", drop=3),
        Column("cache read", "right", drop=4),
        Column("cache write", "right", drop=6),
        Column("cost", "right"),
    ]
    most = max((row["costUsd"] or 0 for row in answer["rows"]), default=0)
    labels = _labels([row["key"] for row in answer["rows"]], unit)
    rows: list[list[object]] = []
    for row, label in zip(answer["rows"], labels, strict=True):
        models = answer["models"].get(row["key"], [])
        is_open = is_broken_down and len(models) > 1  # a single model has the figures of its period
        names = "" if is_open else _names([part["model"] for part in models], most_models)
        style = model_style(names) if is_broken_down else ""
        rows.append([label, (names, style), *_cells(row, most)])
        for n, part in enumerate(models if is_open else ()):
            branch = "└" if n == len(models) - 1 else "├"
            name = f"{branch} {short_model(part['model'])}"
            rows.append(["", (name, model_style(part["model"])), *_cells(part, most)])
    return table(columns, rows, screen, footer=["total", "", *_cells(answer["totals"], None)])


def _names(models: list[str], shown: int) -> str:
    more = len(models) - shown
    return ", ".join(map(short_model, models[:shown])) + (f" +{more}" if more > 0 else "")


def _labels(keys: list[str], unit: str) -> list[str]:
    if unit == "day":
        return day_names(keys)
    if unit == "week":
        return [_week(key) for key in keys]
    return [time.strftime("%b %Y", time.strptime(key, "%Y-%m")) for key in keys]


def _week(key: str) -> str:
    """`2026-W47` as `Nov 16 to Nov 22`."""
    from datetime import date as calendar
    from datetime import timedelta

    year, _, week = key.partition("-W")
    monday = calendar.fromisocalendar(int(year), int(week), 1)
    days = [monday.isoformat(), (monday + timedelta(days=6)).isoformat()]
    return " to ".join(" ".join(name.split()) for name in day_names(days))


def _cells(row: dict[str, Any], most: float | None) -> list[object]:
    usage, cost = row["usage"], row["costUsd"]
    return [
        count(row["turns"]),
        number(usage["input"]),
        number(usage["output"] + usage["reasoning"]),
        number(usage["cacheRead"]),
        number(usage["cacheCreate5m"] + usage["cacheCreate1h"]),
        (money(cost), weight_style(cost, most)) if most is not None else money(cost),
    ]


def flat_rows(answer: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        {answer["by"]: key, "model": part["model"], "turns": part["turns"], **part["usage"], "costUsd": part["costUsd"]}
        for key, parts in answer["models"].items()
        for part in parts
    ]
