"""The standing instruction files of a folder, as the harnesses would read them now: found, imported, cut in sections.

The person's own files are read by the person's own command, and never by the daemon.
"""

from __future__ import annotations

import os

from burnctl.claude_folder import config_folder

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_LARGEST = 4 << 20
_IMPORTS_DEEP = 5
_MOST_FOLDERS, _DEEPEST = 20_000, 64
_SKIPPED = {"node_modules", "vendor", "target", "dist", "build", "__pycache__", "venv"}
CLAUDE, OPENCODE, CODEX = "claude-code", "opencode", "codex"


class MemoryFile:
    """A file, what it is for, and how it comes into the context.

    `how` is global, project, nested or import; a nested one is only read when work is done below its folder, and is
    not in the prefix. `sections` are (heading, bytes), what stands before the first heading under an empty one.
    """

    __slots__ = ("how", "path", "sections", "size", "source")

    def __init__(self, path: str, source: str, how: str, text: bytes) -> None:
        self.path, self.source, self.how = path, source, how
        self.size = len(text)
        self.sections = list(sections(text))

    @property
    def in_prefix(self) -> bool:
        return self.how != "nested"


def find(folder: str, environ: Mapping[str, str]) -> list[MemoryFile]:
    """All of them that are there, for every harness, in the order in which they are read."""
    found = _Finding()
    home = os.path.expanduser("~")
    for path in ("/etc/claude-code/CLAUDE.md", os.path.join(config_folder(environ), "CLAUDE.md")):
        found.add(path, CLAUDE, "global")
    for above in _upwards(folder):
        for name in ("CLAUDE.md", os.path.join(".claude", "CLAUDE.md"), "CLAUDE.local.md"):
            found.add(os.path.join(above, name), CLAUDE, "project")
    config = environ.get("XDG_CONFIG_HOME") or os.path.join(home, ".config")
    found.add(os.path.join(config, "opencode", "AGENTS.md"), OPENCODE, "global")
    _add_agents(found, folder)
    _add_codex(found, folder, environ.get("CODEX_HOME") or os.path.join(home, ".codex"))
    for path in _below(folder, "CLAUDE.md"):
        found.add(path, CLAUDE, "nested")
    for path in _below(folder, "AGENTS.md"):
        found.add(path, OPENCODE, "nested")
    return found.files


def _add_agents(found: _Finding, folder: str) -> None:
    """opencode takes the nearest AGENTS.md, and where there is none the nearest CLAUDE.md."""
    for name in ("AGENTS.md", "CLAUDE.md"):
        for above in reversed(_upwards(folder)):
            if found.add(os.path.join(above, name), OPENCODE, "project"):
                return


def _add_codex(found: _Finding, folder: str, own: str) -> None:
    """Codex takes its own, then one of each folder from the repository's down to this one."""
    for where, how in ((own, "global"), *((above, "project") for above in _in_repository(folder))):
        for name in ("AGENTS.override.md", "AGENTS.md"):
            if found.add(os.path.join(where, name), CODEX, how):
                break


def _in_repository(folder: str) -> list[str]:
    """The folders from the repository's down to this one; only this one where there is no repository."""
    folders = _upwards(folder)
    roots = [n for n, above in enumerate(folders) if os.path.exists(os.path.join(above, ".git"))]
    return folders[roots[-1] :] if roots else folders[-1:]


def _upwards(folder: str) -> list[str]:
    """The folder and those above it, the highest first."""
    folders = [os.path.abspath(folder)]
    while (above := os.path.dirname(folders[-1])) != folders[-1]:
        folders.append(above)
    return folders[::-1]


def _below(folder: str, name: str) -> Iterator[str]:
    """Where a file of this name stands further down. `os.walk` would go down as far as Python's stack does."""
    waiting, seen = [(folder, 0)], 0
    while waiting and seen < _MOST_FOLDERS:
        where, deep = waiting.pop()
        seen += 1
        try:
            with os.scandir(where) as listed:
                entries = sorted(listed, key=lambda entry: entry.name, reverse=True)
        except OSError:
            continue
        for entry in entries:
            if entry.name == name and where != folder:
                yield entry.path
            elif deep < _DEEPEST and _is_looked_into(entry):
                waiting.append((entry.path, deep + 1))


def _is_looked_into(entry: os.DirEntry[str]) -> bool:
    return entry.name not in _SKIPPED and not entry.name.startswith(".") and entry.is_dir(follow_symlinks=False)


class _Finding:
    """Files, each once for a harness, with what they import behind them."""

    def __init__(self) -> None:
        self.files: list[MemoryFile] = []
        self._known: set[tuple[str, str]] = set()

    def add(self, path: str, source: str, how: str, deep: int = 0) -> bool:
        real = os.path.realpath(path)
        if (real, source) in self._known:
            return False
        text = _read(real)
        if text is None:
            return False
        self._known.add((real, source))
        self.files.append(MemoryFile(path, source, how, text))
        if source == CLAUDE and deep < _IMPORTS_DEEP:
            for name in imports(text):
                named = os.path.expanduser(name)
                where = os.path.join(os.path.dirname(real), named)
                self.add(where, source, "nested" if how == "nested" else "import", deep + 1)
        return True


def _read(path: str) -> bytes | None:
    """A plain file's text; None for what is none, or is larger than any instruction could be."""
    try:
        if not os.path.isfile(path) or os.path.getsize(path) > _LARGEST:
            return None
        with open(path, "rb") as file:
            return file.read(_LARGEST)
    except (OSError, ValueError):
        return None


def imports(text: bytes) -> Iterator[str]:
    """The files that `@path` names, outside of code."""
    import re

    for line in _outside_code(text):
        plain = re.sub(r"`[^`]*`", "", line)
        for name in re.findall(r"(?<!\S)@([^\s\0`'\"<>|]+)", plain):
            yield name.rstrip(".,;:!?)")


def sections(text: bytes) -> Iterator[tuple[str, int]]:
    """Headings with the bytes that stand below each; those of the first two levels begin a section."""
    heading, size = "", 0
    code = False
    for line in text.splitlines(keepends=True):
        stripped = line.lstrip()
        if stripped.startswith((b"```", b"~~~")):
            code = not code
        if not code and stripped.startswith((b"# ", b"## ")):
            if size:
                yield heading, size
            heading, size = stripped.lstrip(b"#").strip().decode("utf-8", "replace"), 0
        size += len(line)
    if size:
        yield heading, size


def _outside_code(text: bytes) -> Iterator[str]:
    code = False
    for line in text.decode("utf-8", "replace").splitlines():
        if line.lstrip().startswith(("```", "~~~")):
            code = not code
        elif not code:
            yield line


def servers(folder: str, environ: Mapping[str, str]) -> list[str]:
    """The MCP servers that Claude Code is set up with in this folder."""
    home = os.path.expanduser("~")
    settings = _json(os.path.join(environ.get("CLAUDE_CONFIG_DIR") or home, ".claude.json"))
    found = [*_named(settings)]
    projects = settings.get("projects")
    for above in _upwards(folder):
        found += _named(_json(os.path.join(above, ".mcp.json")))
        if isinstance(projects, dict) and isinstance(projects.get(above), dict):
            found += _named(projects[above])
    return sorted(set(found))


def _named(settings: Mapping[str, object]) -> list[str]:
    named = settings.get("mcpServers")
    return [str(name) for name in named] if isinstance(named, dict) else []


def _json(path: str) -> dict[str, object]:
    import json

    text = _read(path)
    try:
        value = json.loads(text) if text else {}
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}
