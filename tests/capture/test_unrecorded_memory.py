"""Memory of lines that are read but not recorded grows with the new lines only."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Iterable
from pathlib import Path

from tests.capture.rig import Rig
from tests.harness.claude_code.transcript import Transcript, text

_SESSIONS = 8


def _grow(projects: Path, logs: Iterable[Transcript], first: int, count: int) -> None:
    """So many more answers in each of the logs."""
    for number, log in enumerate(logs):
        for n in range(first, first + count):
            log.prompt("go on")
            log.says(f"{number}-m{n}", text("an answer"))
        with (projects / "-app" / f"s{number}.jsonl").open("ab") as file:
            file.writelines(line + b"\n" for line in log.lines)
        log.lines.clear()


async def _held(folder: Path, turns: int) -> int:
    """The bytes that one more answer in each of some sessions of so many takes before it is recorded.

    Only what is freed with the pieces and their readers counts: a cache of the whole process may grow at any time.
    """
    projects, logs = folder / "projects", [Transcript(session=f"s{n}", prefix=f"s{n}-u") for n in range(_SESSIONS)]
    (projects / "-app").mkdir(parents=True)
    rig = Rig(folder / "home", projects)
    await rig.open()
    try:
        for n in range(2):  # with what was there from the start everything is new
            _grow(projects, logs, n * turns, turns)
            await rig.read(*rig.files(), pieces_at_once=_SESSIONS)
        _grow(projects, logs, 2 * turns, 1)
        gc.collect()
        tracemalloc.start()
        pieces = await rig.in_hand(*rig.files())
        assert [len(piece.reading.candidates) for piece in pieces] == [2] * _SESSIONS  # the one before is settled by it
        gc.collect()
        with_pieces, _ = tracemalloc.get_traced_memory()
        del pieces
        rig.drop_readers()
        gc.collect()
        without_pieces, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
        await rig.close()
    return with_pieces - without_pieces


async def test_memory_of_unrecorded_lines_is_independent_of_session_length(tmp_path: Path) -> None:
    """Two hundred sessions that grow at once wait for one commit: for past lines each holds at most the eight bytes of
    a row's hash, though its reader had to check whether the new line is known."""
    short, long = await _held(tmp_path / "short", 2), await _held(tmp_path / "long", 60)
    lines = 2 * 2 * 60 * _SESSIONS
    assert long - short < 40 * lines, (short, long)
