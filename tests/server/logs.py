"""Writes transcripts to the folders that a daemon under test reads."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from burnd.paths import Home
from burnd.records.times import to_iso
from tests.harness.claude_code.transcript import Transcript, text

PROJECT = "/home/dev/app"


def contents(folder: Path) -> Iterator[tuple[Path, bytes]]:
    """Every file below a folder in use by a daemon; a file deleted meanwhile counts as empty."""
    for place, _, names in os.walk(folder):
        for path in (Path(place, name) for name in names):
            with suppress(FileNotFoundError):
                if path.is_file() and not path.is_symlink():
                    yield path, path.read_bytes()


def projects(home: Home) -> Path:
    """Claude Code's folder of sessions for the user of the daemon under test."""
    return home.root.parent / ".claude" / "projects"


def write(home: Home, transcript: Transcript, session: str, root: Path | None = None) -> None:
    """Appends the lines that were not written yet."""
    folder = (root or projects(home)) / "-home-dev-app"
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / f"{session}.jsonl").open("ab") as file:
        file.write(b"".join(line + b"\n" for line in transcript.lines))
    transcript.lines.clear()


def conversation(session: str, *answers: str, prompt: str = "hello", prefix: str = "", **envelope: Any) -> Transcript:
    """A prompt and answers to it, with ids that are the session's own."""
    log = Transcript(session=session, prefix=f"{prefix or session}-u", **envelope)
    log.prompt(prompt)
    for n, words in enumerate(answers):
        log.says(f"{prefix or session}-m{n}", text(words), output=7)
    return log


def iso(seconds: float) -> str:
    return to_iso(int((time.time() + seconds) * 1000))


def work(home: Home, session: str = "s1", output: int = 1000, turns: int = 1) -> None:
    """Turns of this very moment, $0.015 for every 1,000 tokens of output."""
    log = Transcript(session=session, prefix=session)
    log.prompt("add a page", ts=iso(-2))
    for n in range(turns):
        usage = {"input_tokens": 0}
        log.says(f"{session}-m{n}", text("done"), output=output, usage=usage, model="claude-sonnet-4-5", ts=iso(-1))
    write(home, log, session)
