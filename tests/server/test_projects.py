"""A project is the same to every method that takes one: a repository with all its clones, or a folder within one."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import anyio
import pytest

from burnd.clients import folders
from burnd.clients.folders import AT_ONCE, Folders
from burnd.paths import Home
from burnd.queries.view import Folder
from tests.server.logs import contents, conversation, write
from tests.server.wire import Wire, running, until

SECRET = "hunter2-hunter2"


def clone(folder: Path, remote: str = "git@host.example:me/it.git") -> str:
    """A folder that git would say is a clone of this remote."""
    (folder / ".git").mkdir(parents=True)
    (folder / ".git" / "config").write_text(f'[remote "origin"]\n\turl = {remote}\n')
    return str(folder)


def worktree(folder: Path, of: str) -> str:
    """A worktree of a clone, as `git worktree add` makes one."""
    own = Path(of, ".git", "worktrees", folder.name)
    own.mkdir(parents=True)
    (own / "commondir").write_text("../..\n")
    folder.mkdir()
    (folder / ".git").write_text(f"gitdir: {own}\n")
    return str(folder)


def recorded(home: Home, where: dict[str, str]) -> None:
    for session, folder in where.items():
        write(home, conversation(session, "fine", prompt=f"the password is {SECRET}", cwd=folder), session)


def sessions_of(wire: Wire, project: str) -> dict[str, set[str]]:
    """The sessions that each method takes to be of a project."""
    rows = wire.call("summary", by="session", project=project)["rows"]
    listed = wire.call("sessions.list", project=project)["sessions"]
    found = wire.call("sessions.search", query="password", project=project, limit=20)["hits"]
    gone = wire.call("content.forget", project=project, dryRun=True)["sessions"]
    exported = wire.call("export", project=project)["turns"]
    return {
        "summary": {row["key"] for row in rows},
        "sessions.list": {row["sessionId"] for row in listed},
        "sessions.search": {hit["sessionId"] for hit in found},
        "content.forget": {row["sessionId"] for row in gone},
        "export": {row["sessionId"] for row in exported},
    }


def test_every_method_means_the_same_by_a_project(home: Home, tmp_path: Path) -> None:
    """A folder and those below it, with every clone and worktree; the remote in any spelling; its name; and a secret
    that was pasted into any of them is erased in all."""
    one, other = clone(tmp_path / "it"), clone(tmp_path / "again", "https://host.example/me/it")
    tree, alien = worktree(tmp_path / "tree", one), clone(tmp_path / "item", "git@host.example:me/item.git")
    recorded(home, {"one": one, "below": f"{one}/src", "other": other, "tree": tree, "alien": alien})
    ours = {"one", "below", "other", "tree"}
    os.symlink(other, tmp_path / "link")
    with running(home) as daemon, daemon.wire() as wire, daemon.wire() as follower, daemon.wire() as named:
        wire.call("flush")
        until(lambda: len(wire.call("sessions.search", query="password", limit=20)["hits"]) == 5)
        for project in (one, f"{tree}/", f"{tmp_path}/link", "host.example/me/it", "git@host.example:me/it", "tree"):
            assert set(map(frozenset, sessions_of(wire, project).values())) == {frozenset(ours)}, project
        assert set(map(frozenset, sessions_of(wire, f"{one}/src").values())) == {frozenset({"below"})}
        assert set(map(frozenset, sessions_of(wire, f"{one}/docs").values())) == {frozenset(ours)}
        assert (
            wire.call("hotspots", by="tool", project=tree)["totals"]
            == wire.call("hotspots", by="tool", project=one)["totals"]
        )
        follower.call("tail", project=tree)
        named.call("tail", project="me/it")
        recorded(home, {"alien-2": alien, "later": other})
        for wire_ in (follower, named):
            line = wire_.line()
            assert line is not None
            assert line["params"]["turn"]["sessionId"] == "later"
        wire.call("flush")
        assert wire.call("content.forget", project=tree)["count"] == 5
        left = [path for path, data in contents(home.content) if SECRET.encode() in data]
        assert {path.name.partition(".")[0] for path in left} == {"alien", "alien-2"}


def test_worktrees_are_of_their_repository_also_without_a_remote(home: Home, tmp_path: Path) -> None:
    """They add up with the folder of their repository, and each of them names the same project."""
    (tmp_path / "it" / ".git").mkdir(parents=True)
    one, alien = str(tmp_path / "it"), clone(tmp_path / "item")
    trees = [worktree(tmp_path / name, one) for name in ("tree", "other")]
    recorded(home, {"one": one, "tree": trees[0], "other": f"{trees[1]}/src", "alien": alien})
    with running(home) as daemon, daemon.wire() as wire:
        wire.call("flush")
        until(lambda: len(wire.call("sessions.search", query="password", limit=20)["hits"]) == 4)
        rows = {row["key"]: row["turns"] for row in wire.call("summary", by="project")["rows"]}
        assert rows == {one: 3, "host.example/me/it": 1}
        for project in (one, *trees, f"{one}/"):
            assert set(map(frozenset, sessions_of(wire, project).values())) == {frozenset({"one", "tree", "other"})}


def test_a_hanging_mount_delays_no_other_request(home: Home) -> None:
    """For folders on a hanging mount the answer has recorded facts, and other requests are answered meanwhile."""
    recorded(home, {"gone": "/dead/0", "one": "/home/dev/app"})
    with running(home, script="tests.server.dead_mount") as daemon, daemon.wire() as wire:
        wire.call("flush")
        asking = [daemon.wire() for _ in range(12)]
        for number, one in enumerate(asking):
            one.send(b'{"jsonrpc":"2.0","id":1,"method":"summary","params":{"project":"/dead/%d"}}\n' % number)
        assert wire.call("summary")["totals"]["turns"] == 2
        assert wire.call("summary", project="/home/dev/app")["totals"]["turns"] == 1
        answers = [one.line() for one in asking]
        assert [answer["result"]["totals"]["turns"] for answer in answers if answer] == [1] + [0] * 11
        assert wire.call("sessions.new", agent="a", sender="b", project="/dead/0")["projectKey"] is None
        for one in asking:
            one.close()
        assert daemon.terminate(within=30) == 0, "a thread that hangs keeps the daemon from its end"


async def test_a_look_that_hangs_is_not_begun_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Repeated requests leave few hanging threads, and all folders are checked when the disk answers again."""
    answers, looked = threading.Event(), []

    def resolve(given: str) -> Folder:
        looked.append(given)
        answers.wait()
        return Folder((given,), ("host.example/me/it",))

    monkeypatch.setattr(folders, "resolve", resolve)
    monkeypatch.setattr(folders, "TIMEOUT_S", 0.05)
    some = Folders()
    for patience_of_the_caller in (0.01, 5, 5):
        with anyio.move_on_after(patience_of_the_caller):
            async with anyio.create_task_group() as tasks:
                for number in range(3 * AT_ONCE):
                    tasks.start_soon(some.resolve, f"/dead/{number}")
    assert await some.resolve("/dead/0") == Folder.unseen("/dead/0")
    assert len(looked) < 2 * AT_ONCE  # some may have been under way when the last of them got stuck
    answers.set()
    with anyio.fail_after(10):
        while not (await some.resolve("/dead/0")).keys:  # noqa: ASYNC110 - the end of a thread raises no event
            await anyio.sleep(0.01)


@pytest.mark.parametrize("given", ["/", "/nowhere", "/a\0b", "/" + "x" * 5000])
def test_any_folder_can_be_looked_at(given: str) -> None:
    assert folders.resolve(given).keys == ()
