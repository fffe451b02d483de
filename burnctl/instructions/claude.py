"""What Claude Code reads at its start, and what it reads only when it works somewhere."""

from __future__ import annotations

import os

from burnctl.claude_folder import config_folder, project_folders
from burnctl.instructions.files import CLAUDE, markdown_below, read
from burnctl.instructions.folders import repository, upwards

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from burnctl.instructions.files import Found

MANAGED = ("/etc/claude-code", "/Library/Application Support/ClaudeCode")
_OWN = ("CLAUDE.md", os.path.join(".claude", "CLAUDE.md"))
_LOCAL = "CLAUDE.local.md"
_MEMORY_LINES, _MEMORY_BYTES = 200, 25 * 1024


def add(found: Found, folder: str, inner: Iterable[tuple[str, set[str]]], environ: Mapping[str, str]) -> None:
    """A machine's policy, one's own files, those of the folder and above it, its memory, those of folders below."""
    config = config_folder(environ)
    for policy in MANAGED:
        found.add(os.path.join(policy, "CLAUDE.md"), CLAUDE, "managed")
        _add_rules(found, os.path.join(policy, ".claude"), "managed")
    found.add(os.path.join(config, "CLAUDE.md"), CLAUDE, "global")
    _add_rules(found, config, "global")
    _add_project(found, [above for above in upwards(folder) if above != os.sep] or [os.sep])
    _add_memory(found, config, folder, environ)
    for where, names in inner:
        if names & {"CLAUDE.md", ".claude", _LOCAL}:
            _add_folder(found, where, "nested")


def _add_project(found: Found, folders: Iterable[str]) -> None:
    """Where no folder has a CLAUDE.md, AGENTS.md takes its place (since 2.1.277)."""
    have = [_add_folder(found, folder, "project") for folder in folders]
    if not any(have):
        for folder in folders:
            found.add(os.path.join(folder, "AGENTS.md"), CLAUDE, "project")


def _add_folder(found: Found, folder: str, how: str) -> bool:
    """Whether it has a CLAUDE.md of any kind; rules are none."""
    there = [found.add(os.path.join(folder, name), CLAUDE, how) for name in _OWN]
    _add_rules(found, os.path.join(folder, ".claude"), how)
    return any([*there, found.add(os.path.join(folder, _LOCAL), CLAUDE, how)])


def _add_rules(found: Found, config: str, how: str) -> None:
    """A rule that names paths is read when a file of them is."""
    for path in markdown_below(os.path.join(config, "rules")):
        text = read(os.path.realpath(path))
        found.add(path, CLAUDE, "nested" if text is not None and names_paths(text) else how)


def names_paths(text: bytes) -> bool:
    """Whether a rule's front matter has `paths`, with anything in it."""
    lines = text.splitlines()
    if not lines or lines[0].rstrip() != b"---":
        return False
    matter = lines[1 : next((n for n, line in enumerate(lines) if n and line.rstrip() == b"---"), 1)]
    for n, line in enumerate(matter):
        if line.startswith(b"paths:"):
            listed = n + 1 < len(matter) and matter[n + 1].lstrip().startswith(b"-")
            return listed or line[len(b"paths:") :].strip() not in (b"", b"[]", b"null", b"~")
    return False


def _add_memory(found: Found, config: str, folder: str, environ: Mapping[str, str]) -> None:
    """What Claude Code wrote down for itself, one memory for all worktrees of a repository; its beginning is read."""
    for home in (_main_worktree(folder), folder):
        for kept in project_folders(config, home, environ):
            if found.add(os.path.join(kept, "memory", "MEMORY.md"), CLAUDE, "memory", only=_beginning):
                return


def _beginning(text: bytes) -> bytes:
    return b"".join(text.splitlines(keepends=True)[:_MEMORY_LINES])[:_MEMORY_BYTES]


def _main_worktree(folder: str) -> str:
    """The folder of the repository; of the one that this is a worktree of, where `.git` is a file that says so."""
    root = repository(folder) or folder
    text = read(os.path.join(root, ".git")) or b""
    where, _, worktree = text.decode("utf-8", "replace").removeprefix("gitdir:").strip().partition("/.git/worktrees/")
    return where if worktree and os.path.isabs(where) else root
