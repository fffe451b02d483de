"""A folder of segments, written without the push engine: a file for each call and table."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as arrow
import pyarrow.parquet as parquet

from burnctl.parquet import TYPES
from burnctl.push.schema import TABLES, Column


def put(folder: Path, table: str, *rows: dict[str, Any], without: tuple[str, ...] = ()) -> None:
    """Adds a segment; `without` are columns that its version of the schema does not have."""
    (folder / table).mkdir(parents=True, exist_ok=True)
    columns = [column for column in TABLES[table] if column.name not in without]
    schema = arrow.schema([(column.name, TYPES[column.kind]) for column in columns])
    values = [{column.name: _value(column, row.get(column.name)) for column in columns} for row in rows]
    name = f"{len(list((folder / table).iterdir())):04}.parquet"
    parquet.write_table(arrow.Table.from_pylist(values, schema=schema), folder / table / name)


def _value(column: Column, value: Any) -> Any:
    if value is not None and column.kind == "time":
        return datetime.fromisoformat(value)
    return list(value.items()) if value is not None and column.kind == "map" else value
