"""Summaries that old clients wrote into other sessions' files reach their sessions."""

from __future__ import annotations

import os
from itertools import permutations
from pathlib import Path

import pytest

from burnd.harness.claude_code import related_sessions
from tests.capture.rig import Rig
from tests.harness.claude_code.transcript import Transcript, text
from tests.make import read_content


def session(name: str, prefix: str, messages: int) -> Transcript:
    log = Transcript("1.0.100", session=name, prefix=prefix)
    for n in range(messages):
        log.prompt(f"{name} asks {n}")
        log.says(f"{name}-{n}", text("answer"), done=False)
    return log


def holder(name: str, *summaries: tuple[str, str]) -> Transcript:
    log = Transcript("1.0.100", session=name)
    for words, leaf in summaries:
        log.bare(type="summary", summary=words, leafUuid=leaf)
    return log


async def summaries_in_any_order(folder: Path, **logs: Transcript) -> list[dict[str, str | None]]:
    """The summaries of the sessions, for each order that their files may be read in."""
    return await summaries_by_path(folder, {f"-p/{name}.jsonl": log for name, log in logs.items()})


async def summaries_by_path(folder: Path, logs: dict[str, Transcript]) -> list[dict[str, str | None]]:
    found = []
    projects = folder / "projects"
    for path, log in logs.items():
        (projects / path).parent.mkdir(parents=True, exist_ok=True)
        (projects / path).write_bytes(b"".join(line + b"\n" for line in log.lines))
    for n, order in enumerate(permutations(logs)):
        rig = Rig(folder / f"home{n}", projects)
        await rig.open()
        for path in order:
            await rig.read(projects / path)
        rows = await rig.pipeline.index.rows("SELECT session_id, harness_summary FROM sessions")
        found.append({name: summary for name, summary in rows if summary is not None})
        await rig.close()
    return found


async def test_two_sessions_may_be_summed_up_in_the_same_words(tmp_path: Path) -> None:
    found = await summaries_in_any_order(
        tmp_path,
        one=session("one", "x", 1),
        two=session("two", "y", 1),
        three=holder("three", ("Mend the build", "x1"), ("Mend the build", "y1")),
    )
    assert found == [{"one": "Mend the build", "two": "Mend the build"}] * 6


async def test_the_summary_of_the_line_furthest_down_counts(tmp_path: Path) -> None:
    """Regardless of line names and of which file has the later line."""
    talk = session("talk", "x", 6)
    found = await summaries_in_any_order(
        tmp_path,
        talk=talk,
        first=holder("first", ("newest", "x11"), ("oldest", "x1")),
        second=holder("second", ("newer", "x9"), ("older", "x3")),
    )
    assert found == [{"talk": "newest"}] * 6


async def test_two_summaries_of_one_line_count_the_same_in_any_order(tmp_path: Path) -> None:
    found = await summaries_in_any_order(
        tmp_path,
        talk=session("talk", "x", 1),
        first=holder("first", ("one word", "x1")),
        second=holder("second", ("other words", "x1")),
    )
    assert len({summaries["talk"] for summaries in found}) == 1


async def test_a_summary_is_of_sessions_beside_it_whatever_their_logs_are_called(tmp_path: Path) -> None:
    """Not of what an agent did, nor of another project's; a log may be called by a word and be its folder's session."""
    nameless = session("", "z", 1)
    nameless.lines = [line.replace(b'"sessionId":""', b'"sessionId":null') for line in nameless.lines]
    found = await summaries_by_path(
        tmp_path,
        {
            "-p/agent-a1.jsonl": session("talk", "x", 1),
            "-q/far.jsonl": session("far", "y", 1),
            "-p/deep/chat.jsonl": nameless,
            "-p/told.jsonl": holder("told", ("of an agent", "x1"), ("of elsewhere", "y1"), ("of a folder", "z1")),
        },
    )
    assert found == [{"deep": "of a folder"}] * 24


async def test_a_summary_may_be_long(tmp_path: Path) -> None:
    """Lines up to 64 MB are read, in any order of logs."""
    projects = tmp_path / "projects"
    told, talk = projects / "-p" / "told.jsonl", projects / "-p" / "talk.jsonl"
    told.parent.mkdir(parents=True)
    told.write_bytes(holder("told", ("word " * 20_000, "x1")).lines[0] + b"\n")
    talk.write_bytes(b"".join(line + b"\n" for line in session("talk", "x", 1).lines))
    kept = []
    for n, order in enumerate(permutations((told, talk))):
        rig = Rig(tmp_path / f"home{n}", projects)
        await rig.open()
        await rig.read(*order)
        kept.append([record for record in read_content(rig.pipeline.content, "talk") if record.kind == "summary"])
        await rig.close()
    assert kept[0] == kept[1]
    assert len(kept[0]) == 1


@pytest.mark.parametrize("restarts", [False, True])
async def test_a_summary_may_stand_in_a_log_whose_path_is_no_utf8(tmp_path: Path, *, restarts: bool) -> None:
    """Also below a root whose path is not UTF-8."""
    projects = tmp_path / os.fsdecode(b"r\xff")
    folder = projects / os.fsdecode(b"-p\xe9")
    folder.mkdir(parents=True)
    (folder / "told.jsonl").write_bytes(holder("told", ("early", "x1")).lines[0] + b"\n")
    (folder / "talk.jsonl").write_bytes(b"".join(line + b"\n" for line in session("talk", "x", 1).lines))
    rig = Rig(tmp_path / "home", projects)
    await rig.open()
    await rig.read(folder / "told.jsonl")
    if restarts:
        await rig.restart()
    await rig.read(folder / "talk.jsonl")
    rows = await rig.pipeline.index.rows("SELECT harness_summary FROM sessions WHERE session_id = 'talk'")
    assert list(rows) == [("early",)]
    await rig.close()


def said_of(rig: Rig, words: str) -> list[Path]:
    """The files of a home that a summary may be read in."""
    return [path for path in rig.home.root.rglob("*") if path.is_file() and words.encode() in path.read_bytes()]


@pytest.mark.parametrize("order", [("talk", "other"), ("other", "talk")])
async def test_a_summary_goes_with_the_session_it_is_about(tmp_path: Path, order: tuple[str, str]) -> None:
    """The log with the summary belongs to another session: nothing of it may remain there."""
    projects = tmp_path / "projects"
    (projects / "-p").mkdir(parents=True)
    other = session("other", "y", 1)
    other.lines.insert(0, holder("other", ("Secretwords", "x1")).lines[0])
    logs = {"talk": session("talk", "x", 1), "other": other}
    for name, log in logs.items():
        (projects / "-p" / f"{name}.jsonl").write_bytes(b"".join(line + b"\n" for line in log.lines))
    rig = Rig(tmp_path / "home", projects)
    await rig.open()
    await rig.read(projects / "-p" / f"{order[0]}.jsonl")
    await rig.restart()
    assert said_of(rig, "Secretwords") == []
    await rig.read(projects / "-p" / f"{order[1]}.jsonl")
    assert [record.text for record in read_content(rig.pipeline.content, "talk")][-1] == "Secretwords"
    await rig.pipeline.forget(["talk"])
    await rig.restart()
    assert said_of(rig, "Secretwords") == []
    assert read_content(rig.pipeline.content, "other")
    await rig.close()


async def test_a_summary_deleted_before_its_session_is_read_is_ignored(tmp_path: Path) -> None:
    projects = tmp_path / "projects"
    (projects / "-p").mkdir(parents=True)
    told, talk = projects / "-p" / "told.jsonl", projects / "-p" / "talk.jsonl"
    told.write_bytes(holder("told", ("early", "x1")).lines[0] + b"\n")
    talk.write_bytes(b"".join(line + b"\n" for line in session("talk", "x", 1).lines))
    rig = Rig(tmp_path / "home", projects)
    await rig.open()
    await rig.read(told)
    told.write_bytes(b'{"type":"summary","summary":"another","leafUuid":"zz"}\n')
    await rig.read(talk)
    assert [record for record in read_content(rig.pipeline.content, "talk") if record.kind == "summary"] == []
    await rig.close()


async def test_logs_are_searched_after_a_restart_if_a_crash_came_first(tmp_path: Path) -> None:
    """A summary whose line was read before: the search of the logs is due until its result is recorded."""
    folder = tmp_path / "projects" / "-p"
    folder.mkdir(parents=True)
    (folder / "talk.jsonl").write_bytes(b"".join(line + b"\n" for line in session("talk", "x", 1).lines))
    (folder / "told.jsonl").write_bytes(holder("told", ("late", "x1")).lines[0] + b"\n")
    rig = Rig(tmp_path / "home", tmp_path / "projects")
    await rig.open()
    await rig.read(folder / "talk.jsonl")
    await rig._commit(await rig.in_hand(folder / "told.jsonl"))
    await rig.restart()
    assert rig.leaf_titles.has_unsearched
    await rig.search_titles()
    rows = await rig.pipeline.index.rows("SELECT harness_summary FROM sessions WHERE session_id = 'talk'")
    assert list(rows) == [("late",)]
    await rig.restart()
    assert not rig.leaf_titles.has_unsearched
    await rig.close()


async def test_a_named_line_is_found_wherever_blocks_are_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for size in (1, 7, 64, 300):
        monkeypatch.setattr(related_sessions, "_BLOCK", size)
        found = await summaries_in_any_order(
            tmp_path / str(size), talk=session("talk", "x", 3), told=holder("told", ("words", "x3"))
        )
        assert found == [{"talk": "words"}] * 2
