"""Locations of Codex's rollouts."""

from __future__ import annotations

import pytest

from burnd.harness.codex.product import PRODUCT


@pytest.mark.parametrize("environ", [{}, {"CODEX_HOME": "/data/codex"}])
def test_where_codex_keeps_its_things(environ: dict[str, str]) -> None:
    """CODEX_HOME first, then ~/.codex, then what the settings name."""
    found = PRODUCT.logs(environ, "/home/me", ["~/more"])
    folders = [*environ.values(), "/home/me/.codex", "/home/me/more"]
    assert found == [f"{folder}/{name}" for folder in folders for name in ("sessions", "archived_sessions")]
