"""F78: search skips sessions and messages that crashed earlier processes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from burnd import __version__
from burnd.recording.candidate import Batch
from burnd.recording.crash_guard import CRASHES, CRASHES_OF_WHOLE, LAST_CRASH, WHOLE, InProcessGuard
from burnd.search.filler import IndexFiller
from burnd.search.index import WORDS, Folders, SearchIndex
from burnd.tokens.words import SIGNS
from tests.conftest import Opened
from tests.make import START_MS, text
from tests.search.library import library


def leave_behind(
    path: Path, names: Sequence[str] = (), skipped: Sequence[tuple[str, str]] = (), version: str = __version__
) -> None:
    """A note as a process leaves it that crashed."""
    path.with_name(LAST_CRASH).touch()
    crashes = [
        (name, item, CRASHES if item != WHOLE else CRASHES_OF_WHOLE, START_MS, version) for name, item in skipped
    ]
    data = msgspec.msgpack.encode((names, None, crashes))
    path.write_bytes(len(data).to_bytes(4, "big") + data)


def counted(monkeypatch: pytest.MonkeyPatch, kind: type[Any], name: str) -> Counter[str]:
    calls: Counter[str] = Counter()
    method = getattr(kind, name)

    def count(self: Any, *arguments: Any) -> Any:
        calls[str(arguments[0]) if arguments else ""] += 1
        return method(self, *arguments)

    monkeypatch.setattr(kind, name, count)
    return calls


async def test_a_session_that_is_passed_over_is_not_touched(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    """F78: neither added to nor taken out, and yet nothing of it is left in any file when it is forgotten."""
    async with library(opened) as lib:
        await lib.add(text("m1", "appleone", session_id="bad"), text("m1", "appletwo", session_id="good"))
    leave_behind(opened.home.index / "searching", skipped=[("bad", WHOLE)])
    removed = counted(monkeypatch, SearchIndex, "remove_session")
    async with library(opened) as lib:
        await lib.add(text("m2", "pearone", session_id="bad"), text("m2", "peartwo", session_id="good"))
        assert await lib.found("pearone") == []
        assert len(await lib.found("peartwo")) == 1
        assert "passes over bad," in lib.indexer.skipped_summary
        await lib.pipeline.forget(["bad"])
        await lib.calm()
        assert not lib.holds("appleone")
        assert len(await lib.found("appletwo")) == 1
    assert removed["bad"] == 0


async def test_what_is_passed_over_costs_other_sessions_nothing(
    opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    """F78: no documents are added one by one, and no notes are written."""
    opened.home.index.mkdir(parents=True)
    leave_behind(opened.home.index / "searching", skipped=[("bad", "main m1")])
    noted = counted(monkeypatch, InProcessGuard, "item")
    async with library(opened) as lib:
        await lib.add(*(text(f"m{n}", "apple", session_id=name) for name in ("bad", "good") for n in range(5)))
        found = await lib.found("apple", all=True)
        assert Counter(name for name, _ in found) == {"bad": 4, "good": 5}
    assert not noted


async def test_each_suspect_is_committed_by_itself(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    """F78: after a crash in a backlog many sessions are suspects; the next run finds out which one it was."""
    names = [f"s{n}" for n in range(20)]
    pipeline = await opened()
    await pipeline.commit(Batch(content=[text("m", "apple", session_id=name) for name in [*names, "other"]]))
    await opened.close()
    leave_behind(opened.home.index / "searching", names)
    commits = counted(monkeypatch, SearchIndex, "commit")
    async with library(opened) as lib:
        await lib.calm()
        assert sum(lib.index.searcher.doc_freq(WORDS, sign + "apple") for sign in SIGNS.values()) == 21
    assert 20 <= commits.total() <= 24


async def test_a_skipped_message_is_tried_again_by_another_version(opened: Opened) -> None:
    """F78: with the rest of its session, of which nothing is in the index twice."""
    opened.home.index.mkdir(parents=True)
    leave_behind(opened.home.index / "searching", skipped=[("bad", "main m1")])
    async with library(opened) as lib:
        await lib.add(*(text(f"m{n}", "apple", session_id="bad") for n in range(3)))
        assert len(await lib.found("apple", all=True)) == 2
    leave_behind(opened.home.index / "searching", skipped=[("bad", "main m1")], version="0.0.1")
    async with library(opened) as lib:
        await lib.calm()
        assert len(await lib.found("apple", all=True)) == 3
        assert lib.indexer.skipped_summary == ""
        assert lib.documents() == 3


async def test_a_batch_of_sessions_has_one_note(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    """It names the whole batch: a note per session would be most of the bytes written."""
    writes = counted(monkeypatch, InProcessGuard, "_write")
    async with library(opened) as lib:
        await lib.add(*(text("m", "apple", session_id=f"s{n}") for n in range(100)))
    assert writes.total() < 20


def _fillers(folder: Path) -> tuple[InProcessGuard, IndexFiller, IndexFiller]:
    """The index in use and the one that is built to replace it, with the note that they share."""
    folder.mkdir(parents=True, exist_ok=True)
    guard = InProcessGuard(folder / "searching", START_MS)
    folders, fillers = Folders(folder / "search"), list[IndexFiller]()
    return guard, IndexFiller(folders.create(), guard, fillers), IndexFiller(folders.create(), guard, fillers)


def _noted(folder: Path) -> list[str]:
    data = (folder / "searching").read_bytes()
    names, *_ = msgspec.msgpack.decode(data[4 : 4 + int.from_bytes(data[:4], "big")])
    return sorted(names)


def test_what_two_indexes_have_in_progress_is_noted_together(tmp_path: Path) -> None:
    """F78: while an index is replaced, the note names the sessions in progress of both."""
    _, in_use, replacement = _fillers(tmp_path)
    in_use.begin(["a"])
    replacement.begin(["b", "c"])
    assert _noted(tmp_path) == ["a", "b", "c"]
    in_use.commit()
    assert _noted(tmp_path) == ["b", "c"]
    in_use.begin(["d"])
    replacement.retire()
    assert _noted(tmp_path) == ["d"]
    in_use.close_writer()
    assert _noted(tmp_path) == []


def test_a_suspect_is_in_progress_alone(tmp_path: Path) -> None:
    """F78: the other index commits first, so that a crash points to the suspect."""
    leave_behind(tmp_path / "searching", ["bad"])
    guard, in_use, replacement = _fillers(tmp_path)
    replacement.begin(["good"])
    in_use.begin(["bad"])
    assert _noted(tmp_path) == ["bad"]
    replacement.begin(["good"])
    assert _noted(tmp_path) == ["good"]
    assert "bad" in guard.suspects()
