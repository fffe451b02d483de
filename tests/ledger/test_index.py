"""The index follows the ledger, whatever happens to either, and is never believed where it is wrong."""

from __future__ import annotations

import os
import random
import shutil
import sqlite3
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from burnd.index.build import aside
from burnd.index.tags import tags_of
from burnd.ledger.fold import Folded
from burnd.paths import Home
from burnd.pipeline import Batch
from burnd.records import Compaction, Copy, Event, Overhead, Quota, Session, Turn, Usage
from tests.conftest import Opened
from tests.dump import index_dump, ledger_dump
from tests.make import at, stamp, text, turn


async def fill(opened: Opened, turns: int = 30) -> Any:
    """A home with some of everything, closed again; returns what its index says."""
    pipeline = await opened()
    for n in range(turns):
        await pipeline.commit(
            Batch(
                entries=[turn(f"m{n}", turn_index=n, ts=at(n), session_id=f"s{n % 3}")],
                content=[text(f"m{n}", f"words {n}", ts=at(n), session_id=f"s{n % 3}")],
            )
        )
    where: dict[str, Any] = {"source": "claude-code", "session_id": "s1", "rail_id": "main", "ts": at(3)}
    usage = Usage(input=1)
    await pipeline.commit(
        Batch(
            entries=[
                stamp(1, persona="senior"),
                Session(session_id="s1", source="claude-code", title="mine", parent_session_id="s0"),
                Copy(**where, message_id="m0", turn_index=0),
                Compaction(**where, id="c"),
                Event(**where, id="e", name="interrupt"),
                Overhead(source="claude-code", session_id="s1", ts=at(4), models={"m": usage}),
                Quota(ts=at(5), source="claude-code", window="5h", used_percent=41.5),
            ]
        )
    )
    dump = await index_dump(pipeline.index)
    await opened.close()
    return dump


async def test_a_lost_index_comes_back(opened: Opened) -> None:
    """I3, F48, F54: deleted, emptied, of another version: it is built anew and says the same."""
    before = await fill(opened)
    for version in (0, 999):
        with sqlite3.connect(opened.home.index_db) as db:
            db.execute(f"PRAGMA user_version = {version}")
        assert await index_dump((await opened()).index) == before
        await opened.close()
    for damage in (b"", b"not a database at all" * 400):
        opened.home.index_db.write_bytes(damage)
        assert await index_dump((await opened()).index) == before
        await opened.close()
    shutil.rmtree(opened.home.index)
    assert await index_dump((await opened()).index) == before


@pytest.mark.parametrize("seed", range(6))
async def test_a_damaged_index_is_noticed(opened: Opened, seed: int) -> None:
    """F53: random bytes in its pages after an unclean stop lead to the same answers, or to a rebuild."""
    before = await fill(opened, 60)
    rng = random.Random(seed)
    with sqlite3.connect(opened.home.index_db) as db:
        db.execute("UPDATE meta SET value = 'no' WHERE key = 'closed'")
    with open(opened.home.index_db, "r+b") as file:
        size = file.seek(0, os.SEEK_END)
        for _ in range(6):
            file.seek(rng.randrange(size // 4096) * 4096 + rng.randrange(3000))
            file.write(rng.randbytes(700))
    assert await index_dump((await opened()).index) == before


async def test_damage_under_a_running_daemon_heals(opened: Opened) -> None:
    """F53: SQLite finding damage during a commit leads to a rebuild, and the commit is done."""
    await fill(opened)
    pipeline = await opened()
    await pipeline.index.writer.execute_fetchall("PRAGMA wal_checkpoint(TRUNCATE)")
    for connection in (pipeline.index.writer, *pipeline.index._readers):
        await connection.execute_fetchall("PRAGMA cache_size=0")
    with open(opened.home.index_db, "r+b") as file:
        size = file.seek(0, os.SEEK_END)
        for page in range(1, size // 4096):
            file.seek(page * 4096)
            file.write(b"\xff" * 100)
    await pipeline.commit(Batch(entries=[turn("after", ts=at(99))], content=[text("after", "x", ts=at(99))]))
    before = await index_dump(pipeline.index)
    assert len(before["turns"]) == 31
    assert aside(opened.home.index_db).exists()
    await opened.close()
    shutil.rmtree(opened.home.index)
    assert await index_dump((await opened()).index) == before


async def test_an_index_ahead_of_its_ledger_is_not_believed(opened: Opened) -> None:
    """F55: a ledger that lost its end, or is another one, makes the index be built anew."""
    await fill(opened)
    data = opened.home.ledger.read_bytes()
    cut = data[: data[: len(data) // 2].rfind(b"\n") + 1]
    opened.home.ledger.write_bytes(cut)
    pipeline = await opened()
    turns = (await index_dump(pipeline.index))["turns"]
    assert len(turns) == sum(isinstance(e.entry, Turn) for e in pipeline.journal.read())
    assert 0 < len(turns) < 30


@pytest.mark.parametrize("deed", ["cut", "removed", "edited"])
async def test_a_ledger_changed_while_running_is_followed(opened: Opened, deed: str) -> None:
    """F47: what is committed after the event is recorded, and the index says what the ledger says."""
    await fill(opened)
    pipeline = await opened()
    match deed:
        case "cut":
            os.truncate(opened.home.ledger, 2000)
        case "removed":
            opened.home.ledger.unlink()
        case "edited":
            opened.home.ledger.write_bytes(opened.home.ledger.read_bytes().replace(b"claude-sonnet", b"sonnet"))
    await pipeline.commit(Batch(entries=[turn("after", ts=at(99))]))
    in_ledger = {t.message_id for t in Folded(pipeline.journal.read()).turns.values()}
    in_index = {row[1] for row in (await index_dump(pipeline.index))["turns"]}
    assert "after" in in_ledger
    assert in_ledger == in_index


async def test_corrupt_lines_are_listed(opened: Opened) -> None:
    """F46: the index knows where the damage is; later lines are used."""
    await fill(opened)
    parts = opened.home.ledger.read_bytes().splitlines(keepends=True)
    parts[3] = b"#" * 50 + b"\n"
    parts.insert(5, b'{"v":2,"kind":"turn","record":{}}\n')
    opened.home.ledger.write_bytes(b"".join(parts))
    dump = await index_dump((await opened()).index)
    assert dump["skipped"] == [
        (sum(map(len, parts[:3])), 51, "corrupt", ""),
        (sum(map(len, parts[:5])), len(parts[5]), "unknown-version", "turn"),
    ]
    assert len(dump["turns"]) == 29


async def test_a_rebuild_keeps_its_cursors(opened: Opened) -> None:
    """Asking for a rebuild does not make every source be read again; nobody notices it."""
    await fill(opened)
    pipeline = await opened()
    before = await index_dump(pipeline.index)
    from burnd.index.store import CursorChange

    await pipeline.commit(Batch(cursors=[CursorChange("claude", "a.jsonl", b"41")]))
    await pipeline.rebuild_index()
    assert await pipeline.index.cursor("claude", "a.jsonl") == b"41"
    assert await index_dump(pipeline.index) == before


async def test_content_changed_by_hand_is_followed(opened: Opened) -> None:
    """F45: a sidecar that was removed, cut or added to is what counts at the next start."""
    await fill(opened)
    sidecars = opened.home.content
    (sidecars / "s0.jsonl").unlink()
    os.truncate(sidecars / "s1.jsonl", 300)
    dump = await index_dump((await opened()).index)
    counts = {row[0]: row[11] for row in dump["sessions"]}
    assert counts["s0"] == 0
    assert counts["s1"] < 10
    assert counts["s2"] == 10
    await opened.close()
    shutil.rmtree(opened.home.index)
    assert await index_dump((await opened()).index) == dump


sessions = st.sampled_from(["s0", "s1", "s2"])
stamps = st.one_of(
    st.builds(
        lambda at, s, k, v: stamp(at, session=s, **{k: v}), st.integers(0, 9), sessions, *[st.sampled_from("ab")] * 2
    ),
    st.builds(
        lambda at, m, v: stamp(at, message=f"m{m}", a=v), st.integers(0, 9), st.integers(0, 5), st.sampled_from("xy")
    ),
    st.builds(
        lambda at, s, begin, length, v: stamp(at, session=s, within=(begin, begin + length), b=v),
        st.integers(0, 9),
        sessions,
        st.integers(0, 5),
        st.integers(1, 4),
        st.sampled_from("pq"),
    ),
)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.one_of(stamps, st.integers(0, 5)), max_size=14), st.booleans())
async def test_stamps_fold_the_same_from_ledger_and_index(
    tmp_path_factory: pytest.TempPathFactory, deeds: list[Any], chained: bool
) -> None:
    """All three selectors, before or after the turns, in any order of time: last write wins per key, a
    session's stamps cover its children, and the index gives the answer the ledger gives."""
    opener = Opened(Home(tmp_path_factory.mktemp("home") / "home"))
    pipeline = await opener()
    if chained:
        parent = Session(session_id="s1", source="claude-code", parent_session_id="s0")
        await pipeline.commit(Batch(entries=[parent]))
    for deed in [*deeds, *range(6)]:
        entry = turn(f"m{deed}", session_id=f"s{deed % 3}", ts=at(deed)) if isinstance(deed, int) else deed
        await pipeline.commit(Batch(entries=[entry]))
    folded = Folded(pipeline.journal.read())
    expected = {key[1:]: folded.tags(t) for key, t in folded.turns.items()}
    assert await tags_of(pipeline.index, list(expected)) == expected  # type: ignore[arg-type]
    await opener.close()


async def test_a_stamp_rules() -> None:
    """The rules in small: ranges are half open, order is by time then place, a child's own key wins."""
    from burnd.ledger.journal import Logged

    def tags(*entries: Any, of: Turn) -> dict[str, str]:
        folded = Folded(Logged(n, 1, e) for n, e in enumerate(entries))
        return folded.tags(of)

    inside = stamp(5, within=(1, 2), k="v")
    assert tags(inside, of=turn(ts=at(1))) == {"k": "v"}
    assert tags(inside, of=turn(ts=at(2))) == {}
    assert tags(stamp(2, k="late"), stamp(1, k="early"), of=turn()) == {"k": "late"}
    assert tags(stamp(1, k="first"), stamp(1, k="second"), of=turn()) == {"k": "second"}
    child = Session(session_id="kid", source="opencode", parent_session_id="s1")
    own = stamp(1, session="kid", k="own")
    assert tags(child, own, stamp(9, k="parent", other="seen"), of=turn(session_id="kid")) == {
        "k": "own",
        "other": "seen",
    }


async def test_a_re_owned_turn_counts_once(opened: Opened) -> None:
    """A turn that turned out to belong to another session moves there; the first holder becomes a copy."""
    pipeline = await opened()
    await pipeline.commit(Batch(entries=[turn("m1", session_id="fork")]))
    copy = Copy(source="claude-code", session_id="fork", rail_id="main", message_id="m1", turn_index=0, ts=at(0))
    await pipeline.commit(Batch(entries=[turn("m1", session_id="original"), copy]))
    (row,) = (await index_dump(pipeline.index))["turns"]
    assert row[2] == "original"
    assert [c.session_id for c in Folded(pipeline.journal.read()).copies.values()] == ["fork"]
    assert ledger_dump(pipeline.journal)["skipped"] == {}


async def test_a_commit_looks_up_by_whole_keys(opened: Opened) -> None:
    """The cost of one more turn must not grow with history: no statement of a commit scans a table or
    goes through all rows of a source or a session."""
    pipeline = await opened()
    seen: set[str] = set()
    for connection in (pipeline.index.writer, *pipeline.index._readers):
        await connection.set_trace_callback(seen.add)
    where: dict[str, Any] = {"source": "claude-code", "session_id": "s1", "rail_id": "main", "ts": at(3)}
    for n in range(2):
        entries = [turn("m1", ts=at(n)), stamp(1, k="v"), Copy(**where, message_id="m0", turn_index=n)]
        await pipeline.commit(Batch(entries=entries, content=[text(f"m{n}", "words")]))
    for connection in (pipeline.index.writer, *pipeline.index._readers):
        await connection.set_trace_callback(None)
    planned = [sql for sql in seen if sql.startswith(("SELECT", "WITH", "UPDATE", "DELETE"))]
    assert len(planned) > 8
    for sql in planned:
        plan = "; ".join(row[3] for row in await pipeline.index.rows(f"EXPLAIN QUERY PLAN {sql}"))
        assert not any(f"SCAN {table}" in plan for table in ("turns", "t", "messages", "m", "sessions", "facts")), sql
        assert "(source=?)" not in plan, sql
        assert "messages_by_message (session=?)" not in plan, sql
