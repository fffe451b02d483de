"""Every source there is, by name, and how each is made. A new harness is one line here."""

from __future__ import annotations

from burnd.harness.claude_code import source as claude_code
from burnd.harness.codex import source as codex
from burnd.harness.opencode import source as opencode
from burnd.harness.surroundings import Harness, Look, Make

HARNESSES: dict[str, Harness] = {
    "claude-code": claude_code.HARNESS,
    "opencode": opencode.HARNESS,
    "codex": codex.HARNESS,
}
SOURCES: dict[str, Make] = {name: harness.make for name, harness in HARNESSES.items()}
PLACES: dict[str, Look] = {name: harness.places for name, harness in HARNESSES.items()}
