"""`burnctl overhead`: what sessions start with, and what each file and section of that cost."""

from __future__ import annotations

import os

from burnctl import flags
from burnctl.progress_line import ProgressLine
from burnctl.render.names import harness_name, tilde
from burnctl.render.notes import add_caveats
from burnctl.render.numbers import counted, money, number, percent
from burnctl.render.paragraphs import wrapped
from burnctl.render.tables import Column, table
from burnctl.render.text import clean
from burnctl.starting import reach
from burnd.contract.reports import OverheadParams

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Mapping
    from typing import Any

    from burnctl.render.screen import Screen

HELP = (
    "shows what the instructions of a project cost, which are sent again in every request: files such as CLAUDE.md and "
    "AGENTS.md (yours, the project's, what they import), rules and the harness's own notes, by file and section, as a "
    "share of what the project's sessions start with. Files in folders below and rules for some paths, which are only "
    "read when needed, have no cost. Files that the log lists have their size at the start of the newest session, "
    "others their size today. MCP servers that were never called are listed, too"
)
EXAMPLES = ("burnctl overhead", "burnctl overhead --project ~/code/shop --since 30d")
_HOW = {
    "managed": "policy",
    "global": "yours",
    "project": "project",
    "import": "imported",
    "memory": "memory",
    "nested": "when needed",
}
_SECTIONS = 8


def add_arguments(parser: argparse.ArgumentParser) -> None:
    flags.add(parser, OverheadParams, only=("project", "since", "until"), usual={"project": "."})
    parser.set_defaults(project=os.getcwd())
    flags.report(parser)


def run(options: argparse.Namespace) -> int:
    from burnctl.output import present
    from burnctl.overhead import begun_in, instruction_files, mcp_servers, priced

    client = reach(options)
    asked = options.project
    folder = begun_in(client, asked)
    with ProgressLine("looking") as client.progress:
        project = folder if os.path.isabs(asked) else asked
        answer = flags.ask(client, OverheadParams, options, project=project)
    is_path = os.path.isabs(folder)  # one's own files are read wherever one works, though the folder is gone
    files, servers = (instruction_files(folder, os.environ), mcp_servers(folder, os.environ)) if is_path else ([], [])
    report = priced(answer, files, servers) | {"folder": folder if os.path.isdir(folder) else None}
    return present(
        options,
        report,
        lambda found, screen: draw(found, folder, asked, screen),
        client=client,
        empty=f"No sessions of {clean(asked)}",
    )


def draw(report: Mapping[str, Any], folder: str, asked: str, screen: Screen) -> str:
    """The report as text; empty if no session matches. `folder` is the one that sessions of `asked` started in."""
    if not report["sources"]:
        return ""
    lines = []
    if folder != asked and os.path.isabs(asked):
        elsewhere = f"No session started in {tilde(asked)}; these started in {tilde(folder)}."
        lines += [*wrapped(clean(elsewhere), screen.width), ""]
    for source in report["sources"]:
        lines += [*_source(source, report["totals"]["costUsd"], folder, screen), ""]
    if report["neverCalled"]:
        names = ", ".join(report["neverCalled"][:8]) + (" ..." if len(report["neverCalled"]) > 8 else "")
        unused = f"MCP servers whose tools every session starts with, but which were never called: {names}."
        lines += wrapped(clean(unused), screen.width)
    _add_notes(report, screen)
    return "\n".join(lines).rstrip()


def _source(source: Mapping[str, Any], bill: float | None, folder: str, screen: Screen) -> Iterator[str]:
    sizes, cost = source["prefix"], source["costUsd"]
    share = f", {percent(cost / bill)} of the bill" if cost is not None and bill else ""
    sessions = counted(source["sessions"], "session")
    span = (
        f" (from {number(sizes['smallest'])} to {number(sizes['largest'])})"
        if number(sizes["smallest"]) != number(sizes["largest"])
        else ""
    )
    headline = (
        f"{harness_name(source['source'])}: {sessions} started with {number(sizes['median'])} tokens{span}, sent in "
        f"{counted(source['rides'], 'request')}: {money(cost)}{share}"
    )
    for line in wrapped(clean(headline), screen.width):
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


def _add_notes(report: Mapping[str, Any], screen: Screen) -> None:
    if report["folder"] is None and not any(source["files"] for source in report["sources"]):
        screen.footnote("The project's folder is not on this machine: its files are in the system prompt and tools.")
    screen.note("Files have the size that the newest session logged, else their size today, at four bytes a token.")
    screen.note("Without what subagents started with.")
    add_caveats(report, screen)
