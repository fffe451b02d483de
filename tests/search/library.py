"""A home with searchable content: pipeline and indexer, opened and closed as in a daemon."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from burnd.contract.sessions import SearchParams
from burnd.pricing import PriceTable
from burnd.queries.search import search
from burnd.queries.view import View
from burnd.recording.candidate import Batch
from burnd.recording.pipeline import Pipeline
from burnd.records import Content
from burnd.records.codec import Entry
from burnd.search import indexer as indexer_module
from burnd.search.index import WORDS, SearchIndex
from burnd.search.indexer import SearchIndexer
from burnd.search.lookup import Lookup
from burnd.tokens.words import SIGNS
from tests.conftest import Opened
from tests.make import START_MS

PRICES = PriceTable.load()


class Library:
    """A pipeline with its indexer. Made by `library`."""

    def __init__(self, pipeline: Pipeline, indexer: SearchIndexer) -> None:
        self.pipeline = pipeline
        self.indexer = indexer

    async def add(self, *content: Content, entries: Sequence[Entry] = ()) -> None:
        """Records content and waits until it can be found."""
        await self.pipeline.commit(Batch(content=list(content), entries=list(entries)))
        await self.calm()

    async def calm(self) -> None:
        with anyio.fail_after(60):
            await self.indexer.caught_up()

    @property
    def index(self) -> SearchIndex:
        assert self.indexer.index is not None
        return self.indexer.index

    def documents(self) -> int:
        """The number of documents of messages and titles."""
        return self.index.searcher.num_docs

    async def search(self, query: str, **params: Any) -> dict[str, Any]:
        lookup = Lookup(self.index)
        asked = SearchParams(query=query, **params)
        return await self.pipeline.index.ask(
            lambda db: search(View(db, PRICES, START_MS), lookup, self.indexer.recall, asked)
        )

    async def found(self, query: str, **params: Any) -> list[tuple[str, int | None]]:
        """(session, message) of every hit."""
        answer = await self.search(query, **params)
        return [(hit["sessionId"], hit["msgIdx"]) for hit in answer["hits"]]

    def holds(self, word: str) -> bool:
        """True if a word is in any file of the index, deleted or not."""
        return any(self.index.searcher.doc_freq(WORDS, sign + word) for sign in SIGNS.values())

    def files(self) -> list[Path]:
        return [path for path in self.pipeline.home.search.rglob("*") if path.is_file()]


async def until(check: Callable[[], Any], seconds: float = 60.0) -> None:
    """Waits until a condition holds; what it gives may have to be awaited."""
    with anyio.fail_after(seconds):
        while True:
            found = check()
            if await found if inspect.isawaitable(found) else found:
                return
            await anyio.sleep(0.005)


@asynccontextmanager
async def library(
    opened: Opened, mode: Any = "full", soon_s: float = 0.02, is_reading: Callable[[], bool] = lambda: False
) -> AsyncIterator[Library]:
    """With commits that wait for less than they do in a daemon: most tests wait for them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(indexer_module, "SOON_S", soon_s)
        patch.setattr(indexer_module, "LIVE_COMMIT_S", soon_s)
        async with _library(opened, mode, is_reading) as made:
            yield made


@asynccontextmanager
async def _library(opened: Opened, mode: Any, is_reading: Callable[[], bool]) -> AsyncIterator[Library]:
    pipeline = await opened(mode)
    indexer = SearchIndexer(pipeline, is_reading=is_reading)
    pipeline.follow(indexer.on_change)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(indexer.run)
        await until(lambda: indexer.index is not None)
        yield Library(pipeline, indexer)
        tasks.cancel_scope.cancel()
    await opened.close()
