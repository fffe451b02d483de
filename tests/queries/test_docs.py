"""docs/reports.md lists parameters and answers of reports."""

from __future__ import annotations

from pathlib import Path

import pytest

from burnd.contract.reports import DIMENSIONS, Filters
from burnd.queries.summary import OUTCOMES

PAGE = (Path(__file__).parents[2] / "docs" / "reports.md").read_text()
PROTOCOL = (Path(__file__).parents[2] / "docs" / "protocol.md").read_text()


@pytest.mark.parametrize("name", [*DIMENSIONS, "tag:KEY"])
def test_every_way_of_dividing_is_explained(name: str) -> None:
    assert f"`{name}`" in PAGE


@pytest.mark.parametrize("name", [one.wire for one in Filters.params.values()])
def test_every_filter_is_explained(name: str) -> None:
    assert f"--{name}" in PAGE or f"`{name}`" in PAGE or f"--{name.removesuffix('s')}" in PAGE


@pytest.mark.parametrize("name", OUTCOMES)
def test_every_outcome_has_its_rule(name: str) -> None:
    assert f"| {name} |" in PAGE


@pytest.mark.parametrize("name", ["quality", "tree", "series", "limit", "models", "minSample", "whatIf", "moreRows"])
def test_every_other_parameter_is_in_the_protocol(name: str) -> None:
    assert f"`{name}`" in PROTOCOL
