"""Packages that only some things need, and the command that installs one where this program runs."""

from __future__ import annotations

import sys
from shlex import quote

MCP, PARQUET, SEARCH = "mcp>=2", "pyarrow>=17", "tantivy>=0.26"


def to_install(package: str) -> str:
    """What to type: the interpreter is named, since a bare `pip` may well be another environment's."""
    return f"{quote(sys.executable)} -m pip install {quote(package)}"
