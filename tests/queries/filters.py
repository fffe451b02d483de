"""Random filters of a report, and whether burnd answers or refuses them."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from tests.queries import worlds
from tests.queries.naive import Naive

filters = {
    "since": worlds.times,
    "until": worlds.times,
    "project": st.sampled_from(("/code/a", "/code", "/code/b", "/work/a/sub", "/elsewhere")),
    "session": st.sampled_from(worlds.SESSIONS),
    "workflow": st.sampled_from(worlds.VALUES),
    "agent": st.sampled_from((*worlds.VALUES, "a1", "Explore", "build")),
    "tags": st.dictionaries(st.sampled_from(worlds.KEYS), st.sampled_from(worlds.VALUES), max_size=2),
    "source": st.sampled_from(("claude-code", "opencode")),
    "model": st.sampled_from(("claude-sonnet-4-5", "gpt-5", "gemini-2.5-pro")),
    "branch": st.sampled_from(("main", "fix")),
    "activity": st.sampled_from(("coding", "debugging", "testing")),
    "version": st.sampled_from(("2", "2.0", "2.1.4")),
}


def is_answerable(naive: Naive, filters: dict[str, Any]) -> bool:
    """Unknown names, and an end before the beginning, are refused; see test_filters."""
    known = {turn.session_id for turn in naive.turns.values()}
    branches = {turn.git_branch for turn in naive.turns.values()}
    return (
        filters.get("since", -1) < filters.get("until", 1 << 60)
        and filters.get("session", next(iter(known), None)) in known
        and filters.get("branch", next(iter(branches), None)) in branches
        and ("version" not in filters or bool(naive.summary("model", version=filters["version"])["rows"]))
        and not ("project" in filters and naive.may_be_remembered(filters["project"]))
    )
