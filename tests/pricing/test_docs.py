"""docs/pricing.md agrees with the code."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from burnd.pricing import PriceTable
from burnd.pricing.pricefile import read_user_lists

TEXT = (Path(__file__).parents[2] / "docs" / "pricing.md").read_text()
TABLE = PriceTable.load()


def rows(columns: int) -> list[list[str]]:
    lines = [line for line in TEXT.splitlines() if line.startswith("| `")]
    cells = [[cell.strip(" `") for cell in line.strip("|").split("|")] for line in lines]
    return [row for row in cells if len(row) == columns]


@pytest.mark.parametrize("row", rows(5))
def test_examples_are_found_as_documented(row: list[str]) -> None:
    name, served_by, priced_as, at, _ = row
    price = TABLE.find(name, served_by or None)
    assert price is not None
    assert (price.model, price.provider) == (priced_as, at)


@pytest.mark.parametrize("row", rows(3))
def test_examples_are_unpriced_as_documented(row: list[str]) -> None:
    name, served_by, _ = row
    assert TABLE.find(name, served_by or None) is None


def test_the_example_file_is_accepted() -> None:
    example = re.search(r"```json\n(.*?)```", TEXT, re.DOTALL)
    assert example is not None
    prices = PriceTable({}, read_user_lists(example[1], "models.dev.json"))
    assert prices.find("claude-opus-5-5") is not None


def test_there_are_examples() -> None:
    assert len(rows(5)) > 15
    assert len(rows(3)) > 5
