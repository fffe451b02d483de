"""Flags mean the same in every verb."""

from __future__ import annotations

from pathlib import Path

import pytest

from burnctl import flags


def test_a_project_is_a_whole_path_or_a_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What can only be a path is one, also when it is gone: the daemon has neither our folder nor our `~`."""
    (tmp_path / "app").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    for given in ("app", "./app", "~/app", str(tmp_path / "app"), "app/../app/"):
        assert flags.project(given) == str(tmp_path / "app")
    assert flags.project(".") == str(tmp_path)
    assert flags.project("~/gone") == flags.project("./gone") == str(tmp_path / "gone")
    for given in ("gone", "github.com/me/it", "git@github.com:me/it.git"):
        assert flags.project(given) == given
