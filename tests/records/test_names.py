"""Bounds on the folders that logs and clients name (`burnd/records/names.py`), and that nothing walks beyond them."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import pytest

from burnd.clients.announcements import SessionClaim
from burnd.clients.folders import resolve
from burnd.harness.claude_code.lines import parse_path
from burnd.harness.claude_code.reader import ClaudeReader
from burnd.logfiles.scanner import present
from burnd.recording.projects import key_of
from burnd.records.names import LONGEST_PATH, MOST_PARTS, bounded_path, is_bounded

DEEP = "/a" * 60_000


@pytest.mark.parametrize("path", ["/", "/home/dev/app", "relative", "/é" * 200, "/" + "x" * 4000])
def test_a_usual_path_stays(path: str) -> None:
    assert is_bounded(path)
    assert bounded_path(path) == path


@pytest.mark.parametrize("path", [DEEP, "/" + "x" * 5000, "/" + "é" * 3000, "/a" * 257])
def test_a_path_out_of_bounds_is_cut_and_marked(path: str) -> None:
    found = bounded_path(path)
    assert found is not None
    assert is_bounded(found)
    assert found.startswith(path[:100])
    assert found == bounded_path(path)
    assert found != bounded_path(path + "b")
    assert (len(found.encode()) <= LONGEST_PATH, found.count("/") <= MOST_PARTS) == (True, True)


def test_an_empty_name_is_none() -> None:
    assert (bounded_path(""), bounded_path(None)) == (None, None)


def test_nothing_walks_a_path_of_60_000_parts() -> None:
    """One parent each would be gigabytes."""
    tracemalloc.start()
    try:
        assert key_of(DEEP) is None
        assert resolve(DEEP).keys == ()
        assert present([DEEP]) == []
        with pytest.raises(ValueError, match="folder"):
            SessionClaim(
                v=1, kind="claim", project=DEEP, from_ts="2026-11-16T10:00:00.000Z", enrichment={"a": "b"}
            ).checked()
        assert tracemalloc.get_traced_memory()[1] < 10 << 20
    finally:
        tracemalloc.stop()


def test_a_log_in_a_folder_of_many_parts_names_a_bounded_project() -> None:
    place = parse_path("-p/77777777-0000-4000-8000-000000000007.jsonl")
    assert place is not None
    reader = ClaudeReader(place)
    line = b'{"type":"assistant","uuid":"u","cwd":"' + DEEP.encode() + b'","sessionId":"s","timestamp":'
    usage = b'"2026-11-16T10:00:00.000Z","message":{"id":"m","model":"x","usage":{"output_tokens":7}}}'
    assert reader.feed(line + usage, 0) is None
    reader.flush()
    (candidate,) = reader.take().candidates
    assert candidate.usage.output == 7
    assert Path(bounded_path(DEEP) or "").parts[1] == "a"
