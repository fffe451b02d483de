"""Kinds of tools (edit, shell, read, ...) by their names, and folders of generated files."""

from __future__ import annotations

from typing import Final, Literal, get_args

from burnd.harness.registry import PRODUCTS

Kind = Literal["edit", "shell", "delegate", "plan_exit", "read", "search", "web", "todo", "skill", "mcp", "other"]

KINDS: Final[tuple[Kind, ...]] = get_args(Kind)

_KIND_OF: Final[dict[str, Kind]] = {
    name: kind for product in PRODUCTS for kind in KINDS for name in product.tools.get(kind, "").split()
}
_MCP_PREFIX: Final = "mcp__"
_AGENT_TOOLS: Final = frozenset(name for product in PRODUCTS for name in product.agent_tools)
_WHOLE_FILE_TOOLS: Final = frozenset(name for product in PRODUCTS for name in product.whole_file_tools)


def kind(name: str) -> Kind:
    """Names are exact: `Edit` and `edit` are tools of two products, `EDIT` is of none."""
    return _KIND_OF.get(name) or ("mcp" if mcp_server(name) is not None else "other")


def delegates(name: str) -> bool:
    """Starts an agent or controls a running one."""
    return kind(name) == "delegate" or name in _AGENT_TOOLS


def writes_whole(name: str) -> bool:
    return name in _WHOLE_FILE_TOOLS


def mcp_server(name: str) -> str | None:
    """The server in `mcp__server__tool`."""
    if not name.startswith(_MCP_PREFIX):
        return None
    server, separator, tool = name[len(_MCP_PREFIX) :].partition("__")
    return server if server and separator and tool else None


_GENERATED: Final = frozenset(
    (
        *(".cache", ".git", ".next", ".nuxt", ".tox", ".venv", "__pycache__", "build", "coverage", "dist"),
        *("node_modules", "site-packages", "venv"),
    )
)


def generated_folder(path: str) -> str | None:
    """The outermost folder of generated or installed files."""
    parts = path.split("/")
    at = next((n for n, part in enumerate(parts[:-1]) if part in _GENERATED), None)
    return "/".join(parts[: at + 1]) if at is not None else None
