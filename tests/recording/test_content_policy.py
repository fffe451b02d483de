"""Text of a private or forgotten session is stored nowhere, in any order of the logs that repeat it."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest

from burnd.clients.announcements import Announcement, announce
from burnd.index.change import FileChange
from burnd.recording import content_policy
from burnd.recording.candidate import Batch, SessionOrigin
from burnd.recording.content_policy import DEFER_MS
from burnd.records.times import to_ms
from tests.capture.rig import CodexRig, Rig
from tests.faults.canaries import CANARY, files_with_canary
from tests.harness.claude_code.transcript import Transcript, text
from tests.harness.codex import rollout
from tests.make import read_content, seeds
from tests.recording.forks import FORK, OFF, PLAIN, SILENT, after, goes_on, logs, private, repeated

FIRST_MS = to_ms(Transcript.time(0)) - 10_000


class Reader:
    """A home and logs that are written into it one by one."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "projects" / "-home-dev-app"
        self.folder.mkdir(parents=True)
        self.rig = Rig(folder / "home", folder / "projects")

    def write(self, session: str, lines: list[bytes]) -> Path:
        path = self.folder / f"{session}.jsonl"
        path.write_bytes(b"".join(line + b"\n" for line in lines))
        return path

    async def announce(self, session: str, mode: str = "off", at_ms: int = FIRST_MS, **facts: bool) -> None:
        said = Announcement(session, "claude-code", at_ms, mode, **facts)  # type: ignore[arg-type]
        await announce(self.rig.pipeline, said)

    async def read_again(self) -> None:
        """Deletes the index and reads every log once more."""
        await self.rig.close()
        shutil.rmtree(self.rig.home.index)
        await self.rig.open()
        await self.rig.read(*self.rig.files())
        await self.rig.flush()

    def words_of(self, session: str) -> str:
        return "\n".join(str(record.text) for record in read_content(self.rig.pipeline.content, session))


@pytest.fixture
async def reader(tmp_path: Path):  # type: ignore[no-untyped-def]
    one = Reader(tmp_path)
    await one.rig.open()
    yield one
    await one.rig.close()


async def read_anew(reader: Reader, path: Path) -> None:
    """Reads a log again after its text is released, as the source does."""
    await reader.rig.pipeline.commit(Batch(files=[FileChange("claude-code", str(path), None)]))
    reader.rig._logs.forget(str(path))
    await reader.rig.read(path)


@pytest.mark.parametrize("mode", ["off", "hash-only"])
@seeds(1, 30)
async def test_no_order_of_reading_brings_private_text_back(reader: Reader, seed: int, mode: str) -> None:
    """Forks, branches, cleared and background sessions are as private as the one they came out of."""
    chance = random.Random(f"{seed} {mode}")
    made = logs()
    paths = {session: reader.write(session, lines) for session, lines in made.items()}
    late = seed % 3 == 2  # the announcement comes when some of it was read
    if not late:
        await reader.announce(OFF, mode)
        await reader.announce(SILENT, mode)
    order = sorted(paths)
    chance.shuffle(order)
    for session in order:
        await reader.rig.read(
            paths[session], max_bytes=chance.choice([600, 4 << 20]), pieces_at_once=chance.choice([1, 3])
        )
        if chance.random() < 0.3:
            await reader.rig.restart()
    if late:
        await reader.announce(OFF, mode)
        await reader.announce(SILENT, mode)
    await reader.rig.flush()
    for session in await reader.rig.pipeline.end_deferrals():
        await read_anew(reader, paths[session])
    assert files_with_canary(reader.rig.home) == set()
    assert "ordinary answer" in reader.words_of(PLAIN)
    for session in set(made) - {PLAIN}:
        assert reader.rig.pipeline.modes.mode_of(session) == mode, session
    await reader.read_again()
    assert files_with_canary(reader.rig.home) == set()
    assert "An ordinary title" in reader.words_of(PLAIN)


async def test_a_session_that_is_resumed_in_private_keeps_its_past(reader: Reader) -> None:
    """Only what was captured since then goes, and a fork from before is left alone."""
    log = Transcript(session="open", prefix="open-u")
    log.bare(type="ai-title", sessionId="open", aiTitle=f"Of {CANARY}")
    goes_on(log, "from before", at=100)
    fork = Transcript(session=FORK, prefix="f-u")
    fork.lines += repeated(log.lines, FORK)
    log.begin(900)
    log.prompt(f"private {CANARY}")
    log.says("open-late", text(f"yes {CANARY}"))
    await reader.rig.read(reader.write("open", log.lines), reader.write(FORK, fork.lines))
    await reader.rig.flush()
    await reader.announce("open", at_ms=to_ms(Transcript.time(850)))
    assert files_with_canary(reader.rig.home) == set()
    assert "that is from before" in reader.words_of("open")
    assert "that is from before" in reader.words_of(FORK)
    await reader.read_again()
    assert files_with_canary(reader.rig.home) == set()
    assert "that is from before" in reader.words_of("open")


@pytest.mark.parametrize("order", ["original first", "private fork first"])
async def test_a_private_fork_leaves_the_original_alone(reader: Reader, order: str) -> None:
    """Forking a session in private keeps the text of its past."""
    original = private("open", word="shareable")
    past = list(original.lines)
    after(original, "shareable")
    fork = Transcript(session=FORK, prefix="f-u")
    fork.lines += repeated(past, FORK)
    goes_on(fork, CANARY)
    paths = [reader.write("open", original.lines), reader.write(FORK, fork.lines)]
    at_ms = to_ms(Transcript.time(850))
    await reader.announce(FORK, at_ms=at_ms, is_new=False)
    await reader.rig.read(*(paths if order == "original first" else reversed(paths)))
    await reader.rig.flush()
    assert files_with_canary(reader.rig.home) == set()
    assert reader.rig.pipeline.modes.mode_of("open") == "full"
    assert "please shareable" in reader.words_of("open")
    assert "shareable" not in reader.words_of(FORK)


async def test_a_fork_that_asks_for_full_content_keeps_only_its_own(reader: Reader) -> None:
    """A copied message has the mode of the session that owns it."""
    made = logs()
    fork = [line for line in made[FORK] if b"-own" not in line and b"and now" not in line]
    own = Transcript(session=FORK, prefix="own-u")
    goes_on(own, "something else")
    await reader.announce(OFF)
    await reader.announce(FORK, "full", at_ms=FIRST_MS)
    copy = reader.write(FORK, fork + own.lines)
    await reader.rig.read(copy, reader.write(OFF, made[OFF]))
    await reader.rig.flush()
    assert await _read_released(reader, copy) == [FORK]
    assert files_with_canary(reader.rig.home) == set()
    assert "that is something else" in reader.words_of(FORK)


@pytest.mark.parametrize("how", ["forget", "prune"])
@pytest.mark.parametrize("when", ["fork before", "fork after"])
@pytest.mark.parametrize("sizes", ["SELECT 0, 0", "SELECT 1, 0"], ids=["few messages", "many messages"])
async def test_a_forgotten_message_stays_forgotten_in_forks(
    reader: Reader, how: str, when: str, sizes: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only a fork's own text is stored, whether it was made before or after."""
    monkeypatch.setattr(content_policy, "_SIZES", sizes)
    made = logs()
    fork = [line for line in made[FORK] if b"-own" not in line and b"and now" not in line]
    own = Transcript(session=FORK, prefix="own-u")
    goes_on(own, "something else", at=1000)
    path = reader.write(OFF, made[OFF])
    copy = reader.write(FORK, fork + own.lines)
    await reader.rig.read(path, *([copy] if when == "fork before" else []))
    await reader.rig.flush()
    assert files_with_canary(reader.rig.home) != set()
    if how == "forget":
        await reader.rig.pipeline.forget([OFF])
    else:
        await reader.rig.pipeline._drop_content([OFF], up_to_ms=0)
    if when == "fork after":
        await reader.rig.restart()
        await reader.rig.read(copy)
        await reader.rig.flush()
    assert files_with_canary(reader.rig.home) == set()
    assert "that is something else" in reader.words_of(FORK)
    before = await reader.rig.pipeline.index.rows("SELECT session_id, created_at, kept_count FROM sessions ORDER BY 1")
    await reader.read_again()
    assert files_with_canary(reader.rig.home) == set()
    assert "that is something else" in reader.words_of(FORK)
    after_it = await reader.rig.pipeline.index.rows(
        "SELECT session_id, created_at, kept_count FROM sessions ORDER BY 1"
    )
    assert after_it == before


@pytest.mark.parametrize("by", ["registry", "line"])
async def test_a_session_that_a_private_process_resumes_keeps_its_past(reader: Reader, by: str) -> None:
    """An older session resumed by a private process is private from then on, and is not a fork of it."""
    original = Transcript(session="open", prefix="open-u")
    original.prompt("an ancient prompt")
    original.says("open-m0", text("an ancient answer"))
    older = Transcript(session="older", prefix="older-u")
    older.lines += repeated(original.lines, "older")
    goes_on(older, "from before", at=100)
    log = Transcript(session=OFF, prefix="off-u")
    goes_on(log, CANARY, at=800)
    await reader.rig.read(reader.write("open", original.lines), reader.write("older", older.lines))
    await reader.announce(OFF)
    await reader.rig.read(reader.write(OFF, log.lines))
    await reader.rig.flush()
    if by == "registry":
        came = SessionOrigin("older", OFF, to_ms(Transcript.time(900)), by_process=True)
        await reader.rig.pipeline.commit(Batch(origins=[came]))
    older.begin(950)
    older.prompt(f"private {CANARY}")
    older.says("older-late", text(f"yes {CANARY}"), session_id=OFF if by == "line" else None)
    await reader.rig.read(reader.write("older", older.lines))
    await reader.rig.flush()
    for again in (False, True):
        if again:
            await reader.read_again()
        assert files_with_canary(reader.rig.home) == set()
        assert "an ancient answer" in reader.words_of("open")
        assert "that is from before" in reader.words_of("older")


async def test_what_is_read_after_forgetting_stays_forgotten_in_forks(reader: Reader) -> None:
    """A log of which burnd had read a part when its session was forgotten: a fork does not bring the rest back."""
    lines = logs()[OFF]
    reader.rig.pipeline.now = reader.rig.pipeline._stores.now = lambda: to_ms(Transcript.time(700))
    path = reader.write(OFF, lines[:3])
    await reader.rig.read(path)
    await reader.rig.flush()
    await reader.rig.pipeline.forget([OFF])
    reader.write(OFF, lines)
    await reader.rig.read(path)
    await reader.rig.flush()
    fork = Transcript(session=FORK, prefix="f-u")
    fork.lines += repeated(lines, FORK)
    goes_on(fork, "something else")
    await reader.rig.read(reader.write(FORK, fork.lines))
    await reader.rig.flush()
    assert files_with_canary(reader.rig.home) == set()
    assert "that is something else" in reader.words_of(FORK)
    await reader.read_again()
    assert files_with_canary(reader.rig.home) == set()
    assert "that is something else" in reader.words_of(FORK)


async def test_forgetting_a_fork_leaves_the_original_alone(reader: Reader) -> None:
    """Text that a fork repeats belongs to the original."""
    original = private("open", word="shareable")
    fork = Transcript(session=FORK, prefix="f-u")
    fork.bare(type="queue-operation", operation="enqueue", timestamp=fork.time(800), sessionId=FORK)
    fork.lines += repeated(original.lines, FORK)
    goes_on(fork, CANARY)
    await reader.rig.read(reader.write("open", original.lines), reader.write(FORK, fork.lines))
    await reader.rig.flush()
    await reader.rig.pipeline.forget([FORK])
    assert files_with_canary(reader.rig.home) == set()
    words = reader.words_of("open")
    assert "please shareable" in words
    assert "again shareable" in words
    assert text("I will shareable")["text"] in words


async def _read_released(reader: Reader, path: Path) -> list[str]:
    sessions = await reader.rig.pipeline.end_deferrals()
    if sessions:
        await read_anew(reader, path)
    return sessions


@pytest.mark.parametrize("restarts", [False, True])
async def test_text_of_unknown_origin_is_held_back(reader: Reader, restarts: bool) -> None:
    """Text that a fork repeats is deferred until its original is known, with a time limit; later erasures apply."""
    made = logs()
    fork = reader.write(FORK, [line for line in made[FORK] if b"-own" not in line and b"and now" not in line])
    await reader.announce(OFF)
    await reader.rig.read(fork)
    await reader.rig.flush()
    assert files_with_canary(reader.rig.home) == set()
    if restarts:
        await reader.rig.restart()
    assert await _read_released(reader, fork) == []
    now = reader.rig.pipeline.now()
    reader.rig.pipeline.now = reader.rig.pipeline._stores.now = lambda: now + DEFER_MS + 1
    assert await _read_released(reader, fork) == [FORK]
    assert "please" in reader.words_of(FORK)
    await reader.rig.read(reader.write(OFF, made[OFF]))
    await reader.rig.flush()
    assert files_with_canary(reader.rig.home) == set()


async def test_held_text_is_kept_when_its_origin_is_open(reader: Reader) -> None:
    """The original turns up, and nothing forbids to keep what the fork repeats of it."""
    original = private("open", word="shareable")
    made = logs("shareable")[FORK]
    fork = reader.write(FORK, [line.replace(b"private", b"open") for line in made])
    await reader.announce(OFF)  # whose log is not there yet
    await reader.rig.read(fork)
    assert "shareable" not in reader.words_of(FORK)
    await reader.rig.read(reader.write("open", original.lines))
    await reader.rig.flush()
    assert await _read_released(reader, fork) == [FORK]
    assert "please shareable" in reader.words_of(FORK)
    assert "and now shareable" in reader.words_of(FORK)
    assert "On the shareable" in reader.words_of(FORK)


def _codex(word: str) -> tuple[rollout.Rollout, rollout.Rollout]:
    """A log of Codex and that of its fork."""
    log = rollout.Rollout(1)
    log.task()
    log.prompt(f"please {word}")
    log.item(rollout.call("xc1", "shell", command=["echo", word]))
    log.answer("xc1", f"out {word} " * 300)
    log.item(rollout.says(f"I did {word}"))
    log.meter(100, 50, 7, 0)
    fork = rollout.Rollout(2, after_s=60, forked_from_id=log.thread)
    fork.lines += log.lines
    return log, fork


@pytest.mark.parametrize("how", ["off", "forget"])
@pytest.mark.parametrize("order", ["original first", "fork first"])
async def test_a_fork_of_codex_keeps_nothing_of_a_private_log(tmp_path: Path, how: str, order: str) -> None:
    folder = tmp_path / "sessions" / "2026" / "11" / "16"
    folder.mkdir(parents=True)
    rig = CodexRig(tmp_path / "home", tmp_path / "sessions")
    await rig.open()
    logs_of_both = _codex(CANARY)
    paths = [folder / log.name for log in logs_of_both]
    for path, log in zip(paths, logs_of_both, strict=True):
        path.write_bytes(log.data)
    original = logs_of_both[0].thread
    if how == "off":
        await announce(rig.pipeline, Announcement(original, "codex", 0, "off"))
    await rig.read(*(paths if order == "original first" else reversed(paths)))
    await rig.flush()
    if how == "forget":
        assert files_with_canary(rig.home) != set()
        await rig.pipeline.forget([original])
    assert files_with_canary(rig.home) == set()
    await rig.close()
