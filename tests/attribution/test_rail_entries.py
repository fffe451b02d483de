"""Entries for attribution are the folded ledger, with the current state of open turns."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, example, given, settings

from burnd.attribution import rail_entries
from burnd.attribution.rail import in_order
from burnd.index.change import Change, FileChange, OpenTurn
from burnd.ledger.lines import read_spans
from burnd.paths import Home
from burnd.recording.candidate import Batch
from burnd.recording.pipeline import Pipeline
from burnd.records import Compaction, Copy, ToolCall, Turn, Usage
from tests.conftest import Opened
from tests.folded import Folded
from tests.make import at, examples, turn
from tests.queries import worlds


async def load(pipeline: Pipeline, rail: str | None = None) -> list[rail_entries.RailEntries]:
    sessions = [row[0] for row in await pipeline.index.rows("SELECT id FROM sessions")]
    return await pipeline.index.ask(lambda db: rail_entries.load(db, pipeline.home.ledger, sessions, rail))


@settings(max_examples=examples(8), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(worlds.deeds)
@example(
    [
        (
            "commit",
            [
                turn("m0", session_id="s0"),
                Compaction(source="claude-code", session_id="s0", rail_id="main", id="k0", ts=at(0)),
            ],
        )
    ]
)
async def test_rails_are_the_folded_ledger(tmp_path_factory: pytest.TempPathFactory, history: list[Any]) -> None:
    """After any history every turn is on its rail once, in order, with the copies that are still copies."""
    opener = Opened(Home(tmp_path_factory.mktemp("home") / "home"))
    pipeline = await opener()
    try:
        shown: dict[Any, Turn] = {
            ("turn", one.source, one.message_id): one for one in await worlds.live(pipeline, history)
        }
        folded = Folded(pipeline.journal.read())
        turns: defaultdict[Any, list[Turn]] = defaultdict(list)
        for one in (folded.turns | shown).values():
            turns[place(one)].append(one)
        copies: defaultdict[Any, list[Copy]] = defaultdict(list)
        for copy in folded.copies.values():
            if (now := shown.get(("turn", copy.source, copy.message_id))) is None or place(now) != place(copy):
                copies[place(copy)].append(copy)
        compactions: defaultdict[Any, list[Compaction]] = defaultdict(list)
        for entry in folded.latest.values():
            if isinstance(entry, Compaction):
                compactions[place(entry)].append(entry)
        loaded = {(one.session_id, one.rail_id): one for one in await load(pipeline)}
        assert loaded.keys() == turns.keys()
        for key, one in loaded.items():
            expected = in_order(turns[key], copies[key], compactions[key])
            assert [billed(entry) for entry in one.entries] == [billed(entry) for entry in expected]
            logged = {id_ for _, _, id_ in folded.turns} - {id_ for _, _, id_ in shown}
            assert [_without_terms(e) for e in one.turns if e.message_id in logged] == [
                _without_terms(e) for e in expected if isinstance(e, Turn) and e.message_id in logged
            ]
    finally:
        await opener.close()


def _without_terms(entry: Turn) -> Turn:
    """The turn without its speed, in which attribution has all terms that it was billed at."""
    return msgspec.structs.replace(entry, speed=None)


def place(entry: Turn | Copy | Compaction) -> tuple[str, str]:
    return entry.session_id, entry.rail_id


def billed(entry: Any) -> tuple[Any, ...]:
    if isinstance(entry, Compaction):
        return (Compaction, entry.id, entry.ts)
    return (type(entry), entry.message_id, getattr(entry, "usage", None), getattr(entry, "model", None), entry.ts)


async def test_a_turn_that_still_grows_is_whole(opened: Opened) -> None:
    """An open turn is read from the index, not in its older state from the ledger."""
    pipeline = await opened()
    await pipeline.commit(Batch(entries=[turn("m1"), turn("m2", turn_index=1, ts=at(1))]))
    grown = turn("m2", turn_index=1, ts=at(1), usage=Usage(input=1, output=99))
    change = Change(open=[OpenTurn(grown, "claude-code", "/log")], files=[FileChange("claude-code", "/log", b"c")])
    await pipeline._stores.apply(change)
    (main,) = await load(pipeline)
    assert main.turns == [turn("m1"), grown]


async def test_compactions_and_rails_by_name(opened: Opened) -> None:
    """Compactions come between the turns they separated; a single rail can be loaded."""
    pipeline = await opened()
    fact = Compaction(source="claude-code", session_id="s1", rail_id="main", id="u1", ts=at(5))
    agent = turn("m3", rail_id="a1")
    await pipeline.commit(Batch(entries=[turn("m2", turn_index=1, ts=at(9)), fact, agent, turn("m1")]))
    (main, other) = await load(pipeline)
    assert [type(entry) for entry in main.entries] == [Turn, Compaction, Turn]
    assert (main.rail_id, other.rail_id, other.entries) == ("main", "a1", [agent])
    assert await load(pipeline, "a1") == [other]


async def test_a_line_that_cannot_be_read_is_billed_all_the_same(opened: Opened) -> None:
    """The index has the bill and calls of a damaged line; only its parts are missing."""
    pipeline = await opened()
    calls = (ToolCall(id="c1", name="Bash", target="npm test", is_error=True),)
    sound = turn("m1", provider="anthropic", speed="fast", tool_calls=calls)
    await pipeline.commit(Batch(entries=[sound, turn("m2", turn_index=1)]))
    ledger = pipeline.home.ledger
    ledger.write_bytes(ledger.read_bytes().replace(b'"m1"', b'"m1x', 1))
    (main,) = await load(pipeline)
    assert main.turns[0] == sound
    assert [one.message_id for one in main.turns] == ["m1", "m2"]


def test_lines_are_read_from_anywhere(tmp_path: Path) -> None:
    """Lines far apart, adjacent, requested twice, or missing."""
    path = tmp_path / "file"
    path.write_bytes(b"a" * 10 + b"b" * 20 + b"c" * 3_000_000 + b"d" * 5)
    end = 30 + 3_000_000
    found = read_spans(path, [(end, 5), (0, 10), (10, 20), (0, 10), (30, 3_000_000), (end + 1, 5), (end + 900, 7)])
    assert {place: (line[:1], len(line)) for place, line in found.items()} == {
        0: (b"a", 10),
        10: (b"b", 20),
        30: (b"c", 3_000_000),
        end: (b"d", 5),
    }
