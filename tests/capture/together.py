"""One home that logs of Claude Code and Codex and a database of opencode are recorded in, piece by piece."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

from burnd.records.codec import encode_content
from tests.capture.opencode_rig import OpenCodeRig
from tests.capture.rig import CodexRig, Rig
from tests.dump import index_dump, ledger_dump
from tests.harness.opencode.data import Writer
from tests.make import read_content

_TABLES = (("session", "id"), ("message", "session_id"), ("part", "session_id"), ("event_sequence", "aggregate_id"))
Piece = tuple[str, str]  # a harness, and a log's path or the id of a session


class Together:
    """The sources of three harnesses over one pipeline; `whole` is the database that opencode's sessions come from."""

    def __init__(self, home: Path, projects: Path, rollouts: Path, whole: Path) -> None:
        self.claude, self.codex = Rig(home, projects), CodexRig(home, rollouts)
        self.opencode = OpenCodeRig(home, home.with_name(f"{home.name}-data"))
        self.whole = whole
        self.copied: list[str] = []
        Writer(self.opencode.data / "opencode.db").close()

    def pieces(self) -> list[Piece]:
        with closing(sqlite3.connect(self.whole)) as db:
            sessions = [row[0] for row in db.execute("SELECT id FROM session ORDER BY id")]
        return [
            *(("claude", str(path)) for path in self.claude.files()),
            *(("codex", str(path)) for path in self.codex.files()),
            *(("opencode", session) for session in sessions),
        ]

    async def open(self) -> None:
        await self.claude.open()
        await self.codex.open_source(self.claude.pipeline)
        self.opencode.open_source(self.claude.pipeline)

    async def close(self) -> None:
        self.codex.close_source()
        self.opencode.source.close()
        await self.claude.close()

    async def lose_index(self) -> None:
        """Restarts with everything settled and without an index."""
        await self.settle()
        await self.close()
        shutil.rmtree(self.claude.home.index)
        await self.open()

    async def read(self, piece: Piece) -> None:
        harness, name = piece
        if harness == "opencode":
            if name not in self.copied:
                self._copy_session(name)
            await self.opencode.attend()
        else:
            await (self.claude if harness == "claude" else self.codex).read(Path(name))

    async def settle(self) -> None:
        await self.claude.flush()
        await self.codex.flush()
        await self.opencode.settle()

    async def outcome(self) -> dict[str, Any]:
        pipeline = self.claude.pipeline
        sessions = sorted(row[0] for row in await pipeline.index.rows("SELECT session_id FROM sessions"))
        content = {s: sorted(map(encode_content, read_content(pipeline.content, s))) for s in sessions}
        index = await index_dump(pipeline.index, places=False)
        return {"ledger": ledger_dump(pipeline.journal), "content": content, "index": index}

    def _copy_session(self, session: str) -> None:
        self.copied.append(session)
        live = Writer(self.opencode.data / "opencode.db")
        live.db.execute("ATTACH ? AS whole", (str(self.whole),))
        for table, column in _TABLES:
            rows = f"SELECT * FROM whole.{table} WHERE {column} = ? ORDER BY rowid"
            live.db.execute(f"INSERT INTO {table} {rows}", (session,))
        live.close()
