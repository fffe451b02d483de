"""Releases of a harness after which requests cost more or missed the cache more often."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from burnd.attribution.explainer import Explainer
from burnd.contract.reports import WasteParams
from burnd.contract.validation import checked
from burnd.queries.compare import release_changes
from burnd.queries.selection import choose
from burnd.queries.view import View
from burnd.recording.candidate import Batch
from burnd.records import Turn, Usage
from tests.conftest import Opened
from tests.make import at, turn
from tests.queries.asking import NOW, PRICES

REQUESTS = 40  # of a session


def session(name: str, version: str | None, output: int, missing: Sequence[int] = (), **more: Any) -> list[Turn]:
    """A session of one release; the requests with these numbers read nothing from the cache."""
    turns = []
    for n in range(REQUESTS):
        cache = {"cache_create_5m": 20_000} if n == 0 or n in missing else {"cache_read": 20_000}
        usage = Usage(output=output, **cache)
        facts = {"session_id": name, "turn_index": n, "ts": at(10 * n), "harness_version": version, "usage": usage}
        parent = f"{name}-{n - 1}" if n else None
        turns.append(turn(f"{name}-{n}", parent=parent, tool_calls=(), **facts | more))
    return turns


def release(version: str | None, output: int = 100, missing: Sequence[int] = (), sessions: int = 5) -> list[Turn]:
    return [one for n in range(sessions) for one in session(f"{version}-s{n}", version, output, missing)]


async def changes(opened: Opened, *turns: Turn, **filters: Any) -> list[dict[str, Any]]:
    pipeline = await opened()
    await pipeline.commit(Batch(entries=[*turns]))
    await Explainer(pipeline).catch_up()

    def answer(db: Any) -> list[dict[str, Any]]:
        view = View(db, PRICES, NOW)
        return release_changes(view, pipeline.home.ledger, choose(view, checked(WasteParams, filters)))

    return await pipeline.index.ask(answer)


async def test_a_release_with_costlier_requests(opened: Opened) -> None:
    """Releases are compared in the order of their numbers, each with the one before it."""
    (one,) = await changes(opened, *release("2.1.9", 100), *release("2.1.10", 1_000), *release("2.1.11", 900))
    assert (one["source"], one["model"], one["what"]) == ("claude-code", "claude-sonnet-4-5", ["cost"])
    assert (one["before"]["version"], one["after"]["version"]) == ("2.1.9", "2.1.10")
    assert (one["after"]["requests"], one["after"]["sessions"]) == (200, 5)
    growth = one["after"]["costPerRequest"] - one["before"]["costPerRequest"]
    assert one["extraUsd"] == pytest.approx(200 * growth)
    assert growth == pytest.approx(900 * 15 / 1e6)


async def test_a_release_with_more_cache_misses(opened: Opened) -> None:
    (one,) = await changes(opened, *release("2.0.1", 5_000), *release("2.0.2", 5_000, missing=(10, 20)))
    assert one["what"] == ["misses"]
    assert (one["before"]["missRate"], one["after"]["missRate"]) == (0, 2 / REQUESTS)


@pytest.mark.parametrize(
    "second",
    [
        release("2.0.2", 1_000, sessions=4),
        release("2.0.2", 120),
        release("nightly", 1_000),
        release(None, 1_000),
        [one for n in range(5) for one in session(f"x{n}", "2.0.2", 1_000, model="claude-opus-4-5")],
    ],
)
async def test_no_finding_without_enough_evidence(opened: Opened, second: list[Turn]) -> None:
    """Too few sessions, too small a difference, no order of releases, no release, another model."""
    assert await changes(opened, *release("2.0.1", 100), *second) == []


async def test_filters_select_what_is_compared(opened: Opened) -> None:
    turns = [*release("2.0.1", 100), *release("2.0.2", 1_000)]
    assert len(await changes(opened, *turns, version="2.0")) == 1
    assert await changes(opened, *turns, version="2.0.2") == []
