"""Reads transcripts in pieces, with stored state and collected rows."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from burnd.harness.claude_code.content import whole_contexts
from burnd.harness.claude_code.lines import LogPath, parse_path, with_meta
from burnd.harness.claude_code.reader import ClaudeReader
from burnd.harness.claude_code.state import (
    ClaudePrompt,
    ClaudeReading,
    ClaudeState,
    LeafTitle,
    Link,
    SavedOutput,
    load_state,
)
from burnd.logfiles.log_reader import AgentLink, Counts
from burnd.recording.candidate import Candidate, turn_of
from burnd.recording.ownership import Decision, decide
from burnd.records import Compaction, Content, Event, Overhead, Quota, Request, Turn

SESSION = "5e551011-0000-4000-8000-000000000001"
PATH = LogPath(stem=SESSION, session_id=SESSION)


class Earlier:
    """The history of a transcript for its reader, as log and index have it."""

    def __init__(self, rows: Collected) -> None:
        self._rows = rows
        self.read: list[tuple[int, bytes]] = []
        self.times_read_again = 0

    def has_turns(self, session_id: str, rail_id: str) -> bool:
        return any(one.rail_id == rail_id for one in self._rows.candidates.values())

    def turn_index(self, session_id: str, rail_id: str, message_id: str) -> int | None:
        candidate = self._rows.candidates.get(message_id)
        return candidate.turn_index if candidate is not None and candidate.rail_id == rail_id else None

    def mentions(self, name: bytes) -> bool:
        return any(name in line for _, line in self.read)

    def lines(self) -> list[tuple[int, bytes]]:
        self.times_read_again += 1
        return self.read


class Collected:
    """All rows that came out of one transcript."""

    def __init__(self) -> None:
        self.links: dict[str, Link] = {}
        self.prompts: dict[str, ClaudePrompt] = {}
        self.offsets: dict[str, int] = {}
        self.candidates: dict[str, Candidate] = {}
        self.content: list[Content] = []
        self.events: list[Event] = []
        self.quotas: list[Quota] = []
        self.compactions: list[Compaction] = []
        self.overheads: list[Overhead] = []
        self.requests: dict[str, Request] = {}
        self.agents: list[AgentLink] = []
        self.titles: list[LeafTitle] = []
        self.saved: list[SavedOutput] = []
        self.counts: dict[str, Counter[str]] = {}
        self.lines = 0
        self.state: ClaudeState | None = None
        self.state_size = 0
        self.times_read_again = 0

    def take(self, reader: ClaudeReader) -> None:
        rows = reader._memory._rows
        self.links.update(rows.links)
        self.prompts.update(rows.prompts)
        self.add(reader.take())

    def add(self, reading: ClaudeReading) -> None:
        self.offsets.update(reading.offsets)
        self.candidates.update({one.message_id: one for one in reading.candidates})
        self.candidates = {name: one for name, one in self.candidates.items() if not one.dropped}
        for name in ("content", "events", "quotas", "compactions", "overheads", "agents", "titles", "saved"):
            getattr(self, name).extend(getattr(reading, name))
        self.requests.update({one.id: one for one in reading.requests})
        self.requests = {name: one for name, one in self.requests.items() if not one.withdrawn}
        self._count(reading.counts)
        self.state = load_state(reading.state)
        self.state_size = max(self.state_size, len(reading.state))

    def _count(self, counts: Counts) -> None:
        self.lines += counts.lines
        for name in ("skipped", "unknown", "rejected", "repaired"):
            self.counts.setdefault(name, Counter()).update(getattr(counts, name))

    def comparable(self) -> dict[str, Any]:
        """Everything that must not depend on where the reading was cut."""
        rows = {
            name: value for name, value in vars(self).items() if name not in ("state", "state_size", "times_read_again")
        }
        state = self.state or ClaudeState()
        rows["state"] = (
            state.session_id,
            state.project,
            state.birth,
            state.stamp,
            # Whether the index has turns of a rail depends on when it is asked.
            {name: msgspec.structs.replace(rail, has_turns=False) for name, rail in state.rails.items()},
            state.requests,
            state.delegations,
        )
        return rows

    @property
    def turns(self) -> list[Turn]:
        """The turns in order of first appearance, iterations last."""
        return [turn_of(candidate) for candidate in self.candidates.values()]

    def turn(self, message_id: str) -> Turn:
        return turn_of(self.candidates[message_id])

    def texts(self) -> list[tuple[str, str, Any]]:
        return [(one.role, one.kind, one.text) for one in self.content]


def with_offsets(lines: Iterable[bytes]) -> Iterator[tuple[bytes, int]]:
    offset = 0
    for line in lines:
        yield line, offset
        offset += len(line) + 1


def read(
    lines: Iterable[bytes],
    path: LogPath = PATH,
    cuts: Collection[int] = (),
    flushes: Collection[int] = (),
) -> Collected:
    """Read all lines; before the line with an ordinal in `cuts` the state is stored and loaded again."""
    rows = Collected()
    earlier = Earlier(rows)
    reader = ClaudeReader(path, None, earlier)
    lines = list(lines)
    fed: list[tuple[int, bytes]] = []
    for n, (line, offset) in enumerate(with_offsets(lines)):
        if n in flushes:
            reader.flush()
        if n in cuts:
            rows.take(reader)
            assert rows.state is not None
            earlier.read = list(fed)
            reader = ClaudeReader(path, rows.state, earlier)
        reader.feed(line, offset)
        fed.append((offset, line))
    reader.flush()
    rows.take(reader)
    rows.times_read_again = earlier.times_read_again
    data = b"\n".join(lines)
    rows.content = list(whole_contexts(rows.content, lambda offset, size: data[offset : offset + size]))
    return rows


def fold(candidates: Iterable[Candidate]) -> dict[str, Decision]:
    """Decide on candidates as they come, as the pipeline does."""
    decisions: dict[str, Decision] = {}
    for candidate in candidates:
        decisions[candidate.message_id] = decide(decisions.get(candidate.message_id), candidate)
    return decisions


def case_root() -> Path | None:
    """The folder with logs of real clients, where there is one."""
    found = os.environ.get("BURND_CASES")
    return Path(found) if found else None


def client_versions() -> list[Path]:
    root = case_root()
    return sorted(path.parent for path in root.glob("claude*/*/expected.json")) if root is not None else []


def cases(found: list[Path]) -> list[Any]:
    """Cases of a test; without any from BURND_CASES, a skip with the reason."""
    reason = "BURND_CASES names no folder with such files of real clients"
    return [*found] or [pytest.param(None, id="none", marks=pytest.mark.skip(reason=reason))]


def transcripts(root: Path) -> list[Path]:
    """Every transcript below a client's home or several of them."""
    found = [path for path in root.rglob("*.jsonl") if "projects" in path.parts]
    return sorted(path for path in found if path_for(path) is not None)


def path_for(path: Path) -> LogPath | None:
    below = path.parts[len(path.parts) - path.parts[::-1].index("projects") :]
    parsed = parse_path("/".join(below))
    meta = path.with_suffix(".meta.json")
    return with_meta(parsed, meta.read_bytes()) if parsed is not None and meta.exists() else parsed


def lines_of(path: Path) -> list[bytes]:
    """The file's whole lines; what follows the last newline is not there yet."""
    return path.read_bytes().split(b"\n")[:-1]


def read_file(path: Path) -> Collected:
    parsed = path_for(path)
    assert parsed is not None
    return read(lines_of(path), parsed)


def line(**fields: Any) -> bytes:
    return json.dumps(fields, separators=(",", ":"), ensure_ascii=False).encode()
