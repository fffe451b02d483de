"""A live database: rows that are completed later, deleted, moved, copied or restored."""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

from burnd.harness.opencode import database
from burnd.harness.opencode.source import OpenCode, Pace
from burnd.records import Content
from burnd.records.codec import encode_content
from burnd.records.times import wall_ms
from tests.capture.claude_folder import until
from tests.capture.opencode_rig import OpenCodeRig
from tests.capture.opencode_sessions import S, conversation, exchange, inputs
from tests.conftest import Opened
from tests.folded import Folded
from tests.harness.opencode.data import Writer, assistant, reasoning, text, tokens, tool
from tests.harness.opencode.stories import ended
from tests.make import read_content

Rigs = Callable[..., Any]
Writers = Callable[..., Writer]


def content(rig: OpenCodeRig, session: str = S) -> list[Content]:
    return read_content(rig.pipeline.content, session)


async def test_a_row_is_shown_at_once_and_recorded_when_it_is_over(rig: OpenCodeRig, writer: Writer) -> None:
    """F29: first seen empty, a step is open; with its final numbers it goes to the ledger 2 s after its end."""
    writer.session(S)
    writer.user("u", S)
    writer.step("a", S, "u", done=False)
    await rig.attend()
    assert (await rig.open_turns(), rig.turns()) == ({"a"}, {})
    writer.update("a", ended("u", writer.clock, tokens(input=7, output=8)))
    await rig.attend(1.0)
    assert (await rig.open_turns(), rig.turns()) == ({"a"}, {})
    rows = await rig.pipeline.index.rows("SELECT input, output FROM turns")
    assert rows == [(7, 8)]
    await rig.attend(2.5)
    assert (await rig.open_turns(), inputs(rig)) == (set(), {"a": 7})


@pytest.mark.parametrize("column", ["directory", "parent_id", "title", "version"])
async def test_a_column_that_is_empty_tells_nothing(rig: OpenCodeRig, writer: Writer, column: str) -> None:
    """I1: a session whose row has an empty folder, parent, title or version is recorded as one that has none."""
    conversation(writer, turns=1, **{column: ""})
    await rig.settle()
    assert inputs(rig) == {f"{S}-a0": 100}
    rows = await rig.pipeline.index.rows(
        "SELECT n.name, s.parent_session_id, s.harness_title FROM sessions s LEFT JOIN names n ON n.id = s.project"
    )
    assert (column == "directory", None) == (rows[0][0] is None, rows[0][1])
    assert rig.source.status().pending == 0


async def test_a_change_after_the_end_is_heard(rig: OpenCodeRig, writer: Writer) -> None:
    """Errors and structured output are added after `completed`: a step that changed waits again, then is revised."""
    writer.session(S)
    writer.user("u", S)
    writer.step("a", S, "u")
    await rig.attend()
    await rig.attend(5.0)
    blocked = {"name": "ContentFilterError", "data": {}}
    writer.update("a", ended("u", writer.clock, tokens(input=7), finish="content-filter", error=blocked))
    await rig.attend()
    assert rig.turns()["a"].stop_reason == "stop"
    await rig.attend(5.0)
    turn = rig.turns()["a"]
    assert (turn.stop_reason, turn.rev) == ("content-filter", 2)
    events = [entry for key, entry in Folded(rig.pipeline.journal.read()).latest.items() if key[0] == "event"]
    assert [event.name for event in events] == ["refusal"]  # type: ignore[union-attr]


async def test_a_step_that_died_is_closed_when_the_next_one_begins(rig: OpenCodeRig, writer: Writer) -> None:
    """Killed in the middle, a row stays open for ever upstream; here it is partial, and its running call unanswered."""
    writer.session(S)
    writer.user("u", S)
    writer.step("a", S, "u", tool("c", "bash", {"command": "sleep 60"}, None), done=False)
    await rig.attend()
    await rig.attend(300.0)
    assert await rig.open_turns() == {"a"}
    exchange(writer, S, 1)
    await rig.attend()
    await rig.attend(5.0)
    turn = rig.turns()["a"]
    assert (turn.quality, turn.tool_calls[0].is_error, await rig.open_turns()) == ("partial", None, set())


async def test_a_step_that_is_silent_for_long_is_closed_and_revised_if_it_ends_after_all(
    rig: OpenCodeRig, writer: Writer
) -> None:
    """Ten minutes without a change close it as partial; should it end hours later, that is a revision."""
    writer.session(S)
    writer.user("u", S)
    writer.step("a", S, "u", done=False)
    await rig.attend()
    await rig.attend(590.0)
    assert await rig.open_turns() == {"a"}
    await rig.attend(20.0)
    assert (rig.turns()["a"].quality, await rig.open_turns()) == ("partial", set())
    writer.update("a", ended("u", writer.clock, tokens(input=7)))
    await rig.attend(7200.0)
    await rig.attend(5.0)
    turn = rig.turns()["a"]
    assert (turn.quality, turn.usage.input, turn.rev) == ("final", 7, 2)


@pytest.mark.parametrize("schema", ["1.2.27", "1.18.33"])
async def test_one_that_was_given_up_is_watched_across_restarts(
    rig: OpenCodeRig, writers: Writers, schema: str
) -> None:
    """Without an event log only its own row shows that an abandoned step has ended."""
    writer = writers(schema=schema)
    writer.session(S)
    writer.user("u", S)
    writer.step("a", S, "u", done=False)
    await rig.attend()
    await rig.attend(700.0)
    await rig.restart()
    await rig.attend()
    writer.update("a", ended("u", writer.clock, tokens(input=7)))
    await rig.attend()
    await rig.attend(5.0)
    assert rig.turns()["a"].quality == "final"


@pytest.mark.parametrize("is_complete", [False, True])
async def test_what_comes_late_is_heard_without_an_event_log(
    rig: OpenCodeRig, writer: Writer, is_complete: bool
) -> None:
    """Settled long ago and seen by a daemon before: a call that is answered after all changes nothing but its part."""
    writer.session(S)
    writer.user("u", S)
    writer.step("a", S, "u", done=is_complete)
    part = writer.part("a", S, tool("c", "bash", {"command": "make"}, None))
    await rig.settle()
    assert rig.turns()["a"].tool_calls[0].is_error is None
    writer.db.execute("DELETE FROM event_sequence")
    await rig.settle()
    await rig.restart()
    await rig.settle()
    answered = json.dumps(tool("c", "bash", {"command": "make"}, "failed", metadata={"exit": 2}))
    writer.db.execute("UPDATE part SET data = ?, time_updated = ? WHERE id = ?", (answered, writer.tick(), part))
    await rig.settle()
    assert rig.turns()["a"].tool_calls[0].is_error is True


async def test_a_session_that_is_taken_up_again_is_read_once(rig: OpenCodeRig, writer: Writer) -> None:
    """A session that was quiet stays read: only new rows are read until they settle."""
    conversation(writer, turns=30)
    await rig.settle()
    await rig.restart()
    await rig.attend()
    writer.tick(60_000)
    exchange(writer, S, 30)
    for _ in range(10):
        await rig.attend()
    read = rig.source.status().counts["messages"]
    assert 62 <= read <= 62 + 10 * 2
    await rig.settle()
    assert len(inputs(rig)) == 31


async def test_flush_settles_what_is_open_now(rig: OpenCodeRig, writer: Writer) -> None:
    """Asked to, the source closes what is open, of one session or of all; what comes later is a revision."""
    for session in ("ses_a", "ses_b"):
        writer.session(session)
        writer.user(f"u{session}", session)
        writer.step(f"a{session}", session, f"u{session}", done=False)
    rig.source._flushes.append(("ses_a", anyio.Event()))
    await rig.attend()
    assert (set(rig.turns()), await rig.open_turns()) == ({"ases_a"}, {"ases_b"})
    rig.source._flushes.append((None, anyio.Event()))
    await rig.attend()
    assert (set(rig.turns()), await rig.open_turns()) == ({"ases_a", "ases_b"}, set())
    writer.update("ases_a", ended("uses_a", writer.clock, tokens(input=7)))
    await rig.attend()
    await rig.attend(5.0)
    assert rig.turns()["ases_a"].usage.input == 7


async def test_what_a_revert_deletes_stays_spent(rig: OpenCodeRig, writer: Writer) -> None:
    """F30: between two looks the newest rows go and others get their numbers; nothing is missed, nothing doubled."""
    conversation(writer, turns=3)
    await rig.settle()
    writer.delete(f"{S}-u1", f"{S}-a1", f"{S}-u2", f"{S}-a2")
    exchange(writer, S, 7)
    exchange(writer, S, 8)
    numbers = {row[0]: row[1] for row in writer.db.execute("SELECT id, rowid FROM message")}
    assert numbers[f"{S}-u7"] == 3
    await rig.settle()
    assert inputs(rig) == {f"{S}-a{n}": 100 + n for n in (0, 1, 2, 7, 8)}
    turns = rig.turns()
    assert (turns[f"{S}-a7"].turn_index, turns[f"{S}-a7"].parent) == (3, f"{S}-a0")
    assert rig.source.rewound == 1
    assert [record.text for record in content(rig)].count("answer 1") == 1


async def test_rows_deleted_during_a_poll_are_harmless(
    rigs: Rigs, writer: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """F30: the row before the marker is looked at in the very state that is read on from, not a moment earlier."""
    rig = await rigs(pace=Pace(tick=0, discover=0, scan=1e9, rest=1e9, doubt=1e9))
    for session in ("ses_a", "ses_b"):
        conversation(writer, session)
    await rig.settle()
    message_at = database.message_at

    def and_then_a_revert(*given: Any) -> Any:
        found = message_at(*given)
        monkeypatch.setattr(database, "message_at", message_at)
        other = Writer(writer.path)
        other.clock = writer.clock
        other.delete("ses_b-u1", "ses_b-a1")
        exchange(other, "ses_a", 7)
        exchange(other, "ses_b", 8)
        other.close()
        return found

    monkeypatch.setattr(database, "message_at", and_then_a_revert)
    writer.retitle("ses_b", "Something is new")
    for _ in range(3):
        await rig.settle()
    assert {"ses_a-a7", "ses_b-a8"} <= set(inputs(rig))


@pytest.mark.parametrize("settled", [True, False])
async def test_a_number_on_a_rail_is_never_given_twice(rig: OpenCodeRig, writer: Writer, *, settled: bool) -> None:
    """A revert, or a deleted row, renumbers no other step."""
    conversation(writer, turns=4)
    await rig.attend()
    if settled:
        await rig.settle()
    writer.delete(f"{S}-u1", f"{S}-a1", f"{S}-u3", f"{S}-a3")
    exchange(writer, S, 4)
    await rig.attend()
    await rig.restart()
    exchange(writer, S, 5)
    await rig.settle()
    expected = {f"{S}-a{n}": n for n in range(6)}
    assert {name: turn.turn_index for name, turn in rig.turns().items()} == expected
    await rig.close()
    shutil.rmtree(rig.home.index)
    await rig.open()
    await rig.settle()
    assert {name: turn.turn_index for name, turn in rig.turns().items()} == expected


async def test_a_revert_of_parts_takes_nothing_back(rig: OpenCodeRig, writer: Writer) -> None:
    """A revert to the middle of a step deletes parts; the calls were made and the tokens billed all the same."""
    writer.session(S)
    writer.user("u", S)
    writer.step("a", S, "u", text("one"), tool("c", "bash", {"command": "ls"}, "x"), tokens=tokens(input=5, output=6))
    await rig.settle()
    before = rig.turns()["a"]
    writer.db.execute("DELETE FROM part WHERE message_id = 'a' AND data NOT LIKE '%one%'")
    writer.db.execute("UPDATE session SET time_updated = time_updated + 1")
    for _ in range(2):
        await rig.settle()
        assert rig.turns()["a"] == before
        await rig.restart()


async def test_a_deleted_session_leaves_its_turns(rig: OpenCodeRig, writer: Writer) -> None:
    """Deleted rows stay billed; a step that was open is closed in its last known state."""
    conversation(writer)
    exchange(writer, S, 5, done=False)
    writer.part(f"{S}-a5", S, text("half"))
    await rig.attend()
    assert await rig.open_turns() == {f"{S}-a0", f"{S}-a1", f"{S}-a5"}
    writer.db.execute("DELETE FROM session")
    conversation(writer, "ses_two")
    await rig.settle()
    found = inputs(rig)
    assert found == {f"{S}-a0": 100, f"{S}-a1": 101, f"{S}-a5": 0, "ses_two-a0": 100, "ses_two-a1": 101}
    assert (await rig.open_turns(), rig.turns()[f"{S}-a5"].quality) == (set(), "partial")


async def test_messages_without_their_session_are_recorded(rig: OpenCodeRig, writer: Writer) -> None:
    """The session row was deleted and the messages remain: their costs are recorded."""
    conversation(writer)
    writer.db.execute("PRAGMA foreign_keys=OFF")
    writer.db.execute("DELETE FROM session")
    await rig.settle()
    assert inputs(rig) == {f"{S}-a0": 100, f"{S}-a1": 101}


async def test_an_open_row_deleted_while_the_daemon_was_down_is_closed(rig: OpenCodeRig, writer: Writer) -> None:
    """A revert deleted an open row while the daemon was down: its last state, from the index, is recorded."""
    conversation(writer)
    exchange(writer, S, 5, done=False)
    await rig.attend()
    await rig.restart()
    writer.delete(f"{S}-a5", f"{S}-u5")
    await rig.settle()
    assert (await rig.open_turns(), rig.turns()[f"{S}-a5"].quality) == (set(), "partial")


async def test_replaced_rows_are_the_same_messages(rig: OpenCodeRig, writer: Writer) -> None:
    """F30: INSERT OR REPLACE gives a message a new row number with its parts: nothing is recorded again."""
    conversation(writer)
    await rig.settle()
    before = rig.turns()
    writer.db.execute("INSERT OR REPLACE INTO message SELECT * FROM message WHERE id = ?", (f"{S}-a0",))
    assert writer.db.execute("SELECT rowid FROM message WHERE id = ?", (f"{S}-a0",)).fetchone() == (5,)
    await rig.settle()
    assert rig.turns() == before


async def test_a_database_written_from_a_dump_is_the_same(rig: OpenCodeRig, writer: Writer, tmp_path: Path) -> None:
    """F30, F34: a dump loaded into another file renumbers all rows: they are read again without a new ledger line."""
    for session in ("ses_c", "ses_b", "ses_a"):
        conversation(writer, session)
    writer.delete("ses_c-a0", "ses_b-u1")
    await rig.settle()
    end = rig.pipeline.journal.end
    lines = list(writer.db.iterdump())
    writer.close()
    new = sqlite3.connect(tmp_path / "new.db", isolation_level=None)
    new.execute("PRAGMA journal_mode=WAL")
    for line in lines:
        if line not in ("BEGIN TRANSACTION;", "COMMIT;"):
            new.execute(line)
    new.close()
    (tmp_path / "new.db").replace(writer.path)
    await rig.settle()
    assert (rig.pipeline.journal.end, rig.source.rewound) == (end, 1)


async def test_a_copy_put_in_its_place_is_followed(rig: OpenCodeRig, writer: Writer, tmp_path: Path) -> None:
    """F34: a file that took the other's place under a running daemon is read; the old rows are known."""
    conversation(writer)
    await rig.settle()
    writer.db.execute("VACUUM INTO ?", (str(tmp_path / "copy.db"),))
    writer.close()
    (tmp_path / "copy.db").replace(writer.path)
    again = Writer(writer.path)
    again.clock = writer.clock
    exchange(again, S, 5)
    await rig.settle()
    again.close()
    assert inputs(rig) == {f"{S}-a0": 100, f"{S}-a1": 101, f"{S}-a5": 105}


async def test_a_restored_backup_takes_nothing_back(rig: OpenCodeRig, writer: Writer, tmp_path: Path) -> None:
    """F30: rows go back to when a step had not ended, and later ones are missing: what was seen stays."""
    conversation(writer, turns=1)
    exchange(writer, S, 1, done=False)
    writer.db.execute("VACUUM INTO ?", (str(tmp_path / "backup.db"),))
    writer.update(f"{S}-a1", ended(f"{S}-u1", writer.clock, tokens(input=101)))
    exchange(writer, S, 2)
    await rig.settle()
    expected = inputs(rig)
    assert expected == {f"{S}-a0": 100, f"{S}-a1": 101, f"{S}-a2": 102}
    writer.close()
    (tmp_path / "backup.db").replace(writer.path)
    await rig.settle()
    assert (inputs(rig), await rig.open_turns()) == (expected, set())
    again = Writer(writer.path)
    again.clock = writer.clock + 1000
    exchange(again, S, 9)
    again.close()
    await rig.settle()
    assert inputs(rig) == expected | {f"{S}-a9": 109}


async def test_late_rows_with_older_times_are_found(rig: OpenCodeRig, writer: Writer) -> None:
    """F39: two programs with different clocks commit in any order, some rows within one millisecond."""
    conversation(writer)
    await rig.settle()
    other = Writer(writer.path)
    other.clock = writer.clock - 5000
    exchange(other, S, 3)
    now = writer.clock
    for n in (4, 5):
        writer.message(f"{S}-a{n}", S, now, ended(f"{S}-u0", now, tokens(input=100 + n)))
        writer.db.execute("UPDATE message SET time_updated = ? WHERE id = ?", (now, f"{S}-a{n}"))
    other.close()
    await rig.settle()
    assert set(inputs(rig)) == {f"{S}-a{n}" for n in (0, 1, 3, 4, 5)}


async def test_an_update_within_the_same_millisecond_is_heard(rig: OpenCodeRig, writer: Writer) -> None:
    """F39: an open row is read again whatever its timestamp."""
    writer.session(S)
    writer.user("u", S)
    created = writer.tick()
    writer.message("a", S, created, assistant("u", created))
    await rig.attend()
    data = ended("u", created, tokens(input=7))
    writer.db.execute("UPDATE message SET data = ? WHERE id = 'a'", (json.dumps(data),))
    await rig.attend()
    await rig.attend(5.0)
    assert inputs(rig) == {"a": 7}


async def test_titles_are_content_and_the_newest_counts(rig: OpenCodeRig, writer: Writer) -> None:
    """opencode's default title is ignored; a changed title leaves no second message."""
    conversation(writer)
    await rig.settle()
    assert [record for record in content(rig) if record.kind == "title"] == []
    for title in ("First words", "Renamed"):
        writer.retitle(S, title)
        await rig.settle()
    assert [record.text for record in content(rig) if record.kind == "title"] == ["Renamed"]
    assert await rig.pipeline.index.rows("SELECT harness_title, kept_count FROM sessions") == [("Renamed", 4)]
    assert b"Renamed" not in rig.home.ledger.read_bytes()


async def test_a_session_that_is_renamed_long_after_it_went_quiet_has_its_new_name(
    rig: OpenCodeRig, writer: Writer
) -> None:
    """The session is no longer followed and no message changed, only the session row."""
    conversation(writer)
    await rig.settle()
    await rig.restart()
    await rig.settle()
    writer.retitle(S, "Years later")
    await rig.settle()
    assert [one.text for one in content(rig) if one.kind == "title"] == ["Years later"]


async def test_a_lost_index_brings_everything_back(rig: OpenCodeRig, writer: Writer) -> None:
    """I3: rebuilt while the source runs, the index still shows what is open; reading it all again adds nothing."""
    conversation(writer)
    exchange(writer, S, 5, done=False)
    await rig.attend()
    await rig.attend(5.0)
    before = await rig.outcome()
    await rig.pipeline.rebuild_index()
    assert await rig.open_turns() == {f"{S}-a5"}
    assert await rig.outcome() == before
    await rig.attend()
    assert await rig.open_turns() == {f"{S}-a5"}
    assert await rig.outcome() == before
    end = rig.pipeline.journal.end
    await rig.close()
    shutil.rmtree(rig.home.index)
    await rig.open()
    await rig.attend()
    await rig.attend(5.0)
    assert await rig.outcome() == before
    assert rig.pipeline.journal.end == end


async def test_a_quiet_database_is_not_read_again(rig: OpenCodeRig, writer: Writer) -> None:
    """After a restart what was seen is known by its stamps: no message is read, and nothing is written."""
    for n in range(30):
        conversation(writer, f"ses_{n}")
    await rig.settle()
    end = rig.pipeline.journal.end
    await rig.restart()
    await rig.settle()
    assert rig.source.status().counts == {}
    assert rig.pipeline.journal.end == end


async def test_child_sessions_hang_under_the_call_that_started_them(rig: OpenCodeRig, writer: Writer) -> None:
    """The parent's part names the child, before or after the child's steps are recorded."""
    writer.session(S)
    writer.user("u", S)
    part = {"prompt": "look", "subagent_type": "explore"}
    writer.step("a", S, "u", tool("call", "task", part, None), done=False)
    writer.session("ses_kid", parent_id=S, agent="explore")
    writer.user("ku", "ses_kid", "look")
    writer.step("ka", "ses_kid", "ku")
    await rig.attend()
    await rig.attend(5.0)
    agent = rig.turns()["ka"].subagent
    assert agent is not None
    assert (agent.type, agent.parent_tool_use_id) == ("explore", None)
    ((part_id,),) = writer.db.execute("SELECT id FROM part WHERE message_id = 'a'").fetchall()
    writer.update(part_id, tool("call", "task", part, "found", metadata={"sessionId": "ses_kid"}), "part")
    writer.user("ku2", "ses_kid", "more")
    writer.step("ka2", "ses_kid", "ku2")
    await rig.settle()
    for name in ("ka", "ka2"):
        turn = rig.turns()[name]
        assert turn.subagent is not None
        assert turn.subagent.parent_tool_use_id == "call"
    parents = await rig.pipeline.index.rows("SELECT parent_session_id FROM sessions WHERE session_id = 'ses_kid'")
    assert parents == [(S,)]


def all_text(rig: OpenCodeRig) -> bytes:
    return b"".join(map(encode_content, content(rig)))


@pytest.mark.parametrize("wanted", [{}, {"reasoning": False}])
async def test_thinking_is_kept_unless_it_is_not_wanted(rigs: Rigs, writer: Writer, wanted: dict[str, Any]) -> None:
    """Tokens and sizes are the same either way; only the text stays out."""
    rig = await rigs(**wanted)
    writer.session(S)
    writer.user("u", S)
    writer.step("a", S, "u", reasoning("zqthought"), text("said"), tokens=tokens(input=1, output=2, reasoning=3))
    await rig.settle()
    turn = rig.turns()["a"]
    assert (turn.usage.reasoning, [block.kind for block in turn.made]) == (3, ["thinking", "text"])
    assert (b"zqthought" in all_text(rig)) == (not wanted)


@pytest.mark.parametrize("wanted", [{}, {"tool_outputs": True}])
async def test_long_outputs_are_taken_from_their_files_where_wanted(
    rigs: Rigs, writer: Writer, tmp_path: Path, wanted: dict[str, Any]
) -> None:
    """P9: of the path in a row only the last name counts, and no link is followed."""
    rig = await rigs(**wanted)
    outputs = tmp_path / "opencode" / "tool-output"
    outputs.mkdir()
    (outputs / "tool_1").write_text("zqwhole " * 5)
    (tmp_path / "secret").write_text("zqsecret")
    (outputs / "tool_2").symlink_to(tmp_path / "secret")
    writer.session(S)
    writer.user("u", S)
    calls = [
        tool(name, "bash", {"command": "seq 9"}, "cut", metadata={"outputPath": path, "truncated": True, "exit": 0})
        for name, path in (("c1", "/elsewhere/tool_1"), ("c2", "/x/tool_2"), ("c3", str(tmp_path / "secret")))
    ]
    writer.step("a", S, "u", *calls)
    await rig.settle()
    assert (b"zqwhole" in all_text(rig)) == bool(wanted)
    assert b"zqsecret" not in all_text(rig)


async def test_long_outputs_are_in_the_data_folder_wherever_the_database_is(rigs: Rigs, tmp_path: Path) -> None:
    """OPENCODE_DB moves the database, and nothing else."""
    rig = await rigs(tool_outputs=True)
    outputs = tmp_path / "opencode" / "tool-output"
    outputs.mkdir(parents=True)
    (outputs / "tool_1").write_text("zqwhole " * 5)
    writer = Writer(tmp_path / "elsewhere" / "mine.db")
    writer.session(S)
    writer.user("u", S)
    cut = {"outputPath": str(outputs / "tool_1"), "truncated": True, "exit": 0}
    writer.step("a", S, "u", tool("c1", "bash", {"command": "seq 9"}, "cut", metadata=cut))
    rig.source.add_roots([str(writer.path)])
    await rig.settle()
    writer.close()
    assert b"zqwhole" in all_text(rig)


async def test_projects_are_read_or_left_out_as_the_settings_say(rigs: Rigs, writer: Writer) -> None:
    """Excluded projects are not read; once included, they are read from the beginning."""
    for name, folder in (("a", "/home/dev/app"), ("b", "/home/dev/app/web"), ("c", "/home/dev/apple"), ("d", "/x/y")):
        conversation(writer, f"ses_{name}", 1, directory=folder)

    async def found(**wanted: Any) -> str:
        rig = await rigs(**wanted)
        await rig.settle()
        return "".join(sorted(turn.session_id[-1] for turn in rig.turns().values()))

    assert await found(include=("/home/dev/app",), exclude=("/home/dev/app/web",)) == "a"
    assert await found(include=("/x/*",)) == "ad"
    assert await found(exclude=("/home/dev/app*",)) == "ad"
    assert await found(exclude=("/home/dev/apple",)) == "abd"
    assert await found() == "abcd"


async def test_archived_sessions_are_read_unless_they_are_not_wanted(rigs: Rigs, writer: Writer) -> None:
    """An archived session that is taken out of the archive is read after all."""
    conversation(writer, S, 1, time_archived=writer.clock)
    rig = await rigs(archived=False)
    await rig.settle()
    assert rig.turns() == {}
    writer.db.execute("UPDATE session SET time_archived = NULL")
    await rig.settle()
    assert set(rig.turns()) == {f"{S}-a0"}
    rig = await rigs()
    writer.db.execute("UPDATE session SET time_archived = 5")
    exchange(writer, S, 1)
    await rig.settle()
    assert set(rig.turns()) == {f"{S}-a0", f"{S}-a1"}


async def test_an_open_step_of_an_excluded_session_is_closed(rigs: Rigs, writer: Writer) -> None:
    writer.session(S)
    writer.user("u", S)
    writer.step("a", S, "u", done=False)
    rig = await rigs(archived=False)
    await rig.attend()
    assert await rig.open_turns() == {"a"}
    writer.db.execute("UPDATE session SET time_archived = 5")
    await rig.attend()
    assert (await rig.open_turns(), set(rig.turns())) == (set(), {"a"})


@pytest.mark.parametrize("mode", ["off", "hash-only"])
async def test_without_content_no_text_is_left_anywhere(rigs: Rigs, writer: Writer, mode: str) -> None:
    """I6: prompts, answers, thinking, tool inputs, outputs and titles of a database are nowhere in the home."""
    rig = await rigs(mode=mode)
    writer.session(S, title="zqcanary title")
    writer.user("u", S, "zqcanary prompt")
    call = tool("c", "bash", {"command": "echo zqcanary"}, "zqcanary output " * 200)
    writer.step("a", S, "u", reasoning("zqcanary thought"), text("zqcanary answer"), call)
    await rig.attend()
    await rig.settle()
    (turn,) = rig.turns().values()
    assert (turn.tool_calls[0].result_hash is not None) == (mode == "hash-only")
    await rig.close()
    for path in rig.home.root.rglob("*"):
        assert not path.is_file() or b"zqcanary" not in path.read_bytes(), path
    assert not rig.home.content.exists()
    await rig.open()


async def test_rows_of_the_next_format_are_reported(rig: OpenCodeRig, writer: Writer) -> None:
    """A format that is not read yet must not look like silence; what can be read is read on."""
    conversation(writer)
    writer.db.execute("CREATE TABLE session_v2 (id text PRIMARY KEY)")
    await rig.settle()
    assert rig.source.status().state == "polling"
    writer.db.execute("INSERT INTO session_v2 VALUES('x')")
    exchange(writer, S, 5)
    await rig.settle()
    status = rig.source.status()
    assert (status.state, f"{S}-a5" in rig.turns()) == ("degraded", True)
    assert "session_v2" in status.detail
    assert "NOT READ" in status.detail


async def test_at_its_own_pace_a_row_is_seen_within_moments(opened: Opened, writer: Writer) -> None:
    """By the real clocks: rows that come one by one are shown, flush settles them, and cancelling lets go of all."""
    source = OpenCode(await opened(now=wall_ms), str(writer.path.parent))
    writer.clock = wall_ms()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(source.run)
        conversation(writer, turns=1)
        exchange(writer, S, 1, done=False)
        await until(lambda: are_open(opened, {f"{S}-a0", f"{S}-a1"}))
        await source.flush()
        assert await are_open(opened, set())
        tasks.cancel_scope.cancel()
    assert not any(one.follower.db.is_open for one in source._databases.values())


async def are_open(opened: Opened, expected: set[str]) -> bool:
    assert opened.pipeline is not None
    return {row[0] for row in await opened.pipeline.index.rows("SELECT message_id FROM turns WHERE open")} == expected
