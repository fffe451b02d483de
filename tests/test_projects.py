"""Clones and worktrees of one repository are one project."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from burnd.projects import ProjectKeys, canonical_remote


@pytest.mark.parametrize(
    ("url", "key"),
    [
        ("git@github.com:me/it.git", "github.com/me/it"),
        ("https://github.com/me/it", "github.com/me/it"),
        ("https://github.com/me/it.git/", "github.com/me/it"),
        ("https://user:secret@GitHub.com/me/it.git", "github.com/me/it"),
        ("ssh://git@example.org:2222/team/deep/it.git", "example.org/team/deep/it"),
        ("git://example.org/it", "example.org/it"),
        ("example.org:it.git", "example.org/it"),
        ("/srv/git/it.git", None),
        ("file:///srv/git/it.git", None),
        ("", None),
        ("https://example.org/", None),
    ],
)
def test_remotes_have_one_form(url: str, key: str | None) -> None:
    """However a remote is written, the key is host/path, and never holds a password."""
    assert canonical_remote(url) == key


def git(*arguments: str, at: Path) -> None:
    identity = ["-c", "user.name=t", "-c", "user.email=t@example.org"]
    subprocess.run(["git", *identity, *arguments], cwd=at, check=True, capture_output=True)


def test_clones_and_worktrees_share_a_key(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    for clone in (one, two):
        clone.mkdir()
        git("init", "-q", at=clone)
        git("remote", "add", "origin", "git@example.org:team/it.git", at=clone)
    (one / "deep" / "down").mkdir(parents=True)
    git("commit", "-q", "--allow-empty", "-m", "x", at=one)
    git("worktree", "add", "-q", str(tmp_path / "tree"), at=one)
    keys = ProjectKeys()
    found = {keys.key(str(p)) for p in (one, two, one / "deep" / "down", tmp_path / "tree")}
    assert found == {"example.org/team/it"}


@pytest.mark.parametrize("place", ["nowhere", "plain", "broken", "relative"])
def test_folders_without_a_remote_have_none(tmp_path: Path, place: str) -> None:
    """A folder that is gone, is no repository, or whose config cannot be read simply has no key."""
    folder = tmp_path / place
    if place == "plain":
        folder.mkdir()
    elif place == "broken":
        (folder / ".git").mkdir(parents=True)
        (folder / ".git" / "config").write_bytes(b"[remote \xff\n=\n")
    assert ProjectKeys().key(place if place == "relative" else str(folder)) is None
