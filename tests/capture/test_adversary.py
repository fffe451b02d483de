"""Random mixtures of everything that clients write: every token once with its owner, every text stored."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec

from burnd.records import Turn, Usage
from tests.capture.adversary import World
from tests.capture.rig import Rig
from tests.capture.trees import clean_read, comparable, drip
from tests.make import seeds


def bills(outcome: dict[str, Any]) -> dict[str, tuple[Usage, tuple[str, str]]]:
    turns = (entry for entry in outcome["ledger"]["latest"].values() if isinstance(entry, Turn))
    return {turn.message_id: (turn.usage, (turn.session_id, turn.rail_id)) for turn in turns}


def told(content: list[bytes], word: str) -> Counter[str]:
    """Occurrences of a word on each rail."""
    return Counter(
        record["railId"] for line in content if word.encode() in line for record in [msgspec.json.decode(line)]
    )


@seeds(2, 60)
async def test_the_truth_comes_out_however_it_arrives(tmp_path: Path, seed: int) -> None:
    """Read at once, or byte by byte with restarts and lost indexes in between."""
    world, projects = World(seed), tmp_path / "projects"
    world.write(projects)
    clean = await clean_read(tmp_path / "clean", projects)
    assert bills(clean) == {name: (bill, world.owners[name]) for name, bill in world.bills.items()}
    for session, words in world.words.items():
        for word in words:
            found = told(clean["content"][session], word)
            assert (word, max(found.values(), default=0)) == (word, 1)
    paid = [row[12:18] for row in clean["index"]["turns"]]
    assert [sum(one) for one in zip(*paid, strict=True)] == [
        sum(one) for one in zip(*map(msgspec.structs.astuple, world.bills.values()), strict=True)
    ]
    whole = {path: path.read_bytes() for path in sorted(projects.rglob("*.jsonl"))}
    for path in whole:
        path.write_bytes(b"")
    dripped = await drip(tmp_path / "home", projects, whole, random.Random(seed), Rig)
    assert comparable(dripped) == comparable(clean)
