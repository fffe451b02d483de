"""Flags mean the same in every verb."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from burnctl import flags


def test_a_project_is_a_whole_path_or_a_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A value that can only be a path is made absolute, even if it does not exist: the daemon has neither our folder
    nor our `~`."""
    (tmp_path / "app").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    for given in ("app", "./app", "~/app", str(tmp_path / "app"), "app/../app/"):
        assert flags.project(given) == str(tmp_path / "app")
    assert flags.project(".") == str(tmp_path)
    assert flags.project("~/gone") == flags.project("./gone") == str(tmp_path / "gone")
    for given in ("gone", "github.com/me/it", "git@github.com:me/it.git"):
        assert flags.project(given) == given


@pytest.mark.parametrize(
    ("text", "unit", "value"),
    [("30d", "d", 30), ("12h", "d", 0.5), ("2w", "d", 14), ("1.5", "d", 1.5), ("30m", "s", 1800), ("2", "s", 2)],
)
def test_a_duration_has_a_unit_or_that_of_its_flag(text: str, unit: str, value: float) -> None:
    assert flags.duration(text, unit) == value


@pytest.mark.parametrize("text", ["soon", "", "d", "-1d", "1y", "1e9d", "1..5", "9999999999"])
def test_other_text_is_not_a_duration(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="is not a duration; for example"):
        flags.duration(text, "d")
