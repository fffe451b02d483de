"""The Grafana dashboard for ClickHouse: its queries as Grafana would send them."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parents[2] / "packaging"
FILE = FOLDER / "grafana" / "burnd-clickhouse.json"
_FROM, _TO = "toDateTime('2026-10-01 00:00:00')", "toDateTime('2026-12-01 00:00:00')"


def dashboard() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(FILE.read_text())
    return found


def queries() -> dict[str, str]:
    """The SQL of each panel and variable by its title, with macros and variables replaced."""
    found = dashboard()
    panels = {panel["title"]: target["rawSql"] for panel in found["panels"] for target in panel["targets"]}
    variables = {one["name"]: one["query"] for one in found["templating"]["list"] if one["type"] == "query"}
    return {name: _replaced(sql) for name, sql in (panels | variables).items()}


def _replaced(sql: str) -> str:
    sql = re.sub(r"\$__timeFilter\((\w+)\)", rf"\1 >= {_FROM} AND \1 <= {_TO}", sql)
    sql = re.sub(r"\$__timeInterval\((\w+)\)", r"toStartOfInterval(\1, INTERVAL 3600 second)", sql)
    sql = sql.replace("$__fromTime", _FROM).replace("$__toTime", _TO)
    sql = sql.replace("${machine:singlequote}", "'box-a','box-b'").replace("${user:singlequote}", "'user-a','user-b'")
    assert "$" not in sql, sql
    return sql
