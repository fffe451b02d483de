"""Messages found several times: forks, forks of forks, imports, and databases of other channels."""

from __future__ import annotations

import itertools
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from burnd.clients.announcements import Announcement, announce
from burnd.records import Turn
from tests.capture.opencode_rig import OpenCodeRig, clean_read
from tests.capture.opencode_sessions import original, own_step
from tests.faults.canaries import CANARY, files_with_canary
from tests.harness.opencode.data import Writer, text, tokens, tool
from tests.make import read_content

Rigs = Callable[..., Any]
Writers = Callable[..., Writer]


def total(rig: OpenCodeRig) -> int:
    return sum(turn.usage.input for turn in rig.turns().values())


async def test_a_fork_costs_only_what_is_its_own(rig: OpenCodeRig, writer: Writer) -> None:
    """Copied rows are copies, with their sizes: the fork's first own step carries them, and they cost nothing."""
    original(writer)
    writer.fork("ses_o", "ses_f")
    own_step(writer, "ses_f")
    await rig.settle()
    assert total(rig) == 100 + 101 + 900
    copies = rig.copies()
    assert set(copies) == {"ses_f-ses_o-a0", "ses_f-ses_o-a1", "ses_f-ses_o-a2"}
    own = rig.turns()["ses_f-own-a"]
    assert (own.turn_index, own.parent) == (3, "ses_f-ses_o-a2")
    assert [block.bytes for block in copies["ses_f-ses_o-a1"].entered] == [50]
    kept = {record.message_id for record in read_content(rig.pipeline.content, "ses_f")}
    assert {"ses_f-ses_o-u", "ses_f-ses_o-a0", "ses_f-ses_o-a1", "ses_f-own-a"} <= kept
    events = await rig.pipeline.index.rows("SELECT key FROM facts WHERE kind = 'event'")
    assert events == [('["opencode","ses_o-a2"]',)]


async def test_a_fork_of_a_fork_is_a_copy_of_the_original(rig: OpenCodeRig, writer: Writer) -> None:
    original(writer)
    writer.fork("ses_o", "ses_f")
    own_step(writer, "ses_f")
    writer.fork("ses_f", "ses_g")
    own_step(writer, "ses_g")
    await rig.settle()
    assert total(rig) == 100 + 101 + 900 + 900
    assert len(rig.copies()) == 3 + 4


async def test_a_new_release_forks_what_an_old_one_wrote(rig: OpenCodeRig, writer: Writer) -> None:
    """Only the old session's output includes reasoning; the fork is a copy all the same."""
    writer.session("ses_o", version="1.1.50")
    writer.user("u", "ses_o")
    writer.step("a", "ses_o", "u", tokens={"input": 10, "output": 5, "reasoning": 2})
    writer.fork("ses_o", "ses_f")
    await rig.settle()
    assert {name: (turn.usage.output, turn.usage.reasoning) for name, turn in rig.turns().items()} == {"a": (3, 2)}
    assert set(rig.copies()) == {"ses_f-a"}


async def test_a_copy_whose_original_is_not_known_is_billed_once(rig: OpenCodeRig, writer: Writer) -> None:
    """The session it was copied from is gone: of two forks the first one owns what both hold."""
    original(writer)
    writer.fork("ses_o", "ses_g")
    writer.fork("ses_o", "ses_f")
    writer.db.execute("DELETE FROM session WHERE id = 'ses_o'")
    await rig.settle()
    assert {name: turn.session_id for name, turn in rig.turns().items()} == {
        f"ses_g-ses_o-a{n}": "ses_g" for n in range(3)
    }
    assert set(rig.copies()) == {f"ses_f-ses_o-a{n}" for n in range(3)}


async def test_other_tokens_are_another_message(rig: OpenCodeRig, writer: Writer) -> None:
    """An older row with the same time but another count, or another model, is no copy: it is billed."""
    original(writer)
    writer.fork("ses_o", "ses_f")
    for number, change in ((0, '"input": 5000'), (1, '"modelID": "other"')):
        old = '"input": 100' if number == 0 else '"modelID": "gpt-5"'
        for table, column in (("message", "id"), ("part", "message_id")):
            writer.db.execute(
                f"UPDATE {table} SET data = replace(data, ?, ?) WHERE {column} = ?",
                (old, change, f"ses_f-ses_o-a{number}"),
            )
    await rig.settle()
    assert total(rig) == 100 + 101 + 5000 + 101
    assert set(rig.copies()) == {"ses_f-ses_o-a2"}


def three_sessions(folder: Path) -> Path:
    writer = Writer(folder / "opencode.db")
    original(writer)
    writer.fork("ses_o", "ses_f")
    own_step(writer, "ses_f")
    writer.fork("ses_f", "ses_g")
    own_step(writer, "ses_g")
    writer.close()
    return writer.path


@pytest.mark.parametrize("order", list(itertools.permutations(["ses_o", "ses_f", "ses_g"])), ids="-".join)
async def test_any_order_of_reading_gives_the_same(tmp_path: Path, order: tuple[str, ...]) -> None:
    """The original may be read after its forks, and be billed to one of them until then: that is taken back."""
    whole = three_sessions(tmp_path / "whole")
    expected = await clean_read(tmp_path / "clean", tmp_path / "whole")
    rig = OpenCodeRig(tmp_path / "home", tmp_path / "live")
    await rig.open()
    live = Writer(tmp_path / "live" / "opencode.db")
    live.db.execute("ATTACH ? AS whole", (str(whole),))
    for session in order:
        for table, column in (("session", "id"), ("message", "session_id"), ("part", "session_id")):
            live.db.execute(
                f"INSERT INTO {table} SELECT * FROM whole.{table} WHERE {column} = ? ORDER BY rowid", (session,)
            )
        live.db.execute(
            "INSERT INTO event_sequence SELECT * FROM whole.event_sequence WHERE aggregate_id = ?", (session,)
        )
        await rig.settle()
        if session != order[-1]:
            await rig.restart()
    assert await rig.outcome() == expected
    shutil.rmtree(rig.home.index)
    await rig.restart()
    await rig.settle()
    assert await rig.outcome() == expected
    await rig.close()
    live.close()


async def test_what_is_taken_back_counts_nothing_even_to_those_who_do_not_know(
    rig: OpenCodeRig, tmp_path: Path, writers: Writers
) -> None:
    """The line that takes a bill back has no usage, and names the message that is billed instead."""
    whole = three_sessions(tmp_path / "whole")
    live = writers()
    live.db.execute("ATTACH ? AS whole", (str(whole),))
    for session in ("ses_f", "ses_o"):
        for table, column in (("session", "id"), ("message", "session_id"), ("part", "session_id")):
            live.db.execute(f"INSERT INTO {table} SELECT * FROM whole.{table} WHERE {column} = ?", (session,))
        await rig.settle()
    lines = [item.entry for item in rig.pipeline.journal.read() if isinstance(item.entry, Turn)]
    back = {turn.message_id: turn for turn in lines if turn.copy_of is not None}
    assert {name: turn.copy_of for name, turn in back.items()} == {f"ses_f-ses_o-a{n}": f"ses_o-a{n}" for n in range(3)}
    newest = {turn.message_id: turn for turn in lines}
    assert sum(turn.usage.input for turn in newest.values()) == 100 + 101 + 900


async def test_a_fork_of_a_step_that_had_not_ended(rig: OpenCodeRig, writer: Writer) -> None:
    """The copy never gets tokens; when the original ends, the copy is not billed."""
    writer.session("ses_o")
    writer.user("u", "ses_o")
    created = writer.tick()
    writer.step("a", "ses_o", "u", text("so far"), done=False, at=created)
    writer.fork("ses_o", "ses_f")
    await rig.settle()
    writer.step("b", "ses_o", "u", tokens=tokens(input=7))
    writer.update("a", {"role": "assistant", "modelID": "gpt-5", "tokens": tokens(input=50), "time": {"completed": 5}})
    await rig.settle()
    assert total(rig) == 57
    assert set(rig.copies()) == {"ses_f-a"}


async def test_two_channels_are_two_databases(rig: OpenCodeRig, writers: Writers) -> None:
    """F34: a build of another channel keeps its own file beside the usual one; both are read."""
    original(writers())
    original(writers("opencode-dev.db"), "ses_dev")
    writers("unrelated.db")
    await rig.settle()
    assert {turn.session_id for turn in rig.turns().values()} == {"ses_o", "ses_dev"}
    assert rig.source.status().files == 2


async def test_a_place_that_a_client_tells_of_is_read_as_well(
    rig: OpenCodeRig, writers: Writers, tmp_path: Path
) -> None:
    """Sessions of an opencode with another XDG_DATA_HOME are found once a client names the folder."""
    original(writers())
    other = Writer(tmp_path / "elsewhere" / "opencode" / "opencode.db")
    original(other, "ses_e")
    await rig.settle()
    assert {turn.session_id for turn in rig.turns().values()} == {"ses_o"}
    rig.source.add_roots([str(tmp_path / "elsewhere")])
    await rig.settle()
    other.close()
    assert {turn.session_id for turn in rig.turns().values()} == {"ses_o", "ses_e"}


async def test_an_import_is_found_though_its_times_are_old(rig: OpenCodeRig, writer: Writer) -> None:
    """An import bypasses the event log and has old times; row numbers reveal it."""
    original(writer)
    await rig.settle()
    writer.clock -= 10**9
    original(writer, "ses_i")
    writer.db.execute("DELETE FROM event_sequence WHERE aggregate_id = 'ses_i'")
    await rig.settle()
    assert total(rig) == 2 * 201


def imported(data: Path) -> None:
    """A session in the usual database, and its import in another channel's, with a different title and folder."""
    writer = Writer(data / "opencode.db")
    original(writer)
    writer.retitle("ses_o", "Words")
    writer.close()
    shutil.copyfile(data / "opencode.db", data / "opencode-dev.db")
    with closing(sqlite3.connect(data / "opencode-dev.db")) as db, db:
        db.execute("UPDATE session SET directory = '/elsewhere', title = 'Other words'")
        db.execute("UPDATE message SET time_updated = time_updated + 999999")
        db.execute("DELETE FROM event_sequence")


@contextmanager
def held(path: Path) -> Iterator[None]:
    """Locks the database exclusively."""
    with closing(sqlite3.connect(path, isolation_level=None)) as holder:
        holder.execute("PRAGMA locking_mode=EXCLUSIVE")
        holder.execute("BEGIN EXCLUSIVE")
        holder.execute("UPDATE session SET title = title")
        holder.execute("COMMIT")
        yield


@pytest.mark.parametrize("first", ["opencode.db", "opencode-dev.db"])
async def test_an_imported_session_is_the_same_session(tmp_path: Path, first: str) -> None:
    """Imports keep ids, times and costs: found in two databases, everything is recorded once, in any order."""
    data = tmp_path / "live"
    imported(data)
    expected = await clean_read(tmp_path / "clean", data)
    second = "opencode-dev.db" if first == "opencode.db" else "opencode.db"
    (data / second).rename(data / "away")
    rig = OpenCodeRig(tmp_path / "home", data)
    await rig.open()
    await rig.settle()
    (data / "away").rename(data / second)
    await rig.settle()
    assert total(rig) == 201
    found = await rig.outcome()
    assert found["ledger"] == expected["ledger"]
    assert found["content"] == expected["content"]
    await rig.close()


async def test_while_the_first_database_is_locked_the_other_does_not_tell_its_sessions(
    rig: OpenCodeRig, tmp_path: Path
) -> None:
    """The owner is unknown until then: the session waits, status shows it, and the end result is the same."""
    imported(rig.data)
    expected = await clean_read(tmp_path / "clean", rig.data)
    with held(rig.data / "opencode.db"):
        for _ in range(5):
            await rig.attend(1.0)
        assert (rig.turns(), await rig.open_turns()) == ({}, set())
        assert rig.source.status().pending == 1
        assert "locked" in rig.source.status().detail
    await rig.settle()
    assert rig.source.status().pending == 0
    assert await rig.outcome() == expected


async def test_a_lock_that_never_ends_keeps_nothing_from_being_recorded(rig: OpenCodeRig) -> None:
    """After a minute the other database is believed, which is counted; nothing is there twice in the end."""
    imported(rig.data)
    with held(rig.data / "opencode.db"):
        for seconds in (0.1, 61.0, 3.0, 700.0):
            await rig.attend(seconds)
        assert total(rig) == 201
        assert rig.source.status().counts["sessions compared with no other database (locked)"] > 0
    await rig.settle()
    assert total(rig) == 201
    assert await rig.pipeline.index.rows("SELECT harness_title FROM sessions") == [("Words",)]


async def test_what_a_database_held_is_remembered_when_it_can_be_read_no_more(rig: OpenCodeRig) -> None:
    """It is damaged meanwhile: what the other database adds to a session is recorded, but not what that calls it."""
    imported(rig.data)
    await rig.attend()
    (rig.data / "opencode.db").write_bytes(b"no database" * 1000)
    other = Writer(rig.data / "opencode-dev.db")
    other.clock += 10**6
    own_step(other, "ses_o")
    await rig.settle()
    other.close()
    assert total(rig) == 201 + 900
    assert await rig.pipeline.index.rows("SELECT harness_title FROM sessions") == [("Words",)]
    assert rig.source.status().counts["sessions compared with no other database (SQLITE_NOTADB)"] > 0


async def test_an_import_goes_on_in_its_own_database(rig: OpenCodeRig, writers: Writers) -> None:
    """A message added in one of two databases with a session is recorded, in whichever it was added."""
    writer = writers()
    original(writer)
    writer.db.execute("VACUUM INTO ?", (str(writer.path.with_name("opencode-dev.db")),))
    other = writers("opencode-dev.db")
    other.clock = writer.clock + 100
    own_step(other, "ses_o")
    await rig.settle()
    assert total(rig) == 201 + 900
    assert rig.turns()["ses_o-own-a"].turn_index == 3


def secret(writer: Writer, session: str = "ses_o") -> None:
    """A session with the canary in every row."""
    writer.session(session, title=f"The {CANARY}")
    writer.user(f"{session}-u", session, f"find {CANARY}")
    step = (tool("c", "bash", {"command": f"cat {CANARY}"}, f"{CANARY} " * 300), text(f"said {CANARY}"))
    writer.step(f"{session}-a0", session, f"{session}-u", *step, tokens=tokens(input=100, output=10))
    writer.user(f"{session}-u2", session, f"unanswered {CANARY}")


def forked(writer: Writer, session: str, word: str) -> None:
    writer.fork("ses_o", session, title=f"The {CANARY} (fork #1)")
    writer.user(f"{session}-own-u", session, f"in the fork {word}")
    writer.step(f"{session}-own-a", session, f"{session}-own-u", text(f"forked {word}"), tokens=tokens(input=900))


@pytest.mark.parametrize("when", ["before", "between", "after"])
async def test_a_fork_of_a_private_session_is_private(rig: OpenCodeRig, writer: Writer, when: str) -> None:
    """Its rows, copied and its own, and its title are not kept, whenever the daemon hears that it is private."""

    async def announced() -> None:
        begun = writer.db.execute("SELECT time_created FROM session WHERE id = 'ses_o'").fetchone()
        await announce(rig.pipeline, Announcement("ses_o", "opencode", begun[0] if begun else 0, "off"))

    if when == "before":
        await announced()
    secret(writer)
    await rig.settle()
    if when == "between":
        await announced()
    forked(writer, "ses_f", CANARY)
    writer.fork("ses_f", "ses_g", title=f"The {CANARY} (fork #2)")
    writer.session("ses_child", parent_id="ses_f", title=CANARY)
    writer.user("child-u", "ses_child", CANARY)
    writer.step("child-a", "ses_child", "child-u", text(CANARY))
    writer.session("ses_plain", title="A plain title")
    writer.user("plain-u", "ses_plain", "a plain prompt")
    writer.step("plain-a", "ses_plain", "plain-u", text("a plain answer"))
    await rig.settle()
    if when == "after":
        await announced()
    assert files_with_canary(rig.home) == set()
    for _ in range(2):
        assert {record.text for record in read_content(rig.pipeline.content, "ses_plain")} == {
            "A plain title",
            "a plain prompt",
            "a plain answer",
        }
        await rig.close()
        shutil.rmtree(rig.home.index)
        await rig.open()
        await rig.settle()
        assert files_with_canary(rig.home) == set()


@pytest.mark.parametrize("when", ["fork before", "fork after"])
async def test_what_was_forgotten_stays_so_in_a_fork(rig: OpenCodeRig, writer: Writer, when: str) -> None:
    """Of a fork only its own rows are kept."""
    secret(writer)
    if when == "fork before":
        forked(writer, "ses_f", "fine")
    await rig.settle()
    await rig.pipeline.forget(["ses_o"])
    if when == "fork after":
        forked(writer, "ses_f", "fine")
    await rig.settle()
    for _ in range(2):
        assert files_with_canary(rig.home) == set()
        kept = {record.text for record in read_content(rig.pipeline.content, "ses_f")}
        assert kept == {"in the fork fine", "forked fine"}
        await rig.close()
        shutil.rmtree(rig.home.index)
        await rig.open()
        await rig.settle()
