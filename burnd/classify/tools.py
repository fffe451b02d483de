"""Maps the tool names of all harnesses to kinds such as edit, shell or read."""

from __future__ import annotations

from typing import Final, Literal, get_args

from burnd.harness.registry import PRODUCTS

Kind = Literal[
    "edit",
    "shell",
    "delegate",
    "plan_exit",
    "read",
    "search",
    "web",
    "todo",
    "skill",
    "mcp",
    "other",
]

KINDS: Final[tuple[Kind, ...]] = get_args(Kind)

_KIND_OF: Final[dict[str, Kind]] = {
    name: kind for product in PRODUCTS for kind in KINDS for name in product.tools.get(kind, "").split()
}
_MCP_PREFIX: Final = "mcp__"
_AGENT_TOOLS: Final = frozenset(name for product in PRODUCTS for name in product.agent_tools)
_WHOLE_FILE_TOOLS: Final = frozenset(name for product in PRODUCTS for name in product.whole_file_tools)


def kind(name: str) -> Kind:
    """Names are exact: `Edit` and `edit` are tools of two products, `EDIT` is of none."""
    product_kind = _KIND_OF.get(name)
    if product_kind is not None:
        return product_kind
    return "mcp" if mcp_server(name) is not None else "other"


def delegates(name: str) -> bool:
    """Whether a tool starts an agent or controls a running one."""
    return kind(name) == "delegate" or name in _AGENT_TOOLS


def writes_whole(name: str) -> bool:
    return name in _WHOLE_FILE_TOOLS


def mcp_server(name: str) -> str | None:
    """The server in `mcp__server__tool`."""
    if not name.startswith(_MCP_PREFIX):
        return None
    server, separator, tool = name[len(_MCP_PREFIX) :].partition("__")
    return server if server and separator and tool else None
