"""Logs of real clients: read, joined and explained, their causes are the bill."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import pytest

from burnd.attribution.causes import explain
from burnd.attribution.rail import RailEntry, in_order
from burnd.attribution.rates import NOTHING, Rate, Spent, rate_of, spent_by
from burnd.records import Compaction, Copy, Turn
from tests.harness.collect import cases, client_versions, fold, read_file, transcripts


def rails_of(client: Path) -> list[list[RailEntry]]:
    read = [read_file(path) for path in transcripts(client)]
    turns: defaultdict[tuple[str, str], list[Turn]] = defaultdict(list)
    copies: defaultdict[tuple[str, str], list[Copy]] = defaultdict(list)
    compactions: defaultdict[tuple[str, str], list[Compaction]] = defaultdict(list)
    for joined in fold(candidate for one in read for candidate in one.candidates.values()).values():
        turns[joined.turn.session_id, joined.turn.rail_id].append(joined.turn)
        for copy in joined.copies:
            copies[copy.session_id, copy.rail_id].append(copy)
    for one in read:
        for compaction in one.compactions:
            compactions[compaction.session_id, compaction.rail_id].append(compaction)
    return [in_order(turns[key], copies[key], compactions[key]) for key in turns]


@pytest.mark.parametrize("client", cases(client_versions()), ids=lambda path: path.name)
def test_real_logs_are_explained(client: Path) -> None:
    """Every rail of every sample: the causes add up to the bill, and a whole client's logs have every kind of them."""
    kinds = set()
    for entries in rails_of(client):
        explained = explain(entries, ())
        billed: dict[Rate, Spent] = {}
        for entry in entries:
            if isinstance(entry, Turn) and any(spent_by(entry)):
                rate = rate_of(entry, ())
                billed[rate] = billed.get(rate, NOTHING).plus(spent_by(entry))
        assert explained.spent == billed
        kinds |= {cause.kind for cause in explained.causes}
    is_whole = client.parent.name == "claude"
    assert {"prefix", "prompt", "answer", *(("thinking", "call", "inherited") if is_whole else ())} <= kinds
