"""Selects and reads instruction and memory files; splits them into entries and ranks these."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path
from typing import Any

import pytest

from burnd import instructions
from burnd.instructions import FilesRead, Homes, MemoryEntry, MemoryFile, Query, Reader, entries


class Disk:
    """A user's home and projects below a folder."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.user = root / "user"
        config = self.user / ".config" / "opencode"
        self.homes = Homes(
            str(self.user),
            {
                "claude-code": [str(self.user / ".claude")],
                "codex": [str(self.user / ".codex")],
                "opencode": [str(config)],
            },
        )

    def write(self, path: str, text: str = "words") -> str:
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        return str(file)

    async def read(self, *projects: str) -> FilesRead:
        return await Reader().read(self.homes, [str(self.root / project) for project in projects])

    async def paths(self, *projects: str) -> list[str]:
        found = await self.read(*projects)
        return sorted(os.path.relpath(file.path, self.root) for file in found.files)


@pytest.fixture
def disk(tmp_path: Path) -> Disk:
    return Disk(Path(os.path.realpath(tmp_path)))


async def test_every_kind_is_read(disk: Disk) -> None:
    """A user's own files, memories of any project, and of a project those of its folder and above it."""
    slug = "".join(letter if letter.isalnum() else "-" for letter in str(disk.root / "code" / "shop"))
    expected = {
        "user/.claude/CLAUDE.md": ("claude-md", None),
        "user/.claude/rules/style.md": ("claude-md", None),
        "user/.codex/AGENTS.md": ("agents-md", None),
        "user/.config/opencode/AGENTS.md": ("agents-md", None),
        f"user/.claude/projects/{slug}/memory/MEMORY.md": ("claude-memory", "code/shop"),
        f"user/.claude/projects/{slug}/memory/deep/topic.md": ("claude-memory", "code/shop"),
        "user/.claude/projects/-gone/memory/old.md": ("claude-memory", None),
        "code/CLAUDE.md": ("claude-md", "code"),
        "code/shop/CLAUDE.md": ("claude-md", "code/shop"),
        "code/shop/.claude/CLAUDE.md": ("claude-md", "code/shop"),
        "code/shop/CLAUDE.local.md": ("claude-md", "code/shop"),
        "code/shop/.claude/rules/api/rest.md": ("claude-md", "code/shop"),
        "code/shop/AGENTS.md": ("agents-md", "code/shop"),
        "code/shop/docs/guide.md": ("claude-md", "code/shop"),
        "code/shop/rules/one.md": ("opencode", "code/shop"),
        "code/shop/rules/deep/two.md": ("opencode", "code/shop"),
        "code/shop/CONTRIBUTING.md": ("opencode", "code/shop"),
    }
    for path in expected:
        disk.write(path, path)
    disk.write("code/shop/CLAUDE.md", "See @docs/guide.md, not `@README.md`.")
    disk.write("code/shop/README.md")
    disk.write("code/shop/rules/one.txt")
    disk.write("code/other/CLAUDE.md", "never worked in")
    named = ["rules/**/*.md", "CONTRIBUTING.md", "https://example.com/rules.md"]
    disk.write("code/shop/opencode.jsonc", f'{{// comment\n"instructions": {json.dumps(named)}, /* more */}}')
    found = await disk.read("code/shop")
    read = {
        os.path.relpath(file.path, disk.root): (
            file.kind,
            os.path.relpath(file.project, disk.root) if file.project else None,
        )
        for file in found.files
    }
    assert read == expected
    assert found.is_whole
    assert found.skipped == {}


async def test_a_file_is_read_once(disk: Disk) -> None:
    """By two names, for two projects, or imported in a circle."""
    disk.write("code/AGENTS.md", "@AGENTS.md @a/CLAUDE.md")
    disk.write("code/a/CLAUDE.md", "@CLAUDE.md @../AGENTS.md")
    disk.write("code/b/x")
    os.symlink("AGENTS.md", disk.root / "code" / "CLAUDE.md")
    (disk.root / "code" / ".git").mkdir()
    assert await disk.paths("code/a", "code/b", "code") == ["code/AGENTS.md", "code/a/CLAUDE.md"]


@pytest.mark.parametrize("name", ["CLAUDE.md", ".claude/rules/x.md", "opencode"])
async def test_a_project_cannot_lead_out_of_itself(disk: Disk, name: str) -> None:
    """A link, an import or a pattern in a repository does not make the user's secrets an instruction."""
    secret = disk.write("user/.ssh/id_rsa", "SECRET")
    (disk.root / "code" / ".git").mkdir(parents=True)
    if name == "opencode":
        patterns = [secret, "~/.ssh/*", "../user/.ssh/id_rsa", f"{disk.root}/user/**", "/**/id_rsa"]
        disk.write("code/opencode.json", json.dumps({"instructions": patterns}))
    else:
        (disk.root / "code" / name).parent.mkdir(parents=True, exist_ok=True)
        os.symlink(secret, disk.root / "code" / name)
    disk.write("code/AGENTS.md", "fine")
    disk.write("code/CLAUDE.local.md", "@~/.ssh/id_rsa @../user/.ssh/id_rsa @" + secret)
    found = await disk.read("code")
    assert not any("SECRET" in file.text for file in found.files)
    assert found.skipped["links"] >= 1
    assert "fine" in [file.text for file in found.files]


async def test_a_home_in_git_is_not_one_project(disk: Disk) -> None:
    """A folder in it that is not a repository does not give access to the rest of the home."""
    secret = disk.write("user/.ssh/id_rsa", "SECRET")
    (disk.user / ".git").mkdir()
    (disk.user / "download").mkdir()
    os.symlink(secret, disk.user / "download" / "CLAUDE.md")
    found = await disk.read("user/download")
    assert (found.files, found.skipped) == ([], {"links": 1})


async def test_a_user_may_link_own_files(disk: Disk) -> None:
    target = disk.write("user/dotfiles/claude.md", "mine")
    (disk.user / ".claude").mkdir()
    os.symlink(target, disk.user / ".claude" / "CLAUDE.md")
    assert [file.text for file in (await disk.read()).files] == ["mine"]


async def test_what_is_no_small_file_of_ours_is_not_read(disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pipes, folders, huge files and files of other users; others are read all the same."""
    os.mkdir(disk.root / "code")
    os.mkfifo(disk.root / "code" / "CLAUDE.md")
    os.mkdir(disk.root / "code" / "AGENTS.md")
    disk.write("code/CLAUDE.local.md", "x" * (instructions.LARGEST_FILE + 1))
    foreign = disk.write("code/AGENTS.override.md", "theirs")
    disk.write("code/CONTEXT.md", "ours")
    fstat = os.fstat

    def owned(fd: int) -> os.stat_result:
        facts = fstat(fd)
        if os.path.samestat(facts, os.stat(foreign)):
            facts = os.stat_result((*facts[:4], 12345, *facts[5:]))
        return facts

    monkeypatch.setattr(os, "fstat", owned)
    found = await disk.read("code")
    assert [file.text for file in found.files] == ["ours"]
    assert found.skipped == {"large": 1, "foreign": 1}


async def test_names_out_of_logs_may_be_anything(disk: Disk) -> None:
    disk.write("code/AGENTS.md")
    odd = ["relative", "", "/" + "a/" * 60_000, "/nul\0byte", "/proc/self/fd/0", "/dev/stdin", "/" + "x" * 10_000]
    found = await Reader().read(disk.homes, [*odd, str(disk.root / "code")])
    assert [file.text for file in found.files] == ["words"]


async def test_there_are_bounds(disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    """Limits on files, bytes and projects: the answer says that it is incomplete."""
    for n in range(8):
        disk.write(f"code/p{n}/AGENTS.md", f"{n}" * 100)
    projects = [f"code/p{n}" for n in range(8)]
    assert (await disk.read(*projects)).is_whole
    for name, most in (("MOST_FILES", 3), ("MOST_BYTES", 300), ("MOST_PROJECTS", 3)):
        with monkeypatch.context() as patched:
            patched.setattr(instructions, name, most)
            found = await disk.read(*projects)
            assert (len(found.files), found.is_whole) == (3, False), name


async def test_a_wide_pattern_visits_a_bounded_number_of_folders(disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    for n in range(30):
        disk.write(f"code/d{n}/e/x.txt")
    disk.write("code/opencode.json", '{"instructions": ["**/**/**/**/nothing*.md"]}')
    seen: list[Any] = []
    scandir = os.scandir
    monkeypatch.setattr(instructions, "_MOST_VISITED", 20)

    def counted(path: Any) -> Any:
        seen.append(path)
        return scandir(path)

    monkeypatch.setattr(os, "scandir", counted)
    await disk.read("code")
    assert len(seen) < 40


async def test_a_folder_that_does_not_answer_is_skipped(disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    """The others are read, its name is in the answer, and the next request does not wait for it."""
    for name in ("a", "dead", "b"):
        disk.write(f"code/{name}/AGENTS.md", name)
    wake = threading.Event()
    opened = instructions._opened
    waits = []

    def hanging(path: str, most: int) -> Any:
        if "/dead/" in path:
            waits.append(path)
            wake.wait()
        return opened(path, most)

    monkeypatch.setattr(instructions, "_opened", hanging)
    monkeypatch.setattr(instructions, "_NO_PROGRESS_S", 0.2)
    reader = Reader()
    projects = [str(disk.root / "code" / name) for name in ("a", "dead", "b")]
    for _ in range(2):
        found = await reader.read(disk.homes, projects)
        assert [file.text for file in found.files] == ["a", "b"]
        assert found.unanswered == [projects[1]]
    assert len(waits) == 1
    wake.set()


PAGE = """Read this first.

# Shop

## Deploying

Run `make deploy` for staging.

```sh
# not a heading
make deploy
```

### Rolling back

Use the previous tag.

## Tests
"""


def file(
    text: str, path: str = "/code/shop/CLAUDE.md", kind: str = "claude-md", *, is_memory: bool = False
) -> MemoryFile:
    return MemoryFile(path, kind, "/code/shop", 0, text, is_memory)


def best(query: str, *texts: str) -> list[str]:
    found = entries(file(text, f"/code/{n}/CLAUDE.md") for n, text in enumerate(texts))
    return [match.entry.text for match in Query(query).rank(found)]


def test_a_file_is_split_at_its_headings() -> None:
    """The first two levels begin a section; lines of code do not, and a heading without a text is no entry."""
    found = entries([file(PAGE)])
    assert [(entry.heading, entry.line) for entry in found] == [("", 1), ("Deploying", 5)]
    assert found[0].text == "Read this first."
    assert found[1].text.startswith("## Deploying\n\nRun `make deploy`")
    assert found[1].text.endswith("### Rolling back\n\nUse the previous tag.")


@pytest.mark.parametrize(
    ("lines", "headings"),
    [
        ("```make``` builds it", ["One", "Two"]),
        ("````md\n```\n# Shown\n```\n````", ["One", "Two"]),
        ("~~~\n```\n# Shown\n~~~", ["One", "Two"]),
        ("```\n```js\n# Shown\n```", ["One", "Two"]),
        ("```\nnever closed", ["One"]),
    ],
)
def test_code_blocks_end_where_markdown_ends_them(lines: str, headings: list[str]) -> None:
    found = entries([file(f"# One\n{lines}\n# Two\nlast\n")])
    assert [entry.heading for entry in found] == headings


def test_a_memory_is_one_entry_by_its_name() -> None:
    path = "/home/dev/.claude/projects/-code-shop/memory/release-steps.md"
    (entry,) = entries([file("---\nname: x\n---\n# One\n\ntext\n# Two\n\ntext", path, is_memory=True)])
    assert entry.heading == "release-steps"
    assert entry.text.endswith("# Two\n\ntext")
    assert entries([file(" \n", path, is_memory=True)]) == []


def test_equal_sections_are_one_entry() -> None:
    """Worktrees have the same files: they are named, not repeated."""
    (entry,) = entries([file("## A\nb", "/one/CLAUDE.md"), file("## A\nb", "/two/CLAUDE.md")])
    assert (entry.file.path, entry.copies) == ("/one/CLAUDE.md", ("/two/CLAUDE.md",))


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("DEPLOY", ["deploy to staging"]),
        ("Café", ["the cafe service", "un café"]),
        ("user", ["call getUserName"]),
        ("getUserName", ["call getUserName"]),
        ('"to staging"', ["deploy to staging"]),
        ('"staging to"', []),
        ("重构", ["请重构这个模块"]),
        ("nowhere", []),
    ],
)
def test_words_are_folded_as_in_search(query: str, expected: list[str]) -> None:
    texts = ["deploy to staging", "the cafe service", "un café", "call getUserName", "请重构这个模块"]
    assert sorted(best(query, *texts)) == sorted(expected)


def test_what_has_more_and_rarer_words_comes_first() -> None:
    """BM25: a rare word counts more than a common one, and a word in a short entry more than in a long one."""
    common = ["the build " * 3, "the build is slow", "the build of the shop"]
    assert best("build zebra", *common, "zebra")[0] == "zebra"
    assert best("build zebra", *common, "zebra", "the zebra build")[0] == "the zebra build"
    assert best("zebra", "zebra " + "word " * 200, "zebra crossing")[0] == "zebra crossing"


def test_a_heading_counts_more() -> None:
    body = "Ask in the channel first."
    assert best("deploy", f"## Other\n{body} deploy", f"## Deploy\n{body} other")[0].startswith("## Deploy")


def test_scores_are_those_of_bm25() -> None:
    """By hand: N = 2, df = 1, lengths 1 and 3, so rarity ln 2 and tf 1."""
    (match,) = Query("zebra").rank([MemoryEntry(file(""), "", 1, "zebra"), MemoryEntry(file(""), "", 1, "a b c")])
    assert match.score == pytest.approx(0.6931 * 2.2 / (1 + 1.2 * (0.25 + 0.75 * 1 / 2)), abs=1e-3)


def test_a_query_without_words_has_none() -> None:
    assert Query("!!! --").weights == {}
    assert len(Query(" ".join(f"word{n}" for n in range(5000))).weights) == 64
