"""Puts what the daemon knows of prefixes together with the files that are in them: what each file and section cost."""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from burnctl.client import Client
    from burnd.harness.instructions import MemoryFile

_BYTES_PER_TOKEN = 4
_LOOKED_AT = 200


def instruction_files(folder: str, environ: Mapping[str, str]) -> list[MemoryFile]:
    """The files that sessions in a folder begin with, of every product; those that are read when needed last."""
    from importlib import import_module

    from burnd.harness.instructions import InstructionFiles, below
    from burnd.harness.registry import PRODUCTS

    found: list[MemoryFile] = []
    inner = list(below(folder))
    for product in PRODUCTS:
        if product.instructions_module:
            files = InstructionFiles(product.source, follows_imports=product.instructions.follows_imports)
            import_module(product.instructions_module).add(files, folder, inner, environ)
            found += files.files()
    return sorted(found, key=lambda file: not file.in_prefix)


def mcp_servers(folder: str, environ: Mapping[str, str]) -> list[str]:
    """The MCP servers that products are set up with in a folder: every session begins with their tools."""
    from importlib import import_module

    from burnd.harness.registry import PRODUCTS

    modules = [import_module(product.instructions_module) for product in PRODUCTS if product.instructions_module]
    names = [name for module in modules if hasattr(module, "servers") for name in module.servers(folder, environ)]
    return list(dict.fromkeys(names))


def begun_in(client: Client, folder: str) -> str:
    """The folder in which sessions of a project began, for one who stands further down; else the folder itself.

    A project that is called by its name is looked for where its newest sessions began.
    """
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


def priced(answer: Mapping[str, Any], files: Sequence[MemoryFile], servers: Sequence[str]) -> dict[str, Any]:
    """The daemon's answer, with `files` for each harness and what is left of the prefix beside them."""
    called = {one["server"] for one in answer["servers"]}
    sources = [_source(one, _as_logged(one, files)) for one in answer["sources"]]
    unused = [name for name in servers if _as_tools_have_it(name) not in called and name not in called]
    return {**answer, "sources": sources, "neverCalled": unused}


def _as_logged(source: Mapping[str, Any], files: Sequence[MemoryFile]) -> list[MemoryFile]:
    """A harness's files: those in its log with their size in the newest session, the others with today's.

    A logged file whose size has changed since has no sections: those of that time are not known.
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


def _source(source: Mapping[str, Any], files: Sequence[MemoryFile]) -> dict[str, Any]:
    """Files take a share of the prefix by their tokens. Where they are larger than it today, they share all of it."""
    rate, whole = source["usdPerToken"], source["costUsd"]
    in_prefix = sum(_tokens(file.size) for file in files if file.in_prefix)
    median = source["prefix"]["median"]
    fits = min(1.0, median / in_prefix) if in_prefix else 1.0
    rows = [_file(file, rate * fits if rate is not None else None) for file in files]
    told = sum(row["costUsd"] or 0 for row in rows)
    rest = {
        "tokens": max(0, median - in_prefix),
        "costUsd": max(0.0, whole - told) if whole is not None else None,
    }
    return {**source, "files": rows, "rest": rest}


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


def _as_tools_have_it(server: str) -> str:
    """A server's name in the names of its tools: `mcp__my_server__search`."""
    return "".join(char if char.isalnum() or char in "_-" else "_" for char in server)
