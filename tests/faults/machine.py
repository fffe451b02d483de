"""A machine on which three harnesses write, files are lost and the daemon dies, and a daemon that must know it all."""

from __future__ import annotations

import asyncio
import shutil
import signal
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from burnd.ledger.content_modes import ContentModes
from burnd.paths import Home
from burnd.recording.pipeline import open_pipeline
from burnd.records.times import to_iso
from tests.dump import index_dump
from tests.faults import shims, tally
from tests.faults.canaries import CANARY, files_with_canary
from tests.faults.known import Known, now_ms
from tests.faults.writers import ClaudeCode, Codex, Opencode
from tests.server.logs import projects
from tests.server.spool import announce_record, put_in_spool, stamp_record
from tests.server.wire import Daemon, Wire, until

PATIENCE_S = 120.0


class Machine:
    """Random events: of the daemon, of users, and in the logs of the harnesses."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="burnd-"))
        self.home = Home(self.folder / "home")
        self.known = Known()
        self.claude = ClaudeCode(projects(self.home), self.known)
        self.codex = Codex(self.folder / ".codex", self.known)
        self.opencode = Opencode(self.folder / ".local" / "share" / "opencode" / "opencode.db", self.known)
        self.daemon: Daemon | None = None
        self._quiet: set[str] = set()
        self._full = self.folder / "full"
        self._shim = str(shims.built("full_disk", self.folder)) if shims.are_to_be_had else ""

    # The daemon

    def start(self) -> None:
        self.daemon = Daemon(
            self.home, LD_PRELOAD=self._shim, FULL_BELOW=str(self.home.root), FULL_WHILE=str(self._full)
        )
        self.daemon.wait_until_ready()

    def stop(self, *, kill: bool) -> None:
        if self.daemon is None:
            return
        if kill:
            self.daemon.kill()
            tally.faults()
        else:
            assert self.daemon.terminate() == 0, self.daemon.why()
        self.daemon = None

    def lose_index(self) -> None:
        self.stop(kill=False)
        shutil.rmtree(self.home.root / "index", ignore_errors=True)
        tally.faults()

    def compare_indexes(self) -> None:
        """A grown index equals a rebuilt one, row by row."""
        self.settle()
        self.stop(kill=False)
        grown = asyncio.run(_indexed(self.home))
        self.lose_index()
        self.settle()
        self.stop(kill=False)
        made = asyncio.run(_indexed(self.home))
        for table, rows in grown.items():
            assert made[table] == rows, f"{table} of an index made anew"

    def end(self) -> None:
        if self.daemon is not None:
            self.daemon.kill()
        self.opencode.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def settle(self) -> None:
        """Everything that can be read now is recorded, and the sums are the model's."""
        with self._asking() as wire:
            answer = wire.call("flush")
            assert all(source["flushed"] for source in answer["sources"]), answer
            self._check_sums(wire)

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """Stops the daemon while events pass."""
        if self.daemon is not None:
            self.daemon.process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            if self.daemon is not None:
                self.daemon.process.send_signal(signal.SIGCONT)

    @contextmanager
    def full_disk(self) -> Iterator[None]:
        """Nothing can be written, until the daemon has met with that."""
        met = self._full.with_name("full.met")
        met.unlink(missing_ok=True)
        self._full.touch()
        try:
            yield
            until(met.exists, 30.0, lambda: "nobody wanted to write")
        finally:
            self._full.unlink()
        tally.faults()

    # People

    def stamp(self, session: str, value: str) -> None:
        record = stamp_record(session, step=value) | {"ts": to_iso(now_ms())}
        if self.daemon is None:
            put_in_spool(self.home.spool, record)
        else:
            with self._asking() as wire:
                wire.call("stamp", **{name: record[name] for name in ("ts", "selector", "enrichment")})
        self.known.tags[session] = value

    def talk_quietly(self, session: str) -> None:
        """A private session: announced before it begins, then full of the canary."""
        if session not in self._quiet:
            self._quiet.add(session)
            if self.daemon is None:
                put_in_spool(self.home.spool, announce_record(session, contentMode="off"))
            else:
                with self._asking() as wire:
                    wire.call("announce", sessionId=session, contentMode="off")
        self.claude.converse(session, words=CANARY)

    def prune(self) -> None:
        """Deletes all text. Text half written by then may stay or not."""
        self.settle()
        with self._asking() as wire:
            wire.call("content.prune", olderThanDays=0)
        for log in (*self.claude.logs.values(), *self.codex.half_said()):
            log.word = ""
        self.known.forget(*self.known.words.values())

    def forget(self, session: str) -> None:
        """Deletes all text of one session, later text included."""
        self.settle()
        log = self.claude.logs.get(session)
        if log is None or session not in {owner for owner, _ in self.known.turns.values()}:
            return
        with self._asking() as wire:
            wire.call("content.forget", session=session)
        log.word = ""
        self.known.forget(session)

    # What must be known

    def check(self) -> None:
        """The daemon's answers are the model's, words included."""
        self.settle()
        with self._asking() as wire:
            self._check_words(wire)
        assert files_with_canary(self.home) == set()

    def _check_sums(self, wire: Wire) -> None:
        assert self.daemon is not None
        for by, expected in (("session", self.known.by_session()), ("tag:step", self.known.by_tag())):
            rows = wire.call("summary", by=by, limit=1000)["rows"]
            found = {row["key"]: (row["turns"], row["usage"]["output"]) for row in rows}
            found.pop(None, None)  # what has no tag
            assert found == expected, (by, found, expected, self.daemon.why())

    def _check_words(self, wire: Wire) -> None:
        for word, session in self.known.words.items():
            until(lambda w=word, s=session: s in _found(wire, w), 30.0, lambda w=word: f"{w} is not found")  # type: ignore[misc]
        back = {(word, session) for word, session in self.known.gone if session in _found(wire, word)}
        assert back == set(), "found again"

    @contextmanager
    def _asking(self) -> Iterator[Wire]:
        if self.daemon is None:
            self.start()
        assert self.daemon is not None
        with self.daemon.wire(PATIENCE_S) as wire:
            yield wire


async def _indexed(home: Home) -> dict[str, list[Any]]:
    pipeline = await open_pipeline(home, ContentModes("full"), inline_bytes=1024, reserve=0)
    try:
        return await index_dump(pipeline.index, places=False)
    finally:
        await pipeline.close()


def _found(wire: Wire, word: str) -> set[str]:
    return {hit["sessionId"] for hit in wire.call("sessions.search", query=word)["hits"]}
