"""Root folders of logs that exist."""

from __future__ import annotations

from pathlib import Path

from burnd.logfiles.roots import present


def test_two_names_of_one_folder_are_one_root(tmp_path: Path) -> None:
    """A root may be a link; a folder reached by two names is read once, under its real path."""
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    roots = present([str(tmp_path / "link"), str(tmp_path / "real"), str(tmp_path / "real/")])
    assert [(root.named, root.path) for root in roots] == [(str(tmp_path / "link"), str(tmp_path / "real"))]


def test_what_is_no_folder_is_no_root(tmp_path: Path) -> None:
    """F24: missing, a file, a link to nowhere or to itself, or no possible path: not there, and no error."""
    (tmp_path / "file").touch()
    (tmp_path / "dangling").symlink_to("nowhere")
    (tmp_path / "self").symlink_to("self")
    names = [str(tmp_path / name) for name in ("missing", "file", "dangling", "self", "nul\0byte")]
    assert present(names) == []
