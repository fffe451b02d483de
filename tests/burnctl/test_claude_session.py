"""Finds the session that Claude Code will write to, from its arguments and transcripts."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from burnctl.commands.claude import (
    CONTINUED,
    NAMED,
    NEW,
    NO_SESSION,
    PICKED,
    RESUMED,
    look,
    new_id,
    newest,
    session_in,
    written_to,
)

OLD = "0f9c1d2e-0000-4000-8000-000000000001"
UUID = r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}"


@pytest.mark.parametrize(
    ("line", "kind", "session"),
    [
        ("", NEW, None),
        ("fix the tests", NEW, None),
        ("-p hello --model opus", NEW, None),
        (f"--resume {OLD}", RESUMED, OLD),
        (f"--resume={OLD}", RESUMED, OLD),
        (f"-r {OLD} hello", RESUMED, OLD),
        (f"-r{OLD}", RESUMED, OLD),
        (f"-pr {OLD} hello", RESUMED, OLD),
        (f"-p hello -r {OLD}", RESUMED, OLD),
        ("--resume", PICKED, None),
        ("--resume auth-refactor", PICKED, None),
        ("-r --model opus", PICKED, None),
        ("--from-pr 123", PICKED, None),
        ("--teleport", PICKED, None),
        ("--continue", CONTINUED, None),
        ("-c", CONTINUED, None),
        ("-pc hello", CONTINUED, None),
        ("-cp hello", CONTINUED, None),
        (f"--session-id {OLD}", NAMED, OLD),
        (f"--session-id={OLD} -p x", NAMED, OLD),
        (f"--resume {OLD} --fork-session", NEW, None),
        ("-c --fork-session", NEW, None),
        (f"-c --fork-session --session-id {OLD}", NAMED, OLD),
        ("--append-system-prompt --continue", NEW, None),
        ("--model --resume hello", NEW, None),
        ("-- --continue", NEW, None),
        ("-n -c", NEW, None),
        ("mcp add x", NO_SESSION, None),
        ("--model opus doctor", NO_SESSION, None),
        ("hello mcp", NEW, None),
        ("--version", NO_SESSION, None),
        ("-v", NO_SESSION, None),
        ("-p --help", NO_SESSION, None),
    ],
)
def test_what_the_arguments_say_of_the_session(line: str, kind: str, session: str | None) -> None:
    """Read as Claude Code reads them: joined short flags, =, values that look like flags, the end of flags."""
    found = session_in(line.split())
    assert (found.kind, found.id) == (kind, session)


def test_ids_are_new_each_time() -> None:
    """Version 4 UUIDs."""
    ids = {new_id() for _ in range(1000)}
    assert len(ids) == 1000
    assert all(re.fullmatch(UUID, found) for found in ids)


def test_transcripts_are_found_as_claude_names_their_folder(tmp_path: Path) -> None:
    """Odd characters, long paths and a folder name of the user's own."""
    config = tmp_path / "config"
    work = tmp_path / "söme_ödd.näme 😀"
    long = tmp_path / ("x" * 220)
    for folder in (work, long):
        folder.mkdir()
    plain = re.sub("[^A-Za-z0-9]", "-", str(work).replace("😀", "--"))
    cut = re.sub("[^A-Za-z0-9]", "-", str(long))[:200] + "-1x2y3z"
    for name in (plain, cut, "chosen"):
        (config / "projects" / name).mkdir(parents=True)
        (config / "projects" / name / f"{OLD}.jsonl").write_text(name)
        (config / "projects" / name / "agent-12345678.jsonl").write_text("")
        (config / "projects" / name / "memory").mkdir()
    assert look(str(config), str(work), {})[OLD][0] == len(plain)
    assert look(str(config), str(long), {})[OLD][0] == len(cut)
    assert look(str(config), "/", {"CLAUDE_CODE_PROJECT_DIR_NAME": "chosen"})[OLD][0] == len("chosen")
    assert look(str(config), "/nowhere", {}) == {}
    assert look("/nowhere", str(work), {}) == {}


def test_which_session_was_written_to() -> None:
    """One that grew or came; of several the expected one, else none."""
    before = {"a": (10, 5), "b": (20, 9)}
    assert newest(before) == "b"
    assert newest({}) is None
    assert written_to(before, {"a": (11, 10), "b": (20, 9)}, "b") == "a"
    assert written_to(before, {**before, "c": (1, 1)}, None) == "c"
    assert written_to(before, {"a": (11, 10), "b": (21, 11)}, "b") == "b"
    assert written_to(before, {"a": (11, 10), "b": (21, 11)}, None) is None
    assert written_to(before, before, "b") is None
