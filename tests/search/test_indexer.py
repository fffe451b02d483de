"""The search index after crashes, damage, prunes and rebuilds: it has what the content has."""

from __future__ import annotations

import builtins
import os
import random
import shutil
import signal
import sqlite3
import stat
import subprocess
import sys
import threading
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest

from burnd.recording import background
from burnd.recording.candidate import Batch
from burnd.recording.crash_guard import InProcessGuard
from burnd.records import Content, Session
from burnd.records.times import to_iso
from burnd.search import backlog, indexer
from burnd.search.documents import NO_COVERAGE, Coverage, Document, MessageName
from burnd.search.filler import IndexFiller, RecentWords
from burnd.search.index import Folders, SearchIndex, Unusable
from burnd.search.indexer import SearchIndexer
from tests.conftest import Opened
from tests.make import at, text, tool_result, turn
from tests.search.library import Library, library, until
from tests.server.wire import noise

SECRET = "xqzcanaryjv"


@pytest.mark.timed
async def test_a_message_is_found_within_a_second(opened: Opened) -> None:
    """From the batch that holds it, while others keep coming."""
    async with library(opened, soon_s=indexer.SOON_S) as lib:
        for i in range(5):
            await lib.pipeline.commit(Batch(content=[text(f"m{i}", f"word{i}x", ts=at(3600 + i))]))
            await until(partial(lib.found, f"word{i}x"), 2 * noise())


async def test_recording_does_not_wait_for_a_commit(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    """Messages are recorded while search commits, and what came meanwhile is committed together."""
    commit, begun, may_end, commits = SearchIndex.commit, threading.Event(), threading.Event(), []

    def slowly(self: SearchIndex) -> None:
        begun.set()
        may_end.wait(60)
        commits.append(1)
        commit(self)

    async with library(opened) as lib:
        monkeypatch.setattr(SearchIndex, "commit", slowly)
        await lib.pipeline.commit(Batch(content=[text("first", "apple")]))
        await until(begun.is_set)
        for i in range(50):
            await lib.pipeline.commit(Batch(content=[text(f"m{i}", "apple")]))
        may_end.set()
        await lib.calm()
        assert len(commits) <= 3
        assert lib.documents() == 51


async def test_a_restart_finds_the_same_and_reads_nothing_again(opened: Opened) -> None:
    """Committed documents stay, and nothing is due."""
    async with library(opened) as lib:
        await lib.add(*[text(f"m{i}", f"apple word{i}") for i in range(10)])
        folder = lib.index.folder
    async with library(opened) as lib:
        assert lib.index.folder == folder
        assert lib.indexer.status() == indexer.SearchStatus("ready", 0)
        assert len(await lib.found("apple", all=True)) == 10


async def test_uncommitted_documents_are_indexed_at_the_next_start(opened: Opened) -> None:
    """Content that was recorded while search was not running, or before its commit, is not lost to it."""
    async with library(opened) as lib:
        await lib.add(text("m0", "apple"))
    pipeline = await opened()
    await pipeline.commit(Batch(content=[text("m1", "apple"), text("m0", "more", n=1)]))
    await opened.close()
    async with library(opened) as lib:
        await lib.calm()
        assert len(await lib.found("apple", all=True)) == 2
        assert await lib.found('"apple more"') == [("s1", 0)]


def test_a_commit_has_messages_and_their_coverage_or_neither(tmp_path: Path) -> None:
    """Opened after a crash, an index has exactly the messages that its coverage counts."""

    def add(index: SearchIndex, session_id: str, message_id: str, coverage: Coverage | None) -> None:
        index.add(Document(MessageName(session_id, "main", message_id), 1, ["apple"]), coverage)

    index = SearchIndex(tmp_path / "search")
    add(index, "s1", "m1", None)
    add(index, "s1", "m2", Coverage(100, 2))
    add(index, "s1", "", Coverage(0, 2, 3))
    add(index, "s2", "m1", Coverage(7))
    index.commit()
    add(index, "s1", "m3", Coverage(200, 2))
    index.remove_session("s2")
    index.close_writer()
    again = SearchIndex(tmp_path / "search")
    assert [again.coverage(name) for name in ("s1", "s2", "s3")] == [Coverage(100, 2, 3), Coverage(7), NO_COVERAGE]
    assert again.searcher.num_docs == 4
    again.remove_session("s2")
    add(again, "s1", "m3", Coverage(200, 2))
    again.has_erased = True
    again.commit()
    again.close_writer()
    last = SearchIndex(tmp_path / "search")
    assert (last.coverage("s1"), last.coverage("s2"), last.has_erased) == (Coverage(200, 2, 3), NO_COVERAGE, True)


async def test_a_failed_commit_is_repeated_and_nothing_is_doubled(
    opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The index is opened again, and what was not committed is indexed again, once."""
    commit, failures = SearchIndex.commit, iter([True, False])

    def fails_once(self: SearchIndex) -> None:
        if next(failures, False):
            raise Unusable("no space left")
        commit(self)

    async with library(opened) as lib:
        await lib.add(text("m0", "apple", session_id="s0"))
        monkeypatch.setattr(background, "FIRST_RETRY_S", 0.01)
        monkeypatch.setattr(SearchIndex, "commit", fails_once)
        await lib.add(*[text("m1", "apple", session_id=f"s{n}") for n in range(20)])
        assert lib.documents() == 21
        assert len(await lib.found("apple", limit=20)) == 20


async def test_a_piece_that_fails_after_another_is_retried(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    """Documents from before the failure are committed with later ones."""
    take_all, takes = IndexFiller.take_all, []

    def fails_second(self: IndexFiller, *arguments: Any) -> None:
        takes.append(1)
        if len(takes) == 2:
            raise Unusable("no space left")
        take_all(self, *arguments)

    async with library(opened) as lib:
        monkeypatch.setattr(background, "FIRST_RETRY_S", 0.01)
        monkeypatch.setattr(indexer, "SESSIONS_AT_ONCE", 1)
        monkeypatch.setattr(indexer, "MESSAGES_AT_ONCE", 1)
        monkeypatch.setattr(IndexFiller, "take_all", fails_second)
        await lib.add(*[text("m1", "apple", session_id=f"s{n}") for n in range(3)])
        assert len(takes) > 2
        assert lib.documents() == 3


async def test_a_backlog_is_made_findable_in_few_pieces(opened: Opened) -> None:
    """Old logs wait for large commits, since each commit is expensive; live messages are searchable soon."""
    reading = True
    async with library(opened, is_reading=lambda: reading) as lib:
        for i in range(5):
            await lib.pipeline.commit(Batch(content=[text(f"m{i}", "apple", ts=at(-(10**6)))]))
        await anyio.sleep(0.1)
        assert lib.documents() == 0
        assert lib.indexer.status().pending == 1
        now = to_iso(lib.pipeline.now())
        await lib.pipeline.commit(Batch(content=[text("new", "brandnew", session_id="s2", ts=now)]))
        await until(partial(lib.found, "brandnew"))
        await lib.pipeline.commit(Batch(content=[text("m9", "apple", ts=at(-(10**6)))]))
        reading = False
        await lib.calm()
        assert lib.documents() == 7
        assert lib.index.searcher.num_segments <= 2


async def test_a_live_message_does_not_wait_for_old_ones(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is found although old messages arrive during every piece of work."""
    take = SearchIndexer._take

    async def take_while_more_arrive(self: SearchIndexer, filler: Any, session_ids: list[str]) -> None:
        await take(self, filler, session_ids)
        self._touched["old"] = None

    monkeypatch.setattr(SearchIndexer, "_take", take_while_more_arrive)
    async with library(opened, is_reading=lambda: True) as lib:
        await lib.pipeline.commit(Batch(content=[text("m", "brandnew", ts=to_iso(lib.pipeline.now()))]))
        await until(partial(lib.found, "brandnew"))


async def test_the_end_of_a_backlog_is_made_findable_at_once(opened: Opened) -> None:
    """The last messages of old logs do not wait for others to be committed with them."""
    reading = True
    async with library(opened, soon_s=3600, is_reading=lambda: reading) as lib:
        await lib.pipeline.commit(Batch(content=[text("m0", "apple", ts=at(-(10**6)))]))
        await anyio.sleep(0.05)
        assert lib.documents() == 0
        reading = False
        await lib.pipeline.commit(Batch(content=[text("m1", "pear", ts=at(-(10**6)))]))
        await until(partial(lib.found, "pear"))


async def test_a_new_message_costs_the_same_in_a_long_session(opened: Opened) -> None:
    """Recorded messages are indexed directly, without a scan of the session's rows."""
    async with library(opened) as lib:
        plans = dict[str, tuple[int, int]]()

        async def grow(session: str, first: int) -> None:
            before = {name: lib.index.coverage(name) for name in ("short", "long")}.__getitem__
            said = [text(f"m{first}", "new", session_id=session), text("m0", "more", session_id=session, n=9)]
            recent = RecentWords()
            lib.pipeline.follow(lambda change: recent.add(change.placed))
            await lib.pipeline.commit(Batch(content=said))
            lib.pipeline._listeners.pop()
            told = await lib.pipeline.index.ask(lambda db: _planned(db, session, before, recent.between))
            found = await lib.pipeline.index.ask(lambda db: _planned(db, session, before, lambda *_: ()))
            assert _positions(told[0]) == _positions(found[0])
            assert told[0].after == found[0].after
            assert {message.name.message_id: message.is_indexed for message in told[0].messages} == {
                "m0": True,
                f"m{first}": False,
            }
            assert all(message.is_indexed for message in found[0].messages)  # to be on the safe side
            plans[session] = told[1], found[1]
            await lib.calm()

        await lib.add(*[text(f"m{i}", "apple", session_id="short") for i in range(5)])
        await lib.add(*[text(f"m{i}", "apple", session_id="long") for i in range(1500)])
        await grow("short", 5)
        await grow("long", 1500)
        assert plans["long"][0] < 2 * plans["short"][0] < plans["long"][1]
        assert lib.documents() == 1507


@pytest.mark.parametrize("at_hand", [True, False])
async def test_a_rewritten_message_is_found_by_its_new_words(
    opened: Opened, monkeypatch: pytest.MonkeyPatch, at_hand: bool
) -> None:
    """Old words go with the old line, in any pieces."""
    monkeypatch.setattr(backlog, "AT_ONCE_BYTES", 1000)
    if not at_hand:
        monkeypatch.setattr(RecentWords, "add", lambda *_: None)
    async with library(opened) as lib:
        await lib.add(text("m0", "apple"), *[text(f"m{i}", "plum") for i in range(1, 20)], text("m0", "cherry"))
        await lib.add(text("m1", "pear"))
        assert lib.documents() == 20
        assert [len(await lib.found(word)) for word in ("apple", "cherry", "pear")] == [0, 1, 1]


def _positions(plan: backlog.SessionPlan) -> list[Any]:
    return sorted((message.name, [record[:2] for record in message.records]) for message in plan.messages)


def _planned(db: sqlite3.Connection, session_id: str, known: Any, landed: Any) -> tuple[backlog.SessionPlan, int]:
    """The plan for a session, and its SQLite steps."""
    steps = 0

    def count() -> None:
        nonlocal steps
        steps += 1

    db.set_progress_handler(count, 1)
    ((plan,), _) = backlog.plans(db, [session_id], known, 100, lambda _: False, landed)
    db.set_progress_handler(None, 1)
    return plan, steps


async def test_words_in_memory_go_with_their_content(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    """Words of a forgotten session are not used for records at the same position."""
    async with library(opened) as lib:
        monkeypatch.setattr(SearchIndexer, "_work", lambda *_: anyio.sleep(0.01))
        await lib.pipeline.commit(Batch(content=[text("m0", SECRET)]))
        await anyio.sleep(0.05)
        await lib.pipeline.forget(["s1"])
        monkeypatch.setattr(RecentWords, "add", lambda *_: None)
        await lib.pipeline.commit(Batch(content=[text("m1", "apple", ts=at(7200))]))
        monkeypatch.undo()
        await lib.calm()
        assert not lib.holds(SECRET)
        assert len(await lib.found("apple")) == 1


def _remove(folder: Path) -> None:
    shutil.rmtree(folder)


def _break_meta(folder: Path) -> None:
    next(folder.glob("*/meta.json")).write_text("{")


def _cut_segments(folder: Path) -> None:
    for path in folder.glob("*/*.term"):
        path.write_bytes(path.read_bytes()[:10])


def _other_layout(folder: Path) -> None:
    (current,) = folder.iterdir()
    current.rename(folder / "v0-old")


def _stray(folder: Path) -> None:
    shutil.copytree(next(folder.iterdir()), folder / "v1-stray")


@pytest.mark.parametrize("harm", [_remove, _break_meta, _cut_segments, _other_layout, _stray])
async def test_lost_or_damaged_index_files_are_rebuilt(opened: Opened, harm: Any) -> None:
    """Missing, damaged or of another layout: it is built from content, and nothing else is left in its folder."""
    async with library(opened) as lib:
        await lib.add(*[text(f"m{i}", f"apple word{i}") for i in range(10)])
    harm(opened.home.search)
    async with library(opened) as lib:
        with anyio.fail_after(60):
            while True:
                try:
                    if len(await lib.found("apple", all=True)) == 10:
                        break
                except (Unusable, AssertionError):
                    lib.indexer.report_damage()
                await anyio.sleep(0.05)
        await lib.calm()
        assert [path.name for path in opened.home.search.iterdir()] == [lib.index.folder.name]


async def test_an_older_copy_of_the_files_is_not_believed(opened: Opened) -> None:
    """Index files from a backup lack later documents: they are rebuilt."""
    async with library(opened) as lib:
        await lib.add(text("m0", "apple"))
        await lib.add(text("m1", "apple"))
    copy = opened.home.root / "copy"
    shutil.copytree(opened.home.search, copy)
    async with library(opened) as lib:
        await lib.add(text("m2", "apple"))
    shutil.rmtree(opened.home.search)
    copy.rename(opened.home.search)
    async with library(opened) as lib:
        await lib.calm()
        assert len(await lib.found("apple", all=True)) == 3


async def test_the_index_database_may_be_rebuilt(opened: Opened) -> None:
    """Its rows get other numbers; search does not depend on them, running or stopped."""
    async with library(opened) as lib:
        for session in ("zz", "aa", "mm"):
            await lib.add(*[text(f"m{i}", f"apple {session}{i}", session_id=session) for i in range(5)])
        before = sorted(await lib.found("apple", all=True, limit=20))
        await lib.pipeline.rebuild_index()
        assert sorted(await lib.found("apple", all=True, limit=20)) == before
        await lib.add(text("m9", "apple", session_id="mm"))
    shutil.rmtree(opened.home.index)
    async with library(opened) as lib:
        await lib.calm()
        assert sorted(await lib.found("apple", all=True, limit=20)) == sorted([*before, ("mm", 5)])


async def fill_with_secret(lib: Library) -> None:
    """A secret in every searchable place, among other text."""
    for i in range(5):
        await lib.add(*[text(f"m{i}-{n}", f"innocent words {i} {n}", session_id="kept") for n in range(20)])
        await lib.add(text(f"s{i}", f"the key is {SECRET}{i}", session_id="gone"))
    await lib.add(
        tool_result("r", "x" * 3000 + f" {SECRET}"),
        text("title:ai", f"About {SECRET}", role="system", kind="title", session_id="gone"),
        entries=[turn("s0", session_id="gone")],
    )
    await lib.add(tool_result("r", "x " * 3000 + SECRET, session_id="gone"))


async def test_what_is_forgotten_is_gone_at_once_and_from_every_file(opened: Opened) -> None:
    """A pruned session is no hit any more, and soon its words are in no file of the index."""
    async with library(opened) as lib:
        await fill_with_secret(lib)
        assert lib.holds(SECRET)
        await lib.pipeline.forget(["gone", "s1"])
        assert await lib.found(SECRET) == []
        assert await lib.found(f"{SECRET}3") == []
        await lib.calm()
        assert not any(lib.holds(f"{SECRET}{n}") for n in ("", 0, 1, 2, 3, 4))
        assert len(await lib.found("innocent", all=True, limit=20)) == 20
        assert [path.name for path in opened.home.search.iterdir()] == [lib.index.folder.name]
        for path in lib.files():
            assert SECRET.encode() not in path.read_bytes()


async def test_a_prune_that_a_crash_cut_short_is_finished(opened: Opened) -> None:
    """Pruned while search was not running: the next start takes the words out."""
    async with library(opened) as lib:
        await fill_with_secret(lib)
    pipeline = await opened()
    await pipeline.forget(["gone", "s1"])
    await pipeline.commit(Batch(content=[text("new", "apple", ts=at(7200), session_id="gone")]))
    await opened.close()
    async with library(opened) as lib:
        await lib.calm()
        assert not lib.holds(SECRET)
        assert await lib.found("apple") == [("gone", 0)]


async def test_new_messages_are_found_while_it_is_rebuilt(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    """The old index answers and is updated until the new one is complete."""
    monkeypatch.setattr(indexer, "SESSIONS_AT_ONCE", 1)
    monkeypatch.setattr(indexer, "MESSAGES_AT_ONCE", 1)
    async with library(opened) as lib:
        await lib.add(*[text(f"m{i}", "apple", session_id=f"s{i}") for i in range(150)])
        await lib.pipeline.forget(["s3"])
        await until(lambda: lib.indexer.status().state == "rebuilding")
        await lib.pipeline.commit(Batch(content=[text("m", "brandnew", session_id="s9", ts=at(3600))]))
        await until(partial(lib.found, "brandnew"))
        assert len(await lib.found("apple")) == 10
        await lib.calm()
        assert await lib.found("brandnew") == [("s9", 1)]
        assert await lib.found("apple", session="s3") == []


async def test_while_it_is_built_new_messages_come_first(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    """During a full backlog, live messages are searchable."""
    pipeline = await opened()
    await pipeline.commit(Batch(content=[text(f"m{i}", "apple", session_id=f"s{i}") for i in range(50)]))
    may_go_on = anyio.Event()
    take = SearchIndexer._take

    async def when_it_may(self: SearchIndexer, filler: Any, session_ids: list[str]) -> None:
        if session_ids is filler.due and not may_go_on.is_set():
            await anyio.sleep(0.01)
        else:
            await take(self, filler, session_ids)

    monkeypatch.setattr(SearchIndexer, "_take", when_it_may)
    async with library(opened) as lib:
        assert lib.indexer.status() == indexer.SearchStatus("catching-up", 50)
        await lib.pipeline.commit(Batch(content=[text("m", "brandnew", session_id="zz", ts=at(3600))]))
        await until(partial(lib.found, "brandnew"))
        assert lib.indexer.status().state == "catching-up"
        assert await lib.found("apple") == []
        may_go_on.set()
        await lib.calm()
        assert lib.documents() == 51


async def test_a_changed_title_replaces_the_old_one(opened: Opened) -> None:
    """A client's title wins over the harness's, a new one over an old one, and a prune takes the harness's away."""
    async with library(opened) as lib:
        await lib.add(text("m", "words"), text("title:ai", "Walrus", role="system", kind="title"))
        assert await lib.found("walrus") == [("s1", 0)]
        await lib.add(entries=[Session(session_id="s1", source="x", title="Penguin")])
        assert await lib.found("walrus") == []
        assert await lib.found("penguin") == [("s1", 0)]
        await lib.pipeline.forget(["s1"])
        await lib.calm()
        assert await lib.found("penguin") == [("s1", None)]
        assert not lib.holds("walrus")


@pytest.mark.parametrize("mode", ["hash-only", "off"])
async def test_without_content_there_is_nothing_to_search(opened: Opened, mode: str) -> None:
    """In these modes no text comes anywhere near the index."""
    async with library(opened, mode) as lib:
        await lib.add(text("m", SECRET), entries=[turn("m")])
        assert await lib.found(SECRET) == []
        assert not lib.holds(SECRET)


async def test_without_tantivy_everything_else_works(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the library, search reports it and the pipeline continues."""
    real = builtins.__import__

    def importing(name: str, *args: Any, **kwargs: Any) -> Any:
        if name in ("tantivy", "burnd.search.index"):
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", importing)
    pipeline = await opened()
    found = SearchIndexer(pipeline)
    pipeline.follow(found.on_change)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(found.run)
        await pipeline.commit(Batch(content=[text("m", "apple")]))
        await anyio.sleep(0.01)
        assert found.index is None
        assert found.status().state == "unavailable"
        assert "tantivy" in found.status().detail
        tasks.cancel_scope.cancel()


async def test_its_files_are_private(opened: Opened) -> None:
    """Folders 0700 and files 0600, whatever the umask."""
    before = os.umask(0)
    try:
        async with library(opened) as lib:
            await lib.add(*[text(f"m{i}", "apple") for i in range(10)])
            assert {stat.S_IMODE(path.stat().st_mode) for path in lib.files()} == {0o600}
            assert stat.S_IMODE(lib.index.folder.stat().st_mode) == 0o700
    finally:
        os.umask(before)


async def test_it_lets_go_of_its_writer_when_idle(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    """With nothing to do its memory and threads are returned, and taken again when there is."""
    monkeypatch.setattr(indexer, "IDLE_S", 0.01)
    async with library(opened) as lib:
        await lib.add(text("m0", "apple"))
        await until(lambda: lib.index._writer is None)
        await lib.add(text("m1", "apple"))
        assert len(await lib.found("apple", all=True)) == 2


def killed_after(home: Path, begin: int, messages: int) -> int:
    """Runs the writer from that message on and kills it after so many; returns with which to go on."""
    command = [sys.executable, "-m", "tests.search.killed", str(home), str(begin)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=Path(__file__).parents[2]) as child:
        assert child.stdout is not None
        for _ in range(messages):
            assert child.stdout.readline()
        child.send_signal(signal.SIGKILL)
        return begin + messages + len(child.stdout.read().split()) + 2


async def test_kill_nine_anywhere_loses_and_doubles_nothing(opened: Opened) -> None:
    """Killed again and again while it writes: the next start has exactly the messages that the content has."""
    done = 0
    for messages in (20, 60, 3, 90):
        done = killed_after(opened.home.root, done, messages)
    async with library(opened) as lib:
        await lib.calm()
        kept = await lib.pipeline.index.rows("SELECT count(DISTINCT session || rail || message_id) FROM messages")
        assert lib.documents() == kept[0][0] > 0


async def test_a_session_that_grows_during_a_rebuild_is_indexed_once(opened: Opened) -> None:
    """It is queued only once."""
    pipeline = await opened()
    await pipeline.commit(Batch(content=[text("m1", "apple")]))
    followed = SearchIndexer(pipeline)
    guard = InProcessGuard(pipeline.home.index / "searching", pipeline.now())
    folders = Folders(pipeline.home.search)
    in_use, replacement = (IndexFiller(folders.create(), guard, followed._fillers) for _ in range(2))
    followed._serving, followed._replacement = in_use, replacement
    await followed._find_due(replacement)
    followed._touched = {"s1": None}
    await followed._take_touched(in_use)
    await followed._take(replacement, replacement.due)
    in_use.commit()
    replacement.commit()
    assert [filler.index.searcher.doc_freq("words", "apple") for filler in (in_use, replacement)] == [1, 1]
    assert replacement.due == []
    await followed._close()


QUERIES = ("apple", "plum pear", "cherry fig apple", "fig", '"plum fig"')


async def test_a_rebuild_keeps_the_order_of_hits(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    """However the index was filled: message by message, in one piece, or session by session."""
    rng = random.Random(7)
    fruits = ["apple", "plum", "pear", "cherry", "fig", *(f"filler{n}" for n in range(40))]

    def said(number: int, **facts: Any) -> Content:
        words = " ".join(rng.choices(fruits, k=rng.randrange(2, 30)))
        return text(f"m{number}", words, session_id=f"s{number * 7 % 40}", ts=at(number // 3), **facts)

    async def orders(lib: Library) -> list[list[tuple[str, int | None]]]:
        return [await lib.found(query, all=every, limit=20) for query in QUERIES for every in (True, False)]

    async with library(opened) as lib:
        for piece in range(12):
            await lib.add(*[said(piece * 50 + number) for number in range(50)])
            await lib.add(text("t", f"About {fruits[piece % 5]}", role="system", kind="title", session_id=f"s{piece}"))
        before = await orders(lib)
        assert lib.index.searcher.num_segments > 1
    shutil.rmtree(opened.home.search)
    async with library(opened) as lib:
        await lib.calm()
        assert await orders(lib) == before
    shutil.rmtree(opened.home.search)
    monkeypatch.setattr(indexer, "SESSIONS_AT_ONCE", 7)
    monkeypatch.setattr(indexer, "MESSAGES_AT_ONCE", 7)
    monkeypatch.setattr(indexer, "BACKLOG_COMMIT_S", 0)
    async with library(opened) as lib:
        await lib.calm()
        assert await orders(lib) == before
