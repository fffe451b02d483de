"""Causes stay in step with turns: any history, explained at any time, gives the same sums."""

from __future__ import annotations

import sqlite3
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, TypeVar

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from burnd.attribution import segments
from burnd.attribution.cause_keys import COMMAND, FILE, MISS, NAMED, PROMPT, TOOL
from burnd.attribution.explainer import Explainer
from burnd.index.change import FileChange
from burnd.index.stale_causes import mark_all
from burnd.index.store import IndexStore
from burnd.paths import Home
from burnd.recording.candidate import Batch
from burnd.recording.pipeline import Pipeline
from burnd.records import Block, Copy, Usage
from tests.attribution import histories as worlds
from tests.conftest import Opened
from tests.dump import causes_dump
from tests.make import at, examples, turn
from tests.queries.worlds import live

T = TypeVar("T")
TOKENS = ("input", "output", "reasoning", "cache_read", "cache_create_5m", "cache_create_1h", "searches")
MEANWHILE = st.sampled_from(
    ("nothing", "nothing", "overtaken", "a little", "everything", "restart", "rebuild", "lost index")
)


class Overtaken(Explainer):
    """One that is overtaken by something between counting and writing down what it counted."""

    def __init__(self, pipeline: Pipeline, by: Callable[[], Awaitable[object]]) -> None:
        super().__init__(pipeline)
        self._by = by

    async def step(self, most: int) -> bool:
        has_counted = await super().step(most)
        if not has_counted:
            await self._by()
        return has_counted

    async def _ask(self, question: Callable[[sqlite3.Connection], T]) -> T:
        answer = await super()._ask(question)
        await self._by()
        return answer


@pytest.fixture(autouse=True)
def _short_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pieces of three messages, so that small histories have several."""
    monkeypatch.setattr(segments, "LENGTH", 3)
    monkeypatch.setattr(segments, "BLOCK_DAYS", 2)


@settings(worlds.ON_DISK, max_examples=examples(9))
@given(st.lists(st.tuples(worlds.deeds, MEANWHILE), min_size=1, max_size=4))
async def test_live_equals_batch(tmp_path_factory: pytest.TempPathFactory, history: list[Any]) -> None:
    """Counted bit by bit, with restarts, rebuilds and lost indexes in between, or all at once at the end."""
    opener = Opened(Home(tmp_path_factory.mktemp("home") / "home"))
    pipeline = await opener()
    await pipeline.commit(Batch(files=[FileChange("claude-code", "/log", b"here")]))
    try:
        for deeds, meanwhile in history:
            if meanwhile == "overtaken":
                await Overtaken(pipeline, partial(live, pipeline, deeds)).step(2)
            else:
                await live(pipeline, deeds)
            if meanwhile == "a little":
                await Explainer(pipeline).step(2)
            elif meanwhile == "everything":
                await _explain_all(pipeline)
            elif meanwhile == "rebuild":
                await Explainer(pipeline).step(2)
                await pipeline.rebuild_index()
            elif meanwhile in ("restart", "lost index"):
                await opener.close()
                if meanwhile == "lost index":
                    opener.home.index_db.unlink()
                pipeline = await opener()
        await _explain_all(pipeline)
        await _sums_are_the_turns(pipeline.index)
        await _is_as_in_one_pass(pipeline)
    finally:
        await opener.close()


@pytest.mark.parametrize("becomes", ["another copy", "its own", "nobody's"])
async def test_a_message_moves_within_a_long_rail(opened: Opened, becomes: str) -> None:
    """A copy that moves, or that becomes the rail's own message elsewhere, is missing at its old place; so is the last
    turn."""
    pipeline = await opened()
    copies = [_copied(n) for n in range(5)]
    turns = [turn(f"m{n}", turn_index=n, ts=at(n), usage=Usage(input=1000 * n, output=9)) for n in range(5, 13)]
    await pipeline.commit(Batch(entries=[*copies, *turns]))
    await Explainer(pipeline).catch_up()
    later: dict[str, list[Any]] = {
        "another copy": [msgspec.structs.replace(copies[1], turn_index=11)],
        "its own": [msgspec.structs.replace(turns[6], message_id="m1")],
        "nobody's": [msgspec.structs.replace(one, rev=2, copy_of="s2") for one in turns],
    }
    await pipeline.commit(Batch(entries=later[becomes]))
    await Explainer(pipeline).catch_up()
    await _is_as_in_one_pass(pipeline)


async def test_more_comes_while_a_rail_is_counted_from_its_beginning(opened: Opened) -> None:
    """A rail of copies alone is not counted. Once it is, bit by bit, no piece is passed over, whatever comes then."""
    pipeline = await opened()
    turns: list[Any] = [
        turn(f"m{n}", turn_index=n, ts=at(n), usage=Usage(input=1000 * n, output=9)) for n in range(9, 13)
    ]
    await pipeline.commit(Batch(entries=[_copied(n) for n in range(9)]))
    await Explainer(pipeline).catch_up()
    await pipeline.commit(Batch(entries=turns[:2]))
    await Overtaken(pipeline, lambda: pipeline.commit(Batch(entries=turns[2:]))).step(2)
    await Explainer(pipeline).catch_up()
    assert await pipeline.index.rows("SELECT n FROM segments ORDER BY n") == [(n,) for n in range(5)]
    await _is_as_in_one_pass(pipeline)


async def _explain_all(pipeline: Pipeline) -> None:
    explainer = Explainer(pipeline)
    await explainer.catch_up()
    while await explainer.condense_block():
        pass


async def _is_as_in_one_pass(pipeline: Pipeline) -> None:
    """Explains everything again in one pass and compares."""
    await _explain_all(pipeline)
    before = await causes_dump(pipeline.index)
    await pipeline.index.transact(_forget)
    await _explain_all(pipeline)
    after = await causes_dump(pipeline.index)
    assert {name: set(rows) ^ set(after[name]) for name, rows in before.items()} == {name: set() for name in before}


def _copied(n: int) -> Copy:
    block = Block(kind="prompt", bytes=900 * n)
    return Copy(
        source="claude-code",
        session_id="s1",
        rail_id="main",
        message_id=f"m{n}",
        turn_index=n,
        ts=at(n),
        entered=(block,),
    )


def _forget(db: sqlite3.Connection) -> None:
    """As if nothing had ever been counted."""
    for table in ("segments", "turn_groups", "cause_sums", "cause_blocks", "stale_blocks", "causes"):
        db.execute(f"DELETE FROM {table}")
    mark_all(db)


async def _sums_are_the_turns(index: IndexStore) -> None:
    """Each grouping has every token of every turn once, and coarse rows equal the sums of finer ones."""
    columns = ",".join(f"coalesce(sum(x.{name}), 0)" for name in TOKENS)
    turns = await index.rows(f"SELECT {columns} FROM turns x")
    sums = "FROM turn_groups w JOIN cause_sums x ON x.turn_group = w.id WHERE"
    by_day, by_quarter, by_activity = (
        f"SELECT {columns} {sums} {where} AND level ="
        for where in ("grain = 0", "(grain = 1 OR grain = 0 AND quarters = 0)", "grain = 2")
    )
    for sql in (by_day, by_quarter, by_activity):
        assert await index.rows(f"{sql} {TOOL}") == await index.rows(f"{sql} {PROMPT}") == turns
        for level in (FILE, COMMAND, NAMED, MISS):
            assert await index.rows(f"{sql} {level}") == await index.rows(f"{by_day} {level}")
    by_tool = f"SELECT cause, {columns} {sums} grain = 0 AND level = {TOOL} GROUP BY cause ORDER BY cause"
    assert await index.rows("SELECT count(*) FROM stale_blocks") == [(0,)]
    for activity in ("= 0", "<> 0"):
        condensed = f"SELECT {columns} FROM cause_blocks x WHERE activity {activity} AND level ="
        tools = f"{condensed} {TOOL} GROUP BY cause ORDER BY cause".replace("SELECT", "SELECT cause,")
        assert await index.rows(tools) == await index.rows(by_tool)
        for level in (FILE, COMMAND, NAMED, MISS):
            assert await index.rows(f"{condensed} {level}") == await index.rows(f"{by_day} {level}")
    ((behind,),) = await index.rows(
        "SELECT count(*) FROM cause_sums WHERE entered > input + cache_read + cache_create_5m + cache_create_1h"
    )
    assert behind == 0
