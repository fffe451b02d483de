"""F31-F38: what a database can be like when it is not as it should be, and that opencode never notices us."""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from burnd.errors import NoSpace
from burnd.harness.opencode import rows as opencode_rows
from burnd.harness.opencode.cursor import ChangeFinder
from burnd.harness.opencode.database import Database, StaleRead
from burnd.harness.opencode.follower import DatabaseFollower
from burnd.harness.opencode.rows import DecodedMessage, MessageRow
from burnd.harness.opencode.source import Pace
from burnd.recording.child_process import ChildProcess
from burnd.records.foreign_json import Rejected
from tests.capture.opencode_rig import OpenCodeRig
from tests.capture.opencode_sessions import conversation, exchange, inputs
from tests.harness.opencode.data import Writer, text
from tests.make import seeds
from tests.server.wire import noise

Rigs = Callable[..., Any]
Writers = Callable[..., Writer]
S = "ses_one"


def listing(folder: Path) -> list[tuple[str, int, int]]:
    return sorted((path.name, path.stat().st_size, path.stat().st_mtime_ns) for path in folder.iterdir())


async def test_a_closed_database_is_left_as_it_is(rigs: Rigs, writer: Writer) -> None:
    """F33: 100 polls of a closed database leave no file and change none."""
    conversation(writer)
    writer.close()
    before = listing(writer.path.parent)
    assert [name for name, _, _ in before] == ["opencode.db"]
    rig = await rigs(pace=Pace(tick=0, discover=0, scan=0, rest=0, doubt=0))
    for _ in range(100):
        await rig.attend(1.0)
    assert listing(writer.path.parent) == before
    assert inputs(rig) == {f"{S}-a0": 100, f"{S}-a1": 101}


@contextlib.contextmanager
def without_rights(folder: Path) -> Iterator[None]:
    """Runs as another user that may read the folder but not write to it, since root may do anything."""
    folder.chmod(0o555)
    is_root = os.geteuid() == 0
    if is_root:
        os.seteuid(65534)
    try:
        yield
    finally:
        if is_root:
            os.seteuid(0)
        folder.chmod(0o755)


@pytest.mark.parametrize("is_open", [False, True])
def test_a_folder_that_may_not_be_written_to_is_read(is_open: bool) -> None:
    """F33: without the right to make sidecars, what is there is read all the same, be it in the log or not."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        writer = Writer(folder / "opencode.db")
        conversation(writer)
        if not is_open:
            writer.close()
        database = Database(str(writer.path))
        with without_rights(folder):
            with database.reading() as db:
                assert db.execute("SELECT count(*) FROM message").fetchall() == [(4,)]
            database.close()
        writer.close()


async def test_a_link_to_a_database_is_read_with_its_log(rig: OpenCodeRig, tmp_path: Path) -> None:
    """F32: SQLite keeps the log beside the link's target."""
    writer = Writer(tmp_path / "elsewhere" / "real.db")
    conversation(writer)
    (tmp_path / "opencode").mkdir()
    (tmp_path / "opencode" / "opencode.db").symlink_to(writer.path)
    await rig.attend()
    exchange(writer, S, 5)
    await rig.settle()
    writer.close()
    assert set(inputs(rig)) == {f"{S}-a0", f"{S}-a1", f"{S}-a5"}
    assert os.listdir(tmp_path / "opencode") == ["opencode.db"]


async def test_a_database_without_a_write_ahead_log_is_read(rigs: Rigs, writer: Writer) -> None:
    """A database in another journal mode is read beside its writer, and no file is left."""
    conversation(writer)
    writer.db.execute("PRAGMA journal_mode=DELETE")
    rig = await rigs(pace=Pace(tick=0, discover=0, scan=0, rest=1.0, doubt=1e9))
    await rig.attend()
    exchange(writer, S, 2)
    await rig.settle()
    assert len(inputs(rig)) == 3
    (one,) = rig.source._databases.values()
    assert not one.is_due(rig.passed + 5, rig.pace, one.follower.db.signature())
    assert [path.name for path in writer.path.parent.iterdir()] == ["opencode.db"]


async def test_rows_that_are_only_in_the_log_are_seen(rig: OpenCodeRig, writer: Writer) -> None:
    """F32: opencode never closes its database cleanly, so the file itself may be all but empty."""
    conversation(writer)
    assert writer.path.stat().st_size < Path(f"{writer.path}-wal").stat().st_size
    await rig.settle()
    assert set(inputs(rig)) == {f"{S}-a0", f"{S}-a1"}


def test_only_a_database_without_a_log_is_taken_for_unchanging() -> None:
    """F32: `immutable` is used in one module only, after a check for the log."""
    root = Path(__file__).parents[2]
    code = "\n".join(path.read_text() for path in [*root.glob("burnd/**/*.py"), *root.glob("burnctl/**/*.py")])
    assert len(re.findall("immutable=1", code)) == 1
    assert "immutable=1" in (root / "burnd" / "harness" / "opencode" / "database.py").read_text()


def test_a_writer_that_starts_meanwhile_makes_what_was_read_worthless(writer: Writer) -> None:
    """F33: a log that appeared, or a file that changed, while it was read as unchanging: to be read again."""
    conversation(writer)
    writer.close()
    database = Database(str(writer.path))

    def read_while_writing() -> None:
        with database.reading() as db:
            db.execute("SELECT count(*) FROM message").fetchall()
            again = Writer(writer.path)
            again.clock = writer.clock
            exchange(again, S, 9)

    with pytest.raises(StaleRead):
        read_while_writing()
    with database.reading() as db:
        assert db.execute("SELECT count(*) FROM message").fetchall() == [(6,)]
    database.close()


async def test_a_transient_read_error_is_not_damage(
    rig: OpenCodeRig, writer: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """F33, F35: a page that changes while it is read as unchanging may look like anything: it is read again."""
    conversation(writer)
    writer.close()
    find_new = ChangeFinder.find_new

    def disturbed(finder: ChangeFinder, db: sqlite3.Connection, identity: tuple[int, int]) -> str:
        monkeypatch.setattr(ChangeFinder, "find_new", find_new)
        again = Writer(writer.path)
        again.clock = writer.clock
        exchange(again, S, 9)
        again.close()
        error = sqlite3.DatabaseError("database disk image is malformed")
        error.sqlite_errorname = "SQLITE_CORRUPT"
        raise error

    monkeypatch.setattr(ChangeFinder, "find_new", disturbed)
    await rig.attend()
    await rig.settle()
    assert (rig.source.status().state, len(inputs(rig))) == ("polling", 3)


async def test_a_writer_s_log_can_be_emptied_between_looks(rigs: Rigs, writer: Writer) -> None:
    """F37: nothing is held open across a wait; 5,000 rows of a foreign writer leave a log that goes back to nothing."""
    rig = await rigs(pace=Pace(tick=0, discover=1e9, scan=1.0, rest=1e9, doubt=1e9))
    writer.session(S)
    for n in range(1000):
        exchange(writer, S, n)
        if n % 100 == 0:
            await rig.attend()
    await rig.attend()
    assert next(iter(rig.source._databases.values())).follower.db.is_open
    assert writer.db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0] == 0
    assert Path(f"{writer.path}-wal").stat().st_size == 0
    exchange(writer, S, 5000)
    await rig.settle()
    assert len(inputs(rig)) == 1001


async def test_a_quiet_database_is_closed(rigs: Rigs, writer: Writer) -> None:
    """An open connection of ours would block exclusive locks and the removal of the log at the end."""
    rig = await rigs(pace=Pace(tick=0, discover=1e9, scan=1.0, rest=1.0, doubt=1e9))
    conversation(writer)
    await rig.attend()
    assert next(iter(rig.source._databases.values())).follower.db.is_open
    await rig.attend(0.5)
    await rig.attend(2.0)
    await rig.attend(2.0)
    writer.db.execute("PRAGMA locking_mode=EXCLUSIVE")
    exchange(writer, S, 7)
    writer.close()
    assert [path.name for path in writer.path.parent.iterdir()] == ["opencode.db"]
    await rig.settle()
    assert f"{S}-a7" in inputs(rig)


HOLDER = """
import sqlite3, sys, time
db = sqlite3.connect(sys.argv[1], isolation_level=None, timeout=20)
db.execute("PRAGMA locking_mode=EXCLUSIVE")
db.execute("BEGIN EXCLUSIVE")
db.execute("UPDATE session SET title = 'held'")
db.execute("COMMIT")
print("held", flush=True)
sys.stdin.read(1)
db.close()
"""


@pytest.mark.timed
async def test_a_locked_database_is_waited_for(rigs: Rigs, writer: Writer) -> None:
    """F31: locked for 5 s by another process: status says locked, and new rows are read within 2 s of the release."""
    conversation(writer)
    rig = await rigs(pace=Pace(tick=0, discover=0, scan=0, rest=0, doubt=0))
    await rig.attend()
    writer.close()
    holder = subprocess.Popen(  # noqa: ASYNC220 - nothing else runs meanwhile
        [sys.executable, "-c", HOLDER, str(writer.path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert holder.stdin is not None
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    for _ in range(20):
        begun = time.monotonic()
        await rig.attend(0.25)
        assert time.monotonic() - begun < 2 * noise()
        status = rig.source.status()
        assert (status.state, "locked" in status.detail) == ("waiting", True)
    holder.stdin.write("x")
    holder.stdin.close()
    assert holder.wait() == 0
    holder.stdout.close()
    for _ in range(8):
        await rig.attend(0.25)
    assert rig.source.status().state == "polling"
    await rig.settle()
    assert await rig.pipeline.index.rows("SELECT harness_title FROM sessions") == [("held",)]


async def test_opencode_never_waits_for_us(rigs: Rigs, writer: Writer) -> None:
    """A writer without any patience gets every row in while every moment is looked at."""
    rig = await rigs()
    impatient = sqlite3.connect(writer.path, isolation_level=None, timeout=0)
    conversation(writer)
    for n in range(100):
        await rig.attend()
        impatient.execute("UPDATE session SET time_updated = time_updated + 1")
        impatient.execute("PRAGMA wal_checkpoint(PASSIVE)")
        assert n >= 0
    impatient.close()


def spoil(path: Path, seed: int) -> None:
    """Overwrites a page that contains only conversation text.

    Not the last page of a text, which has no successor: SQLite has no checksums and would return the bytes.
    """
    rng = random.Random(seed)
    data = bytearray(path.read_bytes())
    pages = [data[at : at + 4096] for at in range(0, len(data), 4096)]
    chosen = [n for n, page in enumerate(pages) if b"answering " * 400 in page and any(page[:4])]
    assert len(chosen) > 100
    page = rng.choice(chosen)
    data[page * 4096 : (page + 1) * 4096] = rng.randbytes(4096)
    path.write_bytes(data)


@seeds(2, 20)
async def test_a_bad_page_hurts_only_what_is_on_it(rig: OpenCodeRig, writer: Writer, seed: int) -> None:
    """F35: readable rows are recorded, the source reports SQLite's message, and an intact file in its place is read."""
    for n in range(40):
        conversation(writer, f"ses_{n}", 1)
        for step in range(3):
            writer.step(f"ses_{n}-more{step}", f"ses_{n}", f"ses_{n}-u0", text("answering " * 2000))
    whole = writer.path.with_name("whole")
    writer.db.execute("VACUUM INTO ?", (str(whole),))
    writer.close()
    shutil.copyfile(whole, writer.path)
    spoil(writer.path, seed)
    await rig.settle()
    status = rig.source.status()
    assert (status.state, "SQLITE_CORRUPT" in status.detail) == ("degraded", True)
    assert len(inputs(rig)) >= 155
    later = Writer(writer.path)
    later.clock = writer.clock
    conversation(later, "ses_later")
    later.close()
    await rig.settle()
    assert {"ses_later-a0", "ses_later-a1"} <= set(inputs(rig))
    assert rig.source.status().state == "degraded"
    whole.replace(writer.path)
    await rig.settle()
    assert (rig.source.status().state, len(inputs(rig))) == ("polling", 162)


async def test_a_bad_page_is_looked_at_again_after_five_minutes(rig: OpenCodeRig, writer: Writer) -> None:
    """Mended in place with its old size and time, so that nothing but the time that passes calls for another try."""
    conversation(writer)
    writer.close()
    good = writer.path.read_bytes()
    facts = writer.path.stat()
    writer.path.write_bytes(b"garbage!" * (len(good) // 8))
    os.utime(writer.path, ns=(facts.st_atime_ns, facts.st_mtime_ns))
    await rig.attend()
    assert "SQLITE_NOTADB" in rig.source.status().detail
    with writer.path.open("r+b") as file:
        file.truncate()
        file.write(good)
    os.utime(writer.path, ns=(facts.st_atime_ns, facts.st_mtime_ns))
    await rig.attend(200.0)
    assert rig.source.status().state == "degraded"
    await rig.attend(200.0)
    await rig.settle()
    assert (rig.source.status().state, len(inputs(rig))) == ("polling", 2)


async def test_an_empty_file_is_no_database_yet(rig: OpenCodeRig, tmp_path: Path) -> None:
    """F35: an empty file lacks its tables; once it has them it is read."""
    path = tmp_path / "opencode" / "opencode.db"
    path.parent.mkdir()
    path.touch()
    await rig.attend()
    status = rig.source.status()
    assert (status.state, "no table" in status.detail) == ("degraded", True)
    assert path.stat().st_size == 0
    path.unlink()
    writer = Writer(path)
    conversation(writer)
    writer.close()
    await rig.settle()
    assert (rig.source.status().state, len(inputs(rig))) == ("polling", 2)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ("DROP TABLE part", "no table part"),
        ("ALTER TABLE message RENAME COLUMN data TO payload", "no column message.data"),
        ("DROP TABLE session", "no table session"),
    ],
)
async def test_a_schema_that_lacks_essentials_degrades_this_source(
    rig: OpenCodeRig, writer: Writer, change: str, says: str
) -> None:
    """F36: status names what is missing; a database beside it is read, and this one once it is complete."""
    other = Writer(writer.path.with_name("opencode-dev.db"))
    conversation(other, "ses_dev")
    other.close()
    conversation(writer)
    await rig.settle()
    writer.db.execute("PRAGMA foreign_keys=OFF")
    writer.db.execute(change)
    await rig.attend()
    status = rig.source.status()
    assert status.state == "degraded"
    assert "unsupported opencode schema" in status.detail
    assert says in status.detail
    assert len(inputs(rig)) == 4


async def test_a_database_that_holds_only_the_coming_format_says_so(rig: OpenCodeRig, writer: Writer) -> None:
    """A schema that we do not read must not look like a fault: its data is in other tables."""
    writer.db.executescript("DROP TABLE part; DROP TABLE message; CREATE TABLE session_v2 (id text PRIMARY KEY)")
    writer.db.execute("INSERT INTO session_v2 VALUES('x')")
    await rig.attend()
    detail = rig.source.status().detail
    assert "no table message, part" in detail
    assert "session_v2" in detail
    assert "NOT READ" in detail


async def test_columns_may_come_and_go(rig: OpenCodeRig, writer: Writer) -> None:
    """F36: optional columns may be missing, and new ones are ignored."""
    conversation(writer)
    for column in ("title", "version", "agent", "parent_id", "time_updated", "time_archived", "cost", "revert"):
        writer.db.execute(f"ALTER TABLE session DROP COLUMN {column}")
    writer.db.execute("ALTER TABLE message DROP COLUMN time_updated")
    writer.db.execute("ALTER TABLE part DROP COLUMN time_updated")
    writer.db.execute("ALTER TABLE part DROP COLUMN time_created")
    writer.db.execute("ALTER TABLE message ADD COLUMN invented text")
    writer.db.execute("DROP TABLE event_sequence")
    await rig.settle()
    assert (rig.source.status().state, len(inputs(rig))) == ("polling", 2)


async def test_one_looks_seldom_where_nothing_goes_on(rigs: Rigs, writers: Writers, tmp_path: Path) -> None:
    """Every 100 ms while rows arrive or one is open, once a second after half a minute of quiet, every 5 s to discover
    databases. A poll in between, for a change that inotify did not report, does not count as activity."""
    rig = await rigs(pace=Pace())
    await rig.attend()
    assert 4.0 < rig.source._pause(rig.passed) <= 5.0
    writer = writers()
    conversation(writer)
    await rig.attend(5.0)
    assert rig.source._pause(rig.passed) == 0.1
    for _ in range(100):
        await rig.attend(1.0)
    assert 0.1 < rig.source._pause(rig.passed) <= 1.0
    for n in (7, 8):
        exchange(writer, S, n, done=n == 7)
        await rig.attend(1.0)
        assert (f"{S}-a{n}" in await rig.open_turns(), rig.source._pause(rig.passed)) == (True, 0.1)
    await rig.attend(300.0)
    assert rig.source._pause(rig.passed) == 0.1, "an answer is waited for"


async def test_a_lock_is_tried_again_in_time_though_nothing_goes_on(rigs: Rigs, writer: Writer) -> None:
    """F31: while another program has it for itself, a quiet database is not left alone for longer than a second."""
    conversation(writer)
    rig = await rigs(pace=Pace())
    await rig.attend()
    for _ in range(40):
        await rig.attend(1.0)
    writer.db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    writer.close()
    holder = sqlite3.connect(writer.path, isolation_level=None)
    holder.execute("PRAGMA locking_mode=EXCLUSIVE")
    holder.execute("UPDATE session SET title = 'held'")
    await rig.attend(1.0)
    assert rig.source.status().state == "waiting"
    (one,) = rig.source._databases.values()
    assert one.pause(rig.passed + 60, rig.pace) == 0.1
    holder.close()
    await rig.attend(1.0)
    assert rig.source.status().state == "polling"


async def test_absence_is_normal(rig: OpenCodeRig, tmp_path: Path) -> None:
    """F38: there is no folder, then a database, then none again, then another: each is read in its time."""
    await rig.attend()
    assert rig.source.status().state == "absent"
    path = tmp_path / "opencode" / "opencode.db"
    for n in range(3):
        writer = Writer(path)
        conversation(writer, f"ses_{n}", 1)
        exchange(writer, f"ses_{n}", 5, done=False)
        await rig.attend()
        writer.close()
        shutil.rmtree(path.parent)
        await rig.attend()
        assert (rig.source.status().state, await rig.open_turns()) == ("absent", set())
    assert len(rig.turns()) == 6


async def test_a_database_deleted_between_polls_leaves_nothing_open(rig: OpenCodeRig, writer: Writer) -> None:
    exchange_in_progress(writer)
    await rig.attend()
    await rig.restart()
    writer.close()
    shutil.rmtree(writer.path.parent)
    await rig.attend()
    assert (await rig.open_turns(), set(rig.turns())) == (set(), {f"{S}-a0"})


def exchange_in_progress(writer: Writer) -> None:
    writer.session(S)
    exchange(writer, S, 0, done=False)


async def test_odd_rows_hurt_only_themselves(rig: OpenCodeRig, writer: Writer) -> None:
    """P7: invalid JSON, values of every type in every column, and a row that is too large."""
    conversation(writer, turns=3)
    odd = [
        ("x1", S, 5, 5, "{not json"),
        ("x2", S, "text", -7, '{"role":"assistant","tokens":{"input":"many"},"time":[1]}'),
        ("x3", S, 9e99, 1.5, '{"role":"assistant","tokens":{"input":1e300,"output":-5,"cache":7}}'),
        ("x4", S, 6, 6, b"\xff\xfe"),
        ("x5", S, 7, 7, "[" * 100_000),
        ("x6", S, 8, 8, '{"role":"system"}'),
    ]
    writer.db.executemany("INSERT INTO message VALUES(?,?,?,?,?)", odd)
    parts = [
        ("p1", f"{S}-a0", S, 5, 5, "null"),
        ("p2", f"{S}-a0", S, 5, 5, '{"type":"tool","tool":7,"state":{"input":[],"output":{}}}'),
        ("p3", f"{S}-a0", S, 5, 5, '{"type":"tool","state":null}'),
        ("p4", f"{S}-a0", S, 5, 5, '{"type":"file","url":"data:image/png;base64,%%%%"}'),
        ("p5", f"{S}-a0", S, 5, 5, '{"type":"unheard-of","x":1}'),
        ("p6", f"{S}-a1", S, 5, 5, '{"type":"text","text":"' + "x" * (65 << 20) + '"}'),
    ]
    writer.db.executemany("INSERT INTO part VALUES(?,?,?,?,?,?)", parts)
    await rig.settle()
    found = inputs(rig)
    assert {f"{S}-a0": 100, f"{S}-a1": 101, f"{S}-a2": 102}.items() <= found.items()
    status = rig.source.status()
    assert status.state == "polling"
    unused = {one.row: one for one in status.unused.lines}
    assert {"message x1", "message x4", "message x5", "part p1", "part p6"} == set(unused)
    assert unused["message x1"].reason == "rejected not-json"
    assert (unused["part p6"].path, unused["part p6"].size > 65 << 20) == (str(writer.path), True)
    assert "its usage is counted" in unused["part p6"].reason
    await rig.restart()
    await rig.attend()
    assert rig.source.status().unused.count == status.unused.count == 5
    writer.db.execute("DELETE FROM message WHERE id LIKE 'x%'")
    writer.db.execute("UPDATE part SET data = '{}', time_updated = 9 WHERE id IN ('p1', 'p6')")
    await rig.settle()
    assert rig.source.status().unused.count == 0


@pytest.mark.parametrize("megabytes", [17, pytest.param(80, marks=pytest.mark.slow)])
@pytest.mark.parametrize("kind", ["message", "part"])
async def test_a_row_that_is_too_large_has_its_turn(
    rig: OpenCodeRig, writer: Writer, kind: str, megabytes: int
) -> None:
    """F09: usage, model and calls are read though the row is not taken into memory; its long texts are cut."""
    conversation(writer, turns=2)
    large = "x\\n\u00e9 " * ((megabytes << 20) // 7)
    column = "id" if kind == "message" else "message_id"
    sql = f"SELECT id, data FROM {kind} WHERE {column} = ? ORDER BY id"
    (row_id, data), *_ = writer.db.execute(sql, (f"{S}-a1",)).fetchall()
    whole = json.loads(data) | ({} if kind == "message" else {"type": "tool", "tool": "read", "callID": "big"})
    whole |= {"summary": large} if kind == "message" else {"state": {"status": "completed", "output": large}}
    writer.db.execute(f"UPDATE {kind} SET data = ? WHERE id = ?", (json.dumps(whole, ensure_ascii=False), row_id))
    await rig.settle()
    assert inputs(rig) == {f"{S}-a0": 100, f"{S}-a1": 101}
    (unused,) = rig.source.status().unused.lines
    assert (unused.row, unused.size > 16 << 20) == (f"{kind} {row_id}", True)
    if kind == "part":
        assert [call.id for call in rig.turns()[f"{S}-a1"].tool_calls] == ["big"]


def overwrite(path: Path, how: str) -> None:
    data = bytearray(path.read_bytes())
    if how == "header":
        data[:16] = b"not a database.."
    else:
        data[len(data) // 2 :] = bytes(len(data) - len(data) // 2)
    path.write_bytes(data)


@pytest.mark.parametrize("way", ["copied", "moved"])
@pytest.mark.parametrize("how", ["header", "pages"])
async def test_a_database_restored_in_place_is_read_soon(
    rigs: Rigs, writer: Writer, tmp_path: Path, how: str, way: str
) -> None:
    """The remedy that status prints works at once: a changed file ends the back-off."""
    for n in range(20):
        conversation(writer, f"ses_{n:02d}", 2)
    writer.close()
    backup = tmp_path / "backup.db"
    shutil.copy(writer.path, backup)
    overwrite(writer.path, how)
    rig = await rigs(pace=Pace())
    await rig.attend()
    assert rig.source.status().state == "degraded"
    assert "restore it from a backup" in rig.source.status().remedy
    await rig.attend(10.0)
    if way == "copied":
        writer.path.write_bytes(backup.read_bytes())
    else:
        backup.rename(writer.path)
    for _ in range(10):
        await rig.attend(0.5)
    assert rig.source.status().state == "polling"
    assert len(inputs(rig)) == 40


async def test_rowids_up_to_the_largest(rig: OpenCodeRig, writer: Writer) -> None:
    """M14: behind the largest number SQLite gives new rows any that is free; below zero there may be rows as well."""
    conversation(writer, turns=2)
    largest = (1 << 63) - 1
    writer.db.execute("UPDATE message SET rowid = ? WHERE id = ?", (largest, f"{S}-a0"))
    writer.db.execute("UPDATE message SET rowid = ? WHERE id = ?", (-largest - 1, f"{S}-a1"))
    writer.db.execute("UPDATE session SET rowid = ?", (largest,))
    await rig.settle()
    assert inputs(rig) == {f"{S}-a0": 100, f"{S}-a1": 101}
    await rig.restart()
    exchange(writer, S, 2)
    conversation(writer, "ses_z", 1)
    await rig.settle()
    assert set(inputs(rig)) == {f"{S}-a0", f"{S}-a1", f"{S}-a2", "ses_z-a0"}
    exchange(writer, S, 3)
    await rig.settle()
    assert len(inputs(rig)) == 5
    assert rig.source.status().state == "polling"


async def test_a_session_that_breaks_the_reader_is_passed_over(
    rig: OpenCodeRig, writer: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """P7: an unforeseen failure in one session: the others are recorded, and status reports it."""
    real = opencode_rows.decode_message

    def breaks(row: MessageRow) -> DecodedMessage | Rejected:
        if row.id == "ses_b-a0":
            raise RuntimeError("nobody foresaw this")
        return real(row)

    monkeypatch.setattr("burnd.harness.opencode.reader.decode_message", breaks)
    for session in ("ses_a", "ses_b", "ses_c"):
        conversation(writer, session, 1)
    await rig.settle()
    assert set(inputs(rig)) == {"ses_a-a0", "ses_c-a0"}
    status = rig.source.status()
    assert (status.state, "RuntimeError" in status.detail) == ("degraded", True)
    monkeypatch.setattr("burnd.harness.opencode.reader.decode_message", real)
    await rig.attend(301.0)
    await rig.settle()
    assert (rig.source.status().state, len(inputs(rig))) == ("polling", 3)


def in_hand(rig: OpenCodeRig) -> list[str]:
    """The sessions that would be suspects if the process died now."""
    data = (rig.home.index / "reading.opencode").read_bytes()
    return list(msgspec.msgpack.decode(data[4 : 4 + int.from_bytes(data[:4], "big")])[0])


async def test_an_unreadable_database_is_no_suspect(
    rigs: Rigs, writer: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """F78: a database that is locked for hours is no reason to suspect a session when the machine is switched off."""
    conversation(writer)
    rig = await rigs()

    def locked(*_: Any, **__: Any) -> None:
        raise sqlite3.OperationalError("database is locked")

    monkeypatch.setattr(DatabaseFollower, "_fetch_session", locked)
    await rig.attend()
    await rig.attend()
    assert in_hand(rig) == []


async def test_a_session_that_waits_for_space_is_no_suspect(
    rigs: Rigs, writer: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """F78, F41: the crash guard covers a session only while its rows are decoded, since the disk may be full for hours
    afterwards."""
    conversation(writer)
    rig, noted, decoded = await rigs(), [], []
    commit, decode_message = rig.pipeline.commit, opencode_rows.decode_message

    def decode(row: MessageRow) -> DecodedMessage | Rejected:
        decoded.append(in_hand(rig))
        return decode_message(row)

    async def full(batch: Any) -> int:
        noted.append(in_hand(rig))
        if len(noted) == 1:
            raise NoSpace("the disk is full", "somewhere")
        return int(await commit(batch))

    async def sleep(_: float) -> None:
        noted.append(in_hand(rig))

    monkeypatch.setattr("burnd.harness.opencode.reader.decode_message", decode)
    monkeypatch.setattr(rig.pipeline, "commit", full)
    monkeypatch.setattr("burnd.recording.pipeline.anyio.sleep", sleep)
    await rig.settle()
    assert decoded == [[S]] * 4
    assert noted[:3] == [[], [], []]
    assert inputs(rig) == {f"{S}-a0": 100, f"{S}-a1": 101}


async def test_only_a_suspect_session_is_decoded_in_a_child(
    rigs: Rigs, writer: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """F78: and with the same result; it is a suspect no longer once it was read."""
    conversation(writer)
    conversation(writer, "ses_two")
    rig, sent = await rigs(), []
    send = ChildProcess.send

    def noting(self: ChildProcess, request: Any, *more: Any) -> None:
        sent.append(request.session_id)
        send(self, request, *more)

    monkeypatch.setattr(ChildProcess, "send", noting)
    rig.source._guard.suspect(S)
    await rig.settle()
    assert sent == [S]
    assert inputs(rig) == {f"{name}-a{n}": 100 + n for name in (S, "ses_two") for n in (0, 1)}
    assert in_hand(rig) == []


async def test_a_skipped_message_is_tried_again_after_a_day(rig: OpenCodeRig, writer: Writer) -> None:
    """F78: until then its session grows around it, and status names it, also after a restart."""
    conversation(writer, turns=3)
    for _ in range(3):
        rig.source._guard.crashed(S, f"{S}-a1", rig.now())
    for n in (3, 4):
        await rig.settle()
        assert f"{S}-a1" not in inputs(rig)
        assert f"passes over message {S}-a1 of {S}," in rig.source.status().detail
        assert [one.row for one in rig.source.status().unused.lines] == [f"message {S}-a1"]
        exchange(writer, S, n)
        await rig.restart()
    wall = rig.now() + 24 * 3600 * 1000
    rig.wall = lambda: wall
    await rig.settle()
    assert inputs(rig) == {f"{S}-a{n}": 100 + n for n in range(5)}
    assert rig.source.status().unused.count == 0
    assert "passes over" not in rig.source.status().detail


async def test_a_session_row_of_unexpected_types_is_named_in_status(rig: OpenCodeRig, writer: Writer) -> None:
    """P7: its messages are recorded all the same."""
    conversation(writer, turns=1)
    writer.db.execute("UPDATE session SET time_created = x'ff', title = 7 WHERE id = ?", (S,))
    await rig.settle()
    assert inputs(rig) == {f"{S}-a0": 100}
    assert [(one.row, one.reason) for one in rig.source.status().unused.lines] == [
        (f"session {S}", "unexpected types in time_created")  # SQLite makes text of a number in a column of text
    ]
