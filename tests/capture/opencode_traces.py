"""Databases of opencode, and recordings of how their rows changed."""

from __future__ import annotations

import json
import random
from collections import Counter
from pathlib import Path
from typing import Any

from tests.harness.collect import case_root
from tests.harness.opencode.data import Statement, Writer

TABLES = ("session", "message", "part")


def samples() -> list[Path]:
    root = case_root()
    return sorted(root.glob("opencode/*/opencode.db")) if root is not None else []


def traces() -> list[Path]:
    root = case_root()
    return sorted(root.glob("opencode/traces/*.jsonl")) if root is not None else []


class Trace:
    """A recording: the rows that must be there before it, and what was done at which second."""

    def __init__(self, path: Path) -> None:
        events = [json.loads(line) for line in path.read_text().splitlines()]
        self.begun = int(next(event["t"] for event in events if event["ev"] == "sampler-start") * 1000)
        self.steps: list[tuple[float, Statement]] = [
            (event["t"], statement)
            for event in events
            if event.get("table") in TABLES and (statement := _statement(event)) is not None
        ]
        inserted = {event["row"]["id"] for event in events if event["ev"] == "insert" and event["table"] == "session"}
        named = {
            event["row"]["session_id"] for event in events if event["ev"] == "insert" and event["table"] == "message"
        }
        self.before = sorted(named - inserted)


def _statement(event: dict[str, Any]) -> Statement | None:
    table = event["table"]
    if event["ev"] == "insert":
        row = event["row"]
        return f"INSERT INTO {table}({','.join(row)}) VALUES({','.join('?' * len(row))})", tuple(row.values())
    if event["ev"] == "update":
        changed = event["changed"]
        sets = ",".join(f"{name} = ?" for name in changed)
        return f"UPDATE {table} SET {sets} WHERE id = ?", (*changed.values(), event["id"])
    return (f"DELETE FROM {table} WHERE rowid = ?", (event["rowid"],)) if event["ev"] == "delete" else None


def prepared(folder: Path, trace: Trace) -> Writer:
    """A database with the sessions that were there before the recording began."""
    writer = Writer(folder / "opencode.db")
    writer.db.execute("PRAGMA foreign_keys=OFF")
    for session in trace.before:
        writer.session(session, time_created=1, time_updated=1)
    return writer


def write_sessions(writer: Writer, rng: random.Random, sessions: int) -> Counter[str]:
    """Sessions with steps, failures, children and forks; returns what they really used."""
    spent: Counter[str] = Counter()
    for n in range(sessions):
        session = writer.session(f"ses_{n}")
        for turn in range(rng.randrange(1, 6)):
            prompt = writer.user(f"u{n}-{turn}", session, "do it")
            for step in range(rng.randrange(1, 5)):
                spent += write_step(writer, rng, f"a{n}-{turn}-{step}", session, prompt)
        if rng.random() < 0.3:
            child = writer.session(f"ses_{n}_child", parent_id=session, agent="explore")
            prompt = writer.user(f"cu{n}", child, "look")
            spent += write_step(writer, rng, f"ca{n}", child, prompt)
        if rng.random() < 0.5:
            fork = writer.fork(session, f"ses_{n}_fork", upto=rng.randrange(1, 20))
            prompt = writer.user(f"fu{n}", fork, "go on")
            spent += write_step(writer, rng, f"fa{n}", fork, prompt)
        if rng.random() < 0.2:
            writer.fork(f"ses_{rng.randrange(n + 1)}", f"ses_{n}_again")
    return spent


def write_step(writer: Writer, rng: random.Random, name: str, session: str, prompt: str) -> Counter[str]:
    if rng.random() < 0.1:
        aborted = {"name": "MessageAbortedError", "data": {}}
        nothing = {"input": 0, "output": 0, "reasoning": 0, "cache": {"read": 0, "write": 0}}
        writer.step(name, session, prompt, tokens=nothing, error=aborted, finish=None)
        return Counter()
    kinds = ("input", "output", "reasoning", "read", "write")
    counts = Counter({kind: rng.randrange(1, 5000) for kind in kinds})
    gross = rng.random() < 0.3
    whole = sum(counts.values())
    stated: dict[str, Any] = {kind: counts[kind] for kind in kinds[:3]}
    stated["output"] += counts["reasoning"] if gross else 0
    stated |= {"total": whole, "cache": {"read": counts["read"], "write": counts["write"]}}
    writer.step(name, session, prompt, tokens=stated)
    return counts
