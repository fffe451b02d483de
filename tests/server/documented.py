"""Examples of docs/protocol.md, and a home in which each example can be run."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, NamedTuple

from burnd.contract import methods
from burnd.paths import Home
from burnd.records import Session
from burnd.records.codec import encode
from tests.harness.claude_code.transcript import Transcript, call, text
from tests.server.logs import write

DOCS = Path(__file__).parents[2] / "docs" / "protocol.md"
SESSION = "0f9c1d2e-6b7a-4c3d-8e5f-001122334455"
OTHER = "7d1b0a5c-2e4f-4a6b-9c8d-665544332211"
OWN = "5a0c8a52-1f0e-4d0c-9b1e-0d6f5f6a7b8c"
_SECTION = re.compile(r"^### `([a-z_.]+)`$", re.MULTILINE)
_BLOCK = re.compile(r"^```json\n(.*?)\n```$", re.MULTILINE | re.DOTALL)


class Shown(NamedTuple):
    """A method on the page: a request, its answer, and messages in between."""

    method: str
    request: dict[str, Any]
    answer: dict[str, Any]
    notifications: list[dict[str, Any]]


def shown() -> list[Shown]:
    """Every method on the page, in its order."""
    head, *sections = _SECTION.split(DOCS.read_text())
    shared = json.loads(_BLOCK.findall(head)[0])
    return [_of(name, body, shared) for name, body in zip(sections[::2], sections[1::2], strict=True)]


def _of(name: str, body: str, shared: dict[str, Any]) -> Shown:
    """The page leaves out what all messages have: `jsonrpc`, `id`, `method`, `version`, and a finished `backfill`."""
    (block,) = _BLOCK.findall(body)
    example = _expanded(json.loads(block), shared)
    common = {"version": 1, **({"backfill": shared["backfill"]} if methods()[name].partial else {})}
    request = {"jsonrpc": "2.0", "id": 1, "method": name, "params": example.get("params", {})}
    answer = {"jsonrpc": "2.0", "id": 1, "result": {**common, **example["result"]}}
    notifications = [
        {"jsonrpc": "2.0", "method": name, "params": {"version": 1, **example[key]}}
        for key in example.keys() & {"notification"}
    ]
    return Shown(name, request, answer, notifications)


def _expanded(value: Any, shared: dict[str, Any]) -> Any:
    """The value with `"<name>"` replaced by the shared object of that name, and `"...": "<name>"` by its fields.

    `"..."` may also be a list of names.
    """
    if isinstance(value, str) and value[:1] == "<" and value[1:-1] in shared:
        return _expanded(shared[value[1:-1]], shared)
    if isinstance(value, list):
        return [_expanded(item, shared) for item in value]
    if isinstance(value, dict):
        fields = {key: _expanded(item, shared) for key, item in value.items()}
        others = fields.pop("...", {})
        for one in others if isinstance(others, list) else [others]:
            fields = {**one, **fields}
        return fields
    return value


def furnish(home: Home) -> None:
    """Three sessions: one with a tool call, one that is soon forgotten, one of a program that calls models itself."""
    home.root.mkdir(mode=0o700)
    home.ledger.write_bytes(encode(Session(session_id=OWN, source="", agent="summarizer", created_by="nightly")))
    home.ledger.chmod(0o600)
    instructions = home.root.parent / ".claude" / "CLAUDE.md"
    instructions.parent.mkdir(exist_ok=True)
    instructions.write_text("# Mine\n\n## Deploying\n\nDeploy to staging first.\n")
    log = Transcript(session=SESSION)
    log.prompt("find the bug")
    log.calls("msg_01A", call("toolu_1", "Read", file_path="/home/dev/app/main.py"), model="claude-sonnet-4-5")
    log.result("toolu_1", "print('hello')")
    usage = {"cache_read_input_tokens": 12000, "cache_creation_input_tokens": 800}
    log.says("msg_01B", text("it is in line 1"), model="claude-sonnet-4-5", usage=usage)
    write(home, log, SESSION)
    other = Transcript(session=OTHER, prefix="o")
    other.prompt("the password is hunter2")
    other.says("msg_02A", text("please do not tell me"), model="claude-sonnet-4-5")
    write(home, other, OTHER)


# Names of maps whose keys are anybody's, and of records that leave out what they do not have.
MAPS = {"counts", "enrichment", "tags", "filters"}


ANYTHING = {"value", "default"}  # settings are of any type
