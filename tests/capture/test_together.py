"""I1, I2, I3: all harnesses share one ledger, the same in any order of logs and rows."""

from __future__ import annotations

import random
from pathlib import Path

from burnd.records import Copy, Turn
from tests.capture.codex_logs import all_cases
from tests.capture.opencode_sessions import original, own_step
from tests.capture.together import Together
from tests.capture.trees import forked, own_tree, talk, write
from tests.harness.claude_code.transcript import Transcript
from tests.harness.opencode.data import Writer, text, tokens
from tests.make import seeds


def database(path: Path) -> Path:
    """A session, a fork of it, a fork of that; and one whose messages have ids that Claude Code gave as well."""
    writer = Writer(path)
    original(writer)
    writer.fork("ses_o", "ses_f")
    own_step(writer, "ses_f")
    writer.fork("ses_f", "ses_g")
    own_step(writer, "ses_g")
    writer.session("ses_same")
    writer.user("u", "ses_same")
    for name in ("m1", "m2"):
        writer.step(name, "ses_same", "u", text("other words"), tokens=tokens(input=70))
    writer.close()
    return path


def transcripts(root: Path) -> Path:
    """A session with a fork that its times reveal, and one whose fork only its messages reveal."""
    projects = own_tree(root)
    session = talk(Transcript("2.1.90", session="z", prefix="z"), "z1", "z2")
    fork = talk(forked("a", 1, session), "after")
    for name, log in (("z", session), ("a", fork)):
        write(projects / "-home-dev-app" / f"{name}.jsonl", log)
    return projects


@seeds(2, 12)
async def test_any_order_over_all_harnesses_gives_the_same_ledger(tmp_path: Path, seed: int) -> None:
    """Owners, copies, usage and numbers, with restarts and lost indexes in between."""
    rng = random.Random(seed)
    logs = transcripts(tmp_path / "claude"), all_cases(tmp_path / "codex"), database(tmp_path / "whole.db")
    expected = Together(tmp_path / "clean", *logs)
    await expected.open()
    for piece in expected.pieces():
        await expected.read(piece)
    await expected.settle()
    clean = await expected.outcome()
    await expected.close()
    latest = clean["ledger"]["latest"].values()
    for kind in (Turn, Copy):
        assert {entry.source for entry in latest if isinstance(entry, kind)} == {"claude-code", "codex", "opencode"}
    owners = {entry.message_id: entry.session_id for entry in latest if isinstance(entry, Turn)}
    assert [owners[name] for name in ("z1", "z2", "after", "ses_o-a0", "ses_f-own-a")] == [
        "z",
        "z",
        "a",
        "ses_o",
        "ses_f",
    ]

    shuffled = Together(tmp_path / "home", *logs)
    await shuffled.open()
    pieces = shuffled.pieces()
    for piece in rng.sample(pieces, len(pieces)):
        await shuffled.read(piece)
        if rng.random() < 0.1:
            await shuffled.lose_index()
        elif rng.random() < 0.1:
            await shuffled.close()
            await shuffled.open()
    for piece in rng.sample(pieces, len(pieces)):
        await shuffled.read(piece)
    await shuffled.settle()
    found = await shuffled.outcome()
    await shuffled.close()
    assert found["ledger"] == clean["ledger"]
    assert found["content"] == clean["content"]
    for table in ("turns", "sessions", "facts"):
        assert found["index"][table] == clean["index"][table]
