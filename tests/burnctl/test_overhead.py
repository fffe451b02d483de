"""Finds standing instructions as each harness does, and prices each part."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from burnctl.commands.overhead import begun_in, instruction_files, priced
from burnctl.commands.overhead import draw as shown
from burnctl.render.screen import Screen
from burnctl.render.text import width_of
from burnd.harness.claude_code import instructions as claude
from burnd.harness.claude_code.instructions import servers
from burnd.harness.claude_code.product import MANAGED
from burnd.harness.instructions import imports, sections


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
    return [
        (os.path.relpath(one.path, home), one.how) for one in instruction_files(str(folder), {}) if one.source == source
    ]


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
    assert found(folder, "opencode") == [
        (".config/opencode/AGENTS.md", "global"),
        ("code/it/AGENTS.md", "project"),
        ("code/it/src/CLAUDE.md", "nested"),
    ]


def test_a_very_deep_tree_ends(folder: Path) -> None:
    """Folders may be nested deeper than Python's stack; what is found above is found."""
    write(folder / "src" / "CLAUDE.md", "for src")
    deep = [f"{folder}{'/d' * n}" for n in range(1, 1100)]
    for path in deep:
        os.mkdir(path)
    try:
        assert ("code/it/src/CLAUDE.md", "nested") in found(folder)
    finally:
        for path in reversed(deep):
            os.rmdir(path)


def test_rules_are_read_at_the_start_or_for_their_paths(folder: Path) -> None:
    """User-level rules and those of the folder and above, in subfolders, through links that may be loops. Rules read at
    the start stay so, even if an on-demand rule imports them."""
    home = folder.parents[1]
    write(home / ".claude" / "rules" / "mine.md", "always")
    write(home / ".claude" / "rules" / "go" / "style.md", '---\npaths:\n  - "**/*.go"\n---\n# Go\n@../go-names.md')
    write(home / ".claude" / "rules" / "go-names.md", "a rule, always")
    write(home / "code" / ".claude" / "rules" / "all.md", "---\ntitle: all\n---\nfor all code")
    write(folder / ".claude" / "rules" / "a.md", "see @b.md")
    write(folder / ".claude" / "rules" / "b.md", "paths: no front matter")
    write(folder / ".claude" / "rules" / "c.md", "---\npaths: src/**\n---\nfor src")
    write(folder / ".claude" / "rules" / "d.md", "---\npaths: []\n---\nfor all")
    write(folder / ".claude" / "rules" / "e.txt", "no rule")
    (folder / ".claude" / "rules" / "round").symlink_to(folder / ".claude" / "rules")
    write(home / "shared" / "s.md", "shared")
    (folder / ".claude" / "rules" / "shared").symlink_to(home / "shared")
    write(folder / "pkg" / ".claude" / "rules" / "p.md", "for pkg")
    assert found(folder) == [
        (".claude/rules/go-names.md", "global"),
        (".claude/rules/mine.md", "global"),
        ("code/.claude/rules/all.md", "project"),
        ("code/it/.claude/rules/a.md", "project"),
        ("code/it/.claude/rules/b.md", "import"),
        ("code/it/.claude/rules/d.md", "project"),
        ("code/it/.claude/rules/shared/s.md", "project"),
        (".claude/rules/go/style.md", "nested"),
        ("code/it/.claude/rules/c.md", "nested"),
        ("code/it/pkg/.claude/rules/p.md", "nested"),
    ]


@pytest.mark.parametrize("worktree", [False, True])
def test_of_its_memory_claude_reads_the_beginning(folder: Path, worktree: bool) -> None:
    """200 lines, 25 KB at most; one memory for a repository and all its worktrees, and nothing that it names."""
    home = folder.parents[1]
    slug = str(folder.resolve()).replace("/", "-").replace("_", "-")
    kept = home / ".claude" / "projects" / slug / "memory"
    write(folder / ".git" / "HEAD", "ref")
    write(kept / "topic.md", "not read")
    asked = folder / "src"
    asked.mkdir()
    if worktree:
        asked = home / "elsewhere"
        write(asked / ".git", f"gitdir: {folder.resolve()}/.git/worktrees/elsewhere\n")
    for text, size in (("@topic.md\n" * 500, 2_000), ("x" * 99_999, 25 * 1024), ("short", 5)):
        write(kept / "MEMORY.md", text)
        (file,) = instruction_files(str(asked), {})
        assert (file.how, file.size, Path(file.path)) == ("memory", size, kept / "MEMORY.md")


def test_a_policy_comes_first(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On Linux and on macOS, with its rules."""
    home = folder.parents[1]
    assert MANAGED == ("/etc/claude-code", "/Library/Application Support/ClaudeCode")
    monkeypatch.setattr(claude, "MANAGED", (str(home / "none"), str(home / "policy")))
    write(home / "policy" / "CLAUDE.md", "all of us")
    write(home / "policy" / ".claude" / "rules" / "r.md", "all of us")
    write(home / ".claude" / "CLAUDE.md", "mine")
    assert found(folder) == [
        ("policy/CLAUDE.md", "managed"),
        ("policy/.claude/rules/r.md", "managed"),
        (".claude/CLAUDE.md", "global"),
    ]


def test_claude_falls_back_to_agents_md(folder: Path) -> None:
    """Used where neither the folder nor one above it has a CLAUDE.md; user-level files and rules do not count."""
    home = folder.parents[1]
    write(home / ".claude" / "CLAUDE.md", "mine")
    write(home / "code" / "AGENTS.md", "all code")
    write(folder / "AGENTS.md", "agents")
    write(folder / ".claude" / "rules" / "a.md", "a rule")
    assert [path for path, how in found(folder) if how == "project"] == [
        "code/it/.claude/rules/a.md",
        "code/AGENTS.md",
        "code/it/AGENTS.md",
    ]
    write(folder / "CLAUDE.local.md", "@./docs/../AGENTS.md")
    assert found(folder)[-2:] == [("code/it/CLAUDE.local.md", "project"), ("code/it/AGENTS.md", "import")]


def test_opencode_falls_back_to_claude_md(folder: Path) -> None:
    """For one's own rules and for the project's, unless that is switched off."""
    write(folder.parents[1] / ".claude" / "CLAUDE.md", "mine")
    write(folder / "CLAUDE.md", "for everyone")
    assert found(folder, "opencode") == [(".claude/CLAUDE.md", "global"), ("code/it/CLAUDE.md", "project")]
    off = {"OPENCODE_DISABLE_CLAUDE_CODE": "1"}
    assert [one for one in instruction_files(str(folder), off) if one.source == "opencode"] == []
    write(folder / "src" / "AGENTS.md", "for src")
    write(folder / "src" / "CLAUDE.md", "not beside the other")
    assert found(folder, "opencode")[-1] == ("code/it/src/AGENTS.md", "nested")


def test_opencode_reads_what_is_above_up_to_the_repository_and_what_its_configuration_names(folder: Path) -> None:
    """Files by name or pattern, from any folder of the repository; comments in the configuration are ignored."""
    home = folder.parents[1]
    write(home / "AGENTS.md", "not of the repository")
    write(home / "code" / ".git" / "HEAD", "ref")
    write(home / "code" / "AGENTS.md", "all")
    write(folder / "AGENTS.md", "this")
    write(home / "code" / "docs" / "guide.md", "guide")
    write(folder / ".cursor" / "rules" / "a.md", "a")
    write(folder / ".cursor" / "rules" / "b.md", "b")
    write(home / "own.md", "own")
    write(home / ".config" / "opencode" / "opencode.json", '{"instructions": ["~/own.md", "missing.md", 3]}')
    write(folder / "config.json", '{"instructions": ["../../own.md"]}')
    write(
        folder / "opencode.jsonc",
        '{ // mine\n "instructions": ["docs/guide.md", /* and */ ".cursor/rules/*.md", "https://x.org//y.md",], }',
    )
    assert found(folder, "opencode") == [
        ("code/it/AGENTS.md", "project"),
        ("code/AGENTS.md", "project"),
        ("own.md", "import"),
        ("code/docs/guide.md", "import"),
        ("code/it/.cursor/rules/a.md", "import"),
        ("code/it/.cursor/rules/b.md", "import"),
    ]
    write(folder / "opencode.jsonc", "[not, json")
    assert len(found(folder, "opencode")) == 3


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


class Sessions:
    """A client of a daemon that knows of sessions in these folders, some of them clones of a remote."""

    def __init__(self, *began: str, clones: tuple[str, ...] = ()) -> None:
        self._began, self._clones = began, clones

    def sessions_list(self, *, project: str, limit: int) -> dict[str, Any]:
        below = [one for one in (*self._began, *self._clones) if f"{one}/".startswith(f"{project}/")]
        of_the_remote = self._clones if any(f"{project}/".startswith(f"{one}/") for one in self._clones) else ()
        return {"sessions": [{"project": one} for one in {*below, *of_the_remote}][:limit]}

    def summary(self, *, by: str) -> dict[str, Any]:
        keys = (*self._began, None, *["github.com/me/it"] * bool(self._clones))
        return {"rows": [{"key": key} for key in keys if by == "project"]}


@pytest.mark.parametrize(
    ("asked", "sessions", "folder"),
    [
        ("/code/it", Sessions("/code/it", "/code"), "/code/it"),
        ("/code/it/src/deep", Sessions("/code/it", "/code", "/code/it/s"), "/code/it"),
        ("/code/it/src", Sessions("/code/it", "/code/it/src"), "/code/it/src"),
        ("/code", Sessions("/code/it"), "/code"),
        ("/code/other", Sessions("/code/it", "/code/oth"), "/code/other"),
        ("/code/it/src", Sessions(clones=("/code/it", "/tmp/it")), "/code/it"),
        ("github.com/me/it", Sessions("/code/it"), "github.com/me/it"),  # not on this machine
    ],
)
def test_a_project_is_found_from_a_folder_within_it(asked: str, sessions: Any, folder: str) -> None:
    """The nearest folder above in which sessions began; one with its own, or with none above it, is meant itself."""
    assert begun_in(sessions, asked) == folder


@pytest.mark.parametrize("width", [80, 160])
def test_labels_keep_their_words(folder: Path, width: int) -> None:
    """A heading loses its end, not its middle; what has no file has a name that fits."""
    write(folder / "CLAUDE.md", f"# {'How we name what we build here and why, ' * 4}\n" + "x" * 400 + "\n## B\ny")
    told = priced(answer(), instruction_files(str(folder), {}), []) | {"unpricedModels": [], "folder": str(folder)}
    shown_text = shown(told, str(folder), str(folder / "src"), Screen(width))
    assert "  How we name what we build" in shown_text
    assert "system prompt and tools" in shown_text
    assert "No session started in ~/code/it/src; these started in ~/code/it." in shown_text
    assert all(width_of(line) <= width for line in shown_text.splitlines())
    gone = priced(answer(), [], []) | {"unpricedModels": [], "folder": None}
    screen = Screen(width)
    assert "not on this machine" in screen.page({}, shown(gone, str(folder), "it", screen))
    assert "No session began" not in shown(gone, str(folder), "it", Screen(width))


def test_a_project_that_is_called_by_its_name_has_a_folder(folder: Path) -> None:
    """That of its newest sessions that is on this machine."""

    class Named:
        def sessions_list(self, **_: Any) -> dict[str, Any]:
            return {"sessions": [{"project": one} for one in (None, "/not/here", str(folder))]}

    assert begun_in(Named(), "github.com/me/it") == str(folder)  # type: ignore[arg-type]


def answer(**more: Any) -> dict[str, Any]:
    source = {"source": "claude-code", "sessions": 2, "prefix": {"median": 1000, "smallest": 900, "largest": 1100},
              "rides": 10, "costUsd": 5.0, "usdPerToken": 0.005}  # fmt: skip
    return {"totals": {"costUsd": 10.0}, "sources": [source | more], "servers": [{"server": "my_tickets", "calls": 3}]}


def test_files_take_their_share_of_the_prefix(folder: Path) -> None:
    """By their tokens; files, sections and the rest add up to what prefixes cost."""
    write(folder / "CLAUDE.md", "# One\n" + "x" * 394 + "\n## Two\n" + "y" * 392)
    told = priced(answer(), instruction_files(str(folder), {}), ["my tickets", "designs"])
    (source,) = told["sources"]
    (file,) = source["files"]
    assert (file["tokens"], file["costUsd"]) == (200, pytest.approx(1.0))
    assert sum(section["costUsd"] for section in file["sections"]) == pytest.approx(file["costUsd"])
    assert source["rest"] == {"tokens": 800, "costUsd": pytest.approx(4.0)}
    assert told["neverCalled"] == ["designs"]


def test_files_that_the_log_lists_are_as_large_as_it_states(folder: Path) -> None:
    """One that changed since has no sections any more, one that is gone is listed all the same."""
    write(folder / "CLAUDE.md", "# One\n" + "x" * 394 + "\n## Two\n" + "y" * 392)
    write(folder / "CLAUDE.local.md", "z" * 400)
    same = {"path": str(folder / "CLAUDE.md"), "bytes": 800, "sessions": 2}
    gone = {"path": "/gone/CLAUDE.md", "bytes": 1200, "sessions": 1}
    for size, headings in ((800, 2), (400, 0)):
        (source,) = priced(answer(instructions=[gone, same | {"bytes": size}]), instruction_files(str(folder), {}), [])[
            "sources"
        ]
        rows = [(file["path"], file["bytes"], file["logged"], len(file["sections"])) for file in source["files"]]
        assert rows == [
            ("/gone/CLAUDE.md", 1200, True, 0),
            (str(folder / "CLAUDE.md"), size, True, headings),
            (str(folder / "CLAUDE.local.md"), 400, False, 1),
        ]


def test_files_that_outgrew_the_prefix_share_it(folder: Path) -> None:
    """Today's file is larger than all that sessions began with: it cannot have cost more than that."""
    write(folder / "CLAUDE.md", "x" * 40_000)
    (source,) = priced(answer(), instruction_files(str(folder), {}), [])["sources"]
    assert source["files"][0]["costUsd"] == pytest.approx(5.0)
    assert source["rest"]["costUsd"] == pytest.approx(0)


def test_what_has_no_price_has_none(folder: Path) -> None:
    write(folder / "CLAUDE.md", "x" * 400)
    (source,) = priced(answer(costUsd=None, usdPerToken=None), instruction_files(str(folder), {}), [])["sources"]
    assert source["files"][0]["costUsd"] is None
    assert source["rest"]["costUsd"] is None
