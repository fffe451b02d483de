"""Tags of all turns at once equal the folded stamps of each turn."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from burnd.paths import Home
from burnd.queries.selection import TurnTags, resolve_tags
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


def _fold(view: View, keys: tuple[str, ...]) -> tuple[TurnTags, dict[Any, Any]]:
    rows = view.rows("SELECT n.name, t.message_id, t.id, t.session FROM turns t JOIN names n ON n.id = t.source")
    return resolve_tags(view, keys), {row[:2]: row[2:] for row in rows}


def _tags(found: TurnTags, numbers: tuple[int, int], ts: int) -> dict[str, str]:
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


async def test_a_removal_is_the_last_word_until_a_later_one(opened: Opened) -> None:
    """It beats earlier stamps on the session, a range or a message, only where it applies, and loses to later ones."""
    pipeline = await opened()
    turns = [turn(f"m{n}", turn_index=n, ts=at(10 * n)) for n in range(3)]
    early = [stamp(1, k="v", other="v"), stamp(2, message="m0", k="message"), stamp(2, within=(10, 20), k="range")]

    async def tags() -> list[str | None]:
        found, numbers = await pipeline.index.ask(lambda db: _fold(View(db, PRICES, NOW), ("k", "other")))
        each = [_tags(found, numbers["claude-code", f"m{n}"], to_ms(at(10 * n))) for n in range(3)]
        folded = Folded(pipeline.journal.read())
        assert each == [folded.tags(one) for one in turns]
        assert [one.pop("other") for one in each] == ["v"] * 3
        return [one.get("k") for one in each]

    await pipeline.commit(Batch(entries=[*turns, *early]))
    assert await tags() == ["message", "range", "v"]
    await pipeline.commit(Batch(entries=[stamp(3, within=(10, 20), removes=["k"])]))
    assert await tags() == ["message", None, "v"]
    await pipeline.commit(Batch(entries=[stamp(4, message="m0", removes=["k"])]))
    assert await tags() == [None, None, "v"]
    await pipeline.commit(Batch(entries=[stamp(5, removes=["k"]), stamp(0, k="older")]))
    assert await tags() == [None, None, None]
    await pipeline.commit(Batch(entries=[stamp(6, k="again")]))
    assert await tags() == ["again"] * 3


async def test_a_child_loses_the_tag_of_its_parent_and_keeps_its_own(opened: Opened) -> None:
    """Removed from a parent, a child's own tag stays; removed from a child, the parent's tag stays on the parent."""
    pipeline = await opened()
    child = Session(session_id="child", source="opencode", parent_session_id="s1")
    turns = [turn("m1"), turn("m2", session_id="child")]
    stamps = [stamp(1, k="v", own="v", gone="v"), stamp(2, session="child", own="child"), stamp(3, removes=["own"])]
    stamps.append(stamp(3, session="child", removes=["gone"]))
    await pipeline.commit(Batch(entries=[*turns, child, *stamps]))
    found, numbers = await pipeline.index.ask(lambda db: _fold(View(db, PRICES, NOW), ("k", "own", "gone")))
    assert _tags(found, numbers["claude-code", "m1"], to_ms(at(0))) == {"k": "v", "gone": "v"}
    assert _tags(found, numbers["claude-code", "m2"], to_ms(at(0))) == {"k": "v", "own": "child"}


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
