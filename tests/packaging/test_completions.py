"""The completions that packages install are those that burnctl prints."""

from __future__ import annotations

from tests.packaging.scripts import ROOT, load

make_completions = load("make_completions")


def test_what_is_shipped_is_what_is_printed() -> None:
    """Else run: python packaging/make_completions.py"""
    for name, text in make_completions.files().items():
        shipped = ROOT / "packaging" / "completions" / name
        assert shipped.read_text() == text, f"{name} is out of date: run python packaging/make_completions.py"
