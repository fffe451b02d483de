"""`burnctl overhead`: what sessions start with, and what each file and section costs."""

from __future__ import annotations

import os

from burnctl import flags
from burnctl.daemon import reach
from burnctl.output import present
from burnctl.progress import ProgressLine
from burnctl.render.names import harness_name, tilde
from burnctl.render.notes import add_caveats
from burnctl.render.numbers import counted, money, number, percent
from burnctl.render.tables import Column, table
from burnctl.render.text import clean
from burnd.contract.reports import OverheadParams
from burnd.paths import working_folder

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Mapping, Sequence
    from typing import Any

    from burnctl.client import Client
    from burnctl.render.screen import Screen
    from burnd.harness.instructions import MemoryFile

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
    parser.set_defaults(project=working_folder() or ".")
    flags.report(parser)


def run(options: argparse.Namespace) -> int:
    client = reach(options)
    name = options.project
    folder = begun_in(client, name)
    with ProgressLine("looking") as client.progress:
        project = folder if os.path.isabs(name) else name
        answer = flags.ask(client, OverheadParams, options, project=project)
    is_path = os.path.isabs(folder)  # true for a deleted folder too
    files, servers = (instruction_files(folder, os.environ), mcp_servers(folder, os.environ)) if is_path else ([], [])
    report = priced(answer, files, servers) | {"folder": folder if os.path.isdir(folder) else None}
    return present(
        options,
        report,
        lambda found, screen: draw(found, folder, name, screen),
        client=client,
        empty=f"No sessions of {clean(name)}",
    )


def draw(report: Mapping[str, Any], folder: str, asked: str, screen: Screen) -> str:
    """The report as text. `folder` is the one that sessions of `asked` started in."""
    if not report["sources"]:
        if os.path.isabs(asked):
            screen.hint("other projects: burnctl projects, burnctl overhead --project NAME")
        return ""
    lines = []
    if folder != asked and os.path.isabs(asked):
        elsewhere = f"No session started in {tilde(asked)}; these started in {tilde(folder)}."
        lines += [screen.paragraph(elsewhere), ""]
    for source in report["sources"]:
        lines += [*_draw_source(source, report["totals"]["costUsd"], folder, screen), ""]
    if report["neverCalled"]:
        names = ", ".join(report["neverCalled"][:8]) + (" ..." if len(report["neverCalled"]) > 8 else "")
        unused = f"MCP servers whose tools every session starts with, but which were never called: {names}."
        lines.append(screen.paragraph(unused))
    if report["folder"] is None and not any(source["files"] for source in report["sources"]):
        screen.footnote("The project's folder is not on this machine: its files are in the system prompt and tools.")
    screen.note("Files have the size that the newest session logged, else their size today, at four bytes a token.")
    screen.note("Subagents are not included.")
    add_caveats(report, screen)
    return "\n".join(lines).rstrip()


def _draw_source(source: Mapping[str, Any], bill: float | None, folder: str, screen: Screen) -> Iterator[str]:
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
    yield screen.paragraph(headline, "bold")
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
    footer = ["total", "", number(sizes["median"]), money(cost), ""]
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


_BYTES_PER_TOKEN = 4
_LOOKED_AT = 200


def instruction_files(folder: str, environ: Mapping[str, str]) -> list[MemoryFile]:
    """The instruction files of all products for a folder, those read on demand last."""
    from importlib import import_module

    from burnd.harness.instructions import InstructionFiles, below
    from burnd.harness.registry import PRODUCTS

    files_found: list[MemoryFile] = []
    inner = list(below(folder))
    for product in PRODUCTS:
        if product.instructions_module:
            files = InstructionFiles(product.source, follows_imports=product.instructions.follows_imports)
            import_module(product.instructions_module).add(files, folder, inner, environ)
            files_found += files.files()
    return sorted(files_found, key=lambda file: not file.in_prefix)


def mcp_servers(folder: str, environ: Mapping[str, str]) -> list[str]:
    """The MCP servers set up for a folder; sessions begin with their tools."""
    from importlib import import_module

    from burnd.harness.registry import PRODUCTS

    modules = [import_module(product.instructions_module) for product in PRODUCTS if product.instructions_module]
    names = [name for module in modules if hasattr(module, "servers") for name in module.servers(folder, environ)]
    return list(dict.fromkeys(names))


def begun_in(client: Client, folder: str) -> str:
    """The folder above this one in which sessions of a project started; else the folder itself. A project name is
    looked up."""
    rows = client.sessions_list(project=folder, limit=_LOOKED_AT)["sessions"]
    if not os.path.isabs(folder):
        return next((row["project"] for row in rows if row["project"] and os.path.isdir(row["project"])), folder)
    began = {row["project"] for row in rows}
    if any(_is_in(one, folder) for one in began if one):
        return folder
    began = began or {row["key"] for row in client.summary(by="project")["rows"]}
    above = [one for one in began if one and os.path.isabs(one) and _is_in(folder, one)]
    return max(above, key=len, default=folder)


def _is_in(folder: str, other: str) -> bool:
    return folder == other or folder.startswith(other.rstrip("/") + "/")


def priced(answer: dict[str, Any], files: Sequence[MemoryFile], servers: Sequence[str]) -> dict[str, Any]:
    """The daemon's answer, with `files` for each harness and the rest of the prefix."""
    called = {one["server"] for one in answer["servers"]}
    sources = [_priced_source(one, _as_logged(one, files)) for one in answer["sources"]]
    unused = [
        name
        for name in servers
        if "".join(char if char.isalnum() or char in "_-" else "_" for char in name) not in called
        and name not in called
    ]
    return answer | {"sources": sources, "neverCalled": unused}


def _as_logged(source: Mapping[str, Any], files: Sequence[MemoryFile]) -> list[MemoryFile]:
    """A harness's files: logged ones with their size in the newest session, the others with today's.

    A logged file whose size has changed since has no sections.
    """
    from burnd.harness.instructions import MemoryFile

    now = [file for file in files if file.source == source["source"]]
    by_path = {os.path.realpath(file.path): file for file in now}
    logged = []
    for one in source.get("instructions", ()):
        file = by_path.pop(os.path.realpath(one["path"]), None)
        how = file.how if file is not None and file.in_prefix else "project"
        is_same = file is not None and file.size == one["bytes"]
        sections = file.sections if file is not None and is_same else []
        logged.append(MemoryFile(one["path"], source["source"], how, one["bytes"], sections, logged=True))
    return [*logged, *(file for file in now if file in by_path.values())]


def _priced_source(source: dict[str, Any], files: Sequence[MemoryFile]) -> dict[str, Any]:
    """Divides the prefix among files by their tokens; they share all of it if they are larger."""
    rate, whole = source["usdPerToken"], source["costUsd"]
    in_prefix = sum(_tokens(file.size) for file in files if file.in_prefix)
    median = source["prefix"]["median"]
    fits = min(1.0, median / in_prefix) if in_prefix else 1.0
    rows = [_file(file, rate * fits if rate is not None else None) for file in files]
    files_cost = sum(row["costUsd"] or 0 for row in rows)
    rest = {
        "tokens": max(0, median - in_prefix),
        "costUsd": max(0.0, whole - files_cost) if whole is not None else None,
    }
    return source | {"files": rows, "rest": rest}


def _file(file: MemoryFile, rate: float | None) -> dict[str, Any]:
    own = rate if file.in_prefix else None
    tokens = _tokens(file.size)
    return {
        "path": file.path,
        "how": file.how,
        "bytes": file.size,
        "logged": file.logged,
        "tokens": tokens,
        "costUsd": own * tokens if own is not None else None,
        "sections": [
            {"heading": heading, "tokens": size / _BYTES_PER_TOKEN,
             "costUsd": own * size / _BYTES_PER_TOKEN if own is not None else None}
            for heading, size in file.sections
        ],
    }  # fmt: skip


def _tokens(size: int) -> float:
    return size / _BYTES_PER_TOKEN
