"""Resident pages of the search files: dropped when they are not needed, retained during searches."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest

from burnd import memory
from burnd.search import page_limit
from burnd.search.page_limit import PageLimit


@pytest.mark.parametrize(
    ("mapped", "reading", "searched", "given_back"),
    [
        (page_limit.USUAL, False, False, False),
        (page_limit.USUAL + 1, False, False, True),
        (page_limit.USUAL + 1, False, True, False),
        (page_limit.SEARCHING + 1, False, True, True),
        (page_limit.READING + 1, True, True, True),
    ],
)
async def test_unused_pages_are_returned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mapped: int, reading: bool, searched: bool, given_back: bool
) -> None:
    """The limit is higher during searches and lower during a backlog."""
    paged: list[Path] = []
    monkeypatch.setattr(memory, "file_bytes", lambda: mapped)
    monkeypatch.setattr(memory, "page_out", paged.append)
    monkeypatch.setattr(page_limit, "_LOOK_S", 0.001)
    kept = PageLimit(tmp_path, lambda: reading, lambda: 100.0)
    kept.writing()
    if searched:
        kept.searched()
    with anyio.move_on_after(0.1):
        await kept.keep()
    assert bool(paged) == given_back


async def test_it_rests_when_all_is_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After the last search and the last writer it looks once more, gives back what is left, and is not woken again."""
    looks = 0
    now = 100.0

    def look() -> int:
        nonlocal looks, now
        looks += 1
        now += 4.0
        return page_limit.USUAL + 1

    paged: list[float] = []
    monkeypatch.setattr(memory, "file_bytes", look)
    monkeypatch.setattr(memory, "page_out", lambda _: paged.append(now))
    monkeypatch.setattr(page_limit, "_LOOK_S", 0.001)
    kept = PageLimit(tmp_path, lambda: False, lambda: now)
    kept.searched()
    with anyio.move_on_after(0.1):
        await kept.keep()
    assert looks == 3
    assert paged == [112.0]
