"""Measures search beside SQLite's FTS5 on the same words: `python -m tests.bench.search [MESSAGES ...]`."""

from __future__ import annotations

import argparse
import contextlib
import os
import sqlite3
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import structlog

from burnd.ledger.files import prepare_home
from burnd.ledger.keeping import Keeping
from burnd.paths import Home
from burnd.pipeline import Batch, Pipeline, open_pipeline
from burnd.pricing import PriceTable
from burnd.queries.search import SearchParams, search
from burnd.queries.view import View
from burnd.records import Content
from burnd.search.documents import strings
from burnd.search.lookup import Lookup
from burnd.search.searcher import Searcher
from tests.bench.search_corpus import Corpus
from tests.make import text

QUERIES, LABELLED, APPENDS = 500, 60, 200


async def measured(messages: int) -> list[tuple[str, str]]:
    corpus = Corpus(messages)
    with tempfile.TemporaryDirectory(dir=os.environ.get("BENCH_DIR")) as folder:
        home = Home(Path(folder) / "home")
        prepare_home(home.root)
        pipeline = await open_pipeline(home, Keeping("full"), inline_bytes=1024, reserve=0)
        fts = Fts(Path(folder) / "fts.db")
        size = 0
        for batch in corpus.batches():
            size += sum(len(found) for record in batch for found in strings(record))
            await pipeline.commit(Batch(content=batch))
            fts.add(batch)
        fts.done()
        try:
            rows = await _ours(pipeline, corpus, fts, size)
            return [("messages, MB of text", f"{messages:,}, {size / 1e6:.0f}"), *rows]
        finally:
            await pipeline.close()


async def _ours(pipeline: Pipeline, corpus: Corpus, fts: Fts, size: int) -> list[tuple[str, str]]:
    rows = []
    searcher = Searcher(pipeline)
    plain = await _append_ms(pipeline, "plain")
    async with anyio.create_task_group() as tasks:
        begun = time.perf_counter()
        tasks.start_soon(searcher.run)
        await searcher.calm()
        took = time.perf_counter() - begun
        rows.append(("built from content", f"{took:.1f} s, {size / 1e6 / took:.0f} MB/s; FTS5 {fts.seconds:.1f} s"))
        on_disk = searcher.engine.size() if searcher.engine is not None else 0
        rows.append(("on disk, per MB of text", f"{on_disk / size:.2f} MB; FTS5 {fts.size() / size:.2f} MB"))
        ask = _asker(pipeline, searcher)
        queries = corpus.everyday(QUERIES)
        for query in queries[:20]:
            await ask(query)
        ours = [await _timed(partial(ask, query)) for query in queries]
        theirs = [fts.seconds_for(query) for query in queries[: 50 if corpus.messages > 200_000 else QUERIES]]
        rows.append(("everyday query, p50 / p99", f"{_spread(ours)} ms; FTS5 {_spread(theirs)} ms"))
        labelled = corpus.labelled(LABELLED)
        found = [await ask(query.words) for query in labelled]
        rank = [_rank(answer, query.session_id) for answer, query in zip(found, labelled, strict=True)]
        top = sum(r is not None and r < 3 for r in rank)
        rows.append((f"labelled queries, session among the first 3 of {LABELLED}", f"{100 * top / LABELLED:.0f} %"))
        pipeline.listeners.append(searcher.landed)
        listened = await _append_ms(pipeline, "heard")
        rows.append(("one message recorded, without and with search", f"{plain:.2f}, {listened:.2f} ms"))
        rows.append(("from written to found", f"{await _until_found(pipeline, ask):.0f} ms"))
        tasks.cancel_scope.cancel()
    return rows


def _asker(pipeline: Pipeline, searcher: Searcher) -> Callable[[str], Any]:
    prices = PriceTable.load()

    async def ask(query: str) -> dict[str, Any]:
        engine = searcher.engine
        assert engine is not None
        return await pipeline.index.ask(
            lambda db: search(View(db, prices, 0), Lookup(engine), searcher.recall, SearchParams(query=query))
        )

    return ask


async def _timed(work: Callable[[], Any]) -> float:
    begun = time.perf_counter()
    await work()
    return time.perf_counter() - begun


async def _append_ms(pipeline: Pipeline, name: str) -> float:
    """The median time of a commit of one message."""
    times = []
    for i in range(APPENDS):
        record = text(f"{name}{i}", "a few words of an answer " * 20, session_id=f"append-{name}")
        times.append(await _timed(partial(pipeline.commit, Batch(content=[record]))))
    return sorted(times)[len(times) // 2] * 1000


async def _until_found(pipeline: Pipeline, ask: Callable[[str], Any]) -> float:
    await pipeline.commit(Batch(content=[text("last", "the word zyxwvutsrq is new", session_id="new")]))
    begun = time.perf_counter()
    while not (await ask("zyxwvutsrq"))["hits"]:  # noqa: ASYNC110 - as somebody would who looks for it
        await anyio.sleep(0.01)
    return (time.perf_counter() - begun) * 1000


def _rank(answer: dict[str, Any], session_id: str) -> int | None:
    found = [hit["sessionId"] for hit in answer["hits"]]
    return found.index(session_id) if session_id in found else None


def _spread(seconds: list[float]) -> str:
    times = sorted(seconds)
    return f"{times[len(times) // 2] * 1000:.1f} / {times[min(len(times) * 99 // 100, len(times) - 1)] * 1000:.1f}"


class Fts:
    """The same words in SQLite's own full-text index, without their text, as a rival would have them."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._db = sqlite3.connect(path, isolation_level=None)
        self._db.execute("PRAGMA journal_mode=WAL")
        words = "tokenize='unicode61 remove_diacritics 2'"
        self._db.execute(f"CREATE VIRTUAL TABLE found USING fts5(text, content='', {words})")
        self.seconds = 0.0

    def add(self, batch: list[Content]) -> None:
        texts = [("\n".join(strings(record)),) for record in batch]
        begun = time.perf_counter()
        self._db.execute("BEGIN")
        self._db.executemany("INSERT INTO found(text) VALUES(?)", texts)
        self._db.execute("COMMIT")
        self.seconds += time.perf_counter() - begun

    def done(self) -> None:
        begun = time.perf_counter()
        self._db.execute("INSERT INTO found(found) VALUES('optimize')")
        self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        self.seconds += time.perf_counter() - begun

    def size(self) -> int:
        with contextlib.suppress(sqlite3.Error):
            self._db.execute("VACUUM")
        return os.path.getsize(self._path)

    def seconds_for(self, query: str) -> float:
        words = " OR ".join(f'"{word}"' for word in query.split())
        begun = time.perf_counter()
        self._db.execute("SELECT rowid FROM found WHERE found MATCH ? ORDER BY rank LIMIT 20", (words,)).fetchall()
        return time.perf_counter() - begun


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("messages", nargs="*", type=int, default=[100_000])
    structlog.configure(logger_factory=structlog.ReturnLoggerFactory())
    for messages in parser.parse_args().messages:
        for what, found in anyio.run(measured, messages):
            print(f"| {what} | {found} |", flush=True)


if __name__ == "__main__":
    main()
