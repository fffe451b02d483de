"""Entries of instruction files, and BM25 over them."""

from __future__ import annotations

import pytest

from burnd.instructions.entries import MemoryEntry, MemoryFile, Query, entries

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
