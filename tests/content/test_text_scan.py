"""Reports what a deletion would remove, and the sessions with a text, without scanning all references per blob."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from burnd.content.text_scan import TextScan
from burnd.ledger.blobs import BlobStore, sha_of
from burnd.ledger.content import ContentStore
from burnd.ledger.files import make_folder
from burnd.paths import Home
from burnd.recording.retention import would_free
from tests.make import START_MS, append_content, seeds, text

EVERY = 50  # instructions between two counts


def kept(root: Path, count: int) -> Home:
    """A home with so many blobs, each of two sessions: one by one they are shared by neighbours."""
    home = Home(root)
    make_folder(home.root)
    blobs = [f"a secret, {n:06d}".encode() for n in range(count)]
    refs = {f"s{s}": {sha_of(b) for b in blobs[s::10] + blobs[s + 1 :: 10]} for s in range(10)}
    store = BlobStore(home.blobs)
    store.add({sha_of(blob): blob for blob in blobs}, refs)
    store.close()
    return home


def steps_of(work: Callable[[], Any], monkeypatch: pytest.MonkeyPatch) -> int:
    """SQLite instructions that it runs, on all connections it opens."""
    steps = 0

    def count() -> int:
        nonlocal steps
        steps += 1
        return 0

    connect = sqlite3.connect

    def counted(*arguments: Any, **more: Any) -> sqlite3.Connection:
        db: sqlite3.Connection = connect(*arguments, **more)
        db.set_progress_handler(count, EVERY)
        return db

    with monkeypatch.context() as patch:
        patch.setattr(sqlite3, "connect", counted)
        work()
    return steps * EVERY


def told(home: Home) -> None:
    assert would_free(home, [f"s{s}" for s in range(5)]).bytes > 0


def matched(home: Home) -> None:
    assert len(TextScan(home, "a secret", lambda _done, _total: None).run()) == 10


@pytest.mark.parametrize("work", [told, matched])
def test_four_times_the_blobs_cost_four_times_as_much(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, work: Callable[[Home], None]
) -> None:
    """Not sixteen times: no reference is looked at again for every blob."""
    few, many = (kept(tmp_path / str(count), count) for count in (400, 1600))
    assert steps_of(lambda: work(many), monkeypatch) < 6 * steps_of(lambda: work(few), monkeypatch)


@seeds(2, 10)
def test_the_report_equals_the_deletion(tmp_path: Path, seed: int) -> None:
    """Equal to the byte, with any sharing of blobs."""
    home = Home(tmp_path / "home")
    make_folder(home.root)
    store, chance = ContentStore(home.content), random.Random(seed)
    words = [chance.randbytes(600).hex() for _ in range(12)]
    for n in range(30):
        append_content(store, [text(f"m{n}", chance.choice(words), session_id=f"s{chance.randrange(6)}")], START_MS)
    going = chance.sample([f"s{n}" for n in range(6)], 3)
    freed = would_free(home, going).bytes
    assert freed == store.drop(going) > 0
    store.close()
