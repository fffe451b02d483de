"""Promises about where transcripts are looked for."""

from __future__ import annotations

from pathlib import Path

from burnd.logfiles.roots import claude_roots, present


def test_the_usual_places() -> None:
    """Without any setting: the client's own folder, and the one that older tools used."""
    assert claude_roots({}, "/home/u") == ["/home/u/.claude/projects", "/home/u/.config/claude/projects"]


def test_a_configured_folder_comes_first() -> None:
    """CLAUDE_CONFIG_DIR and configured roots are added; the usual places stay."""
    roots = claude_roots({"CLAUDE_CONFIG_DIR": "/data/c"}, "/home/u", ["~/work", "rel"])
    assert roots == [
        "/data/c/projects",
        "/home/u/.claude/projects",
        "/home/u/.config/claude/projects",
        "/home/u/work/projects",
        "/home/u/rel/projects",
    ]


def test_a_comma_may_belong_to_the_name_or_separate_two() -> None:
    """To the client `a,b` is one folder; people who write a list are understood as well."""
    roots = claude_roots({"CLAUDE_CONFIG_DIR": "/a, ~/b"}, "/home/u")
    assert roots[:3] == ["/a, ~/b/projects", "/a/projects", "/home/u/b/projects"]


def test_empty_settings_are_no_roots() -> None:
    assert claude_roots({"CLAUDE_CONFIG_DIR": ""}, "/h", [" "]) == claude_roots({}, "/h")


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
