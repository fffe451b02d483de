"""Clones and worktrees of one repository are one project."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import anyio
import pytest

from burnd.recording import projects
from burnd.recording.projects import ProjectKeys, key_of
from burnd.records.names import canonical_remote


@pytest.mark.parametrize(
    ("url", "key"),
    [
        ("git@github.com:me/it.git", "github.com/me/it"),
        ("https://github.com/me/it", "github.com/me/it"),
        ("https://github.com/me/it.git/", "github.com/me/it"),
        ("https://user:secret@GitHub.com/me/it.git", "github.com/me/it"),
        ("ssh://git@example.org:2222/team/deep/it.git", "example.org/team/deep/it"),
        ("git://example.org/it", "example.org/it"),
        ("https://example.org//team//it.git", "example.org/team/it"),
        ("https://Example.org./team/it", "example.org/team/it"),
        ("ssh://git@[2001:DB8::1]:22/team/it.git", "[2001:db8::1]/team/it"),
        ("git@[2001:db8::1]:team/it.git", "[2001:db8::1]/team/it"),
        ("https://me:se@cret@example.org/team/it.git", "example.org/team/it"),
        ("me:se@cret@example.org:team/it.git", "example.org/team/it"),
        ("git@example.org:team/it.git?token=secret#main", "example.org/team/it"),
        ("https://example.org/team/it?token=secret", "example.org/team/it"),
        ("https://me:se#cret@example.org/team/it.git", "example.org/team/it"),
        ("me:se#cret@example.org:team/it.git", "example.org/team/it"),
        ("me:se#cr/et@example.org:team/it.git", None),
        ("https://me:22/cret@example.org/team/it.git", None),
        ("https://secret/half@example.org/team/it.git", None),
        ("https://example.org?token=secret/team/it", None),
        ("https://example.org/@team/it", "example.org/@team/it"),
        ("me:secret@example.org/team/it.git", None),
        ("https:/me:secret@example.org/team/it.git", None),
        ("ext::ssh -i /home/me/.ssh/id git@example.org %S /team/it.git", None),
        ("codecommit::us-east-1://profile@it", None),
        ("git@example.org:team/it.GIT", "example.org/team/it"),
        ("gitbox:team/it", "gitbox/team/it"),
        ("C:it.git", None),
        ("C:/work/it.git", None),
        ("C:\\work\\it.git", None),
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
    found = {key_of(str(p)) for p in (one, two, one / "deep" / "down", tmp_path / "tree")}
    assert found == {"example.org/team/it"}


@pytest.mark.parametrize("url", ["https://example.org/team/it ; ours", '"https://example.org/team/it.git" # ours'])
def test_a_remote_may_be_quoted_and_remarked_upon(tmp_path: Path, url: str) -> None:
    """Git strips quotes, and comments after `;` or `#`."""
    git("init", "-q", at=tmp_path)
    (tmp_path / ".git" / "config").write_text(f'# a remark\n[core]\n\tbare = false\n[remote "origin"]\n\turl = {url}\n')
    assert key_of(str(tmp_path)) == "example.org/team/it"


@pytest.mark.parametrize(
    ("config", "key"),
    [
        ('[remote "origin"] url = https://example.org/a', "example.org/a"),
        ('[REMOTE "origin"]\n\tURL=https://example.org/a\n\turl = https://example.org/b\n', "example.org/a"),
        (
            '[remote "upstream"]\nurl = https://example.org/u\n[remote "origin"]\nurl = https://example.org/a\n',
            "example.org/a",
        ),
        ('[remote "upstream"]\nurl = https://example.org/u\n[remote "origin"]\nfetch = x\n', "example.org/u"),
        ("[remote.origin]\nurl = https://example.org/a\n", "example.org/a"),
        ('[remote "a]\\"b"]\nurl = https://example.org/a\n', "example.org/a"),
        ('[remote "origin"]\nurl = https://exam\\\nple.org/a\r\n', "example.org/a"),
        ('[alias]\nx = !f \\\n[remote "origin"]\nurl = https://example.org/a\n', None),
        ('[remote "origin"]\nurl\n', None),
        ('[remote "origin"\nurl = https://example.org/a\n', None),
        ('; [remote "origin"]\nurl = https://example.org/a\n', None),
        ('[remote "origin"]\nurl = https://example.org/' + "a" * 5000, None),
    ],
)
def test_a_config_is_read_as_git_reads_it(tmp_path: Path, config: str, key: str | None) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "config").write_text(config, newline="")
    assert key_of(str(tmp_path)) == key


@pytest.mark.parametrize("line", [" " * 60_000 + "x", "a" + " " * 60_000 + "b", "[" + " " * 60_000, "\\\n" * 60_000])
def test_a_config_made_to_be_slow_is_read_at_once(tmp_path: Path, line: str) -> None:
    """Read in a separate process, so that it can be killed: one such line froze the interpreter for minutes."""
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "config").write_text(f'[remote "origin"]\nurl = https://example.org/a\n{line * 5}\n')
    code = "import sys; from burnd.recording.projects import key_of; print(key_of(sys.argv[1]))"
    done = subprocess.run(
        [sys.executable, "-c", code, tmp_path], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout == "example.org/a\n"


def give_away(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes a file another user's, or this process another user who is not root."""
    if os.geteuid() == 0:
        for one in (path, *path.rglob("*")):
            os.chown(one, 54_321, 54_321)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: 54_321)


def shared_repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    shared = tmp_path / "shared"
    (shared / "mine").mkdir(parents=True)
    git("init", "-q", at=shared)
    git("remote", "add", "origin", "git@example.org:team/it.git", at=shared)
    for name, value in {"HOME": tmp_path / "home", "XDG_CONFIG_HOME": tmp_path / "xdg"}.items():
        monkeypatch.setenv(name, str(value))
    give_away(shared / ".git", monkeypatch)
    return shared


def test_a_repository_of_another_user_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One above a shared folder could hold anything: the project is the folder."""
    shared = shared_repository(tmp_path, monkeypatch)
    assert [key_of(str(place)) for place in (shared, shared / "mine")] == [None, None]


def test_a_link_to_the_config_of_another_user_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if os.geteuid() != 0:
        pytest.skip("needs files of two users")
    shared = shared_repository(tmp_path, monkeypatch)
    (tmp_path / "mine" / ".git").mkdir(parents=True)
    (tmp_path / "mine" / ".git" / "config").symlink_to(shared / ".git" / "config")
    assert key_of(str(tmp_path / "mine")) is None


@pytest.mark.parametrize("place", ["home/.gitconfig", "xdg/git/config"])
@pytest.mark.parametrize(
    ("trusted", "is_read"),
    [
        ("directory = *", True),
        ("directory = {shared}", True),
        ("directory = {shared}/*", False),
        ("directory = {above}/*", True),
        ("directory = {above}", False),
        ("directory = *\ndirectory =", False),
        ("directory =\ndirectory = ~/../shared", False),
        ("other = *", False),
    ],
)
def test_a_safe_directory_of_another_user_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str, trusted: str, is_read: bool
) -> None:
    """As git itself does it: named in the user's own configuration, never in the repository's."""
    shared = shared_repository(tmp_path, monkeypatch)
    config = tmp_path / place
    config.parent.mkdir(parents=True)
    config.write_text(f"[safe]\n{trusted.format(shared=shared, above=tmp_path)}\n")
    assert key_of(str(shared / "mine")) == ("example.org/team/it" if is_read else None)


def test_worktrees_of_a_repository_without_a_remote_are_of_its_folder(tmp_path: Path) -> None:
    """With its own files or bare; it has no key itself, nor has a folder that only keeps its git data elsewhere."""
    one = tmp_path / "worktrees"
    one.mkdir()
    git("init", "-q", at=one)
    git("commit", "-q", "--allow-empty", "-m", "x", at=one)
    git("worktree", "add", "-q", str(tmp_path / "tree"), at=one)
    git("clone", "-q", "--bare", str(one), str(tmp_path / "bare.git"), at=tmp_path)
    git("worktree", "add", "-q", str(tmp_path / "of-bare"), at=tmp_path / "bare.git")
    git("init", "-q", "--separate-git-dir", str(tmp_path / "data"), str(tmp_path / "apart"), at=tmp_path)
    (tmp_path / "tree" / "deep").mkdir()
    places = ("tree", "tree/deep", "of-bare", "worktrees", "apart")
    assert [key_of(str(tmp_path / place)) for place in places] == [
        str(one),
        str(one),
        str(tmp_path / "bare.git"),
        None,
        None,
    ]


def test_folders_below_a_repository_without_a_remote_are_of_its_folder(tmp_path: Path) -> None:
    """Those that are gone, too, like a worktree that was kept inside; but not below a home that is a repository."""
    git("init", "-q", at=tmp_path)
    for place in ("deep", "inner"):
        (tmp_path / place).mkdir()
    git("init", "-q", at=tmp_path / "inner")
    places = ("deep", ".claude/worktrees/gone", "inner", "inner/deep")
    inner = str(tmp_path / "inner")
    assert [key_of(str(tmp_path / place)) for place in places] == [str(tmp_path), str(tmp_path), None, inner]


def test_a_home_in_git_is_no_project_of_all_that_is_in_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    git("init", "-q", at=tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert key_of(str(tmp_path / "code" / "it")) is None


def test_a_project_is_found_without_a_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a container, where a user may have neither a home nor a name."""
    git("init", "-q", at=tmp_path)
    monkeypatch.delenv("HOME")
    monkeypatch.setattr(os, "getuid", lambda: 123_456_789)
    assert key_of(str(tmp_path / "deep")) == str(tmp_path)


@pytest.mark.skipif(sys.platform == "darwin", reason="every name is a text there")
def test_a_folder_whose_name_is_no_text_is_no_key(tmp_path: Path) -> None:
    """The ledger could not hold it."""
    odd = os.fsencode(tmp_path) + b"/\xff"
    os.makedirs(odd + b"/deep")
    git("init", "-q", at=Path(os.fsdecode(odd)))
    (tmp_path / "link").symlink_to(os.fsdecode(odd))
    assert key_of(str(tmp_path / "link" / "deep")) is None


@pytest.mark.parametrize("place", ["nowhere", "plain", "broken", "pipe", "relative"])
def test_folders_without_a_remote_have_none(tmp_path: Path, place: str) -> None:
    """A folder that is gone, is no repository, or whose config cannot be read simply has no key."""
    folder = tmp_path / place
    if place == "plain":
        folder.mkdir()
    elif place == "broken":
        (folder / ".git").mkdir(parents=True)
        (folder / ".git" / "config").write_bytes(b"[remote \xff\n=\n")
    elif place == "pipe":
        (folder / ".git").mkdir(parents=True)
        os.mkfifo(folder / ".git" / "config")
    assert key_of(place if place == "relative" else str(folder)) is None


async def test_what_was_learnt_can_be_asked(tmp_path: Path) -> None:
    """Looking a folder up and asking for its key are two steps: the second never touches the disk."""
    git("init", "-q", at=tmp_path)
    git("remote", "add", "origin", "git@example.org:team/it.git", at=tmp_path)
    keys = ProjectKeys()
    assert keys.key(str(tmp_path)) is None
    keys.learn([str(tmp_path), str(tmp_path / "nowhere")])
    assert keys.key(str(tmp_path)) == keys.key(str(tmp_path / "nowhere")) == "example.org/team/it"


async def test_dead_folders_hold_recording_up_for_a_moment_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """With many such folders few threads hang, and keys of reachable folders are found meanwhile."""
    answers, looked = threading.Event(), []

    def looking(folder: str) -> str | None:
        looked.append(folder)
        if folder.startswith("/dead"):
            answers.wait()
        return "example.org/team/it"

    monkeypatch.setattr(projects, "key_of", looking)
    monkeypatch.setattr(projects, "_TIMEOUT_S", 0.05)
    monkeypatch.setattr(projects, "_SHORT_TIMEOUT_S", 0.3)
    monkeypatch.setattr(projects, "_MOST_STUCK", 6)
    keys = ProjectKeys()
    keys.learn([f"/dead/{number}" for number in range(5)])
    keys.learn(["/home/dev/app"])
    keys.learn([f"/dead/{number}" for number in range(1000)])
    assert keys.key("/home/dev/app") == "example.org/team/it"
    assert len(looked) == 6 + 1
    answers.set()
    for number in range(10_000):
        keys.learn([f"/dead/again/{number}"])
        if keys.key(f"/dead/again/{number}"):
            break
        await anyio.sleep(0.001)
    assert keys.key(f"/dead/again/{number}") == "example.org/team/it"
