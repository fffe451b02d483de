"""`burnctl mcp`: serves past sessions to an agent, over the Model Context Protocol on stdin and stdout."""

from __future__ import annotations

from burnctl.errors import BurnctlError
from burnd.errors import MCP, to_install

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse

HELP = (
    "serves past sessions to an agent over the Model Context Protocol, on stdin and stdout: search_sessions, "
    "search_memory, session_messages, session_cost, why, summary, hotspots, compare. It only reads, its answers are "
    "short, and it never starts burnd. It needs the package `mcp`, and says how to install it where that is missing"
)
EXAMPLES = ("claude mcp add burnd -- burnctl mcp",)


def add_arguments(_parser: argparse.ArgumentParser) -> None:
    """There is nothing to choose."""


def run(_options: argparse.Namespace) -> int:
    try:
        from burnctl.mcp_tools import server
    except ImportError as error:
        if (error.name or "").partition(".")[0] not in ("mcp", "pydantic"):
            raise
        hint = f"install it with: {to_install(MCP)}"
        raise BurnctlError("the MCP server needs the package `mcp`, version 2 or newer", hint) from None
    server().run("stdio")
    return 0
