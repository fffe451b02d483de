"""`burnctl mcp`: serves past sessions to an agent over MCP on stdin and stdout."""

from __future__ import annotations

from burnctl.errors import BurnctlError
from burnd.errors import MCP, to_install

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse

HELP = (
    "serves past sessions to an agent over the Model Context Protocol, on stdin and stdout: tools to search, "
    "list and read sessions, to see what they cost and why, where to save, and how much of the plan is left. It only "
    "reads, its answers are short, and it never starts burnd. It needs the package `mcp`"
)
EXAMPLES = ("claude mcp add burnd -- burnctl mcp",)


def add_arguments(_parser: argparse.ArgumentParser) -> None:
    pass


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
