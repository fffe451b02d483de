"""The registry of agent products, and the pages that list them."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import get_args

import pytest

from burnd.classify.tools import KINDS
from burnd.harness.api.messages import ApiSource
from burnd.harness.api.product import SOURCES as API_SOURCES
from burnd.harness.product import Product
from burnd.harness.registry import PRODUCTS, SOURCES, all_titles

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("product", PRODUCTS, ids=lambda product: product.source)
def test_a_product_is_whole(product: Product) -> None:
    """Its modules are there, and its tools are of kinds that rules know."""
    assert callable(import_module(product.module).make)
    assert callable(import_module(product.demo).write)
    assert not product.instructions_module or callable(import_module(product.instructions_module).add)
    assert product.tools.keys() <= set(KINDS)
    assert set(product.whole_file_tools) <= set(product.tools["edit"].split())


def test_names_are_unique() -> None:
    """No two products share a source, a program, a setting or a variable; no tool is of two kinds."""
    for names in (
        SOURCES,
        [product.program for product in PRODUCTS],
        [setting.key for product in PRODUCTS for setting in product.settings],
        [variable.name for product in PRODUCTS for variable in product.variables],
    ):
        assert len(names) == len(set(names))
    kinds: dict[str, str] = {}
    for product in PRODUCTS:
        for kind, tools in product.tools.items():
            assert all(kinds.setdefault(tool, kind) == kind for tool in tools.split())


def test_the_apis_are_those_that_are_read() -> None:
    assert get_args(ApiSource) == API_SOURCES


def test_pages_name_every_product() -> None:
    """README lists supported products, commands.md those of a report, mcp.md the source of a session's id."""
    readme = (ROOT / "README.md").read_text().replace("\n  ", " ").replace("\n", " ")
    assert f"records every request that {all_titles()} make" in readme
    for product in PRODUCTS:
        assert [home for home in product.default_homes if f"`{home}`" not in readme] == []
        variables = (ROOT / "docs" / "mcp.md").read_text()
        assert [name for name in product.session_variables if f"`{name}`" not in variables] == []
    by_harness = ", ".join(product.title for product in PRODUCTS)
    assert f"Cost by harness: {by_harness};" in (ROOT / "docs" / "commands.md").read_text()
