"""Spark reads segments as docs/scale.md shows. Needs Java and `pip install pyspark`, else it is skipped."""

from __future__ import annotations

import re
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from tests.burnctl.push.rows import gone, turn
from tests.fleet.segments import put
from tests.server.wire import PROJECT

pytestmark = [pytest.mark.real, pytest.mark.slow]
NEWER = ("persona",)  # missing in segments of an older schema


def test_each_turn_counts_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The newest row of each key, then the best copy, over two versions of the schema."""
    sql: Any = pytest.importorskip("pyspark.sql")
    put(tmp_path, "turns", turn("a", "m1", 1, costUsd=0.1), turn("a", "m2", 1, costUsd=0.2), without=NEWER)
    put(tmp_path, "turns", turn("a", "m1", 4, costUsd=0.3, ts="2026-10-31T00:00:00.123Z"), gone("a", "m2", 5))
    put(tmp_path, "turns", turn("b", "m1", 2, costUsd=9.0, quality="partial"), turn("b", "m3", 3, costUsd=1e-12))
    machine = tmp_path / "turns" / "m1"
    machine.mkdir()
    for path in [*(tmp_path / "turns").glob("*.parquet")]:
        path.rename(machine / path.name)
    page = (PROJECT / "docs" / "scale.md").read_text()
    example = next(code for code in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if "Window" in code)
    monkeypatch.chdir(tmp_path)
    spark = sql.SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
    try:
        values: dict[str, Any] = {"spark": spark}
        exec(example.replace(".show()", ".collect()"), values)
        rows = values["turns"].select("machine_id", "message_id", "cost_usd").collect()
    finally:
        spark.stop()
    assert sorted(map(tuple, rows)) == [("a", "m1", Decimal("0.3")), ("b", "m3", Decimal("1e-12"))]
