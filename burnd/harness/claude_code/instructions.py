"""The instruction files and MCP servers that a session of Claude Code begins with."""

from __future__ import annotations

import json
import os

from burnd.harness.claude_code.product import MANAGED, config_folder, project_folders
from burnd.harness.instructions import markdown_below, read, repository, upwards

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from burnd.harness.instructions import InstructionFiles

_OWN = ("CLAUDE.md", os.path.join(".claude", "CLAUDE.md"))
_LOCAL = "CLAUDE.local.md"
_MEMORY_LINES, _MEMORY_BYTES = 200, 25 * 1024


def add(
    files: InstructionFiles, folder: str, inner: Iterable[tuple[str, set[str]]], environ: Mapping[str, str]
) -> None:
    """Adds the files of the machine's policy, the user, the folder and those above it, its memory, and those below."""
    config = config_folder(environ)
    for policy in MANAGED:
        files.add(os.path.join(policy, "CLAUDE.md"), "managed")
        _add_rules(files, os.path.join(policy, ".claude"), "managed")
    files.add(os.path.join(config, "CLAUDE.md"), "global")
    _add_rules(files, config, "global")
    _add_project(files, [above for above in upwards(folder) if above != os.sep] or [os.sep])
    _add_memory(files, config, folder, environ)
    for where, names in inner:
        if names & {"CLAUDE.md", ".claude", _LOCAL}:
            _add_folder(files, where, "nested")


def _add_project(files: InstructionFiles, folders: Iterable[str]) -> None:
    """Adds the files of these folders; AGENTS.md only if none of them has a CLAUDE.md (since 2.1.277)."""
    has_claude_md = [_add_folder(files, folder, "project") for folder in folders]
    if not any(has_claude_md):
        for folder in folders:
            files.add(os.path.join(folder, "AGENTS.md"), "project")


def _add_folder(files: InstructionFiles, folder: str, how: str) -> bool:
    added = [files.add(os.path.join(folder, name), how) for name in _OWN]
    _add_rules(files, os.path.join(folder, ".claude"), how)
    return any([*added, files.add(os.path.join(folder, _LOCAL), how)])


def _add_rules(files: InstructionFiles, config: str, how: str) -> None:
    """Adds the rules of a configuration folder. One with `paths` is loaded with the files that match them."""
    for path in markdown_below(os.path.join(config, "rules")):
        text = read(os.path.realpath(path))
        files.add(path, "nested" if text is not None and names_paths(text) else how)


def names_paths(text: bytes) -> bool:
    lines = text.splitlines()
    if not lines or lines[0].rstrip() != b"---":
        return False
    matter = lines[1 : next((n for n, line in enumerate(lines) if n and line.rstrip() == b"---"), 1)]
    for n, line in enumerate(matter):
        if line.startswith(b"paths:"):
            has_list = n + 1 < len(matter) and matter[n + 1].lstrip().startswith(b"-")
            return has_list or line[len(b"paths:") :].strip() not in (b"", b"[]", b"null", b"~")
    return False


def _add_memory(files: InstructionFiles, config: str, folder: str, environ: Mapping[str, str]) -> None:
    """Adds the beginning of Claude Code's own notes, which all worktrees of a repository share."""
    for home in (_main_worktree(folder), folder):
        for notes in project_folders(config, home, environ):
            if files.add(os.path.join(notes, "memory", "MEMORY.md"), "memory", only=_beginning):
                return


def _beginning(text: bytes) -> bytes:
    return b"".join(text.splitlines(keepends=True)[:_MEMORY_LINES])[:_MEMORY_BYTES]


def _main_worktree(folder: str) -> str:
    root = repository(folder) or folder
    text = read(os.path.join(root, ".git")) or b""
    where, _, worktree = text.decode("utf-8", "replace").removeprefix("gitdir:").strip().partition("/.git/worktrees/")
    return where if worktree and os.path.isabs(where) else root


def servers(folder: str, environ: Mapping[str, str]) -> list[str]:
    home = os.path.expanduser("~")
    settings = _json(os.path.join(environ.get("CLAUDE_CONFIG_DIR") or home, ".claude.json"))
    names = [*_servers_in(settings)]
    projects = settings.get("projects")
    for above in upwards(folder):
        names += _servers_in(_json(os.path.join(above, ".mcp.json")))
        if isinstance(projects, dict) and isinstance(projects.get(above), dict):
            names += _servers_in(projects[above])
    return sorted(set(names))


def _servers_in(settings: Mapping[str, object]) -> list[str]:
    servers = settings.get("mcpServers")
    return [str(name) for name in servers] if isinstance(servers, dict) else []


def _json(path: str) -> dict[str, object]:
    text = read(path)
    try:
        value = json.loads(text) if text else {}
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}
