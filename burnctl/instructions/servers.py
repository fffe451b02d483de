"""The MCP servers that Claude Code is set up with in a folder: every session begins with their tools."""

from __future__ import annotations

import os

from burnctl.instructions.files import read
from burnctl.instructions.folders import upwards

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping


def servers(folder: str, environ: Mapping[str, str]) -> list[str]:
    """Their names, one's own and the project's."""
    home = os.path.expanduser("~")
    settings = _json(os.path.join(environ.get("CLAUDE_CONFIG_DIR") or home, ".claude.json"))
    found = [*_named(settings)]
    projects = settings.get("projects")
    for above in upwards(folder):
        found += _named(_json(os.path.join(above, ".mcp.json")))
        if isinstance(projects, dict) and isinstance(projects.get(above), dict):
            found += _named(projects[above])
    return sorted(set(found))


def _named(settings: Mapping[str, object]) -> list[str]:
    named = settings.get("mcpServers")
    return [str(name) for name in named] if isinstance(named, dict) else []


def _json(path: str) -> dict[str, object]:
    import json

    text = read(path)
    try:
        value = json.loads(text) if text else {}
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}
