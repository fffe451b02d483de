"""Measures search over the socket, beside SQLite's FTS5 on the same words: `python -m tests.bench.search [MESSAGES]`.

Set `BENCH_DIR` to keep the large files: the corpus is made once for one state of the code.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import os
import shutil
import sqlite3
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import msgspec
import structlog

from burnctl.client import Client
from burnd.ledger.content import INLINE_BYTES
from burnd.ledger.content_modes import ContentModes
from burnd.ledger.files import prepare_home
from burnd.paths import Home
from burnd.recording.candidate import Batch
from burnd.recording.pipeline import Pipeline, open_pipeline
from burnd.records import Content
from burnd.search.indexer import SearchIndexer
from burnd.tokens.words import strings
from tests.bench.page import Row, goal
from tests.bench.running import processor_of
from tests.bench.search_corpus import Corpus
from tests.make import text
from tests.server.wire import Daemon, running

ROOT = Path(__file__).parents[2]
QUERIES, PHRASES, LABELLED, APPENDS = 500, 100, 60, 200
Rows = list[Row]
MOST_MS = {100_000: 10, 1_000_000: 50}  # for 99 of 100 everyday queries
APPEND_MS, FOUND_MS, TOP_3 = 1.0, 1000, 80


def measured(messages: int, folder: Path) -> Rows:
    """Figures of a corpus of this many messages. The corpus is made once, the search index every time."""
    corpus = Corpus(messages)
    home = Home(folder / f"{messages}" / "home")
    fts = Fts(home.root.parent / "fts.db")
    size = _made(home, corpus, fts)
    shutil.rmtree(home.search, ignore_errors=True)
    rows = [_fact("messages, MB of text", f"{messages:,}, {size / 1e6:.0f}")]
    rows += anyio.run(_appending, home)
    with running(home) as daemon:
        return rows + _asked(daemon, corpus, fts, size)


def _made(home: Home, corpus: Corpus, fts: Fts) -> int:
    """Puts the corpus into the home and into the rival, unless this very code did; returns how much text it is."""
    note = home.root.parent / "made.json"
    code = _code()
    if note.exists() and (known := msgspec.json.decode(note.read_bytes()))["code"] == code:
        corpus.about, fts.seconds = known["about"], known["ftsSeconds"]
        return int(known["size"])
    for place in (home.root, note):
        shutil.rmtree(place) if place.is_dir() else place.unlink(missing_ok=True)
    fts.begin()
    size = anyio.run(_filled, home, corpus, fts)
    made = {"code": code, "size": size, "about": corpus.about, "ftsSeconds": fts.seconds}
    note.write_bytes(msgspec.json.encode(made))
    return size


def _code() -> str:
    """Identifies the state of the code, so that an index of another state is not measured."""
    digest = hashlib.sha256()
    for path in sorted((*(ROOT / "burnd").rglob("*.py"), *(ROOT / "tests" / "bench").glob("search*.py"))):
        digest.update(path.read_bytes())
    return digest.hexdigest()


async def _filled(home: Home, corpus: Corpus, fts: Fts) -> int:
    prepare_home(home.root)
    pipeline = await open_pipeline(home, ContentModes("full"), inline_bytes=INLINE_BYTES, reserve=0)
    size = 0
    for batch in corpus.batches():
        size += sum(len(found) for record in batch for found in strings(record))
        await pipeline.commit(Batch(content=batch))
        fts.add(batch)
    fts.done()
    await pipeline.close()
    return size


async def _appending(home: Home) -> Rows:
    """Cost that search adds to the pipeline per message."""
    pipeline = await open_pipeline(home, ContentModes("full"), inline_bytes=INLINE_BYTES, reserve=0)
    plain = await _append_ms(pipeline, "plain")
    indexer = SearchIndexer(pipeline)
    told = 0.0

    def landed(change: Any) -> None:
        nonlocal told
        begun = time.perf_counter()
        indexer.on_change(change)
        told += time.perf_counter() - begun

    pipeline.follow(landed)
    await _append_ms(pipeline, "heard")
    await pipeline.close()
    added = told / APPENDS * 1000
    what, measured = "one message recorded, and what search adds to that", f"{plain:.2f} ms, {added:.3f} ms"
    return [goal(what, f"<= {APPEND_MS:g} ms", measured, added <= APPEND_MS)]


def _asked(daemon: Daemon, corpus: Corpus, fts: Fts, size: int) -> Rows:
    client = Client(daemon.socket, timeout=600)
    begun = time.perf_counter()
    while (state := client.status()["search"])["state"] != "ready" or state["pending"]:
        time.sleep(0.2)
    took = time.perf_counter() - begun
    rows = [_fact("built from content", f"{took:.1f} s, {size / 1e6 / took:.0f} MB/s; FTS5 {fts.seconds:.1f} s")]
    rows.append(_fact("on disk, per MB of text", f"{state['bytes'] / size:.2f} MB; FTS5 {fts.size() / size:.2f} MB"))
    queries = corpus.everyday(QUERIES)
    for query in queries[:50]:
        client.sessions_search(query)
    before = processor_of(daemon.process.pid)
    ours = [_timed(partial(client.sessions_search, query)) for query in queries]
    worked = (processor_of(daemon.process.pid) - before) / QUERIES * 1000
    theirs = [fts.seconds_for(query) for query in queries[: 100 if corpus.messages > 200_000 else QUERIES]]
    most = MOST_MS.get(corpus.messages, max(MOST_MS.values()))
    measured = f"{_spread(ours)} ms; FTS5 alone {_spread(theirs)} ms"
    reached = _late(ours) * 1000 <= most
    rows.append(goal("everyday query over the socket, p50 / p99", f"p99 <= {most} ms", measured, reached))
    rows.append(_fact("processor time of one, all threads of the daemon", f"{worked:.1f} ms"))
    quoted = [_timed(partial(client.sessions_search, query)) for query in corpus.phrases(PHRASES)]
    rows.append(_fact("phrase of everyday words, p50 / p99", f"{_spread(quoted)} ms"))
    rows.append(_remembered(client, corpus))
    found = _until_found(client)
    rows.append(goal("from written to found", f"<= {FOUND_MS:,} ms", f"{found:.0f} ms", found <= FOUND_MS))
    client.close()
    return rows


def _fact(what: str, measured: str) -> Row:
    return (what, "", measured, "")


def _remembered(client: Client, corpus: Corpus) -> Row:
    """Queries of which one word in three is another word or misspelt: whether the session is found, and how fast."""
    labelled = corpus.labelled(LABELLED)
    times, top = [], 0
    for query in labelled:
        begun = time.perf_counter()
        answer = client.sessions_search(query.words)
        times.append(time.perf_counter() - begun)
        top += query.session_id in [hit["sessionId"] for hit in answer["hits"][:3]]
    what = f"session among the first 3, of {LABELLED} labelled queries, p50 / p99"
    share = 100 * top / LABELLED
    return goal(what, f">= {TOP_3} %", f"{share:.0f} %, {_spread(times)} ms", share >= TOP_3)


def _until_found(client: Client) -> float:
    session = client.sessions_new("bench", "bench")["sessionId"]
    word = f"zyxwvu{time.time_ns()}"
    begun = time.perf_counter()
    client.sessions_append(session, messages=[{"id": "m", "role": "user", "content": f"the word {word} is new"}])
    while not client.sessions_search(word)["hits"]:
        time.sleep(0.01)
    return (time.perf_counter() - begun) * 1000


def _timed(work: Callable[[], Any]) -> float:
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun


async def _append_ms(pipeline: Pipeline, name: str) -> float:
    """The median time of a commit of one message."""
    times, run = [], time.time_ns()
    for i in range(APPENDS):
        record = text(f"{name}{run}{i}", "a few words of an answer " * 20, session_id=f"append-{name}")
        begun = time.perf_counter()
        await pipeline.commit(Batch(content=[record]))
        times.append(time.perf_counter() - begun)
    return sorted(times)[len(times) // 2] * 1000


def _spread(seconds: list[float]) -> str:
    return f"{sorted(seconds)[len(seconds) // 2] * 1000:.1f} / {_late(seconds) * 1000:.1f}"


def _late(seconds: list[float]) -> float:
    """The 99th percentile."""
    return sorted(seconds)[len(seconds) * 99 // 100]


class Fts:
    """The same words in SQLite's own full-text index, without their text, as a rival would have them."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._path = path
        self._db = sqlite3.connect(path, isolation_level=None)
        self._db.execute("PRAGMA journal_mode=WAL")
        self.seconds = 0.0

    def begin(self) -> None:
        self._db.execute("DROP TABLE IF EXISTS found")
        words = "tokenize='unicode61 remove_diacritics 2'"
        self._db.execute(f"CREATE VIRTUAL TABLE found USING fts5(text, content='', {words})")

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
        self._db.execute("VACUUM")
        self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
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
    kept = os.environ.get("BENCH_DIR")
    with contextlib.ExitStack() as rooms:
        folder = Path(kept or rooms.enter_context(tempfile.TemporaryDirectory(prefix="burnd-")))
        for messages in parser.parse_args().messages:
            for row in measured(messages, folder / "search"):
                print(f"| {' | '.join(row)} |", flush=True)


if __name__ == "__main__":
    main()
