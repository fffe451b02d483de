"""Locations of opencode's databases, and their settings."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from burnd.harness.opencode.product import announced_places, data_folder, named_databases, present_databases


@pytest.mark.parametrize(
    ("environ", "folder"),
    [
        ({}, "/home/u/.local/share/opencode"),
        ({"XDG_DATA_HOME": "/data"}, "/data/opencode"),
        ({"XDG_DATA_HOME": ""}, "/home/u/.local/share/opencode"),
    ],
)
def test_the_folder_is_the_one_opencode_uses(environ: dict[str, str], folder: str) -> None:
    assert data_folder(environ, "/home/u") == folder


@pytest.mark.parametrize(
    ("chosen", "named"),
    [
        ("", []),
        (":memory:", []),
        ("/elsewhere/my.db", ["/elsewhere/my.db"]),
        ("mine.db", ["/home/u/.local/share/opencode/mine.db"]),
    ],
)
def test_a_database_may_be_chosen(chosen: str, named: list[str]) -> None:
    """OPENCODE_DB is a path, a name in the folder, or no file at all."""
    assert named_databases({"OPENCODE_DB": chosen}, "/home/u") == named


def test_the_settings_name_more() -> None:
    assert named_databases({}, "/home/u", ["~/a.db", "b.db", "/c.db"]) == ["/home/u/a.db", "/home/u/b.db", "/c.db"]


def test_every_channel_is_found_once(tmp_path: Path) -> None:
    """The usual one first; logs, backups, folders, pipes and second names of the same file are excluded."""
    names = ["opencode-local.db", "opencode.db", "opencode-dev.db", "opencode.db-wal", "opencode.db.bak", "auth.json"]
    for name in names:
        (tmp_path / name).touch()
    (tmp_path / "opencode-folder.db").mkdir()
    os.mkfifo(tmp_path / "opencode-pipe.db")
    (tmp_path / "opencode-link.db").symlink_to(tmp_path / "opencode.db")
    found = present_databases([str(tmp_path)], [str(tmp_path / "opencode-local.db"), "/nowhere.db", "\0"])
    assert [os.path.basename(path) for path in found] == ["opencode-local.db", "opencode.db", "opencode-dev.db"]
    assert present_databases([str(tmp_path / "none"), "\0"], []) == []


def test_a_client_may_say_where_opencode_keeps_its_things(tmp_path: Path) -> None:
    """A database, the folder of databases, or what XDG_DATA_HOME was: each leads to the same file."""
    database = tmp_path / "data" / "opencode" / "opencode.db"
    database.parent.mkdir(parents=True)
    database.touch()
    for root in (database, database.parent, database.parent.parent):
        assert present_databases(*announced_places([str(root)])) == [str(database)]
