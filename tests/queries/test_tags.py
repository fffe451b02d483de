"""Stamps folded for all turns at once say what folding the ledger says of each."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from burnd.paths import Home
from burnd.queries.tags import Stamped, stamped
from burnd.queries.view import View
from burnd.recording.candidate import Batch
from burnd.records import Session
from burnd.records.times import to_ms
from tests.conftest import Opened
from tests.folded import Folded
from tests.make import at, examples, stamp, turn
from tests.queries import worlds
from tests.queries.asking import NOW, PRICES

said = st.lists(st.one_of(worlds.turns(), worlds.stamps(), worlds.stamps(), worlds.others), min_size=6, max_size=30)


@settings(max_examples=examples(25), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(said)
async def test_all_at_once_is_each_by_itself(tmp_path_factory: pytest.TempPathFactory, entries: list[Any]) -> None:
    """Sessions, ranges and messages; children under parents; any order of writing: both ways agree on every turn."""
    opener = Opened(Home(tmp_path_factory.mktemp("home") / "home"))
    pipeline = await opener()
    await pipeline.commit(Batch(entries=entries))
    folded = Folded(pipeline.journal.read())
    for keys in (worlds.KEYS, worlds.KEYS[:1]):
        found, numbers = await pipeline.index.ask(lambda db: _fold(View(db, PRICES, NOW), keys))  # noqa: B023
        for key, one in folded.turns.items():
            expected = {name: value for name, value in folded.tags(one).items() if name in keys}
            assert _tags(found, numbers[key[1:]], to_ms(one.ts)) == expected
    await opener.close()


def _fold(view: View, keys: tuple[str, ...]) -> tuple[Stamped, dict[Any, Any]]:
    rows = view.rows("SELECT n.name, t.message_id, t.id, t.session FROM turns t JOIN names n ON n.id = t.source")
    return stamped(view, keys), {row[:2]: row[2:] for row in rows}


def _tags(found: Stamped, numbers: tuple[int, int], ts: int) -> dict[str, str]:
    turn_number, session = numbers
    parts = [part for part in found.parts if part.session == session]
    if turn_number in found.single:
        values = found.single[turn_number][1]
    elif parts:
        (values,) = [part.values for part in parts if part.begin <= ts < part.end]
    else:
        values = found.whole.get(session, (None,) * len(found.keys))
    return {key: value for key, value in zip(found.keys, values, strict=True) if value is not None}


async def test_the_last_word_counts_whatever_it_is_about(opened: Opened) -> None:
    """A stamp on a session beats an earlier one on a message or a range, and loses to a later one."""
    pipeline = await opened()
    early = [stamp(1, message="m1", k="message"), stamp(1, within=(0, 10), k="range")]
    await pipeline.commit(
        Batch(entries=[turn("m1"), turn("m2", turn_index=1, ts=at(20)), *early, stamp(2, k="session")])
    )
    found, numbers = await pipeline.index.ask(lambda db: _fold(View(db, PRICES, NOW), ("k",)))
    assert _tags(found, numbers["claude-code", "m1"], to_ms(at(0))) == {"k": "session"}
    await pipeline.commit(Batch(entries=[stamp(3, within=(0, 10), k="late range"), stamp(4, message="m2", k="late")]))
    found, numbers = await pipeline.index.ask(lambda db: _fold(View(db, PRICES, NOW), ("k",)))
    assert _tags(found, numbers["claude-code", "m1"], to_ms(at(0))) == {"k": "late range"}
    assert _tags(found, numbers["claude-code", "m2"], to_ms(at(20))) == {"k": "late"}


async def test_a_grandchild_has_what_its_elders_were_stamped_with(opened: Opened) -> None:
    """Stamps reach down through children that have none of their own, whenever they were made."""
    pipeline = await opened()
    family = [
        Session(session_id="child", source="opencode", parent_session_id="s1"),
        Session(session_id="grandchild", source="opencode", parent_session_id="child"),
    ]
    await pipeline.commit(Batch(entries=[turn("m1", session_id="grandchild"), *family, stamp(9, k="v")]))
    found, numbers = await pipeline.index.ask(lambda db: _fold(View(db, PRICES, NOW), ("k",)))
    assert _tags(found, numbers["claude-code", "m1"], to_ms(at(0))) == {"k": "v"}
