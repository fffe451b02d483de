"""Optional packages, and the command that installs one."""

from __future__ import annotations

import sys
from shlex import quote

MCP, PARQUET, SEARCH = "mcp>=2", "pyarrow>=17", "tantivy>=0.26"
FLEET, POSTGRES = "duckdb>=1.1", "psycopg[binary]>=3.2"


def to_install(package: str) -> str:
    """The pip command. It names the interpreter: a bare `pip` may belong to another environment."""
    return f"{quote(sys.executable)} -m pip install {quote(package)}"
