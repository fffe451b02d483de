"""How a comparison looks: for each kind of work a block of rows, one for each model that did it."""

from __future__ import annotations

from burnctl.render.caveats import NO_NAME, price_caveats
from burnctl.render.numbers import NOTHING, counted, money, number, percent, roughly
from burnctl.render.paragraphs import dimmed, wrapped
from burnctl.render.tables import Column, table
from burnctl.render.text import clean

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from burnctl.render.screen import Screen

_FEW = 4  # so many are shown side by side even where one has nothing to show


def shown(answer: dict[str, Any], screen: Screen) -> str:
    """All of it, for a person; nothing where no turn matches."""
    cells = [cell for cell in answer["cells"] if not cell["noData"]]
    if not cells:
        return ""
    drawn, left_out = _table(answer, cells, screen)
    parts = [drawn]
    if "whatIf" in answer:
        parts.append("\n".join(wrapped(clean(_what_if(answer["whatIf"])), screen.width)))
    told = [*([f"Not wide enough for: {', '.join(left_out)}."] if left_out else []), *_notes(answer, cells)]
    notes = [line for note in told for line in wrapped(clean(note), screen.width)]
    last = "One-shot: prompts with edits that needed no second try. Costs are at API prices."
    notes.append(dimmed(last, screen))
    return "\n\n".join([*parts, "\n".join(notes)])


def _table(answer: dict[str, Any], cells: list[dict[str, Any]], screen: Screen) -> tuple[str, list[str]]:
    """The table, and the titles of columns that there is no room for."""
    with_quota = any(cell["quotaShare"] is not None for cell in cells)
    with_what_if = "whatIf" in answer
    columns = [
        Column("activity"),
        Column(answer["by"].removeprefix("tag:"), least=18, where="start"),
        Column("turns", "right"),
        Column("per turn", "right"),
        *([Column("what if", "right")] if with_what_if else []),
        Column("one-shot", "right", drop=1),
        Column("95% CI", "right", drop=4),
        Column("retries", "right", drop=5),
        Column("cached", "right", drop=2),
        *([Column("quota", "right", drop=3)] if with_quota else []),
    ]
    rows: list[list[object]] = []
    by_place = {(cell["category"], cell["model"]): cell for cell in answer["cells"]}
    are_few = len(answer["models"]) <= _FEW
    for category in answer["categories"]:
        title = category
        for model in answer["models"]:
            cell = by_place[category, model]
            if cell["noData"] and not are_few:
                continue
            rows.append(_row(title, model, cell, with_quota=with_quota, with_what_if=with_what_if))
            title = ""
    drawn = table(columns, rows, screen)
    head = drawn.partition("\n")[0]
    return drawn, [column.title for column in columns if column.title not in head]


def _row(title: str, model: str | None, cell: dict[str, Any], *, with_quota: bool, with_what_if: bool) -> list[object]:
    few = "~" if cell["insufficientSample"] else ""
    few_prompts = "~" if cell["insufficientPrompts"] else ""
    first_try, interval = cell["oneShotPromptRate"], cell["oneShotInterval"]
    retries = cell["medianRetries"]
    return [
        title,
        _name(model),
        NOTHING if cell["noData"] else few + number(cell["turns"]),
        money(cell["costPerTurn"]),
        *([money(cell["whatIfCostPerTurn"])] if with_what_if else []),
        few_prompts + percent(first_try) if first_try is not None else NOTHING,
        f"{interval[0] * 100:.0f}-{interval[1] * 100:.0f}%" if interval is not None else NOTHING,
        f"{retries:g}" if retries is not None else NOTHING,
        percent(cell["cacheHitRate"]),
        *([percent(cell["quotaShare"])] if with_quota else []),
    ]


def _what_if(told: dict[str, Any]) -> str:
    parts = []
    if told["actualUsd"] is not None:
        what = "What has a price" if told["unpricedTurns"] else "All of it"
        parts.append(f"{what} as {told['model']}: {money(told['costUsd'])} instead of {money(told['actualUsd'])}")
    if told["unpricedTurns"]:
        turns = counted(told["unpricedTurns"], "turn")
        parts.append(f"{turns} without a price as {told['model']}: {money(told['unpricedCostUsd'])}")
    return f"{'; '.join(parts)} ({told['note']})."


def _name(model: str | None) -> str:
    return model or NO_NAME


def _notes(answer: dict[str, Any], cells: list[dict[str, Any]]) -> list[str]:
    notes = []
    if any(cell["insufficientSample"] or cell["insufficientPrompts"] for cell in cells):
        notes.append(f"~ rests on fewer than {answer['minSample']} turns or prompts.")
    if answer.get("moreModels"):
        notes.append(f"{answer['moreModels']:,} more are not shown, each of them cheaper than these.")
    if len(answer["models"]) > _FEW and any(cell["noData"] for cell in answer["cells"]):
        notes.append("Who has no turns of an activity has no row there.")
    notes += _lone_notes(answer)
    for one in answer["coverage"]:
        if not one["turns"]:
            notes.append(f"{_name(one['model'])}: no turns.")
            continue
        turns = roughly(one["turns"], "turn")
        kinds = "1 activity" if one["categories"] == 1 else f"{one['categories']} activities"
        told = f"{_name(one['model'])}: {turns} in {kinds}, "
        told += f"{one['sufficientCategories']} of them with enough to judge by"
        if one["pricedTurns"] < one["turns"]:
            told += f"; {number(one['turns'] - one['pricedTurns'])} without a price"
        if one.get("harnessTurns"):
            told += f"; {number(one['harnessTurns'])} at the harness's own figure"
        notes.append(told + ".")
    return notes + price_caveats(answer)


def _lone_notes(answer: dict[str, Any]) -> list[str]:
    """A line for each activity in which only one of several models has data; one line if there is a single model."""
    if len(answer["models"]) == 1:
        return [f"Only {_name(answer['models'][0])} has data, so there is nothing to compare it with."]
    return [f"{note['category']}: only {_name(note['model'])} has data." for note in answer["notes"]]


def flat_cells(answer: dict[str, Any]) -> list[dict[str, Any]]:
    """The cells with one value a column, for a spreadsheet."""
    flat = []
    for cell in answer["cells"]:
        low, high = cell["oneShotInterval"] or (None, None)
        rest = {name: value for name, value in cell.items() if name != "oneShotInterval"}
        flat.append(rest | {"oneShotLow": low, "oneShotHigh": high})
    return flat
