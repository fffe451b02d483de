"""Summaries that old clients wrote into other sessions' files reach the sessions whose lines they name."""

from __future__ import annotations

from itertools import permutations
from pathlib import Path

from tests.capture.rig import Rig
from tests.readers.transcript import Transcript, text


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
    found = []
    projects = folder / "projects"
    (projects / "-p").mkdir(parents=True)
    for name, log in logs.items():
        (projects / "-p" / f"{name}.jsonl").write_bytes(b"".join(line + b"\n" for line in log.lines))
    for n, order in enumerate(permutations(logs)):
        rig = Rig(folder / f"home{n}", projects)
        await rig.open()
        for name in order:
            await rig.read(projects / "-p" / f"{name}.jsonl")
        rows = await rig.pipeline.index.rows("SELECT session_id, harness_summary FROM sessions")
        found.append({name: summary for name, summary in rows if summary is not None})
        await rig.close()
    return found


async def test_two_sessions_may_be_summed_up_in_the_same_words(tmp_path: Path) -> None:
    found = await summaries_in_any_order(
        tmp_path,
        one=session("one", "x", 1),
        two=session("two", "y", 1),
        three=holder("three", ("Invalid API key", "x1"), ("Invalid API key", "y1")),
    )
    assert found == [{"one": "Invalid API key", "two": "Invalid API key"}] * 6


async def test_the_summary_of_the_line_furthest_down_counts(tmp_path: Path) -> None:
    """Whatever the lines are called, and whichever file names the later one."""
    talk = session("talk", "x", 6)
    found = await summaries_in_any_order(
        tmp_path,
        talk=talk,
        first=holder("first", ("newest", "x11"), ("oldest", "x1")),
        second=holder("second", ("newer", "x9"), ("older", "x3")),
    )
    assert found == [{"talk": "newest"}] * 6
