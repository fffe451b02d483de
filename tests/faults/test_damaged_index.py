"""F53, F48, P5: an index that was damaged while nobody used it: its tables one by one, and values nobody can read."""

from __future__ import annotations

import random
import sqlite3
from contextlib import closing
from typing import Any

import pytest

from burnd.paths import Home
from tests.faults import tally
from tests.faults.test_storage import EVERYTHING, SESSIONS, known, started  # noqa: F401 - a fixture
from tests.faults.watched import Watched, answers, sum_of, whole
from tests.server.wire import until

PAGE = 4096
MET_AT_START = ("files", "cursors", "tiers", "open_turns")


def _tables(home: Home) -> dict[str, int]:
    """Every table and index of the index, by its first page."""
    with closing(sqlite3.connect(home.index_db)) as db:
        return dict(db.execute("SELECT name, rootpage FROM sqlite_master WHERE rootpage > 1 ORDER BY name"))


def _garble(home: Home, table: str) -> None:
    with home.index_db.open("r+b") as file:
        file.seek((_tables(home)[table] - 1) * PAGE)
        file.write(random.Random(table).randbytes(PAGE))


def _answers(watched: Watched) -> dict[str, Any] | None:
    """What is answered of the three sessions; None while an answer is refused."""
    with watched.daemon.wire() as wire:
        said = {by: wire.ask("summary", by=by).get("result") for by in ("session", "model", "tag:step", "activity")}
        stamps, search = wire.ask("stamps.list").get("result"), wire.ask("hotspots").get("result")
    if not all((*said.values(), stamps, search)):
        return None
    return {by: [answer["totals"], answer["rows"]] for by, answer in said.items() if answer is not None} | {
        "stamps": stamps["stamps"] if stamps is not None else None
    }


def _heals(home: Home, table: str, before: dict[str, Any], n: int) -> None:
    """Garbles a table of a stopped daemon; the next start makes it good, and answers as before."""
    _garble(home, table)
    with started(home) as watched:
        watched.append(f"later-{n}", whole(answers(f"later-{n}", 0, 1)))
        watched.until_recorded(f"later-{n}", sum_of(0))
        watched.flush()
        until(lambda: _without_later(_answers(watched)) == before, 60, watched.daemon.why)
        assert watched.daemon.terminate() == 0, table
    turns = [line for line in home.ledger.read_bytes().splitlines() if b'"kind":"turn"' in line]
    assert len(turns) == len(set(turns)) == 36 + n + 1, f"{table}: something was appended twice, or lost"


def _without_later(said: dict[str, Any] | None) -> dict[str, Any] | None:
    if said is None:
        return None
    return {
        "sessions": [row for row in said["session"][1] if not row["key"].startswith("later")],
        "tags": [row for row in said["tag:step"][1] if row["key"] == "plan"],
        "stamps": said["stamps"],
    }


def _stopped(home: Home) -> dict[str, Any]:
    """What a daemon answered that was stopped in good order."""
    with started(home) as watched:
        until(lambda: _answers(watched) is not None)
        before = _without_later(_answers(watched))
        assert before is not None
        assert len(before["sessions"]) == len(SESSIONS)
        assert watched.daemon.terminate() == 0
    return before


@pytest.mark.usefixtures("known")
def test_a_page_that_is_damaged_after_a_clean_stop(home: Home) -> None:
    """F53, F78, P5: whoever meets it, the index is made anew, the daemon lives on, and answers are as before."""
    before = _stopped(home)
    for n, table in enumerate(MET_AT_START):
        _heals(home, table, before, n)
        tally.faults()


@pytest.mark.slow
@pytest.mark.usefixtures("known")
def test_a_page_of_any_table_that_is_damaged_after_a_clean_stop(home: Home) -> None:
    """F53, F78, P5: the same for the first page of every table and every index there is."""
    before = _stopped(home)
    for n, table in enumerate(_tables(home)):
        _heals(home, table, before, n)
        tally.faults()
