"""Against the truth: what a scripted API really served, and what a generator really wrote."""

from __future__ import annotations

import json
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from burnd.recording.ownership import Decision
from burnd.records import Usage
from tests.harness.collect import (
    cases,
    client_versions,
    fold,
    lines_of,
    path_for,
    read,
    read_file,
    transcripts,
)
from tests.queries.corpora import CLAUDE_OPTIONS, Corpora, needs_claude_corpus

_SHUFFLES = 12


def _usage_of(served: dict[str, int], output: int) -> Usage:
    return Usage(
        input=served["input"],
        output=output,
        cache_read=served["cache_read"],
        cache_create_5m=served["cache_5m"],
        cache_create_1h=served["cache_1h"],
    )


def _all_ways(root: Path) -> list[dict[str, Decision]]:
    """All files of a client joined in shuffled orders, which must not matter."""
    files = [list(read_file(path).candidates.values()) for path in transcripts(root)]
    ways = []
    for seed in range(_SHUFFLES):
        by_file = [one for candidates in _shuffled(files, seed) for one in candidates]
        ways.append(fold(by_file if seed % 2 else _shuffled(by_file, seed)))
    return ways


def _shuffled(items: list[Any], seed: int) -> list[Any]:
    return random.Random(seed).sample(items, len(items))


@pytest.mark.parametrize("version", cases(client_versions()), ids=lambda path: path.name)
def test_every_logged_request_is_one_turn_with_the_usage_served(version: Path) -> None:
    """Input and cache are exact always, output wherever the log holds it; what it cannot know is marked."""
    expected = json.loads((version / "expected.json").read_text())
    first, *others = _all_ways(version)
    assert all(other == first for other in others)
    messages = {name: one.turn for name, one in first.items() if ":iter:" not in name}
    assert set(messages) == {row["message_id"] for row in expected}
    for row in expected:
        turn = messages[row["message_id"]]
        thinking = turn.usage.reasoning  # the truth counts it as output
        usage = replace(turn.usage, output=turn.usage.output + thinking, reasoning=0)
        assert usage == _usage_of(row["final_usage"], row["max_logged_output"])
        assert turn.model == row["model"]
        if row["outcome"] != "completed" or row["max_logged_output"] < row["final_usage"]["output"]:
            assert turn.quality == "partial"


@pytest.mark.parametrize("version", cases(client_versions()), ids=lambda path: path.name)
def test_only_a_file_that_holds_the_message_may_own_it(version: Path) -> None:
    rows = {row["message_id"]: row for row in json.loads((version / "expected.json").read_text())}
    for name, joined in _all_ways(version)[0].items():
        files = rows[name.split(":iter:")[0]]["log_files"]
        holders = {joined.turn.session_id} | {copy.session_id for copy in joined.copies}
        assert len(files) == 1 + len(joined.copies)
        assert all(any(holder in file for file in files) for holder in holders)


@pytest.mark.parametrize("version", cases(client_versions()), ids=lambda path: path.name)
def test_real_logs_hold_nothing_unknown(version: Path) -> None:
    for path in transcripts(version):
        counts = read_file(path).counts
        assert (counts["unknown"], counts["rejected"], counts["repaired"]) == ({}, {}, {})


def test_what_the_newest_client_completed_is_final() -> None:
    """All but one: a reply that was not streamed lacks the mark of completion."""
    for version in client_versions():
        expected = {row["message_id"]: row for row in json.loads((version / "expected.json").read_text())}
        if version.name.startswith("2.1.3"):
            turns = [one.turn for one in _all_ways(version)[0].values() if ":iter:" not in one.turn.message_id]
            completed = [turn for turn in turns if expected[turn.message_id]["outcome"] == "completed"]
            assert sum(turn.quality != "final" for turn in completed) <= 1


@needs_claude_corpus
@pytest.mark.parametrize("options", CLAUDE_OPTIONS)
def test_a_generated_corpus_adds_up_to_its_truth(corpora: Corpora, options: list[str]) -> None:
    """Turns and tokens by kind and model are exact on a corpus full of traps."""
    tree, truth = corpora.claude(options)
    collected = [read_file(path) for path in transcripts(tree)]
    joined = fold(_shuffled([one for rows in collected for one in rows.candidates.values()], 1))
    assert len(joined) == truth["turns"]
    totals: dict[str, Counter[str]] = {}
    calls: Counter[str] = Counter()
    for one in joined.values():
        totals.setdefault(one.turn.model, Counter()).update(_counts(one.turn.usage))
        calls.update(call.name for call in one.turn.tool_calls)
    for model, known in truth["per_model"].items():
        assert dict(totals.pop(model)) == {name: known[name] for name in _counts(Usage())}
    assert totals == {}
    assert calls == truth["tool_calls"]
    assert (
        len({prompt for rows in collected for prompt in rows.prompts if _is_main(rows.links[prompt].rail)})
        == (truth["prompts"])
    )
    assert sum(one.turn.subagent is not None for one in joined.values()) == truth["sidechain"]["turns"]


def _is_main(rail: str) -> bool:
    return rail == "main"


def _counts(usage: Usage) -> dict[str, int]:
    return {
        "turns": 1,
        "input": usage.input,
        "output": usage.output + usage.reasoning,
        "cache_write_5m": usage.cache_create_5m,
        "cache_write_1h": usage.cache_create_1h,
        "cache_read": usage.cache_read,
    }


@needs_claude_corpus
def test_a_generated_session_reads_the_same_in_pieces(corpora: Corpora) -> None:
    tree, _ = corpora.claude(CLAUDE_OPTIONS[1])
    for path in transcripts(tree)[:8]:
        lines, place = lines_of(path), path_for(path)
        assert place is not None
        whole = read(lines, place).comparable()
        for seed in range(3):
            cuts = set(random.Random(seed).sample(range(len(lines)), min(20, len(lines))))
            assert read(lines, place, cuts=cuts, flushes=cuts).comparable() == whole
