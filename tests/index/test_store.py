"""The index follows the ledger, survives damage and is rebuilt when it disagrees."""

from __future__ import annotations

import os
import random
import re
import shutil
import sqlite3
from collections.abc import Callable, Iterable
from contextlib import closing
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from burnd.index import apply
from burnd.index.build import aside
from burnd.index.rows import ROLE_AND_KIND
from burnd.index.schema import TABLES
from burnd.paths import Home
from burnd.pricing import PriceTable
from burnd.queries import quotes, search
from burnd.queries.selection import tags_of
from burnd.queries.view import View
from burnd.recording.candidate import Batch
from burnd.records import Compaction, Copy, Event, Overhead, Quota, Session, Turn, Usage
from burnd.records.names import short_id, whole_id
from tests.conftest import Opened
from tests.dump import index_dump, ledger_dump
from tests.folded import Folded
from tests.make import at, examples, seeds, stamp, text, turn


async def fill(opened: Opened, turns: int = 30) -> Any:
    """A closed home with some of everything; returns a dump of its index."""
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
    """I3, F48, F54: deleted, emptied or of another version, it is rebuilt with the same contents."""
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


@seeds(2, 12)
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
    await pipeline.index.writer.run(lambda db: db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall())
    await pipeline.index.writer.run(lambda db: db.execute("PRAGMA cache_size=0"))
    for reader in pipeline.index.pool.lookups:
        await reader.execute_fetchall("PRAGMA cache_size=0")
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
    """F55: the ledger was truncated or replaced: the index is rebuilt."""
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
    """F47: later commits are recorded, and the index equals the ledger."""
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
    """A rebuild on request does not cause sources to be read again."""
    await fill(opened)
    pipeline = await opened()
    before = await index_dump(pipeline.index)
    from burnd.index.change import CursorChange

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


@settings(max_examples=examples(12), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
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
    found = await pipeline.index.ask(
        lambda db: tags_of(View(db, PriceTable({}), 0).keyed, list(expected))  # type: ignore[arg-type]
    )
    assert found == expected
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


def _plan_of(sql: str) -> Callable[[sqlite3.Connection], list[Any]]:
    return lambda db: db.execute(f"EXPLAIN QUERY PLAN {sql}").fetchall()


async def test_a_commit_looks_up_by_whole_keys(opened: Opened) -> None:
    """The cost of one more turn must not grow with history: no statement of a commit scans a table or
    goes through all rows of a source or a session."""
    pipeline = await opened()
    seen: set[str] = set()
    await pipeline.index.writer.run(lambda db: db.set_trace_callback(seen.add))
    for reader in pipeline.index.pool.lookups:
        await reader.set_trace_callback(seen.add)
    where: dict[str, Any] = {"source": "claude-code", "session_id": "s1", "rail_id": "main", "ts": at(3)}
    for n in range(2):
        entries: list[Any] = [turn("m1", ts=at(n)), turn("m2", ts=at(n)), stamp(1, k="v"), stamp(2, k="w")]
        entries += [Copy(**where, message_id=f"c{i}", turn_index=n) for i in range(2)]
        await pipeline.commit(Batch(entries=entries, content=[text(f"m{n}", "words")]))
    await pipeline.index.writer.run(lambda db: db.set_trace_callback(None))
    for reader in pipeline.index.pool.lookups:
        await reader.set_trace_callback(None)  # type: ignore[arg-type]
    verbs = ("SELECT", "WITH", "UPDATE", "DELETE", "INSERT")
    planned = [sql for sql in seen if sql.lstrip().startswith(verbs) and "VALUES(?" not in sql]
    assert len(planned) > 8
    large = {"turns", "t", "messages", "m", "sessions", "facts", "f", "sums", "s", "prompts", "endings"}
    large |= {"session_cells", "session_prompts", "c"}
    for sql in planned:
        # On the writer's connection, which has the temporary tables of a commit.
        steps = await pipeline.index.writer.run(_plan_of(sql))
        plan = "; ".join(row[3] for row in steps)
        scanned = [step.split()[1] for step in plan.split("; ") if step.startswith("SCAN") and "VIRTUAL" not in step]
        assert not set(scanned) & large, (sql, plan)
        assert "(source=?)" not in plan, sql
        assert "(kind=?)" not in plan, sql
        assert "messages_by_message (session=?)" not in plan, sql


some_sessions = st.sampled_from(["s0", "s1", "s2"])
deeds = st.lists(
    st.one_of(
        st.tuples(st.just("turn"), st.integers(0, 4), some_sessions, st.integers(0, 50), st.sampled_from(["/a", "/b"])),
        st.tuples(st.just("text"), st.integers(0, 4), some_sessions, st.integers(0, 50)),
        st.tuples(st.just("title"), st.sampled_from(["custom", "ai", "opencode"]), some_sessions, st.integers(0, 50)),
        st.tuples(st.just("session"), some_sessions, st.sampled_from([None, "off", "full"])),
        st.tuples(st.just("copy"), st.integers(0, 4), some_sessions),
        st.tuples(st.just("stamp"), some_sessions, st.integers(0, 50)),
        st.tuples(st.just("forget"), some_sessions),
        st.tuples(st.just("restart")),
    ),
    max_size=14,
)


async def do(opener: Opened, deed: tuple[Any, ...]) -> None:
    pipeline = opener.pipeline
    assert pipeline is not None
    match deed:
        case ("turn", n, session_id, seconds, project):
            await pipeline.commit(
                Batch(entries=[turn(f"m{n}", session_id=session_id, ts=at(seconds), project=project, turn_index=n)])
            )
        case ("text", n, session_id, seconds):
            big = "x" * (n * 700)
            await pipeline.commit(Batch(content=[text(f"m{n}", big, session_id=session_id, ts=at(seconds))]))
        case ("title", kind, session_id, seconds):
            title = text(f"title:{kind}", f"{kind} {seconds}", kind="title", session_id=session_id, ts=at(seconds))
            await pipeline.commit(Batch(content=[title]))
        case ("session", session_id, mode):
            session = Session(session_id=session_id, source="opencode", content_mode=mode, parent_session_id="s0")
            await pipeline.commit(Batch(entries=[session]))
        case ("copy", n, session_id):
            copy = Copy(source="x", session_id=session_id, rail_id="main", message_id=f"m{n}", turn_index=n, ts=at(n))
            await pipeline.commit(Batch(entries=[copy]))
        case ("stamp", session_id, seconds):
            await pipeline.commit(Batch(entries=[stamp(seconds, session=session_id, k="v")]))
        case ("forget", session_id):
            await pipeline.forget([session_id])
        case ("restart",):
            await opener()


@settings(max_examples=examples(25), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(deeds)
@example(
    [("text", 0, "s1", 0), ("session", "s0", "off"), ("turn", 0, "s0", 0, "/a"), ("session", "s1", None)]
)  # the parent of a session with text becomes known, and is private
async def test_any_history_can_be_rebuilt(tmp_path_factory: pytest.TempPathFactory, history: list[Any]) -> None:
    """I3: after any history of revisions, moves, titles, copies, modes and forgetting, the rebuilt index equals the
    grown one, and reading every source again adds no line."""
    opener = Opened(Home(tmp_path_factory.mktemp("home") / "home"))
    await opener()
    for deed in history:
        await do(opener, deed)
    assert opener.pipeline is not None
    before = await index_dump(opener.pipeline.index)
    await opener.close()
    shutil.rmtree(opener.home.index)
    again = await opener()
    assert await index_dump(again.index) == before
    await opener.close()


async def test_a_source_read_again_adds_nothing(opened: Opened) -> None:
    """F48, P2: after a lost index, after restarts, or twice in one batch, the same content is one line."""
    batch = Batch(
        entries=[turn(), stamp(1, k="v")], content=[text("m1", "one"), text("m2", "x" * 5000), text("m1", "one")]
    )
    pipeline = await opened()
    await pipeline.commit(batch)
    ledger, sidecar = pipeline.journal.end, pipeline.content.sidecars.size("s1")
    await pipeline.commit(batch)
    await opened.close()
    shutil.rmtree(opened.home.index)
    await opened()
    pipeline = await opened()
    await pipeline.commit(batch)
    assert (pipeline.journal.end, pipeline.content.sidecars.size("s1")) == (ledger, sidecar)
    assert len((await index_dump(pipeline.index))["messages"]) == 2


async def test_a_ledger_touched_while_running_doubles_no_message(opened: Opened) -> None:
    """F47: mending the ledger in the middle of a commit does not index its content twice."""
    pipeline = await opened()
    await pipeline.commit(Batch(entries=[turn()]))
    with open(opened.home.ledger, "ab") as ledger:
        ledger.write(b"\n")
    await pipeline.commit(Batch(entries=[turn("m2")], content=[text("m2", "once")]))
    assert len((await index_dump(pipeline.index))["messages"]) == 1


async def test_queries_go_on_during_a_rebuild(opened: Opened) -> None:
    """F53, F58: queries during the swap of the index do not fail."""
    import anyio

    await fill(opened)
    pipeline = await opened()
    asked = 0

    async def ask() -> None:
        nonlocal asked
        while True:
            assert await pipeline.index.rows("SELECT count(*) FROM turns") == [(30,)]
            asked += 1

    async with anyio.create_task_group() as tasks:
        for _ in range(5):
            tasks.start_soon(ask)
        for _ in range(3):
            await pipeline.rebuild_index()
        tasks.cancel_scope.cancel()
    assert asked > 10


async def test_a_quota_with_a_bad_time_is_refused(opened: Opened) -> None:
    """An unreadable record is never written, since it would stop every start."""
    pipeline = await opened()
    bad = Quota(ts=at(1), source="claude-code", window="5h", used_percent=1.0, resets_at="soon")
    assert await pipeline.commit(Batch(entries=[bad, turn()])) == 1
    assert pipeline.status.refused == 1
    await opened()


@pytest.mark.parametrize("bad", ["\ud800", "a\ud800b"])
async def test_ids_utf8_cannot_hold_are_mended(opened: Opened, bad: str) -> None:
    """F57: in messages, sessions, calls and content alike."""
    pipeline = await opened()
    entry = turn(bad, session_id=bad, prompt_id=bad)
    event = Event(source="x", session_id=bad, rail_id=bad, id=bad, ts=at(0), name=bad)
    await pipeline.commit(Batch(entries=[entry, event], content=[text(bad, bad, session_id=bad)]))
    assert await pipeline.commit(Batch(entries=[entry, event], content=[text(bad, bad, session_id=bad)])) == 0
    dump = await index_dump(pipeline.index)
    assert len(dump["turns"]) == len(dump["messages"]) == 1


def test_roles_and_kinds_round_trip() -> None:
    """Roles and kinds of content have numbers that map back to their names."""
    db = sqlite3.connect(":memory:")
    db.executescript(TABLES)
    for n, ((role, kind), number) in enumerate(ROLE_AND_KIND.items()):
        db.execute(
            "INSERT INTO messages(session, rail, msg_idx, n, b, message, ts, said, position, length) "
            "VALUES(1, 'main', ?, 0, 0, 'm', 0, ?, 0, 0)",
            (n, number),
        )
        assert db.execute("SELECT role, kind FROM messages WHERE msg_idx = ?", (n,)).fetchall() == [(role, kind)]
    db.close()


@pytest.mark.parametrize(
    "said",
    ["0b2f9a4e-1c3d-4e5f-8a9b-0c1d2e3f4a5b", "0B2F9A4E-1C3D-4E5F-8A9B-0C1D2E3F4A5B", "msg_01", "", "\x00é", "-" * 36],
)
def test_ids_read_as_they_were_written(said: str) -> None:
    """A UUID is stored in 16 bytes, any other id as it is; either reads as its text."""
    db = sqlite3.connect(":memory:")
    db.executescript(TABLES)
    db.execute(
        "INSERT INTO messages(session, rail, msg_idx, n, b, message, ts, said, position, length) "
        "VALUES(1, 'main', 0, 0, 0, ?, 0, 0, 0, 0)",
        (short_id(said),),
    )
    assert db.execute("SELECT message_id FROM messages").fetchall() == [(said,)]
    assert whole_id(short_id(said)) == said
    db.close()


@pytest.mark.parametrize("sql", [quotes._RECORDS, quotes._PLACE, search._NUMBERS, search._RECORDS])
def test_a_message_is_looked_up_by_its_id(sql: str) -> None:
    """In a session of any length: every lookup, bound or joined, includes the end of the id."""
    db = sqlite3.connect(":memory:")
    db.executescript(TABLES)
    sql = sql.format(keys="VALUES(1, 'm', 'main')")
    bound = max((int(mark) for mark in re.findall(r"\?(\d)", sql)), default=0)
    plan = db.execute(f"EXPLAIN QUERY PLAN {sql}", (1,) * bound).fetchall()
    assert any("messages_by_message (session=? AND <expr>=?" in row[3] for row in plan), plan
    db.close()


touches = st.lists(
    st.tuples(
        st.sampled_from([None, 1, 2]),
        st.sampled_from([None, 11, 12]),
        st.sampled_from([None, 21, 22]),
        st.sampled_from([None, 5, 6, 7]),
        st.sampled_from([1, 2]),
        st.sampled_from(["0", "1a", "1b"]),
    ),
    max_size=12,
)


def _touched(batches: Iterable[list[Any]]) -> list[Any]:
    with closing(sqlite3.connect(":memory:")) as db:
        db.executescript(TABLES)
        db.executemany("INSERT INTO sessions(id, session_id) VALUES(?, ?)", [(1, "s1"), (2, "s2")])
        for batch in batches:
            db.executemany(apply._UPDATE_BY_TURN, batch)
        return db.execute("SELECT * FROM sessions").fetchall()


@settings(max_examples=examples(100), deadline=None)
@given(touches, touches)
@example([(1, 12, None, 5, 1, "1a")], [(1, 11, 21, 5, 1, "1b"), (1, 11, None, 6, 1, "0"), (1, 11, 21, 7, 1, "1b")])
def test_what_turns_say_of_their_session_may_come_in_any_batches(before: list[Any], then: list[Any]) -> None:
    """I3: skipping unchanged facts gives the same result, in any order of folders and keys."""
    singly = _touched([[row] for row in (*before, *then)])
    assert _touched([apply._fewer_updates(before), apply._fewer_updates(then)]) == singly
    assert _touched([apply._fewer_updates([*before, *then])]) == singly
