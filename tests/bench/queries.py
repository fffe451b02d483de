"""Questions for summaries, comparisons, limits and the status line over a long history."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Any, NamedTuple

from burnd.contract.reports import CompareParams, LimitsParams, StatuslineParams, SummaryParams
from burnd.contract.validation import checked
from burnd.pricing import PriceTable
from burnd.queries.compare import compare
from burnd.queries.limits import limits
from burnd.queries.status import statusline
from burnd.queries.summary import summary
from burnd.queries.view import View
from tests.bench.year import END_MS, session_id

PRICES = PriceTable.load()
CHEAP = ("model", "provider", "project", "activity", "source", "day")
DEAR = ("session", "branch", "agent", "tag:persona", "tag:workflowId")
BUDGETS = {"daily": Decimal(20), "weekly": Decimal(80), "monthly": Decimal(250)}
MIXES: tuple[dict[str, Any], ...] = (
    {"tags": {"persona": "p3"}},
    {"tags": {"persona": "p3"}, "since": "90d"},
    {"workflow": "wf-100"},
    {"branch": "topic-3"},
    {"agent": "agent-17"},
    {"agent": "Explore"},
    {"session": session_id(40)},
    {"branch": "topic-3", "tags": {"step": "1"}, "activity": "coding", "project": "/home/me/code"},
    {"tags": {"persona": "p3", "step": "2"}, "model": "sonnet", "since": "180d", "until": "10d"},
    {"branch": "topic-3", "source": "opencode", "activity": "exploration"},
    {"workflow": "wf-100", "session": session_id(1001), "branch": "topic-1"},
)
ODD = {"since": "33d", "until": END_MS - 2 * 86_400_000 - 12_345}


class Question(NamedTuple):
    """A report, its parameters as shown, and the call that answers it."""

    report: str
    params: str
    ask: Callable[[View], Any]


def questions() -> Iterator[Question]:
    for by in CHEAP:
        for filters in (
            {},
            {"since": "7d"},
            ODD,
            {"model": "claude-sonnet-4-5"},
            {"provider": "openai"},
            {"project": "github.com/me/p1"},
            {"source": "opencode"},
            {"activity": "exploration"},
            {"project": "/home/me/code"},
            {"activity": "coding", "project": "/home/me/code/p0", "model": "sonnet"},
        ):
            for tz in ("UTC", "America/Los_Angeles", "+05:45") if by == "day" else ("UTC",):
                yield _summary(by=by, tz=tz, **filters)
    yield from _close_questions()
    yield from _mixed_questions()
    for history in (0, 10, 100):
        yield Question("limits", f"history {history}", _limits(history))
    now = StatuslineParams(session=session_id(40))
    yield Question("statusline", "", lambda view: statusline(view, now, BUDGETS))


def _close_questions() -> Iterator[Question]:
    """Hours, small charts, one-shot rates and comparisons, from sums over all sessions."""
    for since in ({"since": "24h"}, {"since": "31d"}, {"since": "31d", "activity": "coding"}, {}):
        for tz in ("UTC", "Asia/Kolkata"):
            yield _summary(by="hour", tz=tz, **since)
    for filters in ({}, {"since": "30d"}, {"model": "opus"}, {"project": "/home/me/code/p0"}, {"activity": "coding"}):
        for tz in ("UTC", "Europe/Berlin"):
            yield _summary(by="model", series=True, tz=tz, **filters)
        yield _summary(by="model", quality=True, **filters)
        yield _compare(**filters)
        yield _compare(by="source", **filters)
    yield _compare(whatIf="claude-haiku-4-5")
    yield _compare(models="opus,sonnet", provider="anthropic", since="90d")


def _mixed_questions() -> Iterator[Question]:
    """Whatever needs sessions one by one: tags, branches, agents, and any mix of them."""
    for by in (*CHEAP, *DEAR):
        for some in MIXES:
            yield _summary(by=by, tz="+05:45", **some)
    for by in DEAR:
        yield _summary(by=by)
        yield _summary(by=by, **ODD)
        yield _summary(by=by, activity="coding")
    for some in MIXES:
        yield _compare(**some)
        yield _compare(by="tag:persona", **some)
    yield _compare(by="tag:persona")
    yield _compare(by="tag:workflowId", since="90d")
    yield _compare(by="tag:persona", whatIf="claude-haiku-4-5")
    for some in MIXES[::2]:
        yield _summary(by="model", quality=True, series=True, tz="America/Los_Angeles", **some)
        yield _summary(by="hour", tz="America/Los_Angeles", **some)
    for by in (*DEAR, "day"):
        yield _summary(by=by, quality=True, limit=30, tz="Europe/Berlin")
    yield _summary(by="agent", tree=True)
    for by in ("day,model", "project,activity", "session,model", "month,tag:persona", "version"):
        yield _summary(by=by, tz="Europe/Berlin")
    yield _compare(by="model,source")
    yield _summary(by="session", limit=30, series=True, tz="Europe/Berlin")


def _limits(history: int) -> Callable[[View], Any]:
    return lambda view: limits(view, LimitsParams(history=history), BUDGETS)


def _summary(**params: Any) -> Question:
    asked = checked(SummaryParams, params)
    return Question("summary", str(params), lambda view: summary(view, asked))


def _compare(**params: Any) -> Question:
    asked = checked(CompareParams, params)
    return Question("compare", str(params), lambda view: compare(view, asked))
