"""`burnctl compare`: models, harnesses or tags side by side on the same work."""

from __future__ import annotations

from burnctl import flags
from burnctl.daemon import reach
from burnctl.output import present
from burnctl.render.names import harness_name, pull_request_name, short_model
from burnctl.render.notes import add_caveats
from burnctl.render.numbers import count, counted, money, percent
from burnctl.render.tables import Column, hit_rate_style, model_style, table
from burnd.contract.reports import CompareParams, Filters

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping
    from typing import Any

    from burnctl.render.screen import Screen

HELP = (
    "compares models (or harnesses, or the values of a tag) on the same kinds of work: requests, cost per request, the "
    "share of prompts whose first try was right with its 95% confidence interval, and cache hits. A row for all "
    "activities comes first. The same model in two harnesses is one model"
)
EXAMPLES = (
    "burnctl compare",
    "burnctl compare --models opus,sonnet --since 4w",
    "burnctl compare --by source",
    "burnctl compare --by tag:persona --activity coding",
    "burnctl compare --what-if claude-haiku-4-5",
)

_WIDE_ENOUGH = 60  # columns


def add_arguments(parser: argparse.ArgumentParser) -> None:
    flags.add(parser, CompareParams)
    flags.reading_rows(parser)
    flags.add(parser, flags.Fleet)
    parser.set_defaults(by="model")


def run(options: argparse.Namespace) -> int:
    client = reach(options)
    filters = flags.given(options, Filters)
    answer = flags.ask(client, CompareParams, options)
    rows = client.summary(by=options.by, quality=True, **filters)["rows"] if answer["cells"] else []
    answer["overall"] = [row for row in rows if row["key"] in answer["models"]]
    return present(options, answer, drawn, rows=flat_cells, client=client)


def drawn(answer: dict[str, Any], screen: Screen) -> str:
    cells = [cell for cell in answer["cells"] if not cell["noData"]]
    if not cells:
        return ""
    enough = [cell for cell in cells if not cell["insufficientSample"]]
    below = "\n".join(filter(None, [_only_one(answer, enough, screen), _too_few(answer, cells, screen)]))
    what_if = screen.paragraph(_what_if(answer["whatIf"])) if "whatIf" in answer else ""
    overall = {row["key"]: row for row in answer.get("overall") or []}
    columns = [
        Column("activity", least=8),
        Column("harness" if answer["by"] == "source" else answer["by"].removeprefix("tag:"), least=11),
        Column("requests", "right", drop=1),
        Column("per request" if screen.is_pipe or screen.width >= _WIDE_ENOUGH else "per req.", "right"),
        Column("what if", "right"),
        Column("first try", "right", drop=1),
        Column("95% CI", "right", drop=4),
        Column("cached", "right", drop=2),
        Column("quota", "right", drop=3),
    ]
    rows: list[list[object]] = []
    for model in sorted(overall, key=lambda model: -(overall[model]["costUsd"] or 0)):
        if overall[model]["turns"] >= answer["minSample"]:
            cell = _overall_cell(overall[model], answer)
            rows.append(_row("all" if not rows else "", _name(model, answer["by"]), cell))
    for category in sorted(
        {cell["category"] for cell in enough},
        key=lambda name: -sum(cell.get("costUsd") or 0 for cell in enough if cell["category"] == name),
    ):
        members = [cell for cell in enough if cell["category"] == category]
        members.sort(key=lambda cell: -(cell.get("costUsd") or 0))
        rows += [
            _row(category if n == 0 else "", _name(cell["model"], answer["by"]), cell) for n, cell in enumerate(members)
        ]
    parts = [what_if, table(columns, rows, screen) if rows else "", below]
    _add_notes(answer, enough, screen)
    return "\n\n".join(filter(None, parts))


def _overall_cell(row: Mapping[str, Any], answer: Mapping[str, Any]) -> dict[str, Any]:
    quality, least = row["quality"], answer["minSample"]
    of_model = [cell for cell in answer["cells"] if cell["model"] == row["key"] and not cell["noData"]]
    other = [
        cell["whatIfCostPerTurn"] * cell["turns"] for cell in of_model if cell.get("whatIfCostPerTurn") is not None
    ]
    return {
        "turns": row["turns"],
        "costPerTurn": None if row["costUsd"] is None else row["costUsd"] / max(row["turns"] - row["unpricedTurns"], 1),
        "whatIfCostPerTurn": sum(other) / max(row["turns"], 1) if other else None,
        "oneShotPromptRate": quality["oneShotPromptRate"],
        "oneShotInterval": quality["oneShotInterval"],
        "insufficientPrompts": 0 < quality["editPrompts"] < least,
        "cacheHitRate": row["cacheHitRate"],
        "quotaShare": None,
    }


def _row(title: str, name: str, cell: Mapping[str, Any]) -> list[object]:
    few = "~" if cell["insufficientPrompts"] else ""
    first_try, interval, quota = cell["oneShotPromptRate"], cell["oneShotInterval"], cell["quotaShare"]
    what_if = cell.get("whatIfCostPerTurn")
    return [
        (title, "bold"),
        (name, model_style(name)),
        count(cell["turns"]),
        money(cell["costPerTurn"]),
        money(what_if) if what_if is not None else "",
        few + percent(first_try) if first_try is not None else "",
        f"{interval[0] * 100:.0f}-{interval[1] * 100:.0f}%" if interval is not None else "",
        (percent(cell["cacheHitRate"]), hit_rate_style(cell["cacheHitRate"])),
        percent(quota) if quota is not None else "",
    ]


def _only_one(answer: dict[str, Any], cells: list[dict[str, Any]], screen: Screen) -> str:
    """The activities in which only one model has data."""
    if len(answer["models"]) == 1:
        name = _name(answer["models"][0], answer["by"])
        return screen.paragraph(f"only {name} has data: there is nothing to compare it with")
    categories_shown = {cell["category"] for cell in cells}
    alone: dict[str, list[str]] = {}
    for note in answer["notes"]:
        if note["category"] in categories_shown:
            alone.setdefault(_name(note["model"], answer["by"]), []).append(note["category"])
    names = "; ".join(f"{', '.join(categories)} (only {model})" for model, categories in alone.items())
    return screen.paragraph(f"nothing to compare with: {names}") if names else ""


def _too_few(answer: dict[str, Any], cells: list[dict[str, Any]], screen: Screen) -> str:
    few: dict[str, list[str]] = {}
    for cell in cells:
        if cell["insufficientSample"]:
            few.setdefault(cell["category"], []).append(_name(cell["model"], answer["by"]))
    if not few:
        return ""
    names = "; ".join(f"{category} ({', '.join(models)})" for category, models in few.items())
    return screen.paragraph(f"not enough data (fewer than {counted(answer['minSample'], 'request')}): {names}")


def _what_if(figures: dict[str, Any]) -> str:
    parts = []
    if figures["actualUsd"] is not None:
        what = "What has a price" if figures["unpricedTurns"] else "All of it"
        parts.append(
            f"{what} as {figures['model']}: {money(figures['costUsd'])} instead of {money(figures['actualUsd'])}"
        )
    if figures["unpricedTurns"]:
        requests = counted(figures["unpricedTurns"], "request")
        parts.append(f"{requests} without a price as {figures['model']}: {money(figures['unpricedCostUsd'])}")
    return f"{'; '.join(parts)} ({figures['note']})."


def _name(model: str | None, by: str) -> str:
    if model is None:
        return _NONE.get(by, "(untagged)")
    if by == "model":
        return short_model(model) or "(unknown)"
    return {"source": harness_name, "pr": pull_request_name}.get(by, str)(model)


_NONE = {"version": "(unknown)", "pr": "(no pull request)"}


def _add_notes(answer: dict[str, Any], cells: list[dict[str, Any]], screen: Screen) -> None:
    is_marked = any(cell["insufficientPrompts"] for cell in cells) or any(
        0 < row["quality"]["editPrompts"] < answer["minSample"] for row in answer.get("overall") or []
    )
    mark = f"; ~ from fewer than {answer['minSample']} prompts" if is_marked else ""
    screen.footnote(
        f"First try: prompts whose edits needed no second attempt{mark}.",
        f"First try: edits needed no second attempt{mark.replace('from ', '')}.",
        f"~ fewer than {answer['minSample']} prompts." if is_marked else "",
    )
    if unpriced := sum(one["turns"] - one["pricedTurns"] for one in answer["coverage"]):
        screen.footnote(f"{counted(unpriced, 'request')} without a price.")
    for one in answer["coverage"]:
        if one.get("harnessTurns"):
            requests = counted(one["harnessTurns"], "request")
            screen.footnote(f"{_name(one['model'], answer['by'])}: the cost of {requests} is the harness's own figure.")
    add_caveats(answer, screen)
    if answer.get("moreModels"):
        screen.note(f"{counted(answer['moreModels'], 'more row')}, each cheaper than these, left out.")


def flat_cells(answer: dict[str, Any]) -> list[dict[str, Any]]:
    flat = []
    for cell in answer["cells"]:
        low, high = cell["oneShotInterval"] or (None, None)
        rest = {name: value for name, value in cell.items() if name != "oneShotInterval"}
        flat.append(rest | {"oneShotLow": low, "oneShotHigh": high})
    return flat
