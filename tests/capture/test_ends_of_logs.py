"""How logs end: deleted with lines unread, or with a last line that never got its newline."""

from __future__ import annotations

from pathlib import Path

import pytest

from burnd.sources.watch import Times
from tests.capture import test_claude_source
from tests.capture.test_claude_source import SESSION, _is, until, watching
from tests.conftest import Opened
from tests.readers.transcript import Transcript, text


@pytest.mark.parametrize("was_scanned", [True, False])
async def test_a_scan_alone_tells_of_a_deleted_log(
    opened: Opened, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, was_scanned: bool
) -> None:
    """F08, F21: what was written just before a log was deleted is read though no event told of either."""
    monkeypatch.setattr(test_claude_source, "QUICK", Times(roots=0.05, scan=1000.0, poll=1000.0))
    (tmp_path / "projects" / "-home-dev-app").mkdir(parents=True)
    async with watching(opened, tmp_path / "projects") as watched:
        await until(lambda: watched.source.status().detail == "watching 2 folders")
        finder = watched.source._finder
        log = Transcript(session=SESSION)
        log.prompt("hello")
        log.says("m1", text("hi"), output=7)
        watched.append(log)
        await until(lambda: _is(watched, "m1", output=7))
        if was_scanned:
            await watched.source.flush()
        assert finder._scanner.has_seen(str(watched.path())) == was_scanned
        finder.watcher._supervisor.stop()  # no event comes from now on
        log.says("m2", text("well"), output=8)
        watched.append(log)
        watched.path().unlink()
        await watched.source.flush()
        assert {m: t.usage.output for m, t in watched.ledger().items()} == {"m1": 7, "m2": 8}
        assert not len(watched.source._pieces.known._files)
