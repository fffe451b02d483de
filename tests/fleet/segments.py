"""A folder of segments, written without the push engine: a file for each call and table."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as arrow
import pyarrow.parquet as parquet

from burnctl.push.schema import TABLES, Column

_TYPES = {
    "text": arrow.string(),
    "count": arrow.int64(),
    "flag": arrow.bool_(),
    "time": arrow.timestamp("ms", tz="UTC"),
    "money": arrow.decimal128(18, 12),
    "map": arrow.map_(arrow.string(), arrow.string()),
}


def put(folder: Path, table: str, *rows: dict[str, Any], without: tuple[str, ...] = ()) -> None:
    """Adds a segment; `without` are columns that its version of the schema does not have."""
    (folder / table).mkdir(parents=True, exist_ok=True)
    columns = [column for column in TABLES[table] if column.name not in without]
    schema = arrow.schema([(column.name, _TYPES[column.kind]) for column in columns])
    values = [{column.name: _value(column, row.get(column.name)) for column in columns} for row in rows]
    name = f"{len(list((folder / table).iterdir())):04}.parquet"
    parquet.write_table(arrow.Table.from_pylist(values, schema=schema), folder / table / name)


def _value(column: Column, value: Any) -> Any:
    if value is not None and column.kind == "time":
        return datetime.fromisoformat(value)
    return list(value.items()) if value is not None and column.kind == "map" else value
