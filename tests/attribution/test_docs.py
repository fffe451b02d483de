"""The page about attribution names everything that a report may show."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import pytest

from burnd.attribution.findings import FindingKind
from burnd.attribution.misses import Reason
from burnd.attribution.row import CauseKind

PAGE = (Path(__file__).parents[2] / "docs" / "attribution.md").read_text()


@pytest.mark.parametrize("name", [*get_args(CauseKind), *get_args(FindingKind), *get_args(Reason)])
def test_every_kind_and_reason_has_its_row(name: str) -> None:
    assert f"\n| `{name}` |" in PAGE
