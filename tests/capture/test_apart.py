"""Reading in a process apart gives what reading here gives, and its death costs nothing."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from burnd.sources import pieces
from burnd.sources.apart import Apart, Wanted
from burnd.sources.claude_transcripts import ClaudeTranscripts
from burnd.sources.safe_open import Refused
from burnd.sources.transcripts import Piece
from tests.capture.rig import Rig
from tests.capture.test_claude_source import SESSION, _is, watching
from tests.capture.test_live_equals_batch import own_tree
from tests.conftest import Opened
from tests.readers.transcript import Transcript, text


class RigApart(Rig):
    """Reads as the source does while a lot is left: every piece from what the index says, in another process."""

    async def open(self) -> None:
        await super().open()
        self.apart = Apart(ClaudeTranscripts, self.home.index_db)

    async def close(self) -> None:
        self.apart.close()
        await super().close()

    async def _piece(self, path: Path, max_bytes: int) -> Piece | None:
        rows = await self.pipeline.index.rows("SELECT cursor, state FROM files WHERE path = ?", (str(path),))
        saved = (bytes(rows[0][0]), bytes(rows[0][1])) if rows else None
        return self.apart.read(Wanted(str(path), str(self.projects), saved, max_bytes, 0.0, 0))


@pytest.mark.parametrize("max_bytes", [4 << 20, 1000])
async def test_what_is_read_apart_is_what_is_read_here(tmp_path: Path, max_bytes: int) -> None:
    """Whole files or many small pieces, each begun from stored state alone, end in the same ledger and index."""
    projects = own_tree(tmp_path / "claude")
    outcomes = []
    for kind, name in ((Rig, "here"), (RigApart, "apart")):
        rig = kind(tmp_path / name, projects)
        await rig.open()
        await rig.read(*rig.files(), max_bytes=max_bytes, pieces_at_once=3)
        await rig.flush()
        outcomes.append(await rig.outcome())
        await rig.close()
    assert outcomes[0] == outcomes[1]


async def test_a_backlog_is_read_apart_and_looked_after_here(
    opened: Opened, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a backlog leaves open settles, what is appended to it is seen, and the other process ends with it."""
    monkeypatch.setattr(pieces, "APART_FROM", 1)
    log = Transcript(session=SESSION)
    log.prompt("hello")
    log.says("m1", text("hi"), output=7)
    log.says("m2", text("well"), output=8)
    path = tmp_path / "projects" / "-home-dev-app" / f"{SESSION}.jsonl"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"".join(line + b"\n" for line in log.lines))
    log.lines.clear()
    async with watching(opened, tmp_path / "projects") as watched:
        await watched.source.flush()
        assert await _is(watched, "m2", open=0, rev=1)
        assert watched.source._pieces._apart is None
        log.says("m3", text("more"), output=9)
        watched.append(log)
        await watched.source.flush()
        assert await _is(watched, "m3", open=0, rev=1)


async def test_a_reader_that_dies_is_done_without(
    opened: Opened, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that is killed while it reads takes nothing with it: its file is read here."""
    monkeypatch.setattr(pieces, "APART_FROM", 1)

    def die(self: Apart, wanted: Wanted) -> Piece | None:
        read = Apart.__dict__["_asked"]
        assert self._process is None or self._process.poll() is None
        if self._process is None:
            monkeypatch.setattr(Apart, "read", read)
            read(self, wanted)
            assert self._process is not None
            os.kill(self._process.pid, signal.SIGKILL)
        return read(self, wanted)  # type: ignore[no-any-return]

    monkeypatch.setattr(Apart, "_asked", Apart.read, raising=False)
    monkeypatch.setattr(Apart, "read", die)
    async with watching(opened, tmp_path / "projects") as watched:
        log = Transcript(session=SESSION)
        log.prompt("hello")
        log.says("m1", text("hi"), output=7)
        watched.append(log)
        await watched.source.flush()
        assert list(watched.ledger()) == ["m1"]


def test_what_must_not_be_read_is_refused_apart_too(tmp_path: Path) -> None:
    """A link is refused and a missing file is missing, in the words they have here."""
    (tmp_path / "p").mkdir()
    (tmp_path / "p" / f"{SESSION}.jsonl").symlink_to("/etc/passwd")
    (tmp_path / "index").mkdir()
    (tmp_path / "index" / "burn.db").touch()
    apart = Apart(ClaudeTranscripts, tmp_path / "index" / "burn.db")
    wanted = Wanted(str(tmp_path / "p" / f"{SESSION}.jsonl"), str(tmp_path), None, 1000, 0.0, 0)
    try:
        with pytest.raises(Refused):
            apart.read(wanted)
        with pytest.raises(FileNotFoundError):
            apart.read(wanted._replace(path=str(tmp_path / "p" / f"{SESSION[:-1]}9.jsonl")))
    finally:
        apart.close()
