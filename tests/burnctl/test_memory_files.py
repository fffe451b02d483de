"""Standing instructions are found as the harnesses find them, and what each part of them cost adds up."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from burnctl.memory_files import find, imports, sections, servers
from burnctl.overhead import priced


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    made = tmp_path / "home" / "code" / "it"
    made.mkdir(parents=True)
    return made


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def found(folder: Path, source: str = "claude-code") -> list[tuple[str, str]]:
    home = os.path.expanduser("~")
    return [(os.path.relpath(one.path, home), one.how) for one in find(str(folder), {}) if one.source == source]


def test_files_of_every_kind_are_found(folder: Path) -> None:
    """One's own, those above, the project's with what they import, local ones, and those that are read when needed."""
    home = folder.parents[1]
    write(home / ".claude" / "CLAUDE.md", "mine")
    write(home / "code" / "CLAUDE.md", "all my code")
    write(folder / "CLAUDE.md", "see @docs/style.md and @missing.md, `@code.md` not\n```\n@fenced.md\n```\n")
    write(folder / "docs" / "style.md", "# Style\n@../CLAUDE.md @deeper.md")
    write(folder / "docs" / "deeper.md", "deep")
    write(folder / "code.md", "not imported")
    write(folder / "fenced.md", "not imported")
    write(folder / "CLAUDE.local.md", "only here")
    write(folder / "src" / "CLAUDE.md", "for src")
    write(folder / "node_modules" / "x" / "CLAUDE.md", "somebody else's")
    write(folder / "AGENTS.md", "agents")
    write(home / ".config" / "opencode" / "AGENTS.md", "my agents")
    assert found(folder) == [
        (".claude/CLAUDE.md", "global"),
        ("code/CLAUDE.md", "project"),
        ("code/it/CLAUDE.md", "project"),
        ("code/it/docs/style.md", "import"),
        ("code/it/docs/deeper.md", "import"),
        ("code/it/CLAUDE.local.md", "project"),
        ("code/it/src/CLAUDE.md", "nested"),
    ]
    assert found(folder, "opencode") == [(".config/opencode/AGENTS.md", "global"), ("code/it/AGENTS.md", "project")]


def test_a_very_deep_tree_ends(folder: Path) -> None:
    """Folders may be nested deeper than Python's stack; what is found above is found."""
    write(folder / "src" / "CLAUDE.md", "for src")
    deep = [f"{folder}{'/d' * n}" for n in range(1, 1500)]
    for path in deep:
        os.mkdir(path)
    try:
        assert ("code/it/src/CLAUDE.md", "nested") in found(folder)
    finally:
        for path in reversed(deep):
            os.rmdir(path)


def test_opencode_falls_back_to_claude_md(folder: Path) -> None:
    write(folder / "CLAUDE.md", "for everyone")
    assert found(folder, "opencode") == [("code/it/CLAUDE.md", "project")]


def test_codex_reads_down_from_the_repository(folder: Path) -> None:
    """Its own, then each folder's, where an override takes the place of the other."""
    home = folder.parents[1]
    write(home / ".codex" / "AGENTS.md", "mine")
    write(home / "AGENTS.md", "not of the repository")
    write(home / "code" / ".git" / "HEAD", "ref")
    write(home / "code" / "AGENTS.md", "all")
    write(folder / "AGENTS.md", "replaced")
    write(folder / "AGENTS.override.md", "instead")
    assert found(folder, "codex") == [
        (".codex/AGENTS.md", "global"),
        ("code/AGENTS.md", "project"),
        ("code/it/AGENTS.override.md", "project"),
    ]


def test_what_is_no_file_is_left_alone(folder: Path) -> None:
    """A pipe would wait for ever, a circle of imports never end."""
    os.mkfifo(folder / "CLAUDE.md")
    (folder / ".claude").mkdir()
    (folder / ".claude" / "CLAUDE.md").symlink_to(folder / ".claude" / "CLAUDE.md")
    write(folder / "CLAUDE.local.md", "@a.md @/dev/zero @/dev/stdin @\0")
    write(folder / "a.md", "@CLAUDE.local.md @a.md")
    assert found(folder) == [("code/it/CLAUDE.local.md", "project"), ("code/it/a.md", "import")]


def test_imports_and_sections() -> None:
    """A mail address is no import; a comment in a block of code is no heading; nothing of the text is lost."""
    assert list(imports(b"me@here.org (@a.md) @b.md, and @~/c.md. `@d.md`")) == ["b.md", "~/c.md"]
    text = b"before\n# One\nx\n```\n# no heading\n```\n## Two\n### Three\ny\n"
    told = list(sections(text))
    assert [heading for heading, _ in told] == ["", "One", "Two"]
    assert sum(size for _, size in told) == len(text)


def test_servers_are_found_where_they_are_set_up(folder: Path) -> None:
    home = folder.parents[1]
    write(folder / ".mcp.json", '{"mcpServers": {"tickets": {}}}')
    write(
        home / ".claude.json",
        f'{{"mcpServers": {{"mine": {{}}}}, "projects": {{"{folder}": {{"mcpServers": {{"it": 1}}}}}}}}',
    )
    assert servers(str(folder), {}) == ["it", "mine", "tickets"]
    write(folder / ".mcp.json", "{not json")
    assert servers(str(folder), {}) == ["it", "mine"]


def answer(**more: Any) -> dict[str, Any]:
    source = {"source": "claude-code", "sessions": 2, "prefix": {"median": 1000, "smallest": 900, "largest": 1100},
              "rides": 10, "costUsd": 5.0, "usdPerToken": 0.005}  # fmt: skip
    return {"totals": {"costUsd": 10.0}, "sources": [source | more], "servers": [{"server": "my_tickets", "calls": 3}]}


def test_files_take_their_share_of_the_prefix(folder: Path) -> None:
    """By their tokens; files, sections and the rest add up to what prefixes cost."""
    write(folder / "CLAUDE.md", "# One\n" + "x" * 394 + "\n## Two\n" + "y" * 392)
    told = priced(answer(), find(str(folder), {}), ["my tickets", "designs"])
    (source,) = told["sources"]
    (file,) = source["files"]
    assert (file["tokens"], file["costUsd"]) == (200, pytest.approx(1.0))
    assert sum(section["costUsd"] for section in file["sections"]) == pytest.approx(file["costUsd"])
    assert source["rest"] == {"tokens": 800, "costUsd": pytest.approx(4.0)}
    assert told["neverCalled"] == ["designs"]


def test_files_that_outgrew_the_prefix_share_it(folder: Path) -> None:
    """Today's file is larger than all that sessions began with: it cannot have cost more than that."""
    write(folder / "CLAUDE.md", "x" * 40_000)
    (source,) = priced(answer(), find(str(folder), {}), [])["sources"]
    assert source["files"][0]["costUsd"] == pytest.approx(5.0)
    assert source["rest"]["costUsd"] == pytest.approx(0)


def test_what_has_no_price_has_none(folder: Path) -> None:
    write(folder / "CLAUDE.md", "x" * 400)
    (source,) = priced(answer(costUsd=None, usdPerToken=None), find(str(folder), {}), [])["sources"]
    assert source["files"][0]["costUsd"] is None
    assert source["rest"]["costUsd"] is None
