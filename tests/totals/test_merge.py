"""Reading logs for totals, in processes that end with the pass."""

from __future__ import annotations

import gc
from collections import Counter
from pathlib import Path

from burnd.totals.merge import read_packed
from tests.bench.corpus import Tree
from tests.capture.codex_logs import all_cases
from tests.harness.scanning import claude_logs, codex_logs


def test_a_log_that_was_read_leaves_nothing_in_its_worker(tmp_path: Path) -> None:
    """The collector is off there: two gigabytes of logs would leave 200 MB of readers."""
    Tree(tmp_path).grow(600_000)
    tasks = [*claude_logs(tmp_path / "projects"), *codex_logs(all_cases(tmp_path / "codex"))]
    gc.collect()
    gc.disable()
    try:
        packed = [log for task in tasks for log in read_packed(task)[1]]
        left = Counter(type(one).__name__ for one in gc.get_objects())
    finally:
        gc.enable()
    assert len(packed) > 20
    assert left["_TotalsReader"] == 0
