"""Makes opencode's databases for tests: the real tables of several releases, and rows as opencode writes them."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from burnd.records.times import to_iso

Statement = tuple[str, tuple[Any, ...]]

BORN_MS = 1_794_780_000_000
NOW_MS = BORN_MS + 10**9  # the wall clock of tests: long after all rows were written

_SESSION_1_2 = """
CREATE TABLE project (id text PRIMARY KEY, worktree text NOT NULL, vcs text, name text, time_created integer NOT NULL,
  time_updated integer NOT NULL, sandboxes text NOT NULL);
CREATE TABLE session (id text PRIMARY KEY, project_id text NOT NULL, parent_id text, slug text NOT NULL,
  directory text NOT NULL, title text NOT NULL, version text NOT NULL, share_url text, summary_additions integer,
  summary_deletions integer, summary_files integer, summary_diffs text, revert text, permission text,
  time_created integer NOT NULL, time_updated integer NOT NULL, time_compacting integer, time_archived integer,
  workspace_id text);
"""
_SESSION_1_18 = """
CREATE TABLE session (id text PRIMARY KEY, project_id text NOT NULL, workspace_id text, parent_id text,
  slug text NOT NULL, directory text NOT NULL, path text, title text NOT NULL, version text NOT NULL, share_url text,
  summary_additions integer, summary_deletions integer, summary_files integer, summary_diffs text, metadata text,
  cost real NOT NULL DEFAULT 0, tokens_input integer NOT NULL DEFAULT 0, tokens_output integer NOT NULL DEFAULT 0,
  tokens_reasoning integer NOT NULL DEFAULT 0, tokens_cache_read integer NOT NULL DEFAULT 0,
  tokens_cache_write integer NOT NULL DEFAULT 0, revert text, permission text, agent text, model text,
  time_created integer NOT NULL, time_updated integer NOT NULL, time_compacting integer, time_archived integer);
CREATE TABLE event_sequence (aggregate_id text PRIMARY KEY, seq integer NOT NULL, owner_id text);
CREATE TABLE session_message (id text PRIMARY KEY, session_id text, data text);
CREATE TABLE todo (session_id text, content text, status text, priority text, position integer);
"""
_MESSAGES = """
CREATE TABLE message (id text PRIMARY KEY, session_id text NOT NULL REFERENCES session(id) ON DELETE CASCADE,
  time_created integer NOT NULL, time_updated integer NOT NULL, data text NOT NULL);
CREATE TABLE part (id text PRIMARY KEY, message_id text NOT NULL REFERENCES message(id) ON DELETE CASCADE,
  session_id text NOT NULL, time_created integer NOT NULL, time_updated integer NOT NULL, data text NOT NULL);
CREATE INDEX message_session_time_created_id_idx ON message(session_id, time_created, id);
CREATE INDEX part_message_id_id_idx ON part(message_id, id);
CREATE INDEX part_session_idx ON part(session_id);
"""
SCHEMAS = {"1.2.27": _SESSION_1_2 + _MESSAGES, "1.18.33": _SESSION_1_18 + _MESSAGES}


class Writer:
    """A connection as opencode keeps it: with a write-ahead log, one transaction for each row."""

    def __init__(self, path: Path, schema: str = "1.18.33", born: int = BORN_MS) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        is_new = not path.exists()
        self.path = path
        self.schema = schema
        self.db = sqlite3.connect(path, isolation_level=None)
        for pragma in ("journal_mode=WAL", "synchronous=NORMAL", "foreign_keys=ON"):
            self.db.execute(f"PRAGMA {pragma}")
        self.clock = born
        self.done: list[Statement] = []
        if is_new:
            self.db.executescript(SCHEMAS[schema])

    def do(self, sql: str, values: Sequence[Any] = ()) -> None:
        """One transaction; all of them are remembered, so that they can be done again elsewhere."""
        self.db.execute(sql, values)
        self.done.append((sql, tuple(values)))

    def close(self) -> None:
        self.db.close()

    def tick(self, milliseconds: int = 10) -> int:
        """A later time at each call."""
        self.clock += milliseconds
        return self.clock

    def session(self, session_id: str, **changes: Any) -> str:
        now = self.tick()
        row: dict[str, Any] = {
            "id": session_id,
            "project_id": "global",
            "parent_id": None,
            "slug": "calm-otter",
            "directory": "/home/dev/app",
            "title": f"New session - {to_iso(now)}",
            "version": self.schema,
            "time_created": now,
            "time_updated": now,
        }
        if self.schema != "1.2.27":
            row["agent"] = "build"
        self.insert("session", row | changes)
        return session_id

    def user(self, message_id: str, session_id: str, text: str | None = "do it", **changes: Any) -> str:
        """A user row, and then its text."""
        now = changes.pop("at", None) or self.tick()
        data = {"role": "user", "time": {"created": now}, "agent": "build"} | changes
        self.message(message_id, session_id, now, data)
        if text is not None:
            self.part(message_id, session_id, {"type": "text", "text": text})
        return message_id

    def step(
        self,
        message_id: str,
        session_id: str,
        parent: str,
        *parts: dict[str, Any],
        done: bool = True,
        at: int | None = None,
        **changes: Any,
    ) -> str:
        """An assistant row from its beginning to its end, in the order in which opencode writes it."""
        now = at or self.tick()
        begun = assistant(parent, now)
        self.message(message_id, session_id, now, begun)
        for part in parts:
            self.part(message_id, session_id, part)
        usage = changes.pop("tokens", tokens(input=100, output=20))
        if not done:
            return message_id
        self.part(message_id, session_id, {"type": "step-finish", "reason": "stop", "cost": 0, "tokens": usage})
        ended: dict[str, Any] = {"tokens": usage, "finish": "stop", "time": {"created": now, "completed": self.tick()}}
        self.update(message_id, begun | ended | changes)
        return message_id

    def message(self, message_id: str, session_id: str, created: int, data: dict[str, Any]) -> None:
        row = {"id": message_id, "session_id": session_id, "time_created": created, "time_updated": created}
        self.insert("message", row | {"data": json.dumps(data)})
        self.bump(session_id)

    def part(self, message_id: str, session_id: str, data: dict[str, Any], part_id: str | None = None) -> str:
        now = self.tick()
        part_id = part_id or f"prt_{now:015d}"
        row = {"id": part_id, "message_id": message_id, "session_id": session_id, "data": json.dumps(data)}
        self.insert("part", row | {"time_created": now, "time_updated": now})
        self.bump(session_id)
        return part_id

    def update(self, message_id: str, data: dict[str, Any], table: str = "message") -> None:
        """Rewrites a message or part like opencode's upsert: the row number stays."""
        self.do(
            f"UPDATE {table} SET data = ?, time_updated = ? WHERE id = ?", (json.dumps(data), self.tick(), message_id)
        )
        found = self.db.execute(f"SELECT session_id FROM {table} WHERE id = ?", (message_id,)).fetchone()
        self.bump(found[0])

    def bump(self, session_id: str) -> None:
        """Bumps the session's time with every event, like later releases."""
        if self.schema != "1.2.27":
            self.do(
                "INSERT INTO event_sequence(aggregate_id, seq) VALUES(?, 0) "
                "ON CONFLICT(aggregate_id) DO UPDATE SET seq = seq + 1",
                (session_id,),
            )

    def insert(self, table: str, row: dict[str, Any]) -> None:
        marks = ",".join("?" * len(row))
        self.do(f"INSERT INTO {table}({','.join(row)}) VALUES({marks})", list(row.values()))

    def delete(self, *message_ids: str) -> None:
        """Deletes a message with its parts, as a revert does at the next prompt."""
        for message_id in message_ids:
            self.do("DELETE FROM message WHERE id = ?", (message_id,))

    def grow(self, message_id: str, session_id: str, *states: dict[str, Any]) -> str:
        """A part that is written several times, as it comes along."""
        first, *later = states
        part_id = self.part(message_id, session_id, first)
        for state in later:
            self.update(part_id, state, "part")
        return part_id

    def retitle(self, session_id: str, title: str) -> None:
        self.do("UPDATE session SET title = ? WHERE id = ?", (title, session_id))
        self.bump(session_id)

    def fork(self, session_id: str, new_id: str, *, upto: int | None = None, **changes: Any) -> str:
        """A new session with copies of the messages under new ids."""
        self.session(new_id, **changes)
        names: dict[str, str] = {}
        rows = self.db.execute(
            "SELECT id, time_created, data FROM message WHERE session_id = ? ORDER BY time_created, id", (session_id,)
        ).fetchall()
        for message_id, created, text in rows[:upto]:
            names[message_id] = f"{new_id}-{message_id}"
            data = json.loads(text)
            data["parentID"] = names.get(data.get("parentID"), data.get("parentID"))
            self.message(names[message_id], new_id, created, data)
            for (part,) in self.db.execute("SELECT data FROM part WHERE message_id = ? ORDER BY id", (message_id,)):
                self.part(names[message_id], new_id, json.loads(part))
        return new_id


def assistant(parent: str, created: int, **changes: Any) -> dict[str, Any]:
    """An assistant row's data as it is first written."""
    return {
        "role": "assistant",
        "parentID": parent,
        "mode": "build",
        "agent": "build",
        "path": {"cwd": "/home/dev/app", "root": "/"},
        "cost": 0,
        "tokens": {"input": 0, "output": 0, "reasoning": 0, "cache": {"read": 0, "write": 0}},
        "modelID": "gpt-5",
        "providerID": "openai",
        "time": {"created": created},
    } | changes


def tokens(*, gross: bool = False, total: bool = True, **counts: int) -> dict[str, Any]:
    """Tokens as a release writes them: `gross` counts reasoning within output, as those before 1.3.16 did."""
    found = {name: counts.get(name, 0) for name in ("input", "output", "reasoning", "read", "write")}
    whole = sum(found.values())
    if gross:
        found["output"] += found["reasoning"]
    cache = {"read": found.pop("read"), "write": found.pop("write")}
    return ({"total": whole} if total else {}) | found | {"cache": cache}


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words, "time": {"start": BORN_MS, "end": BORN_MS}}


def reasoning(words: str) -> dict[str, Any]:
    return {"type": "reasoning", "text": words, "time": {"start": BORN_MS, "end": BORN_MS}}


def tool(call_id: str, name: str, given: dict[str, Any], output: str | None = "ok", **state: Any) -> dict[str, Any]:
    """A call that was answered; without an output it is still running."""
    how = {"status": "completed", "output": output, "title": name, "metadata": {}} if output is not None else {}
    facts = {"status": "running", "input": given, "time": {"start": BORN_MS}} | how | state
    return {"type": "tool", "tool": name, "callID": call_id, "state": facts}
