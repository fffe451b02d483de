"""How standing instructions look: what sessions began with, and what each file and section of that cost."""

from __future__ import annotations

import os

from burnctl.render.caveats import API_PRICES, price_caveats
from burnctl.render.names import tilde
from burnctl.render.numbers import counted, money, number, percent
from burnctl.render.paragraphs import wrapped
from burnctl.render.tables import Column, table
from burnctl.render.text import clean

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Any

    from burnctl.render.screen import Screen

_HOW = {
    "managed": "policy",
    "global": "yours",
    "project": "project",
    "import": "imported",
    "memory": "its notes",
    "nested": "when needed",
}
_SECTIONS = 8


def shown(told: Mapping[str, Any], folder: str, asked: str, screen: Screen) -> str:
    """All of it, for a person; nothing where no session matches. `folder` is the one sessions of `asked` began in."""
    if not told["sources"]:
        return ""
    lines = []
    if folder != asked and os.path.isabs(asked):
        elsewhere = f"No session began in {tilde(asked)}; these began in {tilde(folder)}."
        lines += [*wrapped(clean(elsewhere), screen.width), ""]
    for source in told["sources"]:
        lines += [*_source(source, told["totals"]["costUsd"], folder, screen), ""]
    notes = [line for note in _notes(told) for line in wrapped(clean(note), screen.width)]
    return "\n".join([*lines, *notes])


def _source(source: Mapping[str, Any], bill: float | None, folder: str, screen: Screen) -> Iterator[str]:
    sizes, cost = source["prefix"], source["costUsd"]
    share = f", {percent(cost / bill)} of all that was spent" if cost is not None and bill else ""
    sessions = counted(source["sessions"], "session")
    span = (
        f" (from {number(sizes['smallest'])} to {number(sizes['largest'])})"
        if number(sizes["smallest"]) != number(sizes["largest"])
        else ""
    )
    said = (
        f"{source['source']}: {sessions} began with {number(sizes['median'])} tokens{span}, which were paid for in "
        f"{source['rides']:,} requests: {money(cost)}{share}"
    )
    for line in wrapped(clean(said), screen.width):
        yield screen.paint(line, "bold")
    yield ""
    columns = [
        Column("file and section", least=20, where="middle"),
        Column("read", drop=1, style="dim"),
        Column("tokens", "right"),
        Column("cost", "right"),
        Column("share", "right", drop=2),
    ]
    rows: list[list[object]] = []
    for file in source["files"]:
        rows += _rows(file, cost, folder)
    rest = source["rest"]
    everything = "system prompt and tools" if source["files"] else "all of it"
    rows.append([everything, "", number(rest["tokens"]), *_paid(rest["costUsd"], cost)])
    footer = ["total", "", number(sizes["median"]), *_paid(cost, cost)]
    yield table(columns, rows, screen, footer=footer)


def _rows(file: Mapping[str, Any], whole: float | None, folder: str) -> Iterator[list[object]]:
    yield [
        (_place(file["path"], folder), "cyan"),
        _HOW[file["how"]],
        number(file["tokens"]),
        *_paid(file["costUsd"], whole),
    ]
    sections = file["sections"]
    if len(sections) < 2:
        return
    largest = sorted(range(len(sections)), key=lambda n: -sections[n]["tokens"])[:_SECTIONS]
    for n in sorted(largest):
        section = sections[n]
        heading = section["heading"] or "(before the first heading)"
        yield [(f"  {heading}", "", "end"), "", number(section["tokens"]), *_paid(section["costUsd"], whole)]
    if len(sections) > _SECTIONS:
        others = [section for n, section in enumerate(sections) if n not in largest]
        cost = sum(section["costUsd"] for section in others) if others[0]["costUsd"] is not None else None
        tokens = number(sum(section["tokens"] for section in others))
        yield [f"  {len(others):,} smaller sections", "", tokens, *_paid(cost, whole)]


def _paid(cost: float | None, whole: float | None) -> list[str]:
    return [money(cost), percent(cost / whole) if cost is not None and whole else ""]


def _place(path: str, folder: str) -> str:
    real = os.path.abspath(path)
    if real.startswith(folder.rstrip("/") + "/"):
        return real[len(folder.rstrip("/")) + 1 :]
    return tilde(real)


def _notes(told: Mapping[str, Any]) -> Iterator[str]:
    if told["folder"] is None and not any(source["files"] for source in told["sources"]):
        yield "The project's folder is not on this machine: what its files cost is with the system prompt and tools."
    if told["neverCalled"]:
        names = ", ".join(told["neverCalled"][:8]) + (" ..." if len(told["neverCalled"]) > 8 else "")
        yield f"MCP servers never called in these sessions, though every one began with their tools: {names}."
    yield (
        "Files are sized as the newest session logged them, else as they are today, at four bytes a token. What "
        f"subagents began with is not in it. {API_PRICES}"
    )
    yield from price_caveats(told)
