"""Files as clients leave them in the spool."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.make import at

_numbers = iter(range(1, 1 << 60))


def put_in_spool(folder: Path, record: Any, name: str = "") -> Path:
    """Writes like a client: a hidden file first, then a rename."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    name = name or f"{1_000_000_000_000_000_000 + next(_numbers)}-1-abcd"
    data = record if isinstance(record, bytes) else json.dumps(record).encode()
    hidden = folder / f".{name}.json"
    hidden.write_bytes(data)
    return hidden.rename(folder / f"{name}.json")


def stamp_record(session: str = "s1", ts: str = at(0), **keys: str) -> dict[str, Any]:
    return {"v": 1, "kind": "stamp", "ts": ts, "selector": {"sessionId": session}, "enrichment": keys or {"a": "b"}}


def announce_record(session: str, **more: Any) -> dict[str, Any]:
    return {"v": 1, "kind": "announce", "sessionId": session, "source": "claude-code", **more}
