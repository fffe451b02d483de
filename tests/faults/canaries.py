"""Canaries: logs with a secret word wherever text can be, and a search for it in all files."""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import tantivy
import zstandard

from burnd.paths import Home
from burnd.search.index import WORDS
from burnd.tokens.words import SIGNS
from tests.harness.claude_code.transcript import Transcript, text
from tests.harness.codex import rollout
from tests.harness.opencode import data as opencode
from tests.server.logs import contents, projects, write
from tests.server.wire import Wire

CANARY = "zanzibarcanary"
SINGERS = {"bird", "ses_bird", rollout.thread(7)}
LONG = f"{CANARY} " * 400  # stored apart, compressed
_ZSTD = b"\x28\xb5\x2f\xfd"


def sing_everywhere(home: Home) -> None:
    """In a session of every harness, each of SINGERS."""
    sing_in_claude(home, "bird")
    sing_in_opencode(home)
    _sing_in_codex(home)


def sing_in_claude(home: Home, session: str, root: Path | None = None) -> None:
    """A session with the canary in its prompt, thinking, answer, call, results (a saved one too), attachment, title
    and a broken line."""
    log = Transcript(session=session, prefix=f"{session}-u")
    log.prompt(f"please {CANARY} this")
    _sing_without_records(log)
    log.says(f"{session}-m0", {"type": "thinking", "thinking": f"hm {LONG}", "signature": CANARY})
    log.says(f"{session}-m0", text(f"I will {CANARY}"))
    log.says(
        f"{session}-m0", _call(f"{session}-c0", "Bash", command=f"echo {CANARY} | sh -c {CANARY}"), stop="tool_use"
    )
    log.result(f"{session}-c0", f"out {LONG}", toolUseResult={"stdout": LONG, "stderr": CANARY})
    log.says(f"{session}-m1", _call(f"{session}-c1", "WebFetch", url=f"https://example.org/?q={CANARY}", prompt=CANARY))
    log.result(f"{session}-c1", f"Error: {CANARY}", is_error=True)
    log.says(f"{session}-m2", _call(f"{session}-c2", "mcp__notes__add", text=CANARY), _call("c3", "Skill", skill="x"))
    log.prompt([text(f"see {CANARY}"), {"type": "document", "source": {"type": "text", "data": LONG}}])
    log.says(f"{session}-m3", text(LONG))
    saved = (root or projects(home)) / "-home-dev-app" / session / "tool-results" / "c4.txt"
    log.says(f"{session}-m3", _call(f"{session}-c4", "Bash", command="cat a"), stop="tool_use")
    log.result(
        f"{session}-c4",
        f"<persisted-output>saved to: {saved}\nPreview: {CANARY}</persisted-output>",
        toolUseResult={"stdout": CANARY, "persistedOutputPath": str(saved)},
    )
    saved.parent.mkdir(parents=True, exist_ok=True)
    saved.write_text(LONG)
    log.bare(type="ai-title", sessionId=session, aiTitle=f"On the {CANARY}")
    log.bare(type="summary", summary=f"about {CANARY}", leafUuid=f"{session}-u3")
    log.bare(type=f"{CANARY}-future", sessionId=session, payload=CANARY)
    log.prompt(f"/command {CANARY}", isMeta=True)
    log.says(f"{session}-m4", text("done"))
    _sing_without_records(log)
    log.lines.append(b'{"type":"user","broken ' + CANARY.encode() + b"\n")
    log.lines.append(json.dumps({"type": "assistant", "message": CANARY, "sessionId": session}).encode())
    write(home, log, session, root)


def _sing_without_records(log: Transcript) -> None:
    """Lines that are stored with the next record, or wait for it at the end of a log."""
    log.attach("skill_listing", content=f"- {CANARY}", rendered=f"a skill: {LONG}")
    log.add("system", subtype="local_command", content=f"<command-name>/{CANARY}</command-name>")
    log.add("system", subtype="compact_boundary", content=CANARY, compactMetadata={"preTokens": 5, "note": CANARY})


def _sing_in_codex(home: Home) -> None:
    log = rollout.Rollout(7, base_instructions={"text": f"You are {CANARY}"})
    log.task()
    log.context("gpt-5.1-codex", user_instructions=LONG)
    log.add("world_state", {"text": CANARY})
    log.given(f"instructions {CANARY}", role="developer")
    log.prompt(f"please {CANARY}")
    log.item(rollout.thinking(CANARY, f"hm {LONG}"), rollout.call("xc1", "shell", command=["echo", CANARY, LONG]))
    log.answer("xc1", f"out {LONG}")
    patch = rollout.patch("xc2", "src/a.py")
    log.item(patch | {"input": patch["input"].replace("+b", f"+{LONG}")}, rollout.says(f"I did {LONG}"))
    log.event("agent_reasoning", text=CANARY)
    log.event(f"{CANARY}_future", message=CANARY)
    log.meter(100, 50, 7, 0)
    log.context("gpt-5.1-codex", user_instructions=LONG)
    log.add("world_state", {"text": CANARY})
    log.lines.append(b'{"type":"response_item","broken ' + CANARY.encode())
    path = home.root.parent / ".codex" / "sessions" / "2026" / "11" / "16" / log.name
    path.parent.mkdir(parents=True)
    path.write_bytes(log.data)


def sing_in_opencode(home: Home) -> None:
    """The same in opencode's database."""
    path = home.root.parent / ".local" / "share" / "opencode" / "opencode.db"
    with closing(opencode.Writer(path)) as writer:
        writer.session("ses_bird", title=f"The {CANARY}")
        writer.user("bu1", "ses_bird", f"find {CANARY}")
        failed = {"name": "APIError", "data": {"message": CANARY, "responseBody": LONG}}
        given: dict[str, Any] = {"command": f"cat {CANARY}", "description": CANARY}
        parts = (
            opencode.reasoning(LONG),
            opencode.tool("bc1", "bash", given, f"result {LONG}", title=CANARY, metadata={"preview": CANARY}),
            opencode.text(CANARY),
        )
        writer.step("ba1", "ses_bird", "bu1", *parts)
        writer.step("ba2", "ses_bird", "bu1", error=failed, finish=None)


def sing_over_the_socket(wire: Wire) -> str:
    """In a pushed session, whose id is returned."""
    session = str(wire.call("sessions.new", agent="me", sender="test", source="anthropic-api")["sessionId"])
    call = _call("pc1", "Bash", command=f"echo {CANARY}")
    result = {"type": "tool_result", "tool_use_id": "pc1", "content": LONG}
    usage = {"input_tokens": 9, "output_tokens": 2}
    messages = [
        {"id": "p1", "role": "user", "content": f"please {CANARY}"},
        {"id": "p2", "role": "assistant", "model": "claude-opus-4-5", "content": [text(LONG), call], "usage": usage},
        {"id": "p3", "role": "user", "content": [result]},
    ]
    assert wire.call("sessions.append", id=session, messages=messages)["appended"] == 3
    return session


def files_with_canary(home: Home) -> set[str]:
    """The files below the home that hold it anywhere, compressed or not, by their names; and indexes that know it."""
    held = {str(path.relative_to(home.root)) for path, data in contents(home.root) if sings(path, data)}
    return held | {str(folder.relative_to(home.root)) for folder in _search_folders(home) if _knows(folder)}


def _search_folders(home: Home) -> Iterator[Path]:
    return (meta.parent for meta in home.search.glob("*/meta.json"))


def _knows(folder: Path) -> bool:
    """True if a search index has the word, whose files encode words."""
    words = _opened(folder)
    return words is not None and any(words.doc_freq(WORDS, sign + CANARY) for sign in SIGNS.values())


def _opened(folder: Path) -> tantivy.Searcher | None:
    """A search index, or None without one. A merge may remove files while it is opened."""
    for _ in range(100):
        with suppress(ValueError):
            return tantivy.Index.open(str(folder)).searcher()
        if not (folder / "meta.json").exists():
            return None
        time.sleep(0.1)
    return tantivy.Index.open(str(folder)).searcher()


def sings(path: Path, data: bytes) -> bool:
    """True if a file contains it."""
    needles = (CANARY.encode(), CANARY.encode("utf-16-le"))
    return any(needle in part for part in (data, *_unpacked(data), *_packs(path)) for needle in needles)


def _unpacked(data: bytes) -> Iterator[bytes]:
    """Decompressed contents, complete or partial."""
    at = data.find(_ZSTD)
    while at >= 0:
        with suppress(zstandard.ZstdError):
            yield zstandard.ZstdDecompressor().decompressobj().decompress(data[at:])
        at = data.find(_ZSTD, at + 1)


def _packs(path: Path) -> Iterator[bytes]:
    """A database's own packs, which may be spread over its pages."""
    if path.name != "blobs.db":
        return
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as db:
        for (data,) in db.execute("SELECT data FROM pack"):
            yield zstandard.ZstdDecompressor().decompressobj().decompress(data)


def _call(call_id: str, name: str, **arguments: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": call_id, "name": name, "input": arguments}


def sources_below(home: Home) -> list[Path]:
    """The harnesses' own files, which we never change."""
    return [projects(home), home.root.parent / ".local", home.root.parent / ".codex"]
